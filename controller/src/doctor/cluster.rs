//! The API server, its kinds, and hostler's own: what a cluster has to have before anything runs.

use hostler_api::few;
use hostler_cli::doctor::DoctorFinding;

use super::facts::DoctorFacts;
use crate::{
    check_upgrade::{FindingUrgency, UpgradeFinding, definition_findings, kubernetes_finding},
    config::CapabilityMode,
    deployed::{DAEMON_NAMESPACE, WORKLOADS, name_of},
    plan::HOSTLER_CLASSES,
};

/// Fix of findings for which no command is known.
const PAGE: &str = "docs/kubernetes.md says what a cluster needs";

/// The kind that holds what is deployed.
const DEFINITIONS: &str = "customresourcedefinitions";

pub(super) fn checks(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    let mut findings = vec![server(facts), claims(facts), taint_rules(facts)];
    findings.extend(definitions(facts));
    findings.push(namespaces(facts));
    findings.push(priorities(facts));
    findings.push(classes(facts));
    findings
}

/// Makes a finding of one that the way to this version has.
fn as_before_an_upgrade(check: &'static str, finding: UpgradeFinding) -> DoctorFinding {
    let UpgradeFinding { urgency, object, message, command } = finding;
    let (found, fix) = (format!("{object}: {message}"), command.unwrap_or_else(|| PAGE.to_owned()));
    match urgency {
        FindingUrgency::First => DoctorFinding::fail(check, found, fix),
        FindingUrgency::Note => DoctorFinding::warn(check, found, fix),
    }
}

fn server(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "API server";
    match release(facts).filter(|_| !facts.claim_versions.is_empty()) {
        Some(finding) => as_before_an_upgrade(CHECK, finding),
        None => DoctorFinding::ok(CHECK, format!("answers as Kubernetes {}", facts.release)),
    }
}

fn claims(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "resource.k8s.io";
    match (&facts.claim_versions[..], release(facts)) {
        ([], Some(finding)) => as_before_an_upgrade(CHECK, finding),
        ([], None) => DoctorFinding::fail(CHECK, "is not served: there are no claims", PAGE),
        (versions, _) => DoctorFinding::ok(CHECK, format!("is served in {}", versions.join(", "))),
    }
}

/// Returns what stands against the release of the API server.
fn release(facts: &DoctorFacts) -> Option<UpgradeFinding> {
    kubernetes_finding(&facts.deployed, facts.deployed.minor?)
}

fn taint_rules(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "DeviceTaintRules";
    if facts.has_taint_rules {
        return DoctorFinding::ok(CHECK, "are served");
    }
    let config = &facts.config.config;
    let found = "are not served: devices of other drivers can be neither drained nor kept by rules";
    if config.capabilities.device_taint_rules == CapabilityMode::Off {
        return DoctorFinding::ok(CHECK, "are not served, and switched off by configuration");
    }
    let fix = "switch on the feature gates DRADeviceTaints and DRADeviceTaintRules, and the version of resource.k8s.io that the \
               release serves them in; or set capabilities.device_taint_rules = \"off\"";
    DoctorFinding::warn(CHECK, found, fix)
}

fn definitions(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    const CHECK: &str = "kinds of hostler";
    if let Some(unread) = facts.unread(CHECK, &[DEFINITIONS]) {
        return vec![unread];
    }
    let found = definition_findings(&facts.deployed);
    if found.is_empty() {
        let names: Vec<&str> = facts.deployed.of("CustomResourceDefinition").map(name_of).collect();
        return vec![DoctorFinding::ok(CHECK, format!("as this version needs them: {}", few(names)))];
    }
    found.into_iter().map(|finding| as_before_an_upgrade(CHECK, finding)).collect()
}

fn namespaces(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "namespaces";
    if let Some(unread) = facts.unread(CHECK, &["namespaces"]) {
        return unread;
    }
    let names = WORKLOADS.map(|(_, _, namespace, _)| namespace);
    let missing: Vec<&str> =
        names.into_iter().filter(|name| facts.deployed.named("Namespace", name).is_none()).collect();
    match &missing[..] {
        [] => DoctorFinding::ok(CHECK, names.join(", ")),
        missing => DoctorFinding::warn(CHECK, format!("missing: {}", missing.join(", ")), apply(missing[0])),
    }
}

/// Returns the command that applies the bundle with a namespace.
fn apply(namespace: &str) -> &'static str {
    if namespace == DAEMON_NAMESPACE { "kubectl apply -k deploy" } else { "kubectl apply -k deploy/controller" }
}

/// Pods that name a class which does not exist are refused when they are made.
fn priorities(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "priority classes";
    if let Some(unread) = facts.unread(CHECK, &["priorityclasses", "daemonsets", "deployments"]) {
        return unread;
    }
    let named = WORKLOADS.iter().filter_map(|(kind, _, namespace, name)| {
        let class = facts.deployed.workload(kind)?["spec"]["template"]["spec"]["priorityClassName"].as_str()?;
        Some((format!("{kind} {namespace}/{name}"), *namespace, class))
    });
    let named: Vec<(String, &str, &str)> = named.collect();
    let missing = named.iter().find(|(.., class)| facts.deployed.named("PriorityClass", class).is_none());
    match missing {
        Some((workload, namespace, class)) => {
            let found = format!("{workload} names {class}, which is missing: its pods cannot be made");
            DoctorFinding::fail(CHECK, found, apply(namespace))
        }
        None if named.is_empty() => DoctorFinding::ok(CHECK, "none is needed"),
        None => DoctorFinding::ok(CHECK, named.iter().map(|(.., class)| *class).collect::<Vec<_>>().join(", ")),
    }
}

fn classes(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "DeviceClasses";
    if let Some(unread) = facts.unread(CHECK, &["deviceclasses"]) {
        return unread;
    }
    let expected: Vec<serde_json::Value> = serde_saphyr::from_multiple(HOSTLER_CLASSES).unwrap_or_default();
    let names: Vec<&str> = expected.iter().map(name_of).collect();
    let missing: Vec<&&str> = names.iter().filter(|name| facts.deployed.named("DeviceClass", name).is_none()).collect();
    match missing.len() {
        0 => DoctorFinding::ok(CHECK, few(&names)),
        all if all == names.len() => {
            let found = "none of hostler's is there: claims that name one wait";
            DoctorFinding::warn(CHECK, found, "kubectl apply -k deploy/cluster")
        }
        _ => DoctorFinding::warn(CHECK, format!("missing: {}", few(missing)), "kubectl apply -k deploy/cluster"),
    }
}
