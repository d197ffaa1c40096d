//! Events about attachments, which stand with the claims: users look there.

use hostler_api::fabric::AttachmentPhase;
use hostler_cluster::events::EventNote;

use super::{
    claim::ClaimNews,
    context::{AttachmentContext, AttachmentWrite},
};

/// An Event about a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AttachmentNote {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) note: EventNote,
}

/// The Event of a write that was made, if it is news for people.
pub(super) fn note_of(cx: &AttachmentContext, write: &AttachmentWrite) -> Option<AttachmentNote> {
    match write {
        AttachmentWrite::Status(status) if status.phase == AttachmentPhase::Attaching => {
            let seen = cx.seen.as_ref().filter(|seen| seen.status().phase == AttachmentPhase::Pending)?;
            let claim = seen.spec().claim.clone()?;
            let message =
                format!("device {} is being attached to node {}", cx.device.device_name(), seen.spec().node_name);
            let note = EventNote::new("AttachingDevice", message).normal();
            Some(AttachmentNote { namespace: claim.namespace, name: claim.name, uid: claim.uid, note })
        }
        AttachmentWrite::Claim(claim) => {
            let device = cx.device.device_name();
            let note = match &claim.news {
                ClaimNews::Attached => {
                    EventNote::new("DeviceAttached", format!("device {device} is attached and ready")).normal()
                }
                ClaimNews::Waits { message, .. } => EventNote::new("WaitsForDevice", message.clone()).normal(),
                ClaimNews::Failed { reason, message } => {
                    let message = format!(
                        "device {device} was not attached ({reason}): {message}; the scheduler chooses another one"
                    );
                    EventNote::new("DeviceNotAttached", message)
                }
            };
            let (key, uid) = (claim.key.clone(), claim.uid.clone());
            Some(AttachmentNote { namespace: key.namespace, name: key.name, uid, note })
        }
        _ => None,
    }
}
