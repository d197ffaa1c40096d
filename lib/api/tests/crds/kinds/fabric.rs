//! FabricAttachment.

use hostler_api::{
    fabric::{FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS},
    limits::MAX_OBJECT_NAME,
};
use serde_json::{Value, json};

use super::{CustomKind, column, rules, wide};

pub(super) fn attachments() -> CustomKind {
    CustomKind {
        kind: FABRIC_ATTACHMENT_KIND,
        plural: FABRIC_ATTACHMENTS,
        folder: "fabric",
        scope: "Cluster",
        has_status: true,
        short_names: &["fa"],
        about: "A device behind a switch that a node has, gets or gives back, as hostler-controller and the node say.",
        columns: vec![
            column("Phase", "string", ".status.phase"),
            column("Node", "string", ".spec.nodeName"),
            column("Claim", "string", ".spec.claim.name"),
            column("On node", "string", ".status.node.state"),
            column("Since", "date", ".status.since"),
            wide("Kept for", "string", ".spec.keptFor.name"),
            wide("Device", "string", ".spec.device"),
            wide("Manager", "string", ".spec.manager"),
            wide("Attempt", "integer", ".spec.attempt"),
            wide("Message", "string", ".status.message"),
        ],
        // Each daemon watches the attachments of its own node.
        selectable: &[".spec.nodeName"],
    }
}

pub(super) fn limits() -> Vec<(&'static str, Value)> {
    let name = json!({"maxLength": MAX_OBJECT_NAME, "minLength": 1});
    let time = json!({"format": "date-time", "maxLength": 64});
    let word = json!({"maxLength": 64});
    let message = json!({"maxLength": 1024});
    let same = |field: &str| format!("self.{field} == oldSelf.{field}");
    let same_uid = |field: &str| {
        format!(
            "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field}.uid == oldSelf.{field}.uid)"
        )
    };
    let (same_claim, same_keeper) = (same_uid("claim"), same_uid("keptFor"));
    // A Reservation that keeps the device hands it to a claim, or takes it back from one that has not used it.
    let handed_over = "has(self.keptFor) && !(has(self.claim) && has(oldSelf.claim))";
    let attempt = format!(
        "({} && {} && {same_keeper} && (({same_claim}) || ({handed_over}))) || self.attempt > oldSelf.attempt",
        same("manager"),
        same("nodeName"),
    );
    let spec = rules([
        (&*same("device"), "spec.device cannot change; each device has an object of its own"),
        (&*attempt, "another manager, node, claim or Reservation is another attempt; raise spec.attempt"),
    ]);
    vec![
        ("FabricAttachmentSpec", spec),
        ("FabricAttachmentSpec.manager", json!({"maxLength": 63, "minLength": 1})),
        ("FabricAttachmentSpec.domain", name.clone()),
        ("FabricAttachmentSpec.nodeName", name.clone()),
        ("AttachedClaim.namespace", json!({"maxLength": 63, "minLength": 1})),
        ("AttachedClaim.name", name.clone()),
        ("AttachedClaim.uid", json!({"maxLength": 64, "minLength": 1})),
        ("AttachmentKeeper.name", name),
        ("AttachmentKeeper.uid", json!({"maxLength": 64, "minLength": 1})),
        ("FabricAttachmentStatus.reason", word),
        ("FabricAttachmentStatus.message", message.clone()),
        ("FabricAttachmentStatus.since", time.clone()),
        ("FabricAttachmentStatus.deadline", time.clone()),
        ("FabricAttachmentStatus.retryAt", time.clone()),
        ("AdoptedConnection.path", json!({"maxLength": 1024, "minLength": 1})),
        ("FabricNodeReport.device", json!({"maxLength": 128})),
        ("FabricNodeReport.message", message),
        ("FabricNodeReport.since", time),
    ]
}
