//! The next answer to one request, and whether the planner is asked about it.

use std::time::Duration;

use hostler_allocator::plan::PodSet;
use hostler_api::{
    few,
    provisioning::{ProvisioningConditionType as Type, ProvisioningReason as Reason},
};
use hostler_cluster::rfc3339;

use super::{
    booked::{made_for, parts},
    booking::{
        BOOKING_TAKES, BookingNeed, BookingState, KeptDevices, booking_takes, kept_devices, kept_on, kept_plan, names,
        need, state, tolerations,
    },
    check::{CheckVerdict, FoundCapacity},
    clock::ProvisionMoment,
    consume::{pod_sets, scheduled},
    context::{Keeping, ProvisionContext, SeenReservations},
    decision::{Decision, is_over},
    memory::RequestMemory,
    messages,
    parameters::{RequestParameters, unusable},
    plan_hash::plan_hash,
    splits::can_be_kept,
    status::{ConditionChange, ETA, NODE, NODES, PLAN_HASH, RESERVATION, TOLERATION},
};
use crate::requests::{ProvisionObjects, SeenRequest};

/// Time to wait for templates. Some programs create templates after the request that is to own them: Kueue did for
/// long.
const TEMPLATES_COME: Duration = Duration::from_secs(60);

impl Decision {
    /// Decides about a request whose last written version was seen.
    pub(super) fn about(
        request: &SeenRequest,
        memory: &mut RequestMemory,
        now: ProvisionMoment,
        cx: &ProvisionContext<'_>,
    ) -> Self {
        if is_over(request) {
            return Self::default();
        }
        let parameters = match (unusable(&request.spec), RequestParameters::read(&request.spec)) {
            (None, Ok(parameters)) => parameters,
            (Some(problem), _) | (None, Err(problem)) => return Self::failed(Reason::FailedToCreatePods, problem),
        };
        let templates_due = memory.created.reaches(TEMPLATES_COME);
        let sets = pod_sets(request, cx.objects);
        if request.status.is(Type::Provisioned) {
            memory.verdict = None;
            let ends = memory.answered(&request.status, now).reaches(parameters.booking);
            return match (Self::ended(request, &parameters, ends, now, cx.objects), sets) {
                (Some(decision), _) => decision,
                (None, Ok(sets)) => Self::booked(request, &sets, ends, cx, &parameters),
                (None, Err(_)) if now.steady < templates_due => {
                    Self { due: Some(templates_due.min(ends)), ..Self::default() }
                }
                (None, Err(template)) => Self::failed(Reason::FailedToBookCapacity, no_template(&template)),
            };
        }
        let mut decision = Self { is_open: true, conditions: vec![accepted(&parameters)], ..Self::default() };
        let ends = memory.created.reaches(parameters.validity);
        if request.status.provisioning_class_details.contains_key(RESERVATION) && !memory.was_told_no() {
            return match sets {
                Ok(sets) => decision.close(request, &sets, memory, now, cx, &parameters),
                Err(template) => Self::failed(Reason::FailedToBookCapacity, no_template(&template)),
            };
        }
        decision.due = memory.rests(now.steady).map(|until| until.min(ends));
        match (&memory.verdict, sets) {
            (Some(CheckVerdict::Found(found)), Ok(sets)) => decision.found(request, found, &sets, &parameters, now, cx),
            (Some(verdict), _) => decision.say(verdict, &parameters),
            _ if now.steady >= ends => return Self::expired(&parameters),
            (None, Err(_)) if now.steady < templates_due => decision.due = Some(templates_due.min(ends)),
            (None, Err(template)) => return Self::failed(Reason::FailedToCreatePods, no_template(&template)),
            (None, Ok(_)) if decision.due.is_some() => {}
            // The state of keeping devices is known soon. Earlier Reservations of the request go first: their names are
            // needed again.
            (None, Ok(_)) if *cx.keeping == Keeping::Unknown => decision.due = Some(ends),
            (None, Ok(_)) if made_for(request, cx.reservations).next().is_some() => decision.due = Some(ends),
            (None, Ok(sets)) => (decision.due, decision.wanted) = (Some(ends), Some(sets)),
        }
        decision
    }

