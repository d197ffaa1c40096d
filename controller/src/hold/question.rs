//! A question to the planner: which devices can be kept for candidates. The planner gives each candidate in turn, the
//! oldest first, the devices that the scheduler would give a pod of the template now. Planning takes seconds in a large
//! cluster: not for threads that must not wait.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use hostler_allocator::plan::{
    BoxSize, ClusterFacts, CutShort, PlacedDevice, Placement, PlanBoxes, PlanOptions, PodSet, QuotaAmounts, QuotaBook,
    SetPlan, Snapshot,
};
use hostler_api::{
    ExactQuantity, ObjectKey, Quantity,
    core::{PodResourceClaim, PodTemplateSpec},
    fabric::{MEMORY_CAPACITY, of_fabric_pool},
    reservation::{
        MAX_RESERVED_DEVICES, NamedDeviceClaim, PlannedDevice, ReservationConditionReason as Reason, ReservedDevice,
        part_share_id,
    },
    resource::ResourceClaimSpec,
};

use super::{
    asked::{asked_for, class_of_spec, has_parts, tolerating},
    closing::Closing,
    hopeless::{hopeless, too_many_devices},
    no_devices::NoDevices,
    objects::{Amounts, DeviceKey, device_key},
    reservation::Problem,
    taken::{OwnPart, add_promised},
    victims::Victim,
};

/// A question to the planner.
#[derive(Clone, Debug)]
pub(crate) struct HoldQuestion {
    /// Number of the question.
    pub(super) number: u64,
    /// Candidates, in their order.
    pub(super) candidates: Vec<HoldCandidate>,
    /// Devices that no candidate can have.
    pub(super) taken: BTreeSet<DeviceKey>,
    /// The promises to others, by namespace, as quotas count them.
    pub(super) promised: BTreeMap<String, QuotaAmounts>,
    /// Devices of Reservations that lack some and are not among these candidates. No candidate gets these devices, and
    /// no refusal names them: the next question would have another refusal.
    pub(super) own_of_others: BTreeSet<DeviceKey>,
    /// Shared devices of which a claim has a part: no candidate can have such a device as a whole.
    pub(super) shared: BTreeSet<DeviceKey>,
    /// Knowledge that decides whether a device can be closed.
    pub(super) closing: Closing,
    /// Options of the planner.
    pub(super) options: PlanOptions,
    /// The limit of work and time for each namespace.
    pub(super) asker_box: BoxSize,
}

/// A candidate: a Reservation that lacks devices, as the planner is asked about it.
#[derive(Clone, Debug)]
pub(super) struct HoldCandidate {
    pub(super) asked: CandidateKey,
    /// Value that closes the candidate's devices: its own claims tolerate the value.
    pub(super) value: String,
    /// True if hostler writes the devices into the claims of a gated pod, and no scheduler does.
    pub(super) is_direct: bool,
    /// Template of a pod that gets the devices.
    pub(super) template: PodTemplateSpec,
    /// Claims of the Reservation beside those of the template.
    pub(super) claims: Vec<NamedDeviceClaim>,
    /// Devices that were planned for it when it was made.
    pub(super) planned: Vec<PlannedDevice>,
    /// Pods whose devices the candidate may have where nothing else is left.
    pub(super) victims: Vec<Victim>,
    /// The rule by which victims are chosen.
    pub(super) choice: VictimChoice,
    /// Parts that the Reservation keeps already: it may have further parts of these devices, and no other candidate
    /// may.
    pub(super) parts: Vec<OwnPart>,
    /// Claims that are gone before the candidate's pods come.
    pub(super) leaving: BTreeSet<ObjectKey>,
}

/// The pods that are taken, of those whose devices the candidate may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum VictimChoice {
    /// One pod.
    One,
    /// Several pods: no more than are needed.
    Several,
    /// The least important pods, and as few as possible: they are evicted.
    LeastImportant,
}

/// A candidate, as its Reservation was when the question was asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct CandidateKey {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) generation: i64,
    /// The replicas that lack devices.
    pub(super) replicas: Vec<u32>,
    /// True if pods that have devices were considered.
    pub(super) has_victims: bool,
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub(crate) struct HoldAnswer {
    pub(super) number: u64,
    /// For each candidate its devices, or the reason why there are none.
    pub(super) found: Vec<(CandidateKey, Result<Vec<ReservedDevice>, NoDevices>)>,
}

/// A candidate in the planner's terms.
#[derive(Clone)]
pub(super) struct PlannedCandidate<'a> {
    pub(super) candidate: &'a HoldCandidate,
    pub(super) set: PodSet,
    /// Specs of the claims, by their names in the pod.
    specs: BTreeMap<String, ResourceClaimSpec>,
    /// True if the candidate asks for parts of devices.
    pub(super) wants_parts: bool,
    /// The limits of work and time of all namespaces.
    pub(super) boxes: &'a RefCell<PlanBoxes>,
}

