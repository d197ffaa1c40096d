//! The finding on keeping devices for their promised owners.

use hostler_api::hardware::ConditionStatus;

use super::{ClusterFinding, FindingKind, mend};
use crate::{
    config::CapabilityMode,
    hold::adapter::{HoldPhase, HoldStatus},
};

/// Makes the finding on Reservations.
pub(super) fn keeping(mode: CapabilityMode, status: &HoldStatus) -> ClusterFinding {
    let kind = FindingKind::Reservations;
    let finding = |status, reason, message: String| ClusterFinding::new(kind, status, reason, message);
    if mode == CapabilityMode::Off {
        return finding(ConditionStatus::False, "Off", "switched off by configuration".to_owned());
    }
    let is_needed = mode == CapabilityMode::On;
    let missing = |status, reason, message: String| ClusterFinding { is_needed, ..finding(status, reason, message) };
    match &status.phase {
        HoldPhase::NotLeading => {
            finding(ConditionStatus::Unknown, "NotLeading", "the controller that leads keeps devices".to_owned())
        }
        HoldPhase::NotServed(what) => {
            missing(ConditionStatus::False, "NotServed", format!("no {what}: {}", mend(kind)))
        }
        HoldPhase::Forbidden(why) => missing(
            ConditionStatus::False,
            "Forbidden",
            format!("{why}; apply deploy/holds, or set capabilities.reservations = \"off\""),
        ),
        HoldPhase::Unknown(why) => finding(ConditionStatus::Unknown, "NoAnswer", why.clone()),
        HoldPhase::Listing(kinds) => {
            missing(ConditionStatus::Unknown, "NotListed", format!("not listed yet: {}", kinds.join(", ")))
        }
        HoldPhase::Keeping if status.unreadable > 0 => {
            let message = format!("{} objects cannot be understood, and the log names them", status.unreadable);
            finding(ConditionStatus::True, "Keeping", message)
        }
        HoldPhase::Keeping if let Some(doubt) = &status.rules_doubt => {
            let message = format!(
                "devices are kept for their owners, those of other drivers not: {doubt}; {} rules of before are deleted when their \
                 time is over, and schedulers that ran before that may not notice",
                status.rules
            );
            finding(ConditionStatus::True, "RulesIgnored", message)
        }
        HoldPhase::Keeping if status.is_silent_to_pods => {
            let message =
                "devices are kept for their owners, whose pods are not annotated: deploy/holds/annotations allows that";
            finding(ConditionStatus::True, "Keeping", message.to_owned())
        }
        HoldPhase::Keeping => finding(ConditionStatus::True, "Keeping", "devices are kept for their owners".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mode: CapabilityMode, phase: HoldPhase) -> (ConditionStatus, &'static str, bool) {
        let finding = keeping(mode, &HoldStatus { phase, ..HoldStatus::default() });
        (finding.status, finding.reason, finding.is_needed)
    }

    #[test]
    fn only_what_is_switched_on_and_cannot_be_done_keeps_the_controller_from_being_ready() {
        let (on, auto, off) = (CapabilityMode::On, CapabilityMode::Auto, CapabilityMode::Off);
        let (no, yes, perhaps) = (ConditionStatus::False, ConditionStatus::True, ConditionStatus::Unknown);
        let forbidden = || HoldPhase::Forbidden("no".to_owned());
        assert_eq!(of(off, HoldPhase::Keeping), (no, "Off", false));
        assert_eq!(of(auto, forbidden()), (no, "Forbidden", false));
        assert_eq!(of(on, forbidden()), (no, "Forbidden", true));
        assert_eq!(of(on, HoldPhase::NotServed("reservations".to_owned())), (no, "NotServed", true));
        assert_eq!(of(on, HoldPhase::NotLeading), (perhaps, "NotLeading", false));
        assert_eq!(of(on, HoldPhase::Keeping), (yes, "Keeping", false));
    }
}
