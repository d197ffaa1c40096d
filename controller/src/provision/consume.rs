//! What of a booking is still to be used: the pods that are there need no room any more.

use hostler_allocator::plan::{ObjectKey, PodSet};

use super::objects::{PodShape, ProvisionObjects, SeenRequest};

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

/// What is left of sets when pods that have a node are taken out of them: each out of one that looks like it, and what looks
/// like none out of the first that has any left.
pub(super) fn left(mut sets: Vec<PodSet>, request: &ObjectKey, world: &ProvisionObjects) -> Vec<PodSet> {
    let shapes: Vec<PodShape> = sets.iter().map(|set| PodShape::of(&set.spec)).collect();
    let mut others = 0;
    for pod in world.consumers_of(request).filter(|pod| pod.is_scheduled) {
        match (0..sets.len()).find(|at| shapes[*at] == pod.shape && sets[*at].count > 0) {
            Some(at) => sets[at].count -= 1,
            None => others += 1,
        }
    }
    for set in &mut sets {
        let taken = set.count.min(others);
        set.count -= taken;
        others -= taken;
    }
    sets.retain(|set| set.count > 0);
    sets
}
