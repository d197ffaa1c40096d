//! What systemd is told: ready, alive, stopping, and one line of status. Outside of systemd all of this does nothing.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::time::{Instant, interval_at};
use tracing::warn;

use crate::{admin::AdminService, tasks::Tasks};

/// Beside the two waits for backends, a start reads and writes files of its own: a minute is far more than that takes on any
/// disk that works. Whatever takes longer hangs, and is systemd's to judge.
const OWN_WORK: Duration = Duration::from_secs(60);

/// How often the status line is refreshed where no watchdog asks for more.
const REFRESH: Duration = Duration::from_secs(15);

/// Whether systemd was told that the daemon is ready: from then on its watchdog counts, also while a daemon that has stood by
/// recovers. There is one service manager for a process.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Whether the message was taken. A manager that does not read its socket must not hold the daemon: what does not fit there
/// is left out, and said again by whoever needs it heard.
fn send(states: &[NotifyState<'_>]) -> bool {
    match deliver(states) {
        Ok(()) => {
            IS_READY.fetch_or(matches!(states, [NotifyState::Ready, ..]), Ordering::Relaxed);
            true
        }
        Err(error) => {
            if error.kind() != io::ErrorKind::WouldBlock {
                warn!(error = %error, "failed to notify systemd");
            }
            false
        }
    }
}

fn deliver(states: &[NotifyState<'_>]) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}

/// A start, as long as it takes. systemd is asked to wait on as long as there can be work: backends may take `patience` for
/// the first scan and again for recovery. What takes longer is left to the limits of the unit.
pub(super) async fn starting<T>(start: impl Future<Output = T>, patience: Duration) -> T {
    let period = patience / 2;
    let mut timer = interval_at(Instant::now() + period, period);
    let mut watchdog = interval_at(Instant::now() + self::period(), self::period());
    let limit = Instant::now() + patience * 2 + OWN_WORK;
    tokio::pin!(start);
    loop {
        tokio::select! {
            // Cancel safe: polled to its end by the next round.
            started = &mut start => return started,
            // Cancel safe: a tick that was not taken is still due.
            now = timer.tick(), if Instant::now() < limit => extend(now, limit, period),
            // Cancel safe: a tick that was not taken is still due.
            now = watchdog.tick() => {
                if now < limit && IS_READY.load(Ordering::Relaxed) {
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
    // Whoever has stood by has said what it does.
    if !IS_READY.load(Ordering::Relaxed) {
        states.push(NotifyState::Status("starting: not every backend has answered yet"));
    }
    send(&states);
}

/// The daemon serves. From now on the watchdog is fed, as long as the runtime turns and the owner of the claims answers.
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

/// Half of what systemd allows, as its manual says; systemd sets no variable where the unit has no watchdog.
fn period() -> Duration {
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    watchdog.unwrap_or(REFRESH).min(REFRESH)
}

/// Another daemon is live; this one is ready to take over as soon as `waiting` ends. It has a watchdog too.
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

/// Something that ends the daemon, for whoever looks at its unit.
pub(super) fn failing(reason: &str) {
    send(&[NotifyState::Status(reason)]);
}

/// The daemon is on its way out.
pub(super) fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn status(admin: &AdminService) -> String {
    let missing = admin.not_ready();
    let counts = admin.summary();
    if missing.is_empty() { counts } else { format!("{counts}; {}", missing.join("; ")) }
}
