//! Terms about other pods, made ready for questions: the pods that a term selects, and the label of nodes that makes
//! its domains.

use std::collections::BTreeMap;

use hostler_api::core::{
    LabelSelector, LabelSelectorOperator, LabelSelectorRequirement, NAMESPACE_NAME_LABEL, PodAffinityTerm, PodSpec,
};

/// Labels by which the API tells apart the pods of one workload.
const LABELS_OF_ONE_POD: [&str; 3] =
    ["apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index", "statefulset.kubernetes.io/pod-name"];

/// Labels of namespaces, by name of the namespace.
pub(super) type NamespaceLabels = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the labels of a pod that it has in common with the other pods of its workload.
pub fn shared_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shared = labels.iter().filter(|(key, _)| !LABELS_OF_ONE_POD.contains(&&***key));
    shared.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Namespace and labels of a pod, as terms see them.
pub(super) trait SelectedPod {
    /// Returns the namespace of the pod.
    fn namespace(&self) -> &str;

    /// Returns the value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

/// Pods that are alike to all terms, and their own terms against other pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodIdentity {
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    /// Required anti-affinity.
    pub(super) far: Vec<PodTerm>,
}

impl SelectedPod for PodIdentity {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// A required term of pod affinity or anti-affinity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PodTerm {
    pub(super) topology_key: String,
    selector: Option<LabelSelector>,
    namespaces: Vec<String>,
    namespace_selector: Option<LabelSelector>,
}

/// The pod whose term is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TermOwner {
    /// A pod that looks for a node.
    Incoming,
    /// A pod that has a node.
    Standing,
}

/// The answer of a term about a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Selected {
    Yes,
    No,
    /// The labels of the pod's namespace decide, and are not known.
    Unknown,
}

impl PodTerm {
    /// Makes the terms of a pod that has a node. The API server wrote what they have in common with the pod's labels
    /// into their selectors.
    pub(super) fn of_standing(terms: &[PodAffinityTerm], namespace: &str) -> Vec<Self> {
        terms.iter().map(|term| Self::new(term, namespace, term.label_selector.clone())).collect()
    }

