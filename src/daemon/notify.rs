//! What systemd is told: ready, alive, stopping, and one line of status. Outside of systemd all of this does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

use crate::{admin::Admin, tasks::Tasks};

/// How often the status line is refreshed where no watchdog asks for more.
const REFRESH: Duration = Duration::from_secs(15);

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(error = %error, "failed to notify systemd");
    }
}

/// The daemon serves. From now on the watchdog is fed, as long as the runtime turns and the owners answer.
pub(super) fn ready(admin: &Admin, tasks: &Tasks) {
    send(&[NotifyState::Ready, NotifyState::Status(&status(admin))]);
    // Half of what systemd allows, as its manual says; systemd sets no variable where the unit has no watchdog.
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    let period = watchdog.unwrap_or(REFRESH).min(REFRESH);
    let (admin, stop) = (admin.clone(), tasks.stop_token());
    tasks.service("notify", async move {
        let mut timer = tokio::time::interval(period);
        loop {
            tokio::select! {
                // Cancel safe: a tick that was not taken is still due.
                _ = timer.tick() => send(&[NotifyState::Watchdog, NotifyState::Status(&status(&admin))]),
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => return Ok(()),
            }
        }
    });
}

/// Another daemon is live; this one is ready to take over.
pub(super) fn standby() {
    send(&[NotifyState::Ready, NotifyState::Status("standing by: another daemon is live")]);
}

/// The daemon is on its way out.
pub(super) fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn status(admin: &Admin) -> String {
    let missing = admin.not_ready();
    let counts = admin.summary();
    if missing.is_empty() { counts } else { format!("{counts}; {}", missing.join("; ")) }
}
