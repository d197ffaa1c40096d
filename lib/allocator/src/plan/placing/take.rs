//! Taking the devices of a pod that was placed.

use std::collections::BTreeMap;

use super::{
    Cluster, GivenDevice, Known, PlacedDevice, Placement, Placing, Questions, Shape, Stage, Takes, Usage, Wish,
    slices_of,
};

impl Placing<'_, '_> {
    /// Marks the devices of a pod as taken.
    pub(super) fn take(
        &mut self,
        node: usize,
        given: u32,
        stage: &Stage,
        pod: u32,
        wish: &Wish,
        placement: &mut Placement,
    ) {
        let Known { cluster, shapes, occupancy, questions, .. } = &mut *self.known;
        let shape = shapes.of(node);
        let given = questions.given(given);
        let mut chosen = Vec::with_capacity(given.devices.len());
        for device in &given.devices {
            let Some((slot, at)) = choose(&self.usage, cluster, node, shape, questions, device, &chosen) else {
                continue;
            };
            let (part, _) = shape.part_of(slot);
            let slice = slices_of(cluster, node).nth(part).unwrap_or_default();
            chosen.push((slice, at));
            take_device(&mut self.usage, slice, at, device);
            match &device.takes {
                Takes::All => occupancy.take(node, &shape.parts[part], slot, None),
                Takes::Parts(parts) => occupancy.take(node, &shape.parts[part], slot, Some(parts)),
                Takes::Nothing => {}
            }
            if self.names_devices {
                let claim = stage.names(device.claim, wish);
                placement.devices.push(placed_device(cluster, slice, at, device, claim, pod));
            }
        }
        stage.note_new_claims(&mut self.usage, given, cluster.nodes[node].name());
    }
}

/// Finds the first free device of a group: its slot, and its place in the slice.
fn choose(
    usage: &Usage,
    cluster: &Cluster,
    node: usize,
    shape: &Shape,
    questions: &Questions<'_>,
    device: &GivenDevice,
    chosen: &[(usize, usize)],
) -> Option<(usize, usize)> {
    questions.slots(device.group).find_map(|slot| {
        let (part, run) = shape.part_of(slot);
        let slice = slices_of(cluster, node).nth(part)?;
        let in_use = usage.slice(slice);
        let is_pods = |at: usize| chosen.contains(&(slice, at));
        let is_taken = |at: usize| in_use.is_some_and(|taken| taken.is_taken(at));
        let is_free = |at: &usize| match &device.takes {
            // Where devices are shared or looked after, each is a group of its own.
            Takes::Parts(_) | Takes::Nothing => true,
            Takes::All => !is_pods(*at) && !is_taken(*at),
        };
        (run.start..run.start + run.len).find(is_free).map(|at| (slot, at))
    })
}

fn take_device(usage: &mut Usage, slice: usize, at: usize, device: &GivenDevice) {
    match &device.takes {
        Takes::Nothing => {}
        Takes::Parts(consumed) => usage.slice_mut(slice).shares.entry(at).or_default().add(consumed),
        Takes::All => usage.slice_mut(slice).take(at),
    }
}

fn placed_device(
    cluster: &Cluster,
    slice: usize,
    at: usize,
    device: &GivenDevice,
    claim: String,
    pod: u32,
) -> PlacedDevice {
    let (store, slice) = (&cluster.facts.store, &cluster.slices[slice].1);
    let text = |number: u32| store.texts.get(number).to_owned();
    PlacedDevice {
        pod,
        claim,
        request: device.request.to_string(),
        driver: text(slice.driver),
        pool: text(slice.pool),
        device: text(store.columns.get(slice.names)[at]),
        consumed: match &device.takes {
            Takes::Parts(consumed) => consumed.clone(),
            Takes::All | Takes::Nothing => BTreeMap::new(),
        },
    }
}
