//! Hints that hardware came, changed or went, from the kernel or from udevd.
//!
//! A hint carries no facts: it names a subsystem that is worth a rescan. Lost hints are noticed
//! ([`MonitorEvent::Overflow`]), doubled or reordered ones do no harm.

use std::{
    fmt, io,
    io::{PipeReader, PipeWriter},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{setsockopt, sockopt},
};

use crate::{ReadFailure, SysRoot};

mod coalesce;

pub use coalesce::{QuietPeriod, RescanScope, UeventCoalescer};

/// Size of the socket's buffer: adding 1 TiB of memory in blocks of 128 MiB is 16 thousand events; the kernel's
/// default holds a few hundred.
const BUFFER_BYTES: usize = 16 << 20;

/// Most messages of one wait: a storm must not keep `wait` from returning, or nothing would be rescanned until it
/// ends. So many are read within a few milliseconds.
const MOST_MESSAGES: usize = 256;

/// A message of the socket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MonitorEvent {
    /// Something happened to a device.
    Hint(UeventHint),
    /// Messages were lost: everything needs a rescan.
    Overflow,
}

/// Something happened to a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UeventHint {
    /// The kernel's name of the kind of device (`cpu`, `memory`, `pci`, `cxl`).
    pub subsystem: String,
    /// Action of the event.
    pub action: UeventAction,
    /// The device's path below `/sys`.
    pub devpath: String,
}

/// A change of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UeventAction {
    /// The device appeared.
    Add,
    /// The device disappears.
    Remove,
    /// Something about the device changed.
    Change,
    /// The device has a new name or place.
    Move,
    /// The device may be used (CPUs, memory blocks).
    Online,
    /// The device may not be used any more.
    Offline,
    /// A driver took the device.
    Bind,
    /// The driver left the device.
    Unbind,
    /// A word that no kernel used when this was written.
    Other,
}

impl UeventAction {
    /// True if something is gone: no claim should be given it from now on, so the rescan does not wait.
    pub fn takes_away(self) -> bool {
        matches!(self, Self::Remove | Self::Offline)
    }

    fn from_name(name: &str) -> Self {
        match name {
            "add" => Self::Add,
            "remove" => Self::Remove,
            "change" => Self::Change,
            "move" => Self::Move,
            "online" => Self::Online,
            "offline" => Self::Offline,
            "bind" => Self::Bind,
            "unbind" => Self::Unbind,
            _ => Self::Other,
        }
    }
}

/// Sender of the hints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UeventSource {
    /// udevd, when its rules have run and device nodes have their permissions. Reaches the host's network namespace
    /// only.
    Udev,
    /// The kernel itself. Reaches ordinary containers too.
    Kernel,
}

impl UeventSource {
    /// udevd where one runs under `root`, else the kernel: libudev accepts a subscription to a udevd that is not there,
    /// and then nothing ever comes.
    ///
    /// # Errors
    /// When it cannot be told whether one runs.
    pub fn detect(root: &SysRoot) -> Result<Self, ReadFailure> {
        Ok(if root.exists("run/udev/control")? { Self::Udev } else { Self::Kernel })
    }
}

/// Ends a [`UeventMonitor::wait`] from another thread when dropped.
#[derive(Debug)]
pub struct StopHandle {
    _writer: PipeWriter,
}

/// The other end of a [`StopHandle`], for the thread that waits.
#[derive(Debug)]
pub struct StopSignal(PipeReader);

/// A stop handle and its signal.
///
/// # Errors
/// When no descriptors are left.
pub fn stop_pair() -> io::Result<(StopHandle, StopSignal)> {
    let (reader, writer) = io::pipe()?;
    Ok((StopHandle { _writer: writer }, StopSignal(reader)))
}

/// A subscription. libudev's objects belong to one thread: open it on the thread that waits.
pub struct UeventMonitor {
    socket: udev::MonitorSocket,
    source: UeventSource,
    stop: StopSignal,
}

