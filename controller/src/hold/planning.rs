//! Asks the planner about candidates, one question at a time, and proposes the answers to the Reservations that have
//! not changed meanwhile.

use std::{collections::BTreeSet, time::Duration};

use hostler_allocator::plan::{CutShort, PlanOptions};
use hostler_api::{Doubling, reservation::ReservedDevice};

use super::{
    candidates::{asked, candidate, is_free_still, own_parts, promised, shared, taken, waiting},
    closing::Closing,
    context::HoldContext,
    core::HoldCore,
    event::HoldCommand,
    no_devices::NoDevices,
    objects::{DeviceKey, device_key},
    preemption::evictions_for,
    question::{CandidateKey, HoldAnswer, HoldCandidate, HoldQuestion},
    reservation::CutPause,
    topics::DecisionTopic,
};

/// Time for which devices are left alone that the planner took for free and that are taken.
const LEAVE_ALONE: Duration = Duration::from_secs(30);
/// Pause before a question without an answer is asked anew.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Pauses between two tries of a candidate that was cut short.
const CUT_PAUSES: Doubling = Doubling::new(Duration::from_secs(10), Duration::from_secs(600));

impl HoldCore {
    /// Notes news of the cluster: candidates are planned again, at once if more may fit than before.
    pub(super) fn facts_changed(&mut self, gains: u64) {
        match std::mem::replace(&mut self.gains, gains) == gains {
            true => self.queue.inventory_changed(),
            false => self.queue.gained(self.questions.cost),
        }
    }

    /// Asks the planner about all candidates, once the question in flight has its answer.
    pub(super) fn plan(&mut self) {
        if self.questions.open.is_some() {
            self.questions.is_wanted = true;
            return;
        }
        self.queue.refreshed();
        let now = self.queue.now;
        self.avoided.retain(|_, until| *until > now);
        let waiting = self.decide(waiting);
        let turn = self.next_turn(&waiting);
        // A candidate that depends on objects which are being read waits: it takes nothing from other candidates, and
        // they take nothing from it.
        let candidates: Vec<HoldCandidate> =
            self.decide(|cx| turn.into_iter().filter_map(|asked| candidate(cx, asked)).collect());
        if candidates.is_empty() {
            return;
        }
        self.questions.last += 1;
        self.questions.open = Some(self.questions.last);
        self.questions.asked_at = now;
        let question = question(&self.context(), self.questions.last, &waiting, candidates);
        self.commands.push(HoldCommand::Plan(Box::new(question)));
    }

    /// Selects the candidates of the next question. A candidate that was cut short shares its question only with those
    /// of its own namespace: the others wait for one box of time at most.
    fn next_turn(&mut self, waiting: &[CandidateKey]) -> Vec<CandidateKey> {
        let now = self.queue.now;
        let pause = |asked: &CandidateKey| self.reservations.get(&asked.name).and_then(|it| it.cut_short);
        let (hard, others): (Vec<&CandidateKey>, Vec<&CandidateKey>) =
            waiting.iter().partition(|asked| pause(asked).is_some());
        let mut due: Vec<(Duration, &CandidateKey)> = hard
            .into_iter()
            .filter_map(|asked| Some((pause(asked)?.until, asked)))
            .filter(|(until, _)| *until <= now)
            .collect();
        due.sort_by_key(|(until, _)| *until);
        let namespace_of = |asked: &CandidateKey| self.reservations.get(&asked.name).map(|it| it.object.namespace());
        let first = due.first().map(|(_, asked)| namespace_of(asked));
        let is_hard = first.is_some() && (others.is_empty() || !self.questions.was_hard);
        let all = due.len();
        let chosen: Vec<CandidateKey> = match is_hard {
            true => {
                due.into_iter().filter(|(_, it)| Some(namespace_of(it)) == first).map(|(_, it)| it.clone()).collect()
            }
            false => others.iter().map(|asked| (*asked).clone()).collect(),
        };
        self.questions.has_more = if is_hard { chosen.len() < all || !others.is_empty() } else { all > 0 };
        self.questions.was_hard = is_hard;
        chosen
    }

    /// Takes the answer to a question.
    pub(super) fn planned(&mut self, answer: HoldAnswer) {
        if self.questions.open != Some(answer.number) {
            return;
        }
        self.questions.open = None;
        self.questions.cost = self.queue.now.saturating_sub(self.questions.asked_at);
        self.queue.refreshed();
        if std::mem::take(&mut self.questions.has_more) {
            self.plan_soon();
        }
        if std::mem::take(&mut self.questions.is_wanted) {
            self.decide_about_all();
            self.queue.gained(self.questions.cost);
        }
        if answer.found.is_empty() {
            return self.queue.after(ASK_AGAIN, DecisionTopic::Plan);
        }
        let mut taken = taken(&self.context(), answer.found.iter().map(|(asked, _)| asked));
        let (mut refused, mut is_sound) = (Vec::new(), true);
        for (asked, found) in answer.found {
            match found {
                Ok(devices) => is_sound &= self.propose(&asked, devices, &mut taken),
                // Other candidates of this namespace had all the time that there is; this one gets its turn without
                // them.
                Err(none) if none.cut_short == Some(CutShort::NotReached) => self.plan_soon(),
                Err(none) => refused.push((asked, none)),
            }
        }
        // If the planner took a device for free that is not, its refusals are wrong as well; it is asked again soon.
        if is_sound {
            refused.into_iter().for_each(|(asked, none)| self.refuse(&asked, none));
        }
    }

