//! What people are told of Reservations, in Events.

use std::collections::BTreeSet;

use hostler_api::{
    hardware::Condition,
    reservation::{ReservationConditionReason, ReservationConditionType, ReservationPhase, ReservationStatus},
};

use super::{
    core::HoldCore,
    event::{HoldCommand, HoldNotice, ReservationObject},
    status::STILL_LOOKING,
};

/// Reasons for which there are no devices that people are told of one Reservation. One that waits for ever has few of them, and
/// one that is told another each minute is read by nobody.
const MOST_LACKS: usize = 8;

impl HoldCore {
    /// Tells people where a Reservation stands, if that is news.
    pub(super) fn tell_of(&mut self, name: &str) {
        self.tell_what_lacks(name);
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
        if status.phase == ReservationPhase::Available {
            hold.lacks_told.clear();
        }
        if let Some(reason) = reason_of(&ready.reason) {
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

    /// Tells people why there are no devices: each reason once, until there are some.
    fn tell_what_lacks(&mut self, name: &str) {
        let Some(hold) = self.holds.get_mut(name) else { return };
        let Some(message) = what_lacks(&hold.object) else { return };
        let is_news = hold.lacks_told.len() < MOST_LACKS && hold.lacks_told.insert(without_numbers(message));
        if is_news {
            let (uid, message) = (hold.object.uid.clone(), message.to_owned());
            let reason = ReservationConditionReason::Unschedulable.as_str();
            let notice = HoldNotice { name: name.to_owned(), uid, is_warning: true, reason, message };
            self.commands.push(HoldCommand::Tell(notice));
        }
    }
}

/// Which claims have devices together, as a status says.
pub(super) fn said_conflict(status: &ReservationStatus) -> Option<&str> {
    let settled = status.condition(ReservationConditionType::Settled)?;
    (settled.reason == ReservationConditionReason::Conflict.as_str()).then_some(&*settled.message)
}

/// What people were told of it already, by a controller that led before this one.
pub(super) fn lacks_told_before(object: &ReservationObject) -> BTreeSet<String> {
    what_lacks(object).map(without_numbers).into_iter().collect()
}

/// Why it waits, of one that waits until there are devices.
fn what_lacks(object: &ReservationObject) -> Option<&str> {
    let is_so = |condition: &&Condition| condition.reason == ReservationConditionReason::Unschedulable.as_str();
    let ready = object.status.condition(ReservationConditionType::Ready).filter(is_so);
    let scheduled = object.status.condition(ReservationConditionType::Scheduled).filter(is_so);
    let message = ready.and(scheduled).map(|condition| &*condition.message);
    message.filter(|message| *message != STILL_LOOKING)
}

/// A reason with other numbers is the same reason: how many nodes are full changes all the time.
fn without_numbers(reason: &str) -> String {
    let mut words = String::new();
    for letter in reason.chars() {
        let letter = if letter.is_ascii_digit() { '#' } else { letter };
        if letter != '#' || !words.ends_with('#') {
            words.push(letter);
        }
    }
    words
}

/// The word of a condition, if people are told of it with the phase.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_only_are_one() {
        let words = without_numbers("request r: 12 nodes are full, gpu-3 is held");
        assert_eq!(words, "request r: # nodes are full, gpu-# is held");
        assert_eq!(words, without_numbers("request r: 7 nodes are full, gpu-11 is held"));
        assert_ne!(words, without_numbers("request s: 12 nodes are full, gpu-3 is held"));
    }
}
