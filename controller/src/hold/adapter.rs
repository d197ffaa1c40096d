//! The edge of Reservations to the API server. While this process leads, the edge watches the objects that
//! [`HoldCore`](super::HoldCore) decides on, and carries out the commands that the core returns.
//!
//! ```text
//!   leads, synced ──► are Reservations served? ──► a term: watch each kind ─► HoldReader ─► HoldCore ─► calls ─┐
//!     ▲                  │ no: ask again later                                    ▲  facts: the view           │
//!     └──────────────────┴── leads no longer, or a kind is gone                   └── answers of the server ───┘
//! ```
//!
//! A term begins with nothing but what the server says, like a term after a crash, and nothing of a term is left when
//! it ends. The planner reads the view that all parts of the controller share. The objects that decide are watched
//! here, in full, and only by the leader.

mod calls;
mod claims;
mod event_notes;
mod kind;
mod later;
mod listing;
mod objects;
mod pods;
mod queue;
mod read;
mod rules;
mod status;
mod term;

use std::{sync::Arc, time::Duration};

use hostler_api::Chain;
use hostler_cluster::{ApiClient, ApiFailure, Collection, RetryPauses};
use hostler_process::Tasks;
use hostler_reconcile::{Leadership, wait_to_lead};
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

pub(in crate::hold) use self::{
    calls::HoldCaller,
    event_notes::event_of,
    kind::{HoldKind, HoldPlaces},
};
use self::{
    kind::PlaceError,
    term::{HoldTerm, HoldTermEnd},
};
pub(crate) use self::{
    pods::{PodOwner, controller_of},
    status::{HoldPhase, HoldStatus},
};
use crate::{config::ReservationsConfig, observe::Watches, view::ClusterView};

/// Pause before the server is asked again if it serves the kinds.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The longest pause before the server is asked again if a role was granted: each try is a refusal in the server's log.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Collection of Reservations.
pub(crate) fn reservations() -> Collection {
    HoldKind::reservations()
}

/// Parts that keeping devices takes.
#[derive(Debug)]
pub(crate) struct HoldParts {
    /// Watches of the kinds that decide.
    pub(crate) watches: Watches,
    /// A connection that no watch can hold up.
    pub(crate) calling: ApiClient,
    /// The driver whose daemons close devices themselves.
    pub(crate) driver: String,
    /// Namespace of the claims that stand for parts of devices.
    pub(crate) namespace: String,
    /// True if devices behind switches are attached here.
    pub(crate) attaches: bool,
    /// Settings of Reservations.
    pub(crate) config: ReservationsConfig,
    /// The cluster as all parts of the controller see it.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// True if parts of nodes are kept beside devices; `None` before that is known.
    pub(crate) places_rx: watch::Receiver<Option<bool>>,
    /// The leader term of this process: it writes only while it leads.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// Phase and figures, for conditions, metrics and people.
    pub(crate) status_tx: watch::Sender<HoldStatus>,
    /// Tasks that run calls and watches.
    pub(crate) tasks: Tasks,
}

/// Keeps devices as long as this process leads.
pub(crate) fn start(parts: HoldParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service("reservations", async move {
        tokio::select! {
            // Dropped at the end only. A call that was sent has its effect or not; the next leader reads it from the
            // server.
            () = run(parts) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

async fn run(mut parts: HoldParts) {
    let mut pauses = RetryPauses::new(LOOK_AGAIN, LOOK_AGAIN, ASK_AGAIN);
    loop {
        parts.lead().await;
        match parts.places(&pauses).await {
            Ok(places) => {
                info!("Reservations are kept here");
                if let Some(reason) = places.rules.doubt() {
                    warn!(reason, "devices of other drivers are not kept");
                }
                // A lasting refusal of rules stays noted: the next term does not wait for it again.
                if places.rules.collection().is_some() {
                    pauses.reset();
                }
                match HoldTerm::new(&mut parts, places).run().await {
                    HoldTermEnd::Deposed | HoldTermEnd::OtherRules => {}
                    HoldTermEnd::NotServed(what) => parts.rest(HoldPhase::NotServed(what), LOOK_AGAIN).await,
                }
            }
            Err(PlaceError::NotServed(what)) => parts.rest(HoldPhase::NotServed(what), LOOK_AGAIN).await,
            Err(PlaceError::Forbidden(failure)) => parts.refused(&failure, &mut pauses).await,
            Err(PlaceError::Unknown(why)) => parts.rest(HoldPhase::Unknown(why), LOOK_AGAIN).await,
        }
    }
}

impl HoldParts {
    /// Waits until this process leads, and everything is known.
    async fn lead(&mut self) {
        let Self { leadership_rx, view_rx, status_tx, .. } = self;
        wait_to_lead(leadership_rx, view_rx, || tell(status_tx, HoldStatus::default())).await;
    }

    async fn places(&self, pauses: &RetryPauses) -> Result<HoldPlaces, PlaceError> {
        let places = HoldPlaces::find(&self.calling, self.attaches).await?;
        places.with_rules(&self.calling, &self.config.oldest_scheduler, pauses).await
    }

    async fn refused(&self, failure: &ApiFailure, pauses: &mut RetryPauses) {
        let pause = pauses.after_refusal(failure);
        let phase = if pauses.is_refused_for_long() { HoldPhase::Forbidden } else { HoldPhase::Unknown };
        let said = Chain(failure).to_string();
        self.rest(phase(said), pause).await;
    }

    async fn rest(&self, phase: HoldPhase, pause: Duration) {
        self.tell(HoldStatus { phase, ..HoldStatus::default() });
        sleep(pause).await;
    }

    fn tell(&self, new: HoldStatus) {
        tell(&self.status_tx, new);
    }
}

fn tell(status_tx: &watch::Sender<HoldStatus>, new: HoldStatus) {
    status_tx.send_if_modified(|last| {
        let is_other = *last != new;
        *last = new;
        is_other
    });
}
