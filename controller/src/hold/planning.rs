//! Who lacks devices is asked about, one question at a time, and what the planner answers is proposed to those that are still as
//! they were asked about.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_allocator::plan::{CutShort, PlanOptions, QuotaAmounts};
use hostler_api::reservation::{PLACED_POD_LABEL, ReservedDevice, ReservedDeviceState};
use hostler_api::{Doubling, ObjectKey};

use super::{
    agenda::Topic,
    closing::Closing,
    core::{Hold, HoldCore, device_key},
    event::{DeviceKey, HoldCommand},
    evictions::ReplacedNode,
    question::{HoldAnswer, HoldAsked, HoldQuestion, HoldWish, NoDevices, OwnPart, VictimChoice},
    status::owners_of,
    taken::{is_taken, quota_amounts},
    victims::Victim,
};

/// Devices that turned out not to be free, though the planner had them so, are not asked for again before.
const LEAVE_ALONE: Duration = Duration::from_secs(30);
/// When a question is asked anew that got no answer.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The pause between two tries of a Reservation that was cut short; it doubles.
const CUT_PAUSES: Doubling = Doubling::new(Duration::from_secs(10), Duration::from_secs(600));

/// Questions to the planner.
#[derive(Debug, Default)]
pub(super) struct Questions {
    last: u64,
    /// The one under way.
    open: Option<u64>,
    /// Somebody wanted to ask meanwhile.
    is_wanted: bool,
    /// True if the last question was about Reservations that were cut short before.
    was_hard: bool,
    /// The time of the open question, and the duration of the last one.
    asked_at: Duration,
    pub(super) cost: Duration,
    /// Wishes are left whose turn comes after the one under way.
    has_more: bool,
}

/// A Reservation that took more work than there is for one asker is left alone for a while, and then asked for in a question without
/// others.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutPause {
    pause: Duration,
    until: Duration,
}

impl Hold {
    /// Of its pods.
    pub(super) fn namespace(&self) -> String {
        self.object.namespace()
    }
}

impl HoldCore {
    /// Answers those who wait anew: at once if more may fit than before.
    pub(super) fn facts_changed(&mut self, gains: u64) {
        match std::mem::replace(&mut self.gains, gains) == gains {
            true => self.agenda.inventory_changed(),
            false => self.agenda.gained(self.questions.cost),
        }
    }

    /// Asks which devices those get who lack some; once the question that is under way has its answer.
    pub(super) fn plan(&mut self) {
        if self.questions.open.is_some() {
            self.questions.is_wanted = true;
            return;
        }
        self.agenda.refreshed();
        let now = self.agenda.now;
        self.avoided.retain(|_, until| *until > now);
        let waiting = self.waiting();
        // Of some it has to be heard first whose devices they may have. They are in nobody's way meanwhile, nor is anybody in theirs.
        let turn = self.whose_turn(&waiting);
        let wishes: Vec<HoldWish> = turn.into_iter().filter_map(|asked| self.wish(asked)).collect();
        if wishes.is_empty() {
            return;
        }
        let taken = self.taken(waiting.iter());
        let own = self.taken(wishes.iter().map(|wish| &wish.asked)).difference(&taken).cloned().collect();
        self.questions.last += 1;
        let number = self.questions.last;
        self.questions.open = Some(number);
        self.questions.asked_at = now;
        let closing = Closing {
            published: self.seen.published.clone(),
            own_driver: self.settings.own_driver.clone(),
            has_rules: self.settings.has_rules,
            holds_partitions: self.settings.holds_partitions,
        };
        let promised = self.promised(&wishes);
        let options = PlanOptions { names_devices: true, ..self.settings.plan.clone() };
        self.commands.push(HoldCommand::Plan(Box::new(HoldQuestion {
            number,
            wishes,
            taken,
            promised,
            own_of_others: own,
            shared: self.shared(),
            closing,
            options,
            asker_box: self.settings.asker_box,
        })));
    }

