//! Priorities of pods.

use hostler_api::core::PodSpec;

/// Priorities that the API server gives to the two classes that every cluster has.
const SYSTEM_PRIORITIES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Returns the priority of a pod, and remarks on it.
pub(super) fn priority(spec: &PodSpec) -> (i32, Vec<String>) {
    match (spec.priority, spec.priority_class_name.as_deref().filter(|name| !name.is_empty())) {
        (Some(priority), _) => (priority, Vec::new()),
        (None, None) => (0, Vec::new()),
        (None, Some(class)) => match SYSTEM_PRIORITIES.iter().find(|(name, _)| *name == class) {
            Some((_, priority)) => (*priority, Vec::new()),
            None => (0, vec![format!("priorityClassName {class} says no number; priority 0 was assumed")]),
        },
    }
}