    /// Makes the terms of a pod with these labels that looks for a node.
    pub(super) fn of_incoming(
        terms: &[PodAffinityTerm],
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Self> {
        let selector = |term: &PodAffinityTerm| {
            let with = with_label_keys(term.label_selector.clone()?, &term.match_label_keys, true, labels);
            Some(with_label_keys(with, &term.mismatch_label_keys, false, labels))
        };
        terms.iter().map(|term| Self::new(term, namespace, selector(term))).collect()
    }

    fn new(term: &PodAffinityTerm, namespace: &str, selector: Option<LabelSelector>) -> Self {
        let is_own = term.namespaces.is_empty() && term.namespace_selector.is_none();
        Self {
            topology_key: term.topology_key.clone(),
            selector,
            namespaces: if is_own { vec![namespace.to_owned()] } else { term.namespaces.clone() },
            namespace_selector: term.namespace_selector.clone(),
        }
    }

    /// Returns true if the term of the owner selects the pod.
    pub(super) fn selects(&self, pod: &impl SelectedPod, owner: TermOwner, known: &NamespaceLabels) -> Selected {
        if !self.selector.as_ref().is_some_and(|it| it.matches_values(|key| pod.label(key))) {
            return Selected::No;
        }
        let namespace = pod.namespace();
        if self.namespaces.iter().any(|it| it == namespace) {
            return Selected::Yes;
        }
        let Some(selector) = &self.namespace_selector else { return Selected::No };
        // From 1.34 on, kube-scheduler asks the selector of a pod that looks for a node once more, without labels: one
        // that is content with the absence of labels selects every namespace.
        if owner == TermOwner::Incoming && selector.matches_values(|_| None) {
            return Selected::Yes;
        }
        selects_namespace(selector, namespace, known)
    }
}

fn selects_namespace(selector: &LabelSelector, namespace: &str, known: &NamespaceLabels) -> Selected {
    let selected = |yes: bool| if yes { Selected::Yes } else { Selected::No };
    if let Some(labels) = known.get(namespace) {
        return selected(selector.matches(labels));
    }
    // Every namespace has a label with its name.
    let name = selector.match_labels.get(NAMESPACE_NAME_LABEL);
    let of_name = selector.match_expressions.iter().filter(|it| it.key == NAMESPACE_NAME_LABEL);
    let is_refused =
        name.is_some_and(|name| name != namespace) || !of_name.clone().all(|it| it.matches(Some(namespace)));
    let others = selector.match_labels.len() - usize::from(name.is_some());
    match is_refused {
        false if others > 0 || of_name.count() < selector.match_expressions.len() => Selected::Unknown,
        is_refused => selected(!is_refused),
    }
}

/// Adds what the API server adds when a pod is made: the pod's own values of these labels, as wanted or as unwanted. A
/// key that the selector has already was added before.
pub(super) fn with_label_keys(
    mut selector: LabelSelector,
    keys: &[String],
    is_wanted: bool,
    labels: &BTreeMap<String, String>,
) -> LabelSelector {
    let operator = if is_wanted { LabelSelectorOperator::In } else { LabelSelectorOperator::NotIn };
    for key in keys {
        let has_key = selector.match_expressions.iter().any(|it| it.key == *key && it.operator == operator);
        if let Some(value) = labels.get(key).filter(|_| !has_key) {
            let requirement = LabelSelectorRequirement { key: key.clone(), operator, values: vec![value.clone()] };
            selector.match_expressions.push(requirement);
        }
    }
    selector
}

/// Returns the terms by which pods with this spec keep others away.
pub(super) fn repelling(spec: &PodSpec) -> &[hostler_api::core::PodAffinityTerm] {
    spec.affinity.as_ref().map_or(&[], |affinity| affinity.far())
}

/// Returns true if the pods must run near or far from others, or be spread.
pub(super) fn has_pod_terms(spec: &PodSpec) -> bool {
    spec.affinity.as_ref().is_some_and(|it| !it.near().is_empty() || !it.far().is_empty())
        || spec.topology_spread_constraints.iter().any(hostler_api::core::TopologySpreadConstraint::is_required)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fixtures::read;

    fn pod(namespace: &str, labels: &str) -> PodIdentity {
        PodIdentity { namespace: namespace.to_owned(), labels: read(labels), far: Vec::new() }
    }

    fn term(json: &str) -> PodTerm {
        PodTerm::of_incoming(&[read(json)], "own", &read(r#"{"app":"a","hash":"1"}"#)).remove(0)
    }

    fn asked(json: &str, pod: &PodIdentity) -> Selected {
        term(json).selects(pod, TermOwner::Incoming, &read(r#"{"team":{"tier":"gold"},"own":{}}"#))
    }

    #[test]
    fn a_term_without_namespaces_is_about_the_pods_own() {
        let json = r#"{"labelSelector":{"matchLabels":{"app":"a"}}}"#;
        assert_eq!(asked(json, &pod("own", r#"{"app":"a"}"#)), Selected::Yes);
        assert_eq!(asked(json, &pod("team", r#"{"app":"a"}"#)), Selected::No);
        assert_eq!(asked(r#"{"labelSelector":{}}"#, &pod("own", "{}")), Selected::Yes);
        assert_eq!(asked("{}", &pod("own", "{}")), Selected::No, "no selector selects no pod");
    }

    #[test]
    fn namespaces_are_selected_by_labels_as_far_as_these_are_known() {
        let json = r#"{"labelSelector":{},"namespaceSelector":{"matchLabels":{"tier":"gold"}}}"#;
        assert_eq!(asked(json, &pod("team", "{}")), Selected::Yes);
        assert_eq!(asked(json, &pod("own", "{}")), Selected::No);
        assert_eq!(asked(json, &pod("hidden", "{}")), Selected::Unknown);
        let by_name =
            r#"{"labelSelector":{},"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"hidden"}}}"#;
        assert_eq!(asked(by_name, &pod("hidden", "{}")), Selected::Yes);
        assert_eq!(asked(by_name, &pod("other", "{}")), Selected::No);
    }

    #[test]
    fn what_is_content_with_absent_labels_selects_every_namespace_for_a_pod_without_a_node() {
        let json = r#"{"labelSelector":{},"namespaceSelector":{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["gold"]}]}}"#;
        assert_eq!(asked(json, &pod("team", "{}")), Selected::Yes);
        let known = read(r#"{"team":{"tier":"gold"}}"#);
        assert_eq!(term(json).selects(&pod("team", "{}"), TermOwner::Standing, &known), Selected::No);
    }

    #[test]
    fn labels_that_pods_must_share_are_those_of_the_pod_itself() {
        let json = r#"{"labelSelector":{"matchLabels":{"app":"a"}},"matchLabelKeys":["hash","absent"]}"#;
        assert_eq!(asked(json, &pod("own", r#"{"app":"a","hash":"1"}"#)), Selected::Yes);
        assert_eq!(asked(json, &pod("own", r#"{"app":"a","hash":"2"}"#)), Selected::No);
        let json = r#"{"labelSelector":{"matchLabels":{"app":"a"}},"mismatchLabelKeys":["hash"]}"#;
        assert_eq!(asked(json, &pod("own", r#"{"app":"a","hash":"2"}"#)), Selected::Yes);
        assert_eq!(asked(json, &pod("own", r#"{"app":"a","hash":"1"}"#)), Selected::No);
        assert_eq!(asked(r#"{"matchLabelKeys":["hash"]}"#, &pod("own", r#"{"hash":"1"}"#)), Selected::No);
    }

    #[test]
    fn labels_of_one_pod_are_not_those_of_its_workload() {
        let labels = read(r#"{"app":"a","apps.kubernetes.io/pod-index":"3"}"#);
        assert_eq!(shared_labels(&labels), read(r#"{"app":"a"}"#));
    }
}