    /// Selects the Reservations of the next question. One that was cut short shares its question with those of its own namespace alone:
    /// the others wait for one box of time at most.
    fn whose_turn(&mut self, waiting: &[HoldAsked]) -> Vec<HoldAsked> {
        let now = self.agenda.now;
        let pause = |asked: &HoldAsked| self.holds.get(&asked.name).and_then(|hold| hold.cut_short);
        let (hard, others): (Vec<&HoldAsked>, Vec<&HoldAsked>) =
            waiting.iter().partition(|asked| pause(asked).is_some());
        let mut due: Vec<(Duration, &HoldAsked)> = hard
            .into_iter()
            .filter_map(|asked| Some((pause(asked)?.until, asked)))
            .filter(|(until, _)| *until <= now)
            .collect();
        due.sort_by_key(|(until, _)| *until);
        let namespace_of = |asked: &HoldAsked| self.holds.get(&asked.name).map(|hold| hold.namespace());
        let first = due.first().map(|(_, asked)| namespace_of(asked));
        let is_hard = first.is_some() && (others.is_empty() || !self.questions.was_hard);
        let all = due.len();
        let chosen: Vec<HoldAsked> = match is_hard {
            true => {
                due.into_iter().filter(|(_, it)| Some(namespace_of(it)) == first).map(|(_, it)| it.clone()).collect()
            }
            false => others.iter().map(|asked| (*asked).clone()).collect(),
        };
        self.questions.has_more = if is_hard { chosen.len() < all || !others.is_empty() } else { all > 0 };
        self.questions.was_hard = is_hard;
        chosen
    }

    /// A question has its answer.
    pub(super) fn planned(&mut self, answer: HoldAnswer) {
        if self.questions.open != Some(answer.number) {
            return;
        }
        self.questions.open = None;
        self.questions.cost = self.agenda.now.saturating_sub(self.questions.asked_at);
        self.agenda.refreshed();
        if std::mem::take(&mut self.questions.has_more) {
            self.plan_soon();
        }
        if std::mem::take(&mut self.questions.is_wanted) {
            self.look_at_all();
            self.agenda.gained(self.questions.cost);
        }
        if answer.found.is_empty() {
            return self.agenda.after(ASK_AGAIN, Topic::Plan);
        }
        let mut taken = self.taken(answer.found.iter().map(|(asked, _)| asked));
        let (mut refused, mut is_sound) = (Vec::new(), true);
        for (asked, found) in answer.found {
            match found {
                Ok(devices) => is_sound &= self.propose(&asked, devices, &mut taken),
                // Others of its namespace had all the time that there is; they have their turn without it.
                Err(none) if none.cut_short == Some(CutShort::NotReached) => self.plan_soon(),
                Err(none) => refused.push((asked, none)),
            }
        }
        // Where the planner had a device for free that is not, what it says of others is not so either; it is asked again soon.
        if is_sound {
            refused.into_iter().for_each(|(asked, none)| self.refuse(&asked, none));
        }
    }

    /// An answer is of what was there when it was asked; what has changed since is asked about anew. Whether all of it is free.
    fn propose(&mut self, asked: &HoldAsked, devices: Vec<ReservedDevice>, taken: &mut BTreeSet<DeviceKey>) -> bool {
        let is_current = self.is_current(asked);
        let own = self.own_parts(&asked.name, &asked.replicas);
        let lost: Vec<DeviceKey> =
            devices.iter().filter(|device| !self.is_free_still(device, &own, taken)).map(device_key).collect();
        let is_free = lost.is_empty();
        let evictions = self.evictions_for(&devices);
        let Some(hold) = self.holds.get_mut(&asked.name) else { return is_free };
        if is_current && is_free {
            taken.extend(devices.iter().map(device_key));
            (hold.proposal, hold.problem, hold.is_without_free) = (Some(devices), None, false);
            hold.cut_short = None;
            hold.victims = if hold.object.spec.preempts() { evictions } else { Vec::new() };
            self.agenda.now(Topic::Reservation(asked.name.clone()));
            return true;
        }
        // What goes with a pod that is to make room is named again, though it is left alone: asking on would not end.
        let again = lost.iter().find(|device| is_current && self.avoided.contains_key(*device)).cloned();
        // The planner may go on taking for free what a claim has: of a device that was shared when it got its part, and is not
        // any more, it does not know.
        let until = self.agenda.now + LEAVE_ALONE;
        self.avoided.extend(lost.into_iter().map(|device| (device, until)));
        match &again {
            Some(device) => {
                self.refuse(asked, format!("{device} goes with what a pod leaves, and is another one's as well").into())
            }
            None => self.plan_soon(),
        }
        is_free || again.is_some()
    }

