//! The status of a request to be written. A condition keeps its time while its status stays the same.

use std::{collections::BTreeMap, time::SystemTime};

use hostler_api::{
    hardware::{Condition, ConditionStatus},
    provisioning::{ProvisioningConditionType, ProvisioningReason, ProvisioningRequestStatus},
};
use hostler_cluster::rfc3339;

use super::event::ProvisionEventNote;
use crate::requests::{CONTROLLER_TERM, SeenRequest};

/// Nodes with room.
pub(super) const NODES: &str = "nodes";
/// The node, if there is only one.
pub(super) const NODE: &str = "node";
/// Reservations that keep its devices, or are to.
pub(super) const RESERVATION: &str = "reservation";
/// Toleration values that claims of its pods need for kept devices.
pub(super) const TOLERATION: &str = "tolerationValue";
/// Time until which the request gets its answer, while its devices are being closed to others.
pub(super) const ETA: &str = "eta";
/// Hash of the plan that the request was told yes for: it changes if any pod or any kept device has another place.
pub(super) const PLAN_HASH: &str = "plan-hash";
/// All details that this controller writes.
const DETAILS: [&str; 7] = [CONTROLLER_TERM, NODES, NODE, RESERVATION, TOLERATION, ETA, PLAN_HASH];

/// Reasons that make a warning: the request waits, and a user should know.
const LACKS: [ProvisioningReason; 4] = [
    ProvisioningReason::CapacityIsNotFound,
    ProvisioningReason::FailedToCheckCapacity,
    ProvisioningReason::ReplacingCapacity,
    ProvisioningReason::CapacityLost,
];

/// This controller's reasons of the condition for revoked capacity.
const REVOKED: [&str; 2] = [ProvisioningReason::CapacityLost.as_str(), ProvisioningReason::CapacityReplaced.as_str()];

/// A condition to write into a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ConditionChange {
    kind: ProvisioningConditionType,
    status: ConditionStatus,
    reason: ProvisioningReason,
    message: String,
}

impl ConditionChange {
    /// Returns the condition with status True.
    pub(super) fn yes(kind: ProvisioningConditionType, reason: ProvisioningReason, message: impl Into<String>) -> Self {
        Self { kind, status: ConditionStatus::True, reason, message: message.into() }
    }

    /// Returns the condition with status False.
    pub(super) fn no(kind: ProvisioningConditionType, reason: ProvisioningReason, message: impl Into<String>) -> Self {
        Self { kind, status: ConditionStatus::False, reason, message: message.into() }
    }

    fn condition(&self, before: Option<&Condition>, now: SystemTime) -> Condition {
        let since = before.filter(|before| before.status == self.status).map(|it| it.last_transition_time.clone());
        Condition {
            kind: self.kind.as_str().to_owned(),
            status: self.status,
            reason: self.reason.as_str().to_owned(),
            message: self.message.clone(),
            last_transition_time: since.unwrap_or_else(|| rfc3339(now)),
        }
    }
}

/// Returns all conditions and details of this controller, with these changes; `None` if the request has them already. A
/// detail with an empty value is removed.
pub(super) fn said(
    before: &ProvisioningRequestStatus,
    changes: &[ConditionChange],
    details: BTreeMap<&'static str, String>,
    now: SystemTime,
) -> Option<ProvisioningRequestStatus> {
    let condition = |kind: ProvisioningConditionType| {
        let last = before.condition(kind);
        let change = changes.iter().find(|change| change.kind == kind);
        // Cloud providers also revoke capacity: their condition is left alone.
        let own =
            last.filter(|it| kind != ProvisioningConditionType::CapacityRevoked || REVOKED.contains(&&*it.reason));
        change.map(|change| change.condition(last, now)).or_else(|| own.cloned())
    };
    let mut known: BTreeMap<String, String> = before.provisioning_class_details.clone();
    known.retain(|key, _| DETAILS.contains(&&**key));
    let mut all = known.clone();
    all.extend(details.into_iter().map(|(key, value)| (key.to_owned(), value)));
    let conditions: Vec<Condition> = ProvisioningConditionType::ALL.into_iter().filter_map(condition).collect();
    let is_closing = is_closing(&conditions);
    all.retain(|key, value| !value.is_empty() && (is_closing || key != ETA));
    let details_stand = all == known;
    let after = ProvisioningRequestStatus { conditions, provisioning_class_details: all };
    let stands = |condition: &Condition| before.conditions.contains(condition);
    let is_there = after.conditions.iter().all(stands) && details_stand;
    (!is_there).then_some(after)
}

/// Returns true if devices are being closed to others, and there is no answer yet.
fn is_closing(conditions: &[Condition]) -> bool {
    let of = |kind: ProvisioningConditionType| conditions.iter().find(move |it| it.kind == kind.as_str());
    let is_failed = of(ProvisioningConditionType::Failed).is_some_and(Condition::is_true);
    let closing = ProvisioningReason::BookingCapacity.as_str();
    !is_failed && of(ProvisioningConditionType::Provisioned).is_some_and(|it| it.reason == closing)
}

/// Returns details of this controller that are to be removed, as a patch.
pub(super) fn taken_back(
    wanted: &ProvisioningRequestStatus,
    stands: &ProvisioningRequestStatus,
) -> BTreeMap<&'static str, Option<String>> {
    let has = |status: &ProvisioningRequestStatus, key: &str| status.provisioning_class_details.contains_key(key);
    let left = DETAILS.into_iter().filter(|key| has(stands, key) && !has(wanted, key));
    left.map(|key| (key, None)).collect()
}

/// Returns true if the request has everything that this controller writes, and nothing that it has removed.
pub(super) fn stands(wanted: &ProvisioningRequestStatus, there: &ProvisioningRequestStatus) -> bool {
    let is_said = |key: &&str| {
        let detail = |status: &ProvisioningRequestStatus| status.provisioning_class_details.get(*key).cloned();
        detail(wanted) == detail(there)
    };
    wanted.conditions.iter().all(|condition| there.conditions.contains(condition)) && DETAILS.iter().all(is_said)
}

/// Returns the Events for this write: each change that users need to know, once.
pub(super) fn notices(request: &SeenRequest, changes: &[ConditionChange]) -> Vec<ProvisionEventNote> {
    use ProvisioningConditionType as Type;
    let news = changes.iter().filter(|change| {
        let before = request.status.condition(change.kind);
        let is_told =
            matches!(change.kind, Type::Provisioned | Type::Failed | Type::BookingExpired | Type::CapacityRevoked);
        is_told && before.is_none_or(|it| it.status != change.status || it.reason != change.reason.as_str())
    });
    news.map(|change| ProvisionEventNote {
        key: request.key.clone(),
        uid: request.uid().to_owned(),
        is_warning: change.kind == Type::Failed || LACKS.contains(&change.reason),
        reason: change.reason.as_str(),
        message: change.message.clone(),
    })
    .collect()
}
