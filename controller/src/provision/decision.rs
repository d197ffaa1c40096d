//! Conditions to write for a request, and work to do: what the answer to a request is made of, and how it tells a
//! verdict of the planner.

use std::{collections::BTreeMap, time::Duration};

use hostler_allocator::plan::PodSet;
use hostler_api::provisioning::{ProvisioningConditionType as Type, ProvisioningReason as Reason};

use super::{
    check::{CheckVerdict, FoundCapacity},
    clock::ProvisionMoment,
    event::ReservationWrite,
    memory::{LONGEST_PAUSE, RequestMemory},
    messages,
    parameters::RequestParameters,
    status::{ConditionChange, NODE, NODES, PLAN_HASH, RESERVATION},
};
use crate::requests::SeenRequest;

/// Conditions to write for a request, and work to do.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) conditions: Vec<ConditionChange>,
    pub(super) details: BTreeMap<&'static str, String>,
    /// True if the request waits for a yes.
    pub(super) is_open: bool,
    /// The time at which the request has to be decided about again.
    pub(super) due: Option<Duration>,
    /// The pods to ask the planner about.
    pub(super) wanted: Option<Vec<PodSet>>,
    /// Reservations to create or shrink.
    pub(super) keep: Vec<ReservationWrite>,
    /// True if the request has been over for long enough, and is deleted.
    pub(super) is_deleted: bool,
}

/// Returns true if the request has its last answer. A request whose `Provisioned` another writer set to Unknown is left
/// to that writer.
pub(super) fn is_over(request: &SeenRequest) -> bool {
    let status = &request.status;
    status.is(Type::Failed) || status.is(Type::BookingExpired) || status.is_unknown()
}

impl Decision {
    pub(super) fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self { conditions: vec![ConditionChange::yes(Type::Failed, reason, message)], ..Self::default() }
    }

    /// Deletes a request that was over for so long. A request that another writer has taken over is left to that one.
    pub(super) fn delete_after(
        &mut self,
        keep: Option<Duration>,
        request: &SeenRequest,
        memory: &mut RequestMemory,
        now: ProvisionMoment,
    ) {
        let Some(keep) = keep.filter(|_| !request.status.is_unknown()) else { return };
        let Some(ended) = memory.ended(&request.status, now) else { return };
        let until = ended.reaches(keep);
        self.is_deleted = now.steady >= until;
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
    }

    pub(super) fn say(&mut self, verdict: &CheckVerdict, parameters: &RequestParameters) {
        self.details.insert(RESERVATION, String::new());
        match verdict {
            CheckVerdict::Found(found) => self.say_found(found, parameters, None),
            CheckVerdict::NotFound(message) => self.say_no(Reason::CapacityIsNotFound, message, parameters),
            CheckVerdict::Undecided(message) => self.say_no(Reason::FailedToCheckCapacity, message, parameters),
            CheckVerdict::Crowded(message) => self.say_later(Reason::FailedToCheckCapacity, message),
        }
    }

    /// Tells a request yes; `not_kept` says why nothing keeps its devices, where that is news.
    pub(super) fn say_found(&mut self, found: &FoundCapacity, parameters: &RequestParameters, not_kept: Option<&str>) {
        let FoundCapacity { message, nodes, node, plan_hash, .. } = found;
        let time = messages::time(parameters.booking);
        let why = not_kept.map(|why| format!(" ({why})")).unwrap_or_default();
        let booked = format!(
            "{message}; for {time} no other ProvisioningRequest is told the same, but nothing keeps away pods that come \
             without one{why}"
        );
        self.conditions.push(ConditionChange::yes(Type::Provisioned, Reason::CapacityIsFound, booked));
        self.conditions.push(ConditionChange::yes(Type::CapacityAvailable, Reason::CapacityIsFound, message));
        self.details.insert(NODES, nodes.clone());
        self.details.insert(PLAN_HASH, plan_hash.clone());
        self.details.extend(node.iter().map(|node| (NODE, node.clone())));
    }

    fn say_no(&mut self, reason: Reason, message: &str, parameters: &RequestParameters) {
        if !parameters.is_final {
            return self.say_later(reason, message);
        }
        self.is_open = false;
        self.conditions.push(ConditionChange::no(Type::CapacityAvailable, reason, message));
        self.conditions.push(ConditionChange::yes(Type::Failed, reason, format!("{message}; noRetry is true")));
    }

    /// Tells a request no, for now.
    fn say_later(&mut self, reason: Reason, message: &str) {
        self.conditions.push(ConditionChange::no(Type::CapacityAvailable, reason, message));
        let longest = messages::time(LONGEST_PAUSE);
        let message =
            format!("{message}; it is looked for again when something gets free, at the latest every {longest}");
        self.conditions.push(ConditionChange::no(Type::Provisioned, reason, message));
    }
}
