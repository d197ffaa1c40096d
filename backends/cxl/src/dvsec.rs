//! CXL in the configuration space of a function: designated vendor-specific capabilities of vendor 1e98. Pure;
//! offsets are those of the specification, from the start of a capability.

use hostler_linux::{
    memory_blocks::PhysicalRange,
    pci::{ExtendedCapability, capabilities_by, serial_number},
};

const VENDOR: u16 = 0x1e98;
/// "PCIe DVSEC for CXL Device": abilities of the function. Only this capability makes a function one of CXL.
const DEVICE: u16 = 0;
/// "Flex Bus Port": protocols that the link has agreed on. Devices of CXL 1.1 have it elsewhere, where configuration
/// does not reach.
const FLEX_BUS: u16 = 7;

/// A function with the capabilities of a CXL device.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CxlFunction {
    /// The function is able to cache memory of the host.
    pub cache: bool,
    /// The function has memory that the host can map.
    pub mem: bool,
    /// The host has enabled either ability.
    pub enabled: bool,
    /// Memory that the function tells of itself.
    pub ranges: [DvsecRange; 2],
    /// Protocols that the link has agreed on, where the function can tell.
    pub link: Option<LinkProtocols>,
    /// Serial number.
    pub serial: Option<u64>,
}

/// Memory that a device tells of itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DvsecRange {
    /// Bytes; 0 where there is none or it is not known yet.
    pub bytes: u64,
    /// Address of the host that it is mapped at; 0 where it is not, or decoders of the device map it.
    pub base: u64,
    /// True if the memory can be used.
    pub active: bool,
}

impl DvsecRange {
    /// Addresses of the host that lead to the memory.
    pub fn mapped(&self) -> Option<PhysicalRange> {
        let is_mapped = self.active && self.base != 0 && self.bytes != 0;
        is_mapped.then_some(PhysicalRange { start: self.base, bytes: self.bytes })
    }
}

/// The protocols of a link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkProtocols {
    /// Caching.
    pub cache: bool,
    /// Memory.
    pub mem: bool,
}

impl CxlFunction {
    /// Decodes the dwords that `read` gives for offsets of the configuration space, `None` where it cannot be read.
    /// `None` for a function that is none of CXL.
    pub fn decode(mut read: impl FnMut(u16) -> Option<u32>) -> Option<Self> {
        let capabilities = capabilities_by(&mut read);
        let of_cxl = |id: u16| {
            let is =
                |entry: &&ExtendedCapability| entry.dvsec.is_some_and(|dvsec| dvsec.vendor == VENDOR && dvsec.id == id);
            capabilities.iter().find(is).map(|entry| entry.offset)
        };
        let mut word = |offset: u16, at: u16| read(offset.checked_add(at)?);
        let device = of_cxl(DEVICE)?;
        // The upper half of the third dword holds the capability bits; the lower half is the DVSEC's id.
        let able = word(device, 0x08)? >> 16;
        let control = word(device, 0x0c).unwrap_or(0);
        let ranges = [0, 1].map(|index| range(&mut word, device + 0x18 + 0x10 * index));
        let link = of_cxl(FLEX_BUS).and_then(|port| {
            let status = word(port, 0x0c)? >> 16;
            Some(LinkProtocols { cache: status & 1 != 0, mem: status & 4 != 0 })
        });
        let serial = serial_number(&capabilities, |offset| word(offset, 0));
        Some(Self { cache: able & 1 != 0, mem: able & 4 != 0, enabled: control & 5 != 0, ranges, link, serial })
    }

    /// 1: caches; 2: caches and has memory; 3: has memory. `None` for a function that does neither.
    pub fn cxl_type(&self) -> Option<u8> {
        match (self.cache, self.mem) {
            (true, false) => Some(1),
            (true, true) => Some(2),
            (false, true) => Some(3),
            (false, false) => None,
        }
    }

    /// True if the function works as a CXL device now. A function of CXL may still be linked as plain PCIe: in a
    /// slot, or under firmware, that knows nothing else.
    pub fn is_negotiated(&self) -> bool {
        match self.link {
            Some(link) => (self.cache && link.cache) || (self.mem && link.mem),
            None => self.enabled || self.ranges.iter().any(|range| range.active),
        }
    }

    /// All memory of the function, bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.ranges.iter().fold(0, |sum, range| range.bytes.saturating_add(sum))
    }
}

fn range(word: &mut impl FnMut(u16, u16) -> Option<u32>, offset: u16) -> DvsecRange {
    let (Some(high), Some(low)) = (word(offset, 0), word(offset, 4)) else { return DvsecRange::default() };
    let valid = low & 1 != 0;
    let in_steps_of_256_mib = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low & 0xf000_0000);
    let base = word(offset, 8).zip(word(offset, 12)).map_or(0, |(high, low)| in_steps_of_256_mib(high, low));
    let bytes = in_steps_of_256_mib(high, low);
    DvsecRange { bytes: if valid { bytes } else { 0 }, base, active: valid && low & 2 != 0 }
}

