//! The part of a booking that is still unused: pods that exist and have a node need no room any more.

use hostler_allocator::plan::PodSet;
use hostler_api::{ObjectKey, core::PodTemplateSpec};

use crate::requests::{ProvisionObjects, SeenRequest};

/// Returns the pods of a request as sets for the planner.
///
/// # Errors
///
/// Fails with the name of a template that does not exist.
pub(crate) fn pod_sets(request: &SeenRequest, world: &ProvisionObjects) -> Result<Vec<PodSet>, String> {
    let namespace = &request.key.namespace;
    let sets = request.spec.pod_sets.iter().map(|set| {
        let name = &set.pod_template_ref.name;
        let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
        let template = world.templates.get(&key).ok_or_else(|| key.to_string())?;
        let count = u32::try_from(set.count).unwrap_or_default();
        let PodTemplateSpec { metadata, spec } = (**template).clone();
        Ok(PodSet {
            name: name.clone(),
            namespace: namespace.clone(),
            count,
            labels: metadata.labels,
            spec,
            ..PodSet::default()
        })
    });
    sets.collect()
}

/// Returns the number of a request's pods that have a node.
pub(crate) fn scheduled(request: &SeenRequest, world: &ProvisionObjects) -> usize {
    world.consumers_of(&request.key).filter(|pod| pod.is_scheduled).count()
}
