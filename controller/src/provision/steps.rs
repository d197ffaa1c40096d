//! The next step of a request for which devices are attached, or are to be. Pure.

use std::time::Duration;

use hostler_allocator::plan::PodSet;
use hostler_api::provisioning::{
    PROVISIONING_FINALIZER, ProvisioningConditionType as Type, ProvisioningReason as Reason,
};

use super::{
    attach::{ATTACH, AttachCall, AttachJournal, AttachKeeper, AttachOrder, AttachPlan, live},
    booked::made_for,
    check::CheckVerdict,
    clock::ProvisionMoment,
    context::{Keeping, ProvisionContext},
    decision::{Decision, is_over},
    memory::RequestMemory,
    messages,
    parameters::RequestParameters,
    status::{ConditionChange, RESERVATION},
};
use crate::requests::SeenRequest;

/// Time within which an attached device is published and seen.
const SEEN_BY: Duration = Duration::from_secs(120);

/// The inputs of a decision about steps.
pub(super) struct StepDecision<'a> {
    pub(super) request: &'a SeenRequest,
    pub(super) journal: AttachJournal,
    pub(super) keeper: &'a AttachKeeper,
    pub(super) cx: &'a ProvisionContext<'a>,
    pub(super) now: ProvisionMoment,
    /// The time at which the request expires.
    pub(super) ends: Duration,
}

impl StepDecision<'_> {
    /// Attaches the next device. When all are attached and seen, the request is planned as if its devices had always
    /// been there.
    pub(super) fn attach(
        &self,
        decision: &mut Decision,
        sets: Result<Vec<PodSet>, String>,
        memory: &mut RequestMemory,
    ) {
        let Self { request, keeper, now, .. } = *self;
        decision.due = Some(self.ends);
        let sets = match sets {
            Ok(sets) => sets,
            Err(template) => return self.back(decision, format!("there is no PodTemplate {template} any more")),
        };
        if now.steady >= self.ends {
            return self.back(decision, "what was to be attached for it took longer than it is of use".to_owned());
        }
        let Some(listed) = keeper.of(request.uid()) else { return };
        let is_there = |order: &AttachOrder| listed.iter().any(|it| it.token == order.token && it.step == order.step);
        let (there, missing): (Vec<_>, Vec<_>) = self.journal.orders(request).partition(is_there);
        if !there.is_empty() {
            self.say_attaching(decision, there.len());
        }
        let Some(next) = missing.into_iter().next() else { return self.verify(decision, sets, memory) };
        memory.attached = None;
        match keeper.failure(&next.token) {
            Some(why) => self.back(decision, format!("{} could not be attached: {why}", next.step)),
            None => decision.calls.push(AttachCall::Attach(next)),
        }
    }

    /// Plans the request again once everything is attached.
    fn verify(&self, decision: &mut Decision, sets: Vec<PodSet>, memory: &mut RequestMemory) {
        let now = self.now.steady;
        let due = *memory.attached.get_or_insert(now) + SEEN_BY;
        match memory.verdict.take() {
            Some(CheckVerdict::NotFound(why) | CheckVerdict::Undecided(why)) if now >= due => {
                return self.back(decision, format!("what was planned is attached, but {why}"));
            }
            _ => {}
        }
        let is_clear = made_for(self.request, self.cx.reservations).next().is_none();
        if now < memory.due {
            decision.due = Some(memory.due.min(self.ends));
        } else if is_clear && *self.cx.keeping != Keeping::Unknown {
            memory.verifies = true;
            decision.wanted = Some(sets);
        }
    }

    /// Detaches every device of the request, the last one first, and then answers no.
    pub(super) fn detach(&self, decision: &mut Decision, memory: &mut RequestMemory, parameters: &RequestParameters) {
        let why = self.journal.back().unwrap_or_default().to_owned();
        if made_for(self.request, self.cx.reservations).any(|it| !it.status.phase.is_over()) {
            // Reservations are deleted first: a kept device cannot be detached.
            return;
        }
        let Some(left) = self.keeper.left(self.request.uid(), self.cx) else { return };
        if let Some(last) = left.into_iter().next() {
            decision.calls.push(AttachCall::Detach(last));
            return;
        }
        let verdict = CheckVerdict::NotFound(why);
        if memory.verdict.as_ref() != Some(&verdict) {
            memory.not_attached(verdict.clone(), self.now);
        }
        decision.say(&verdict, parameters);
        decision.details.insert(ATTACH, self.journal.clone().done().text());
    }

    /// Writes down that all devices are to be detached, before the first one is.
    pub(super) fn back(&self, decision: &mut Decision, why: String) {
        back(decision, self.journal.clone(), why);
    }

    fn say_attaching(&self, decision: &mut Decision, there: usize) {
        let planned = self.journal.steps().len();
        let message = format!(
            "{there} of {planned} devices are attached to nodes for it; when all are, and are seen, its devices are booked"
        );
        decision.conditions.push(ConditionChange::no(Type::Provisioned, Reason::AttachingCapacity, message));
    }
}

