//! The edge of Reservations to the API server. While this process leads, it watches what [`HoldCore`](super::HoldCore) decides on, and
//! carries out what it says.
//!
//! ```text
//!   leads, everything is known ──► are Reservations served? ──► a term: watch each kind ─► HoldReader ─► HoldCore ─► calls ─┐
//!     ▲                                │ no: look again later                                   ▲  facts: the view         │
//!     └────────────────────────────────┴── does not lead any more, or a kind is gone            └── what the server answered ┘
//! ```
//!
//! A term begins with nothing but what the server says, like one after a crash, and nothing of it is left when it ends. What would
//! fit where is asked of the view that everybody shares; the objects that decide are watched here, in their full length, and only
//! by the one that leads.

mod calls;
mod claims;
mod kind;
mod later;
mod listing;
mod notices;
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
    kind::{HoldKind, HoldPlaces},
    notices::event_of,
};
use self::{
    kind::PlaceError,
    term::{HoldTerm, TermEnd},
};
pub(crate) use self::{
    pods::{PodOwner, controller_of},
    rules::release_of,
    status::{HoldPhase, HoldStatus},
};
use crate::{config::ReservationsConfig, observe::Watches, view::ClusterView};

/// Between two looks whether a kind was installed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The longest pause between two looks whether a role was granted: each is a refusal in the server's books.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Where Reservations are.
pub(crate) fn reservations() -> Collection {
    HoldKind::reservations()
}

/// What keeping devices takes.
#[derive(Debug)]
pub(crate) struct HoldParts {
    /// Watches of the kinds that decide.
    pub(crate) watches: Watches,
    /// A connection that no watch can hold up.
    pub(crate) calling: ApiClient,
    /// The driver whose daemons close devices themselves.
    pub(crate) driver: String,
    /// Where claims are made that stand for parts of devices.
    pub(crate) namespace: String,
    /// How it is done.
    pub(crate) config: ReservationsConfig,
    /// What is there.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// Whether this process may write.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// How it goes, for whoever wants to know.
    pub(crate) status_tx: watch::Sender<HoldStatus>,
    /// Where calls and watches run.
    pub(crate) tasks: Tasks,
}

/// Keeps devices as long as this process leads.
pub(crate) fn start(parts: HoldParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service("reservations", async move {
        tokio::select! {
            // Dropped at the end only. What was sent is done or not; whoever leads next finds out.
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
                // A refusal of rules that lasts is not waited for in each term.
                if places.rules.collection().is_some() {
                    pauses.reset();
                }
                match HoldTerm::new(&mut parts, places).run().await {
                    TermEnd::Deposed | TermEnd::OtherRules => {}
                    TermEnd::NotServed(what) => parts.rest(HoldPhase::NotServed(what), LOOK_AGAIN).await,
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
        let places = HoldPlaces::find(&self.calling).await?;
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
