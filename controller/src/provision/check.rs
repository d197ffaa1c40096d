//! A question to the planner: which requests of a batch fit, one after the other, beside all bookings. A request that
//! fits counts as booked for the next ones. Takes seconds in a large cluster: not for threads that must not wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    time::Duration,
};

use hostler_allocator::plan::{
    BoxSize, CutShort, PlacedDevice, Placement, Plan, PlanBoxes, PlanOptions, PodSet, QuotaAmounts, SetPlan, Snapshot,
    Verdict,
};
use hostler_api::{ObjectKey, reservation::PlannedDevice};

use super::{
    messages,
    plan_hash::{placements, plan_hash},
    splits::reservation_starts,
};
use crate::{
    hold::{DeviceKey, add_taken},
    requests::ProvisionClass,
};

/// The answer to all requests if the bookings cannot be placed: the room that they leave is unknown.
const CROWDED: &str = "what is booked for ProvisioningRequests takes more work to place than there is for those of one \
                       namespace; before some of it is over, nobody can say what room is left";

/// A batch of requests for the planner.
#[derive(Clone, Debug)]
pub(crate) struct CheckBatch {
    /// Number of the question.
    pub(super) number: u64,
    /// Pods for which room is booked, by request.
    pub(super) bookings: Vec<Vec<PodSet>>,
    /// Devices that Reservations keep, or are about to.
    pub(super) taken: BTreeSet<DeviceKey>,
    /// The promises of Reservations, by namespace, as quotas count them.
    pub(super) promised: BTreeMap<String, QuotaAmounts>,
    /// Requests to place, in turn.
    pub(super) candidates: Vec<CheckCandidate>,
    /// Time after which no further candidate is begun.
    pub(super) time_box: Duration,
    /// Limit of work and time for the bookings and candidates of each namespace.
    pub(super) asker_box: BoxSize,
}

/// A request for the planner.
#[derive(Clone, Debug)]
pub(super) struct CheckCandidate {
    pub(super) uid: String,
    /// Namespace of the request.
    pub(super) namespace: String,
    pub(super) class: ProvisionClass,
    pub(super) sets: Vec<PodSet>,
}

/// The answer to a batch.
#[derive(Debug)]
pub(crate) struct CheckAnswer {
    pub(super) number: u64,
    /// Verdicts by UID; a request that is not listed was not examined.
    pub(super) verdicts: Vec<(String, CheckVerdict)>,
}

/// The verdict about all pods of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CheckVerdict {
    /// There is room.
    Found(FoundCapacity),
    /// There is no room, and why.
    NotFound(String),
    /// The planner does not know something that decides.
    Undecided(String),
    /// Bookings cannot be placed, which is not the fault of the request.
    Crowded(String),
}

/// The room that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct FoundCapacity {
    /// The message for the request's condition.
    pub(super) message: String,
    /// The nodes, with how many pods each takes: `n1=4,n2=4`.
    pub(super) nodes: String,
    /// The node, if there is only one.
    pub(super) node: Option<String>,
    /// Hash of the plan.
    pub(super) plan_hash: String,
    /// Devices of the pods of each set, where Reservations can keep them.
    pub(super) devices: Vec<Vec<PodDevice>>,
}

/// A device that is planned for a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PodDevice {
    /// Index of the pod in its set.
    pub(super) pod: u32,
    pub(super) device: PlannedDevice,
}

impl CheckBatch {
    /// Answers the batch; `elapsed` returns the time that it has taken so far. The first candidate is always examined.
    pub(crate) fn run(
        &self,
        snapshot: &Snapshot,
        options: &PlanOptions,
        elapsed: &mut dyn FnMut() -> Duration,
    ) -> CheckAnswer {
        let mut boxes = PlanBoxes::for_each_namespace(self.asker_box);
        let booked = with_booked(self.without_taken(snapshot), &self.bookings, options, &mut boxes);
        let Some(mut cluster) = booked else { return self.crowded() };
        let (mut promised, quotas) = (self.promised(snapshot), snapshot.facts().quota_book());
        let mut verdicts = Vec::new();
        for candidate in &self.candidates {
            if !verdicts.is_empty() && elapsed() >= self.time_box {
                break;
            }
            let (namespace, asked) = candidate.quota_amounts(snapshot);
            let promised = promised.entry(namespace).or_default();
            if let Some(problem) = quotas.problem(&candidate.namespace, promised, &asked, iter::empty()) {
                verdicts.push((candidate.uid.clone(), CheckVerdict::NotFound(problem)));
                continue;
            }
            boxes.open(&candidate.namespace);
            // Reservations are handed the devices of the plan. Larger requests have none, and would have too many names.
            let names_devices = !reservation_starts(&candidate.sets, snapshot.facts()).is_empty();
            let naming = PlanOptions { names_devices, ..options.clone() };
            let plan = cluster.plan_within(&candidate.sets, &naming, &mut boxes);
            if plan.sets.iter().any(|set| set.cut_short == Some(CutShort::NotReached)) && !verdicts.is_empty() {
                // Other requests of its namespace used up the time; in a later batch the request has its turn without
                // them.
                continue;
            }
            let verdict = verdict(candidate, &plan);
            if matches!(verdict, CheckVerdict::Found(_)) {
                cluster = plan.after().clone();
                promised.add(&asked, 1);
            }
            verdicts.push((candidate.uid.clone(), verdict));
        }
        CheckAnswer { number: self.number, verdicts }
    }