    /// There is nothing for it.
    fn refuse(&mut self, asked: &HoldAsked, none: NoDevices) {
        let (is_current, now) = (self.is_current(asked), self.agenda.now);
        let Some(hold) = self.holds.get_mut(&asked.name) else { return };
        if !is_current {
            return self.plan_soon();
        }
        let pause = CUT_PAUSES.next(hold.cut_short.map(|last| last.pause));
        hold.cut_short = none.cut_short.map(|_| CutPause { pause, until: now + pause });
        let seeks_victims = hold.seeks_victims() && !asked.has_victims && hold.cut_short.is_none();
        hold.is_without_free = true;
        if seeks_victims {
            return self.plan_soon();
        }
        hold.problem = Some(none.problem);
        if hold.cut_short.is_some() {
            self.agenda.after(pause, Topic::Plan);
        }
        self.agenda.now(Topic::Reservation(asked.name.clone()));
    }

    /// Whether it would be asked in the same way now.
    fn is_current(&mut self, asked: &HoldAsked) -> bool {
        self.asked(&asked.name).is_some_and(|now| HoldAsked { has_victims: asked.has_victims, ..now } == *asked)
    }

    /// Whether nobody got the device since it was asked for, but the pod that it is waited for.
    fn is_free_still(&self, device: &ReservedDevice, own: &[OwnPart], taken: &BTreeSet<DeviceKey>) -> bool {
        let (key, victim) = (device_key(device), device.owner.as_ref().map(|owner| &*owner.uid));
        let mut claims = self.seen.claims_on(&key);
        let is_own = || own.iter().any(|part| device_key(&part.device) == key);
        if device.is_part() {
            return !taken.contains(&key) || is_own();
        }
        !taken.contains(&key) && claims.all(|claim| Some(&*claim.uid) == victim)
    }

    /// Who lacks devices, the oldest first.
    fn waiting(&mut self) -> Vec<HoldAsked> {
        let mut names: Vec<String> = self.holds.keys().cloned().collect();
        names.sort_by_key(|name| (self.holds[name].object.created, name.clone()));
        names.into_iter().filter_map(|name| self.asked(&name)).collect()
    }

    fn wish(&mut self, asked: HoldAsked) -> Option<HoldWish> {
        let name = &asked.name;
        let spec = self.holds.get(name)?.object.spec.clone();
        let mut template = spec.pod_template().ok()?;
        match self.replaced_node(name) {
            ReplacedNode::Node(node) => template.spec.leave_out(&node),
            ReplacedNode::None => {}
            ReplacedNode::Unknown => return None,
        }
        let (victims, choice) = match (asked.has_victims, spec.is_pre_allocation()) {
            (false, _) => (Vec::new(), VictimChoice::One),
            (true, true) if spec.takes_multiple() => (self.victims(name), VictimChoice::Several),
            (true, true) => (self.victims(name), VictimChoice::One),
            (true, false) => (self.preemptable(name, &template)?, VictimChoice::LeastImportant),
        };
        let hold = self.holds.get(name)?;
        let (value, is_direct) = (hold.value.clone(), hold.object.labels.contains_key(PLACED_POD_LABEL));
        let (parts, leaving) = (self.own_parts(name, &asked.replicas), self.leaving(name, &victims));
        let claims = spec.device_claims;
        Some(HoldWish { asked, value, is_direct, template, claims, victims, choice, parts, leaving })
    }

    /// Parts that it keeps for other replicas than these.
    fn own_parts(&self, name: &str, lacking: &[u32]) -> Vec<OwnPart> {
        let devices = self.holds.get(name).map(|hold| &hold.object.status.devices).into_iter().flatten();
        let intact = devices.filter(|device| device.is_part() && !lacking.contains(&device.replica));
        intact
            .map(|device| {
                let is_given = device.state == ReservedDeviceState::HandedOver || self.is_accounted(device);
                OwnPart { device: device.clone(), is_given }
            })
            .collect()
    }

