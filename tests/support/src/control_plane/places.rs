//! Checks of a node for a pod, claims apart: taints and affinity, resources, ports.

use std::collections::BTreeMap;

use hostler_api::core::{Node, NodeSelector, Pod, Taint, Toleration};

/// Taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Returns the reason why a node does not take a pod, in kube-scheduler's text; `None` if it does. `others` are the
/// node's pods.
pub(super) fn refusal(node: &Node, pod: &Pod, others: &[&Pod]) -> Option<String> {
    let selected = is_selected(node, pod);
    (!selected)
        .then(|| "node(s) didn't match Pod's node affinity/selector".to_owned())
        .or_else(|| taint_refusal(node, pod))
        .or_else(|| ports_refusal(pod, others))
        .or_else(|| resources_refusal(node, pod, others))
}

fn is_selected(node: &Node, pod: &Pod) -> bool {
    let labels = &node.metadata.labels;
    let by_labels = pod.spec.node_selector.iter().all(|(name, value)| labels.get(name) == Some(value));
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let matches = |selector: &NodeSelector| selector.check().is_ok() && selector.matches(&node.metadata.name, labels);
    by_labels && required.is_none_or(matches)
}

fn taint_refusal(node: &Node, pod: &Pod) -> Option<String> {
    let tolerates = |taint: &Taint| pod.spec.tolerations.iter().any(|one: &Toleration| one.tolerates(taint));
    let closed = Taint { key: UNSCHEDULABLE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    if node.spec.unschedulable && !tolerates(&closed) {
        return Some("node(s) were unschedulable".to_owned());
    }
    let taint = node.spec.taints.iter().find(|taint| taint.keeps_away() && !tolerates(taint));
    taint.map(|taint| format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value))
}

fn ports_refusal(pod: &Pod, others: &[&Pod]) -> Option<String> {
    let mine = pod.spec.host_ports();
    let theirs = others.iter().flat_map(|other| other.spec.host_ports());
    let is_taken = theirs.into_iter().any(|taken| mine.iter().any(|port| port.collides(&taken)));
    is_taken.then(|| "node(s) didn't have free ports for the requested pod ports".to_owned())
}

fn resources_refusal(node: &Node, pod: &Pod, others: &[&Pod]) -> Option<String> {
    let allocatable = node.allocatable();
    let most = allocatable.get("pods").and_then(|pods| pods.as_integer());
    if most.is_some_and(|most| i64::try_from(others.len() + 1).is_ok_and(|count| count > most)) {
        return Some("Too many pods".to_owned());
    }
    let mut used: BTreeMap<String, _> = BTreeMap::new();
    for (name, amount) in others.iter().flat_map(|other| other.spec.requests()) {
        let sum = used.entry(name).or_insert(hostler_api::ExactQuantity::default());
        *sum = sum.plus(amount);
    }
    pod.spec.requests().into_iter().find_map(|(name, wanted)| {
        let there = allocatable.get(&name).copied().unwrap_or_default();
        let used = used.get(&name).copied().unwrap_or_default();
        let fits = wanted.is_zero() || there.minus(used).minus(wanted).sign() >= 0;
        (!fits).then(|| format!("Insufficient {name}"))
    })
}
