//! Nodes and hosts that agree, and those that do not.

use std::sync::Arc;

use hostler_fabric::{FabricInventory, Provider, WatchedInventory, fake::FakeFabric};
use serde_json::json;

use super::*;
use crate::{fabric::board::ManagerReading, observed::FabricObjects};

/// A cluster with nodes and what they say of their boards, and a manager with two hosts.
struct Scene {
    view: ClusterView,
    config: FabricConfig,
    fabric: FakeFabric,
}

impl Scene {
    fn new(nodes: &[(&str, Option<u32>)]) -> Self {
        let mut view = ClusterView::default();
        let mut objects = FabricObjects::default();
        for (name, host) in nodes {
            let labels = json!({ "kubernetes.io/hostname": format!("{name}.example") });
            view.facts
                .add_node(serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap());
            objects.system_uuids.extend(host.and_then(FakeFabric::host).map(|uuid| ((*name).to_owned(), uuid)));
        }
        view.fabric = Arc::new(objects);
        let manager = FabricManagerConfig { name: "m".to_owned(), ..FabricManagerConfig::default() };
        let config = FabricConfig { managers: vec![manager], ..FabricConfig::default() };
        Self { view, config, fabric: FakeFabric::rack(2, 0) }
    }

    fn inventory(&self) -> WatchedInventory {
        let mut parts = None;
        self.fabric.change(|it| parts = Some(it.clone()));
        FabricInventory::conclude(parts.unwrap()).watched()
    }

    fn host(&self, manager: &str, node: &str) -> Result<SystemUuid, String> {
        let provider = Arc::new(Provider::Fake(self.fabric.clone()));
        let reading = ManagerReading { provider, inventory: Some(Arc::new(self.inventory())), error: None };
        let readings = FabricReadings { managers: [("m".to_owned(), reading)].into(), ..FabricReadings::default() };
        host_of(&self.view, &self.config, &readings, manager, node)
    }

    fn hostnames(&self) -> Hostnames {
        hostnames(&self.view, &self.config.managers[0], &self.inventory())
    }
}

fn host(at: u32) -> SystemUuid {
    FakeFabric::host(at).unwrap()
}

#[test]
fn a_node_is_the_host_with_the_uuid_of_its_board() {
    let scene = Scene::new(&[("n1", Some(0)), ("n2", Some(1)), ("n3", None)]);
    assert_eq!(scene.host("m", "n1"), Ok(host(0)));
    assert_eq!(scene.host("m", "n2"), Ok(host(1)));
    let expected = [(host(0), Ok("n1.example".to_owned())), (host(1), Ok("n2.example".to_owned()))];
    assert_eq!(scene.hostnames(), expected.into());
}

#[test]
fn each_reason_against_a_host_names_the_node_and_the_fix() {
    let scene = Scene::new(&[("n1", Some(0)), ("n2", Some(0)), ("n3", None), ("n4", Some(7))]);
    for (manager, node, expected) in [
        ("x", "n1", "has no fabric manager x; add it to [[fabric.managers]]"),
        ("m", "n1", "the nodes n1, n2 all have the UUID"),
        ("m", "n3", "node n3 tells no UUID of its board; see that hostler on it writes its NodeHardware"),
        ("m", "n4", "knows no host with the UUID"),
    ] {
        let error = scene.host(manager, node).unwrap_err();
        assert!(error.contains(expected), "{node}: {error}");
    }
    let error = scene.hostnames().remove(&host(0)).unwrap().unwrap_err();
    assert!(error.contains("the nodes n1, n2 all have"), "{error}");
}

#[test]
fn hosts_that_contradict_each_other_or_are_at_no_switch_get_nothing() {
    let scene = Scene::new(&[("n1", Some(0)), ("n2", Some(1))]);
    scene.fabric.change(|parts| parts.endpoints.retain(|endpoint| !endpoint.path.as_str().ends_with("initiators/0")));
    let error = scene.host("m", "n1").unwrap_err();
    assert!(error.contains("host /hosts/0 is at no switch") && error.contains("(node n1)"), "{error}");
    scene.fabric.change(|parts| parts.hosts[0].uuid = FakeFabric::host(1));
    let error = scene.host("m", "n2").unwrap_err();
    assert!(error.contains("cannot be used") && error.contains("give each system its own UUID"), "{error}");
}

#[test]
fn the_configuration_counts_before_the_reports_and_deleted_nodes_do_not_count() {
    let mut scene = Scene::new(&[("n1", Some(0)), ("n2", Some(0))]);
    scene.config.managers[0].nodes = [("n2".to_owned(), host(1).to_string())].into();
    assert_eq!((scene.host("m", "n1"), scene.host("m", "n2")), (Ok(host(0)), Ok(host(1))));
    let mut scene = Scene::new(&[("n1", Some(0)), ("n2", Some(0))]);
    scene.view.facts.remove_node("n2");
    assert_eq!(scene.host("m", "n1"), Ok(host(0)));
}

#[test]
fn a_manager_that_was_not_read_is_named_with_its_error() {
    let scene = Scene::new(&[("n1", Some(0))]);
    let unusable = [("m".to_owned(), "no certificate".to_owned())].into();
    let readings = FabricReadings { unusable, ..FabricReadings::default() };
    let error = host_of(&scene.view, &scene.config, &readings, "m", "n1").unwrap_err();
    assert_eq!(error, "fabric manager m was not read: no certificate");
}

#[test]
fn a_node_without_its_label_is_a_contradiction() {
    let mut scene = Scene::new(&[("n1", Some(0))]);
    scene.view.facts.add_node(serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap());
    let error = scene.hostnames().remove(&host(0)).unwrap().unwrap_err();
    assert_eq!(error, "node n1 has no label kubernetes.io/hostname; see that its kubelet sets it");
}
