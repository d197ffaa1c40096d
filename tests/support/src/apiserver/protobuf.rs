//! Claims in the API's binary form. Fields that a driver may read are as the real server has them: the claim's
//! identity, and the devices in its status. The rest is JSON inside the real fields: a reader that decodes it reads
//! fields that are not for drivers.

use prost::Message;
use serde_json::{Value, json};

use super::{opaque, refusal::StatusError};

/// Name of the form in headers.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    kind: Option<KindMessage>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct KindMessage {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct ClaimMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetadataMessage>,
    #[prost(bytes = "vec", tag = "2")]
    spec: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    status: Option<ClaimStatusMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct MetadataMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
    /// The whole object, in the place of the managed fields.
    #[prost(bytes = "vec", tag = "17")]
    all: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ClaimStatusMessage {
    #[prost(bytes = "vec", tag = "1")]
    allocation: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    reserved_for: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    devices: Vec<DeviceMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceMessage {
    #[prost(string, tag = "1")]
    driver: String,
    #[prost(string, tag = "2")]
    pool: String,
    #[prost(string, tag = "3")]
    device: String,
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<ConditionMessage>,
    #[prost(message, optional, tag = "5")]
    data: Option<DataMessage>,
    #[prost(bytes = "vec", optional, tag = "6")]
    network: Option<Vec<u8>>,
    #[prost(string, optional, tag = "7")]
    share: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct DataMessage {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ConditionMessage {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(int64, tag = "3")]
    observed_generation: i64,
    #[prost(message, optional, tag = "4")]
    changed: Option<TimeMessage>,
    #[prost(string, tag = "5")]
    reason: String,
    #[prost(string, tag = "6")]
    message: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct TimeMessage {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

/// A refusal.
#[derive(Clone, PartialEq, Message)]
struct RefusalMessage {
    #[prost(string, tag = "2")]
    status: String,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    details: Option<RefusalDetailsMessage>,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct RefusalDetailsMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<RefusalCauseMessage>,
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
}

#[derive(Clone, PartialEq, Message)]
struct RefusalCauseMessage {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(string, tag = "3")]
    field: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn inside(value: &Value) -> Vec<u8> {
    if value.is_null() { Vec::new() } else { value.to_string().into_bytes() }
}

fn outside(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// A claim as it is stored, or a refusal.
pub(crate) fn encode(object: &Value) -> Vec<u8> {
    let kind = KindMessage { api_version: text(&object["apiVersion"]), kind: text(&object["kind"]) };
    let raw = if kind.kind == "Status" { refusal(object) } else { claim(object) };
    [MAGIC, &Envelope { kind: Some(kind), raw }.encode_to_vec()].concat()
}

fn refusal(status: &Value) -> Vec<u8> {
    let details = &status["details"];
    let number = |value: &Value| i32::try_from(value.as_i64().unwrap_or_default()).unwrap_or_default();
    let cause = |cause: &Value| RefusalCauseMessage {
        reason: text(&cause["reason"]),
        message: text(&cause["message"]),
        field: text(&cause["field"]),
    };
    let details = details.is_object().then(|| RefusalDetailsMessage {
        name: text(&details["name"]),
        causes: list(&details["causes"]).map(cause).collect(),
        retry_after_seconds: number(&details["retryAfterSeconds"]),
    });
    let code = number(&status["code"]);
    let (message, reason, status) = (text(&status["message"]), text(&status["reason"]), text(&status["status"]));
    RefusalMessage { status, message, reason, details, code }.encode_to_vec()
}

fn claim(claim: &Value) -> Vec<u8> {
    let metadata = &claim["metadata"];
    let metadata = MetadataMessage {
        name: text(&metadata["name"]),
        namespace: text(&metadata["namespace"]),
        uid: text(&metadata["uid"]),
        resource_version: text(&metadata["resourceVersion"]),
        generation: metadata["generation"].as_i64().unwrap_or_default(),
        finalizers: list(&metadata["finalizers"]).map(text).collect(),
        all: inside(metadata),
    };
    let status = ClaimStatusMessage {
        allocation: inside(&claim["status"]["allocation"]),
        reserved_for: inside(&claim["status"]["reservedFor"]),
        devices: list(&claim["status"]["devices"]).map(device).collect(),
    };
    ClaimMessage { metadata: Some(metadata), spec: inside(&claim["spec"]), status: Some(status) }.encode_to_vec()
}

fn device(device: &Value) -> DeviceMessage {
    let condition = |condition: &Value| ConditionMessage {
        kind: text(&condition["type"]),
        status: text(&condition["status"]),
        observed_generation: condition["observedGeneration"].as_i64().unwrap_or_default(),
        changed: text(&condition["lastTransitionTime"])
            .parse::<k8s_openapi::jiff::Timestamp>()
            .ok()
            .map(|time| TimeMessage { seconds: time.as_second() }),
        reason: text(&condition["reason"]),
        message: text(&condition["message"]),
    };
    DeviceMessage {
        driver: text(&device["driver"]),
        pool: text(&device["pool"]),
        device: text(&device["device"]),
        conditions: list(&device["conditions"]).map(condition).collect(),
        data: device["data"].is_object().then(|| DataMessage { raw: opaque::text_of(&device["data"]).into_bytes() }),
        network: device["networkData"].is_object().then(|| inside(&device["networkData"])),
        share: device["shareID"].as_str().map(str::to_owned),
    }
}

/// The claim in a request.
pub(crate) fn decode(body: &[u8]) -> Result<Value, StatusError> {
    let no_claim = |error: prost::DecodeError| StatusError::bad_request(error.to_string());
    let body =
        body.strip_prefix(MAGIC).ok_or_else(|| StatusError::bad_request("the body has not the form's prefix"))?;
    let envelope = Envelope::decode(body).map_err(no_claim)?;
    let ClaimMessage { metadata, spec, status } = ClaimMessage::decode(&*envelope.raw).map_err(no_claim)?;
    let (kind, metadata, status) =
        (envelope.kind.unwrap_or_default(), metadata.unwrap_or_default(), status.unwrap_or_default());
    let mut named = outside(&metadata.all);
    named["uid"] = json!(metadata.uid);
    named["resourceVersion"] = json!(metadata.resource_version);
    named["finalizers"] = json!((!metadata.finalizers.is_empty()).then_some(&metadata.finalizers));
    Ok(json!({
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": named, "spec": outside(&spec),
        "status": {
            "allocation": outside(&status.allocation), "reservedFor": outside(&status.reserved_for),
            "devices": (!status.devices.is_empty())
                .then(|| status.devices.iter().map(device_in_json).collect::<Vec<_>>()),
        },
    }))
}

fn device_in_json(device: &DeviceMessage) -> Value {
    let time =
        |time: TimeMessage| k8s_openapi::jiff::Timestamp::from_second(time.seconds).unwrap_or_default().to_string();
    let condition = |condition: &ConditionMessage| {
        json!({
            "type": condition.kind, "status": condition.status, "reason": condition.reason, "message": condition.message,
            "lastTransitionTime": condition.changed.map(time),
            "observedGeneration": (condition.observed_generation != 0).then_some(condition.observed_generation),
        })
    };
    json!({
        "driver": device.driver, "pool": device.pool, "device": device.device, "shareID": device.share,
        "conditions": device.conditions.iter().map(condition).collect::<Vec<_>>(),
        "data": device.data.as_ref().map(|data| opaque::opaque(&String::from_utf8_lossy(&data.raw))),
        "networkData": device.network.as_deref().map(outside),
    })
}
