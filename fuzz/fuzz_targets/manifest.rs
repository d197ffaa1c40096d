//! Claim manifests of standalone hosts.
#![no_main]

use hostler::standalone::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(manifest) = parse(text) else { return };
    let _ = (manifest.claim(), manifest.allocation("hostler.dev"));
});
