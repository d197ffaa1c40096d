//! Verifies devices that were planned for a Reservation when it was made.

use std::{collections::BTreeSet, iter, slice};

use hostler_allocator::plan::{ClusterFacts, Snapshot};
use hostler_api::{
    core::NodeSelector,
    reservation::{PlannedDevice, ReservedDevice},
};

use super::{
    objects::DeviceKey,
    question::{HoldQuestion, PlannedCandidate},
    taken::add_promised,
};

impl HoldQuestion {
    /// Returns the planned devices if all of them are free, and the scheduler gives them to the pods of the template where
    /// these can have no others.
    pub(super) fn found_as_planned(
        &self,
        facts: &ClusterFacts,
        candidate: &PlannedCandidate<'_>,
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let planned = &candidate.candidate.planned;
        if planned.is_empty() || candidate.hopeless().is_some() {
            return None;
        }
        let key = |it: &PlannedDevice| DeviceKey::new(&it.driver, &it.pool, &it.device);
        let keys: BTreeSet<DeviceKey> = planned.iter().map(key).collect();
        let published = self.closing.published.devices();
        let others = published.map(|(slice, it)| DeviceKey::new(&slice.driver, &slice.pool, &it.name));
        let mut facts = facts.clone();
        add_promised(
            &mut facts,
            &others.filter(|it| !keys.contains(it)).chain(taken.iter().cloned()).collect(),
            iter::empty(),
        );
        let mut set = candidate.set.clone();
        let nodes: BTreeSet<&String> = planned.iter().map(|it| &it.node_name).collect();
        set.spec.go_only(&NodeSelector::of_nodes(nodes));
        let mut boxes = candidate.boxes.borrow_mut();
        let plan = Snapshot::new(facts).plan_within(slice::from_ref(&set), &self.options, &mut boxes);
        self.found(candidate, plan.sets.first()?, taken).ok()
    }
}