impl HoldQuestion {
    /// An answer without any result: the thread that should answer has ended.
    pub(crate) fn unanswered(number: u64) -> HoldAnswer {
        HoldAnswer { number, found: Vec::new() }
    }

    /// Number of the question.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Makes one plan for all candidates. A candidate that does not fit as a whole, or cannot keep what it would get,
    /// leaves those devices to the others.
    pub(super) fn plan_together(
        &self,
        snapshot: &Snapshot,
        candidates: &[&PlannedCandidate<'_>],
        taken: &BTreeSet<DeviceKey>,
        quotas: &QuotaBook<'_>,
    ) -> Vec<Result<SetPlan, NoDevices>> {
        let hopeless = |(at, candidate): (usize, &&PlannedCandidate<'_>)| {
            let hopeless = || candidate.hopeless().map(|it| NoDevices::hopeless(Reason::Unsupported, it));
            let none = hopeless().or_else(|| candidate.quota_problem(quotas, &self.promised))?;
            Some((at, Err(none)))
        };
        let mut answers: BTreeMap<usize, Result<SetPlan, NoDevices>> =
            candidates.iter().enumerate().filter_map(hopeless).collect();
        loop {
            let open: Vec<usize> = (0..candidates.len()).filter(|at| !answers.contains_key(at)).collect();
            let sets: Vec<PodSet> = open.iter().map(|at| candidates[*at].set.clone()).collect();
            let Some(first) = candidates.first() else { return Vec::new() };
            let plans = snapshot.plan_within(&sets, &self.options, &mut first.boxes.borrow_mut()).sets;
            let leaves =
                |at: usize, plan: &SetPlan| plan.placed > 0 && self.found(candidates[at], plan, taken).is_err();
            let judged: Vec<(usize, SetPlan, bool)> = open
                .into_iter()
                .zip(plans)
                .map(|(at, plan)| (at, leaves(at, &plan), plan))
                .map(|(at, leaves, plan)| (at, plan, leaves))
                .collect();
            let has_leaver = judged.iter().any(|(.., leaves)| *leaves);
            let settled = judged.into_iter().filter(|(.., leaves)| !has_leaver || *leaves);
            answers.extend(settled.map(|(at, plan, _)| (at, Ok(plan))));
            if !has_leaver {
                return answers.into_values().collect();
            }
        }
    }

    /// Returns devices that pods leave, where the candidate may have them; else the reason. The reason names devices
    /// that cannot be closed where only those are left.
    pub(super) fn found_otherwise(
        &self,
        facts: &mut ClusterFacts,
        candidate: &PlannedCandidate<'_>,
        taken: &BTreeSet<DeviceKey>,
        unclosable: &BTreeSet<DeviceKey>,
        none: NoDevices,
    ) -> Result<Vec<ReservedDevice>, NoDevices> {
        candidate.boxes.borrow_mut().open(&candidate.set.namespace);
        if let Some(devices) = self.found_with_victims(facts, candidate, &(taken | unclosable)) {
            return Ok(devices);
        }
        let mut boxes = candidate.boxes.borrow_mut();
        let is_empty = boxes.is_empty();
        if none.cut_short.is_none() && is_empty && !candidate.candidate.victims.is_empty() {
            let message = format!("{}; of the pods that could make room not all were looked at", none.problem.message);
            let problem = Problem { reason: Reason::CutShort, message };
            return Err(NoDevices { problem, cut_short: Some(CutShort::Begun), ..none });
        }
        if none.cut_short.is_some() || is_empty || unclosable.is_empty() {
            return Err(none);
        }
        add_promised(facts, taken, candidate.candidate.parts.iter());
        let open =
            Snapshot::new(facts.clone()).plan_within(std::slice::from_ref(&candidate.set), &self.options, &mut boxes);
        let other = open.sets.first().filter(|plan| plan.placed == plan.wanted);
        Err(other.and_then(|plan| self.found(candidate, plan, taken).err()).unwrap_or(none))
    }

    /// The devices of a plan, if the plan has a place for all pods and all of its devices can be closed.
    pub(super) fn found(
        &self,
        candidate: &PlannedCandidate<'_>,
        plan: &SetPlan,
        taken: &BTreeSet<DeviceKey>,
    ) -> Result<Vec<ReservedDevice>, NoDevices> {
        if plan.placed < plan.wanted {
            return Err(NoDevices::of_plan(plan));
        }
        let devices = once(plan.placements.iter().flat_map(|placement| reserved(candidate, placement)));
        if devices.len() > MAX_RESERVED_DEVICES {
            return Err(NoDevices::new(Reason::Unsupported, too_many_devices(devices.len())));
        }
        for device in &devices {
            let key = device_key(device);
            let not_closable = |message| NoDevices::new(Reason::NotClosable, message);
            self.closing.can_close(&key, device).map_err(not_closable)?;
            if candidate.candidate.is_direct {
                self.closing.can_be_written(&key).map_err(not_closable)?;
            }
            if taken.contains(&key) || self.own_of_others.contains(&key) {
                return Err(NoDevices::unschedulable(format!("{key} is promised to another Reservation")));
            }
            if !device.is_part() && self.shared.contains(&key) {
                let message = format!("others have parts of {key}; ask for a part of it, with capacity.requests");
                return Err(NoDevices::unschedulable(message));
            }
        }
        Ok(devices)
    }

    /// Devices that pods have, where the candidate may have them and nothing else is left.
    fn found_with_victims(
        &self,
        facts: &mut ClusterFacts,
        candidate: &PlannedCandidate<'_>,
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let victims = &candidate.candidate.victims;
        if victims.is_empty() {
            return None;
        }
        add_promised(facts, taken, candidate.candidate.parts.iter());
        let tries: Vec<&[Victim]> = match candidate.candidate.choice {
            VictimChoice::One => victims.chunks(1).collect(),
            VictimChoice::Several => (1..=victims.len()).map(|count| &victims[..count]).collect(),
            VictimChoice::LeastImportant => return self.found_by_preemption(facts, candidate, taken),
        };
        tries.into_iter().find_map(|chosen| self.found_without(facts, candidate, chosen, taken))
    }

    /// Devices of a plan without these pods and their claims, with all other devices of the pods that leave some of
    /// them.
    pub(super) fn found_without(
        &self,
        facts: &ClusterFacts,
        candidate: &PlannedCandidate<'_>,
        victims: &[Victim],
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let mut boxes = candidate.boxes.borrow_mut();
        if boxes.is_empty() {
            return None;
        }
        let mut facts = facts.clone();
        for victim in victims {
            facts.remove_pod(&victim.pod);
            victim.claims.iter().for_each(|claim| facts.remove_claim(&claim.key));
        }
        let plan = Snapshot::new(facts).plan_within(std::slice::from_ref(&candidate.set), &self.options, &mut boxes);
        let devices = self.found(candidate, plan.sets.first()?, taken).ok()?;
        self.closing.with_all_of(victims, devices, *candidate.candidate.asked.replicas.first()?)
    }
}

impl PlannedCandidate<'_> {
    /// True if devices were planned for the candidate.
    pub(super) fn has_plan(&self) -> bool {
        !self.candidate.planned.is_empty()
    }

