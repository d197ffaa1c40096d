//! What is to be said of one request, and whether room is to be looked for.

use std::{collections::BTreeMap, time::Duration};

use hostler_allocator::plan::PodSet;
use hostler_api::provisioning::{ProvisioningConditionType as Type, ProvisioningReason as Reason};

use super::{
    check::{CheckVerdict, FoundCapacity},
    clock::ProvisionMoment,
    consume::{pod_sets, scheduled},
    memory::{LONGEST_PAUSE, RequestMemory},
    objects::{ProvisionObjects, SeenRequest},
    parameters::{RequestParameters, unusable},
    status::{NODE, NODES, StatusWord},
    words,
};

/// Some who make requests make their templates after them, since they are to go with the request: Kueue did for long.
const TEMPLATES_COME: Duration = Duration::from_secs(60);

/// What is to be said of a request, and what to be done.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) words: Vec<StatusWord>,
    pub(super) details: BTreeMap<&'static str, String>,
    /// Whether it waits for a yes.
    pub(super) is_open: bool,
    /// When the next thing happens by itself.
    pub(super) due: Option<Duration>,
    /// The pods that room is to be looked for.
    pub(super) wanted: Option<Vec<PodSet>>,
}

/// Whether nothing is said of it any more. Where somebody says that nobody can say whether it is provisioned, it is left to him.
pub(super) fn is_over(request: &SeenRequest) -> bool {
    let status = &request.status;
    status.is(Type::Failed) || status.is(Type::BookingExpired) || status.is_unknown()
}

impl Decision {
    /// Decides about a request that is seen as it was last written.
    pub(super) fn about(
        request: &SeenRequest,
        memory: &mut RequestMemory,
        now: ProvisionMoment,
        world: &ProvisionObjects,
    ) -> Self {
        if is_over(request) {
            return Self::default();
        }
        let parameters = match (unusable(&request.spec), RequestParameters::read(&request.spec)) {
            (None, Ok(parameters)) => parameters,
            (Some(problem), _) | (None, Err(problem)) => return Self::failed(Reason::FailedToCreatePods, problem),
        };
        let templates_due = memory.created.reaches(TEMPLATES_COME);
        let sets = pod_sets(request, world);
        if request.status.is(Type::Provisioned) {
            memory.verdict = None;
            let ends = memory.answered(&request.status, now).reaches(parameters.booking);
            return match (Self::ended(request, &parameters, ends, now, world), sets) {
                (Some(decision), _) => decision,
                (None, Ok(_)) => Self { due: Some(ends), ..Self::default() },
                (None, Err(_)) if now.steady < templates_due => {
                    Self { due: Some(templates_due.min(ends)), ..Self::default() }
                }
                (None, Err(template)) => Self::failed(Reason::FailedToBookCapacity, no_template(&template)),
            };
        }
        let ends = memory.created.reaches(parameters.validity);
        let mut decision = Self { is_open: true, words: vec![accepted(&parameters)], ..Self::default() };
        match (&memory.verdict, sets) {
            (Some(verdict), _) => decision.say(verdict, &parameters),
            _ if now.steady >= ends => {
                let message = format!("no capacity was found within {}", words::time(parameters.validity));
                return Self::failed(Reason::Expired, message);
            }
            (None, Err(_)) if now.steady < templates_due => decision.due = Some(templates_due.min(ends)),
            (None, Err(template)) => return Self::failed(Reason::FailedToCreatePods, no_template(&template)),
            (None, Ok(_)) if now.steady < memory.due => decision.due = Some(memory.due.min(ends)),
            (None, Ok(sets)) => (decision.due, decision.wanted) = (Some(ends), Some(sets)),
        }
        decision
    }

    fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self { words: vec![StatusWord::yes(Type::Failed, reason, message)], ..Self::default() }
    }

    /// What is booked is used up, or its time is over.
    fn ended(
        request: &SeenRequest,
        parameters: &RequestParameters,
        ends: Duration,
        now: ProvisionMoment,
        world: &ProvisionObjects,
    ) -> Option<Self> {
        let (pods, there) = (request.pods(), scheduled(request, world));
        let (reason, message) = if i64::try_from(there).is_ok_and(|there| there >= pods) {
            (Reason::CapacityBookingConsumed, format!("all {pods} pods have their node"))
        } else if now.steady >= ends {
            let time = words::time(parameters.booking);
            let message =
                format!("after {time} {there} of {pods} pods have a node; for the others nothing is booked now");
            (Reason::CapacityReservationTimeExpired, message)
        } else {
            return None;
        };
        Some(Self { words: vec![StatusWord::yes(Type::BookingExpired, reason, message)], ..Self::default() })
    }

    fn say(&mut self, verdict: &CheckVerdict, parameters: &RequestParameters) {
        match verdict {
            CheckVerdict::Found(found) => self.say_found(found, parameters),
            CheckVerdict::NotFound(message) => self.say_no(Reason::CapacityIsNotFound, message, parameters),
            CheckVerdict::Undecided(message) => self.say_no(Reason::FailedToCheckCapacity, message, parameters),
        }
    }

    fn say_found(&mut self, found: &FoundCapacity, parameters: &RequestParameters) {
        let FoundCapacity { message, nodes, node } = found;
        let time = words::time(parameters.booking);
        let booked = format!(
            "{message}; for {time} no other ProvisioningRequest is told the same, but nothing keeps away pods that come without one"
        );
        self.words.push(StatusWord::yes(Type::Provisioned, Reason::CapacityIsFound, booked));
        self.words.push(StatusWord::yes(Type::CapacityAvailable, Reason::CapacityIsFound, message));
        self.details.insert(NODES, nodes.clone());
        self.details.extend(node.iter().map(|node| (NODE, node.clone())));
    }

    fn say_no(&mut self, reason: Reason, message: &str, parameters: &RequestParameters) {
        self.words.push(StatusWord::no(Type::CapacityAvailable, reason, message));
        if parameters.is_final {
            self.is_open = false;
            self.words.push(StatusWord::yes(Type::Failed, reason, format!("{message}; noRetry is true")));
        } else {
            let longest = words::time(LONGEST_PAUSE);
            let message = format!("{message}; it is looked for again, at the latest every {longest}");
            self.words.push(StatusWord::no(Type::Provisioned, reason, message));
        }
    }
}

fn accepted(parameters: &RequestParameters) -> StatusWord {
    let mut message = "hostler-controller looks for capacity".to_owned();
    for remark in &parameters.remarks {
        message.push_str("; ");
        message.push_str(remark);
    }
    StatusWord::yes(Type::Accepted, Reason::Accepted, message)
}

fn no_template(template: &str) -> String {
    format!("there is no PodTemplate {template}; make a request anew when there is")
}
