//! Reservations that are there and cannot be understood: of a newer release than this one, or with numbers that do not fit. What
//! they keep is not known; what is closed with their values, and claims that stand for their parts, stay as they are.

use hostler_api::reservation::toleration_value;

use super::{agenda::Topic, core::HoldCore};

impl HoldCore {
    pub(super) fn unreadable_seen(&mut self, uid: String) {
        self.unreadable.insert(toleration_value(&uid), uid);
    }

    /// It can be understood now, or is gone: what is closed for it is looked at like all else.
    pub(super) fn unreadable_gone(&mut self, uid: &str) {
        let value = toleration_value(uid);
        if self.unreadable.remove(&value).is_none() {
            return;
        }
        for node in self.seen.nodes_closed_with(&value) {
            self.agenda.now(Topic::NodeFences(node.clone()));
        }
        for rule in self.seen.rules.values().filter(|rule| rule.value == value) {
            self.agenda.now(Topic::Rule(rule.name.clone()));
        }
        for claim in self.seen.placeholders(uid) {
            self.agenda.now(Topic::Placeholder(claim.name.clone()));
        }
    }

    /// Whether something that is closed with this value is nobody's to open.
    pub(super) fn is_unreadable(&self, value: &str) -> bool {
        self.unreadable.contains_key(value)
    }

    /// Whether a claim that stands for a part is nobody's to change.
    pub(super) fn is_of_unreadable(&self, reservation_uid: &str) -> bool {
        self.is_unreadable(&toleration_value(reservation_uid))
    }
}