    /// Pods whose devices the candidate may have.
    pub(super) fn victims(&self) -> &[Victim] {
        &self.candidate.victims
    }

    /// The quota of the namespace that the pods would exceed beside what is promised. The claims of a gated pod are
    /// counted already.
    fn quota_problem(&self, quotas: &QuotaBook<'_>, promised: &BTreeMap<String, QuotaAmounts>) -> Option<NoDevices> {
        if self.candidate.is_direct {
            return None;
        }
        let nothing = QuotaAmounts::default();
        let promised = promised.get(&self.set.namespace).unwrap_or(&nothing);
        let problem =
            quotas.problem(&self.set.namespace, promised, &self.quota_amounts(), self.candidate.leaving.iter());
        problem.map(|it| NoDevices::hopeless(Reason::QuotaExceeded, it))
    }

    fn quota_amounts(&self) -> QuotaAmounts {
        let mut all = QuotaAmounts::default();
        self.specs.values().for_each(|spec| all.add(&QuotaAmounts::of_claim(spec), self.set.count.into()));
        all
    }

    /// Promises the candidate its devices, if quotas allow that beside the promises to others by the same plan.
    pub(super) fn promise(
        &self,
        quotas: &QuotaBook<'_>,
        promised: &mut BTreeMap<String, QuotaAmounts>,
    ) -> Result<(), NoDevices> {
        if let Some(none) = self.quota_problem(quotas, promised) {
            return Err(none);
        }
        if !self.candidate.is_direct {
            promised.entry(self.set.namespace.clone()).or_default().add(&self.quota_amounts(), 1);
        }
        Ok(())
    }

    fn hopeless(&self) -> Option<String> {
        hopeless(&self.candidate.template.spec, &self.specs, self.candidate.asked.replicas.len())
    }
}

