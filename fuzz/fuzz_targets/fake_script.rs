//! Scripts of the fake backend.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = hostler_fake::check_script(Path::new("fake.toml"), text) {
        assert!(!error.to_string().is_empty());
    }
});
