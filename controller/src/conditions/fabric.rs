//! The finding on devices behind switches.

use hostler_api::{few, hardware::ConditionStatus};

use super::{ClusterFinding, FindingKind};
use crate::{
    config::CapabilityMode,
    fabric::{FabricPhase, FabricStatus},
};

/// Makes the finding on managers of devices behind switches; none where no manager is configured.
pub(crate) fn fabric_finding(mode: CapabilityMode, status: &FabricStatus) -> Option<ClusterFinding> {
    let (yes, no, perhaps) = (ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown);
    let unread: Vec<String> =
        status.managers.iter().filter_map(|(name, error)| Some(format!("{name}: {}", error.as_ref()?))).collect();
    let (status, reason, message) = match &status.phase {
        FabricPhase::NotLeading => (perhaps, "NotLeading", "the controller that leads reads the managers".to_owned()),
        FabricPhase::Listing(None) => (perhaps, "NotListed", "the slices are not listed yet".to_owned()),
        FabricPhase::Listing(Some(why)) | FabricPhase::Failed(why) => {
            let fix = "the controller needs the role of deploy/fabric";
            (no, "Failed", format!("the slices of devices behind switches cannot be written or watched: {why}; {fix}"))
        }
        FabricPhase::NotServed => {
            let fix = "kubectl apply -k deploy/fabric";
            let what =
                "the API server has no FabricAttachments, or shows the controller none, so that nothing is offered";
            (no, "NotServed", format!("{what}: {fix}"))
        }
        FabricPhase::FieldsDropped(fields) => {
            let fix = "switch on the feature gates of API server and scheduler";
            (no, "FieldsDropped", format!("nothing is offered, since the API server drops {fields}; {fix}"))
        }
        FabricPhase::Offering if !unread.is_empty() => {
            let what = "their devices stay as they were offered last";
            (no, "Unread", format!("managers that cannot be read, {what}: {}", few(unread)))
        }
        FabricPhase::Offering if !status.contradictions.is_empty() => {
            (no, "Contradictions", format!("{}{}", few(&status.contradictions), left_out(status, "; not offered: ")))
        }
        FabricPhase::Offering => {
            (yes, "Offering", format!("devices are offered{}", left_out(status, "; others are not: ")))
        }
    };
    mode.is_wanted().then(|| ClusterFinding::new(FindingKind::FabricManagers, status, reason, message))
}

fn left_out(status: &FabricStatus, before: &str) -> String {
    if status.left_out.is_empty() { String::new() } else { format!("{before}{}", few(&status.left_out)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: &FabricStatus) -> String {
        fabric_finding(CapabilityMode::Auto, status).unwrap().line()
    }

    fn offering() -> FabricStatus {
        let managers = [("row1".to_owned(), None)].into();
        FabricStatus { phase: FabricPhase::Offering, managers, ..FabricStatus::default() }
    }

    #[test]
    fn the_worst_is_said_first_and_lists_are_short() {
        assert_eq!(
            said(&FabricStatus::default()),
            "FabricManagers=Unknown (NotLeading): the controller that leads reads the managers"
        );
        assert_eq!(said(&offering()), "FabricManagers=True (Offering): devices are offered");
        let left_out: Vec<String> = (0..9).map(|at| format!("d{at}: broken")).collect();
        let line = said(&FabricStatus { left_out: left_out.clone(), ..offering() });
        assert!(line.ends_with("others are not: d0: broken, d1: broken, d2: broken and 6 more"), "{line}");
        let contradictions = vec!["row1: two hosts".to_owned()];
        let contradicting = FabricStatus { contradictions, left_out, ..offering() };
        let line = said(&contradicting);
        assert!(line.starts_with("FabricManagers=False (Contradictions): row1: two hosts; not offered: d0"), "{line}");
        let managers = [("row1".to_owned(), Some("no answer".to_owned())), ("row2".to_owned(), None)].into();
        let line = said(&FabricStatus { managers, ..contradicting });
        assert!(line.starts_with("FabricManagers=False (Unread)") && line.ends_with(": row1: no answer"), "{line}");
        let phase = FabricPhase::FieldsDropped("taints (feature gate DRADeviceTaints)".to_owned());
        let line = said(&FabricStatus { phase, ..offering() });
        assert!(line.contains("False (FieldsDropped)") && line.contains("gate DRADeviceTaints"), "{line}");
    }

    #[test]
    fn clusters_without_managers_are_told_nothing() {
        assert_eq!(fabric_finding(CapabilityMode::Off, &FabricStatus::default()), None);
    }
}
