//! Devices behind switches in answers about claims and pods: how far the attachment of a device has come, and the reason
//! for which another device is not offered. Pure.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    fabric::{AttachmentPhase, FabricAttachment, FabricNodeReport, of_fabric_pool},
    resource::{DeviceRequestAllocationResult, ResourceClaim},
};
use hostler_cluster::since_1970;

use super::{
    cause::{CauseKind, PodCause},
    claims::{ExplainedClaim, FoundClaim},
};
use crate::called;

/// FabricAttachments by name, and the time since 1970 at which they are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttachmentFacts<'w> {
    pub(super) attachments: &'w BTreeMap<String, FabricAttachment>,
    /// True if FabricAttachments could be read.
    pub(super) is_readable: bool,
    pub(super) now: Duration,
}

impl<'w> AttachmentFacts<'w> {
    /// Says how far the attachment of each device behind a switch has come that a claim has, one sentence for each fact.
    pub(super) fn of_claim(&self, claim: &ResourceClaim) -> Vec<String> {
        behind_switches(claim).flat_map(|result| self.of_device(claim, result)).collect()
    }

    fn of_device(&self, claim: &ResourceClaim, result: &DeviceRequestAllocationResult) -> Vec<String> {
        let (device, manager) = (&*result.device, manager_of(result));
        let Some(attachment) = self.attachments.get(device) else { return vec![self.unattached(device)] };
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        if attachment.spec.claim.as_ref().is_none_or(|of| of.uid != uid) {
            let state = words(device, attachment);
            let next = format!("next the claim gets the device once that has ended, or another one: {}", shown());
            return vec![format!("device {device} is not the claim's yet: {state}"), next];
        }
        let is_done = attachment.status.phase == AttachmentPhase::Ready;
        let end = self.end(attachment).filter(|_| !is_done);
        let report = self.report(attachment).filter(|_| !is_done);
        let next = next_step(attachment, manager);
        [Some(words(device, attachment)), report, end, Some(next)].into_iter().flatten().collect()
    }

    fn unattached(&self, device: &str) -> String {
        match self.is_readable {
            true => format!(
                "device {device} is behind a switch and has no FabricAttachment yet: the controller that leads makes it within \
                 seconds, and {} doctor says why if it does not",
                called::program()
            ),
            false => format!("device {device} is behind a switch; how far its attachment is, you may not read"),
        }
    }

    /// Says until when the device must be ready.
    fn end(&self, attachment: &FabricAttachment) -> Option<String> {
        let FabricAttachment { status, .. } = attachment;
        let deadline = status.deadline.as_deref()?;
        let is_over = since_1970(deadline).is_some_and(|deadline| deadline <= self.now);
        match status.phase {
            AttachmentPhase::Pending | AttachmentPhase::Attaching | AttachmentPhase::Attached if !is_over => {
                Some(format!("the claim is given another device if the device is not ready at {deadline}"))
            }
            AttachmentPhase::Pending | AttachmentPhase::Attaching | AttachmentPhase::Attached => {
                Some(format!("the time for it was over at {deadline}: the controller that leads gives the attempt up"))
            }
            _ => None,
        }
    }

    /// Says what the node has reported on the present attempt, where a report is due.
    fn report(&self, attachment: &FabricAttachment) -> Option<String> {
        let FabricAttachment { spec, status, .. } = attachment;
        let is_due = matches!(status.phase, AttachmentPhase::Attached | AttachmentPhase::Releasing);
        match attachment.node_report() {
            Some(report) => Some(reported(&spec.node_name, report)),
            None => is_due.then(|| format!("node {} has not reported on the device yet", spec.node_name)),
        }
    }

    /// Says which devices behind switches are not offered and why, beside those that a claim has and can use.
    pub(super) fn hidden(&self) -> Vec<String> {
        self.attachments.iter().filter_map(|(device, attachment)| self.hidden_device(device, attachment)).collect()
    }

    fn hidden_device(&self, device: &str, attachment: &FabricAttachment) -> Option<String> {
        let status = &attachment.status;
        match status.phase {
            // Its claim is the holder of the device, whom the answer names.
            AttachmentPhase::Ready => None,
            AttachmentPhase::Detached => {
                let until = status.retry_at.as_deref()?;
                since_1970(until).filter(|until| *until > self.now)?;
                let FabricAttachment { status, .. } = attachment;
                let quarantined = if status.reason == "Quarantined" { "quarantined" } else { "not offered" };
                let failures = match status.failures {
                    0 => String::new(),
                    1 => ", after 1 failed attachment".to_owned(),
                    count => format!(", after {count} failed attachments in a row"),
                };
                Some(format!("device {device} is {quarantined} until {until}{failures}{}", said(&status.message)))
            }
            _ => Some(words(device, attachment)),
        }
    }

