//! What a claim of the API server means.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn claim(results: &Value, config: &Value) -> ResourceClaim {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "train", "namespace": "ml", "uid": "5f0c", "annotations": {POD_CLAIM_NAME: "gpu"}},
        "status": {"allocation": {"devices": {"results": results, "config": config}}},
    });
    serde_json::from_value(claim).unwrap()
}

fn grants(results: &Value, config: &Value) -> Result<Vec<Grant>, AllocationError> {
    Ok(claim(results, config).allocation("hostler.dev")?.grants)
}

fn result(request: &str, driver: &str) -> Value {
    json!({"request": request, "driver": driver, "pool": "n/fake", "device": "a"})
}

fn config(source: &str, requests: &[&str], driver: &str, parameters: &str) -> Value {
    json!({"source": source, "requests": requests, "opaque": {"driver": driver, "parameters": parameters}})
}

#[test]
fn the_annotation_says_what_the_pod_calls_the_claim() {
    let allocation = claim(&json!([result("a", "hostler.dev")]), &json!([])).allocation("hostler.dev").unwrap();
    assert_eq!(allocation.pod_claim_name.as_deref(), Some("gpu"));
}

#[test]
fn fields_of_a_later_version_are_let_through_and_configuration_of_a_later_kind_is_for_nobody() {
    let mut later = result("a", "hostler.dev");
    later["somethingNew"] = json!({"deep": [1]});
    let strange = json!({"source": "FromClaim", "somethingNew": {"driver": "hostler.dev"}});
    let grants = grants(&json!([later]), &json!([strange])).unwrap();
    assert!(grants[0].config.is_empty());
}

#[test]
fn what_other_drivers_get_wrong_is_not_ours_to_judge() {
    let mut other = result("a", "gpu.example.com");
    other["device"] = json!("Not_A_Label");
    other["consumedCapacity"] = json!({"not a name": "not an amount"});
    assert_eq!(grants(&json!([other.clone(), result("b", "hostler.dev")]), &json!([])).unwrap().len(), 1);
    other["driver"] = json!("hostler.dev");
    let error = grants(&json!([other]), &json!([])).unwrap_err().to_string();
    assert!(error.starts_with("field status.allocation.devices.results[0].device: "), "{error}");
}

#[test]
fn a_wrong_amount_is_named_with_its_field() {
    for (capacity, expected) in [
        (json!({"cpus": true}), "results[1].consumedCapacity.cpus: true is not a quantity"),
        (json!({"hostler.dev/cpus": "x"}), "results[1].consumedCapacity.hostler.dev/cpus: \"x\" is not a quantity"),
        (json!({"c p": "1"}), "results[1].consumedCapacity.c p: "),
    ] {
        let mut ours = result("a", "hostler.dev");
        ours["consumedCapacity"] = capacity;
        let error = grants(&json!([result("o", "other.dev"), ours]), &json!([])).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_claim_without_an_allocation_is_told_from_one_of_other_drivers() {
    let mut claim = claim(&json!([result("a", "other.dev")]), &json!([]));
    assert!(matches!(claim.allocation("hostler.dev"), Err(AllocationError::NotOurs { .. })));
    claim.status.allocation = None;
    assert!(matches!(claim.allocation("hostler.dev"), Err(AllocationError::NotAllocated)));
}

proptest! {
    /// The rule of the API, said a second time: entry `req` is for `req` and `req/sub`, entry `req/sub` for that alone,
    /// an entry without requests for all; classes come first, otherwise the order stays.
    #[test]
    fn configuration_reaches_the_requests_that_it_names_classes_first(
        entries in prop::collection::vec((any::<bool>(), prop::collection::vec(0..4_usize, 0..3), any::<bool>()), 0..8),
        request in 0..4_usize,
    ) {
        const NAMES: [&str; 4] = ["a", "a/x", "a/y", "b"];
        let config: Vec<Value> = entries.iter().enumerate().map(|(index, (class, requests, ours))| {
            let requests: Vec<&str> = requests.iter().map(|request| NAMES[*request]).collect();
            let source = if *class { "FromClass" } else { "FromClaim" };
            let driver = if *ours { "hostler.dev" } else { "other.dev" };
            config(source, &requests, driver, &index.to_string())
        }).collect();
        let covers = |named: usize| named == request || (named == 0 && request < 3);
        let expected = |class: bool| entries.iter().enumerate()
            .filter(move |(_, (from_class, requests, ours))|
                *from_class == class && *ours && (requests.is_empty() || requests.iter().copied().any(covers)))
            .map(|(index, _)| json!(index.to_string()));
        let expected: Vec<Value> = expected(true).chain(expected(false)).collect();
        let found = grants(&json!([result(NAMES[request], "hostler.dev")]), &json!(config)).unwrap();
        prop_assert_eq!(&found[0].config, &expected);
    }
}
