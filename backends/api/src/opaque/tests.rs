//! Which of several configurations wins, and which a device takes.

use std::collections::BTreeMap;

use hostler_api::{
    Access, DeviceName,
    opaque::{CpuConfig, CpuSpread, MemoryConfig},
    well_known::HOSTLER_API_VERSION,
};
use serde_json::json;

use super::*;

fn grant(config: Vec<Value>) -> Grant {
    Grant {
        request: "cpus".to_owned(),
        pool: "node/cpu".to_owned(),
        device: DeviceName::new("numa0").unwrap(),
        share_id: None,
        access: Access::Use,
        consumed: BTreeMap::new(),
        config,
    }
}

fn of_kind(kind: &str, mut fields: Value) -> Value {
    fields["apiVersion"] = HOSTLER_API_VERSION.into();
    fields["kind"] = kind.into();
    fields
}

#[test]
fn what_is_said_later_wins_field_by_field() {
    let class = of_kind("CpuConfig", json!({"fullCores": true, "spread": "l3"}));
    let claim = of_kind("CpuConfig", json!({"spread": "cores"}));
    let merged: CpuConfig = config_of(&grant(vec![class, claim])).unwrap();
    assert_eq!((merged.full_cores, merged.spread, merged.smt), (Some(true), Some(CpuSpread::Cores), None));
    assert_eq!(config_of::<CpuConfig>(&grant(Vec::new())).unwrap(), CpuConfig::default());
}

#[test]
fn a_kind_that_the_device_does_not_know_is_refused_with_the_reason() {
    let memory = of_kind("MemoryConfig", json!({}));
    let error = config_of::<CpuConfig>(&grant(vec![memory.clone()])).unwrap_err().to_string();
    assert_eq!(
        error,
        "configuration is not valid: parameters.kind: MemoryConfig says nothing to device numa0 of pool node/cpu, which \
         takes CpuConfig and PlacementConfig; list the requests that it is for, and not cpus, in its `requests`"
    );
    let error = refuse_opaque_config(&grant(vec![memory])).unwrap_err().to_string();
    assert!(error.contains("which takes only PlacementConfig"), "{error}");
    assert!(refuse_opaque_config(&grant(Vec::new())).is_ok());
}

#[test]
fn the_mistakes_of_all_configurations_are_named() {
    let wrong = [of_kind("CpuConfig", json!({"smt": 1})), of_kind("CpuConfig", json!({"spread": 1}))];
    let Err(BackendError::Config { problems }) = config_of::<CpuConfig>(&grant(wrong.to_vec())) else { panic!() };
    let fields: Vec<&str> = problems.iter().map(|problem| &*problem.field).collect();
    assert_eq!(fields, ["parameters.smt", "parameters.spread"]);
}

#[test]
fn placement_passes_every_backend_and_its_last_word_wins() {
    let placement = |fields| of_kind("PlacementConfig", fields);
    let preferred = placement(json!({"sameNumaNode": "preferred"}));
    let read = |config: &[Value]| placement_of(&grant(config.to_vec())).unwrap();
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[of_kind("CpuConfig", json!({"typo": 1}))]), None, "that is the backend's to refuse");
    assert_eq!(read(&[placement(json!({}))]), Some(SameNumaNode::Required));
    assert_eq!(read(&[preferred.clone(), placement(json!({}))]), Some(SameNumaNode::Preferred));
    assert!(refuse_opaque_config(&grant(vec![preferred.clone()])).is_ok());
    assert!(config_of::<MemoryConfig>(&grant(vec![preferred])).is_ok());
    assert!(placement_of(&grant(vec![placement(json!({"sameNumaNode": "maybe"}))])).is_err());
}