    /// Returns the cause of a pod that waits for a device to be attached.
    pub(super) fn waited_for(&self, claims: &[ExplainedClaim<'_>]) -> Option<PodCause> {
        let found = claims.iter().filter_map(|claim| match &claim.found {
            FoundClaim::There(key, found) => Some((key, *found)),
            _ => None,
        });
        found.into_iter().find_map(|(key, claim)| {
            let waiting = behind_switches(claim).find(|result| !self.is_ready(claim, &result.device))?;
            let told = self.of_device(claim, waiting);
            let reason = format!("its claim {} has a device that is not attached yet: {}", key.name, told.first()?);
            let fix = format!("wait; {} explain claim -n {} {} says more", called::program(), key.namespace, key.name);
            Some(PodCause::new(CauseKind::NotAttached, reason).with_fix(fix))
        })
    }

    fn is_ready(&self, claim: &ResourceClaim, device: &str) -> bool {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        self.attachments.get(device).is_some_and(|attachment| {
            let is_its = attachment.spec.claim.as_ref().is_some_and(|of| of.uid == uid);
            is_its && attachment.status.phase == AttachmentPhase::Ready
        })
    }
}

/// The devices behind switches that a claim has.
fn behind_switches(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
    results.filter(|result| of_fabric_pool(&result.pool).is_some())
}

fn manager_of(result: &DeviceRequestAllocationResult) -> &str {
    of_fabric_pool(&result.pool).map_or("", |(manager, _)| manager)
}

/// Says what happens to a device, for whom, since when and why.
fn words(device: &str, attachment: &FabricAttachment) -> String {
    let FabricAttachment { spec, status, .. } = attachment;
    let node = &spec.node_name;
    let claim = spec.claim.as_ref().map(|it| format!("claim {}/{}", it.namespace, it.name));
    let keeper = || spec.kept_for.as_ref().map(|it| format!("Reservation {}", it.name));
    let claim = claim.or_else(keeper).unwrap_or_else(|| "no claim".to_owned());
    let what = match status.phase {
        AttachmentPhase::Pending => format!("is to be attached to node {node} for {claim}"),
        AttachmentPhase::Attaching => format!("is being attached to node {node} for {claim}"),
        AttachmentPhase::Attached => format!("is attached for {claim}, and node {node} has not found it in order yet"),
        AttachmentPhase::Ready => format!("is attached to node {node} for {claim}, and ready there"),
        AttachmentPhase::Failed => format!("was not attached to node {node} for {claim}"),
        AttachmentPhase::Releasing => format!("is given back by node {node}, which had it for {claim}"),
        AttachmentPhase::Detaching => format!("is being detached from node {node}, which had it for {claim}"),
        AttachmentPhase::Detached => format!("is on no node; node {node} had it for {claim}"),
        AttachmentPhase::Unknown => format!("is at node {node} for {claim}, in a phase of a later version of hostler"),
    };
    let since = status.since.as_ref().map(|since| format!(" (since {since})")).unwrap_or_default();
    format!("device {device} {what}{since}{}", said(&status.message))
}

fn said(message: &str) -> String {
    let message = message.trim();
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

fn reported(node: &str, report: &FabricNodeReport) -> String {
    let since = report.since.as_ref().map(|since| format!(" (since {since})")).unwrap_or_default();
    format!("node {node} reports {:?}{since}{}", report.state, said(&report.message))
}

/// Says what happens next, or what a person does.
fn next_step(attachment: &FabricAttachment, manager: &str) -> String {
    let node = &attachment.spec.node_name;
    let next = match attachment.status.phase {
        AttachmentPhase::Pending | AttachmentPhase::Attaching => {
            format!("fabric manager {manager} attaches the device")
        }
        AttachmentPhase::Attached => {
            format!(
                "the daemon of node {node} finds and checks the device: hostler status there, and its log, say more"
            )
        }
        AttachmentPhase::Ready => "the pod is bound, and prepared on its node".to_owned(),
        AttachmentPhase::Failed => "the scheduler gives the claim another device".to_owned(),
        AttachmentPhase::Releasing => format!(
            "node {node} lets go of the device: end what uses it there; where the machine is off for good, delete its Node"
        ),
        AttachmentPhase::Detaching => format!("fabric manager {manager} detaches the device"),
        AttachmentPhase::Detached => "the device is attached anew once its pause is over".to_owned(),
        AttachmentPhase::Unknown => "the controller that leads tells: upgrade this program".to_owned(),
    };
    format!("next {next}")
}

/// The command that shows all devices behind switches.
fn shown() -> String {
    format!("{} fabric shows it", called::program())
}

#[cfg(test)]
mod tests;
