//! The daemon's configuration.
#![no_main]

use hostler::config::DaemonConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(problems) = DaemonConfig::parse(text) {
        assert!(!problems.is_empty(), "a refusal has a reason");
    }
});
