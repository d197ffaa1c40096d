//! Figures of devices behind switches: what the parts of this controller count themselves, and the sums of all
//! FabricAttachments.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::fabric::{AttachmentPhase, FabricAttachment};
use hostler_cluster::since_1970;
use hostler_fabric::WatchedInventory;

use super::status::QUARANTINED;

/// Figures that parts of this controller count while they lead. Each field has one writer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct FabricFigures {
    /// Managers that are read, by name. Written by the reader of the manager.
    pub(crate) managers: BTreeMap<String, ManagerFigures>,
    /// Attempts that failed in this term, by manager and reason. Written by the part that attaches devices.
    pub(crate) failed_attempts: BTreeMap<(String, String), u64>,
}

/// Figures of a manager.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ManagerFigures {
    /// Time since 1970 since which the manager cannot be read; `None` where its last read succeeded.
    pub(crate) unread_since: Option<Duration>,
    /// Names of devices that a connection without a key of ours gives to a host.
    pub(crate) foreign: BTreeSet<String>,
}

/// Sums of the FabricAttachments of a manager.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct AttachmentSums {
    /// Number of attachments by phase.
    pub(crate) phases: BTreeMap<&'static str, usize>,
    /// The longest time for which an attachment is in a phase that is to pass.
    pub(crate) oldest: Duration,
    /// The longest time for which a node has not let go of a device.
    pub(crate) release: Duration,
    /// Attachments beyond their deadline.
    pub(crate) overdue: usize,
    /// Devices that failed so often that a person must look.
    pub(crate) quarantined: usize,
    /// Devices that no node has, and that may hold data of an earlier claim.
    pub(crate) holding_data: usize,
}

impl FabricFigures {
    /// Counts a failed attempt.
    pub(super) fn count_failure(&mut self, manager: &str, reason: &str) {
        *self.failed_attempts.entry((manager.to_owned(), reason.to_owned())).or_default() += 1;
    }
}

/// Names of devices that a connection without a key of ours gives to a host.
pub(super) fn foreign(inventory: &WatchedInventory) -> BTreeSet<String> {
    let foreign = inventory.connections.iter().filter(|connection| connection.key.is_none());
    foreign.flat_map(|connection| &connection.devices).map(|device| device.device_name()).collect()
}

impl AttachmentSums {
    /// Sums the attachments of each manager at a time since 1970.
    pub(crate) fn by_manager<'a>(
        attachments: impl IntoIterator<Item = &'a FabricAttachment>,
        now: Duration,
    ) -> BTreeMap<&'a str, Self> {
        let mut sums: BTreeMap<&str, Self> = BTreeMap::new();
        for attachment in attachments {
            sums.entry(&attachment.spec.manager).or_default().add(attachment, now);
        }
        sums
    }

    fn add(&mut self, attachment: &FabricAttachment, now: Duration) {
        use AttachmentPhase::{Attached, Attaching, Detached, Detaching, Failed, Pending, Ready, Releasing, Unknown};
        let status = &attachment.status;
        let time = |text: &Option<String>| text.as_deref().and_then(since_1970);
        let age = time(&status.since).map(|since| now.saturating_sub(since)).unwrap_or_default();
        *self.phases.entry(status.phase.as_str()).or_default() += 1;
        match status.phase {
            Ready | Detached | Unknown => {}
            Releasing => (self.oldest, self.release) = (self.oldest.max(age), self.release.max(age)),
            Pending | Attaching | Attached | Failed | Detaching => self.oldest = self.oldest.max(age),
        }
        let may_be_overdue = matches!(status.phase, Pending | Attaching | Attached | Failed);
        let is_over = time(&status.deadline).is_some_and(|deadline| deadline < now);
        self.overdue += usize::from(may_be_overdue && is_over);
        self.quarantined += usize::from(status.phase == Detached && status.reason == QUARANTINED);
        self.holding_data += usize::from(status.phase == Detached && status.used);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-11-28T10:00:00Z";

    fn attachment(manager: &str, status: &Value) -> FabricAttachment {
        serde_json::from_value(json!({
            "metadata": {"name": "0000000000001001-0001"},
            "spec": {"manager": manager, "device": "00-00-00-00-00-00-10-01:0001", "nodeName": "n"}, "status": status,
        }))
        .unwrap()
    }

    fn sums(statuses: &[Value]) -> AttachmentSums {
        let all: Vec<FabricAttachment> = statuses.iter().map(|status| attachment("m", status)).collect();
        AttachmentSums::by_manager(&all, since_1970(NOW).unwrap()).remove("m").unwrap()
    }

    #[test]
    fn the_oldest_phase_that_is_to_pass_counts_and_devices_at_rest_do_not() {
        let sums = sums(&[
            json!({"phase": "Ready", "since": "2026-11-27T10:00:00Z"}),
            json!({"phase": "Detached", "since": "2026-11-26T10:00:00Z"}),
            json!({"phase": "Attaching", "since": "2026-11-28T09:59:00Z"}),
            json!({"phase": "Releasing", "since": "2026-11-28T09:50:00Z"}),
            json!({"phase": "Releasing", "since": "2026-11-28T09:55:00Z"}),
        ]);
        assert_eq!(sums.oldest, Duration::from_secs(600));
        assert_eq!(sums.release, Duration::from_secs(600));
        let phases = [("Attaching", 1), ("Detached", 1), ("Ready", 1), ("Releasing", 2)];
        assert_eq!(sums.phases, phases.into());
    }

    #[test]
    fn an_attachment_is_overdue_from_its_deadline_until_the_node_has_the_device() {
        let before = "2026-11-28T09:59:59Z";
        let of = |phase: &str, deadline: &str| sums(&[json!({"phase": phase, "deadline": deadline})]).overdue;
        for phase in ["Pending", "Attaching", "Attached", "Failed"] {
            assert_eq!((of(phase, before), of(phase, NOW)), (1, 0), "{phase}");
        }
        for phase in ["Ready", "Releasing", "Detaching", "Detached", "Rehearsing"] {
            assert_eq!(of(phase, before), 0, "{phase}");
        }
    }

    #[test]
    fn devices_that_no_node_has_count_as_quarantined_and_as_holding_data() {
        let sums = sums(&[
            json!({"phase": "Detached", "reason": "Quarantined", "failures": 5}),
            json!({"phase": "Detached", "reason": "HoldsData", "used": true}),
            json!({"phase": "Detached", "reason": "Failed", "failures": 1}),
            json!({"phase": "Ready", "used": true}),
        ]);
        assert_eq!((sums.quarantined, sums.holding_data), (1, 1));
    }

    #[test]
    fn each_manager_has_sums_of_its_own() {
        let (one, other) = (attachment("a", &json!({})), attachment("b", &json!({"phase": "Ready"})));
        let sums = AttachmentSums::by_manager([&one, &other], Duration::ZERO);
        assert_eq!(sums["a"].phases, [("Pending", 1)].into());
        assert_eq!(sums["b"].phases, [("Ready", 1)].into());
    }
}