    /// Returns the promises of Reservations, and bookings whose devices no Reservation keeps.
    fn promised(&self, snapshot: &Snapshot) -> BTreeMap<String, QuotaAmounts> {
        let mut promised = self.promised.clone();
        for sets in &self.bookings {
            for set in sets {
                let namespace = promised.entry(ObjectKey::new(&set.namespace, "").namespace).or_default();
                namespace.add(&snapshot.facts().quota_amounts(std::slice::from_ref(set)), 1);
            }
        }
        promised
    }

    /// Answers that no request can be promised anything.
    fn crowded(&self) -> CheckAnswer {
        let uids = self.candidates.iter().map(|candidate| candidate.uid.clone());
        let verdicts = uids.map(|uid| (uid, CheckVerdict::Crowded(CROWDED.to_owned()))).collect();
        CheckAnswer { number: self.number, verdicts }
    }

    fn without_taken(&self, snapshot: &Snapshot) -> Snapshot {
        if self.taken.is_empty() {
            return snapshot.clone();
        }
        let mut facts = snapshot.facts().clone();
        add_taken(&mut facts, &self.taken);
        snapshot.with(facts)
    }

    /// Returns an answer without verdicts: the thread that should answer has ended.
    pub(crate) fn unanswered(number: u64) -> CheckAnswer {
        CheckAnswer { number, verdicts: Vec::new() }
    }

    /// Returns the number of the question.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl CheckCandidate {
    /// Returns true if pods of the request must run near or far from others, or be spread. A booking keeps room, and
    /// not what other pods do until its pods come.
    fn has_pod_terms(&self) -> bool {
        self.sets.iter().any(PodSet::has_pod_terms)
    }

    /// Returns the candidate's namespace, and the amounts of its pods there.
    fn quota_amounts(&self, snapshot: &Snapshot) -> (String, QuotaAmounts) {
        (ObjectKey::new(&self.namespace, "").namespace, snapshot.facts().quota_amounts(&self.sets))
    }
}

/// Returns the cluster with the pods of all bookings; `None` where a booking was cut short: its room might else be
/// promised to others. Bookings use up the box of their namespace: a namespace with many of them can ask for less.
fn with_booked(
    mut cluster: Snapshot,
    bookings: &[Vec<PodSet>],
    options: &PlanOptions,
    boxes: &mut PlanBoxes,
) -> Option<Snapshot> {
    for sets in bookings {
        let plan = cluster.plan_within(sets, options, boxes);
        if plan.sets.iter().any(|set| set.cut_short.is_some()) {
            return None;
        }
        cluster = plan.after().clone();
    }
    Some(cluster)
}

fn verdict(candidate: &CheckCandidate, plan: &Plan) -> CheckVerdict {
    match plan.verdict() {
        Verdict::Fits if candidate.has_pod_terms() => {
            CheckVerdict::Undecided(messages::not_promised(plan, &candidate.sets))
        }
        Verdict::Fits => CheckVerdict::Found(FoundCapacity {
            message: messages::found(plan),
            nodes: messages::nodes(plan),
            node: messages::only_node(plan),
            plan_hash: plan_hash(&placements(plan)),
            devices: plan.sets.iter().map(pod_devices).collect(),
        }),
        Verdict::DoesNotFit => CheckVerdict::NotFound(messages::lacking(plan, candidate.class)),
        Verdict::Undecided => CheckVerdict::Undecided(messages::undecided(plan)),
    }
}

fn pod_devices(set: &SetPlan) -> Vec<PodDevice> {
    let of_node = |placement: &Placement| {
        let device = |it: &PlacedDevice| PodDevice {
            pod: it.pod,
            device: PlannedDevice {
                node_name: placement.node.clone(),
                driver: it.driver.clone(),
                pool: it.pool.clone(),
                device: it.device.clone(),
            },
        };
        placement.devices.iter().map(device).collect::<Vec<_>>()
    };
    set.placements.iter().flat_map(of_node).collect()
}
