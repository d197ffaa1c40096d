//! Opaque configuration of claims and device classes, by itself and in manifests.
#![no_main]

use hostler_api::opaque::OpaqueConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let found = hostler::validate::check(text, hostler::validate::ValidationTarget::of_driver("hostler.dev"));
    assert!(found.problems.iter().all(|finding| !finding.problem.reason.is_empty()));
    let Ok(parameters) = serde_json::from_str::<serde_json::Value>(text) else { return };
    match OpaqueConfig::parse(&parameters, "parameters") {
        Ok(config) => assert_eq!(parameters["kind"].as_str(), Some(config.kind())),
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| problem.field.starts_with("parameters")));
        }
    }
});
