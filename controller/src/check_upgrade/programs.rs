//! Kubernetes and both programs: releases that this version works with, and versions that are replaced.

use std::collections::BTreeMap;

use hostler_api::{few, hardware::NODE_HARDWARE_KIND};
use serde_json::Value;

use super::UpgradeFinding;
use crate::deployed::{DeployedObjects, ProgramVersion, VersionStep, WORKLOADS, list, name_of};

/// The first release with Dynamic Resource Allocation.
const OLDEST_KUBERNETES: u32 = 26;

/// The last release in which a controller allocates.
const LAST_CLASSIC: u32 = 31;

/// The last release for which this version was tried.
const NEWEST_KUBERNETES: u32 = 37;

/// The page about all this.
const PAGE: &str = "docs/upgrading.md";

/// Checks releases and versions.
pub(super) fn findings(deployed: &DeployedObjects) -> Vec<UpgradeFinding> {
    let mut found: Vec<UpgradeFinding> = deployed
        .minor
        .and_then(|minor| kubernetes(deployed, minor).or_else(|| classic_role(deployed, minor)))
        .into_iter()
        .collect();
    found.extend(kubelets(deployed));
    found.extend(
        WORKLOADS.iter().rev().filter_map(|(kind, _, namespace, name)| workload(deployed, kind, name, namespace)),
    );
    found.extend(reports(deployed));
    found
}

/// Compares the release of the API server with those that this version works with.
pub(crate) fn kubernetes(deployed: &DeployedObjects, minor: u32) -> Option<UpgradeFinding> {
    let title = format!("Kubernetes 1.{minor}");
    if minor < OLDEST_KUBERNETES {
        let words = "it has no Dynamic Resource Allocation; 1.26 is the first release that has";
        return Some(UpgradeFinding::first(title, words).mended_by("kubeadm upgrade plan"));
    }
    if deployed.serves_claims == Some(false) {
        let (version, gate) = match minor {
            ..=26 => ("v1alpha1", true),
            27..=30 => ("v1alpha2", true),
            31 => ("v1alpha3", true),
            32 | 33 => ("v1beta1", true),
            _ => ("v1", false),
        };
        let gate = if gate { "--feature-gates=DynamicResourceAllocation=true " } else { "" };
        return Some(
            UpgradeFinding::first(title, "its API server does not serve resource.k8s.io")
                .mended_by(format!("kube-apiserver {gate}--runtime-config=resource.k8s.io/{version}=true")),
        );
    }
    let words = format!("it is newer than 1.{NEWEST_KUBERNETES}, the last release that this version was tried with");
    (minor > NEWEST_KUBERNETES).then(|| UpgradeFinding::note(title, words))
}

/// Looks for the role of a controller that allocates.
fn classic_role(deployed: &DeployedObjects, minor: u32) -> Option<UpgradeFinding> {
    let is_lacking = minor <= LAST_CLASSIC && deployed.named("ClusterRole", "hostler-controller-classic").is_none();
    let folder = if minor < 30 { "deploy/classic-1.26" } else { "deploy/classic" };
    let words = "claims are allocated by hostler's controller there, and its role for that is missing";
    let finding = || UpgradeFinding::first(format!("Kubernetes 1.{minor}"), words);
    is_lacking.then(|| finding().mended_by(format!("kubectl apply -k {folder}")))
}

/// Kubelets that know no claims.
fn kubelets(deployed: &DeployedObjects) -> Option<UpgradeFinding> {
    let minor = |node: &Value| {
        let version = ProgramVersion::parse(node["status"]["nodeInfo"]["kubeletVersion"].as_str()?)?;
        version.is_before(1, OLDEST_KUBERNETES).then(|| name_of(node).to_owned())
    };
    let old: Vec<String> = deployed.of("Node").filter_map(minor).collect();
    let words = format!("its kubelet is older than 1.{OLDEST_KUBERNETES}: pods with claims cannot run there");
    (!old.is_empty()).then(|| UpgradeFinding::note(format!("Node {}", few(&old)), words))
}

/// Compares the image of a workload with this version.
fn workload(deployed: &DeployedObjects, kind: &str, name: &str, namespace: &str) -> Option<UpgradeFinding> {
    let there = deployed.workload(kind)?;
    let containers = list(&there["spec"]["template"]["spec"]["containers"]);
    let image = containers.filter_map(|it| it["image"].as_str()).next()?;
    let title = format!("{kind} {namespace}/{name}");
    match ProgramVersion::of_image(image) {
        Some(version) => step(title, version, "it runs"),
        None => Some(UpgradeFinding::note(title, format!("the version of its image {image} is not in the tag"))),
    }
}

/// Groups the daemons that report by version, and names those that are not well.
fn reports(deployed: &DeployedObjects) -> Vec<UpgradeFinding> {
    let mut versions: BTreeMap<ProgramVersion, Vec<&str>> = BTreeMap::new();
    let mut unwell = Vec::new();
    for report in deployed.of(NODE_HARDWARE_KIND) {
        let Some(version) = report["status"]["hostlerVersion"].as_str().and_then(ProgramVersion::parse) else {
            continue;
        };
        versions.entry(version).or_default().push(name_of(report));
        if list(&report["status"]["conditions"]).any(|it| it["type"] == "Ready" && it["status"] == "False") {
            unwell.push(name_of(report));
        }
    }
    let told = |(version, nodes): (ProgramVersion, Vec<&str>)| {
        let title = format!("daemon of {}", few(&nodes));
        step(title, version, "it is")
    };
    let mut found: Vec<UpgradeFinding> = versions.into_iter().filter_map(told).collect();
    if let Some(first) = unwell.first() {
        let words = "its daemon is not ready; mend it before it is replaced";
        let command = format!("kubectl describe {} {first}", hostler_api::hardware::NODE_HARDWARE);
        found.push(UpgradeFinding::note(format!("node {}", few(&unwell)), words).mended_by(command));
    }
    found
}

/// Says what becomes of a program of another version.
fn step(title: String, version: ProgramVersion, verb: &str) -> Option<UpgradeFinding> {
    let own = ProgramVersion::own()?;
    let is = format!("{verb} {version}");
    match version.step_to(own) {
        VersionStep::Same => None,
        VersionStep::Up => Some(UpgradeFinding::note(title, format!("{is}, which {own} replaces"))),
        VersionStep::Down => {
            Some(UpgradeFinding::note(title, format!("{is}: going back to {own} is described in {PAGE}")))
        }
        VersionStep::TooFar(next) => {
            let words = format!("{is}, more than one minor version from {own}: apply deploy/ of {next} first ({PAGE})");
            Some(UpgradeFinding::first(title, words).mended_by("kubectl apply -k deploy"))
        }
    }
}
