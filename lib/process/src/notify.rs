//! Messages to systemd: ready, alive, stopping, and one line of status. Outside of systemd all of this does nothing.

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

use tracing::warn;

pub use sd_notify::NotifyState;

/// How often the status line is refreshed where no watchdog asks for more.
const REFRESH: Duration = Duration::from_secs(15);

/// True once systemd was told that the program is ready: from then on its watchdog counts, also while a program that
/// has stood by takes over. There is one service manager for a process.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Sends a message; returns true if it was taken. A manager that does not read its socket must not hold the program:
/// a message that does not fit is left out, and a caller that needs it heard sends it again.
pub fn send(states: &[NotifyState<'_>]) -> bool {
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

/// True once systemd was told that the program is ready.
pub fn is_ready() -> bool {
    IS_READY.load(Ordering::Relaxed)
}

/// Interval of messages to the watchdog: half of what systemd allows, as its manual says. systemd sets no variable
/// where the unit has no watchdog.
pub fn period() -> Duration {
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    watchdog.unwrap_or(REFRESH).min(REFRESH)
}

/// Tells systemd that the program is on its way out.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}
