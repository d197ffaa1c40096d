//! Answers a question: candidates get devices one group after the other, and devices that one group got are not there for
//! the next.
//!
//! Candidates with planned devices (a ProvisioningRequest hands them to its Reservations) are verified, not planned anew:
//! together they must fit where all other devices of their nodes are taken. None of them goes before an older candidate.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use hostler_allocator::plan::{ClusterFacts, PlanBoxes, QuotaAmounts, QuotaBook, Snapshot};
use hostler_api::{
    core::NodeSelector,
    reservation::{PlannedDevice, ReservedDevice},
};

use super::{
    no_devices::NoDevices,
    objects::{DeviceKey, PublishedDevice, PublishedSlice, device_key},
    question::{CandidateKey, HoldAnswer, HoldQuestion, PlannedCandidate, planned_candidate},
    taken::add_promised,
};

/// A question that is being answered.
pub(super) struct Answering<'a> {
    question: &'a HoldQuestion,
    snapshot: &'a Snapshot,
    quotas: QuotaBook<'a>,
    unclosable: BTreeSet<DeviceKey>,
    /// The facts of the snapshot, with the claims of the candidates and with devices that no candidate can have.
    facts: ClusterFacts,
    taken: BTreeSet<DeviceKey>,
    promised: BTreeMap<String, QuotaAmounts>,
    found: Vec<(CandidateKey, Result<Vec<ReservedDevice>, NoDevices>)>,
}

impl HoldQuestion {
    /// Asks the planner. Each candidate that gets devices leaves the rest to the candidates behind it.
    pub(crate) fn run(&self, snapshot: &Snapshot) -> HoldAnswer {
        let mut facts = snapshot.facts().clone();
        let boxes = RefCell::new(PlanBoxes::for_each_namespace(self.asker_box));
        let candidates: Vec<PlannedCandidate<'_>> =
            self.candidates.iter().map(|candidate| planned_candidate(candidate, &mut facts, &boxes)).collect();
        let found = Answering::new(self, snapshot, facts).answer(&candidates);
        HoldAnswer { number: self.number, found }
    }
}

type Candidates<'c, 'a> = Vec<&'c PlannedCandidate<'a>>;

impl<'a> Answering<'a> {
    pub(super) fn new(question: &'a HoldQuestion, snapshot: &'a Snapshot, facts: ClusterFacts) -> Self {
        Self {
            question,
            snapshot,
            quotas: snapshot.facts().quota_book(),
            unclosable: question.closing.unclosable(),
            facts,
            taken: question.taken.clone(),
            promised: question.promised.clone(),
            found: Vec::new(),
        }
    }

