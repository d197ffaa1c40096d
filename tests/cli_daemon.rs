//! The command line and the daemon together: claims from their creation to their end, on a made-up machine.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "these tests run the binary")]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// A daemon on a machine with one NUMA node, four CPUs and 1 GiB.
struct Daemon {
    dir: TempDir,
    child: Child,
}

impl Daemon {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        machine(&dir.path().join("root"));
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "node_name = \"n1\"\n[paths]\nstate = {:?}\nrun = {:?}\ncdi = {:?}\nkubelet = {:?}\nroot = {:?}\n\
             [cluster]\nmanifests = {:?}\n[kubelet]\nenabled = false\n[metrics]\nlisten = \"off\"\n[log]\nlevel = \"warn\"\n",
            at("state"),
            at("run"),
            at("cdi"),
            at("kubelet"),
            at("root"),
            at("manifests")
        );
        fs::write(dir.path().join("hostler.toml"), config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_hostler"))
            .args(["run", "--config"])
            .arg(dir.path().join("hostler.toml"))
            .spawn()
            .unwrap();
        let mut daemon = Self { dir, child };
        daemon.wait_until_it_answers();
        daemon
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.hostler(&["status"]).status.success() {
            assert!(self.child.try_wait().unwrap().is_none(), "the daemon has ended");
            assert!(Instant::now() < deadline, "the daemon does not answer");
        }
    }

    fn hostler(&self, args: &[&str]) -> Output {
        let socket = self.dir.path().join("run/admin.sock");
        Command::new(env!("CARGO_BIN_EXE_hostler")).args(args).arg("--socket").arg(socket).output().unwrap()
    }

    /// What a command that succeeds writes.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.hostler(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command that fails complains of.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.hostler(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    fn stop(mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Daemon {
    /// For tests that fail before they stop it; a process that has ended already is fine.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn machine(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    write("proc/sys/kernel/random/boot_id", "7d3f1a52-9f1e-4c55-8a51-3c1c4f6f0a11");
    for file in ["online", "present", "possible"] {
        write(&format!("sys/devices/system/cpu/{file}"), "0-3");
    }
    for cpu in 0..4 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        write(&format!("{topology}/physical_package_id"), "0");
        write(&format!("{topology}/core_id"), &cpu.to_string());
        write(&format!("{topology}/thread_siblings_list"), &cpu.to_string());
        write(&format!("{topology}/core_siblings_list"), "0-3");
    }
    write("sys/devices/system/node/online", "0");
    write("sys/devices/system/node/node0/cpulist", "0-3");
    write("sys/devices/system/node/node0/distance", "10");
    write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  1048576 kB\nNode 0 MemFree: 524288 kB");
}

#[test]
fn a_claim_lives_from_create_to_delete() {
    let daemon = Daemon::start();
    assert!(daemon.ok(&["status"]).contains("ready    yes"));

    let options = daemon.ok(&[
        "claim",
        "create",
        "a",
        "-d",
        "cpu/numa0,capacity=2",
        "-d",
        "n1/memory/node0,memory=64Mi",
        "-o",
        "podman",
    ]);
    assert_eq!(options.matches("--device hostler.dev/claim=").count(), 2, "{options}");
    let shown: serde_json::Value = serde_json::from_str(&daemon.ok(&["claim", "show", "a", "-o", "json"])).unwrap();
    assert_eq!((&shown["state"], &shown["devices"][0]["consumed"]["cpus"]), (&"prepared".into(), &"2".into()));
    assert_eq!(shown["devices"][0]["cpus"], "0-1");
    let uid = shown["uid"].as_str().unwrap();

    // Asked again, by name or identity, the answer is the same.
    assert_eq!(daemon.ok(&["claim", "prepare", "a", "-o", "podman"]), options);
    assert_eq!(daemon.ok(&["claim", "show", uid, "-o", "podman"]), options);
    assert!(daemon.ok(&["claim", "list"]).contains(uid));
    let cdi = daemon.dir.path().join("cdi");
    let checked = Command::new(env!("CARGO_BIN_EXE_hostler")).args(["cdi", "validate"]).arg(&cdi).output().unwrap();
    assert!(String::from_utf8(checked.stdout).unwrap().contains(": valid"));

    assert!(daemon.refused(&["claim", "create", "a", "-d", "cpu/numa0,cpus=1"]).contains("exists already"));
    assert!(daemon.refused(&["claim", "create", "b", "-d", "cpu/numa0,cpus=3"]).contains("default/a"), "the holder");
    assert!(daemon.refused(&["claim", "create", "b", "-d", "cpu/numa7"]).contains("there are numa0"));
    assert!(daemon.refused(&["claim", "show", "a", "-n", "elsewhere"]).contains("elsewhere"));
    assert!(daemon.refused(&["claim", "forget", uid]).contains("not quarantined"));

    daemon.ok(&["claim", "delete", "a"]);
    assert!(daemon.refused(&["claim", "show", "a"]).contains("there is no claim"));
    assert_eq!(fs::read_dir(&cdi).unwrap().count(), 0, "the CDI file went with the claim");
    daemon.ok(&["claim", "create", "b", "-d", "cpu/numa0,cpus=4"]);
    daemon.stop();
}

#[test]
fn a_rescan_finds_what_no_event_told() {
    let daemon = Daemon::start();
    let meminfo = daemon.dir.path().join("root/sys/devices/system/node/node0/meminfo");
    fs::write(meminfo, "Node 0 MemTotal:  0 kB\nNode 0 MemFree: 0 kB\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(&daemon.ok(&["status", "--rescan", "-o", "json"])).unwrap();
    let memory = status["backends"].as_array().unwrap().iter().find(|backend| backend["name"] == "memory").unwrap();
    assert_eq!(memory["devices"], 0, "{status}");
    daemon.stop();
}
