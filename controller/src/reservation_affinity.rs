//! A pod's preferences about Reservations: its annotations `hostler.dev/reservation-affinity` and
//! `hostler.dev/exact-match-reservation`, as JSON, and its label `hostler.dev/reservation-ignored`.

use std::collections::BTreeMap;

use hostler_api::{
    core::{NodeSelector, NodeSelectorTerm, ResourceList, Toleration},
    reservation::{EXACT_MATCH_RESERVATION, RESERVATION_AFFINITY, RESERVATION_IGNORED},
};
use serde::{Deserialize, de::Error as _};

use crate::{owner_pod::OwnerPod, reservation_object::ReservationObject, view::ClusterView};

/// Reservations whose devices a pod wants.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct ReservationAffinity {
    /// The name of the only Reservation that is wanted.
    pub(crate) name: Option<String>,
    /// Terms about the labels and the name of the Reservation, of which one at least must be met.
    required_during_scheduling_ignored_during_execution: Option<ReservationTerms>,
    /// Labels that the Reservation must have.
    pub(crate) reservation_selector: BTreeMap<String, String>,
    /// Taints of Reservations that the pod tolerates.
    pub(crate) tolerations: Vec<Toleration>,
    /// Resources of which the Reservation keeps exactly what the pod asks for; from an annotation of its own.
    #[serde(skip)]
    exactly: ExactResources,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReservationTerms {
    #[serde(deserialize_with = "checked")]
    reservation_selector_terms: NodeSelector,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ExactResources {
    resource_names: Vec<String>,
}

/// A pod's annotation that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error(
    "the pod's annotation {annotation} cannot be understood, so that it is led to no Reservation: {error}; write {example}"
)]
pub(crate) struct AffinityError {
    annotation: &'static str,
    error: serde_json::Error,
    example: &'static str,
}

const AFFINITY_EXAMPLE: &str = "{\"name\": …}, {\"reservationSelector\": {label: value}}, {\"tolerations\": […]} or \
     {\"requiredDuringSchedulingIgnoredDuringExecution\": {\"reservationSelectorTerms\": […]}}";

impl AffinityError {
    /// Returns the mistake and the fix, without the annotation.
    pub(crate) fn mistake(&self) -> String {
        format!("it cannot be understood: {}; write {}", self.error, self.example)
    }
}

impl ReservationAffinity {
    /// Reads the affinity of a pod; a pod without the annotations has no preferences.
    pub(crate) fn of(pod: &OwnerPod) -> Result<Self, AffinityError> {
        let affinity: Self = read(pod, RESERVATION_AFFINITY, AFFINITY_EXAMPLE)?;
        let exactly = read(pod, EXACT_MATCH_RESERVATION, "{\"resourceNames\": [\"cpu\"]}")?;
        Ok(Self { exactly, ..affinity })
    }

    /// True if the pod wants devices of the Reservation.
    pub(crate) fn wants(&self, reservation: &ReservationObject, view: &ClusterView) -> bool {
        let terms = self.required_during_scheduling_ignored_during_execution.as_ref();
        self.name.as_ref().is_none_or(|name| *name == reservation.name)
            && self.reservation_selector.iter().all(|(key, value)| reservation.labels.get(key) == Some(value))
            && terms.is_none_or(|terms| terms.select(reservation, view))
    }

    /// True if the pod asks for exactly what the Reservation keeps for a pod, of all resources that the pod names and
    /// for which `is_known` is true. Nothing and 0 are the same.
    pub(crate) fn is_exactly(
        &self,
        asked: &ResourceList,
        kept: &ResourceList,
        is_known: impl Fn(&str) -> bool,
    ) -> bool {
        let of = |amounts: &ResourceList, name: &String| amounts.get(name).copied().unwrap_or_default();
        let mut names = self.exactly.resource_names.iter().filter(|name| is_known(name));
        names.all(|name| of(asked, name) == of(kept, name))
    }
}

impl ReservationTerms {
    /// True if a term is met. Labels of the Reservation go before those of its node.
    fn select(&self, reservation: &ReservationObject, view: &ClusterView) -> bool {
        let node = reservation.status.node_name.as_deref().and_then(|name| view.facts.node(name));
        let mut labels = node.map(|node| node.metadata.labels.clone()).unwrap_or_default();
        labels.extend(reservation.labels.clone());
        self.reservation_selector_terms.matches(&reservation.name, &labels)
    }
}

/// Reads an annotation of a pod; where there is none, nothing is asked for.
fn read<T: Default + for<'de> Deserialize<'de>>(
    pod: &OwnerPod,
    annotation: &'static str,
    example: &'static str,
) -> Result<T, AffinityError> {
    let Some(text) = pod.annotations.get(annotation) else { return Ok(T::default()) };
    serde_json::from_str(text).map_err(|error| AffinityError { annotation, error, example })
}

/// Reads terms, which must have a meaning: no Reservation meets a term that has none.
fn checked<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<NodeSelector, D::Error> {
    let selector = NodeSelector { node_selector_terms: Vec::<NodeSelectorTerm>::deserialize(deserializer)? };
    let words = |error: hostler_api::core::NodeSelectorError| {
        D::Error::custom(error.to_string().replacen("nodeSelectorTerms", "reservationSelectorTerms", 1))
    };
    selector.check().map_err(words).map(|()| selector)
}