    /// What is asked for a Reservation now, if it lacks anything.
    fn asked(&mut self, name: &str) -> Option<HoldAsked> {
        let is_waiting = self.holds.get(name).is_some_and(|hold| hold.is_open() && hold.proposal.is_none());
        if !is_waiting {
            return None;
        }
        let devices = self.look_at_devices(name);
        let owners = owners_of(self, name, &devices);
        let hold = self.holds.get(name)?;
        let replicas = hold.lacking(&devices, &owners);
        let (uid, generation) = (hold.object.uid.clone(), hold.object.generation);
        // Pods are thought of only where nothing is free: each of them has to be asked for.
        let has_victims = hold.is_without_free && hold.seeks_victims();
        let asked = HoldAsked { name: name.to_owned(), uid, generation, replicas, has_victims };
        Some(asked).filter(|asked| !asked.replicas.is_empty())
    }

    /// What is promised to others, and what nobody can have for now. What one that lacks devices has already can be chosen again.
    fn taken<'a>(&self, asked: impl Iterator<Item = &'a HoldAsked>) -> BTreeSet<DeviceKey> {
        let lacking: BTreeMap<&str, &HoldAsked> = asked.map(|asked| (&*asked.name, asked)).collect();
        let mut taken = BTreeSet::new();
        for (name, hold) in self.holds.iter().filter(|(_, hold)| !hold.object.status.phase.is_over()) {
            let is_lacking = |device: &&ReservedDevice| {
                lacking.get(&**name).is_some_and(|asked| asked.replicas.contains(&device.replica) && !device.conflict)
            };
            let devices = hold.object.status.devices.iter().filter(|device| !is_lacking(device));
            taken.extend(devices.filter(|device| is_taken(device)).map(device_key));
        }
        let proposed = self.holds.values().filter_map(|hold| hold.proposal.as_ref()).flatten();
        taken.extend(proposed.map(device_key));
        taken.extend(self.avoided.keys().cloned());
        taken
    }

    /// The promises of each namespace that no claim has yet, but for replicas that are asked about.
    fn promised(&self, wishes: &[HoldWish]) -> BTreeMap<String, QuotaAmounts> {
        let asked: BTreeMap<&str, &[u32]> =
            wishes.iter().map(|wish| (&*wish.asked.name, &wish.asked.replicas[..])).collect();
        let mut promised: BTreeMap<String, QuotaAmounts> = BTreeMap::new();
        for (name, hold) in &self.holds {
            if hold.object.status.phase.is_over() || !hold.object.is_counted_by_quotas() {
                continue;
            }
            let replicas = asked.get(&**name).copied().unwrap_or_default();
            let devices = hold.object.status.devices.iter().chain(hold.proposal.iter().flatten());
            let amounts = quota_amounts(devices.filter(|device| !replicas.contains(&device.replica)));
            promised.entry(hold.namespace()).or_default().add(&amounts, 1);
        }
        promised
    }

    /// Claims that leave for a Reservation: those of the pod that it moves, and of pods whose devices it may have.
    fn leaving(&self, name: &str, victims: &[Victim]) -> BTreeSet<ObjectKey> {
        let moved = self.holds.get(name).and_then(|hold| hold.object.spec.replaces.as_ref());
        let pod = moved.map(|pod| ObjectKey::new(&pod.namespace, &pod.name));
        let of_pod = pod.iter().flat_map(|pod| self.seen.claims_of_pod(pod));
        of_pod.chain(victims.iter().flat_map(|victim| &victim.claims)).map(|claim| claim.key.clone()).collect()
    }

    /// Shared devices of which somebody has a part: not for those who would keep all of one.
    fn shared(&self) -> BTreeSet<DeviceKey> {
        let is_shared = |key: &&DeviceKey| self.seen.device(key).is_some_and(|(_, device)| device.is_shareable);
        self.seen.taken().filter(is_shared).cloned().collect()
    }
}
