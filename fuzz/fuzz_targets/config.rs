//! The daemon's configuration.
#![no_main]

use hostler::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(problems) = Config::parse(text) {
        assert!(!problems.is_empty(), "a refusal has a reason");
    }
});
