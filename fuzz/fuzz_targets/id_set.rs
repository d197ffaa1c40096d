//! CPU and node lists and masks of sysfs, as the kernel or a captured tree has them.
#![no_main]

use hostler_linux::IdSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<IdSet>() {
        let again = set.to_string().parse::<IdSet>();
        assert_eq!(again.as_ref(), Ok(&set), "a list survives being written");
    }
    if let Ok(set) = IdSet::from_mask(text) {
        let again = set.to_string().parse::<IdSet>();
        assert_eq!(again.as_ref(), Ok(&set), "a mask survives being written as a list");
    }
});
