//! An operator's order on its way: its wait, its stages, and its end when it is no longer wanted.
//!
//! ```text
//!   waiting ── no work on claims of the backend ──► under way ──► hardware scanned ──► ended
//!      │ it has waited long enough, or the caller has gone
//!      └──► ended, and nothing was changed
//! ```
//!
//! While it waits, claims of its backend are held back for [`HOLD`], then let pass for [`HOLD`], and so on. So claims
//! that take their usual time cannot keep an order waiting for ever, and an order behind one that hangs delays no
//! other claim by more than that.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_api::{BackendName, Chain, DeviceName};
use hostler_backend::{DeviceOperation, OperationOutcome};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep_until},
};
use tracing::{error, info};
use uuid::Uuid;

use super::{ClaimsHandle, ClaimsRequest};
use crate::{
    claims::{ClaimError, ClaimOperation, ClaimResult},
    units::utc,
};

/// Time for which claims are held back. Most are prepared within a second; the kubelet waits 45 s, so once costs it
/// nothing.
const HOLD: Duration = Duration::from_secs(5);

/// An order of an operation on a device.
#[derive(Clone, Debug)]
pub struct DeviceOrder {
    /// The device's backend.
    pub backend: BackendName,
    /// The device.
    pub device: DeviceName,
    /// The operation.
    pub operation: DeviceOperation,
    /// Time that the order may wait before it is under way.
    pub patience: Duration,
}

/// Stage of an order.
#[derive(Clone, Debug)]
pub enum OrderStage {
    /// The order waits for these; for nothing that is known yet where there are none.
    Waiting(Vec<OrderObstacle>),
    /// The hardware is being changed. From here on the order runs to its end.
    UnderWay,
    /// The hardware is changed, or as far as that went, and scanned.
    Scanned,
    /// The outcome.
    Ended(ClaimResult<OperationOutcome>),
}

/// Work that an order waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OrderObstacle {
    /// Work on a claim.
    Claim {
        /// `namespace/name`.
        name: String,
        /// The work.
        operation: ClaimOperation,
        /// Time at which the work began.
        since: SystemTime,
    },
    /// An order that came before.
    Order {
        /// The order's device.
        device: DeviceName,
        /// Operation of that order.
        operation: DeviceOperation,
    },
}

impl fmt::Display for OrderObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim { name, operation, since } => {
                write!(f, "claim {name} ({} since {})", operation.in_progress(), utc(*since))
            }
            Self::Order { device, operation } => write!(f, "the order to {} {device}", operation.word()),
        }
    }
}

/// News for an order while it waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OrderNews {
    /// Claims that come are held back.
    Hold,
    /// Claims that come go on.
    Pass,
    /// The order has waited for this long, and that is enough.
    GiveUp(Duration),
    /// The order is no longer wanted.
    Withdraw,
}

/// News of one order.
#[derive(Debug)]
pub(super) struct OrderNotice {
    pub(super) backend: BackendName,
    pub(super) id: Uuid,
    pub(super) news: OrderNews,
}

/// The end of an order, for the code that does what comes after.
#[derive(Debug)]
pub(super) enum OrderEnd {
    /// The order has not begun, and the hardware is as it was.
    Refused(ClaimError),
    /// The backend has done what it could.
    Operated(ClaimResult<OperationOutcome>),
}

/// An order, with the channels for its stages and its end.
pub(super) struct OperateCall {
    pub(super) id: Uuid,
    pub(super) backend: BackendName,
    pub(super) device: DeviceName,
    pub(super) operation: DeviceOperation,
    /// True if claims that come are held back while the order waits.
    pub(super) holds: bool,
    pub(super) stage_tx: Arc<watch::Sender<OrderStage>>,
    pub(super) end_tx: oneshot::Sender<OrderEnd>,
}

impl OperateCall {
    pub(super) fn new(
        id: Uuid,
        order: DeviceOrder,
        stage_tx: Arc<watch::Sender<OrderStage>>,
        end_tx: oneshot::Sender<OrderEnd>,
    ) -> Self {
        let DeviceOrder { backend, device, operation, patience: _ } = order;
        Self { id, backend, device, operation, holds: true, stage_tx, end_tx }
    }

    /// Refuses the order. Its caller may have stopped waiting.
    pub(super) fn refuse(self, error: ClaimError) {
        drop(self.end_tx.send(OrderEnd::Refused(error)));
    }

    pub(super) fn tell(&self, obstacles: Vec<OrderObstacle>) {
        self.stage_tx.send_replace(OrderStage::Waiting(obstacles));
    }

    pub(super) fn as_obstacle(&self) -> OrderObstacle {
        OrderObstacle::Order { device: self.device.clone(), operation: self.operation }
    }
}

