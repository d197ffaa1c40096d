//! The set of its request that a pod belongs to. Pure.
//!
//! A pod belongs to a set whose template its spec matches. If several sets match, the Reservation's device that the pod
//! has or had decides, or, before it has any, the taint that its claims tolerate. Else the set that matches best
//! counts, and for a pod that matches none the first set with room.

use std::{cmp::Reverse, collections::BTreeMap};

use hostler_allocator::plan::{ClusterFacts, PodSet};

use super::{booked::booked_sets, context::ProvisionContext, toleration::tolerates};
use crate::{
    requests::{ConsumerPod, PodShape, SeenRequest},
    reservation_object::ReservationObject,
};

/// Evidence from a request's Reservations about the sets of pods.
#[derive(Debug, Default)]
struct SetEvidence<'a> {
    owners: BTreeMap<&'a str, usize>,
    /// The set of each device; `None` if several sets share the device.
    devices: BTreeMap<(&'a str, &'a str, &'a str), Option<usize>>,
    values: Vec<(&'a str, usize)>,
}

/// Returns the pods of each set of a request.
pub(super) fn members<'a>(
    request: &'a SeenRequest,
    sets: &[PodSet],
    pods: impl Iterator<Item = &'a ConsumerPod>,
    cx: &ProvisionContext<'a>,
) -> Vec<Vec<&'a ConsumerPod>> {
    let mut evidence = SetEvidence::default();
    booked_sets(request, cx.reservations).for_each(|(set, known)| evidence.add(set, known));
    let shapes: Vec<PodShape> = sets.iter().map(|set| PodShape::of(&set.spec)).collect();
    let mut members: Vec<Vec<&ConsumerPod>> = vec![Vec::new(); sets.len()];
    let mut unknown = Vec::new();
    for pod in pods {
        let looks_like = |set: &usize| shapes.get(*set).is_some_and(|shape| pod.shape.likeness(shape).is_some());
        let is_possible =
            |set: &usize| *set < sets.len() && (looks_like(set) || !(0..sets.len()).any(|at| looks_like(&at)));
        match evidence.set_of(pod, cx.facts).filter(is_possible) {
            Some(set) => members[set].push(pod),
            None => unknown.push(pod),
        }
    }
    let has_room = |at: &usize, members: &[Vec<&ConsumerPod>]| {
        u32::try_from(members[*at].len()).is_ok_and(|there| there < sets[*at].count)
    };
    let mut others = Vec::new();
    for pod in unknown {
        let open = (0..sets.len()).filter(|at| has_room(at, &members));
        let alike = open.filter_map(|at| Some((pod.shape.likeness(&shapes[at])?, Reverse(at))));
        match alike.max() {
            Some((_, Reverse(at))) => members[at].push(pod),
            None => others.push(pod),
        }
    }
    for pod in others {
        if let Some(at) = (0..sets.len()).find(|at| has_room(at, &members)) {
            members[at].push(pod);
        }
    }
    members
}

impl<'a> SetEvidence<'a> {
    fn add(&mut self, set: usize, known: &'a ReservationObject) {
        let status = &known.status;
        let owners = status.current_owners.iter().filter(|pod| !pod.uid.is_empty());
        self.owners.extend(owners.map(|pod| (&*pod.uid, set)));
        for device in status.kept() {
            let of = self.devices.entry(device.key()).or_insert(Some(set));
            *of = of.filter(|other| *other == set);
        }
        self.values.extend(status.toleration_value.as_deref().map(|value| (value, set)));
    }

    fn set_of(&self, pod: &ConsumerPod, facts: &ClusterFacts) -> Option<usize> {
        if let Some(set) = self.owners.get(&*pod.uid) {
            return Some(*set);
        }
        let claims: Vec<_> = pod.claims.iter().filter_map(|claim| facts.claim(claim)).collect();
        let mut devices = claims.iter().filter_map(|it| it.devices.as_ref()).flatten();
        let of_device = |[driver, pool, device]: &[String; 3]| *self.devices.get(&(&**driver, &**pool, &**device))?;
        devices.find_map(of_device).or_else(|| {
            let waits = |value: &str| claims.iter().any(|it| it.devices.is_none() && tolerates(&it.spec, value));
            self.values.iter().find(|(value, _)| waits(value)).map(|(_, set)| *set)
        })
    }
}
