//! Configuration spaces of real cards, and what becomes of them when their capability bits are edited.

use hostler_linux::testkit::capture;

use crate::dvsec::CxlFunction;

/// The spaces of an Intel 8086:0d93 (CXL 1.1) and of a Xilinx 10ee:c084 (CXL 2.0), 4096 bytes each; `None`, with a word,
/// where the fixtures are absent.
fn spaces() -> Option<[Vec<u8>; 2]> {
    let capture = capture("pciutils-cap-dvsec-cxl")?;
    Some(["6b_00.0.config", "7f_00.0.config"].map(|name| capture.root().required_bytes(name, u64::MAX).unwrap()))
}

fn decode(config: &[u8]) -> CxlFunction {
    let dword = |offset: u16| Some(u32::from_le_bytes(*config.get(usize::from(offset)..)?.first_chunk()?));
    CxlFunction::decode(dword).unwrap()
}

/// Vendor, device and class of a configuration space.
fn header(config: &[u8]) -> (u16, u16, u32) {
    let word = |at: usize| u16::from_le_bytes([config[at], config[at + 1]]);
    (word(0), word(2), u32::from_le_bytes([config[9], config[10], config[11], 0]))
}

#[test]
fn real_cards_are_of_type_3_whatever_their_class() {
    let Some(spaces) = spaces() else { return };
    let intel = spaces.iter().find(|space| header(space).0 == 0x8086).unwrap();
    let xilinx = spaces.iter().find(|space| header(space).0 == 0x10ee).unwrap();
    assert_eq!(header(intel), (0x8086, 0x0d93, 0xff_0000));
    assert_eq!(header(xilinx), (0x10ee, 0xc084, 0x05_0210));
    assert_eq!((decode(intel).cxl_type(), decode(intel).link), (Some(3), None));
    assert_eq!((decode(xilinx).cxl_type(), decode(xilinx).link.is_some()), (Some(3), true));
    assert!(decode(xilinx).is_negotiated());
    assert_eq!(decode(xilinx).memory_bytes(), 16 << 30);
}

#[test]
fn real_cards_with_other_capability_bits_are_accelerators() {
    let Some(spaces) = spaces() else { return };
    for mut space in spaces {
        let capability = (0x100..0xff0).step_by(4).find(|at| {
            space[*at..at + 2] == [0x23, 0] && space[at + 4..at + 6] == [0x98, 0x1e] && space[at + 8..at + 10] == [0, 0]
        });
        let at = capability.unwrap() + 0x0a;
        for (bits, kind) in [(0x0003_u16, Some(1)), (0x0007, Some(2)), (0x0006, Some(3)), (0x0002, None)] {
            space[at..at + 2].copy_from_slice(&bits.to_le_bytes());
            assert_eq!(decode(&space).cxl_type(), kind, "{bits:#x}");
        }
    }
}
