//! A claim as the API server's own message, in which the entries of this driver's devices are replaced and everything
//! else stays as it is, byte by byte: the allocation never changes, and what others say about their devices is theirs.
//!
//! ```text
//!   claim ─┬─ 1 metadata ── uid, generation
//!          ├─ 2 spec
//!          └─ 3 status ─┬─ 1 allocation, 2 reserved for
//!                       └─ 4 devices ─┬─ of others: kept
//!                                     └─ ours: written anew; kept in them are conditions and data that others own
//! ```
//!
//! The numbers are the same in all versions of the API.

use hostler_cluster::{ProtobufObject, protobuf_fields};
use k8s_openapi::{
    api::resource::v1::AllocatedDeviceStatus,
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        runtime::RawExtension,
    },
    jiff::Timestamp,
};
use prost::{DecodeError, Message, encoding::bytes};

use super::devices::{READY, is_same};

const METADATA: u32 = 1;
const STATUS: u32 = 3;
const DEVICES: u32 = 4;
const CONDITIONS: u32 = 4;
/// Which device it is, and its data: what this driver says of it whole. The rest of an entry may be anybody's.
const OURS_ALONE: [u32; 5] = [1, 2, 3, 5, 7];

/// A claim as it stands on the API server.
#[derive(Debug)]
pub(super) struct StoredClaim {
    object: ProtobufObject,
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    /// Of all drivers.
    pub(super) devices: Vec<AllocatedDeviceStatus>,
}

impl StoredClaim {
    pub(super) fn decode(object: ProtobufObject) -> Result<Self, DecodeError> {
        let (mut metadata, mut devices) = (MetadataMessage::default(), Vec::new());
        for field in protobuf_fields(&object.message)? {
            match field.number {
                METADATA => metadata = MetadataMessage::decode(field.content)?,
                STATUS => {
                    for field in protobuf_fields(field.content)?.iter().filter(|field| field.number == DEVICES) {
                        devices.push(DeviceMessage::decode(field.content)?.into());
                    }
                }
                _ => {}
            }
        }
        let MetadataMessage { uid, generation } = metadata;
        Ok(Self { object, uid, generation: (generation != 0).then_some(generation), devices })
    }

    /// The claim with exactly `wanted` of what `driver` says about its devices.
    pub(super) fn with_devices(
        &self,
        driver: &str,
        wanted: &[AllocatedDeviceStatus],
    ) -> Result<ProtobufObject, DecodeError> {
        let (mut message, mut status) = (Vec::new(), Vec::new());
        let mut left: Vec<&AllocatedDeviceStatus> = wanted.iter().collect();
        for field in protobuf_fields(&self.object.message)? {
            match field.number {
                STATUS => status = status_with(field.content, driver, &mut left)?,
                _ => message.extend_from_slice(field.whole),
            }
        }
        left.into_iter().for_each(|device| entry(device, &[], &mut status));
        bytes::encode(STATUS, &status, &mut message);
        Ok(self.object.with_message(message))
    }
}

/// The status with the entries of `driver` replaced by those of `left`, from which they go.
fn status_with(status: &[u8], driver: &str, left: &mut Vec<&AllocatedDeviceStatus>) -> Result<Vec<u8>, DecodeError> {
    let mut new = Vec::new();
    for field in protobuf_fields(status)? {
        if field.number != DEVICES {
            new.extend_from_slice(field.whole);
            continue;
        }
        let known: AllocatedDeviceStatus = DeviceMessage::decode(field.content)?.into();
        if known.driver != driver {
            new.extend_from_slice(field.whole);
        } else if let Some(at) = left.iter().position(|wanted| is_same(&known, wanted)) {
            entry(left.remove(at), &of_others(field.content)?, &mut new);
        }
    }
    Ok(new)
}

/// What an entry of ours has from others.
fn of_others(entry: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut kept = Vec::new();
    for field in protobuf_fields(entry)? {
        let ours = match field.number {
            CONDITIONS => ConditionMessage::decode(field.content)?.kind == READY,
            number => OURS_ALONE.contains(&number),
        };
        if !ours {
            kept.extend_from_slice(field.whole);
        }
    }
    Ok(kept)
}

fn entry(device: &AllocatedDeviceStatus, of_others: &[u8], status: &mut Vec<u8>) {
    let mut message = DeviceMessage::from(device).encode_to_vec();
    message.extend_from_slice(of_others);
    bytes::encode(DEVICES, &message, status);
}

#[derive(Clone, PartialEq, Message)]
struct MetadataMessage {
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(int64, tag = "7")]
    generation: i64,
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
    data: Option<RawMessage>,
    #[prost(string, optional, tag = "7")]
    share_id: Option<String>,
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
    last_transition_time: Option<TimeMessage>,
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

