//! What a host offers, device by device.

use std::sync::Arc;

use hostler_api::{BackendName, DeviceName};
use hostler_backend::{AttributeValue, Device};
use serde_json::{Value, json};

use super::*;
use crate::{
    config::DaemonConfig,
    inventory::{Pool, UnknownPool},
    standalone::parse_unallocated,
};

fn card(name: &str, model: &str) -> Device {
    let mut device = Device::new(DeviceName::new(name).unwrap());
    device.attributes.insert(hostler_api::QualifiedName::new("model").unwrap(), AttributeValue::String(model.into()));
    device
}

fn inventory(devices: Vec<Device>) -> Inventory {
    let pool = Pool { name: "n/fake".to_owned(), devices, ..Pool::default() };
    Inventory { pools: [(BackendName::new("fake").unwrap(), Arc::new(pool))].into(), ..Inventory::default() }
}

fn offer(inventory: &Inventory) -> NodeOffer {
    NodeOffer::new("n", &SliceSettings::of(&DaemonConfig::default()), inventory, &ClaimTable::default())
}

const CLASS: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: card}
spec: {selectors: [{cel: {expression: 'device.driver == "hostler.dev"'}}]}
---
"#;

/// A claim with these requests, and a class of all devices.
fn asked(requests: &Value) -> UnallocatedClaim {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "uid": "u"},
        "spec": {"devices": {"requests": requests}},
    });
    parse_unallocated(&format!("{CLASS}{claim}")).unwrap().remove(0)
}

fn cards(selector: Option<&str>, count: i64) -> UnallocatedClaim {
    let selectors: Vec<Value> = selector.iter().map(|text| json!({"cel": {"expression": text}})).collect();
    asked(&json!([{"name": "r", "exactly": {"deviceClassName": "card", "count": count, "selectors": selectors}}]))
}

const IS_FAST: &str = r#"device.attributes["hostler.dev"].model == "fast""#;

#[test]
fn a_claim_gets_devices_that_its_selectors_match() {
    let inventory = inventory(vec![card("slow-0", "slow"), card("fast-0", "fast"), card("fast-1", "fast")]);
    let given = offer(&inventory).allocate(&cards(Some(IS_FAST), 2)).unwrap();
    let devices: Vec<&str> = given.devices.results.iter().map(|result| &*result.device).collect();
    assert_eq!(devices, ["fast-0", "fast-1"]);
}

#[test]
fn a_refusal_is_the_allocators_reason() {
    let inventory = inventory(vec![card("slow-0", "slow"), card("fast-0", "fast")]);
    let refusal = offer(&inventory).allocate(&cards(Some(IS_FAST), 2)).unwrap_err().to_string();
    assert!(refusal.starts_with("claim default/a, request \"r\": "), "{refusal}");
    assert!(refusal.contains("wants 2 of 1 device"), "{refusal}");
}

#[test]
fn what_others_were_given_is_not_offered() {
    let inventory = inventory(vec![card("one", "x"), card("two", "x")]);
    let first = offer(&inventory).allocate(&cards(None, 1)).unwrap();
    let left = offer(&inventory).and_promised([&first]);
    assert_eq!(left.allocate(&cards(None, 1)).unwrap().devices.results[0].device, "two");
    assert!(left.allocate(&cards(None, 2)).is_err());
}

#[test]
fn it_is_counted_how_often_a_claim_fits_and_what_ends_it() {
    let inventory = inventory((0..5).map(|number| card(&format!("c{number}"), "x")).collect());
    let fit = offer(&inventory).fit(&cards(None, 2)).unwrap();
    assert_eq!((fit.times, fit.at_least, fit.devices.len()), (2, false, 2));
    assert!(fit.refusal.unwrap().contains("request \"r\""));
}

#[test]
fn a_pool_that_nobody_knows_is_named() {
    let mut inventory = inventory(Vec::new());
    let unknown = UnknownPool { name: "n/fpga".to_owned(), reason: "it hangs".to_owned() };
    inventory.unknown.insert(BackendName::new("fpga").unwrap(), unknown);
    let fit = offer(&inventory).fit(&cards(None, 1)).unwrap();
    assert_eq!((fit.times, &*fit.unknown), (0, &["pool n/fpga is not known yet".to_owned()][..]));
}

#[test]
fn a_class_that_does_not_exist_is_named() {
    let asked = asked(&json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]));
    let refusal = offer(&inventory(Vec::new())).allocate(&asked).unwrap_err().to_string();
    assert!(refusal.contains("gpu"), "{refusal}");
}

#[test]
fn hostlers_own_classes_are_there_for_every_name_of_the_driver() {
    for driver in ["hostler.dev", "other.example.org"] {
        let classes = classes(driver, &[]).unwrap();
        let cpu = classes.iter().find(|class| class.metadata.name == format!("cpu.{driver}")).unwrap();
        let selector = serde_json::to_string(&cpu.spec).unwrap();
        assert!(selector.contains(driver), "{selector}");
    }
}

#[test]
fn what_is_allocated_or_asks_for_nothing_is_refused() {
    let offer = offer(&inventory(Vec::new()));
    let mut allocated = cards(None, 1);
    allocated.claim.status.allocation = Some(AllocationResult::default());
    assert!(matches!(offer.allocate(&allocated), Err(FitError::Allocated)));
    assert!(matches!(offer.allocate(&asked(&json!([]))), Err(FitError::Empty)));
}

#[test]
fn every_document_that_is_wrong_is_named_with_its_field() {
    let text = r#"
kind: Pod
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: a}, spec: {devices: {requests: [{name: r, exactly: {deviceClassNam: x}}]}}}
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: c}, spec: {selectors: 7}}
"#;
    let errors = parse_unallocated(text).unwrap_err();
    let said: Vec<String> = errors.iter().map(|error| hostler_api::Chain(error).to_string()).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].starts_with("document 1: field kind: it is \"Pod\""), "{said:?}");
    assert!(said[1].contains("document 2") && said[1].contains("deviceClassNam"), "{said:?}");
    assert!(said[2].contains("document 3") && said[2].contains("spec.selectors"), "{said:?}");
}

#[test]
fn templates_and_lists_are_questions_too() {
    let text = r#"
kind: List
apiVersion: v1
items:
- {apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: t, namespace: ml}, spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: x}}]}}}}
- {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: x}, spec: {}}
"#;
    let claims = parse_unallocated(text).unwrap();
    assert_eq!((claims.len(), &*claims[0].claim.metadata.namespace, claims[0].classes.len()), (1, "ml", 1));
    assert_eq!(claims[0].claim.spec.devices.requests[0].name, "r");
}
