//! Claim records: whatever a crash or an editor left of them.
#![no_main]

use hostler::claims::store::{ClaimRecord, decode, encode, salvage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = (decode(bytes), salvage(bytes));
    // The fuzzer cannot guess a checksum: a record without its envelope is put into one here.
    let Ok(record) = serde_json::from_slice::<ClaimRecord>(bytes) else { return };
    let written = encode(&record).expect("a record can be written");
    assert_eq!(decode(&written).expect("what was written can be read"), record);
    assert_eq!(encode(&record).ok(), Some(written), "the same record gives the same bytes");
});
