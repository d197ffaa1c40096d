//! Addresses of PCI functions: domain, bus, device, function.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A PCI address; written as the kernel does (`0000:41:00.0`, `10000:e1:00.0`), ordered by its numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PciAddress {
    /// Domain (segment); above ffff behind a volume management device or under Hyper-V.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, below 32.
    pub device: u8,
    /// Function, below 8.
    pub function: u8,
}

/// Why a text is not a PCI address.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{0:?} is not a PCI address such as 0000:41:00.0")]
pub struct ParsePciAddressError(String);

impl FromStr for PciAddress {
    type Err = ParsePciAddressError;

    /// Reads a domain of 4 to 8 hex digits, a bus and a device of two, and a function of one.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParsePciAddressError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let number = |text: &str, least: usize, most: usize| {
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit()) && (least..=most).contains(&text.len());
        u32::from_str_radix(text, 16).ok().filter(|_| digits)
    };
    Some(PciAddress {
        domain: number(domain, 4, 8)?,
        bus: number(bus, 2, 2).and_then(|bus| u8::try_from(bus).ok())?,
        device: number(device, 2, 2).filter(|device| *device < 32).and_then(|device| u8::try_from(device).ok())?,
        function: number(function, 1, 1).filter(|number| *number < 8).and_then(|number| u8::try_from(number).ok())?,
    })
}

impl PciAddress {
    /// Domain, bus and device, which the functions of one device have in common. Virtual functions may be in another
    /// slot than their parent.
    pub fn slot(self) -> (u32, u8, u8) {
        (self.domain, self.bus, self.device)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_address_reads_back_as_written(domain: u32, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn no_text_upsets_the_parser(text in "[0-9a-fg:.+ ]{0,16}") {
            if let Ok(address) = text.parse::<PciAddress>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            "00:00.0",
            "000:00:00.0",
            "123456789:00:00.0",
            "0000:00:20.0",
            "0000:00:00.8",
            "0000:0:00.0",
            "0000:00:00.00",
            "+000:00:00.0",
            "0000:00:00",
            "0000:00:00.0 ",
            "é000:00:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses_are_ordered_by_number() {
        let parse = |text: &str| text.parse::<PciAddress>().unwrap();
        assert!(parse("0000:ff:1f.7") < parse("0001:00:00.0"));
        assert!(parse("ffff:00:00.0") < parse("10000:00:00.0"));
    }
}
