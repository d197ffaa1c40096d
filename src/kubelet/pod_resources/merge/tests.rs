//! A kubelet's quirks, and two answers that become one.

use hostler_api::{Access, BackendName, ClaimRef, ClaimState, ClaimUid};
use hostler_proto::pod_resources_v1::NumaNode;

use super::{super::answers, *};
use crate::usage::pods::{ContainerUsage, PodUsage, UsedDevice};

const DRIVER: &str = "hostler.dev";

fn topology(nodes: &[i64]) -> Option<TopologyInfo> {
    Some(TopologyInfo { nodes: nodes.iter().map(|id| NumaNode { id: *id }).collect() })
}

fn device(resource: &str, ids: &[&str], topology: Option<TopologyInfo>) -> ContainerDevices {
    let device_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    ContainerDevices { resource_name: resource.to_owned(), device_ids, topology }
}

fn resource(driver: &str, device: &str, cdi: &[&str]) -> ClaimResource {
    ClaimResource {
        cdi_devices: cdi.iter().map(|name| CdiDevice { name: (*name).to_owned() }).collect(),
        driver_name: driver.to_owned(),
        pool_name: "n1".to_owned(),
        device_name: device.to_owned(),
        share_id: None,
    }
}

fn dynamic(claim: &str, resources: Vec<ClaimResource>) -> DynamicResource {
    DynamicResource { claim_name: claim.to_owned(), claim_namespace: "ml".to_owned(), claim_resources: resources }
}

fn container(name: &str) -> ContainerResources {
    ContainerResources { name: name.to_owned(), ..ContainerResources::default() }
}

fn pod(name: &str, containers: Vec<ContainerResources>) -> PodResources {
    let (name, namespace) = (name.to_owned(), "ml".to_owned());
    PodResources { name, namespace, containers, ..PodResources::default() }
}

fn cdi_names(resource: &ClaimResource) -> Vec<&str> {
    resource.cdi_devices.iter().map(|device| device.name.as_str()).collect()
}

/// One container of one pod, mended.
fn mended_container(container: ContainerResources) -> ContainerResources {
    let answer = ListPodResourcesResponse { pod_resources: vec![pod("p", vec![container])] };
    mended(answer).remove(0).containers.remove(0)
}

#[test]
fn an_entry_for_each_id_and_node_becomes_one_for_each_id() {
    let devices = vec![
        device("gpu", &["g1"], topology(&[1])),
        device("nic", &["n0"], None),
        device("gpu", &["g0"], topology(&[0])),
        device("gpu", &["g1"], topology(&[0])),
        device("gpu", &["g3", "g2"], topology(&[2])),
        device("odd", &["o"], topology(&[])),
    ];
    let mended = mended_container(ContainerResources { devices, cpu_ids: vec![7, 3, 7], ..container("main") });
    let expected = [
        device("gpu", &["g0"], topology(&[0])),
        device("gpu", &["g1"], topology(&[0, 1])),
        device("gpu", &["g2"], topology(&[2])),
        device("gpu", &["g3"], topology(&[2])),
        device("nic", &["n0"], None),
        device("odd", &["o"], None),
    ];
    assert_eq!(mended.devices, expected);
    assert_eq!(mended.cpu_ids, [3, 7]);
}

#[test]
fn cdi_ids_that_pile_up_are_taken_apart_for_each_driver() {
    let resources = vec![
        resource("gpu", "b", &["v/c=b"]),
        resource("nic", "x", &["n/c=x"]),
        resource("gpu", "a", &["v/c=b", "v/c=a"]),
        resource("gpu", "c", &["v/c=b", "v/c=a", "v/c=c", "v/c=d"]),
    ];
    let mended =
        mended_container(ContainerResources { dynamic_resources: vec![dynamic("c", resources)], ..container("main") });
    let resources = &mended.dynamic_resources[0].claim_resources;
    let names: Vec<Vec<&str>> = resources.iter().map(cdi_names).collect();
    assert_eq!(names, [vec!["v/c=a"], vec!["v/c=b"], vec!["v/c=c", "v/c=d"], vec!["n/c=x"]]);
}

#[test]
fn cdi_ids_that_do_not_pile_up_are_left_alone() {
    let resources = vec![
        resource("gpu", "a", &["v/c=all"]),
        resource("gpu", "b", &["v/c=all", "v/c=b"]),
        resource("gpu", "c", &["v/c=all", "v/c=c"]),
    ];
    let given = ContainerResources { dynamic_resources: vec![dynamic("c", resources.clone())], ..container("main") };
    assert_eq!(mended_container(given).dynamic_resources[0].claim_resources, resources);
}

#[test]
fn of_our_own_devices_our_word_counts_and_of_all_others_the_kubelets() {
    let kubelet = ContainerResources {
        devices: vec![device("gpu", &["g0"], topology(&[0]))],
        cpu_ids: vec![2, 3],
        memory: vec![ContainerMemory { memory_type: "memory".into(), size: 5, topology: topology(&[0]) }],
        dynamic_resources: vec![
            dynamic("both", vec![resource("gpu", "g", &["v/c=g"]), resource(DRIVER, "card", &["v/c=g", "o/c=card"])]),
            dynamic("other", vec![resource("nic", "n", &["n/c=n"])]),
        ],
        ..container("main")
    };
    let ours = ContainerResources {
        devices: vec![device("hostler.dev/fake", &["card"], None)],
        cpu_ids: vec![3, 8],
        memory: vec![ContainerMemory { memory_type: "memory".into(), size: 7, topology: topology(&[0]) }],
        dynamic_resources: vec![dynamic("both", vec![resource(DRIVER, "card", &["o/c=card"])])],
        ..container("main")
    };
    let alone = pod("alone", vec![container("x")]);
    let merged = pods(vec![alone.clone(), pod("p", vec![ours])], &[pod("p", vec![kubelet])], &BTreeSet::new(), DRIVER);
    assert_eq!(merged[0], alone);
    let merged = &merged[1].containers[0];
    assert_eq!(merged.devices.len(), 2);
    assert_eq!(merged.cpu_ids, [2, 3, 8]);
    assert_eq!(merged.memory.iter().map(|memory| memory.size).collect::<Vec<_>>(), [12]);
    let claims: Vec<(&str, Vec<Vec<&str>>)> = merged
        .dynamic_resources
        .iter()
        .map(|claim| (claim.claim_name.as_str(), claim.claim_resources.iter().map(cdi_names).collect()))
        .collect();
    assert_eq!(claims, [("both", vec![vec!["v/c=g"], vec!["o/c=card"]]), ("other", vec![vec!["n/c=n"]])]);
}