impl UeventMonitor {
    /// Subscribes to every subsystem. Changes from now on are delivered, so enumerate after this.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn open(source: UeventSource, stop: StopSignal) -> io::Result<Self> {
        let builder = match source {
            UeventSource::Udev => udev::MonitorBuilder::new()?,
            UeventSource::Kernel => udev::MonitorBuilder::new_kernel()?,
        };
        enlarge_buffer(builder.as_fd())?;
        Ok(Self { socket: builder.listen()?, source, stop })
    }

    /// Returns the sender of the hints.
    pub fn source(&self) -> UeventSource {
        self.source
    }

    /// Blocks until there are events, for at most `timeout` (`None`: without end). Empty when the time is over, on a
    /// signal, or at once when the stop handle was dropped.
    ///
    /// # Errors
    /// When the socket is broken; a lost message is no error but a [`MonitorEvent::Overflow`].
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<MonitorEvent>> {
        let mut descriptors =
            [PollFd::new(self.as_fd(), PollFlags::POLLIN), PollFd::new(self.stop.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut descriptors, poll_timeout(timeout)) {
            Ok(0) | Err(Errno::EINTR) => Ok(Vec::new()),
            Ok(_) if descriptors[1].any() == Some(true) => Ok(Vec::new()),
            Ok(_) => self.drain(),
            Err(error) => Err(error.into()),
        }
    }

    /// True if the stop handle was dropped.
    pub fn is_stopped(&self) -> bool {
        let mut descriptors = [PollFd::new(self.stop.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn drain(&self) -> io::Result<Vec<MonitorEvent>> {
        let mut events = Vec::new();
        for _ in 0..MOST_MESSAGES {
            if let Some(message) = self.socket.iter().next() {
                events.extend(hint(&message).map(MonitorEvent::Hint));
                continue;
            }
            // The crate gives no reason for a missing message; libudev leaves it in errno.
            let error = io::Error::last_os_error();
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EAGAIN) => break,
                Some(Errno::ENOBUFS) => events.push(MonitorEvent::Overflow),
                // A message that libudev cannot read is gone; the timed rescan finds what it said.
                Some(Errno::EINTR | Errno::EINVAL | Errno::EBADMSG) => {}
                _ => return Err(error),
            }
        }
        Ok(events)
    }
}

impl AsFd for UeventMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for UeventMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("socket", &self.as_fd()).field("source", &self.source).finish_non_exhaustive()
    }
}

/// Enlarges the buffer. Forcing it needs CAP_NET_ADMIN; without that the system's limit applies, and a storm may end
/// in an overflow.
fn enlarge_buffer(socket: BorrowedFd<'_>) -> io::Result<()> {
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES))?;
    Ok(())
}

/// Converts a timeout, rounded up: a wait that ends early finds its deadline not reached and spins.
fn poll_timeout(timeout: Option<Duration>) -> PollTimeout {
    let Some(timeout) = timeout else { return PollTimeout::NONE };
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)
}

fn hint(message: &udev::Event) -> Option<UeventHint> {
    let text = |text: &std::ffi::OsStr| text.to_str().map(str::to_owned);
    Some(UeventHint {
        subsystem: message.subsystem().and_then(text)?,
        action: UeventAction::from_name(message.property_value("ACTION").and_then(|action| action.to_str())?),
        devpath: text(message.devpath())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up_to_milliseconds() {
        assert_eq!(poll_timeout(Some(Duration::ZERO)), PollTimeout::ZERO);
        assert_eq!(poll_timeout(Some(Duration::from_nanos(1))).as_millis(), Some(1));
        assert_eq!(poll_timeout(Some(Duration::from_millis(250))).as_millis(), Some(250));
        assert_eq!(poll_timeout(Some(Duration::MAX)), PollTimeout::MAX);
        assert_eq!(poll_timeout(None), PollTimeout::NONE);
    }

    #[test]
    fn the_source_is_udev_only_where_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let root = SysRoot::new(folder.path());
        assert_eq!(UeventSource::detect(&root).unwrap(), UeventSource::Kernel);
        std::fs::create_dir_all(root.path("run/udev")).unwrap();
        std::fs::write(root.path("run/udev/control"), "").unwrap();
        assert_eq!(UeventSource::detect(&root).unwrap(), UeventSource::Udev);
    }

    #[test]
    fn a_dropped_handle_ends_a_wait_without_timeout() {
        let (stop, signal) = stop_pair().unwrap();
        let waiting = std::thread::spawn(move || {
            let monitor = UeventMonitor::open(UeventSource::Kernel, signal).unwrap();
            while !monitor.is_stopped() {
                monitor.wait(None).unwrap();
            }
        });
        drop(stop);
        waiting.join().unwrap();
    }
}
