//! The status of a request as it shall stand there. A condition keeps its time as long as its status does not change.

use std::{collections::BTreeMap, time::SystemTime};

use hostler_api::{
    hardware::{Condition, ConditionStatus},
    provisioning::{ProvisioningConditionType, ProvisioningReason, ProvisioningRequestStatus},
};
use hostler_cluster::rfc3339;

use super::{attach::ATTACH, event::ProvisionNotice, objects::SeenRequest};

/// Whose word the request waits for: other in every time that a controller leads.
pub(super) const TERM: &str = "controllerTerm";
/// Where there is room.
pub(super) const NODES: &str = "nodes";
/// The same, if it is one node.
pub(super) const NODE: &str = "node";
/// The Reservations that keep its devices, or are to.
pub(super) const RESERVATION: &str = "reservation";
/// What claims of its pods tolerate to be given what is kept.
pub(super) const TOLERATION: &str = "tolerationValue";
/// Until when it is told yes or no, while its devices are being closed to others.
pub(super) const ETA: &str = "eta";
/// Which plan it was told yes for: other where any pod or any device that is kept for one is somewhere else.
pub(super) const PLAN_HASH: &str = "plan-hash";
/// All details that are written here.
const DETAILS: [&str; 8] = [TERM, NODES, NODE, RESERVATION, TOLERATION, ETA, PLAN_HASH, ATTACH];

/// Of which somebody should know that it waits.
const LACKS: [ProvisioningReason; 4] = [
    ProvisioningReason::CapacityIsNotFound,
    ProvisioningReason::FailedToCheckCapacity,
    ProvisioningReason::ReplacingCapacity,
    ProvisioningReason::CapacityLost,
];

/// Reasons by which this controller says that capacity is revoked, or is not any more.
const REVOKED: [&str; 2] = [ProvisioningReason::CapacityLost.as_str(), ProvisioningReason::CapacityReplaced.as_str()];

/// Something to be said of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct StatusWord {
    kind: ProvisioningConditionType,
    status: ConditionStatus,
    reason: ProvisioningReason,
    message: String,
}

impl StatusWord {
    /// It is so.
    pub(super) fn yes(kind: ProvisioningConditionType, reason: ProvisioningReason, message: impl Into<String>) -> Self {
        Self { kind, status: ConditionStatus::True, reason, message: message.into() }
    }

    /// It is not.
    pub(super) fn no(kind: ProvisioningConditionType, reason: ProvisioningReason, message: impl Into<String>) -> Self {
        Self { kind, status: ConditionStatus::False, reason, message: message.into() }
    }

    /// Whether it is a word about that.
    pub(super) fn is_about(&self, kind: ProvisioningConditionType) -> bool {
        self.kind == kind
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

/// Everything that this controller says of a request, when this is said too; `None` where that stands there already. A detail
/// without a value is taken back.
pub(super) fn said(
    before: &ProvisioningRequestStatus,
    words: &[StatusWord],
    details: BTreeMap<&'static str, String>,
    now: SystemTime,
) -> Option<ProvisioningRequestStatus> {
    let condition = |kind: ProvisioningConditionType| {
        let last = before.condition(kind);
        let word = words.iter().find(|word| word.kind == kind);
        // A cloud says that capacity is revoked as well: what it says is its own.
        let own =
            last.filter(|it| kind != ProvisioningConditionType::CapacityRevoked || REVOKED.contains(&&*it.reason));
        word.map(|word| word.condition(last, now)).or_else(|| own.cloned())
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

/// Whether devices are being closed to others for it, and it has no answer yet.
fn is_closing(conditions: &[Condition]) -> bool {
    let of = |kind: ProvisioningConditionType| conditions.iter().find(move |it| it.kind == kind.as_str());
    let is_failed = of(ProvisioningConditionType::Failed).is_some_and(Condition::is_true);
    let closing = ProvisioningReason::BookingCapacity.as_str();
    !is_failed && of(ProvisioningConditionType::Provisioned).is_some_and(|it| it.reason == closing)
}

/// Details of this controller that stand there and shall not: a patch that takes them away, empty where there are none.
pub(super) fn taken_back(
    wanted: &ProvisioningRequestStatus,
    stands: &ProvisioningRequestStatus,
) -> BTreeMap<&'static str, Option<String>> {
    let has = |status: &ProvisioningRequestStatus, key: &str| status.provisioning_class_details.contains_key(key);
    let left = DETAILS.into_iter().filter(|key| has(stands, key) && !has(wanted, key));
    left.map(|key| (key, None)).collect()
}

/// Whether everything stands there that this controller says, and nothing that it has taken back.
pub(super) fn stands(wanted: &ProvisioningRequestStatus, there: &ProvisioningRequestStatus) -> bool {
    let is_said = |key: &&str| {
        let detail = |status: &ProvisioningRequestStatus| status.provisioning_class_details.get(*key).cloned();
        detail(wanted) == detail(there)
    };
    wanted.conditions.iter().all(|condition| there.conditions.contains(condition)) && DETAILS.iter().all(is_said)
}

/// What people are told when this is written: what has become of their request, and nothing twice.
pub(super) fn notices(request: &SeenRequest, words: &[StatusWord]) -> Vec<ProvisionNotice> {
    use ProvisioningConditionType as Type;
    let news = words.iter().filter(|word| {
        let before = request.status.condition(word.kind);
        let is_told =
            matches!(word.kind, Type::Provisioned | Type::Failed | Type::BookingExpired | Type::CapacityRevoked);
        is_told && before.is_none_or(|it| it.status != word.status || it.reason != word.reason.as_str())
    });
    news.map(|word| ProvisionNotice {
        key: request.key.clone(),
        uid: request.uid().to_owned(),
        is_warning: word.kind == Type::Failed || LACKS.contains(&word.reason),
        reason: word.reason.as_str(),
        message: word.message.clone(),
    })
    .collect()
}
