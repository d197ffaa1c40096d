//! Messages to systemd: ready, alive, stopping, and one line of status. Outside of systemd all of this does nothing.

use std::time::Duration;

use hostler_process::notify::{NotifyState, is_ready, period, send};
use tokio::time::{Instant, interval_at};

use crate::{admin::AdminService, tasks::Tasks};

/// Time for the work of a start beside the two waits for backends: it reads and writes files of its own, and a minute
/// is far more than that takes on any disk that works. A start that takes longer hangs, and is systemd's to judge.
const OWN_WORK: Duration = Duration::from_secs(60);

/// Runs a start, as long as it takes. systemd is asked to wait on as long as there can be work: backends may take
/// `patience` for the first scan and again for recovery. A start that takes longer is left to the limits of the unit.
pub(super) async fn starting<T>(start: impl Future<Output = T>, patience: Duration) -> T {
    let half = patience / 2;
    let mut timer = interval_at(Instant::now() + half, half);
    let mut watchdog = interval_at(Instant::now() + period(), period());
    let limit = Instant::now() + patience * 2 + OWN_WORK;
    tokio::pin!(start);
    loop {
        tokio::select! {
            // Cancel safe: polled to its end by the next round.
            started = &mut start => return started,
            // Cancel safe: a tick that was not taken is still due.
            now = timer.tick(), if Instant::now() < limit => extend(now, limit, half),
            // Cancel safe: a tick that was not taken is still due.
            now = watchdog.tick() => {
                if now < limit && is_ready() {
                    send(&[NotifyState::Watchdog]);
                }
            }
        }
    }
}

/// Asks for the time until the next message and as much again, but not beyond the limit.
fn extend(now: Instant, limit: Instant, period: Duration) {
    let more = (period * 2).min(limit.saturating_duration_since(now));
    let more = u32::try_from(more.as_micros()).unwrap_or(u32::MAX);
    let mut states = vec![NotifyState::ExtendTimeoutUsec(more)];
    // A daemon that has stood by has told its status.
    if !is_ready() {
        states.push(NotifyState::Status("starting: not every backend has answered yet"));
    }
    send(&states);
}

/// Tells that the daemon serves. From now on the watchdog is fed, as long as the runtime turns and the owner of the
/// claims answers.
pub(super) fn ready(admin: &AdminService, tasks: &Tasks) {
    let mut is_heard = send(&[NotifyState::Ready, NotifyState::Status(&status(admin))]);
    let (admin, stop) = (admin.clone(), tasks.stop_token());
    tasks.service("notify", async move {
        let mut timer = tokio::time::interval(period());
        loop {
            let alive = async {
                timer.tick().await;
                admin.ping().await;
            };
            tokio::select! {
                // Dropped at the end only.
                () = alive => {
                    let status = status(&admin);
                    let alive = [NotifyState::Ready, NotifyState::Watchdog, NotifyState::Status(&status)];
                    is_heard |= send(&alive[usize::from(is_heard)..]);
                }
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => return Ok(()),
            }
        }
    });
}

/// Tells that another daemon is live, and this one ready to take over as soon as `waiting` ends. It has a watchdog too.
pub(super) async fn standing_by<T>(waiting: impl Future<Output = T>) -> T {
    let standing_by = [NotifyState::Ready, NotifyState::Status("standing by: another daemon is live")];
    let mut is_heard = send(&standing_by);
    let mut timer = tokio::time::interval(period());
    tokio::pin!(waiting);
    loop {
        tokio::select! {
            // Cancel safe: polled to its end by the next round.
            waited = &mut waiting => {
                send(&[NotifyState::Watchdog, NotifyState::Status("taking over")]);
                return waited;
            }
            // Cancel safe: a tick that was not taken is still due.
            _ = timer.tick() => {
                is_heard = is_heard || send(&standing_by);
                send(&[NotifyState::Watchdog]);
            }
        }
    }
}

/// Shows the reason for the daemon's end in the status of its unit.
pub(super) fn failing(reason: &str) {
    send(&[NotifyState::Status(reason)]);
}

fn status(admin: &AdminService) -> String {
    let missing = admin.not_ready();
    let counts = admin.summary();
    if missing.is_empty() { counts } else { format!("{counts}; {}", missing.join("; ")) }
}
