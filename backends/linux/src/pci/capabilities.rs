//! The list of extended capabilities in a configuration space; pure functions over untrusted bytes.

use std::collections::BTreeSet;

/// Extended capabilities begin after the 256 bytes of conventional configuration space.
const FIRST: u16 = 0x100;

/// The capability id of a designated vendor-specific capability.
const DVSEC: u16 = 0x0023;
/// The capability id of the device serial number.
const SERIAL_NUMBER: u16 = 0x0003;

/// An entry of the list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExtendedCapability {
    /// Offset of the capability in configuration space.
    pub offset: u16,
    /// Kind of the capability.
    pub id: u16,
    /// Version of the capability's layout.
    pub version: u8,
    /// Header of a designated vendor-specific capability, if it is one and whole.
    pub dvsec: Option<Dvsec>,
}

/// The header of a designated vendor-specific capability.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dvsec {
    /// Definer of the capability; 1e98 is CXL.
    pub vendor: u16,
    /// The definer's number for the capability.
    pub id: u16,
    /// Revision of the capability's layout.
    pub revision: u8,
    /// Bytes, header included.
    pub length: u16,
}

/// The extended capabilities in list order; empty if only conventional space was read. A list that loops, leaves the
/// space or points into the conventional part ends there.
pub fn extended_capabilities(config: &[u8]) -> Vec<ExtendedCapability> {
    capabilities_by(|offset| dword(config, offset))
}

/// Lists as [`extended_capabilities`] does, from a space that is read a dword at a time: `read` gives the one at an
/// offset, or `None` where it cannot be read. Few of a thousand are asked for.
pub fn capabilities_by(mut read: impl FnMut(u16) -> Option<u32>) -> Vec<ExtendedCapability> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut offset = FIRST;
    while offset >= FIRST && seen.insert(offset) {
        // A dead device reads as all ones, a function without extended capabilities as zero.
        let Some(header) = read(offset).filter(|header| *header != 0 && *header != u32::MAX) else { break };
        let [id_low, id_high, middle, high] = header.to_le_bytes();
        let id = u16::from_le_bytes([id_low, id_high]);
        let dvsec = (id == DVSEC).then(|| dvsec(&mut read, offset)).flatten();
        found.push(ExtendedCapability { offset, id, version: middle & 0xf, dvsec });
        offset = u16::from_le_bytes([middle, high]) >> 4 & 0xffc;
    }
    found
}

/// The device serial number among these capabilities, which is the card's; `None` where it is zero, which cards without one
/// say.
pub fn serial_number(capabilities: &[ExtendedCapability], mut read: impl FnMut(u16) -> Option<u32>) -> Option<u64> {
    let offset = capabilities.iter().find(|entry| entry.id == SERIAL_NUMBER)?.offset;
    let (low, high) = (read(offset.checked_add(4)?)?, read(offset.checked_add(8)?)?);
    Some(u64::from(high) << 32 | u64::from(low)).filter(|serial| *serial != 0)
}

fn dvsec(read: &mut impl FnMut(u16) -> Option<u32>, offset: u16) -> Option<Dvsec> {
    let [vendor_low, vendor_high, middle, high] = read(offset.checked_add(4)?)?.to_le_bytes();
    let [id_low, id_high, ..] = read(offset.checked_add(8)?)?.to_le_bytes();
    Some(Dvsec {
        vendor: u16::from_le_bytes([vendor_low, vendor_high]),
        id: u16::from_le_bytes([id_low, id_high]),
        revision: middle & 0xf,
        length: u16::from_le_bytes([middle, high]) >> 4,
    })
}

fn dword(config: &[u8], offset: u16) -> Option<u32> {
    let bytes = config.get(usize::from(offset)..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(dwords: &[(usize, u32)]) -> Vec<u8> {
        let mut config = vec![0; 4096];
        for (offset, value) in dwords {
            config[*offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
        config
    }

    #[test]
    fn the_list_is_followed_to_its_end() {
        let config = config(&[(0x100, 0x1582_0001), (0x158, 0xe001_0023), (0xe00, 0x0001_0023), (0xe04, 0x0381_1e98)]);
        let found = extended_capabilities(&config);
        let places: Vec<_> = found.iter().map(|entry| (entry.offset, entry.id, entry.version)).collect();
        assert_eq!(places, [(0x100, 1, 2), (0x158, 0x23, 1), (0xe00, 0x23, 1)]);
        assert_eq!(found[0].dvsec, None);
        assert_eq!(found[2].dvsec, Some(Dvsec { vendor: 0x1e98, id: 0, revision: 1, length: 0x38 }));
    }

    #[test]
    fn a_loop_ends_the_list() {
        let config = config(&[(0x100, 0x2001_0001), (0x200, 0x1001_0002)]);
        assert_eq!(extended_capabilities(&config).len(), 2);
    }

    #[test]
    fn a_pointer_into_conventional_space_ends_the_list() {
        let config = config(&[(0x100, 0x0401_0001), (0x40, 0x2001_0002)]);
        assert_eq!(extended_capabilities(&config).len(), 1);
    }

    #[test]
    fn short_dead_and_empty_spaces_have_no_capabilities() {
        for config in [vec![], vec![0; 64], vec![0xff; 4096], vec![0; 4096], vec![1; 0x103]] {
            assert_eq!(extended_capabilities(&config), []);
        }
    }

    #[test]
    fn a_vendor_specific_capability_cut_off_by_the_end_has_no_header() {
        let config = config(&[(0x100, 0xffc1_0001), (0xffc, 0x0001_0023)]);
        let found = extended_capabilities(&config);
        assert_eq!((found[1].offset, found[1].dvsec), (0xffc, None));
    }

    proptest! {
        #[test]
        fn no_bytes_upset_the_walk(config in proptest::collection::vec(any::<u8>(), 0..4200)) {
            let found = extended_capabilities(&config);
            prop_assert!(found.len() <= (4096 - 256) / 4);
            prop_assert!(found.iter().all(|entry| usize::from(entry.offset) + 4 <= config.len()));
        }
    }
}
