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
use serde_json::{Value, json};

use crate::{
    emulator::{self, Emulator, Machine, PATIENCE, RackHost, Turn},
    initramfs::{self, Cargo},
};

/// What the daemon is told. All else is as on a host where nothing was configured.
const CONFIG: &str =
    "node_name = \"emulated\"\n[log]\nlevel = \"debug\"\n[kubelet]\nenabled = false\n[inventory]\nrescan = \"1h\"\n";

/// The folder of tools/machine.sh.
pub fn cache() -> PathBuf {
    env::var_os("HOSTLER_MACHINE").expect("HOSTLER_MACHINE names the folder of tools/machine.sh").into()
}

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
    /// Boots the machine with hardware.
    pub fn boot() -> Self {
        Self::boot_machine(&Machine::Hardware, Cargo::Hardware)
    }

    /// Boots a machine.
    pub fn boot_machine(machine: &Machine, cargo: Cargo) -> Self {
        Self::boot_in(emulator::turn(&cache()), machine, cargo)
    }

    /// Boots a host of a rack, beside the others of this turn.
    pub fn boot_rack_host(turn: &Turn, host: RackHost) -> Self {
        Self::boot_in(turn.clone(), &Machine::Rack(host), Cargo::Rack)
    }

    fn boot_in(turn: Turn, machine: &Machine, cargo: Cargo) -> Self {
        let cache = cache();
        let emulator = Emulator::start(turn, &cache, &initramfs::build(&cache.join("root"), cargo), machine);
        let wire = BufReader::new(emulator.wire());
        let mut guest = Self { emulator, wire };
        assert_eq!(guest.line(), "hello");
        guest
    }

    /// Boots the machine and starts the daemon.
    pub fn with_daemon() -> Self {
        let mut guest = Self::boot();
        guest.configure("");
        guest.start_daemon();
        guest
    }

    /// Writes the daemon's configuration, with something added.
    pub fn configure(&mut self, more: &str) {
        self.write("/etc/hostler/hostler.toml", &format!("{CONFIG}{more}"));
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

    /// Creates a claim for one device with a configuration, from a manifest as an operator would write it.
    pub fn claim_with(&mut self, name: &str, backend: &str, device: &str, config: &Value) -> String {
        let mut parameters = config.clone();
        parameters["apiVersion"] = "hostler.dev/v1alpha1".into();
        let result =
            json!({"request": "r", "driver": "hostler.dev", "pool": format!("emulated/{backend}"), "device": device});
        let config = json!({"source": "FromClaim", "opaque": {"driver": "hostler.dev", "parameters": parameters}});
        let manifest = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
            "status": {"allocation": {"devices": {"results": [result], "config": [config]}}},
        });
        self.write(&format!("/etc/hostler/claims/{name}.json"), &manifest.to_string());
        let claim = self.json(&format!("hostler claim prepare {name} -o json"));
        claim["uid"].as_str().unwrap().to_owned()
    }

    /// The device nodes that containers with a claim get.
    pub fn cdi_nodes(&mut self, claim: &str) -> Vec<String> {
        let spec = self.json(&format!("cat /run/cdi/hostler.dev-claim_{claim}.json"));
        let devices = spec["devices"].as_array().into_iter().flatten().map(|device| &device["containerEdits"]);
        let nodes = devices.filter_map(|edits| edits["deviceNodes"].as_array()).flatten();
        nodes.map(|node| node["path"].as_str().unwrap().to_owned()).collect()
    }

    /// Turns the machine off as a cable does that is pulled, and waits until the emulator has closed its files.
    pub fn power_off(mut self) {
        self.emulator.order("quit", &json!({}));
        self.emulator.wait();
    }

    /// Runs a command of the guest's shell.
    pub fn run(&mut self, command: &str) -> Said {
        let line = BASE64_STANDARD.encode(command);
        if let Err(error) = writeln!(self.wire.get_mut(), "{line}") {
            self.emulator.lost(&format!("cannot be told {command}: {error}"));
        }
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

    /// Plugs a device into the machine.
    pub fn plug(&mut self, device: &Value) {
        self.emulator.order("device_add", device);
    }

    /// Presses the button beside a slot: the guest is asked to let go of the device.
    pub fn unplug(&mut self, id: &str) {
        self.emulator.order("device_del", &json!({"id": id}));
    }

    /// True if a device with this name is plugged in, or the guest has not let go of it yet.
    pub fn is_plugged(&mut self, id: &str) -> bool {
        let plugged = self.emulator.order("qom-list", &json!({"path": "/machine/peripheral"}));
        plugged.as_array().unwrap().iter().any(|device| device["name"] == id)
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

    /// One device as a look at the machine finds it.
    pub fn seen_device(&mut self, backend: &str, name: &str) -> Option<Value> {
        let inventory = self.json("hostler inventory -o json");
        let mut devices = inventory["devices"].as_array().unwrap().iter();
        devices.find(|device| device["backend"] == backend && device["name"] == name).cloned()
    }

    /// One device as the daemon knows it, by its `BACKEND/DEVICE`.
    pub fn known_device(&mut self, name: &str) -> Option<Value> {
        let devices = self.json("hostler device list -o json");
        devices["items"].as_array().unwrap().iter().find(|device| full_name(device) == name).cloned()
    }

    /// The devices of a backend that the daemon knows, sorted.
    pub fn known_names(&mut self, backend: &str) -> Vec<String> {
        let devices = self.json("hostler device list -o json");
        let devices = devices["items"].as_array().unwrap().iter().filter(|device| device["backend"] == backend);
        let mut names: Vec<String> = devices.map(full_name).collect();
        names.sort();
        names
    }

    /// What the daemon has logged.
    pub fn log(&mut self) -> String {
        self.run("cat /run/hostler.log").output
    }

    /// The machine works, and its kernel has nothing to complain of.
    pub fn assert_alive(&mut self) {
        assert_eq!(self.ok("echo $((6 * 7))"), "42");
        let kernel = self.ok("dmesg");
        // A call trace alone is not one: Linux 6.12 writes a harmless one for the second region of a node.
        for trouble in
            ["Oops", "BUG:", "WARNING:", "Bad page", "general protection", "stuck online", "blocked for more"]
        {
            assert!(!kernel.contains(trouble), "{kernel}");
        }
    }

    /// The next line of the agent.
    fn line(&mut self) -> String {
        let mut line = String::new();
        match self.wire.read_line(&mut line) {
            Ok(read) if read > 0 => line.trim_end_matches('\n').to_owned(),
            ended => self.emulator.lost(&format!("is silent: {ended:?}")),
        }
    }
}

fn full_name(device: &Value) -> String {
    format!("{}/{}", device["backend"].as_str().unwrap(), device["name"].as_str().unwrap())
}
