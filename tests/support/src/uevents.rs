//! Uevents that come from the kernel although nothing happened: in a network namespace of our own it sends back, as its
//! own, what we send to it.

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket},
};

/// Enters a user namespace, in which we are root, and a network namespace that belongs to it. The caller has one
/// thread.
///
/// # Errors
/// Where this machine does not allow user namespaces.
pub fn enter_namespaces() -> Result<(), Errno> {
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    if let Err(error) = unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
        assert!(matches!(error, Errno::EPERM | Errno::ENOSPC | Errno::ENOSYS | Errno::EINVAL), "{error}");
        return Err(error);
    }
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).unwrap();
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).unwrap();
    Ok(())
}

/// The kernel's message about one event: `ACTION@DEVPATH` and fields, without the sequence number, each ended by a NUL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UeventDatagram(Vec<u8>);

impl UeventDatagram {
    /// An event with nothing but what every event has.
    pub fn new(action: &str, devpath: &str, subsystem: &str) -> Self {
        let fields = [("ACTION", action), ("DEVPATH", devpath), ("SUBSYSTEM", subsystem)];
        let fields = fields.map(|(key, value)| format!("{key}={value}"));
        Self::of(&format!("{action}@{devpath}"), fields.iter().map(String::as_str))
    }

    fn of<'a>(head: &'a str, fields: impl Iterator<Item = &'a str>) -> Self {
        Self([head].into_iter().chain(fields).flat_map(|field| [field.as_bytes(), b"\0"].concat()).collect())
    }
}

/// A recorded event.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedUevent {
    /// Seconds since boot.
    pub at: f64,
    /// The kernel's message.
    pub datagram: UeventDatagram,
}

/// Reads a log of uevents: `[seconds] N bytes`, then the datagram's fields, one on each line.
pub fn recorded(log: &Path) -> Vec<RecordedUevent> {
    let text = fs::read_to_string(log).unwrap();
    let mut events: Vec<(f64, usize, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix('[') {
            Some(head) => {
                let (at, length) = head.strip_suffix(" bytes").and_then(|head| head.split_once("] ")).unwrap();
                events.push((at.parse().unwrap(), length.parse().unwrap(), Vec::new()));
            }
            None => events.last_mut().unwrap().2.push(line.trim_start()),
        }
    }
    let event = |(at, length, fields): (f64, usize, Vec<&str>)| {
        assert_eq!(fields.iter().map(|field| field.len() + 1).sum::<usize>(), length, "{fields:?}");
        let kept = fields[1..].iter().copied().filter(|field| !field.starts_with("SEQNUM="));
        RecordedUevent { at, datagram: UeventDatagram::of(fields[0], kept) }
    };
    events.into_iter().map(event).collect()
}

/// Sends events to the kernel, which sends them to every listener of this network namespace.
pub struct UeventInjector(OwnedFd);

impl UeventInjector {
    /// Opens the socket in the network namespace of this thread.
    pub fn new() -> Self {
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        Self(socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol).unwrap())
    }

    /// Sends one event. It is in the buffers of all listeners when this returns, or was lost there.
    pub fn send(&self, datagram: &UeventDatagram) {
        let length = u32::try_from(16 + datagram.0.len()).unwrap();
        // Length, the first type that is not netlink's own, the request flag, sequence number, port.
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(0x10_u16.to_ne_bytes());
        message.extend(1_u16.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(&datagram.0);
        let sent = sendto(self.0.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty()).unwrap();
        assert_eq!(sent, message.len());
    }

    /// Sends several, in this order.
    pub fn send_all<'a>(&self, datagrams: impl IntoIterator<Item = &'a UeventDatagram>) {
        datagrams.into_iter().for_each(|datagram| self.send(datagram));
    }
}

impl Default for UeventInjector {
    fn default() -> Self {
        Self::new()
    }
}
