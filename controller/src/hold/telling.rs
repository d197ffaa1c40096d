//! What people are told of Reservations, in Events.

use hostler_api::reservation::{ReservationConditionReason, ReservationConditionType, ReservationStatus};

use super::{
    core::HoldCore,
    event::{HoldCommand, HoldNotice},
};

impl HoldCore {
    /// Tells people where a Reservation stands, if that is news.
    pub(super) fn tell_of(&mut self, name: &str) {
        let Some(hold) = self.holds.get_mut(name) else { return };
        let status = &hold.object.status;
        let Some(ready) = status.condition(ReservationConditionType::Ready) else { return };
        let conflict = said_conflict(status).map(str::to_owned);
        if conflict.is_some() && hold.told_conflict != conflict {
            hold.told_conflict.clone_from(&conflict);
            self.commands.push(HoldCommand::Tell(HoldNotice {
                name: name.to_owned(),
                uid: hold.object.uid.clone(),
                is_warning: true,
                reason: ReservationConditionReason::Conflict.as_str(),
                message: conflict.unwrap_or_default(),
            }));
        }
        let news = Some((status.phase, ready.reason.clone()));
        if hold.told == news {
            return;
        }
        hold.told = news;
        let quiet = ["Fencing", "Unschedulable"];
        if let Some(reason) = reason_of(&ready.reason).filter(|reason| !quiet.contains(reason)) {
            let is_warning = matches!(reason, "Lost" | "Expired" | "NodeLost" | "Invalid");
            let (uid, message) = (hold.object.uid.clone(), ready.message.clone());
            self.commands.push(HoldCommand::Tell(HoldNotice {
                name: name.to_owned(),
                uid,
                is_warning,
                reason,
                message,
            }));
        }
    }
}

/// Which claims have devices together, as a status says.
pub(super) fn said_conflict(status: &ReservationStatus) -> Option<&str> {
    let settled = status.condition(ReservationConditionType::Settled)?;
    (settled.reason == ReservationConditionReason::Conflict.as_str()).then_some(&*settled.message)
}

/// The word of a condition, if it is one of ours.
fn reason_of(text: &str) -> Option<&'static str> {
    use ReservationConditionReason as Reason;
    let all = [
        Reason::Invalid,
        Reason::Waiting,
        Reason::Available,
        Reason::Succeeded,
        Reason::Expired,
        Reason::NodeLost,
        Reason::Lost,
    ];
    all.into_iter().map(Reason::as_str).find(|word| *word == text)
}
