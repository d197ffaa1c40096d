//! The controller: its configuration, its pods, the Lease, and its own findings.

use std::time::{Duration, SystemTime};

use hostler_cli::doctor::DoctorFinding;
use hostler_cluster::from_rfc3339;
use serde_json::Value;

use super::facts::DoctorFacts;
use crate::deployed::{CONTROLLER_NAMESPACE, list};

/// Reasons of conditions that are false and no fault.
const FINE: [&str; 3] = ["Off", "NotNeeded", "NotLeading"];

pub(super) fn checks(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    let mut findings = configuration(facts);
    findings.extend([deployment(facts), lease(facts)]);
    findings.extend(conditions(facts));
    findings
}

fn configuration(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    const CHECK: &str = "configuration";
    let place = &facts.config.place;
    let finding = |mistake: &hostler_process::config::ConfigMistake| {
        let line = mistake.line.map(|line| format!(":{line}")).unwrap_or_default();
        let key = if mistake.key.is_empty() { String::new() } else { format!("{}: ", mistake.key) };
        DoctorFinding::fail(CHECK, format!("{place}{line}: {key}{}", mistake.what), mistake.fix.clone())
    };
    match &facts.config.mistakes[..] {
        [] => vec![DoctorFinding::ok(CHECK, format!("in order: {place}"))],
        mistakes => mistakes.iter().map(finding).collect(),
    }
}

fn deployment(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "controller";
    const PODS: &str = "kubectl -n hostler-controller describe pods";
    if let Some(unread) = facts.unread(CHECK, &["deployments"]) {
        return unread;
    }
    let Some(there) = facts.deployed.workload("Deployment") else {
        let found =
            "there is no Deployment hostler-controller/hostler-controller; one that runs on a host is not seen here";
        return DoctorFinding::warn(CHECK, found, "kubectl apply -k deploy/controller");
    };
    let wanted = there["spec"]["replicas"].as_u64().unwrap_or(1);
    let ready = there["status"]["readyReplicas"].as_u64().unwrap_or_default();
    let found = format!("{ready} of {wanted} pods are ready");
    match ready {
        0 => DoctorFinding::fail(CHECK, found, PODS),
        ready if ready < wanted => DoctorFinding::warn(CHECK, found, PODS),
        _ => DoctorFinding::ok(CHECK, found),
    }
}

fn lease(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "leader";
    const LOG: &str = "kubectl -n hostler-controller logs deployment/hostler-controller says why no controller leads";
    if let Some(unread) = facts.unread(CHECK, &["leases"]) {
        return unread;
    }
    let config = &facts.config.config;
    if !config.capabilities.leads() && !config.webhook.leads() {
        return DoctorFinding::ok(CHECK, "not needed: all work of a leader is switched off");
    }
    let name = &config.lease.name;
    let namespace = config.lease.namespace.as_deref().unwrap_or(CONTROLLER_NAMESPACE);
    let Some(lease) = facts.deployed.named("Lease", name) else {
        return DoctorFinding::fail(
            CHECK,
            format!("there is no Lease {namespace}/{name}: no controller has led yet"),
            LOG,
        );
    };
    let spec = &lease["spec"];
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    if holder.is_empty() {
        return DoctorFinding::fail(CHECK, format!("Lease {namespace}/{name} is free: no controller leads"), LOG);
    }
    // What stands behind the pod's name tells two lives of it apart.
    let holder = holder.split_once('_').map_or(holder, |(pod, _)| pod);
    let lasts = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or_default());
    match age(&spec["renewTime"], facts.now) {
        Some(age) if age <= lasts => DoctorFinding::ok(
            CHECK,
            format!("{holder} holds Lease {namespace}/{name}, renewed {} s ago", age.as_secs()),
        ),
        Some(age) => {
            let found = format!(
                "{holder} renewed Lease {namespace}/{name} {} s ago, by the clock of this machine; it lasts {} s",
                age.as_secs(),
                lasts.as_secs()
            );
            DoctorFinding::fail(CHECK, found, LOG)
        }
        None => DoctorFinding::fail(
            CHECK,
            format!("{holder} holds Lease {namespace}/{name} without a time of renewal"),
            LOG,
        ),
    }
}

/// Returns the time since a moment; a clock that is ahead of this one has just written it.
pub(super) fn age(written: &Value, now: SystemTime) -> Option<Duration> {
    let written = from_rfc3339(written.as_str()?)?;
    Some(now.duration_since(written).unwrap_or_default())
}

/// Returns what the controller that leads says of itself.
fn conditions(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    const CHECK: &str = "conditions";
    const PAGE: &str = "docs/controller.md has a row for each condition and reason";
    if let Some(unread) = facts.unread(CHECK, &["clusterhardware"]) {
        return vec![unread];
    }
    let Some(sums) = facts.deployed.of("ClusterHardware").next() else {
        return vec![DoctorFinding::warn(CHECK, "no controller has written ClusterHardware cluster", PAGE)];
    };
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let is_fine = |it: &Value| FINE.contains(&it["reason"].as_str().unwrap_or_default());
    // Rules have a check of their own.
    let is_bad = |it: &&Value| it["status"] == "False" && it["type"] != "DeviceTaintRules" && !is_fine(it);
    let told = list(&sums["status"]["conditions"]).filter(is_bad).map(|it| {
        let [kind, reason, message] = ["type", "reason", "message"].map(|field| text(it, field));
        DoctorFinding::warn(CHECK, format!("{kind} is False ({reason}): {message}"), PAGE)
    });
    let told: Vec<DoctorFinding> = told.collect();
    if told.is_empty() { vec![DoctorFinding::ok(CHECK, "the controller that leads has no complaint")] } else { told }
}