    /// Returns for each candidate its devices, or the reason why there are none. Candidates come in the order of their age.
    pub(super) fn answer(
        mut self,
        candidates: &[PlannedCandidate<'_>],
    ) -> Vec<(CandidateKey, Result<Vec<ReservedDevice>, NoDevices>)> {
        let oldest = candidates.iter().take_while(|it| it.has_plan()).count();
        let (oldest, others) = candidates.split_at(oldest);
        let (younger, others): (Vec<_>, Vec<_>) = others.iter().partition(|it| it.has_plan());
        let mut open = self.verify(oldest.iter().collect());
        open.extend(others);
        self.plan(open);
        let open = self.verify(younger);
        self.plan(open);
        self.found
    }

    /// Gives candidates the devices that were planned for them; returns the candidates that cannot have theirs.
    fn verify<'c, 'b>(&mut self, candidates: Candidates<'c, 'b>) -> Candidates<'c, 'b> {
        let mut open = Vec::new();
        for group in groups(candidates) {
            let pinned: Vec<PlannedCandidate<'_>> = group.iter().map(|it| pinned(it)).collect();
            let taken = &self.taken_for(&group) | &self.others_on_nodes_of(&group);
            let mut facts = self.facts.clone();
            add_promised(&mut facts, &(&taken | &self.unclosable), std::iter::empty());
            let cluster = self.snapshot.with(facts);
            let plans = self.question.plan_together(&cluster, &pinned.iter().collect::<Vec<_>>(), &taken, &self.quotas);
            for ((candidate, pinned), plan) in group.into_iter().zip(&pinned).zip(plans) {
                let devices = plan.and_then(|plan| self.question.found(pinned, &plan, &taken));
                match devices.and_then(|devices| self.promise(candidate, devices)) {
                    Ok(devices) => self.found.push((candidate.candidate.asked.clone(), Ok(devices))),
                    Err(_) => open.push(candidate),
                }
            }
        }
        open
    }

    /// Plans for candidates.
    fn plan(&mut self, candidates: Candidates<'_, '_>) {
        for group in groups(candidates) {
            let own = || group.iter().flat_map(|candidate| &candidate.candidate.parts);
            let mut taken = self.taken_for(&group);
            taken.retain(|key| own().all(|part| device_key(&part.device) != *key));
            add_promised(&mut self.facts, &(&taken | &self.unclosable), own());
            let cluster = self.snapshot.with(self.facts.clone());
            let plans = self.question.plan_together(&cluster, &group, &taken, &self.quotas);
            for (candidate, plan) in group.into_iter().zip(plans) {
                let devices = plan.and_then(|plan| self.question.found(candidate, &plan, &taken));
                let devices = devices.or_else(|none| match none.is_hopeless {
                    true => Err(none),
                    false => self.question.found_otherwise(&mut self.facts, candidate, &taken, &self.unclosable, none),
                });
                let devices = devices.and_then(|devices| self.promise(candidate, devices));
                taken.extend(devices.iter().flatten().map(device_key));
                self.found.push((candidate.candidate.asked.clone(), devices));
            }
        }
    }

    /// Devices that no candidate of a group can have. Only candidates for parts may have more of a shared device.
    fn taken_for(&self, group: &[&PlannedCandidate<'_>]) -> BTreeSet<DeviceKey> {
        let has_parts = group.iter().any(|candidate| candidate.wants_parts);
        let shared = self.question.shared.iter().filter(|_| !has_parts);
        self.taken.iter().chain(shared).cloned().collect()
    }

    /// Devices that are not planned for the group, though one of its nodes could use them.
    fn others_on_nodes_of(&self, group: &[&PlannedCandidate<'_>]) -> BTreeSet<DeviceKey> {
        let planned = || group.iter().flat_map(|it| &it.candidate.planned);
        let nodes: BTreeSet<&str> = planned().map(|it| &*it.node_name).collect();
        let devices: BTreeSet<DeviceKey> = planned().map(key_of).collect();
        let is_there = |slice: &PublishedSlice| slice.node.is_empty() || nodes.contains(&*slice.node);
        let key = |(slice, it): (&PublishedSlice, &PublishedDevice)| {
            is_there(slice).then(|| DeviceKey::new(&slice.driver, &slice.pool, &it.name))
        };
        let there = self.question.closing.published.devices().filter_map(key);
        there.filter(|key| !devices.contains(key)).collect()
    }

    /// Counts the devices as given, and the candidate's amounts as promised, if quotas allow them.
    fn promise(
        &mut self,
        candidate: &PlannedCandidate<'_>,
        devices: Vec<ReservedDevice>,
    ) -> Result<Vec<ReservedDevice>, NoDevices> {
        candidate.promise(&self.quotas, &mut self.promised)?;
        self.taken.extend(devices.iter().map(device_key));
        Ok(devices)
    }
}

fn key_of(planned: &PlannedDevice) -> DeviceKey {
    DeviceKey::new(&planned.driver, &planned.pool, &planned.device)
}

/// The candidate on the nodes of its planned devices.
fn pinned<'a>(candidate: &PlannedCandidate<'a>) -> PlannedCandidate<'a> {
    let nodes: BTreeSet<&String> = candidate.candidate.planned.iter().map(|it| &it.node_name).collect();
    let mut pinned = candidate.clone();
    pinned.set.spec.go_only(&NodeSelector::of_nodes(nodes));
    pinned
}

/// Groups of candidates that are planned together: candidates that keep whole devices need others than those that keep
/// parts, and each candidate that keeps parts already may have further parts of its devices.
fn groups<'w, 'a>(candidates: Vec<&'w PlannedCandidate<'a>>) -> Vec<Vec<&'w PlannedCandidate<'a>>> {
    let (alone, others): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| !candidate.candidate.parts.is_empty());
    let (parts, wholes): (Vec<_>, Vec<_>) = others.into_iter().partition(|candidate| candidate.wants_parts);
    let all = [wholes, parts].into_iter().chain(alone.into_iter().map(|candidate| vec![candidate]));
    all.filter(|group| !group.is_empty()).collect()
}
