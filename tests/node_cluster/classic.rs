//! The bundle for clusters of 1.31, in a real one: daemon, controller and policies.

use std::{fs, path::Path};

use hostler_testing::real_node::eventually;
use serde_json::{Value, json};

use super::{bundle::Installation, token};

const OLD: &str = "/apis/resource.k8s.io/v1alpha3";

impl Installation {
    /// Creates a class, and a template for claims of one CPU that the controller allocates.
    fn classic_template(&self) {
        let class = json!({
            "apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceClass", "metadata": {"name": "cpu.hostler.dev"},
            "spec": {"selectors": [{"cel": {"expression":
                "device.driver == \"hostler.dev\" && \"cpus\" in device.attributes[\"hostler.dev\"]"}}]},
        });
        if self.node.get(&format!("{OLD}/deviceclasses/cpu.hostler.dev")).is_none() {
            self.node.create(&format!("{OLD}/deviceclasses"), &class);
        }
        self.node.create(&self.node.of(OLD, "resourceclaimtemplates"), &Self::template("cpu", "RequestConfig"));
    }

    fn template(name: &str, kind: &str) -> Value {
        let parameters = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": kind, "capacity": {"cpus": "1"}});
        json!({
            "apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": {"controller": "hostler.dev", "devices": {
                "requests": [{"name": "cpu", "deviceClassName": "cpu.hostler.dev"}],
                "config": [{"requests": ["cpu"], "opaque": {"driver": "hostler.dev", "parameters": parameters}}],
            }}},
        })
    }
}

#[test]
fn the_bundle_for_old_clusters_brings_daemon_controller_and_policies_that_hold() {
    let Some(cluster) = Installation::find_classic() else { return };
    let bundle = Path::new("deploy/classic");
    cluster.apply(bundle);
    cluster.until_daemons_are("0.2.0");
    cluster.until_controllers_are_ready();
    cluster.classic_template();
    // Invalid configuration is refused when it is written, and configuration for the controller is not.
    let wrong = Installation::template("wrong", "RequestConfg");
    let answer = cluster.node.ask("POST", &cluster.node.of(OLD, "resourceclaimtemplates"), "application/json", &wrong);
    let (code, message) = answer.unwrap_err();
    assert!(code == 422 && message.contains("kind of the parameters has to be one of"), "{code} {message}");
    let pid = cluster.run_pod("a");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    assert!(cpus.parse::<u32>().is_ok(), "{cpus} is not one CPU");
    cluster.end_pod("a");
    eventually("the claim to be gone", || {
        cluster.node.get(&cluster.node.of(OLD, "resourceclaims"))?["items"].as_array()?.is_empty().then_some(())
    });
    token::a_daemon_writes_the_hardware_of_its_own_node_alone(&cluster);
    cluster.delete(bundle);
    cluster.node.delete(&format!("{OLD}/deviceclasses/cpu.hostler.dev"), 0);
    cluster.nothing_is_left();
}
