//! CDI files of anyone, as JSON and as YAML.
#![no_main]

use hostler_cdi::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for spec in [Spec::from_json(bytes).ok(), Spec::from_yaml(bytes).ok()].into_iter().flatten() {
        let _ = spec.validate();
        let written = spec.to_json().expect("a spec can be written");
        let again = [Spec::from_json(&written), Spec::from_yaml(&written)];
        for again in again {
            assert_eq!(again.expect("what was written can be read"), spec);
        }
    }
});
