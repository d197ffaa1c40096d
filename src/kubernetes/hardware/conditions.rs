//! Conditions of a report: if it can be relied on, if all is well, and since when. Pure.

use hostler_api::{
    few,
    hardware::{
        Condition, ConditionStatus, HardwareConditionReason, HardwareConditionType, MAX_MESSAGE_BYTES,
        NodeHardwareStatus,
    },
    plain_line,
};

use crate::{
    claims::{ClaimOperation, ClaimTable},
    inventory::Inventory,
    kubernetes::holds::HoldsInForce,
    usage::holders::{DeviceHealth, DeviceUsage},
};

/// The conditions, without the times.
pub(super) fn conditions(
    inventory: &Inventory,
    claims: &ClaimTable,
    devices: &[DeviceUsage],
    holds: &HoldsInForce,
) -> Vec<Condition> {
    let always = [ready(inventory, claims), healthy(inventory, devices)];
    always.into_iter().chain(holds.is_wanted.then(|| holds_published(holds))).collect()
}

fn ready(inventory: &Inventory, claims: &ClaimTable) -> Condition {
    let kind = HardwareConditionType::Ready;
    let recovering =
        claims.claims.values().filter(|view| view.busy().is_some_and(|busy| busy.operation == ClaimOperation::Recover));
    let reason = match recovering.count() {
        _ if !inventory.unknown.is_empty() => HardwareConditionReason::BackendsUnknown,
        _ if inventory.pools.values().any(|pool| pool.stale.is_some()) => HardwareConditionReason::BackendsStale,
        0 => return condition(kind, ConditionStatus::True, HardwareConditionReason::BackendsAnswered, ""),
        claims => {
            let message = format!("{claims} claims of before the start are not made right yet");
            return condition(kind, ConditionStatus::False, HardwareConditionReason::Recovering, &message);
        }
    };
    condition(kind, ConditionStatus::False, reason, &inventory.doubts().join("; "))
}

/// Says that no new claim can be prepared, although all backends have answered.
pub(super) fn no_new_claims(conditions: &mut [Condition], fault: &str) {
    let kind = HardwareConditionType::Ready;
    if let Some(ready) = conditions.iter_mut().find(|it| it.kind == kind.as_str() && it.is_true()) {
        *ready = condition(kind, ConditionStatus::False, HardwareConditionReason::ClaimsUnreadable, fault);
    }
}

fn healthy(inventory: &Inventory, devices: &[DeviceUsage]) -> Condition {
    let kind = HardwareConditionType::Healthy;
    let named = |health: DeviceHealth| few(devices.iter().filter(|it| it.health == health).map(DeviceUsage::path));
    let (failing, unchecked) = (named(DeviceHealth::Unhealthy), named(DeviceHealth::Unknown));
    if !failing.is_empty() {
        return condition(kind, ConditionStatus::False, HardwareConditionReason::DevicesFail, &failing);
    }
    if !unchecked.is_empty() || !inventory.doubts().is_empty() {
        return condition(kind, ConditionStatus::Unknown, HardwareConditionReason::DevicesUnknown, &unchecked);
    }
    condition(kind, ConditionStatus::True, HardwareConditionReason::DevicesWork, "")
}

fn holds_published(holds: &HoldsInForce) -> Condition {
    let kind = HardwareConditionType::HoldsPublished;
    match few(&holds.refused) {
        refused if refused.is_empty() => {
            condition(kind, ConditionStatus::True, HardwareConditionReason::DevicesHeld, "")
        }
        refused => condition(kind, ConditionStatus::False, HardwareConditionReason::DevicesNotHeld, &refused),
    }
}

fn condition(
    kind: HardwareConditionType,
    status: ConditionStatus,
    reason: HardwareConditionReason,
    message: &str,
) -> Condition {
    Condition {
        kind: kind.as_str().to_owned(),
        status,
        reason: reason.as_str().to_owned(),
        message: cut(message),
        last_transition_time: String::new(),
    }
}

/// Adds times to a report: a condition that was so before keeps the time of the last report.
pub(super) fn stamped(content: NodeHardwareStatus, last: Option<&NodeHardwareStatus>, now: &str) -> NodeHardwareStatus {
    let is_new = last.is_none_or(|last| !says_the_same(&content, last));
    let since = last.filter(|_| !is_new).and_then(|last| last.last_change_time.clone());
    let conditions = content.conditions.into_iter().map(|condition| {
        let before = last.into_iter().flat_map(|last| &last.conditions);
        let before = before.filter(|it| it.kind == condition.kind && it.status == condition.status);
        let since = before.map(|it| it.last_transition_time.clone()).find(|since| !since.is_empty());
        Condition { last_transition_time: since.unwrap_or_else(|| now.to_owned()), ..condition }
    });
    NodeHardwareStatus {
        conditions: conditions.collect(),
        last_change_time: since.or_else(|| Some(now.to_owned())),
        last_report_time: Some(now.to_owned()),
        ..content
    }
}

/// True if two reports differ in nothing but times.
pub(super) fn says_the_same(one: &NodeHardwareStatus, other: &NodeHardwareStatus) -> bool {
    timeless(one) == timeless(other)
}

fn timeless(status: &NodeHardwareStatus) -> NodeHardwareStatus {
    let condition = |condition: &Condition| Condition { last_transition_time: String::new(), ..condition.clone() };
    NodeHardwareStatus {
        conditions: status.conditions.iter().map(condition).collect(),
        last_change_time: None,
        last_report_time: None,
        ..status.clone()
    }
}

/// As much of a text as an object has room for, on one line.
pub(super) fn cut(text: &str) -> String {
    let mut line = plain_line(text).into_owned();
    line.truncate(line.floor_char_boundary(MAX_MESSAGE_BYTES));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: ConditionStatus, version: &str) -> NodeHardwareStatus {
        let ready = condition(HardwareConditionType::Ready, status, HardwareConditionReason::BackendsAnswered, "");
        NodeHardwareStatus {
            conditions: vec![ready],
            hostler_version: version.to_owned(),
            ..NodeHardwareStatus::default()
        }
    }

    fn times(status: &NodeHardwareStatus) -> [&str; 3] {
        let time = |time: &'_ Option<String>| time.as_deref().unwrap_or_default().to_owned().leak() as &str;
        [&status.conditions[0].last_transition_time, time(&status.last_change_time), time(&status.last_report_time)]
    }

    #[test]
    fn a_sign_of_life_changes_the_time_of_the_report_and_nothing_else() {
        let first = stamped(said(ConditionStatus::True, "1"), None, "t1");
        assert_eq!(times(&first), ["t1", "t1", "t1"]);
        let sign = stamped(said(ConditionStatus::True, "1"), Some(&first), "t2");
        assert_eq!(times(&sign), ["t1", "t1", "t2"]);
        assert!(says_the_same(&first, &sign));
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_is_another() {
        let first = stamped(said(ConditionStatus::True, "1"), None, "t1");
        let other = stamped(said(ConditionStatus::True, "2"), Some(&first), "t2");
        assert_eq!(times(&other), ["t1", "t2", "t2"]);
        let turned = stamped(said(ConditionStatus::False, "2"), Some(&other), "t3");
        assert_eq!(times(&turned), ["t3", "t3", "t3"]);
    }

    #[test]
    fn what_somebody_else_has_written_is_no_time() {
        let strange = said(ConditionStatus::True, "1");
        assert_eq!(times(&stamped(said(ConditionStatus::True, "1"), Some(&strange), "t1")), ["t1", "t1", "t1"]);
    }
}
