//! Addresses and networks of the internet protocols.

use std::net::IpAddr;

/// A network, or an address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Cidr {
    pub(super) address: IpAddr,
    pub(super) bits: u8,
}

/// Reads an address; IPv4 ones written as IPv6 and those with a zone are refused.
pub(super) fn parse_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let is_mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    (!is_mapped).then_some(address)
}

/// True if the address can be reached from everywhere, as Go's library sees it.
pub(super) fn is_global_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(is_broadcast
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local_unicast(address))
}

pub(super) fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

pub(super) fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

impl Cidr {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.rsplit_once('/')?;
        let is_plain =
            length.bytes().all(|byte| byte.is_ascii_digit()) && (length.len() == 1 || !length.starts_with('0'));
        let address = parse_ip(address)?;
        let bits: u8 = if is_plain { length.parse().ok()? } else { return None };
        (bits <= width(address)).then_some(Self { address, bits })
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && masked(self.address, self.bits) == masked(address, self.bits)
    }

    pub(super) fn contains_network(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    pub(super) fn masked(self) -> Self {
        Self { address: masked(self.address, self.bits), ..self }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

/// True if an address is one of IPv6, which may name a zone; `None` for a text that is no address.
pub(super) fn is_address_with_zone(text: &str) -> Option<bool> {
    match text.split_once('%') {
        Some((address, zone)) => address.parse::<std::net::Ipv6Addr>().ok().filter(|_| !zone.is_empty()).map(|_| true),
        None => text.parse::<IpAddr>().ok().map(|address| address.is_ipv6()),
    }
}
