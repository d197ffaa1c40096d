//! What is found in manifests, and where.

use super::*;

const CLAIMS: &str = r"
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: train, namespace: ml}
spec:
  devices:
    requests:
    - {name: cpus, exactly: {deviceClassName: cpu.hostler.dev}}
    - name: mem
      firstAvailable: [{name: huge, deviceClassName: hugepages.hostler.dev}]
    config:
    - requests: [cpus]
      opaque: {driver: other.dev, parameters: {kind: Whatever}}
    - requests: [cpus, mem/huge, mem, gpu]
      opaque:
        driver: hostler.dev
        parameters: {apiVersion: hostler.dev/v1alpha1, kind: CpuConfig, spread: wide, fullCore: true}
---
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata: {generateName: job-}
spec:
  spec:
    devices:
      config:
      - opaque: {driver: hostler.dev, parameters: {apiVersion: hostler.dev/v1alpha1, kind: MemoryConfig, policy: local}}
---
apiVersion: resource.k8s.io/v1beta2
kind: DeviceClass
metadata: {name: quiet}
spec:
  config:
  - opaque: {driver: hostler.dev, parameters: {apiVersion: hostler.dev/v1alpha1, kind: CpuConfig, smt: isolated}}
  - opaque: {driver: hostler.dev}
  - {}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
";

fn lines(findings: &[ManifestFinding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn every_problem_is_told_with_document_object_path_and_fix() {
    let found = check(CLAIMS, ValidationTarget::of_driver("hostler.dev"));
    assert_eq!(found.checked, 3);
    let train = "document 1 (ResourceClaim ml/train): spec.devices.config[1]";
    let words = "\"wide\" is not one of packed, cores, l3, numa";
    assert_eq!(
        lines(&found.problems),
        [
            format!("{train}.opaque.parameters.spread: {words}"),
            format!("{train}.opaque.parameters.fullCore: there is no such field; did you mean fullCores?"),
            format!("{train}.requests[3]: \"gpu\" is no request of the claim; it has cpus, mem, mem/huge"),
            "document 2 (ResourceClaimTemplate job-): spec.spec.devices.config[0].opaque.parameters.policy: \"local\" is \
             not one of bind, preferred, interleave"
                .to_owned(),
            "document 3 (DeviceClass quiet): spec.config[1].opaque.parameters: null is not an object; write an object \
             with apiVersion hostler.dev/v1alpha1 and a kind"
                .to_owned(),
            "document 3 (DeviceClass quiet): spec.config[2].opaque.driver: it is missing; name the driver that the \
             parameters are for"
                .to_owned(),
        ]
    );
    assert_eq!(lines(&found.notes), ["document 4 (Pod p): skipped: this kind has no configuration of devices"]);
}

#[test]
fn what_takes_more_than_the_scheduler_knows_is_told_and_is_a_problem_where_it_is_forbidden() {
    for (field, word) in [("l3Exclusive", "true"), ("isolation", "l3")] {
        let class = format!(
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: c}}\nspec: {{config: [{{opaque: {{driver: \
             hostler.dev, parameters: {{apiVersion: hostler.dev/v1alpha1, kind: CpuConfig, {field}: {word}}}}}}}]}}"
        );
        let found = |allow_l3_exclusive| {
            let found = check(&class, ValidationTarget { driver: "hostler.dev", allow_l3_exclusive });
            (lines(&found.problems), lines(&found.notes))
        };
        let place = format!("document 1 (DeviceClass c): spec.config[0].opaque.parameters.{field}");
        assert_eq!(found(Some(true)), (vec![], vec![]));
        let problem = format!("{place}: the node forbids it: backends.cpu.allow_l3_exclusive is false");
        assert_eq!(found(Some(false)), (vec![problem], vec![]));
        let note =
            "it takes more than the scheduler knows; nodes with backends.cpu.allow_l3_exclusive = false refuse it";
        assert_eq!(found(None), (vec![], vec![format!("{place}: {note}")]));
    }
}

#[test]
fn only_the_own_driver_is_looked_at() {
    let found = check(CLAIMS, ValidationTarget::of_driver("other.dev"));
    let parameters: Vec<String> =
        lines(&found.problems).into_iter().filter(|line| line.contains("config[0]")).collect();
    assert_eq!(parameters.len(), 2, "apiVersion and kind of the other driver's: {parameters:?}");
    assert!(!lines(&found.problems).iter().any(|line| line.contains("spread")));
}

#[test]
fn lists_and_allocations_are_looked_into() {
    let config = r#"[{"source": "FromClaim", "requests": [], "opaque": {"driver": "hostler.dev",
        "parameters": {"apiVersion": "hostler.dev/v1alpha1", "kind": "PlacementConfig", "sameNumaNode": true}}}]"#;
    let claim = format!(
        r#"{{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {{"name": "a"}},
            "status": {{"allocation": {{"devices": {{"results": [], "config": {config}}}}}}}}}"#
    );
    let found = check(
        &format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{claim}]}} {claim}"#),
        ValidationTarget::of_driver("hostler.dev"),
    );
    let place = "status.allocation.devices.config[0].opaque.parameters.sameNumaNode";
    let reason = "true is not one of required, preferred";
    assert_eq!(
        lines(&found.problems),
        [
            format!("document 1 (ResourceClaim a): items[0].{place}: {reason}"),
            format!("document 2 (ResourceClaim a): {place}: {reason}")
        ]
    );
}

#[test]
fn what_is_no_object_of_the_api_is_told_so() {
    for (text, expected) in [
        ("a: [", "it is not valid JSON or YAML: "),
        ("{\"a\": ", "it is not valid JSON or YAML: "),
        ("3", "document 1: kind: it is missing, or no text"),
        ("kind: ResourceClaim", "document 1 (ResourceClaim): apiVersion: it is missing, or no text"),
        ("{apiVersion: resource.k8s.io/v2, kind: DeviceClass}", "it is not valid JSON or YAML: "),
        (
            "apiVersion: resource.k8s.io/v2\nkind: DeviceClass",
            "document 1 (DeviceClass): apiVersion: \"resource.k8s.io/v2\" is not known; write resource.k8s.io/v1",
        ),
        (
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nspec: {config: {}}",
            "document 1 (DeviceClass): spec.config: it is not a list",
        ),
    ] {
        let problems = lines(&check(text, ValidationTarget::of_driver("hostler.dev")).problems);
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text}: {problems:?}");
    }
    let other = check("apiVersion: example.com/v1\nkind: DeviceClass", ValidationTarget::of_driver("hostler.dev"));
    assert_eq!((other.checked, other.problems.len(), other.notes.len()), (0, 0, 1));
    assert_eq!(check("", ValidationTarget::of_driver("hostler.dev")), ValidationReport::default());
}
