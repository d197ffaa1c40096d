//! Statuses of attachments, and the time after which a device is offered again.

use std::time::{Duration, UNIX_EPOCH};

use hostler_api::{
    Doubling,
    fabric::{AttachmentPhase, FabricAttachmentStatus},
};
use hostler_cluster::{rfc3339, since_1970};

use super::context::{AttachmentContext, AttachmentWrite, SeenAttachment};
use crate::fabric::status::QUARANTINED;

/// Pauses before a device is offered again: half a minute is enough for a link that trains once more, and a device that
/// fails all day needs a person.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(30), Duration::from_secs(24 * 60 * 60));
/// Failures in a row from which on the reason is Quarantined.
const QUARANTINED_FROM: u32 = 5;
/// Characters of a message: answers of managers can be pages.
const LONGEST_MESSAGE: usize = 1024;

/// Reason of devices that are free and hold data.
pub(super) const HOLDS_DATA: &str = "HoldsData";

/// A failed attempt.
#[derive(Clone, Debug)]
pub(super) struct AttemptFailure {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) cause: FailureCause,
    /// True if the manager has said that nothing is attached.
    pub(super) is_unattached: bool,
}

/// The object that is to blame for a failed attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FailureCause {
    /// The device, its manager or the way between: the failure counts.
    Device,
    /// The node, or others who were given the memory: the device can be had another time.
    Node,
}

impl AttemptFailure {
    pub(super) fn of_device(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), cause: FailureCause::Device, is_unattached: false }
    }

    pub(super) fn of_node(reason: &'static str, message: impl Into<String>) -> Self {
        Self { cause: FailureCause::Node, ..Self::of_device(reason, message) }
    }

    /// The same, where the manager has said that nothing is attached.
    pub(super) fn unattached(self) -> Self {
        Self { is_unattached: true, ..self }
    }
}

pub(super) fn time(since_1970: Duration) -> String {
    rfc3339(UNIX_EPOCH + since_1970)
}

/// The message as it fits into a status.
pub(super) fn short(message: &str) -> String {
    hostler_api::cut_middle(message, LONGEST_MESSAGE).to_string()
}

impl AttachmentContext {
    /// Returns the status with another phase. All else stays.
    pub(super) fn phase(
        &self,
        seen: &SeenAttachment,
        phase: AttachmentPhase,
        reason: &str,
        message: &str,
    ) -> FabricAttachmentStatus {
        FabricAttachmentStatus {
            phase,
            reason: reason.to_owned(),
            message: short(message),
            since: Some(time(self.now)),
            ..seen.status().clone()
        }
    }

    /// Writes that the attempt failed. The device is tainted from now on until the time of the next try at least.
    pub(super) fn fail(&self, seen: &SeenAttachment, failure: &AttemptFailure) -> AttachmentWrite {
        let counts = u32::from(failure.cause == FailureCause::Device);
        let failures = seen.status().failures.saturating_add(counts);
        let pause = if counts == 0 { PAUSES.after(0) } else { PAUSES.after(failures.saturating_sub(1)) };
        let mut status = self.phase(seen, AttachmentPhase::Failed, failure.reason, &failure.message);
        status.failures = failures;
        status.retry_at = Some(time(self.now + pause));
        if failure.is_unattached {
            status.deadline = None;
        }
        AttachmentWrite::Status(Box::new(status))
    }

    /// Writes that no node has the device. `not_before` keeps it from being offered until then.
    pub(super) fn detached_status(
        &self,
        seen: &SeenAttachment,
        message: &str,
        not_before: Option<Duration>,
    ) -> AttachmentWrite {
        let known = seen.status();
        let retry_at = known.retry_at.as_deref().and_then(since_1970).max(not_before).filter(|at| *at > self.now);
        let reason = match known {
            it if it.failures >= QUARANTINED_FROM => QUARANTINED,
            it if it.failures > 0 => "Failed",
            it if it.used => HOLDS_DATA,
            _ => "Detached",
        };
        // The last failure is what people look for as long as the device is not offered for it.
        let message = if known.failures > 0 { &*known.message } else { message };
        let mut status = self.phase(seen, AttachmentPhase::Detached, reason, message);
        (status.deadline, status.connection) = (None, None);
        status.retry_at = retry_at.map(time).or_else(|| known.retry_at.clone().filter(|_| known.failures > 0));
        AttachmentWrite::Status(Box::new(status))
    }

    /// Writes the reason why nothing goes on, if the status says something else.
    pub(super) fn note(&self, seen: &SeenAttachment, reason: &str, message: &str) -> Option<AttachmentWrite> {
        let known = seen.status();
        let mut noted = FabricAttachmentStatus { reason: reason.to_owned(), ..known.clone() };
        // The message of a failed attempt stays until the next attempt.
        if known.failures == 0 || known.phase == AttachmentPhase::Attaching {
            noted.message = short(message);
        }
        let is_news = noted != *known && known.phase != AttachmentPhase::Failed;
        is_news.then(|| AttachmentWrite::Status(Box::new(noted)))
    }
}
