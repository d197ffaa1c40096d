//! Each check, on made-up clusters.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hostler_cli::doctor::FindingLevel;
use hostler_cluster::{from_rfc3339, rfc3339};
use serde_json::{Value, json};

use super::{
    facts::{BundleNeed, BundleRights, DoctorConfig, RefusedRead},
    rights::wanted,
    *,
};
use crate::{
    config::{CapabilityMode, ControllerConfig, SwitchMode},
    deployed::{DEFINITIONS, DeployedObjects, ExpectedManifest},
    plan::HOSTLER_CLASSES,
};

/// The check that notices, and what is wrong.
type BrokenCluster = (&'static str, fn(&mut DoctorFacts));

/// The configuration that `deploy/controller` has.
const DEPLOYED: &str = include_str!("../../../deploy/controller/base/controller.toml");

const AUTHORITY: &str = include_str!("certificate/until-2036.pem");

fn now() -> SystemTime {
    from_rfc3339("2026-11-26T12:00:00Z").unwrap()
}

fn ago(seconds: u64) -> Value {
    rfc3339(now() - Duration::from_secs(seconds)).into()
}

fn workload(kind: &str, name: &str, class: &str, status: &Value) -> Value {
    let containers = json!([{ "image": format!("{name}:{}", env!("CARGO_PKG_VERSION")) }]);
    let pod = json!({ "priorityClassName": class, "serviceAccountName": name, "containers": containers });
    json!({
        "kind": kind, "metadata": { "name": name }, "spec": { "replicas": 2, "template": { "spec": pod } },
        "status": status,
    })
}

fn report(node: &str, seconds: u64, version: &str) -> Value {
    json!({
        "kind": "NodeHardware", "metadata": { "name": node }, "spec": { "nodeName": node },
        "status": { "hostlerVersion": version, "lastReportTime": ago(seconds) },
    })
}

fn objects() -> Vec<Value> {
    let mut all: Vec<Value> = DEFINITIONS.iter().flat_map(ExpectedManifest::objects).collect();
    all.extend(serde_saphyr::from_multiple::<Value>(HOSTLER_CLASSES).unwrap());
    let named = |kind: &str, name: &str| json!({ "kind": kind, "metadata": { "name": name } });
    all.extend([named("Namespace", "hostler-system"), named("Namespace", "hostler-controller")]);
    all.extend([named("PriorityClass", "system-node-critical"), named("PriorityClass", "hostler-controller")]);
    let ready = json!({ "desiredNumberScheduled": 2, "numberReady": 2 });
    all.push(workload("DaemonSet", "hostler", "system-node-critical", &ready));
    all.push(workload("Deployment", "hostler-controller", "hostler-controller", &json!({ "readyReplicas": 2 })));
    all.push(json!({ "kind": "Lease", "metadata": { "name": "hostler-controller" }, "spec": {
        "holderIdentity": "pod-a_1b4e", "leaseDurationSeconds": 15, "renewTime": ago(3),
    } }));
    all.push(json!({ "kind": "ClusterHardware", "metadata": { "name": "cluster" }, "status": { "conditions": [
        { "type": "Synced", "status": "True" }, { "type": "ClassicAllocation", "status": "False", "reason": "NotNeeded" },
    ] } }));
    let client = json!({
        "caBundle": STANDARD.encode(AUTHORITY),
        "service": { "name": "hostler-webhook", "namespace": "hostler-controller" },
    });
    all.push(json!({
        "kind": "MutatingWebhookConfiguration", "metadata": { "name": "hostler-webhook" },
        "webhooks": [{ "clientConfig": client }],
    }));
    all.push(
        json!({ "kind": "Service", "metadata": { "name": "hostler-webhook", "namespace": "hostler-controller" } }),
    );
    all.push(json!({
        "kind": "EndpointSlice", "metadata": { "labels": { "kubernetes.io/service-name": "hostler-webhook" } },
        "endpoints": [{ "conditions": { "ready": true } }],
    }));
    all.extend([report("n1", 10, env!("CARGO_PKG_VERSION")), report("n2", 20, env!("CARGO_PKG_VERSION"))]);
    all
}

/// A cluster in which nothing is wrong.
fn good() -> DoctorFacts {
    // Reading the manifests takes most of the time of a check.
    static READ: LazyLock<(ControllerConfig, Vec<Value>, Vec<BundleRights>)> = LazyLock::new(|| {
        let config = ControllerConfig::parse(DEPLOYED).unwrap();
        let rights = wanted(&config, false).into_iter().map(|bundle| BundleRights {
            folder: bundle.folder,
            need: bundle.need,
            is_installed: true,
            all: bundle.rights.len(),
            lacking: Vec::new(),
        });
        let rights = rights.collect();
        (config, objects(), rights)
    });
    let (config, objects, rights) = READ.clone();
    DoctorFacts {
        now: now(),
        release: "v1.36.3".to_owned(),
        claim_versions: vec!["v1".to_owned()],
        has_taint_rules: true,
        deployed: DeployedObjects { minor: Some(36), serves_claims: Some(true), objects },
        refused: Vec::new(),
        rights: Ok(rights),
        config: DoctorConfig { place: "controller.toml".to_owned(), config, mistakes: Vec::new() },
        rights_of: "system:serviceaccount:hostler-controller:hostler-controller".to_owned(),
    }
}

fn object<'f>(facts: &'f mut DoctorFacts, kind: &str) -> &'f mut Value {
    facts.deployed.objects.iter_mut().find(|it| it["kind"] == kind).unwrap()
}

