//! Permissions of the token of one daemon, in a real cluster.

use std::{fs, path::Path};

use hostler_testing::real_node::eventually;
use serde_json::{Value, json};

use super::bundle::Installation;

const ACCOUNT: &str = "/api/v1/namespaces/hostler-system/serviceaccounts/hostler";
const PODS: &str = "/api/v1/namespaces/hostler-system/pods";
const HARDWARE: &str = "/apis/hostler.dev/v1alpha1/nodehardware";
const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/hostler-hardware-of-own-node";

/// A client with the token of the daemon of this node.
struct Impostor<'a> {
    cluster: &'a Installation,
    _folder: tempfile::TempDir,
    kubeconfig: String,
}

impl<'a> Impostor<'a> {
    fn new(cluster: &'a Installation) -> Self {
        let pods = cluster.node.get(PODS).unwrap();
        let daemon = &pods["items"][0]["metadata"];
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": daemon["name"], "uid": daemon["uid"]});
        let asked = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound},
        });
        let token = cluster.node.create(&format!("{ACCOUNT}/token"), &asked)["status"]["token"].clone();
        let text = fs::read_to_string(cluster.node.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        for user in config["users"].as_array_mut().unwrap() {
            user["user"] = json!({ "token": token });
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        fs::write(&path, config.to_string()).unwrap();
        Self { cluster, _folder: folder, kubeconfig: path.to_str().unwrap().to_owned() }
    }

    fn marks(&self, node: &str) -> Result<String, String> {
        let patch = json!({"metadata": {"annotations": {"test": "marked"}}}).to_string();
        let args = ["--kubeconfig", &self.kubeconfig, "patch", "nodehardware", node, "--type", "merge", "-p", &patch];
        self.cluster.kubectl(&args)
    }
}

/// Checks the token of the daemon, which is there, installed in any way.
pub fn a_daemon_writes_the_hardware_of_its_own_node_alone(cluster: &Installation) {
    let own = eventually("a report of the node", || {
        cluster.node.get(HARDWARE)?["items"]
            .as_array()?
            .iter()
            .find_map(|it| it["metadata"]["name"].as_str().map(str::to_owned))
    });
    let other = json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": {"name": "another-node"},
        "spec": {"nodeName": "another-node"},
    });
    cluster.node.create(HARDWARE, &other);
    let impostor = Impostor::new(cluster);
    impostor.marks(&own).unwrap();
    let refused = impostor.marks("another-node").unwrap_err();
    assert!(
        refused.contains(&format!("hostler on node '{own}' may not write the hardware of node 'another-node'")),
        "{refused}"
    );
    // The policy refuses it: the role would allow it.
    cluster.node.delete(BINDING, 0);
    eventually("another node's hardware to be anybody's", || impostor.marks("another-node").ok());
    cluster.node.delete(&format!("{HARDWARE}/another-node"), 0);
}

#[test]
fn the_token_of_a_daemon_writes_the_hardware_of_its_own_node_and_of_no_other() {
    let Some(cluster) = Installation::find() else { return };
    cluster.apply(Path::new("deploy"));
    cluster.until_daemons_are("0.2.0");
    a_daemon_writes_the_hardware_of_its_own_node_alone(&cluster);
    cluster.delete(Path::new("deploy"));
    cluster.nothing_is_left();
}
