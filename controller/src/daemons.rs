//! Pods of the daemon, by the node that each is for. Pure.
//!
//! A DaemonSet makes a pod for every node that its daemon shall run on, and names the node in the pod's affinity. Such a
//! node without a report tells of a daemon that never came; a report alone tells only of daemons that came and went.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::{ObjectKey, core::Pod};

use crate::stock::ClusterStock;

/// Labels of the daemon's pods in `deploy/base`.
const LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "hostler"), ("app.kubernetes.io/component", "node-driver")];

/// Pods of the daemon that have not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct DaemonPods(BTreeMap<ObjectKey, Arc<str>>);

impl DaemonPods {
    /// Returns the node that a pod of the daemon is for; `None` for other pods, and for those that end.
    pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
        let meta = &pod.metadata;
        let is_daemon = meta.owner_references.iter().any(|owner| owner.kind == "DaemonSet")
            && LABELS.iter().all(|(key, value)| meta.labels.get(*key).is_some_and(|found| found == value));
        let ends = meta.deletion_timestamp.is_some() || matches!(&*pod.status.phase, "Succeeded" | "Failed");
        if !is_daemon || ends {
            return None;
        }
        let named = || pod.spec.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?.name();
        pod.node().or_else(named)
    }

    /// True if the node of a pod is another one than is known.
    pub(crate) fn is_news(&self, key: &ObjectKey, node: Option<&str>) -> bool {
        self.0.get(key).map(|known| &**known) != node
    }

    /// Notes the node of a pod; `None` forgets the pod.
    pub(crate) fn note(&mut self, key: &ObjectKey, node: Option<&str>) {
        match node {
            Some(node) => drop(self.0.insert(key.clone(), node.into())),
            None => drop(self.0.remove(key)),
        }
    }

    /// Returns the nodes that a daemon shall run on and that have no report. There are none as long as no node reports at
    /// all: then reports may be switched off.
    pub(crate) fn unreported<'a>(&'a self, stock: &ClusterStock) -> BTreeSet<&'a str> {
        let counts = stock.reports;
        if counts.reporting + counts.stale + counts.unknown == 0 {
            return BTreeSet::new();
        }
        let is_awaited = |node: &&str| stock.nodes.get(*node).is_some_and(|it| it.is_there && it.report.is_none());
        self.0.values().map(|node| &**node).filter(is_awaited).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(change: impl FnOnce(&mut serde_json::Value)) -> Pod {
        let mut pod = serde_json::json!({
            "metadata": {
                "name": "hostler-x", "namespace": "hostler-system",
                "labels": { "app.kubernetes.io/name": "hostler", "app.kubernetes.io/component": "node-driver" },
                "ownerReferences": [{ "kind": "DaemonSet", "name": "hostler" }],
            },
            "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] }],
            } } } },
            "status": { "phase": "Pending" },
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn the_node_of_a_daemon_is_known_before_its_pod_is_scheduled() {
        assert_eq!(DaemonPods::node_of(&pod(|_| ())), Some("n1"));
        assert_eq!(DaemonPods::node_of(&pod(|pod| pod["spec"] = serde_json::json!({ "nodeName": "n2" }))), Some("n2"));
        assert_eq!(DaemonPods::node_of(&pod(|pod| pod["status"]["phase"] = "Failed".into())), None);
        // Tenants can set labels, and the controller's pods have the name alone.
        assert_eq!(DaemonPods::node_of(&pod(|pod| pod["metadata"]["ownerReferences"] = serde_json::json!([]))), None);
        let other = pod(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] = "controller".into());
        assert_eq!(DaemonPods::node_of(&other), None);
    }
}