fn without(facts: &mut DoctorFacts, kind: &str) {
    facts.deployed.objects.retain(|it| it["kind"] != kind);
}

fn bad(change: impl FnOnce(&mut DoctorFacts)) -> Vec<DoctorFinding> {
    let mut facts = good();
    change(&mut facts);
    checks(&facts).into_iter().filter(|finding| finding.level != FindingLevel::Ok).collect()
}

/// The one finding of a cluster that is not good.
fn one(change: impl FnOnce(&mut DoctorFacts)) -> DoctorFinding {
    let mut bad = bad(change);
    assert_eq!(bad.len(), 1, "{bad:#?}");
    bad.remove(0)
}

fn assert_levels(cases: &[BrokenCluster], level: FindingLevel) {
    for (check, change) in cases {
        let finding = one(change);
        assert_eq!((finding.check, finding.level), (*check, level), "{finding:?}");
        assert!(!finding.fix.is_empty(), "{finding:?}");
    }
}

fn of_webhook(facts: &mut DoctorFacts, field: &str, value: &str) {
    object(facts, "MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"][field] = value.into();
}

fn bundle<'f>(facts: &'f mut DoctorFacts, folder: &str) -> &'f mut BundleRights {
    facts.rights.as_mut().unwrap().iter_mut().find(|bundle| bundle.folder == folder).unwrap()
}

#[test]
fn a_cluster_in_order_has_nothing_to_fix() {
    for finding in checks(&good()) {
        assert_eq!((finding.level, &*finding.fix), (FindingLevel::Ok, ""), "{finding:?}");
    }
}

