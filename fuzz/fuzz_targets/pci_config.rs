//! The list of extended capabilities in PCI configuration space: it may loop and point anywhere.
#![no_main]

use hostler_linux::pci::extended_capabilities;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|config: &[u8]| {
    let found = extended_capabilities(config);
    let mut offsets: Vec<u16> = found.iter().map(|capability| capability.offset).collect();
    assert!(offsets.iter().all(|offset| usize::from(*offset) + 4 <= config.len() && *offset >= 0x100));
    offsets.sort_unstable();
    assert!(offsets.is_sorted_by(|a, b| a < b), "no capability is found twice");
});
