//! The cluster's view of a claim: its users and devices, or what it lacks.

use std::fmt::Write;

use hostler_api::{ObjectKey, few, plain_line, resource::ResourceClaim};

use super::{WhyView, world::WhyWorld};

/// Explains a claim; `None` where there is none.
pub(super) fn explained(view: &WhyView<'_>, key: &ObjectKey) -> Option<String> {
    let claim = view.world.claims.get(key)?;
    let mut text = format!("ResourceClaim {key}: {}\n", state(claim));
    for line in lines(view, key, claim) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "  {}", plain_line(&line));
    }
    Some(text)
}

fn state(claim: &ResourceClaim) -> String {
    let devices = claim.status.allocation.as_ref().map(|it| it.devices.results.len());
    let state = match devices {
        None => "it has no devices yet".to_owned(),
        Some(1) => "it has 1 device".to_owned(),
        Some(count) => format!("it has {count} devices"),
    };
    if claim.metadata.deletion_timestamp.is_some() { format!("{state}, and is being deleted") } else { state }
}

fn lines(view: &WhyView<'_>, key: &ObjectKey, claim: &ResourceClaim) -> Vec<String> {
    let mut lines = Vec::new();
    let allocation = claim.status.allocation.as_ref();
    for it in allocation.map(|it| it.devices.results.as_slice()).unwrap_or_default() {
        let admin = if it.admin_access == Some(true) { ", with administrative access" } else { "" };
        lines.push(format!("request {}: device {}/{}/{}{admin}", it.request, it.driver, it.pool, it.device));
    }
    lines.extend(view.attachments().of_claim(claim));
    let users: Vec<&str> = claim.status.reserved_for.iter().map(|user| &*user.name).collect();
    match (&users[..], allocation) {
        ([], Some(_)) => {
            lines.push("no pod uses it: its devices stay its own until it is deleted, or freed".to_owned())
        }
        ([], None) => {}
        _ => lines.push(format!("used by {}", few(&users))),
    }
    let named = pods(view.world, key);
    if allocation.is_none() {
        if named.is_empty() {
            lines.push("no pod names it, and devices are given only once a pod needs them".to_owned());
        }
        lines.extend(named.iter().filter_map(|pod| Some(view.answer(pod)?.sentence())));
        lines.extend(view.attachments().hidden());
    }
    let events = view.world.events.iter().filter(|event| event.is_about("ResourceClaim", key));
    lines.extend(events.map(|event| format!("Event {}: {}", event.reason, event.message.trim())));
    lines
}

/// Returns the pods that name a claim, or for which it was made.
fn pods(world: &WhyWorld, key: &ObjectKey) -> Vec<ObjectKey> {
    let names = |pod: &hostler_api::core::Pod| {
        let made = pod.status.resource_claim_statuses.iter();
        pod.spec.resource_claims.iter().chain(made).any(|it| it.resource_claim_name.as_ref() == Some(&key.name))
    };
    let here = world.manifests.pods.iter().filter(|(pod, _)| pod.namespace == key.namespace);
    here.filter(|(_, pod)| names(pod)).map(|(pod, _)| pod.clone()).collect()
}
