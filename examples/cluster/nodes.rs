//! The nodes: three daemons, each on a captured machine.

use std::{fs, path::Path};

use hostler_testing::{
    apiserver::{ApiServer, PolicyRule},
    host::{ClusterMembership, Host},
};
use serde_json::json;

use crate::scene::shipped;

/// The nodes and the captures of their machines, which are one emulated machine at three moments.
pub(crate) const NODES: [(&str, &str); 3] = [
    ("worker-1", "qemu-cxl-7.3.4-boot.tar.zst"),
    ("worker-2", "qemu-cxl-7.3.4-regions.tar.zst"),
    ("worker-3", "qemu-cxl-7.3.4-hotadd.tar.zst"),
];
/// Cards of each node that a script makes up, for the captured machines have none.
pub(crate) const CARDS: usize = 2;
const DRIVER: &str = "hostler.dev";

/// Starts the daemons, and waits until each has told what there is.
pub(crate) async fn start(server: &ApiServer) -> Vec<Host> {
    let mut hosts: Vec<Host> = NODES.iter().map(|(node, capture)| host(server, node, capture)).collect();
    hosts.iter_mut().for_each(Host::spawn);
    for host in &mut hosts {
        tokio::task::block_in_place(|| host.wait_until_served());
    }
    for (node, _) in NODES {
        let what = format!("{node} has told what hardware it has");
        server
            .until(&what, |view| {
                let is_of_node = |slice: &&serde_json::Value| slice["spec"]["nodeName"] == node;
                let published = view.list("resourceslices").iter().filter(is_of_node).count();
                (published > 0 && !view.get("nodehardware", node)?["status"]["driver"].is_null()).then_some(())
            })
            .await;
    }
    hosts
}

fn host(server: &ApiServer, node: &str, capture: &str) -> Host {
    server.create(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": node, "labels": { "kubernetes.io/hostname": node } },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "allocatable": { "cpu": "6", "memory": "2Gi", "pods": "110" },
        },
    }));
    // The daemon of each node has a token of its own, which tells the server the node.
    let user = format!("hostler-on-{node}");
    server.allow(&user, PolicyRule::from_yaml(&shipped("deploy/cluster/rbac.yaml")));
    server.user(&user, Some(node));
    let membership = ClusterMembership {
        node: node.to_owned(),
        driver: DRIVER.to_owned(),
        kubeconfig: server.kubeconfig(&user),
        kubelet: None,
        cdi: None,
    };
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/linux/tests/trees");
    let captures = fs::canonicalize(captures).expect("the captures are part of the repository");
    Host::captured(&captures.join(capture), &shipped("deploy/examples/demo/cards.toml"), membership)
}
