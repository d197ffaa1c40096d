//! The real socket: in a network namespace of our own the kernel sends back, as its own, the events that we inject.
//!
//! Has a `main` of its own because a user namespace can be entered by a process with one thread only, and the test
//! harness has more.

#![expect(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used, reason = "this is a test")]

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use hostler_linux::uevent::{
    MonitorEvent, RescanScope, UeventAction, UeventCoalescer, UeventHint, UeventMonitor, UeventSource, stop_pair,
};
use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket},
};

const SOON: Duration = Duration::from_secs(5);

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        println!("injected_events_are_received: test");
        return;
    }
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    if let Err(error) = unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
        assert!(matches!(error, Errno::EPERM | Errno::ENOSPC | Errno::ENOSYS | Errno::EINVAL), "{error}");
        eprintln!("skipped: this machine does not allow user namespaces ({error})");
        return;
    }
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).unwrap();
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).unwrap();
    events_are_received_in_order();
    a_removal_is_rescanned_at_once();
    lost_events_are_an_overflow();
    println!("test injected_events_are_received ... ok");
}

/// The kernel's socket, for injection.
fn injector() -> OwnedFd {
    let protocol = SockProtocol::NetlinkKObjectUEvent;
    socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol).unwrap()
}

/// Sends an event to the kernel, which adds a sequence number and sends it to every listener of this namespace.
fn inject(socket: &OwnedFd, action: &str, devpath: &str, subsystem: &str) {
    let fields = format!("{action}@{devpath}\0ACTION={action}\0DEVPATH={devpath}\0SUBSYSTEM={subsystem}\0");
    let length = u32::try_from(16 + fields.len()).unwrap();
    // Length, the first type that is not netlink's own, the request flag, sequence number, port.
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(0x10_u16.to_ne_bytes());
    message.extend(1_u16.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(fields.as_bytes());
    let sent = sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty()).unwrap();
    assert_eq!(sent, message.len());
}

fn hint(subsystem: &str, action: UeventAction, devpath: &str) -> MonitorEvent {
    MonitorEvent::Hint(UeventHint { subsystem: subsystem.to_owned(), action, devpath: devpath.to_owned() })
}

/// Waits until `count` events are there.
fn receive(monitor: &UeventMonitor, count: usize) -> Vec<MonitorEvent> {
    let start = Instant::now();
    let mut events = Vec::new();
    while events.len() < count {
        assert!(start.elapsed() < SOON, "only {events:?}");
        events.extend(monitor.wait(Some(SOON)).unwrap());
    }
    events
}

fn events_are_received_in_order() {
    let (_stop, signal) = stop_pair().unwrap();
    let (monitor, injector) = (UeventMonitor::open(UeventSource::Kernel, signal).unwrap(), injector());
    assert_eq!(monitor.wait(Some(Duration::ZERO)).unwrap(), []);
    let node = "/devices/system/node/node5";
    let memory = "/devices/pci0000:40/0000:40:00.0/0000:41:00.0/mem1";
    inject(&injector, "add", node, "node");
    inject(&injector, "bind", memory, "cxl");
    inject(&injector, "offline", "/devices/system/memory/memory40", "memory");
    inject(&injector, "online", "/devices/system/cpu/cpu1", "cpu");
    inject(&injector, "change", "/devices/x", "pci");
    inject(&injector, "remove", memory, "cxl");
    let expected = [
        hint("node", UeventAction::Add, node),
        hint("cxl", UeventAction::Bind, memory),
        hint("memory", UeventAction::Offline, "/devices/system/memory/memory40"),
        hint("cpu", UeventAction::Online, "/devices/system/cpu/cpu1"),
        hint("pci", UeventAction::Change, "/devices/x"),
        hint("cxl", UeventAction::Remove, memory),
    ];
    assert_eq!(receive(&monitor, expected.len()), expected);
    assert!(!monitor.is_stopped());
}

fn a_removal_is_rescanned_at_once() {
    let (_stop, signal) = stop_pair().unwrap();
    let (monitor, injector) = (UeventMonitor::open(UeventSource::Kernel, signal).unwrap(), injector());
    inject(&injector, "remove", "/devices/pci0000:00/0000:00:02.0", "pci");
    let (mut coalescer, now) = (UeventCoalescer::default(), Instant::now());
    for event in receive(&monitor, 1) {
        coalescer.push(&event, now);
    }
    let rescan = coalescer.take(now);
    let (subsystems, devpaths) = (["pci".to_owned()].into(), ["/devices/pci0000:00/0000:00:02.0".to_owned()].into());
    assert_eq!(rescan, Some(RescanScope::Removals { subsystems, devpaths }));
}

fn lost_events_are_an_overflow() {
    let (_stop, signal) = stop_pair().unwrap();
    let (monitor, injector) = (UeventMonitor::open(UeventSource::Kernel, signal).unwrap(), injector());
    // More than the largest buffer that the monitor asks for can hold.
    for number in 0..60_000 {
        inject(&injector, "add", &format!("/devices/system/memory/memory{number}"), "memory");
    }
    let start = Instant::now();
    let mut hints = 0;
    loop {
        let events = monitor.wait(Some(SOON)).unwrap();
        hints += events.iter().filter(|event| **event != MonitorEvent::Overflow).count();
        if events.contains(&MonitorEvent::Overflow) {
            break;
        }
        assert!(start.elapsed() < 4 * SOON, "{hints} hints and no overflow");
    }
    assert!(hints < 60_000);
    // And it hears again.
    while !monitor.wait(Some(Duration::ZERO)).unwrap().is_empty() {}
    inject(&injector, "add", "/devices/after", "pci");
    assert_eq!(receive(&monitor, 1), [hint("pci", UeventAction::Add, "/devices/after")]);
}
