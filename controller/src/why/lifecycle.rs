//! Pods that have a node, and pods that have ended: what keeps their containers from running.

use hostler_api::{ObjectKey, few};

use super::{
    cause::{CauseKind, PodCause},
    claims::{ExplainedClaim, FoundClaim},
    pod::ExplainedPod,
    world::{SeenEvent, WhyWorld},
};
use crate::called;

/// The Event of a kubelet that a driver did not prepare a claim.
const PREPARE_FAILED: &str = "FailedPrepareDynamicResources";

/// Returns the cause of a pod that has a node, or has ended; `None` for a pod that waits for a node.
pub(super) fn of_placed(world: &WhyWorld, pod: &ExplainedPod, claims: &[ExplainedClaim<'_>]) -> Option<PodCause> {
    if pod.is_going() {
        let reason = "it is being deleted, and goes once its containers have ended and its finalizers are gone";
        return Some(PodCause::new(CauseKind::Deleting, reason));
    }
    if pod.has_ended() {
        return Some(ended(pod));
    }
    let node = pod.node()?;
    let devices = devices(claims);
    let failed = || prepare_failure(world, pod, claims).map(|event| prepare_failed(node, event));
    match pod.status.waiting() {
        Some(_) => {}
        None if pod.status.phase == "Running" => return Some(running(node, &devices)),
        None => return Some(failed().or_else(|| silent(world, node)).unwrap_or_else(|| starting(node))),
    }
    failed().or_else(|| container_waits(pod, node))
}

fn ended(pod: &ExplainedPod) -> PodCause {
    let status = &pod.status;
    let why = match (&*status.reason, &*status.message) {
        ("", "") => String::new(),
        (reason, "") => format!(": {reason}"),
        ("", message) => format!(": {message}"),
        (reason, message) => format!(": {reason}: {message}"),
    };
    PodCause::new(CauseKind::Ended, format!("{}{why}", status.phase))
}

fn running(node: &str, devices: &[String]) -> PodCause {
    let with = if devices.is_empty() { "without claims".to_owned() } else { format!("with {}", few(devices)) };
    PodCause::new(CauseKind::Running, format!("on node {node} {with}"))
}

fn starting(node: &str) -> PodCause {
    PodCause::new(CauseKind::Starting, format!("on node {node}; its containers are being created"))
}

/// Names the devices of the claims: `hostler.dev/n1/fpga-0 (claim gpu)`.
fn devices(claims: &[ExplainedClaim<'_>]) -> Vec<String> {
    let of_claim = |claim: &ExplainedClaim<'_>| {
        let allocation = claim.given().and_then(|it| it.status.allocation.as_ref());
        let results = allocation.map(|it| it.devices.results.as_slice()).unwrap_or_default();
        let name = |it: &hostler_api::resource::DeviceRequestAllocationResult| {
            format!("{}/{}/{} (claim {})", it.driver, it.pool, it.device, claim.name)
        };
        results.iter().map(name).collect::<Vec<_>>()
    };
    claims.iter().flat_map(of_claim).collect()
}

/// Returns the newest Event about devices that could not be prepared: hostler's own says more than that of the kubelet.
fn prepare_failure<'w>(
    world: &'w WhyWorld,
    pod: &ExplainedPod,
    claims: &[ExplainedClaim<'_>],
) -> Option<&'w SeenEvent> {
    let key = pod.key();
    let keys: Vec<&ObjectKey> = claims
        .iter()
        .filter_map(|claim| match &claim.found {
            FoundClaim::There(key, _) => Some(key),
            _ => None,
        })
        .collect();
    // hostler's daemons write Events in the name of their driver.
    let results = claims.iter().filter_map(|claim| claim.given()?.status.allocation.as_ref());
    let drivers: Vec<&str> = results.flat_map(|it| &it.devices.results).map(|it| &*it.driver).collect();
    let is_of_daemon = |event: &&SeenEvent| {
        let is_about = event.is_about("Pod", &key) || keys.iter().any(|key| event.is_about("ResourceClaim", key));
        event.kind == "Warning" && drivers.contains(&event.writer()) && is_about
    };
    let is_of_kubelet = |event: &&SeenEvent| event.reason == PREPARE_FAILED && event.is_about("Pod", &key);
    let newest_first = || world.events.iter().rev();
    newest_first().find(is_of_daemon).or_else(|| newest_first().find(is_of_kubelet))
}

fn prepare_failed(node: &str, event: &SeenEvent) -> PodCause {
    let reason = format!("node {node} cannot prepare its devices: {} ({})", event.message.trim(), event.reason);
    let look = format!("{} node {node} shows the devices and their holders", called::program());
    let fix = match &*event.reason {
        "InvalidConfig" => "correct the configuration in the claim or its class, and make the pod anew".to_owned(),
        "BackendDisabled" => "switch on the backend in /etc/hostler/hostler.toml on that node".to_owned(),
        "Quarantined" => format!("hostler explain claim on node {node} tells what to do"),
        "DeviceHeld" | "NoCapacity" => {
            format!("the kubelet tries again, and succeeds once the other claim is gone; {look}")
        }
        "StorageFailed" => format!("free the disk of node {node}; the kubelet tries again"),
        PREPARE_FAILED => format!("the driver's log on node {node} says more; the kubelet tries again"),
        _ => format!("{look}; the kubelet tries again"),
    };
    PodCause::new(CauseKind::PrepareFailed, reason).with_fix(fix)
}

fn silent(world: &WhyWorld, node: &str) -> Option<PodCause> {
    let known = world.manifests.facts.node(node);
    match known {
        None if world.may_read("nodes") => {
            let fix = "delete the pod: its node is gone";
            Some(PodCause::new(CauseKind::NodeSilent, format!("its node {node} does not exist any more")).with_fix(fix))
        }
        Some(known) if !known.is_ready() => {
            let fix = format!("kubectl describe node {node} tells since when and why");
            Some(PodCause::new(CauseKind::NodeSilent, format!("its node {node} is not ready")).with_fix(fix))
        }
        _ => None,
    }
}

fn container_waits(pod: &ExplainedPod, node: &str) -> Option<PodCause> {
    let (name, wait, ended) = pod.status.waiting()?;
    let mut reason = format!("on node {node}; its container {name} waits: {}", wait.reason);
    if let Some(ended) = ended {
        let why = if ended.reason.is_empty() { String::new() } else { format!(", {}", ended.reason) };
        reason += &format!(" (it ended with exit code {}{why})", ended.exit_code);
    } else if !wait.message.is_empty() {
        reason += &format!(": {}", wait.message);
    }
    let key = pod.key();
    let fix = match &*wait.reason {
        "ImagePullBackOff" | "ErrImagePull" | "InvalidImageName" => {
            "correct the image's name or the pull secret".to_owned()
        }
        "CrashLoopBackOff" => {
            format!("kubectl logs -n {} {} -c {name} --previous shows its last words", key.namespace, key.name)
        }
        _ => format!("kubectl describe pod -n {} {} shows the Events of the kubelet", key.namespace, key.name),
    };
    Some(PodCause::new(CauseKind::ContainerWaits, reason).with_fix(fix))
}
