//! The names of devices and hosts that stay the same while paths and connections change.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A device as host and manager both see it: the CXL serial number, and the logical device behind it.
///
/// Its text is that of the format GCXLID: `4C-1D-96-FF-FE-DD-D8-35:0001`. The serial number is what sysfs calls
/// `serial` of a memdev. Managers count logical devices from 1 even where there is only one.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceIdentity {
    /// The serial number of the device.
    pub serial: u64,
    /// The number of the logical device (LD-ID).
    pub logical_device: u16,
}

/// The reason why a text names no device.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{text:?} is no GCXLID; one reads 4C-1D-96-FF-FE-DD-D8-35:0001: eight bytes of a serial number, and the LD number"
)]
pub struct IdentityError {
    /// The text.
    pub text: String,
}

/// The UUID of a host's system board in lower case, as a Node's `systemUUID` has it.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct SystemUuid(String);

/// The reason why a text is no UUID of a host.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{text:?} is no UUID of a system; one reads 918eda4d-2b69-432f-b0d3-dc2a8d80a351, and is not all zeros or all ones"
)]
pub struct UuidError {
    /// The text.
    pub text: String,
}

impl DeviceIdentity {
    /// Returns the name of the device in its pool, and of its FabricAttachment: `4c1d96fffeddd835-0001`.
    pub fn device_name(self) -> String {
        format!("{:016x}-{:04x}", self.serial, self.logical_device)
    }

    /// The identity of the device with such a name.
    pub fn of_device_name(name: &str) -> Option<Self> {
        let (serial, logical_device) = name.split_once('-')?;
        let identity = Self {
            serial: u64::from_str_radix(serial, 16).ok()?,
            logical_device: u16::from_str_radix(logical_device, 16).ok()?,
        };
        // One spelling only: two names for one device would be two devices.
        (identity.device_name() == name).then_some(identity)
    }
}

impl fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.serial.to_be_bytes().iter().enumerate() {
            let separator = if index == 0 { "" } else { "-" };
            write!(f, "{separator}{byte:02X}")?;
        }
        write!(f, ":{:04X}", self.logical_device)
    }
}

impl FromStr for DeviceIdentity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        parse_identity(text.trim()).ok_or_else(|| IdentityError { text: text.to_owned() })
    }
}

fn parse_identity(text: &str) -> Option<DeviceIdentity> {
    let (serial, logical_device) = text.split_once(':')?;
    let bytes: Vec<&str> = serial.split('-').collect();
    let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if bytes.len() != 8 || !bytes.iter().all(|byte| is_hex(byte, 2)) || !is_hex(logical_device, 4) {
        return None;
    }
    Some(DeviceIdentity {
        serial: u64::from_str_radix(&bytes.concat(), 16).ok()?,
        logical_device: u16::from_str_radix(logical_device, 16).ok()?,
    })
}

impl TryFrom<String> for DeviceIdentity {
    type Error = IdentityError;

    fn try_from(text: String) -> Result<Self, IdentityError> {
        text.parse()
    }
}

impl From<DeviceIdentity> for String {
    fn from(identity: DeviceIdentity) -> Self {
        identity.to_string()
    }
}

impl SystemUuid {
    /// The text of the UUID.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SystemUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SystemUuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        let uuid = text.trim().to_ascii_lowercase();
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        let is_hex = uuid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
        // Boards whose maker wrote no UUID show one of these: many hosts would have the same.
        let is_blank = ['0', 'f'].iter().any(|blank| uuid.chars().all(|c| c == '-' || c == *blank));
        if lengths != [8, 4, 4, 4, 12] || !is_hex || is_blank {
            return Err(UuidError { text: text.to_owned() });
        }
        Ok(Self(uuid))
    }
}

impl TryFrom<String> for SystemUuid {
    type Error = UuidError;

    fn try_from(text: String) -> Result<Self, UuidError> {
        text.parse()
    }
}

impl From<SystemUuid> for String {
    fn from(uuid: SystemUuid) -> Self {
        uuid.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gcxlid_is_a_serial_number_and_a_logical_device() {
        let identity: DeviceIdentity = "4C-1D-96-FF-FE-DD-D8-35:0001".parse().unwrap();
        assert_eq!(identity, DeviceIdentity { serial: 0x4c1d_96ff_fedd_d835, logical_device: 1 });
        assert_eq!(identity.to_string(), "4C-1D-96-FF-FE-DD-D8-35:0001");
        assert_eq!("4c-1d-96-ff-fe-dd-d8-35:00ff".parse::<DeviceIdentity>().unwrap().logical_device, 255);
        for bad in [
            "",
            "4C-1D-96-FF-FE-DD-D8-35",
            "4C-1D-96-FF-FE-DD-D8:0001",
            "4C-1D-96-FF-FE-DD-D8-35-36:0001",
            "4C1D96FFFEDDD835:0001",
            "4C-1D-96-FF-FE-DD-D8-3G:0001",
            "4C-1D-96-FF-FE-DD-D8-35:1",
            "4C-1D-96-FF-FE-DD-D8-35:00001",
            "+C-1D-96-FF-FE-DD-D8-35:0001",
            "918eda4d-2b69-432f-b0d3-dc2a8d80a351",
        ] {
            assert_eq!(bad.parse::<DeviceIdentity>().unwrap_err().text, bad);
        }
    }

    #[test]
    fn the_name_of_a_device_leads_back_to_it() {
        let identity: DeviceIdentity = "00-00-00-00-00-00-10-01:0001".parse().unwrap();
        assert_eq!(identity.device_name(), "0000000000001001-0001");
        assert_eq!(DeviceIdentity::of_device_name("0000000000001001-0001"), Some(identity));
        for bad in ["1001-1", "0000000000001001-1", "00000000000010AB-0001", "+000000000001001-0001", "memory-1001", ""]
        {
            assert_eq!(DeviceIdentity::of_device_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_uuid_of_a_host_is_in_lower_case_and_not_blank() {
        let uuid: SystemUuid = " 918EDA4D-2B69-432F-B0D3-DC2A8D80A351 ".parse().unwrap();
        assert_eq!(uuid.as_str(), "918eda4d-2b69-432f-b0d3-dc2a8d80a351");
        for bad in [
            "",
            "918eda4d2b69432fb0d3dc2a8d80a351",
            "918eda4d-2b69-432f-b0d3-dc2a8d80a35g",
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        ] {
            assert!(bad.parse::<SystemUuid>().is_err(), "{bad}");
        }
    }
}
