//! The machine as a test sees it: a shell, a daemon, and cables to pull.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use crate::{
    emulator::{Emulator, PATIENCE},
    initramfs,
};

/// What the daemon is told. All else is as on a host where nothing was configured.
const CONFIG: &str = "node_name = \"emulated\"\n[log]\nlevel = \"debug\"\n[kubelet]\nenabled = false\n";

/// A machine that has booted.
pub struct Guest {
    emulator: Emulator,
    wire: BufReader<UnixStream>,
}

/// What a command in the guest came to.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub output: String,
    pub errors: String,
}

impl Guest {
    /// Boots the machine.
    pub fn boot() -> Self {
        let cache = env::var_os("HOSTLER_MACHINE").expect("HOSTLER_MACHINE names the folder of tools/machine.sh");
        let cache = PathBuf::from(cache);
        let emulator = Emulator::start(&cache, &initramfs::build(&cache.join("root")));
        let wire = BufReader::new(emulator.wire());
        let mut guest = Self { emulator, wire };
        assert_eq!(guest.line(), "hello");
        guest
    }

    /// Boots the machine and starts the daemon.
    pub fn with_daemon() -> Self {
        let mut guest = Self::boot();
        guest.write("/etc/hostler/hostler.toml", CONFIG);
        guest.start_daemon();
        guest
    }

    /// Starts the daemon and waits until it serves.
    pub fn start_daemon(&mut self) {
        self.ok("hostler run >>/run/hostler.log 2>&1 & echo $! >/run/hostler.pid");
        self.wait_for("the daemon to be ready", |guest| (guest.run("hostler ready").code == 0).then_some(()));
    }

    /// Kills the daemon as the kernel does when memory runs out.
    pub fn kill_daemon(&mut self) {
        self.ok("kill -9 $(cat /run/hostler.pid)");
        self.wait_for("the daemon to end", |guest| {
            (guest.run("kill -0 $(cat /run/hostler.pid)").code != 0).then_some(())
        });
    }

    /// Creates a claim and returns its identity.
    pub fn claim(&mut self, name: &str, devices: &[&str]) -> String {
        let claim = self.json(&format!("hostler claim create {name} -o json -d {}", devices.join(" -d ")));
        claim["uid"].as_str().unwrap().to_owned()
    }

    /// Runs a command of the guest's shell.
    pub fn run(&mut self, command: &str) -> Said {
        let line = BASE64_STANDARD.encode(command);
        writeln!(self.wire.get_mut(), "{line}").unwrap();
        let answer = self.line();
        let mut fields = answer.split(' ');
        let code = fields.next().and_then(|code| code.parse().ok());
        let mut text = || fields.next().and_then(|field| BASE64_STANDARD.decode(field).ok());
        let (Some(code), Some(output), Some(errors)) = (code, text(), text()) else {
            panic!("the agent answers {answer:?} to: {command}\n{}", self.emulator.console());
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { code, output: text(output), errors: text(errors) }
    }

    /// The output of a command that succeeds.
    pub fn ok(&mut self, command: &str) -> String {
        let said = self.run(command);
        assert_eq!(said.code, 0, "{command}\n{}{}", said.output, said.errors);
        said.output.trim_end().to_owned()
    }

    /// What a command says that has to fail.
    pub fn refused(&mut self, command: &str) -> String {
        let said = self.run(command);
        assert_ne!(said.code, 0, "not refused: {command}\n{}{}", said.output, said.errors);
        said.errors
    }

    /// The output of a command, as JSON.
    pub fn json(&mut self, command: &str) -> Value {
        let text = self.ok(command);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error} in {text}"))
    }

    /// Writes a file.
    pub fn write(&mut self, path: &str, content: &str) {
        self.ok(&format!("cat >{path} <<'END-OF-FILE'\n{content}\nEND-OF-FILE"));
    }

    /// Waits until `condition` gives something.
    pub fn wait_for<T>(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = condition(self) {
                return value;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}\n{}", self.log());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// What the daemon has logged.
    pub fn log(&mut self) -> String {
        self.run("cat /run/hostler.log").output
    }

    /// The machine works, and its kernel has nothing to complain of.
    pub fn assert_alive(&mut self) {
        assert_eq!(self.ok("echo $((6 * 7))"), "42");
        let kernel = self.ok("dmesg");
        for trouble in ["Oops", "BUG:", "WARNING:", "Call Trace", "Bad page", "stuck online"] {
            assert!(!kernel.contains(trouble), "{kernel}");
        }
    }

    /// The next line of the agent.
    fn line(&mut self) -> String {
        let mut line = String::new();
        match self.wire.read_line(&mut line) {
            Ok(read) if read > 0 => line.trim_end_matches('\n').to_owned(),
            ended => panic!("the machine is silent ({ended:?})\n{}", self.emulator.console()),
        }
    }
}
