//! The edge of classic DRA to the API server. While this process leads, and the server is one of 1.26 to 1.31, the edge
//! watches the objects that [`ClassicCore`](super::core::ClassicCore) decides on, and carries out its commands.
//!
//! ```text
//!   leads ──► which version? ──► a term: watch each kind ─► ObjectReader ─► ClassicCore ─► calls ─┐
//!     ▲            │ none of ours: ask again later             ▲                                │
//!     └────────────┴── does not lead any more, or a kind is gone└──── what the server answered ◄─┘
//! ```
//!
//! A term begins with nothing but the server's state, as after a crash, and leaves nothing behind when it ends. On a
//! server of 1.32 or later, claims of earlier terms are handed over once in each leader term.

mod calls;
mod event_notes;
mod kind;
mod migrate;
mod objects;
mod status;
mod term;

use std::time::Duration;

use hostler_api::{
    Chain,
    classic::ClassicVersion,
    resource::{ApiVersion, GROUP},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use hostler_process::Tasks;
use hostler_reconcile::{Leadership, leads_until};
use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep};
use tracing::{debug, info};

pub(crate) use self::status::{ClassicPhase, ClassicStatus};
use self::{
    migrate::{MigrationEnd, MigrationTerm},
    term::{Term, TermEnd},
};
use crate::observe::Watches;

/// Pause between two checks whether the server serves a classic version.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Everything that allocation needs: watches, clients, names and channels.
#[derive(Debug)]
pub(crate) struct ClassicParts {
    /// Shared watches of the kinds that other parts watch as well.
    pub(crate) watches: Watches,
    /// Client for watches of other kinds.
    pub(crate) watching: ApiClient,
    /// A connection that no watch can hold up.
    pub(crate) calling: ApiClient,
    /// The driver that allocates.
    pub(crate) driver: String,
    /// Namespace in which a claim can be tried out with a dry run.
    pub(crate) namespace: String,
    /// State of the lease: this process writes only while it leads.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// Progress of allocation, for conditions and figures.
    pub(crate) status_tx: watch::Sender<ClassicStatus>,
    /// Owner of the tasks of calls and watches.
    pub(crate) tasks: Tasks,
}

/// Allocates while this process leads and the server has a classic version.
pub(crate) fn start(parts: ClassicParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service("classic", async move {
        tokio::select! {
            // Dropped at the end only. A write that was sent is done or not; the next leader reads which.
            () = run(parts) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

/// The API in which the server has claims.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ServedClaims {
    /// Claims that wait for a controller, on a server of this minor release.
    Classic(ClassicVersion, u32),
    /// Claims that the scheduler allocates.
    Modern(ApiVersion),
}

async fn run(mut parts: ClassicParts) {
    let mut is_migrated = false;
    loop {
        is_migrated &= !parts.lead().await;
        match parts.served().await {
            Ok(ServedClaims::Classic(version, _)) if parts.is_gate_off(version).await => {
                parts.rest(ClassicPhase::Dropped("spec.controller of claims".to_owned())).await;
            }
            Ok(ServedClaims::Classic(version, minor)) => {
                let (server, version_name) = (format!("1.{minor}"), version.as_str());
                info!(server, version = version_name, "claims of classic DRA are allocated here");
                match Term::new(&mut parts, version, minor).run().await {
                    TermEnd::Deposed => {}
                    TermEnd::NotServed(what) => parts.rest(ClassicPhase::NotServed(what)).await,
                }
            }
            Ok(ServedClaims::Modern(version)) if !is_migrated => {
                match MigrationTerm::new(&mut parts, version).run().await {
                    MigrationEnd::Done => is_migrated = true,
                    MigrationEnd::Deposed => {}
                    MigrationEnd::NotServed => parts.rest(ClassicPhase::NotServed("resourceclaims".to_owned())).await,
                }
            }
            Ok(ServedClaims::Modern(_)) => parts.rest(ClassicPhase::NotNeeded).await,
            Err(failure) => parts.rest(ClassicPhase::of_failure(&failure)).await,
        }
    }
}

impl ClassicParts {
    /// Waits until this process leads. Returns whether it had to wait.
    async fn lead(&mut self) -> bool {
        let mut has_waited = false;
        while leads_until(&mut self.leadership_rx).is_none() {
            has_waited = true;
            self.tell(ClassicPhase::NotLeading);
            // The channel closes when the process stops: no lead can follow, and this loop ends too.
            if self.leadership_rx.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        has_waited
    }

    async fn served(&self) -> Result<ServedClaims, ApiFailure> {
        match self.calling.version().await {
            Err(ApiFailure::NoResourceApi) => {
                let version = self.calling.classic_version().await?;
                Ok(ServedClaims::Classic(version, self.calling.minor_release().await?))
            }
            version => version.map(ServedClaims::Modern),
        }
    }

    /// Returns true if a server of 1.31 drops the field that gives a claim to a controller, since its feature gate is
    /// off: the claim is then the scheduler's. A controller that may not try it out learns it when an allocation comes
    /// out wrong.
    async fn is_gate_off(&self, version: ClassicVersion) -> bool {
        if version != ClassicVersion::V1Alpha3 {
            return false;
        }
        let claims = Collection::custom(GROUP, version.as_str(), "ResourceClaim", "resourceclaims").of(&self.namespace);
        let example = json!({
            "apiVersion": claims.api_version(), "kind": claims.kind(),
            "metadata": {"generateName": "hostler-example-", "namespace": self.namespace},
            "spec": {
                "controller": self.driver, "devices": {"requests": [{"name": "any", "deviceClassName": "any"}]},
            },
        });
        match self.calling.try_out::<Value>(&claims, &example).await {
            Ok(answer) => answer["spec"]["controller"] != *self.driver,
            Err(failure) => {
                debug!(error = %Chain(&failure), "a claim for a controller cannot be tried out");
                false
            }
        }
    }

    async fn rest(&self, phase: ClassicPhase) {
        self.tell(phase);
        sleep(ASK_AGAIN).await;
    }

    fn tell(&self, phase: ClassicPhase) {
        self.status_tx.send_if_modified(|last| {
            let new = ClassicStatus { phase, ..ClassicStatus::default() };
            let is_other = *last != new;
            *last = new;
            is_other
        });
    }
}
