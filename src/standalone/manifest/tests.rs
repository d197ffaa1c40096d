//! What a manifest means, and which ones are refused.

use hostler_api::{Access, Quantity};

use super::*;

const YAML: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: train, uid: 5f0c}
spec: {devices: {requests: []}}
status:
  allocation:
    devices:
      results:
      - {request: cpus/big, driver: hostler.dev, pool: n/cpu, device: numa0, consumedCapacity: {cpus: 4}}
      - {request: other, driver: gpu.example.com, pool: n, device: gpu-0}
      - {request: mem, driver: hostler.dev, pool: n/memory, device: node0, shareID: s1, adminAccess: true}
      config:
      - {source: FromClaim, requests: [cpus], opaque: {driver: hostler.dev, parameters: {from: claim}}}
      - {source: FromClass, requests: [], opaque: {driver: hostler.dev, parameters: {from: class}}}
      - {source: FromClaim, requests: [cpus/small], opaque: {driver: hostler.dev, parameters: {from: other}}}
      - {source: FromClaim, requests: [], opaque: {driver: gpu.example.com, parameters: {}}}
";

fn error(text: &str) -> String {
    let parsed = parse(text).and_then(|claim| {
        claim.claim()?;
        Ok(claim.allocation("hostler.dev")?)
    });
    parsed.unwrap_err().to_string()
}

#[test]
fn an_allocation_holds_this_drivers_devices_with_their_configuration() {
    let manifest = parse(YAML).unwrap();
    assert_eq!(manifest.claim().unwrap().to_string(), "5f0c (default/train)");
    let grants = manifest.allocation("hostler.dev").unwrap().grants;
    assert_eq!(grants.len(), 2);
    assert_eq!(grants[0].top_level_request(), "cpus");
    assert_eq!(grants[0].consumed["cpus"], Quantity::whole(4));
    let from: Vec<_> = grants[0].config.iter().map(|config| config["from"].as_str().unwrap()).collect();
    assert_eq!(from, ["class", "claim"], "classes first, so that claims win");
    assert_eq!((grants[1].share_id.as_ref().unwrap().0.as_str(), grants[1].access), ("s1", Access::Admin));
}

#[test]
fn the_drivers_own_domain_may_stand_before_a_capacity() {
    let manifest = parse(&YAML.replace("{cpus: 4}", "{hostler.dev/cpus: 4}")).unwrap();
    assert_eq!(manifest.allocation("hostler.dev").unwrap().grants[0].consumed["cpus"], Quantity::whole(4));
}

#[test]
fn json_and_yaml_say_the_same() {
    let manifest = parse(YAML).unwrap();
    assert_eq!(parse(&serde_json::to_string(&manifest).unwrap()).unwrap(), manifest);
}

#[test]
fn a_mistake_is_named_with_its_field_and_a_fix() {
    for (from, to, expected) in [
        ("kind: ResourceClaim", "kind: Pod", "field kind: it is \"Pod\"; write ResourceClaim"),
        ("resource.k8s.io/v1", "v1", "field apiVersion: it is \"v1\"; write resource.k8s.io/v1"),
        (", uid: 5f0c", "", "field metadata.uid: it is missing"),
        ("uid: 5f0c", "uid: ../x", "field metadata.uid: claim uid \"../x\" is not valid"),
        ("device: numa0", "device: Numa_0", "field status.allocation.devices.results[0].device: device name"),
        (
            "consumedCapacity:",
            "consumedCapactiy:",
            "field status.allocation.devices.results[0].consumedCapactiy: there is no such field",
        ),
        ("{cpus: 4}", "{cpus: four}", "\"four\" is not a quantity"),
        ("hostler.dev", "hostler.example", "none of them has driver \"hostler.dev\""),
        ("status:", "state:", "field status.allocation: it is missing"),
        ("source: FromClass", "source: FromThere", "FromThere"),
        ("opaque: {driver: gpu.example.com, parameters: {}}", "", "devices.config[3].opaque: it is missing"),
        ("parameters: {from: other}", "parameters: {}, version: 2", "config[2].opaque.version: there is no such field"),
        ("metadata: {", "metadata: [", "it is not valid JSON or YAML"),
    ] {
        let message = error(&YAML.replace(from, to));
        assert!(message.contains(expected), "{from} -> {to}: {message}");
    }
}

#[test]
fn every_example_of_the_deployment_that_holds_a_claim_is_a_question() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut with_claims = 0;
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let claims = parse_unallocated(&text).unwrap_or_else(|errors| panic!("{}: {errors:?}", file.display()));
        let written = text.lines().filter(|line| line.starts_with("kind: ResourceClaim")).count();
        assert_eq!(claims.len(), written, "{}", file.display());
        with_claims += usize::from(written > 0);
    }
    assert!(with_claims > 15, "{with_claims}");
}

#[test]
fn documents_and_specs_that_are_no_objects_are_refused() {
    let template = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nspec: text\n";
    for text in ["text", "[text]", "7", "apiVersion: v1\nkind: List\nitems: [text]\n", template] {
        assert_eq!(parse_unallocated(text).unwrap_err().len(), 1, "{text}");
    }
    assert!(parse_unallocated("").unwrap().is_empty() && parse_unallocated("null").unwrap().is_empty());
}

#[test]
fn a_misspelt_kind_of_the_group_of_claims_is_refused_beside_objects_of_others() {
    let text = "apiVersion: example.com/v1\nkind: Robot\n---\napiVersion: resource.k8s.io/v1\nkind: ResourceClam\n";
    let errors = parse_unallocated(text).unwrap_err();
    assert_eq!((errors.len(), errors[0].document), (1, 2), "{errors:?}");
}