/// True if a pod wants devices of no Reservation.
pub(crate) fn ignores_reservations(pod: &OwnerPod) -> bool {
    pod.labels.get(RESERVATION_IGNORED).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hostler_api::core::Node;
    use serde_json::{Value, json};

    use super::*;

    fn affinity(annotation: &str, text: &str) -> Result<ReservationAffinity, AffinityError> {
        let annotations = [(annotation.to_owned(), text.to_owned())].into();
        ReservationAffinity::of(&OwnerPod { annotations, ..OwnerPod::default() })
    }

    fn terms(terms: &Value) -> Result<ReservationAffinity, AffinityError> {
        let required = json!({ "reservationSelectorTerms": terms });
        let all = json!({ "requiredDuringSchedulingIgnoredDuringExecution": required });
        affinity(RESERVATION_AFFINITY, &all.to_string())
    }

    fn reservation() -> ReservationObject {
        ReservationObject {
            name: "night".to_owned(),
            labels: [("team".to_owned(), "ml".to_owned()), ("level".to_owned(), "3".to_owned())].into(),
            status: serde_json::from_value(json!({ "nodeName": "n1" })).unwrap(),
            uid: "u".to_owned(),
            version: "1".to_owned(),
            generation: 1,
            created: Duration::ZERO,
            is_deleting: false,
            finalizers: Vec::new(),
            spec: serde_json::from_value(json!({ "owners": [] })).unwrap(),
        }
    }

    fn view() -> ClusterView {
        let mut view = ClusterView::default();
        let node = json!({ "metadata": { "name": "n1", "labels": { "zone": "a", "team": "of-the-node" } } });
        let node: Node = serde_json::from_value(node).unwrap();
        view.facts.add_node(node);
        view
    }

    #[test]
    fn one_term_is_enough_and_all_of_it_must_be_met_by_the_reservation_or_its_node() {
        let (reservation, view) = (reservation(), view());
        let wants = |all: Value| terms(&all).unwrap().wants(&reservation, &view);
        let is =
            |key: &str, operator: &str, values: &[&str]| json!({ "key": key, "operator": operator, "values": values });
        assert!(wants(json!([{ "matchExpressions": [is("team", "In", &["ml", "hpc"]), is("level", "Gt", &["2"])] }])));
        assert!(!wants(json!([{ "matchExpressions": [is("team", "In", &["ml"]), is("level", "Gt", &["3"])] }])));
        assert!(wants(json!([
            { "matchExpressions": [is("team", "NotIn", &["ml"])] },
            { "matchFields": [is("metadata.name", "In", &["night"])] },
        ])));
        assert!(wants(json!([{ "matchExpressions": [is("zone", "In", &["a"])] }])), "labels of the node count as well");
        assert!(!wants(json!([{ "matchExpressions": [is("team", "In", &["of-the-node"])] }])));
        assert!(!wants(json!([])), "no term is met by nothing");
    }

    #[test]
    fn annotations_without_a_meaning_are_named_with_the_place_and_an_example() {
        let told = |found: Result<ReservationAffinity, AffinityError>| found.unwrap_err().to_string();
        let wrong =
            told(terms(&json!([{ "matchExpressions": [{ "key": "a", "operator": "Near", "values": ["b"] }] }])));
        assert!(wrong.contains("reservationSelectorTerms[0].matchExpressions[0]: operator Near"), "{wrong}");
        let unknown = told(affinity(RESERVATION_AFFINITY, r#"{"names": "night"}"#));
        assert!(unknown.contains("unknown field `names`") && unknown.contains("write {\"name\": …}"), "{unknown}");
        let exactly = told(affinity(EXACT_MATCH_RESERVATION, r#"{"resources": ["cpu"]}"#));
        assert!(exactly.contains(EXACT_MATCH_RESERVATION) && exactly.contains("{\"resourceNames\":"), "{exactly}");
    }

    #[test]
    fn the_named_resources_agree_exactly_and_others_may_differ() {
        let exactly = affinity(EXACT_MATCH_RESERVATION, r#"{"resourceNames": ["cpu", "example.com/card"]}"#).unwrap();
        let amounts = |amounts: Value| serde_json::from_value::<ResourceList>(amounts).unwrap();
        let kept = amounts(json!({ "cpu": "2", "memory": "1Gi" }));
        let is = |asked: Value| exactly.is_exactly(&amounts(asked), &kept, |_| true);
        assert!(is(json!({ "cpu": "2000m", "memory": "2Gi" })), "memory is not named");
        assert!(!is(json!({ "cpu": "1999m" })) && !is(json!({})));
        assert!(is(json!({ "cpu": "2", "example.com/card": "0" })), "nothing and 0 are the same");
        assert!(!is(json!({ "cpu": "2", "example.com/card": "1" })));
        assert!(exactly.is_exactly(&amounts(json!({ "cpu": "1" })), &kept, |name| name != "cpu"));
    }
}