    /// Proposes the answer's devices. An answer is about the cluster at the time of the question; candidates that have
    /// changed since are asked about anew. Returns true if all of the devices are free.
    fn propose(&mut self, asked: &CandidateKey, devices: Vec<ReservedDevice>, taken: &mut BTreeSet<DeviceKey>) -> bool {
        let is_current = self.is_current(asked);
        let cx = self.context();
        let own = cx.reservation(&asked.name).map(|it| own_parts(&cx, it, &asked.replicas)).unwrap_or_default();
        let lost: Vec<DeviceKey> =
            devices.iter().filter(|device| !is_free_still(&cx, device, &own, taken)).map(device_key).collect();
        let is_free = lost.is_empty();
        let evictions = evictions_for(&cx, &devices);
        let Some(reservation) = self.reservations.get_mut(&asked.name) else { return is_free };
        if is_current && is_free {
            taken.extend(devices.iter().map(device_key));
            (reservation.problem, reservation.is_without_free, reservation.cut_short) = (None, false, None);
            reservation.victims = if reservation.object.spec.preempts() { evictions } else { Vec::new() };
            reservation.proposal = Some(devices);
            self.queue.now(DecisionTopic::Reservation(asked.name.clone()));
            return true;
        }
        // A plan may name a device that is left alone, since the device goes with a pod that makes room: to ask again
        // would never end.
        let again = lost.iter().find(|device| is_current && self.avoided.contains_key(*device)).cloned();
        // The planner may go on taking for free what a claim has.
        let until = self.queue.now + LEAVE_ALONE;
        self.avoided.extend(lost.into_iter().map(|device| (device, until)));
        match &again {
            Some(device) => {
                let message = format!("{device} goes with what a pod leaves, and is another one's as well");
                self.refuse(asked, NoDevices::unschedulable(message));
            }
            None => self.plan_soon(),
        }
        is_free || again.is_some()
    }

    /// Notes that there are no devices for a Reservation.
    fn refuse(&mut self, asked: &CandidateKey, none: NoDevices) {
        let (is_current, now) = (self.is_current(asked), self.queue.now);
        let Some(reservation) = self.reservations.get_mut(&asked.name) else { return };
        if !is_current {
            return self.plan_soon();
        }
        let pause = CUT_PAUSES.next(reservation.cut_short.map(|last| last.pause));
        reservation.cut_short = none.cut_short.map(|_| CutPause { pause, until: now + pause });
        let is_cut_short = reservation.cut_short.is_some();
        reservation.is_without_free = true;
        if reservation.seeks_victims() && !asked.has_victims && !is_cut_short {
            return self.plan_soon();
        }
        reservation.problem = Some(none.problem);
        if is_cut_short {
            self.queue.after(pause, DecisionTopic::Plan);
        }
        self.queue.now(DecisionTopic::Reservation(asked.name.clone()));
    }

    /// True if the question about the Reservation would be the same now.
    fn is_current(&mut self, asked_then: &CandidateKey) -> bool {
        let now = self.decide(|cx| asked(cx, cx.reservation(&asked_then.name)?));
        now.is_some_and(|now| CandidateKey { has_victims: asked_then.has_victims, ..now } == *asked_then)
    }
}

fn question(
    cx: &HoldContext<'_>,
    number: u64,
    waiting: &[CandidateKey],
    candidates: Vec<HoldCandidate>,
) -> HoldQuestion {
    let settings = cx.settings;
    let promised_to_others = taken(cx, waiting.iter());
    let of_candidates = taken(cx, candidates.iter().map(|candidate| &candidate.asked));
    HoldQuestion {
        number,
        promised: promised(cx, &candidates),
        own_of_others: of_candidates.difference(&promised_to_others).cloned().collect(),
        taken: promised_to_others,
        shared: shared(cx),
        closing: Closing {
            published: cx.cluster.published.clone(),
            own_driver: settings.own_driver.clone(),
            has_rules: settings.has_rules,
            holds_partitions: settings.holds_partitions,
        },
        options: PlanOptions { names_devices: true, ..settings.plan.clone() },
        asker_box: settings.asker_box,
        candidates,
    }
}
