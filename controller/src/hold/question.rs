//! A question to the planner: which devices can be kept for candidates. The planner gives each candidate in turn, the
//! oldest first, the devices that the scheduler would give a pod of the template now. Planning takes seconds in a large
//! cluster: not for threads that must not wait.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use hostler_allocator::plan::{
    BoxSize, CUT_SHORT, ClusterFacts, CutShort, PlacedDevice, Placement, PlanBoxes, PlanOptions, PodSet, QuotaAmounts,
    QuotaBook, SetPlan, Snapshot,
};
use hostler_api::{
    ExactQuantity, ObjectKey, Quantity,
    core::{NodeSelector, PodResourceClaim, PodTemplateSpec},
    few,
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
    objects::{Amounts, DeviceKey, device_key},
    reservation::Problem,
    taken::add_promised,
    victims::Victim,
};

/// A question to the planner.
#[derive(Clone, Debug)]
pub(crate) struct HoldQuestion {
    /// Number of the question.
    pub(super) number: u64,
    /// Candidates, in their order.
    pub(super) wishes: Vec<HoldWish>,
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
pub(super) struct HoldWish {
    pub(super) asked: HoldAsked,
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

/// A part that a Reservation keeps already.
#[derive(Clone, Debug)]
pub(super) struct OwnPart {
    pub(super) device: ReservedDevice,
    /// True if a claim has the part: the facts count it already.
    pub(super) is_given: bool,
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
pub(super) struct HoldAsked {
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
    pub(super) found: Vec<(HoldAsked, Result<Vec<ReservedDevice>, NoDevices>)>,
}

/// The reason why there are no devices.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct NoDevices {
    pub(super) problem: Problem,
    /// The point at which planning was cut short, if it was.
    pub(super) cut_short: Option<CutShort>,
    /// True if no other devices would help.
    is_hopeless: bool,
}

/// A candidate in the planner's terms.
pub(super) struct PlannedWish<'a> {
    wish: &'a HoldWish,
    set: PodSet,
    /// Specs of the claims, by their names in the pod.
    specs: BTreeMap<String, ResourceClaimSpec>,
    /// True if the candidate asks for parts of devices.
    wants_parts: bool,
    /// The limits of work and time of all namespaces.
    boxes: &'a RefCell<PlanBoxes>,
}

impl HoldQuestion {
    /// Asks the planner. Each candidate that gets devices leaves the rest to the candidates behind it.
    pub(crate) fn run(&self, snapshot: &Snapshot) -> HoldAnswer {
        let (mut facts, quotas) = (snapshot.facts().clone(), snapshot.facts().quota_book());
        let boxes = RefCell::new(PlanBoxes::for_each_namespace(self.asker_box));
        let wishes: Vec<PlannedWish<'_>> =
            self.wishes.iter().map(|wish| planned_wish(wish, &mut facts, &boxes)).collect();
        let unclosable = self.closing.unclosable();
        let (mut taken, mut promised) = (self.taken.clone(), self.promised.clone());
        let (mut found, mut open) = (Vec::new(), Vec::new());
        for wish in &wishes {
            let shared = self.shared.iter().filter(|_| !wish.wants_parts).cloned();
            let devices = self.found_as_planned(&facts, wish, &taken.iter().cloned().chain(shared).collect());
            let devices = devices.filter(|_| wish.promise(&quotas, &mut promised).is_ok());
            match devices {
                Some(devices) => {
                    taken.extend(devices.iter().map(device_key));
                    found.push((wish.wish.asked.clone(), Ok(devices)));
                }
                None => open.push(wish),
            }
        }
        for group in groups(open) {
            let own = || group.iter().flat_map(|wish| &wish.wish.parts);
            let shared = self.shared.iter().filter(|_| group.iter().all(|wish| !wish.wants_parts)).cloned();
            let mut taken_here: BTreeSet<DeviceKey> = taken.iter().cloned().chain(shared).collect();
            taken_here.retain(|key| own().all(|part| device_key(&part.device) != *key));
            add_promised(&mut facts, &(&taken_here | &unclosable), own());
            let plans = self.plan_together(&snapshot.with(facts.clone()), &group, &taken_here, &quotas);
            for (wish, plan) in group.into_iter().zip(plans) {
                let devices = plan.and_then(|plan| self.found(wish, &plan, &taken_here));
                let devices = devices.or_else(|none| match none.is_hopeless {
                    true => Err(none),
                    false => self.found_otherwise(&mut facts, wish, &taken_here, &unclosable, none),
                });
                let devices = devices.and_then(|devices| wish.promise(&quotas, &mut promised).map(|()| devices));
                taken_here.extend(devices.iter().flatten().map(device_key));
                taken.extend(devices.iter().flatten().map(device_key));
                found.push((wish.wish.asked.clone(), devices));
            }
        }
        HoldAnswer { number: self.number, found }
    }

