//! The edge of classic DRA to the API server. While this process leads, and the server is one of 1.26 to 1.31, it watches what
//! [`ClassicCore`](super::core::ClassicCore) decides on, and carries out what it says.
//!
//! ```text
//!   leads ──► which version? ──► a term: watch each kind ─► ObjectReader ─► ClassicCore ─► calls ─┐
//!     ▲            │ none of ours: look again later             ▲                                │
//!     └────────────┴── does not lead any more, or a kind is gone└──── what the server answered ◄─┘
//! ```
//!
//! A term begins with nothing but what the server says, like one after a crash, and nothing of it is left when it ends. On a
//! server of 1.32 or later, what earlier terms have left is handed over once in each time of leading.

mod calls;
mod kind;
mod migrate;
mod notices;
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

/// Between two looks whether the server has become one of ours.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What allocating takes.
#[derive(Debug)]
pub(crate) struct ClassicParts {
    /// The kinds that others watch as well.
    pub(crate) watches: Watches,
    /// For watches of other kinds.
    pub(crate) watching: ApiClient,
    /// A connection that no watch can hold up.
    pub(crate) calling: ApiClient,
    /// The driver that allocates.
    pub(crate) driver: String,
    /// Where an example of a claim can be tried out.
    pub(crate) namespace: String,
    /// Whether this process may write.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// How it goes, for whoever wants to know.
    pub(crate) status_tx: watch::Sender<ClassicStatus>,
    /// Where calls and watches run.
    pub(crate) tasks: Tasks,
}

/// Allocates as long as this process leads a cluster that wants it.
pub(crate) fn start(parts: ClassicParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service("classic", async move {
        tokio::select! {
            // Dropped at the end only. What was sent is done or not; whoever leads next finds out.
            () = run(parts) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

/// The kind of claims that the server has.
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
            // Nobody can lead any more when the process stops, which ends this too.
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

    /// In 1.31 claims can be for a controller only where a gate is on: elsewhere the server lets the field fall, and the claim is
    /// the scheduler's. Whoever may not try it out hears of it when an allocation comes out wrong.
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
        sleep(LOOK_AGAIN).await;
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
