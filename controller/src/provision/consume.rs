//! What of a booking is still to be used: the pods that are there need no room any more.

use hostler_allocator::plan::PodSet;
use hostler_api::ObjectKey;

use super::objects::{ProvisionObjects, SeenRequest};

/// The pods of a request as sets that a plan can be made for; without those that a template is missing for, which are named.
pub(crate) fn pod_sets(request: &SeenRequest, world: &ProvisionObjects) -> Result<Vec<PodSet>, String> {
    let namespace = &request.key.namespace;
    let sets = request.spec.pod_sets.iter().map(|set| {
        let name = &set.pod_template_ref.name;
        let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
        let spec = world.templates.get(&key).ok_or_else(|| key.to_string())?;
        let count = u32::try_from(set.count).unwrap_or_default();
        Ok(PodSet { name: name.clone(), namespace: namespace.clone(), count, spec: (**spec).clone() })
    });
    sets.collect()
}

/// How many pods of a request have a node.
pub(crate) fn scheduled(request: &SeenRequest, world: &ProvisionObjects) -> usize {
    world.consumers_of(&request.key).filter(|pod| pod.is_scheduled).count()
}
