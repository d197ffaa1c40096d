//! A card that a fabric manager attaches to this node, as this process knows it: the object as the server last told it,
//! what was last reported, and the order that is under way.

use std::time::{Duration, SystemTime};

use hostler_api::{
    Chain,
    fabric::{ErasureMethod, FabricAttachment, FabricNodeReport},
    plain_line,
};
use hostler_backend::{BackendError, OperationObstacle, OperationOutcome, OperationStep};
use hostler_cluster::{ApiFailure, Backoff, RawObject, RetryPauses, is_older, rfc3339};
use tokio::{sync::watch, time::Instant};
use tracing::{info, warn};

use super::{
    report::{CardAct, CardContext, CardDecision, CardOrderState, CardProgress, decide},
    serial_of,
};
use crate::{
    claims::{ClaimError, ClaimResult, ClaimTable, OrderStage},
    inventory::Inventory,
};

/// Pauses after orders that failed: what is in the way goes by itself, or people have to see to it.
const FIRST_ORDER_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_ORDER_PAUSE: Duration = Duration::from_secs(120);
/// Pauses after reports that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(120);
/// The longest message that the object has room for, in characters.
const LONGEST_MESSAGE_CHARS: usize = 1024;

/// A card that a fabric manager attaches to this node.
pub(super) struct AttachedCard {
    /// Serial number, by the object's name: the card is not the node's own, whatever else the object says.
    pub(super) serial: Option<u64>,
    attempt: CardAttempt,
    attachment: Option<FabricAttachment>,
    progress: CardProgress,
    order_after: Option<Instant>,
    order_pauses: Backoff,
    /// The last report that was written, and the version of the object that it made, until the watch has told of it.
    reported: Option<(FabricNodeReport, String)>,
    is_reporting: bool,
    report_after: Option<Instant>,
    report_pauses: RetryPauses,
}

/// The attempt that an order belongs to: an order and its outcome count for no other one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct CardAttempt {
    pub(super) uid: String,
    number: u32,
    is_release: bool,
}

/// The way of an order.
pub(super) enum OrderProgress {
    /// The order was given.
    Given(watch::Receiver<OrderStage>),
    /// The order was not given, for this reason.
    NotGiven(String),
}

/// The next call about a card.
pub(super) enum NextCall {
    Report(FabricNodeReport),
    Order(CardAct),
}

impl CardAttempt {
    pub(super) fn of(attachment: &FabricAttachment) -> Self {
        Self {
            uid: attachment.metadata.uid.clone().unwrap_or_default(),
            number: attachment.spec.attempt,
            is_release: attachment.spec.release,
        }
    }
}

