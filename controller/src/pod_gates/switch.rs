//! The switch that has pods gated: a task finds out for the whole process whether it is on. Pods must not be gated where no controller may let
//! them go.

use std::time::Duration;

use hostler_api::Chain;
use hostler_cluster::{ApiClient, ApiFailure};
use hostler_process::Tasks;
use tokio::{sync::watch, time::sleep};
use tracing::debug;

use crate::config::{MeantVerb, SwitchMode};

/// Pause between two questions for the role.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Pause before the role is asked for again, while an answer is missing or a refusal does not count yet.
const ASK_SOON: Duration = Duration::from_secs(1);
/// The right without which no gate can be removed, under which its refusals are remembered.
const RIGHT: &str = "patch pods";

/// State of the switch that has pods gated.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum GatesPhase {
    /// The state is being found out.
    #[default]
    Unknown,
    /// Switched off by configuration.
    Off,
    /// The role of `deploy/holds/gates` is not there.
    NotInstalled,
    /// The switch is on, and the controller may not remove gates.
    Forbidden,
    /// Pods are gated.
    On,
}

/// Follows the switch until the process stops.
pub(crate) fn watch_switch(mode: SwitchMode, client: ApiClient, tasks: &Tasks) -> watch::Receiver<GatesPhase> {
    let first = if mode == SwitchMode::Off { GatesPhase::Off } else { GatesPhase::Unknown };
    let (gates_tx, gates_rx) = watch::channel(first);
    if mode == SwitchMode::Off {
        return gates_rx;
    }
    let stop = tasks.stop_token();
    tasks.service("pod gates switch", async move {
        tokio::select! {
            // Dropped at the end only: it asks, and changes nothing.
            () = follow(mode, &client, &gates_tx) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
    gates_rx
}

async fn follow(mode: SwitchMode, client: &ApiClient, gates_tx: &watch::Sender<GatesPhase>) {
    loop {
        let pause = match ask(mode, client).await {
            Ok(Some(phase)) => {
                gates_tx.send_if_modified(|last| std::mem::replace(last, phase) != phase);
                ASK_AGAIN
            }
            Ok(None) => ASK_SOON,
            // What was known stands: pods are gated only while a controller leads, and that renews its Lease.
            Err(failure) => {
                debug!(error = %Chain(&failure), "it could not be asked whether pods are gated");
                ASK_SOON
            }
        };
        sleep(pause).await;
    }
}

/// Asks the API server. `None`: a server that has just started may not have read its roles yet.
async fn ask(mode: SwitchMode, client: &ApiClient) -> Result<Option<GatesPhase>, ApiFailure> {
    match mode.is_on(MeantVerb::Gate, client).await? {
        None => return Ok(None),
        Some(false) => return Ok(Some(GatesPhase::NotInstalled)),
        Some(true) => {}
    }
    if client.is_allowed("patch", "", "pods").await? {
        client.refusals().allowed(RIGHT);
        return Ok(Some(GatesPhase::On));
    }
    Ok(client.refusals().refused(RIGHT).then_some(GatesPhase::Forbidden))
}
