//! The beginning of files that FPGAs are to be programmed with.
#![no_main]

use hostler_fpga::bitstream::{BitstreamFormat, BitstreamHeader, Guid};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.len() as u64;
    let beginning = &bytes[..bytes.len().min(BitstreamHeader::MOST_BYTES)];
    let Ok(header) = BitstreamHeader::read(beginning, length) else { return };
    assert!(header.image_at < bytes.len(), "something is left to program");
    assert_eq!(header.format == BitstreamFormat::Gbs, header.interface_id.is_some() && header.afu_id.is_some());
    for id in header.interface_id.iter().chain(&header.afu_id) {
        assert_eq!(Guid::parse(id.as_str()).as_ref(), Some(id));
    }
});
