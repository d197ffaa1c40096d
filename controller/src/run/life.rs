//! Notifies systemd: ready once the controller serves, alive as long as the owner of the model answers, and one line of
//! status.

use hostler_process::{
    Tasks,
    notify::{NotifyState, period, send},
};

use crate::{model_owner::ModelPulse, serve::ServeState};

/// Tells systemd that the controller is ready. From now on the watchdog is fed.
pub(super) fn ready(state: ServeState, pulse: ModelPulse, tasks: &Tasks) {
    let mut is_heard = send(&[NotifyState::Ready, NotifyState::Status(&status(&state))]);
    let stop = tasks.stop_token();
    tasks.service("notify", async move {
        let mut timer = tokio::time::interval(period());
        loop {
            let alive = async {
                timer.tick().await;
                pulse.feel().await;
            };
            tokio::select! {
                // Dropped at the end only.
                () = alive => {
                    let status = status(&state);
                    let alive = [NotifyState::Ready, NotifyState::Watchdog, NotifyState::Status(&status)];
                    is_heard |= send(&alive[usize::from(is_heard)..]);
                }
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => return Ok(()),
            }
        }
    });
}

fn status(state: &ServeState) -> String {
    let slices = state.view_rx.borrow().stock.nodes.len();
    let missing = state.not_ready();
    let known = format!("{slices} nodes; {}", state.leader());
    if missing.is_empty() { known } else { format!("{known}; {}", missing.join("; ")) }
}
