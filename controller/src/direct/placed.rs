//! What is said of a Reservation about the pod that it was made for: the condition `Placed`, which is there only while something
//! is in the way.

use hostler_api::{
    hardware::{Condition, ConditionStatus},
    reservation::{ReservationConditionReason as Reason, ReservationConditionType as Type},
};

use super::sight::{DirectSight, DirectWrite, version_of};
use crate::hold::ReservationObject;

impl DirectSight {
    /// The write after which it says what is in the way, if it does not yet.
    pub(super) fn say(&self, own: &ReservationObject) -> Option<DirectWrite> {
        let known = own.status.condition(Type::Placed);
        let new = self.trouble.as_ref().map(|trouble| self.condition(Reason::Refused, trouble, known));
        if known == new.as_ref() {
            return None;
        }
        let mut status = own.status.clone();
        status.conditions.retain(|it| it.kind != Type::Placed.as_str());
        status.conditions.extend(new);
        Some(DirectWrite::Status(own.name.clone(), version_of(own), Box::new(status)))
    }

    fn condition(&self, reason: Reason, message: &str, known: Option<&Condition>) -> Condition {
        let since = known.filter(|it| it.reason == reason.as_str());
        Condition {
            kind: Type::Placed.as_str().to_owned(),
            status: ConditionStatus::False,
            reason: reason.as_str().to_owned(),
            message: message.chars().take(1024).collect(),
            last_transition_time: since.map_or_else(|| self.now.clone(), |it| it.last_transition_time.clone()),
        }
    }
}