#[cfg(test)]
mod tests {
    use hostler_linux::testkit::ConfigSpace;
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn decode(config: &[u8]) -> Option<CxlFunction> {
        CxlFunction::decode(|offset| Some(u32::from_le_bytes(*config.get(usize::from(offset)..)?.first_chunk()?)))
    }

    /// The body of DVSEC 0 after its header, and that of DVSEC 7, if any.
    fn space(able: u16, control: u16, sizes: [(u32, u32); 2], status: Option<u16>) -> Vec<u8> {
        let mut config = ConfigSpace::new(0x1234, 1);
        config.capability(3, 1, &[0x01, 0x10, 0, 0, 0, 0, 0, 0x40]);
        config.dvsec(0x1234, 0, 1, &[0xff; 40]);
        let mut body = [0; 0x2e];
        body[0..2].copy_from_slice(&able.to_le_bytes());
        body[2..4].copy_from_slice(&control.to_le_bytes());
        for (index, (high, low)) in sizes.into_iter().enumerate() {
            let at = 0x0e + 0x10 * index;
            body[at..at + 4].copy_from_slice(&high.to_le_bytes());
            body[at + 4..at + 8].copy_from_slice(&low.to_le_bytes());
        }
        config.dvsec(VENDOR, DEVICE, 1, &body);
        if let Some(status) = status {
            let [low, high] = status.to_le_bytes();
            config.dvsec(VENDOR, FLEX_BUS, 2, &[0, 0, 0, 0, low, high]);
        }
        config.bytes()
    }

    #[test]
    fn cache_and_memory_make_the_type() {
        for (able, kind) in [(0x0003, Some(1)), (0x0007, Some(2)), (0x001e, Some(3)), (0x0002, None)] {
            assert_eq!(decode(&space(able, 0, [(0, 0); 2], None)).unwrap().cxl_type(), kind, "{able:#x}");
        }
    }

    #[test]
    fn being_able_is_not_having_agreed() {
        let sleeping = [(4, 1), (0, 0)];
        for (able, control, sizes, status, negotiated) in [
            (7, 0, sleeping, Some(0x0002), false),
            (7, 0, sleeping, Some(0x0003), true),
            (7, 7, [(4, 3), (0, 0)], Some(0), false),
            // The link has memory, the function caches only.
            (3, 0, [(0, 0); 2], Some(0x0004), false),
            (7, 0, sleeping, None, false),
            (7, 0, [(4, 3), (0, 0)], None, true),
            (3, 1, [(0, 0); 2], None, true),
            (3, 2, [(0, 0); 2], None, false),
        ] {
            let function = decode(&space(able, control, sizes, status)).unwrap();
            assert_eq!(function.is_negotiated(), negotiated, "{function:?}");
        }
    }

    #[test]
    fn memory_is_counted_where_it_is_valid() {
        let function = decode(&space(7, 0, [(4, 0x1000_0003), (0, 0x2000_0000)], None)).unwrap();
        assert_eq!(function.ranges[0], DvsecRange { bytes: 16 * GIB + (GIB >> 2), base: 0, active: true });
        assert_eq!(function.ranges[1], DvsecRange::default());
        assert_eq!(function.memory_bytes(), 16 * GIB + (GIB >> 2));
        assert_eq!(function.serial, Some(0x4000_0000_0000_1001));
    }

    #[test]
    fn a_function_without_the_capability_is_none_of_cxl() {
        let mut config = ConfigSpace::new(0x1234, 1);
        config.dvsec(VENDOR, FLEX_BUS, 2, &[0; 6]);
        config.dvsec(0x8086, DEVICE, 1, &[0xff; 40]);
        assert_eq!(decode(&config.bytes()), None);
        assert_eq!(decode(&config.bytes()[..64]), None);
        assert_eq!(decode(&vec![0xff; 4096]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_upset_the_decoder(config in proptest::collection::vec(any::<u8>(), 0..4200)) {
            let _ = decode(&config);
        }

        #[test]
        fn no_broken_capability_upsets_the_decoder(
            offset in 0x100_u16..0x1000, length in any::<u16>(), cut in 0_usize..4097, bits in any::<u16>(),
        ) {
            let mut config = space(bits, bits, [(u32::from(bits), u32::MAX); 2], Some(bits));
            let at = usize::from(offset & 0xffc);
            config[at..at + 2].copy_from_slice(&length.to_le_bytes());
            config.truncate(cut);
            if let Some(function) = decode(&config) {
                prop_assert!(function.cxl_type().is_none() || function.cache || function.mem);
                prop_assert!(function.memory_bytes() >= function.ranges[0].bytes);
            }
        }
    }
}