#[test]
fn a_kubelet_that_names_no_driver_is_understood_by_the_cdi_ids() {
    let kubelet = ContainerResources {
        dynamic_resources: vec![dynamic("c", vec![resource("", "", &["v/c=g", "o/c=card"])])],
        ..container("main")
    };
    let ours = ContainerResources {
        dynamic_resources: vec![dynamic("c", vec![resource(DRIVER, "card", &["o/c=card"])])],
        ..container("main")
    };
    let merged = pods(vec![pod("p", vec![ours])], &[pod("p", vec![kubelet])], &BTreeSet::new(), DRIVER);
    let resources = &merged[0].containers[0].dynamic_resources[0].claim_resources;
    assert_eq!(resources.iter().map(cdi_names).collect::<Vec<_>>(), [["v/c=g"], ["o/c=card"]]);
}

#[test]
fn a_pod_that_has_ended_is_left_out_although_an_old_kubelet_lists_it() {
    let name = |name: &str| PodName { namespace: "ml".to_owned(), name: name.to_owned() };
    let kubelet = [pod("done", vec![container("main")]), pod("live", vec![container("main")])];
    let merged = pods(Vec::new(), &kubelet, &[name("done")].into(), DRIVER);
    assert_eq!(merged, [pod("live", vec![container("main")])]);
}

fn used(claim: &str) -> ClaimUse {
    let claim = ClaimRef { namespace: "ml".to_owned(), name: claim.to_owned(), uid: ClaimUid::new(claim).unwrap() };
    let device = UsedDevice {
        backend: BackendName::new("fake").unwrap(),
        pool: "n1/fake".to_owned(),
        device: "card".to_owned(),
        request: "r".to_owned(),
        share_id: None,
        access: Access::Use,
        cdi_ids: vec!["o/c=card".to_owned()],
        nodes: BTreeSet::new(),
        cpus: [4].into(),
        memory: Vec::new(),
        is_of_node: false,
    };
    ClaimUse { claim, state: ClaimState::Prepared, devices: vec![device] }
}

/// A pod, and its containers with their CPUs.
type PodCpus<'a> = (&'a str, Vec<(&'a str, &'a [i64])>);

#[test]
fn the_kubelet_tells_the_container_of_a_claim_where_nobody_else_can() {
    let reserved = PodUsage {
        name: PodName { namespace: "ml".to_owned(), name: "a".to_owned() },
        known_by: PodEvidence::Reservation,
        containers: vec![ContainerUsage { name: "log".to_owned(), kind: None, id: None, claims: Vec::new() }],
        claims: vec![used("reserved")],
    };
    let usage = NodePodUsage { pods: vec![reserved], unused: vec![used("unknown")], ended: BTreeSet::new() };
    let with = |claim: &str, names: [&str; 2]| {
        let claim = || vec![dynamic(claim, vec![resource(DRIVER, "card", &["o/c=card"])])];
        names.map(|name| ContainerResources { dynamic_resources: claim(), ..container(name) }).to_vec()
    };
    let kubelet = [pod("a", with("reserved", ["one", "two"])), pod("b", with("unknown", ["main", "side"]))];
    let placed = placed(&usage, &kubelet);
    assert!(placed.unused.is_empty() && placed.pods.iter().all(|pod| pod.claims.is_empty()), "{placed:?}");
    let merged = pods(answers::pods(&placed, DRIVER), &kubelet, &placed.ended, DRIVER);
    let cpus: Vec<PodCpus<'_>> = merged
        .iter()
        .map(|pod| {
            let containers = pod.containers.iter().map(|container| (&*container.name, &*container.cpu_ids));
            (&*pod.name, containers.collect())
        })
        .collect();
    let expected: [PodCpus<'_>; 2] =
        [("a", vec![("one", &[4]), ("two", &[4]), ("log", &[])]), ("b", vec![("main", &[4]), ("side", &[4])])];
    assert_eq!(cpus, expected);
    for container in merged.iter().flat_map(|pod| &pod.containers).filter(|container| container.name != "log") {
        assert_eq!(container.dynamic_resources[0].claim_resources.len(), 1, "a double in {container:?}");
    }
}

#[test]
fn memory_that_both_can_hand_out_is_the_same_memory() {
    let memory = |size| ContainerMemory { memory_type: "memory".into(), size, topology: topology(&[0]) };
    let answer = |size, cpus: &[i64]| AllocatableResourcesResponse {
        devices: vec![device("gpu", &["g0"], topology(&[0]))],
        cpu_ids: cpus.to_vec(),
        memory: vec![memory(size)],
    };
    assert_eq!(allocatable(answer(5, &[1, 2]), &answer(9, &[2, 3])), answer(9, &[1, 2, 3]));
    assert_eq!(allocatable(answer(9, &[1]), &AllocatableResourcesResponse::default()), answer(9, &[1]));
}
