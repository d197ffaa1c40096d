//! CDI files of anyone, as JSON and as YAML.
#![no_main]

use hostler_cdi::CdiSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for spec in [CdiSpec::from_json(bytes).ok(), CdiSpec::from_yaml(bytes).ok()].into_iter().flatten() {
        let _ = spec.validate();
        let written = spec.to_json().expect("a spec can be written");
        let again = [CdiSpec::from_json(&written), CdiSpec::from_yaml(&written)];
        for again in again {
            assert_eq!(again.expect("what was written can be read"), spec);
        }
    }
});
