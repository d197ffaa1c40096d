//! By what a pod is known to be of a set: nobody writes that into it, and the names of its containers are anybody's. Pure.

use std::collections::BTreeMap;

use hostler_api::core::{NodeSelector, PodResourceClaim, PodSpec, ResourceList};

/// What a pod looks like, as far as that tells sets apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodShape {
    requests: ResourceList,
    claims: Vec<PodResourceClaim>,
    node_selector: BTreeMap<String, String>,
    node_affinity: Option<NodeSelector>,
}

impl PodShape {
    /// That of a pod, or of what pods are made of.
    pub(crate) fn of(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
        Self {
            requests: spec.requests(),
            claims: spec.resource_claims.clone(),
            node_selector: spec.node_selector.clone(),
            node_affinity: affinity.and_then(|it| it.required.clone()),
        }
    }

    /// How many claims a pod of it gets from templates.
    pub(crate) fn claims_made(&self) -> usize {
        self.claims.iter().filter(|claim| claim.resource_claim_template_name.is_some()).count()
    }

    /// How much a pod of this shape looks like those that are made of `template`: by how much it says of its node as the template
    /// does. `None`: it is none of them. Batch systems write more labels of nodes into a pod than its template has, and none less.
    pub(crate) fn likeness(&self, template: &Self) -> Option<usize> {
        let mut wanted = template.node_selector.iter();
        let is_one = self.requests == template.requests
            && self.claims == template.claims
            && wanted.all(|(label, value)| self.node_selector.get(label) == Some(value));
        let same_affinity = usize::from(self.node_affinity == template.node_affinity);
        is_one.then_some(template.node_selector.len() + same_affinity)
    }
}
