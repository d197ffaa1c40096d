//! The fields of a pod by which its set is found: the pod does not name its set, and names of containers can be any.
//! Pure.

use std::collections::BTreeMap;

use hostler_api::core::{NodeSelector, PodResourceClaim, PodSpec, ResourceList};

/// The fields of a pod or template that tell sets apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodShape {
    requests: ResourceList,
    claims: Vec<PodResourceClaim>,
    node_selector: BTreeMap<String, String>,
    node_affinity: Option<NodeSelector>,
}

impl PodShape {
    /// Reads the shape of a pod, or of a template.
    pub(crate) fn of(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
        Self {
            requests: spec.requests(),
            claims: spec.resource_claims.clone(),
            node_selector: spec.node_selector.clone(),
            node_affinity: affinity.and_then(|it| it.required.clone()),
        }
    }

    /// Returns the number of claims that a pod of this shape gets from templates.
    pub(crate) fn claims_made(&self) -> usize {
        self.claims.iter().filter(|claim| claim.resource_claim_template_name.is_some()).count()
    }

    /// Returns how well a pod of this shape matches a template: the number of node constraints that it has from the
    /// template. `None`: the pod is not made of this template. Batch systems add node labels to a pod's selector, and
    /// remove none.
    pub(crate) fn likeness(&self, template: &Self) -> Option<usize> {
        let mut wanted = template.node_selector.iter();
        let is_one = self.requests == template.requests
            && self.claims == template.claims
            && wanted.all(|(label, value)| self.node_selector.get(label) == Some(value));
        let same_affinity = usize::from(self.node_affinity == template.node_affinity);
        is_one.then_some(template.node_selector.len() + same_affinity)
    }
}