/// The candidate in the planner's terms; the claims that it needs are added to the facts.
pub(super) fn planned_candidate<'a>(
    candidate: &'a HoldCandidate,
    facts: &mut ClusterFacts,
    boxes: &'a RefCell<PlanBoxes>,
) -> PlannedCandidate<'a> {
    let name = &candidate.asked.name;
    let namespace = ObjectKey::new(&candidate.template.metadata.namespace, "").namespace;
    let (mut spec, mut specs) = (candidate.template.spec.clone(), BTreeMap::new());
    for claim in &candidate.claims {
        specs.insert(claim.name.clone(), claim.spec.clone());
        spec.resource_claims.push(PodResourceClaim { name: claim.name.clone(), ..PodResourceClaim::default() });
    }
    for claim in &mut spec.resource_claims {
        let template = claim.resource_claim_template_name.as_deref().unwrap_or_default();
        let known = facts.template(&ObjectKey::new(&namespace, template)).map(|it| (**it).clone());
        let Some(asked) = specs.get(&claim.name).cloned().or(known) else { continue };
        // No object has a space in its name.
        let own = format!("{} of {name}", claim.name);
        facts.add_template(ObjectKey::new(&namespace, &own), tolerating(asked.clone(), &candidate.value));
        claim.resource_claim_template_name = Some(own);
        specs.insert(claim.name.clone(), asked);
    }
    let count = u32::try_from(candidate.asked.replicas.len()).unwrap_or(u32::MAX);
    let wants_parts = specs.values().any(has_parts);
    PlannedCandidate {
        candidate,
        set: PodSet {
            name: name.clone(),
            namespace,
            count,
            labels: candidate.template.metadata.labels.clone(),
            spec,
            ..PodSet::default()
        },
        specs,
        wants_parts,
        boxes,
    }
}

/// The devices of a placement, as the status names them.
fn reserved(candidate: &PlannedCandidate<'_>, placement: &Placement) -> Vec<ReservedDevice> {
    let replicas = &candidate.candidate.asked.replicas;
    let device = |(at, device): (usize, &PlacedDevice)| {
        let spec = candidate.specs.get(&device.claim);
        let is_part = spec.is_some_and(|spec| asked_for(spec, &device.request).is_part);
        let is_pooled = of_fabric_pool(&device.pool).is_some();
        let memory = spec.filter(|_| is_pooled).and_then(|it| it.devices.asked(&device.request, MEMORY_CAPACITY));
        let reserved = ReservedDevice {
            replica: replicas.get(device.pod as usize).copied().unwrap_or_default(),
            claim: device.claim.clone(),
            request: device.request.clone(),
            device_class_name: class_of(candidate, &device.claim, &device.request),
            driver: device.driver.clone(),
            pool: device.pool.clone(),
            device: device.device.clone(),
            node_name: placement.node.clone(),
            memory,
            ..ReservedDevice::default()
        };
        let same = placement.devices[..at].iter().filter(|other| *other == device).count();
        if is_part { as_part(reserved, &candidate.candidate.asked.uid, &device.consumed, same) } else { reserved }
    };
    placement.devices.iter().enumerate().map(device).collect()
}

/// The kept part of a device, or the whole device where the amounts cannot be read. The share ID follows from the part,
/// and the claim that stands for the part never says anything else: schedulers that missed a change of the claim count
/// right all the same.
fn as_part(
    device: ReservedDevice,
    uid: &str,
    consumed: &BTreeMap<String, ExactQuantity>,
    same: usize,
) -> ReservedDevice {
    let amount = |(name, amount): (&String, &ExactQuantity)| Some((name.clone(), Quantity::try_from(*amount).ok()?));
    let Some(amounts) = consumed.iter().map(amount).collect::<Option<Amounts>>().filter(|it| !it.is_empty()) else {
        return device;
    };
    let words: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    let ReservedDevice { replica, claim, request, .. } = &device;
    let part = format!("{} {replica} {claim} {request} {same} {}", device_key(&device), words.join(","));
    ReservedDevice { share_id: part_share_id(uid, &part), consumed_capacity: amounts, ..device }
}

/// The devices in order, and each whole device once, however many claims have it.
fn once(devices: impl Iterator<Item = ReservedDevice>) -> Vec<ReservedDevice> {
    let (mut parts, wholes): (Vec<_>, Vec<_>) = devices.partition(ReservedDevice::is_part);
    let mut once = BTreeMap::new();
    for device in wholes {
        once.entry(device_key(&device)).or_insert(device);
    }
    parts.retain(|part| !once.contains_key(&device_key(part)));
    let mut devices: Vec<ReservedDevice> = once.into_values().chain(parts).collect();
    devices.sort_by_key(|device| (device.replica, device_key(device)));
    devices
}

/// The class that a request, or one of its alternatives, asks for.
fn class_of(candidate: &PlannedCandidate<'_>, claim: &str, request: &str) -> String {
    candidate.specs.get(claim).map(|spec| class_of_spec(spec, request)).unwrap_or_default()
}
