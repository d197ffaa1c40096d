//! Names of functions in a configuration: one by its address, or all of a model.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{PciAddress, PciIdentity};

/// Some functions: `0000:b1:00.5`, or `8086:bccf` for every one of that maker and model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PciPick {
    /// The one at an address.
    Address(PciAddress),
    /// All of a maker's model.
    Model {
        /// The maker.
        vendor: u16,
        /// The maker's number for the model.
        device: u16,
    },
}

impl PciPick {
    /// True if the pick names this function.
    pub fn names(&self, function: &PciIdentity) -> bool {
        match *self {
            Self::Address(address) => address == function.address,
            Self::Model { vendor, device } => (vendor, device) == (function.vendor, function.device),
        }
    }
}

/// Why a text names no functions.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{0:?} is neither an address such as 0000:b1:00.5 nor a model such as 8086:bccf")]
pub struct ParsePciPickError(String);

impl FromStr for PciPick {
    type Err = ParsePciPickError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = |text: &str| {
            let digits = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u16::from_str_radix(text, 16).ok().filter(|_| digits)
        };
        let model = || text.split_once(':').and_then(|(vendor, device)| Some((id(vendor)?, id(device)?)));
        match (text.parse(), model()) {
            (Ok(address), _) => Ok(Self::Address(address)),
            (_, Some((vendor, device))) => Ok(Self::Model { vendor, device }),
            _ => Err(ParsePciPickError(text.to_owned())),
        }
    }
}

impl fmt::Display for PciPick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Model { vendor, device } => write!(f, "{vendor:04x}:{device:04x}"),
        }
    }
}

impl Serialize for PciPick {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciPick {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_by_its_address_or_by_its_model() {
        let function = |address: &str, device| PciIdentity {
            address: address.parse().unwrap(),
            vendor: 0x8086,
            device,
            class: None,
        };
        let (one, other) = (function("0000:b1:00.0", 0x0d93), function("0000:b2:00.0", 0xbccf));
        for (text, names) in [("0000:b1:00.0", [true, false]), ("8086:BCCF", [false, true]), ("8086:0d94", [false; 2])]
        {
            let pick: PciPick = text.parse().unwrap();
            assert_eq!([pick.names(&one), pick.names(&other)], names, "{text}");
            assert_eq!(pick.to_string().parse(), Ok(pick));
        }
        for text in ["", "8086", "8086:", "+086:bccf", "8086:bccf:1", "0000:b1:00.9", "80860:bcc"] {
            assert!(text.parse::<PciPick>().is_err(), "{text}");
        }
    }
}