    /// Reduces the Reservations of a booked request to those that it still needs.
    fn booked(
        request: &SeenRequest,
        sets: &[PodSet],
        ends: Duration,
        cx: &ProvisionContext<'_>,
        parameters: &RequestParameters,
    ) -> Self {
        let named = parts(request);
        // While the state of Reservations is unknown, they must not be taken for missing.
        if named.is_empty() || *cx.keeping == Keeping::Unknown {
            return Self { due: Some(ends), ..Self::default() };
        }
        let BookingNeed { lost, names, shrinks } = need(request, sets, cx);
        if let Some(message) = lost {
            let revoked = ConditionChange::yes(Type::CapacityRevoked, Reason::CapacityLost, message.clone());
            let over = ConditionChange::yes(Type::BookingExpired, Reason::CapacityReservationTimeExpired, message);
            return Self { conditions: vec![revoked, over], ..Self::default() };
        }
        let mut decision = Self { due: Some(ends), keep: shrinks, ..Self::default() };
        if names.len() < named.len() {
            decision.details.insert(RESERVATION, names.join(","));
        }
        decision.say_what_is_left(request, sets, cx, parameters);
        decision
    }

    /// Tells which devices are lost. Their Reservation replaces them if others are free. The promise is taken back only
    /// if none are: Kueue deactivates a workload then, and does not activate it again.
    fn say_what_is_left(
        &mut self,
        request: &SeenRequest,
        sets: &[PodSet],
        cx: &ProvisionContext<'_>,
        parameters: &RequestParameters,
    ) {
        let has = |kind: Type, reason: Reason| {
            request.status.condition(kind).is_some_and(|it| it.is_true() && it.reason == reason.as_str())
        };
        let is_revoked = has(Type::CapacityRevoked, Reason::CapacityLost);
        let replaces = |why: &str| ConditionChange::yes(Type::Provisioned, Reason::ReplacingCapacity, why);
        match kept_devices(request, cx.reservations) {
            KeptDevices::Lost(why) => {
                self.conditions.push(replaces(&why));
                self.conditions.push(ConditionChange::yes(Type::CapacityRevoked, Reason::CapacityLost, why));
            }
            KeptDevices::Replacing(why) => self.conditions.push(replaces(&why)),
            KeptDevices::Whole if is_revoked || has(Type::Provisioned, Reason::ReplacingCapacity) => {
                self.say_kept(request, sets, parameters, cx.reservations);
                if is_revoked {
                    let message = "other devices are kept in the place of those that were lost";
                    self.conditions.push(ConditionChange::no(Type::CapacityRevoked, Reason::CapacityReplaced, message));
                }
            }
            KeptDevices::Closing | KeptDevices::Whole => {}
        }
    }

    /// Decides about a request whose devices are being closed to others.
    fn close(
        mut self,
        request: &SeenRequest,
        sets: &[PodSet],
        memory: &mut RequestMemory,
        now: ProvisionMoment,
        cx: &ProvisionContext<'_>,
        parameters: &RequestParameters,
    ) -> Self {
        memory.verdict = None;
        let takes = booking_takes(request, cx.reservations);
        let due = memory.closing(&request.status, now).reaches(takes);
        let state = match cx.keeping {
            Keeping::NotKept(why) => BookingState::Lacking(format!("devices are not kept any more: {why}")),
            _ => state(request, sets, cx.reservations, parameters.booking, &memory.planned),
        };
        if !matches!(state, BookingState::Incomplete(_)) {
            memory.planned = Vec::new();
        }
        match state {
            // Later, the Reservation might end before the booking does.
            BookingState::Kept if now.steady < due => self.say_kept(request, sets, parameters, cx.reservations),
            // An earlier request of the same name, which was not seen when there was room, still has its booking.
            BookingState::Lacking(_) if now.steady < due && memory.opened_by.is_some() => {
                self.due = memory.opened_by.map(|at| at.min(due));
            }
            BookingState::Lacking(why) => self.say_lacking(why, memory, now, parameters),
            _ if now.steady >= due => {
                let time = messages::time(takes);
                let why = format!("there was room, but its devices could not be closed to others within {time}");
                self.say_lacking(why, memory, now, parameters);
            }
            BookingState::Closing | BookingState::Kept => self.due = Some(due),
            BookingState::Incomplete(missing) => (self.due, self.keep) = (Some(due), missing),
        }
        self
    }

    fn say_lacking(
        &mut self,
        why: String,
        memory: &mut RequestMemory,
        now: ProvisionMoment,
        parameters: &RequestParameters,
    ) {
        let verdict = CheckVerdict::NotFound(why);
        self.say(&verdict, parameters);
        memory.not_kept(verdict, now);
    }