#[derive(Clone, PartialEq, Message)]
struct RawMessage {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

impl From<DeviceMessage> for AllocatedDeviceStatus {
    fn from(message: DeviceMessage) -> Self {
        let DeviceMessage { driver, pool, device, conditions, data, share_id } = message;
        Self {
            conditions: Some(conditions.into_iter().map(Condition::from).collect()),
            // What is no JSON cannot be ours.
            data: data.and_then(|data| serde_json::from_slice(&data.raw).ok()).map(RawExtension),
            device,
            driver,
            network_data: None,
            pool,
            share_id,
        }
    }
}

impl From<&AllocatedDeviceStatus> for DeviceMessage {
    fn from(device: &AllocatedDeviceStatus) -> Self {
        Self {
            driver: device.driver.clone(),
            pool: device.pool.clone(),
            device: device.device.clone(),
            conditions: device.conditions.iter().flatten().map(ConditionMessage::from).collect(),
            data: device.data.as_ref().map(|RawExtension(data)| RawMessage { raw: data.to_string().into_bytes() }),
            share_id: device.share_id.clone(),
        }
    }
}

impl From<ConditionMessage> for Condition {
    fn from(message: ConditionMessage) -> Self {
        let ConditionMessage { kind, status, observed_generation, last_transition_time, reason, message } = message;
        let seconds = last_transition_time.unwrap_or_default().seconds;
        Self {
            last_transition_time: Time(Timestamp::from_second(seconds).unwrap_or_default()),
            message,
            observed_generation: (observed_generation != 0).then_some(observed_generation),
            reason,
            status,
            type_: kind,
        }
    }
}

impl From<&Condition> for ConditionMessage {
    fn from(condition: &Condition) -> Self {
        Self {
            kind: condition.type_.clone(),
            status: condition.status.clone(),
            observed_generation: condition.observed_generation.unwrap_or_default(),
            last_transition_time: Some(TimeMessage { seconds: condition.last_transition_time.0.as_second() }),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with something in it.
    fn field(number: u32, content: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        bytes::encode(number, &content.to_vec(), &mut field);
        field
    }

    fn device(driver: &str, name: &str, conditions: &[&str]) -> DeviceMessage {
        let condition = |kind: &&str| ConditionMessage { kind: (*kind).to_owned(), ..ConditionMessage::default() };
        let (driver, pool, device) = (driver.to_owned(), "p".to_owned(), name.to_owned());
        let conditions = conditions.iter().map(condition).collect();
        DeviceMessage { driver, pool, device, conditions, data: None, share_id: None }
    }

    fn claim(status: &[Vec<u8>]) -> StoredClaim {
        let metadata = MetadataMessage { uid: "u".to_owned(), generation: 2 }.encode_to_vec();
        let message = [field(1, &metadata), field(2, b"spec"), field(3, &status.concat()), field(9, b"new")].concat();
        let sent = ProtobufObject::default().with_message(message);
        StoredClaim::decode(sent).unwrap()
    }

    #[test]
    fn all_but_this_drivers_entries_goes_back_as_it_came() {
        let allocation = field(1, b"{\"b\": 1,  \"a\": \"<\"}");
        let other = field(4, &[device("other", "x", &["Up"]).encode_to_vec(), field(77, b"of tomorrow")].concat());
        let old = field(4, &device("ours", "old", &[READY]).encode_to_vec());
        let network = field(6, b"an address");
        let kept = [device("ours", "a", &["Warm", READY]).encode_to_vec(), network.clone()].concat();
        let stored = claim(&[allocation.clone(), other.clone(), old, field(4, &kept)]);
        assert_eq!((stored.uid.as_str(), stored.generation, stored.devices.len()), ("u", Some(2), 3));

        let wanted = [device("ours", "a", &[READY]), device("ours", "b", &[READY])];
        let changed = stored.with_devices("ours", &wanted.clone().map(AllocatedDeviceStatus::from)).unwrap();
        let warm = device("", "", &["Warm"]).encode_to_vec();
        let warm = protobuf_fields(&warm).unwrap().last().unwrap().whole.to_vec();
        let timed =
            |device: &DeviceMessage| DeviceMessage::from(&AllocatedDeviceStatus::from(device.clone())).encode_to_vec();
        let first = field(4, &[timed(&wanted[0]), warm, network].concat());
        let status = [allocation, other, first, field(4, &timed(&wanted[1]))].concat();
        let expected = claim(&[status]);
        let sorted = |message: &[u8]| {
            let mut fields: Vec<Vec<u8>> =
                protobuf_fields(message).unwrap().iter().map(|field| field.whole.to_vec()).collect();
            fields.sort();
            fields
        };
        assert_eq!(sorted(&changed.message), sorted(&expected.object.message));
    }

    #[test]
    fn a_claim_without_a_status_gets_one() {
        let message = field(2, b"spec");
        let stored = StoredClaim::decode(ProtobufObject::default().with_message(message)).unwrap();
        let wanted = AllocatedDeviceStatus::from(device("ours", "a", &[READY]));
        let changed = StoredClaim::decode(stored.with_devices("ours", std::slice::from_ref(&wanted)).unwrap()).unwrap();
        assert_eq!(changed.devices, [wanted]);
    }
}