#[test]
fn what_keeps_hostler_from_working_is_a_failure() {
    let cases: [BrokenCluster; 18] = [
        ("resource.k8s.io", |facts| {
            (facts.claim_versions, facts.deployed.serves_claims) = (Vec::new(), Some(false));
        }),
        ("kinds of hostler", |facts| {
            facts.deployed.objects.retain(|it| it["metadata"]["name"] != "reservations.hostler.dev")
        }),
        ("priority classes", |facts| without(facts, "PriorityClass")),
        ("configuration", |facts| {
            facts.config.mistakes = ControllerConfig::parse("[lease]\nname = 'A'").unwrap_err();
        }),
        ("controller", |facts| object(facts, "Deployment")["status"]["readyReplicas"] = 0.into()),
        ("leader", |facts| without(facts, "Lease")),
        ("leader", |facts| object(facts, "Lease")["spec"]["renewTime"] = ago(16)),
        ("leader", |facts| object(facts, "Lease")["spec"]["holderIdentity"] = "".into()),
        ("rights", |facts| bundle(facts, "deploy/controller").lacking.push("list pods".to_owned())),
        ("rights", |facts| bundle(facts, "deploy/holds").lacking.push("patch nodehardware.hostler.dev".to_owned())),
        ("webhook", |facts| of_webhook(facts, "caBundle", "")),
        ("webhook", |facts| of_webhook(facts, "caBundle", "AAAA")),
        ("webhook", |facts| {
            let mut of_pods = object(facts, "MutatingWebhookConfiguration").clone();
            of_pods["metadata"]["name"] = "hostler-webhook-pods".into();
            of_pods["webhooks"][0]["clientConfig"]["caBundle"] = "".into();
            facts.deployed.objects.push(of_pods);
        }),
        ("webhook", |facts| without(facts, "Service")),
        ("webhook", |facts| object(facts, "EndpointSlice")["endpoints"][0]["conditions"]["ready"] = false.into()),
        ("daemons", |facts| object(facts, "DaemonSet")["status"]["numberReady"] = 0.into()),
        ("reports of nodes", |facts| object(facts, "NodeHardware")["status"]["lastReportTime"] = ago(3600)),
        ("versions", |facts| object(facts, "NodeHardware")["status"]["hostlerVersion"] = "0.9.0".into()),
    ];
    assert_levels(&cases, FindingLevel::Fail);
}

#[test]
fn what_could_be_better_is_a_warning_with_a_fix() {
    let cases: [BrokenCluster; 13] = [
        ("API server", |facts| facts.deployed.minor = Some(99)),
        ("DeviceTaintRules", |facts| facts.has_taint_rules = false),
        ("namespaces", |facts| without(facts, "Namespace")),
        ("DeviceClasses", |facts| without(facts, "DeviceClass")),
        ("DeviceClasses", |facts| facts.deployed.objects.retain(|it| it["metadata"]["name"] != "cpu.hostler.dev")),
        ("controller", |facts| object(facts, "Deployment")["status"]["readyReplicas"] = 1.into()),
        ("conditions", |facts| without(facts, "ClusterHardware")),
        ("conditions", |facts| {
            object(facts, "ClusterHardware")["status"]["conditions"][0] =
                json!({ "type": "Synced", "status": "False", "reason": "NotListed", "message": "403" });
        }),
        ("daemons", |facts| object(facts, "DaemonSet")["status"]["numberReady"] = 1.into()),
        ("daemons", |facts| without(facts, "DaemonSet")),
        ("reports of nodes", |facts| without(facts, "NodeHardware")),
        ("versions", |facts| object(facts, "NodeHardware")["status"]["hostlerVersion"] = "0.1.0".into()),
        ("rights", |facts| facts.rights = Err("you may not create subjectaccessreviews".to_owned())),
    ];
    assert_levels(&cases, FindingLevel::Warn);
}

#[test]
fn the_authority_of_the_webhook_must_last() {
    let at = |time: &str| from_rfc3339(time).unwrap();
    let of = |time: &'static str| {
        let mut facts = good();
        facts.now = at(time);
        webhook::check(&facts).level
    };
    assert_eq!(of("2035-12-01T00:00:00Z"), FindingLevel::Ok);
    assert_eq!(of("2035-12-25T00:00:00Z"), FindingLevel::Warn);
    assert_eq!(of("2036-01-02T00:00:00Z"), FindingLevel::Fail);
}