/// Writes down that all devices are to be detached: see [`StepDecision::back`].
fn back(decision: &mut Decision, journal: AttachJournal, why: String) {
    decision.conditions.retain(|word| !word.is_about(Type::Provisioned));
    let told = format!("{}; what was attached to nodes for it is being detached", messages::short(why.clone()));
    decision.conditions.push(ConditionChange::no(Type::Provisioned, Reason::DetachingCapacity, told));
    decision.conditions.push(ConditionChange::no(Type::CapacityAvailable, Reason::CapacityIsNotFound, &*why));
    decision.details.insert(RESERVATION, String::new());
    decision.details.insert(ATTACH, journal.taken_back(why).text());
    decision.due = None;
}

impl Decision {
    /// Writes the plan down: first our finalizer, then the steps.
    pub(super) fn plan_steps(&mut self, request: &SeenRequest, plan: &AttachPlan) {
        if !is_held(request) {
            self.finalizers = Some(with_own(request));
            return;
        }
        let journal = AttachJournal::of(request).with(plan.steps.clone());
        self.conditions.push(ConditionChange::no(Type::Provisioned, Reason::AttachingCapacity, &*plan.message));
        self.details.insert(ATTACH, journal.text());
    }

    /// Detaches all devices of a request, since they could not be kept. Returns false if nothing was attached for it.
    pub(super) fn takes_back(&mut self, request: &SeenRequest, why: &str) -> bool {
        let journal = live(request);
        if let Some(journal) = journal.clone() {
            back(self, journal, why.to_owned());
        }
        journal.is_some()
    }

    /// Detaches rests of earlier plans, and removes our finalizer when everything that is attached is promised.
    pub(super) fn clear(
        &mut self,
        request: &SeenRequest,
        memory: &RequestMemory,
        keeper: &AttachKeeper,
        cx: &ProvisionContext<'_>,
    ) {
        let is_planned = matches!(memory.verdict, Some(CheckVerdict::Attachable(_)));
        let carried_on = live(request).is_some() && !is_over(request) && !request.is_going;
        if is_planned || carried_on {
            return;
        }
        let is_promised = request.status.is(Type::Provisioned);
        if !is_promised && (keeper.is_there() || live(request).is_some()) {
            let Some(left) = keeper.left(request.uid(), cx) else { return };
            if let Some(last) = left.into_iter().next() {
                self.calls.push(AttachCall::Detach(last));
                return;
            }
        }
        self.finalizers = is_held(request).then(|| without_own(request));
    }
}

/// Returns true if our finalizer holds the request.
pub(super) fn is_held(request: &SeenRequest) -> bool {
    request.finalizers.iter().any(|it| it == PROVISIONING_FINALIZER)
}

fn with_own(request: &SeenRequest) -> Vec<String> {
    request.finalizers.iter().cloned().chain([PROVISIONING_FINALIZER.to_owned()]).collect()
}

fn without_own(request: &SeenRequest) -> Vec<String> {
    request.finalizers.iter().filter(|it| *it != PROVISIONING_FINALIZER).cloned().collect()
}
