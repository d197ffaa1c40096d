//! Names and addresses that end up in file names, CDI ids and API objects.
#![no_main]

use hostler_api::{ClaimUid, DeviceName, QualifiedName};
use hostler_linux::pci::PciAddress;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if DeviceName::new(text).is_ok() || ClaimUid::new(text).is_ok() {
        assert!((1..=63).contains(&text.len()));
        assert!(!text.contains(['/', '.', '\0', ' ', '=']), "{text:?} is safe in paths and CDI ids");
    }
    if QualifiedName::new(text).is_ok() {
        assert!(text.len() <= 63 + 1 + 32 && !text.contains(char::is_whitespace));
    }
    if let Ok(address) = text.parse::<PciAddress>() {
        assert_eq!(
            address.to_string().parse::<PciAddress>().ok(),
            Some(address),
            "a PCI address survives being written"
        );
    }
});