#[test]
fn what_is_not_installed_or_switched_off_is_no_fault() {
    let fine: [fn(&mut DoctorFacts); 5] = [
        |facts| without(facts, "MutatingWebhookConfiguration"),
        |facts| {
            let holds = bundle(facts, "deploy/holds");
            (holds.is_installed, holds.lacking) = (false, vec!["list reservations.hostler.dev".to_owned()]);
        },
        |facts| {
            without(facts, "NodeHardware");
            facts.config.config.capabilities.node_reports = CapabilityMode::Off;
        },
        |facts| {
            facts.has_taint_rules = false;
            facts.config.config.capabilities.device_taint_rules = CapabilityMode::Off;
        },
        |facts| {
            without(facts, "Lease");
            let modes = &mut facts.config.config.capabilities;
            let off = CapabilityMode::Off;
            (modes.cluster_hardware, modes.classic_dra, modes.provisioning, modes.reservations) = (off, off, off, off);
            facts.config.config.webhook.listen = crate::config::ListenAddress::Off;
        },
    ];
    for (at, change) in fine.into_iter().enumerate() {
        assert_eq!(bad(change), [], "{at}");
    }
    let on = |facts: &mut DoctorFacts| {
        let holds = bundle(facts, "deploy/holds");
        (holds.is_installed, holds.need) = (false, BundleNeed::Needed);
        holds.lacking = vec!["list reservations.hostler.dev".to_owned()];
    };
    assert_eq!(one(on).level, FindingLevel::Fail, "it is switched on by name");
}

#[test]
fn what_may_not_be_read_is_not_taken_for_missing() {
    for (plural, kind) in [
        ("customresourcedefinitions", "CustomResourceDefinition"),
        ("namespaces", "Namespace"),
        ("priorityclasses", "PriorityClass"),
        ("deviceclasses", "DeviceClass"),
        ("leases", "Lease"),
        ("clusterhardware", "ClusterHardware"),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        ("daemonsets", "DaemonSet"),
        ("nodehardware", "NodeHardware"),
    ] {
        let found = bad(|facts| {
            without(facts, kind);
            facts.refused.push(RefusedRead { verb: "list", plural: plural.to_owned() });
        });
        assert!(!found.is_empty(), "{plural}");
        for finding in found {
            assert_eq!(finding.level, FindingLevel::Warn, "{finding:?}");
            assert_eq!(finding.found, format!("not checked: you may not list {plural}"), "{finding:?}");
        }
    }
}

#[test]
fn rights_follow_the_configuration_and_its_names() {
    let words = |config: &ControllerConfig, folder: &str| -> Option<Vec<String>> {
        let bundle = wanted(config, false).into_iter().find(|bundle| bundle.folder == folder)?;
        Some(bundle.rights.iter().map(|right| format!("{right:?}")).collect())
    };
    let mut config = ControllerConfig::default();
    let base = words(&config, "deploy/controller").unwrap();
    assert!(base.iter().any(|right| right.contains("nodehardware")), "{base:?}");
    config.capabilities.node_reports = CapabilityMode::Off;
    config.lease.name = "other".to_owned();
    let base = words(&config, "deploy/controller").unwrap();
    assert!(!base.iter().any(|right| right.contains("nodehardware")), "{base:?}");
    assert!(base.iter().any(|right| right.contains("leases") && right.contains("other")), "{base:?}");
    assert!(words(&config, "deploy/classic").is_none() && words(&config, "deploy/holds/direct").is_none());
    config.reservations.direct = SwitchMode::Auto;
    assert!(words(&config, "deploy/holds/direct").is_some());
    config.capabilities.reservations = CapabilityMode::Off;
    assert!(words(&config, "deploy/holds/direct").is_none() && words(&config, "deploy/holds").is_none());
    let classic = wanted(&config, true);
    assert!(classic.iter().any(|bundle| bundle.folder == "deploy/classic" && bundle.need == BundleNeed::Needed));
    assert!(wanted(&config, false).iter().all(|bundle| !bundle.folder.starts_with("deploy/cluster")));
}

#[test]
fn every_bundle_of_several_rights_has_one_of_its_own() {
    let mut config = ControllerConfig::parse(DEPLOYED).unwrap();
    config.capabilities.provisioning = CapabilityMode::On;
    for bundle in wanted(&config, true) {
        let is_told = bundle.rights.len() == 1 || bundle.rights.iter().any(|right| right.is_own);
        assert!(is_told, "{}: nothing tells that it is installed", bundle.folder);
    }
}
