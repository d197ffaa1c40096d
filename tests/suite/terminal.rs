//! Commands that run until they are ended, on a real pseudo-terminal: they end when the terminal goes away, and on a
//! signal.

use std::{
    fs::OpenOptions,
    io::{Read, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    process::{Child, Command, ExitStatus, Stdio},
};

use hostler_testing::{
    binary::binary,
    host::{Host, PATIENCE, script_with, wait_for},
};
use nix::{
    fcntl::OFlag,
    libc::O_NOCTTY,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Sequences that a program writes when it takes the terminal, and when it gives the terminal back.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";

/// A command on a terminal of its own. No session belongs to the terminal, so the kernel sends no signal when the
/// terminal goes away, as under `nohup` and after `disown`.
struct OnTerminal {
    master: PtyMaster,
    command: Child,
    shown: String,
}

impl OnTerminal {
    fn start(host: &Host, args: &[&str]) -> Self {
        // Closed in the command, which would else keep its own terminal there.
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname_r(&master).unwrap();
        let terminal = || -> Stdio {
            OpenOptions::new().read(true).write(true).custom_flags(O_NOCTTY).open(&path).unwrap().into()
        };
        let command = Command::new(binary())
            .args(args)
            .arg("--config")
            .arg(host.path("hostler.toml"))
            .env("TERM", "xterm")
            .stdin(terminal())
            .stdout(terminal())
            .stderr(terminal())
            .spawn()
            .unwrap();
        Self { master, command, shown: String::new() }
    }

    /// Reads until a text was shown.
    fn until(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        while !self.shown.contains(text) {
            let timeout = PollTimeout::try_from(PATIENCE).unwrap();
            let ready = poll(&mut [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)], timeout).unwrap();
            assert!(ready > 0, "waited in vain for {text:?} behind {:?}", self.shown);
            let length = self.master.read(&mut bytes).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.command.id()).unwrap()), signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        wait_for("the command's end", || self.command.try_wait().unwrap())
    }

    /// Closes the terminal.
    fn close(self) -> ExitStatus {
        let Self { master, mut command, .. } = self;
        drop(master);
        wait_for("the command's end", || command.try_wait().unwrap())
    }
}

fn host() -> Host {
    let mut host = Host::new(&script_with(""));
    host.start();
    host
}

#[test]
fn a_live_view_whose_terminal_goes_away_ends() {
    let host = host();
    // At rest, with a key that was not read yet, and in the middle of a key that sends several bytes.
    for keys in ["", "n", "\x1b["] {
        let mut top = OnTerminal::start(&host, &["top"]);
        top.until(TAKEN);
        top.press(keys);
        assert!(top.close().success(), "{keys:?}");
    }
}

#[test]
fn a_live_view_ends_by_a_key_and_by_every_signal_that_asks_for_it_and_gives_the_terminal_back() {
    let host = host();
    let end = |asked: &dyn Fn(&mut OnTerminal)| {
        let mut top = OnTerminal::start(&host, &["top"]);
        top.until(TAKEN);
        asked(&mut top);
        top.until(GIVEN_BACK);
        assert!(top.ended().success());
    };
    for keys in ["q", "\x03", "\x1b", "jq"] {
        end(&|top| top.press(keys));
    }
    for signal in [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT] {
        end(&|top| top.signal(signal));
        // Half a key is waited for no longer than any other.
        end(&|top| {
            top.press("\x1b[1;");
            top.signal(signal);
        });
    }
}

#[test]
fn a_list_that_is_watched_ends_with_its_terminal_and_with_the_reader_of_its_pipe_although_nothing_changes() {
    let host = host();
    for list in ["device", "claim"] {
        let args = [list, "list", "--watch"];
        let mut watched = OnTerminal::start(&host, &args);
        watched.until(if list == "device" { "fake/pool" } else { "NAMESPACE" });
        watched.close();
        let mut piped = host.spawn_command(&args);
        drop(piped.stdout.take());
        wait_for("the command's end", || piped.try_wait().unwrap());
    }
}