impl ClaimsHandle {
    /// Has a backend carry out an operator's order for a device. From the moment at which it is under way no claim of
    /// the backend is admitted, prepared or taken back until the hardware has been scanned after it: they must be
    /// decided on by the hardware as it is then. An order is withdrawn when no caller watches it any more, unless it is
    /// under way.
    pub fn order(&self, order: DeviceOrder) -> watch::Receiver<OrderStage> {
        let (stage_tx, stage_rx) = watch::channel(OrderStage::Waiting(Vec::new()));
        let handle = self.clone();
        self.tasks.job(async move {
            let stage_tx = Arc::new(stage_tx);
            let ended = handle.carry_out(order, &stage_tx).await;
            // The caller may have gone; the order was carried out all the same.
            stage_tx.send_replace(OrderStage::Ended(ended));
        });
        stage_rx
    }

    async fn carry_out(
        &self,
        order: DeviceOrder,
        stage_tx: &Arc<watch::Sender<OrderStage>>,
    ) -> ClaimResult<OperationOutcome> {
        let (backend, device, word) = (order.backend.clone(), order.device.clone(), order.operation.word());
        let ended = self.wait_for_end(order, stage_tx).await;
        let (result, was_begun) = match ended {
            OrderEnd::Refused(error) => (Err(Arc::new(error)), false),
            OrderEnd::Operated(result) => (result, true),
        };
        match &result {
            Ok(outcome) => {
                let done = outcome.to_string();
                info!(backend = %backend, device = %device, operation = word, done, "order carried out");
            }
            Err(error) => {
                error!(backend = %backend, device = %device, operation = word, error = %Chain(&**error), "order failed");
            }
        }
        if was_begun {
            // Also where it failed: it may have been half done.
            self.inventory.rescan().await;
            self.send(ClaimsRequest::Rescanned(backend));
            stage_tx.send_replace(OrderStage::Scanned);
        }
        result
    }

    async fn wait_for_end(&self, order: DeviceOrder, stage_tx: &Arc<watch::Sender<OrderStage>>) -> OrderEnd {
        let (end_tx, mut end_rx) = oneshot::channel();
        let (id, backend, patience) = (Uuid::new_v4(), order.backend.clone(), order.patience);
        self.send(ClaimsRequest::Operate(OperateCall::new(id, order, stage_tx.clone(), end_tx)));
        let mut clock = OrderClock::start(patience);
        loop {
            let news = tokio::select! {
                // Cancel safe: an end that was not taken is still there.
                end = &mut end_rx => return end.unwrap_or(OrderEnd::Refused(ClaimError::Stopping)),
                // Cancel safe: moments are absolute.
                news = clock.tick() => news,
                // Cancel safe: receivers that are gone do not come back.
                () = stage_tx.closed(), if clock.runs() => clock.withdraw(),
            };
            self.send(ClaimsRequest::OrderNotice(OrderNotice { backend: backend.clone(), id, news }));
        }
    }
}

/// Says when an order holds claims back, lets them pass, and gives up.
struct OrderClock {
    patience: Duration,
    end: Instant,
    /// Time at which the turn changes; `None` when the order is given up or withdrawn.
    turn: Option<Instant>,
    holds: bool,
}

impl OrderClock {
    fn start(patience: Duration) -> Self {
        let now = Instant::now();
        Self { patience, end: now + patience, turn: Some(now + HOLD), holds: true }
    }

    fn runs(&self) -> bool {
        self.turn.is_some()
    }

    fn withdraw(&mut self) -> OrderNews {
        self.turn = None;
        OrderNews::Withdraw
    }

    async fn tick(&mut self) -> OrderNews {
        let Some(turn) = self.turn else { return std::future::pending().await };
        sleep_until(turn.min(self.end)).await;
        if self.end <= turn {
            self.turn = None;
            return OrderNews::GiveUp(self.patience);
        }
        self.turn = Some(turn + HOLD);
        self.holds = !self.holds;
        if self.holds { OrderNews::Hold } else { OrderNews::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_order_holds_claims_back_and_lets_them_pass_in_turn_until_it_gives_up() {
        let patience = HOLD * 3 + HOLD / 2;
        let (start, mut clock) = (Instant::now(), OrderClock::start(patience));
        for (news, after) in [
            (OrderNews::Pass, HOLD),
            (OrderNews::Hold, HOLD * 2),
            (OrderNews::Pass, HOLD * 3),
            (OrderNews::GiveUp(patience), patience),
        ] {
            assert_eq!(clock.tick().await, news);
            // The clock of the runtime counts milliseconds.
            assert_eq!(start.elapsed().as_secs_f64().round(), after.as_secs_f64().round());
        }
        assert!(!clock.runs());
    }

    #[test]
    fn what_an_order_waits_for_is_told_in_words() {
        let since = SystemTime::UNIX_EPOCH;
        let claim = OrderObstacle::Claim { name: "ml/train".to_owned(), operation: ClaimOperation::Prepare, since };
        assert_eq!(claim.to_string(), "claim ml/train (preparing since 1970-01-01 00:00:00 UTC)");
        let order =
            OrderObstacle::Order { device: DeviceName::new("card").unwrap(), operation: DeviceOperation::Attach };
        assert_eq!(order.to_string(), "the order to attach card");
    }
}
