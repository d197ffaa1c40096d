//! The daemons of nodes: that they run, report, and are of a version that goes together with the controller's.

use std::collections::BTreeMap;

use hostler_api::{
    few,
    hardware::{NODE_HARDWARE, NODE_HARDWARE_KIND, STALE_AFTER, UNKNOWN_AFTER},
};
use hostler_cli::doctor::DoctorFinding;
use serde_json::Value;

use super::{controller::age, facts::DoctorFacts};
use crate::{
    config::CapabilityMode,
    deployed::{ProgramVersion, VersionStep, list, name_of},
};

pub(super) fn checks(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    let mut findings = vec![pods(facts), reports(facts)];
    findings.extend(versions(facts));
    findings
}

fn pods(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "daemons";
    const PODS: &str = "kubectl -n hostler-system describe pods; on the node: hostler doctor";
    if let Some(unread) = facts.unread(CHECK, &["daemonsets"]) {
        return unread;
    }
    let Some(there) = facts.deployed.workload("DaemonSet") else {
        let found = "there is no DaemonSet hostler-system/hostler; daemons of packages are seen by their reports alone";
        return DoctorFinding::warn(CHECK, found, "kubectl apply -k deploy");
    };
    let number = |field: &str| there["status"][field].as_u64().unwrap_or_default();
    let (wanted, ready) = (number("desiredNumberScheduled"), number("numberReady"));
    let found = format!("{ready} of {wanted} pods are ready");
    match ready {
        _ if wanted == 0 => DoctorFinding::warn(
            CHECK,
            "no node is selected by DaemonSet hostler-system/hostler",
            "give nodes the labels of its nodeSelector",
        ),
        0 => DoctorFinding::fail(CHECK, found, PODS),
        ready if ready < wanted => DoctorFinding::warn(CHECK, found, PODS),
        _ => DoctorFinding::ok(CHECK, found),
    }
}

/// Returns the reports of nodes; devices on the network have some as well.
fn of_nodes(facts: &DoctorFacts) -> Vec<&Value> {
    let is_of_node = |it: &&Value| it["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty());
    facts.deployed.of(NODE_HARDWARE_KIND).filter(is_of_node).collect()
}

fn reports(facts: &DoctorFacts) -> DoctorFinding {
    const CHECK: &str = "reports of nodes";
    if facts.config.config.capabilities.node_reports == CapabilityMode::Off {
        return DoctorFinding::ok(CHECK, "switched off by configuration");
    }
    if let Some(unread) = facts.unread(CHECK, &[NODE_HARDWARE]) {
        return unread;
    }
    let all = of_nodes(facts);
    let age_of = |it: &Value| age(&it["status"]["lastReportTime"], facts.now);
    let named = |is_such: &dyn Fn(&Value) -> bool| -> Vec<&str> {
        all.iter().copied().filter(|it| is_such(it)).map(name_of).collect()
    };
    let silent = named(&|it| age_of(it).is_none_or(|age| age >= UNKNOWN_AFTER));
    let stale = named(&|it| age_of(it).is_some_and(|age| (STALE_AFTER..UNKNOWN_AFTER).contains(&age)));
    let unwell =
        named(&|it| list(&it["status"]["conditions"]).any(|it| it["type"] == "Ready" && it["status"] == "False"));
    let describe = |names: &[&str]| format!("kubectl describe {NODE_HARDWARE} {}", names[0]);
    match (&silent[..], &stale[..], &unwell[..]) {
        _ if all.is_empty() => DoctorFinding::warn(CHECK, "no daemon has reported", "kubectl apply -k deploy"),
        ([_, ..], ..) => {
            let found = format!("{} of {} nodes missed three signs of life: {}", silent.len(), all.len(), few(&silent));
            DoctorFinding::fail(
                CHECK,
                found,
                format!("kubectl -n hostler-system get pods -o wide; {}", describe(&silent)),
            )
        }
        (_, [_, ..], _) => {
            let found = format!("{} of {} nodes missed two signs of life: {}", stale.len(), all.len(), few(&stale));
            DoctorFinding::warn(CHECK, found, describe(&stale))
        }
        (.., [_, ..]) => {
            let found = format!("{} of {} daemons are not ready: {}", unwell.len(), all.len(), few(&unwell));
            DoctorFinding::warn(CHECK, found, describe(&unwell))
        }
        _ => DoctorFinding::ok(CHECK, format!("{} nodes, all fresh", all.len())),
    }
}

/// Compares the versions of daemons with that of the controller.
fn versions(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    const CHECK: &str = "versions";
    const PAGE: &str = "docs/upgrading.md says which versions go together";
    if let Some(unread) = facts.unread(CHECK, &["deployments", NODE_HARDWARE]) {
        return vec![unread];
    }
    let containers = facts.deployed.workload("Deployment").map(|it| &it["spec"]["template"]["spec"]["containers"]);
    let images = containers.into_iter().flat_map(list).filter_map(|it| it["image"].as_str());
    let own = images.filter_map(ProgramVersion::of_image).next().or_else(ProgramVersion::own);
    let mut daemons: BTreeMap<ProgramVersion, Vec<&str>> = BTreeMap::new();
    for report in of_nodes(facts) {
        if let Some(version) = report["status"]["hostlerVersion"].as_str().and_then(ProgramVersion::parse) {
            daemons.entry(version).or_default().push(name_of(report));
        }
    }
    let Some(own) = own else { return Vec::new() };
    let differs = |(version, nodes): (&ProgramVersion, &Vec<&str>)| {
        let found = format!("daemons are {version} and the controller is {own}: {}", few(nodes));
        match version.step_to(own) {
            VersionStep::Same => None,
            VersionStep::Up | VersionStep::Down => Some(DoctorFinding::warn(CHECK, found, PAGE)),
            VersionStep::TooFar(_) => Some(DoctorFinding::fail(CHECK, found, PAGE)),
        }
    };
    let differing: Vec<DoctorFinding> = daemons.iter().filter_map(differs).collect();
    if differing.is_empty() {
        return vec![DoctorFinding::ok(CHECK, format!("the controller and all daemons that report are {own}"))];
    }
    differing
}
