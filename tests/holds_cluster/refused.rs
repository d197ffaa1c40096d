//! Reservations that can never be kept: each is refused by name, and takes nothing from one that is made after it.

use serde_json::{Value, json};

use crate::{CARDS, HoldingCluster, OURS, RESOURCE, eventually};

const FOREIGN: &str = "gpu.e2e.example";

impl HoldingCluster {
    /// Creates a device on the node, of a driver that does not run here, with its class.
    fn foreign_device(&self) {
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "e2e-foreign"},
            "spec": {
                "driver": FOREIGN, "nodeName": self.node.name(), "devices": [{"name": "gpu-0"}],
                "pool": {"name": "e2e-foreign", "generation": 1, "resourceSliceCount": 1},
            },
        });
        self.node.create(&format!("{RESOURCE}/resourceslices"), &slice);
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "e2e-foreign"},
            "spec": {"selectors": [{"cel": {"expression": format!("device.driver == \"{FOREIGN}\"")}}]},
        });
        self.node.create(&format!("{RESOURCE}/deviceclasses"), &class);
    }

    /// Waits until a condition of a Reservation that is not Available says this.
    fn until_refused(&self, name: &str, why: &str) {
        eventually(&format!("{name} to be refused for {why}"), || {
            let object = self.node.get(&format!("{OURS}/reservations/{name}"))?;
            assert_ne!(object["status"]["phase"], "Available", "{name} can never be kept");
            let conditions = object["status"]["conditions"].as_array()?;
            conditions.iter().any(|it| it["message"].as_str().is_some_and(|it| it.contains(why))).then_some(())
        });
    }
}

fn request(class: &str, more: &Value) -> Value {
    let mut exactly = json!({"deviceClassName": class});
    more.as_object().unwrap().iter().for_each(|(field, value)| exactly[field] = value.clone());
    json!([{"name": "c", "spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}}])
}

#[test]
fn what_can_never_be_kept_is_refused_by_name_and_younger_ones_have_all_cards() {
    let Some(cluster) = HoldingCluster::start() else { return };
    cluster.foreign_device();
    let labels = json!({"matchLabels": {"app": "e2e"}});
    let apart = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": labels}]);
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": labels,
    }]);
    let of_template = |spec: &Value| json!({"template": {"spec": spec}});
    let term = json!({"requiredDuringSchedulingIgnoredDuringExecution": apart});
    let all = [
        ("e2e-foreign", json!({"deviceClaims": request("e2e-foreign", &json!({}))}), "kubernetes#139651"),
        ("e2e-admin", json!({"deviceClaims": request("kept-card", &json!({"adminAccess": true}))}), "adminAccess"),
        ("e2e-apart", of_template(&json!({"affinity": {"podAntiAffinity": term}})), "podAntiAffinity"),
        ("e2e-spread", of_template(&json!({"topologySpreadConstraints": spread})), "topologySpreadConstraints"),
    ];
    for (name, more, _) in &all {
        cluster.reserve_with(name, 1, "nobody", more);
    }
    for (name, _, why) in &all {
        cluster.until_refused(name, why);
    }
    cluster.reserve("e2e-younger", CARDS, "owner");
    cluster.until_phase("e2e-younger", "Available");
    assert_eq!(cluster.held(), CARDS);
    for (name, _, why) in &all {
        cluster.until_refused(name, why);
        cluster.release(name);
    }
    cluster.release("e2e-younger");
    for kind in ["resourceslices", "deviceclasses"] {
        cluster.node.delete(&format!("{RESOURCE}/{kind}/e2e-foreign"), 0);
    }
    cluster.stop();
}