impl AttachedCard {
    /// Reads an object; what was known of the card stays, unless it is about another attempt.
    pub(super) fn read(object: &RawObject, known: Option<Self>) -> Self {
        let attachment = object.read::<FabricAttachment>();
        if let Err(error) = &attachment {
            warn!(device = object.name(), error = %error, "a FabricAttachment makes no sense; its device is not published");
        }
        let attachment = attachment.ok();
        let attempt = attachment.as_ref().map(CardAttempt::of).unwrap_or_default();
        let version = object.version().resource_version;
        let known = known.filter(|known| known.attempt == attempt);
        let known = known
            .map(|known| Self { reported: known.reported.filter(|(_, written)| is_older(&version, written)), ..known });
        let card = known.unwrap_or_else(|| Self {
            serial: serial_of(object.name()),
            attempt,
            attachment: None,
            progress: CardProgress::default(),
            order_after: None,
            order_pauses: Backoff::new(FIRST_ORDER_PAUSE, LONGEST_ORDER_PAUSE),
            reported: None,
            is_reporting: false,
            report_after: None,
            report_pauses: RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE),
        });
        Self { attachment, ..card }
    }

    /// The attempt that calls are about.
    pub(super) fn attempt(&self) -> &CardAttempt {
        &self.attempt
    }

    /// Returns the calls to make now, and counts them as under way.
    pub(super) fn next_calls(&mut self, inventory: &Inventory, claims: &ClaimTable, now: Instant) -> Vec<NextCall> {
        if self.order_after.is_some_and(|at| at <= now) {
            self.order_after = None;
            self.progress.order = CardOrderState::Idle;
        }
        self.report_after.take_if(|at| *at <= now);
        let Some(attachment) = &self.attachment else { return Vec::new() };
        let context = CardContext { attachment, inventory, claims, progress: &self.progress };
        let CardDecision { report, act } = decide(&context);
        let mut calls = Vec::new();
        if let Some(report) = report.and_then(|report| self.to_report(report)) {
            self.is_reporting = true;
            calls.push(NextCall::Report(report));
        }
        if let Some(act) = act {
            self.progress.order = CardOrderState::Running(Vec::new());
            self.progress.not_erased.clone_from(&act.not_erased);
            calls.push(NextCall::Order(act));
        }
        calls
    }

    /// The report, with its time, if it is to be written now.
    fn to_report(&self, report: FabricNodeReport) -> Option<FabricNodeReport> {
        let last = self.reported.as_ref().map(|(report, _)| report).or(self.attachment.as_ref()?.status.node.as_ref());
        let last = last.filter(|last| last.attempt == report.attempt);
        let since = last.filter(|last| last.state == report.state).and_then(|last| last.since.clone());
        let message = plain_line(&report.message).chars().take(LONGEST_MESSAGE_CHARS).collect();
        let report = FabricNodeReport { message, since, ..report };
        if self.is_reporting || last == Some(&report) || self.report_after.is_some() {
            return None;
        }
        let since = report.since.clone().or_else(|| Some(rfc3339(SystemTime::now())));
        Some(FabricNodeReport { since, ..report })
    }

    /// Time at which there is something to do for the card.
    pub(super) fn due(&self) -> Option<Instant> {
        self.order_after.into_iter().chain(self.report_after).min()
    }

    /// Takes in what became of a report.
    pub(super) fn reported(&mut self, report: FabricNodeReport, result: Result<String, ApiFailure>) {
        self.is_reporting = false;
        match result {
            Ok(version) => {
                info!(state = ?report.state, local = report.device, reason = report.message, "reported an attached card");
                self.report_pauses.reset();
                self.reported = Some((report, version)).filter(|(report, _)| report.attempt == self.attempt.number);
            }
            Err(failure) => {
                let pauses = &mut self.report_pauses;
                let is_refused = matches!(failure.code(), Some(400 | 403 | 422));
                let pause = if is_refused { pauses.after_refusal(&failure) } else { pauses.after_outage(&failure) };
                warn!(error = %Chain(&failure), "failed to report an attached card; it is tried again");
                self.report_after = Some(Instant::now() + pause);
            }
        }
    }

    /// Takes in the stage of an order; gives it back while there is more to come. The order of another attempt is
    /// withdrawn, if it waits.
    pub(super) fn staged(
        &mut self,
        attempt: &CardAttempt,
        progress: OrderProgress,
    ) -> Option<watch::Receiver<OrderStage>> {
        if *attempt != self.attempt {
            return None;
        }
        let mut stage_rx = match progress {
            OrderProgress::Given(stage_rx) => stage_rx,
            OrderProgress::NotGiven(reason) => {
                self.order_failed(reason);
                return None;
            }
        };
        let stage = stage_rx.borrow_and_update().clone();
        match stage {
            OrderStage::Waiting(obstacles) => {
                let words = obstacles.iter().map(ToString::to_string).collect();
                self.progress.order = CardOrderState::Running(words);
            }
            OrderStage::UnderWay | OrderStage::Scanned => self.progress.order = CardOrderState::Running(Vec::new()),
            OrderStage::Ended(result) => {
                self.ended(&result);
                return None;
            }
        }
        Some(stage_rx)
    }

    fn ended(&mut self, result: &ClaimResult<OperationOutcome>) {
        self.progress.erased = erased_by(result).or(self.progress.erased);
        match result {
            Ok(_) => {
                self.order_pauses.reset();
                self.progress.order = CardOrderState::Idle;
            }
            Err(error) => self.order_failed(Chain(&**error).to_string()),
        }
    }

    fn order_failed(&mut self, reason: String) {
        self.progress.order = CardOrderState::Failed(reason);
        self.order_after = Some(Instant::now() + self.order_pauses.next_pause());
    }
}

/// Method by which an order has erased the card, even where it failed later.
fn erased_by(result: &ClaimResult<OperationOutcome>) -> Option<ErasureMethod> {
    let erased = |steps: &[OperationStep]| {
        steps.iter().find_map(|step| match step {
            OperationStep::CardErased { .. } => Some(ErasureMethod::Sanitize),
            OperationStep::CardOverwritten { .. } => Some(ErasureMethod::Overwrite),
            OperationStep::FunctionReset { .. } => Some(ErasureMethod::Reset),
            OperationStep::LogicScrubbed { .. } => Some(ErasureMethod::Scrub),
            _ => None,
        })
    };
    match result {
        Ok(outcome) => erased(&outcome.steps),
        Err(error) => match &**error {
            ClaimError::Backend { source: BackendError::Operation(refusal), .. } => match &refusal.obstacle {
                OperationObstacle::Failed(failure) => erased(&failure.steps),
                _ => None,
            },
            _ => None,
        },
    }
}
