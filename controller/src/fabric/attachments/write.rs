//! The writes of attachments, each over the version that it was decided on.

use hostler_cluster::ApiFailure;
use serde_json::{Value, json};

use super::{
    claim::{ClaimConditions, ClaimOfDevice},
    context::{AnsweredWrite, AttachmentContext, AttachmentWrite, FABRIC_FINALIZER, SeenAttachment},
    read::{AttachmentReader, attachments},
};

/// Field manager of the controller's conditions in claims: other parts of the controller write other fields of them.
const FIELD_MANAGER: &str = "hostler-controller-fabric";

/// Makes a write. Its failure with code 404 or 409 says that another write came before.
pub(super) async fn carry_out(
    reader: &AttachmentReader,
    cx: &AttachmentContext,
    write: &AttachmentWrite,
) -> Result<AnsweredWrite, ApiFailure> {
    let (client, all, name) = (&reader.client, attachments(), cx.device.device_name());
    let object: Value = match (write, &cx.seen) {
        (AttachmentWrite::Create(spec), None) => {
            let object = json!({
                "apiVersion": all.api_version(), "kind": all.kind(),
                "metadata": {"name": name, "finalizers": [FABRIC_FINALIZER]}, "spec": spec,
            });
            client.create(&all, &name, &object).await?
        }
        (AttachmentWrite::Spec(spec), Some(seen)) => {
            let mut object = seen.object.clone();
            object["spec"] = json!(spec);
            client.replace(&all, &name, &object).await?
        }
        (AttachmentWrite::Finalizer { is_wanted }, Some(seen)) => {
            let mut finalizers = seen.attachment.metadata.finalizers.clone();
            finalizers.retain(|it| it != FABRIC_FINALIZER);
            finalizers.extend(is_wanted.then(|| FABRIC_FINALIZER.to_owned()));
            let mut object = seen.object.clone();
            object["metadata"]["finalizers"] = json!(finalizers);
            let object = client.replace(&all, &name, &object).await?;
            if !is_wanted {
                return Ok(AnsweredWrite::Gone);
            }
            object
        }
        (AttachmentWrite::Status(status), Some(seen)) => {
            let whole = (&*seen.version.resource_version, &**status);
            client.write_status(&all, &name, FIELD_MANAGER, whole).await?
        }
        (AttachmentWrite::Delete, Some(seen)) => {
            client.delete(&all, &name, &seen.version).await?;
            return Ok(AnsweredWrite::Gone);
        }
        (AttachmentWrite::Claim(claim), Some(_)) => {
            return tell(reader, claim, &name).await.map(|told| AnsweredWrite::Claim(told.map(Box::new)));
        }
        _ => return Ok(AnsweredWrite::Gone),
    };
    let unusable = |error| ApiFailure::unusable(format!("read the answer about FabricAttachment {name}"), error);
    SeenAttachment::of(object).map(|seen| AnsweredWrite::Attachment(Box::new(seen))).map_err(unusable)
}

/// Writes the conditions of a claim's devices, over the version of the claim that they were decided on.
async fn tell(
    reader: &AttachmentReader,
    claim: &ClaimConditions,
    device: &str,
) -> Result<Option<ClaimOfDevice>, ApiFailure> {
    let devices = claim.devices.iter().map(|told| {
        json!({
            "driver": reader.driver, "pool": told.device.pool, "device": told.device.device,
            "conditions": told.conditions,
        })
    });
    let all = reader.claims(&claim.key.namespace);
    let object = json!({
        "apiVersion": all.api_version(), "kind": all.kind(),
        "metadata": {
            "namespace": claim.key.namespace, "name": claim.key.name, "uid": claim.uid,
            "resourceVersion": claim.version,
        },
        "status": {"devices": devices.collect::<Vec<Value>>()},
    });
    let told: Value = reader.client.apply_status(&all, &claim.key.name, FIELD_MANAGER, &object).await?;
    let unusable = |error| ApiFailure::unusable(format!("read the answer about ResourceClaim {}", claim.key), error);
    ClaimOfDevice::of(&told, &reader.driver, device).map_err(unusable)
}