    fn expired(parameters: &RequestParameters) -> Self {
        Self::failed(Reason::Expired, format!("no capacity was found within {}", messages::time(parameters.validity)))
    }

    /// Ends a booking that is used up, or whose time is over.
    fn ended(
        request: &SeenRequest,
        parameters: &RequestParameters,
        ends: Duration,
        now: ProvisionMoment,
        world: &ProvisionObjects,
    ) -> Option<Self> {
        let (pods, there) = (request.pods(), scheduled(request, world));
        let (reason, message) = if i64::try_from(there).is_ok_and(|there| there >= pods) {
            (Reason::CapacityBookingConsumed, format!("all {pods} pods have their node"))
        } else if now.steady >= ends {
            let time = messages::time(parameters.booking);
            let message =
                format!("after {time} {there} of {pods} pods have a node; for the others nothing is booked now");
            (Reason::CapacityReservationTimeExpired, message)
        } else {
            return None;
        };
        Some(Self { conditions: vec![ConditionChange::yes(Type::BookingExpired, reason, message)], ..Self::default() })
    }

    /// Handles a yes of the planner: devices that can be kept are closed to others before the request is told yes.
    fn found(
        &mut self,
        request: &SeenRequest,
        found: &FoundCapacity,
        sets: &[PodSet],
        parameters: &RequestParameters,
        now: ProvisionMoment,
        cx: &ProvisionContext<'_>,
    ) {
        let names = match cx.keeping {
            Keeping::Kept => names(request, sets, cx.facts),
            Keeping::Unknown | Keeping::NotKept(_) => Vec::new(),
        };
        if names.is_empty() {
            let why = match cx.keeping {
                Keeping::NotKept(why) if sets.iter().any(can_be_kept) => Some(&**why),
                _ => None,
            };
            return self.say_found(found, parameters, why);
        }
        let message = &found.message;
        self.conditions.push(ConditionChange::yes(Type::CapacityAvailable, Reason::CapacityIsFound, message));
        let closing = format!(
            "{message}; its devices are being closed to others, which takes seconds, and {} at most",
            messages::time(BOOKING_TAKES)
        );
        self.conditions.push(ConditionChange::no(Type::Provisioned, Reason::BookingCapacity, closing));
        self.details.insert(RESERVATION, names.join(","));
        // The time stays the same until there is an answer: a time that moves would cause a write with each decision.
        self.details.insert(ETA, rfc3339(now.wall + BOOKING_TAKES));
    }

    /// Tells a request yes, since its devices are closed to others. Their nodes are the nodes of its pods.
    fn say_kept(
        &mut self,
        request: &SeenRequest,
        sets: &[PodSet],
        parameters: &RequestParameters,
        all: &SeenReservations,
    ) {
        let (kept, others): (Vec<&PodSet>, Vec<&PodSet>) = sets.iter().partition(|set| can_be_kept(set));
        let list = |sets: &[&PodSet]| few(sets.iter().map(|set| set.name.clone()));
        let mut message = format!(
            "devices for all pods of {} are kept for {}, for claims that tolerate them",
            list(&kept),
            messages::time(parameters.booking)
        );
        if !others.is_empty() {
            message
                .push_str(&format!("; for {} no other ProvisioningRequest is told the same meanwhile", list(&others)));
        }
        self.conditions.push(ConditionChange::yes(Type::Provisioned, Reason::CapacityIsFound, message));
        let nodes = kept_on(request, None, all);
        self.details.insert(NODES, messages::on_nodes(&nodes));
        if let ([node], true) = (&nodes.keys().collect::<Vec<_>>()[..], others.is_empty()) {
            self.details.insert(NODE, (*node).clone());
        }
        self.details.insert(TOLERATION, tolerations(request, all));
        self.details.insert(PLAN_HASH, plan_hash(&kept_plan(request, all)));
    }
}

fn accepted(parameters: &RequestParameters) -> ConditionChange {
    let mut message = "hostler-controller looks for capacity".to_owned();
    for remark in &parameters.remarks {
        message.push_str("; ");
        message.push_str(remark);
    }
    ConditionChange::yes(Type::Accepted, Reason::Accepted, message)
}

fn no_template(template: &str) -> String {
    format!("there is no PodTemplate {template}; make a request anew when there is")
}