    /// An answer without any result: the thread that should answer has ended.
    pub(crate) fn unanswered(number: u64) -> HoldAnswer {
        HoldAnswer { number, found: Vec::new() }
    }

    /// Number of the question.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Verifies the devices that were planned for a Reservation when it was made: all of them must be free, and the scheduler must give
    /// them to the pods of the template where they can have no others.
    fn found_as_planned(
        &self,
        facts: &ClusterFacts,
        wish: &PlannedWish<'_>,
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let planned = &wish.wish.planned;
        if planned.is_empty() || wish.hopeless().is_some() {
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
            std::iter::empty(),
        );
        let mut set = wish.set.clone();
        let nodes: BTreeSet<&String> = planned.iter().map(|it| &it.node_name).collect();
        set.spec.go_only(&NodeSelector::of_nodes(nodes));
        let mut boxes = wish.boxes.borrow_mut();
        let plan = Snapshot::new(facts).plan_within(std::slice::from_ref(&set), &self.options, &mut boxes);
        self.found(wish, plan.sets.first()?, taken).ok()
    }

    /// Makes one plan for all candidates. A candidate that does not fit as a whole, or cannot keep what it would get,
    /// leaves those devices to the others.
    fn plan_together(
        &self,
        snapshot: &Snapshot,
        wishes: &[&PlannedWish<'_>],
        taken: &BTreeSet<DeviceKey>,
        quotas: &QuotaBook<'_>,
    ) -> Vec<Result<SetPlan, NoDevices>> {
        let hopeless = |(at, wish): (usize, &&PlannedWish<'_>)| {
            let hopeless = || wish.hopeless().map(|it| NoDevices::hopeless(Reason::Unsupported, it));
            let none = hopeless().or_else(|| wish.quota_problem(quotas, &self.promised))?;
            Some((at, Err(none)))
        };
        let mut answers: BTreeMap<usize, Result<SetPlan, NoDevices>> =
            wishes.iter().enumerate().filter_map(hopeless).collect();
        loop {
            let open: Vec<usize> = (0..wishes.len()).filter(|at| !answers.contains_key(at)).collect();
            let sets: Vec<PodSet> = open.iter().map(|at| wishes[*at].set.clone()).collect();
            let Some(first) = wishes.first() else { return Vec::new() };
            let plans = snapshot.plan_within(&sets, &self.options, &mut first.boxes.borrow_mut()).sets;
            let leaves = |at: usize, plan: &SetPlan| plan.placed > 0 && self.found(wishes[at], plan, taken).is_err();
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
    fn found_otherwise(
        &self,
        facts: &mut ClusterFacts,
        wish: &PlannedWish<'_>,
        taken: &BTreeSet<DeviceKey>,
        unclosable: &BTreeSet<DeviceKey>,
        none: NoDevices,
    ) -> Result<Vec<ReservedDevice>, NoDevices> {
        wish.boxes.borrow_mut().open(&wish.set.namespace);
        if let Some(devices) = self.found_with_victims(facts, wish, &(taken | unclosable)) {
            return Ok(devices);
        }
        let mut boxes = wish.boxes.borrow_mut();
        let is_empty = boxes.is_empty();
        if none.cut_short.is_none() && is_empty && !wish.wish.victims.is_empty() {
            let message = format!("{}; of the pods that could make room not all were looked at", none.problem.message);
            let problem = Problem { reason: Reason::CutShort, message };
            return Err(NoDevices { problem, cut_short: Some(CutShort::Begun), ..none });
        }
        if none.cut_short.is_some() || is_empty || unclosable.is_empty() {
            return Err(none);
        }
        add_promised(facts, taken, wish.wish.parts.iter());
        let open = Snapshot::new(facts.clone()).plan_within(std::slice::from_ref(&wish.set), &self.options, &mut boxes);
        let other = open.sets.first().filter(|plan| plan.placed == plan.wanted);
        Err(other.and_then(|plan| self.found(wish, plan, taken).err()).unwrap_or(none))
    }

    /// The devices of a plan, if the plan has a place for all pods and all of its devices can be closed.
    fn found(
        &self,
        wish: &PlannedWish<'_>,
        plan: &SetPlan,
        taken: &BTreeSet<DeviceKey>,
    ) -> Result<Vec<ReservedDevice>, NoDevices> {
        if plan.placed < plan.wanted {
            return Err(NoDevices::of_plan(plan));
        }
        let devices = once(plan.placements.iter().flat_map(|placement| reserved(wish, placement)));
        if devices.len() > MAX_RESERVED_DEVICES {
            return Err(NoDevices::new(Reason::Unsupported, too_many_devices(devices.len())));
        }
        for device in &devices {
            let key = device_key(device);
            let not_closable = |message| NoDevices::new(Reason::NotClosable, message);
            self.closing.can_close(&key, device).map_err(not_closable)?;
            if wish.wish.is_direct {
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
        wish: &PlannedWish<'_>,
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let victims = &wish.wish.victims;
        if victims.is_empty() {
            return None;
        }
        add_promised(facts, taken, wish.wish.parts.iter());
        let tries: Vec<&[Victim]> = match wish.wish.choice {
            VictimChoice::One => victims.chunks(1).collect(),
            VictimChoice::Several => (1..=victims.len()).map(|count| &victims[..count]).collect(),
            VictimChoice::LeastImportant => return self.found_by_preemption(facts, wish, taken),
        };
        tries.into_iter().find_map(|chosen| self.found_without(facts, wish, chosen, taken))
    }

    /// Devices of a plan without these pods and their claims, with all other devices of the pods that leave some of
    /// them.
    pub(super) fn found_without(
        &self,
        facts: &ClusterFacts,
        wish: &PlannedWish<'_>,
        victims: &[Victim],
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let mut boxes = wish.boxes.borrow_mut();
        if boxes.is_empty() {
            return None;
        }
        let mut facts = facts.clone();
        for victim in victims {
            facts.remove_pod(&victim.pod);
            victim.claims.iter().for_each(|claim| facts.remove_claim(&claim.key));
        }
        let plan = Snapshot::new(facts).plan_within(std::slice::from_ref(&wish.set), &self.options, &mut boxes);
        let devices = self.found(wish, plan.sets.first()?, taken).ok()?;
        self.closing.with_all_of(victims, devices, *wish.wish.asked.replicas.first()?)
    }
}

impl PlannedWish<'_> {
    /// Pods whose devices the candidate may have.
    pub(super) fn victims(&self) -> &[Victim] {
        &self.wish.victims
    }

    /// The quota of the namespace that the pods would exceed beside what is promised. The claims of a gated pod are
    /// counted already.
    fn quota_problem(&self, quotas: &QuotaBook<'_>, promised: &BTreeMap<String, QuotaAmounts>) -> Option<NoDevices> {
        if self.wish.is_direct {
            return None;
        }
        let nothing = QuotaAmounts::default();
        let promised = promised.get(&self.set.namespace).unwrap_or(&nothing);
        let problem = quotas.problem(&self.set.namespace, promised, &self.quota_amounts(), self.wish.leaving.iter());
        problem.map(|it| NoDevices::hopeless(Reason::QuotaExceeded, it))
    }

    fn quota_amounts(&self) -> QuotaAmounts {
        let mut all = QuotaAmounts::default();
        self.specs.values().for_each(|spec| all.add(&QuotaAmounts::of_claim(spec), self.set.count.into()));
        all
    }

    /// Promises the candidate its devices, if quotas allow that beside the promises to others by the same plan.
    fn promise(&self, quotas: &QuotaBook<'_>, promised: &mut BTreeMap<String, QuotaAmounts>) -> Result<(), NoDevices> {
        if let Some(none) = self.quota_problem(quotas, promised) {
            return Err(none);
        }
        if !self.wish.is_direct {
            promised.entry(self.set.namespace.clone()).or_default().add(&self.quota_amounts(), 1);
        }
        Ok(())
    }

    fn hopeless(&self) -> Option<String> {
        hopeless(&self.wish.template.spec, &self.specs, self.wish.asked.replicas.len())
    }
}

impl NoDevices {
    fn new(reason: Reason, message: String) -> Self {
        Self { problem: Problem { reason, message }, cut_short: None, is_hopeless: false }
    }

    pub(super) fn unschedulable(message: String) -> Self {
        Self::new(Reason::Unschedulable, message)
    }

    fn hopeless(reason: Reason, message: String) -> Self {
        Self { is_hopeless: true, ..Self::new(reason, message) }
    }

    fn of_plan(plan: &SetPlan) -> Self {
        Self { problem: problem_of(plan), cut_short: plan.cut_short, is_hopeless: false }
    }
}

/// Groups of candidates that are planned together: candidates that keep whole devices need others than those that keep
/// parts, and each candidate that keeps parts already may have further parts of its devices.
fn groups<'w, 'a>(wishes: Vec<&'w PlannedWish<'a>>) -> Vec<Vec<&'w PlannedWish<'a>>> {
    let (alone, others): (Vec<_>, Vec<_>) = wishes.into_iter().partition(|wish| !wish.wish.parts.is_empty());
    let (parts, wholes): (Vec<_>, Vec<_>) = others.into_iter().partition(|wish| wish.wants_parts);
    let all = [wholes, parts].into_iter().chain(alone.into_iter().map(|wish| vec![wish]));
    all.filter(|group| !group.is_empty()).collect()
}

/// The candidate in the planner's terms; the claims that it needs are added to the facts.
fn planned_wish<'a>(wish: &'a HoldWish, facts: &mut ClusterFacts, boxes: &'a RefCell<PlanBoxes>) -> PlannedWish<'a> {
    let name = &wish.asked.name;
    let namespace = ObjectKey::new(&wish.template.metadata.namespace, "").namespace;
    let (mut spec, mut specs) = (wish.template.spec.clone(), BTreeMap::new());
    for claim in &wish.claims {
        specs.insert(claim.name.clone(), claim.spec.clone());
        spec.resource_claims.push(PodResourceClaim { name: claim.name.clone(), ..PodResourceClaim::default() });
    }
    for claim in &mut spec.resource_claims {
        let template = claim.resource_claim_template_name.as_deref().unwrap_or_default();
        let known = facts.template(&ObjectKey::new(&namespace, template)).map(|it| (**it).clone());
        let Some(asked) = specs.get(&claim.name).cloned().or(known) else { continue };
        // No object has a space in its name.
        let own = format!("{} of {name}", claim.name);
        facts.add_template(ObjectKey::new(&namespace, &own), tolerating(asked.clone(), &wish.value));
        claim.resource_claim_template_name = Some(own);
        specs.insert(claim.name.clone(), asked);
    }
    let count = u32::try_from(wish.asked.replicas.len()).unwrap_or(u32::MAX);
    let wants_parts = specs.values().any(has_parts);
    PlannedWish { wish, set: PodSet { name: name.clone(), namespace, count, spec }, specs, wants_parts, boxes }
}

/// The devices of a placement, as the status names them.
fn reserved(wish: &PlannedWish<'_>, placement: &Placement) -> Vec<ReservedDevice> {
    let replicas = &wish.wish.asked.replicas;
    let device = |(at, device): (usize, &PlacedDevice)| {
        let is_part = wish.specs.get(&device.claim).is_some_and(|spec| asked_for(spec, &device.request).is_part);
        let reserved = ReservedDevice {
            replica: replicas.get(device.pod as usize).copied().unwrap_or_default(),
            claim: device.claim.clone(),
            request: device.request.clone(),
            device_class_name: class_of(wish, &device.claim, &device.request),
            driver: device.driver.clone(),
            pool: device.pool.clone(),
            device: device.device.clone(),
            node_name: placement.node.clone(),
            ..ReservedDevice::default()
        };
        let same = placement.devices[..at].iter().filter(|other| *other == device).count();
        if is_part { as_part(reserved, &wish.wish.asked.uid, &device.consumed, same) } else { reserved }
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
fn class_of(wish: &PlannedWish<'_>, claim: &str, request: &str) -> String {
    wish.specs.get(claim).map(|spec| class_of_spec(spec, request)).unwrap_or_default()
}

/// The problem of a plan, without numbers of nodes: they change all the time, and so would be written all the time.
fn problem_of(plan: &SetPlan) -> Problem {
    if let Some(problem) = &plan.problem {
        return Problem { reason: Reason::Incomplete, message: problem.clone() };
    }
    // The point that planning came to is another one each time.
    if plan.cut_short.is_some() {
        return Problem { reason: Reason::CutShort, message: CUT_SHORT.to_owned() };
    }
    let reasons: BTreeSet<&str> = plan.refusals.iter().map(|refusal| &*refusal.reason).collect();
    let reasons: Vec<&str> = reasons.into_iter().collect();
    let message = if reasons.is_empty() { "no node would take all of it".to_owned() } else { few(reasons) };
    Problem { reason: Reason::Unschedulable, message }
}
