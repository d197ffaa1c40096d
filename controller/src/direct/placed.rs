//! The condition `Placed` of a Reservation, about the pod that it was made for: the condition is there only while an
//! obstacle is.

use std::time::UNIX_EPOCH;

use hostler_api::{
    hardware::{Condition, ConditionStatus},
    reservation::{ReservationConditionReason as Reason, ReservationConditionType as Type},
};
use hostler_cluster::rfc3339;

use super::{
    again::has_no_devices,
    attempt::Attempt,
    context::{DirectContext, DirectPod, DirectWrite, version_of},
};
use crate::reservation_object::ReservationObject;

impl DirectContext {
    /// Returns the write of the status that names the obstacle, if the status does not name it yet.
    pub(super) fn say(&self, own: &ReservationObject) -> Option<DirectWrite> {
        let known = own.status.condition(Type::Placed);
        let new = self.in_the_way(own).map(|(reason, message)| self.condition(reason, &message, known));
        if known == new.as_ref() {
            return None;
        }
        let mut status = own.status.clone();
        status.conditions.retain(|it| it.kind != Type::Placed.as_str());
        status.conditions.extend(new);
        Some(DirectWrite::Status(own.name.clone(), version_of(own), Box::new(status)))
    }

    fn in_the_way(&self, own: &ReservationObject) -> Option<(Reason, String)> {
        if let Some(trouble) = &self.trouble {
            return Some((Reason::Refused, trouble.clone()));
        }
        if has_no_devices(own)
            && let Some(message) = self.pinned(own)
        {
            return Some((Reason::Pinned, message));
        }
        if self.pod.as_ref().is_none_or(DirectPod::is_gated) {
            return None;
        }
        let attempt = Attempt::of(own);
        if self.is_taken_back(own) {
            let message = "the scheduler did not bind the pod to the node of its devices, and freed claims of it; the \
                           Events of the pod (FailedScheduling) say why";
            return Some((Reason::TakenBack, message.to_owned()));
        }
        (attempt.number > 0).then(|| (Reason::PlannedAgain, attempt.message()))
    }

    fn condition(&self, reason: Reason, message: &str, known: Option<&Condition>) -> Condition {
        let since = known.filter(|it| it.reason == reason.as_str());
        Condition {
            kind: Type::Placed.as_str().to_owned(),
            status: ConditionStatus::False,
            reason: reason.as_str().to_owned(),
            message: message.chars().take(1024).collect(),
            last_transition_time: since
                .map_or_else(|| rfc3339(UNIX_EPOCH + self.now), |it| it.last_transition_time.clone()),
        }
    }
}
