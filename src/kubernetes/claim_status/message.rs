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

use std::time::{SystemTime, UNIX_EPOCH};

use hostler_cluster::{ProtobufObject, protobuf_fields};
use prost::{DecodeError, Message, encoding::bytes};
use serde_json::Value;

/// The condition that belongs to this driver.
pub(super) const READY: &str = "Ready";

const METADATA: u32 = 1;
const STATUS: u32 = 3;
const DEVICES: u32 = 4;
const CONDITIONS: u32 = 4;
/// Fields that this driver writes whole: the identity of the device, and its data. The rest of an entry may be another
/// writer's.
const OURS_ALONE: [u32; 5] = [1, 2, 3, 5, 7];

/// A claim as it stands on the API server.
#[derive(Debug)]
pub(super) struct StoredClaim {
    object: ProtobufObject,
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    /// Of all drivers.
    pub(super) devices: Vec<DeviceStatus>,
}

impl StoredClaim {
    pub(super) fn decode(object: ProtobufObject) -> Result<Self, DecodeError> {
        let (mut metadata, mut devices) = (MetadataMessage::default(), Vec::new());
        for field in protobuf_fields(&object.message)? {
            match field.number {
                METADATA => metadata = MetadataMessage::decode(field.content)?,
                STATUS => {
                    for field in protobuf_fields(field.content)?.iter().filter(|field| field.number == DEVICES) {
                        devices.push(device(field.content)?);
                    }
                }
                _ => {}
            }
        }
        let MetadataMessage { uid, generation } = metadata;
        Ok(Self { object, uid, generation: (generation != 0).then_some(generation), devices })
    }

    /// The claim with exactly `wanted` of what `driver` says about its devices.
    pub(super) fn with_devices(&self, driver: &str, wanted: &[DeviceStatus]) -> Result<ProtobufObject, DecodeError> {
        let (mut message, mut status) = (Vec::new(), Vec::new());
        let mut left: Vec<&DeviceStatus> = wanted.iter().collect();
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
fn status_with(status: &[u8], driver: &str, left: &mut Vec<&DeviceStatus>) -> Result<Vec<u8>, DecodeError> {
    let mut new = Vec::new();
    for field in protobuf_fields(status)? {
        if field.number != DEVICES {
            new.extend_from_slice(field.whole);
            continue;
        }
        let known = device(field.content)?;
        if known.driver != driver {
            new.extend_from_slice(field.whole);
        } else if let Some(at) = left.iter().position(|wanted| is_same(&known, wanted)) {
            entry(left.remove(at), &of_others(field.content)?, &mut new);
        }
    }
    Ok(new)
}

/// Fields and conditions of this driver's entry that other writers own.
fn of_others(entry: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut kept = Vec::new();
    for field in protobuf_fields(entry)? {
        let ours = match field.number {
            CONDITIONS => DeviceCondition::decode(field.content)?.kind == READY,
            number => OURS_ALONE.contains(&number),
        };
        if !ours {
            kept.extend_from_slice(field.whole);
        }
    }
    Ok(kept)
}

fn entry(device: &DeviceStatus, of_others: &[u8], status: &mut Vec<u8>) {
    let mut message = device.encode_to_vec();
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

/// AllocatedDeviceStatus: an entry of `status.devices`, as far as this driver writes it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeviceStatus {
    #[prost(string, tag = "1")]
    pub(super) driver: String,
    #[prost(string, tag = "2")]
    pub(super) pool: String,
    #[prost(string, tag = "3")]
    pub(super) device: String,
    #[prost(message, repeated, tag = "4")]
    pub(super) conditions: Vec<DeviceCondition>,
    #[prost(message, optional, tag = "5")]
    pub(super) data: Option<DeviceData>,
    #[prost(string, optional, tag = "7")]
    pub(super) share_id: Option<String>,
}

/// True if two entries are of one device, or share, of the claim.
pub(super) fn is_same(a: &DeviceStatus, b: &DeviceStatus) -> bool {
    (&a.driver, &a.pool, &a.device, &a.share_id) == (&b.driver, &b.pool, &b.device, &b.share_id)
}

/// A condition of a device.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeviceCondition {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) status: String,
    /// Generation of the claim that the condition was made for; 0: none.
    #[prost(int64, tag = "3")]
    pub(super) observed_generation: i64,
    #[prost(message, optional, tag = "4")]
    pub(super) last_transition_time: Option<ConditionTime>,
    #[prost(string, tag = "5")]
    pub(super) reason: String,
    #[prost(string, tag = "6")]
    pub(super) message: String,
}

/// Time of a condition, to the second.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ConditionTime {
    /// Seconds since 1970.
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

impl ConditionTime {
    /// The time by this machine's clock.
    pub(super) fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { seconds: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX) }
    }
}

/// RawExtension: data of a device, a text in JSON. Equal data are equal texts here, however others write them.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeviceData {
    #[prost(bytes = "vec", tag = "1")]
    json: Vec<u8>,
}

impl From<&Value> for DeviceData {
    fn from(value: &Value) -> Self {
        Self { json: value.to_string().into_bytes() }
    }
}

/// Reads an entry of `status.devices`.
fn device(entry: &[u8]) -> Result<DeviceStatus, DecodeError> {
    let mut device = DeviceStatus::decode(entry)?;
    // What is no JSON cannot be ours.
    let data = device.data.and_then(|data| serde_json::from_slice::<Value>(&data.json).ok());
    device.data = data.as_ref().map(DeviceData::from);
    Ok(device)
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

    fn device(driver: &str, name: &str, conditions: &[&str]) -> DeviceStatus {
        let condition = |kind: &&str| DeviceCondition { kind: (*kind).to_owned(), ..DeviceCondition::default() };
        let (driver, pool, device) = (driver.to_owned(), "p".to_owned(), name.to_owned());
        let conditions = conditions.iter().map(condition).collect();
        DeviceStatus { driver, pool, device, conditions, data: None, share_id: None }
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
        let changed = stored.with_devices("ours", &wanted).unwrap();
        let warm = device("", "", &["Warm"]).encode_to_vec();
        let warm = protobuf_fields(&warm).unwrap().last().unwrap().whole.to_vec();
        let first = field(4, &[wanted[0].encode_to_vec(), warm, network].concat());
        let status = [allocation, other, first, field(4, &wanted[1].encode_to_vec())].concat();
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
        let wanted = device("ours", "a", &[READY]);
        let changed = StoredClaim::decode(stored.with_devices("ours", std::slice::from_ref(&wanted)).unwrap()).unwrap();
        assert_eq!(changed.devices, [wanted]);
    }

    #[test]
    fn data_are_the_same_however_the_server_writes_them() {
        let ours = DeviceData::from(&serde_json::json!({"cpus": "0-2", "mems": "1"}));
        let told = DeviceData { json: b"{ \"mems\": \"1\",\n \"cpus\":\"0-2\" }".to_vec() };
        let with = |data: DeviceData| DeviceStatus { data: Some(data), ..device("ours", "a", &[]) };
        assert_eq!(super::device(&with(told).encode_to_vec()).unwrap(), with(ours));
        let odd = DeviceData { json: b"<no json>".to_vec() };
        assert_eq!(super::device(&with(odd).encode_to_vec()).unwrap().data, None);
    }
}
