//! The command line and the daemon together: claims from their creation to their end, on a made-up machine.
use std::{
    fs,
    os::unix::fs::MetadataExt,
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
        Self::start_with("[kubelet]\nenabled = false\n")
    }

    /// Starts with more configuration, of sections that no other test needs.
    fn start_with(extra: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        machine(&dir.path().join("root"));
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "node_name = \"n1\"\n[paths]\nstate = {:?}\nrun = {:?}\ncdi = {:?}\nkubelet = {:?}\nroot = {:?}\n\
             [cluster]\nmanifests = {:?}\n[metrics]\nlisten = \"off\"\n[log]\nlevel = \"warn\"\n{extra}",
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

    /// Returns the output of a command that succeeds.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.hostler(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error output of a command that fails.
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
    /// Ends the daemon of a test that failed before it stopped it; a process that has ended already is fine.
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

    let rounded = daemon.ok(&["claim", "create", "half", "-d", "cpu/numa0,cpus=1.5", "--dry-run"]);
    assert!(rounded.contains("was asked for and 2 given"), "a whole CPU more needs a word: {rounded}");
    let said = daemon.ok(&["claim", "create", "half", "-d", "cpu/numa0,cpus=1.5", "--dry-run", "-o", "json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["notes"][0], "numa0: cpus 1500m was asked for and 2 given, since it has steps", "{said}");
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

#[test]
fn claims_are_named_alike_by_every_command() {
    let daemon = Daemon::start();
    daemon.ok(&["claim", "create", "ml/a", "-d", "cpu/numa0,cpus=1"]);
    daemon.ok(&["claim", "create", "b", "-n", "ml", "-d", "cpu/numa0,cpus=1"]);
    daemon.ok(&["claim", "create", "c", "-d", "cpu/numa0,cpus=1"]);
    assert_eq!(daemon.ok(&["claim", "list", "-o", "name"]), "default/c\nml/a\nml/b\n");
    assert_eq!(daemon.ok(&["claim", "list", "-n", "ml", "-o", "name"]), "ml/a\nml/b\n");
    assert_eq!(daemon.ok(&["claim", "show", "ml/a", "-o", "name"]), "ml/a\n");
    assert_eq!(daemon.ok(&["claim", "prepare", "b", "-n", "ml", "-o", "name"]), "ml/b\n");
    assert!(daemon.ok(&["explain", "claim", "ml/a"]).starts_with("claim ml/a, uid "));

    // An error about a missing object names similar ones, in each command.
    for args in [
        &["claim", "show", "ml/aa"][..],
        &["claim", "delete", "ml/aa"],
        &["claim", "forget", "ml/aa"],
        &["explain", "claim", "ml/aa"],
    ] {
        let refused = daemon.refused(args);
        assert!(refused.contains("there is no ") && refused.contains("did you mean ml/a?"), "{args:?}: {refused}");
    }
    let refused = daemon.refused(&["claim", "show", "a"]);
    assert!(refused.contains("did you mean ml/a?"), "another namespace has it: {refused}");
    assert!(daemon.refused(&["claim", "forget", "ml/a"]).contains("not quarantined"));

    let refused = daemon.refused(&["claim", "delete", "ml/a", "nobody", "ml/b"]);
    assert!(refused.contains("claim nobody: there is no claim"), "{refused}");
    assert_eq!(daemon.ok(&["claim", "list", "-o", "name"]), "default/c\n", "the others are deleted all the same");
    assert_eq!(daemon.ok(&["claim", "delete", "c"]), "claim c deleted\n");
    daemon.stop();
}

#[test]
fn every_list_has_the_same_shapes_and_says_what_it_is() {
    let daemon = Daemon::start();
    daemon.ok(&["claim", "create", "a", "-d", "cpu/numa0,cpus=1"]);
    for (args, kind, name) in [
        (&["claim", "list"][..], "ClaimList", "default/a\n"),
        (&["device", "list"], "DeviceList", "cpu/numa0\nmemory/node0\n"),
    ] {
        let json: serde_json::Value = serde_json::from_str(&daemon.ok(&[args, &["-o", "json"]].concat())).unwrap();
        assert_eq!((&json["apiVersion"], &json["kind"]), (&"output.hostler.dev/v1".into(), &kind.into()));
        assert_eq!(json["items"].as_array().unwrap().len(), name.lines().count());
        let yaml = daemon.ok(&[args, &["-o", "yaml"]].concat());
        assert!(yaml.starts_with(&format!("apiVersion: output.hostler.dev/v1\nkind: {kind}\nitems:\n")), "{yaml}");
        assert_eq!(daemon.ok(&[args, &["-o", "name"]].concat()), name);
        let (narrow, wide) = (daemon.ok(args), daemon.ok(&[args, &["-o", "wide"]].concat()));
        let columns = |text: &str| text.lines().next().unwrap().split_whitespace().count();
        assert!(columns(&wide) > columns(&narrow), "{wide}");
    }
    let list = daemon.ok(&["claim", "list"]);
    let age = list.lines().nth(1).unwrap().split_whitespace().nth(3).unwrap();
    assert!(list.contains("AGE") && age.ends_with('s') && age.len() < 4, "{list}");

    let json: serde_json::Value = serde_json::from_str(&daemon.ok(&["device", "show", "numa0", "-o", "json"])).unwrap();
    assert_eq!((&json["kind"], &json["capacity"]["cpus"]["value"]), (&"Device".into(), &"4".into()));
    let shown = daemon.ok(&["device", "show", "cpu/numa0"]);
    assert!(
        shown.contains("state    in use\n")
            && shown.contains("held by  default/a\n")
            && shown.lines().any(|line| line.split_whitespace().take(4).eq(["cpus", "1", "3", "4"])),
        "{shown}"
    );
    assert!(daemon.refused(&["device", "show", "cpu/numa1"]).contains("did you mean cpu/numa0?"));
    daemon.ok(&["device", "drain", "node0", "--reason", "noise"]);
    let list = daemon.ok(&["device", "list"]);
    assert!(list.contains("cpu/numa0     in use") && list.contains("memory/node0  drained"), "{list}");
    daemon.stop();
}

#[test]
fn a_dry_run_says_what_would_be_and_changes_nothing() {
    let daemon = Daemon::start();
    let said = daemon.ok(&["claim", "create", "a", "-d", "cpu/numa0,cpus=3", "--dry-run"]);
    assert!(said.starts_with("dry run: nothing was changed") && said.contains("0-2"), "{said}");
    assert_eq!(daemon.ok(&["claim", "list", "-o", "name"]), "");
    assert!(!daemon.dir.path().join("manifests").exists());
    daemon.ok(&["claim", "create", "a", "-d", "cpu/numa0,cpus=3"]);

    // Each refusal is the one that the claim itself would meet.
    for args in [
        &["claim", "create", "a", "-d", "cpu/numa0,cpus=1"][..],
        &["claim", "create", "b", "-d", "cpu/numa0,cpus=2"],
        &["claim", "create", "b", "-d", "cpu/numa7"],
        &["claim", "create", "b", "-d", "cpu/numa0,cpus=1,spread=numa"],
    ] {
        let dry = daemon.refused(&[args, &["--dry-run"]].concat());
        let real = daemon.refused(args);
        // A claim that is made anew has another UID each time.
        let without_uids = |text: &str| {
            let words = text.split_whitespace().filter(|word| !word.contains('-') || word.len() < 36);
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(without_uids(&dry), without_uids(&real), "{args:?}");
    }
    daemon.ok(&["device", "drain", "node0"]);
    assert!(daemon.refused(&["claim", "create", "b", "-d", "memory/node0", "--dry-run"]).contains("is drained"));
    assert_eq!(daemon.ok(&["claim", "list", "-o", "name"]), "default/a\n");
    daemon.stop();
}

#[test]
fn what_a_claim_asks_beyond_amounts_stands_beside_them() {
    let daemon = Daemon::start();
    daemon.ok(&[
        "claim",
        "create",
        "a",
        "-d",
        "cpu/numa0,cpus=2,spread=cores,sameNumaNode=required",
        "-d",
        "memory/node0,memory=64Mi,policy=interleave",
    ]);
    let manifest = fs::read_to_string(daemon.dir.path().join("manifests/default_a.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let devices = &manifest["status"]["allocation"]["devices"];
    let kinds: Vec<&str> = devices["config"]
        .as_array()
        .unwrap()
        .iter()
        .map(|config| config["opaque"]["parameters"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["CpuConfig", "PlacementConfig", "MemoryConfig"]);
    let cdi = fs::read_dir(daemon.dir.path().join("cdi")).unwrap().next().unwrap().unwrap();
    assert!(fs::read_to_string(cdi.path()).unwrap().contains("HOSTLER_MEMPOLICY=interleave:0"));
    // The message is that of the configuration reader, before the daemon is asked.
    let output = daemon.hostler(&["claim", "create", "b", "-d", "cpu/numa0,smt=off"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cpu/numa0.smt: \"off\" is not one of shared, isolated"), "{said}");
    let refused = daemon.refused(&["claim", "create", "b", "-d", "memory/node0,memory=64Mi,smt=isolated"]);
    assert!(refused.contains("CpuConfig says nothing to device node0"), "{refused}");

    let quadlet = daemon.ok(&["claim", "show", "a", "-o", "quadlet"]);
    assert_eq!(quadlet.matches("\nAddDevice=hostler.dev/claim=").count(), 2, "{quadlet}");
    let socket = daemon.dir.path().join("run/admin.sock").display().to_string();
    assert!(quadlet.contains(&format!("claim prepare default/a --socket {socket}\n")), "the same daemon: {quadlet}");
    daemon.stop();
}

#[test]
fn readiness_can_be_asked_of_a_socket() {
    let daemon = Daemon::start();
    assert_eq!(daemon.ok(&["ready"]), "ready\n");
    assert_eq!(daemon.ok(&["ready", "--alive"]), "ok\n");
    let socket = daemon.dir.path().join("nobody.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_hostler")).args(["ready", "--socket"]).arg(&socket).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no daemon listens on"));
    daemon.stop();
}

#[test]
fn completion_knows_the_devices_and_claims_of_the_daemon() {
    let daemon = Daemon::start();
    daemon.ok(&["claim", "create", "ml/a", "-d", "cpu/numa0,cpus=1"]);
    let socket = daemon.dir.path().join("run/admin.sock").display().to_string();
    let completed = |words: &[&str]| {
        let words = [&["--", "hostler"], words].concat();
        let mut asked = Command::new(env!("CARGO_BIN_EXE_hostler"));
        asked
            .env("HOSTLER_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", (words.len() - 2).to_string())
            .env("_CLAP_IFS", "\n");
        let output = asked.args(&words).output().unwrap();
        assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(completed(&["claim", "show", "--socket", &socket, "m"]), "ml/a");
    assert_eq!(completed(&["claim", "show", &format!("--socket={socket}"), "m"]), "ml/a");
    let config = daemon.dir.path().join("hostler.toml");
    assert_eq!(completed(&["claim", "show", &format!("--config={}", config.display()), "m"]), "ml/a");
    assert_eq!(completed(&["claim", "delete", "--socket", &socket, "ml/a", "ml"]), "ml/a");
    assert_eq!(completed(&["device", "drain", "--socket", &socket, "cpu"]), "cpu/numa0");
    assert_eq!(completed(&["claim", "create", "x", "--socket", &socket, "--device", "mem"]), "memory/node0");
    daemon.stop();
}

#[test]
fn no_folder_of_a_kubelet_is_made_where_there_is_none_and_one_that_comes_is_served() {
    let daemon = Daemon::start_with("[kubelet]\nenabled = true\n");
    let kubelet = daemon.dir.path().join("kubelet");
    assert_eq!(daemon.ok(&["ready"]), "ready\n");
    assert!(!kubelet.exists(), "nobody but a kubelet makes its folder");
    fs::create_dir(&kubelet).unwrap();
    let is_there = || {
        let entries = fs::read_dir(kubelet.join("plugins_registry")).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with("@hostler.dev-reg.sock"))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < deadline, "the services do not open");
        daemon.ok(&["status"]);
    }
    daemon.stop();
}

/// Returns the log of a daemon in a life with one claim; `journal` returns its environment's name of the journal's
/// stream.
fn logged(config: &str, journal: impl FnOnce(&fs::Metadata) -> String) -> String {
    let log = tempfile::NamedTempFile::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    machine(&dir.path().join("root"));
    let at = |name: &str| dir.path().join(name).display().to_string();
    let config = format!(
        "[paths]\nstate = {:?}\nrun = {:?}\ncdi = {:?}\nkubelet = {:?}\nroot = {:?}\n[metrics]\nlisten = \"off\"\n\
         [cluster]\nmanifests = {:?}\n[log]\n{config}",
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
        .env("JOURNAL_STREAM", journal(&log.as_file().metadata().unwrap()))
        .stderr(log.reopen().unwrap())
        .spawn()
        .unwrap();
    let mut daemon = Daemon { dir, child };
    daemon.wait_until_it_answers();
    daemon.ok(&["claim", "create", "a", "-d", "cpu/numa0,cpus=1"]);
    daemon.ok(&["claim", "delete", "a"]);
    daemon.stop();
    fs::read_to_string(log.path()).unwrap()
}

#[test]
fn every_line_of_the_log_for_programs_has_each_key_once() {
    let text = logged("format = \"json\"\nlevel = \"trace\"\n", |_| "elsewhere".to_owned());
    assert!(text.lines().count() > 5 && text.contains("\"spans\""), "{text}");
    for line in text.lines() {
        serde_json::from_str::<EachKeyOnce>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn the_journal_gets_priorities_and_a_file_that_inherits_its_name_does_not() {
    let is_journal = |file: &fs::Metadata| format!("{}:{}", file.dev(), file.ino());
    let text = logged("level = \"debug\"\n", is_journal);
    assert!(text.lines().all(|line| line.starts_with("<6>") || line.starts_with("<7>")), "{text}");
    assert!(text.contains("<6> INFO ") && text.contains("<7>DEBUG "), "{text}");
    let text = logged("level = \"debug\"\n", |file| format!("{}:{}", file.dev(), file.ino() + 1));
    assert!(!text.contains("<6>") && text.contains(" INFO "), "{text}");
}

/// A JSON value in which no object has a key twice; reading into a map would forgive that.
struct EachKeyOnce;

impl<'de> serde::Deserialize<'de> for EachKeyOnce {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> serde::de::Visitor<'de> for Keys {
            type Value = EachKeyOnce;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<EachKeyOnce, A::Error> {
                let mut known = std::collections::BTreeSet::new();
                while let Some((key, EachKeyOnce)) = map.next_entry::<String, EachKeyOnce>()? {
                    if !known.insert(key.clone()) {
                        return Err(serde::de::Error::custom(format!("key {key:?} stands twice")));
                    }
                }
                Ok(EachKeyOnce)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut values: A) -> Result<EachKeyOnce, A::Error> {
                while values.next_element::<EachKeyOnce>()?.is_some() {}
                Ok(EachKeyOnce)
            }

            fn visit_unit<E>(self) -> Result<EachKeyOnce, E> {
                Ok(EachKeyOnce)
            }

            fn visit_bool<E>(self, _: bool) -> Result<EachKeyOnce, E> {
                Ok(EachKeyOnce)
            }

            fn visit_i64<E>(self, _: i64) -> Result<EachKeyOnce, E> {
                Ok(EachKeyOnce)
            }

            fn visit_u64<E>(self, _: u64) -> Result<EachKeyOnce, E> {
                Ok(EachKeyOnce)
            }

            fn visit_f64<E>(self, _: f64) -> Result<EachKeyOnce, E> {
                Ok(EachKeyOnce)
            }

            fn visit_str<E>(self, _: &str) -> Result<EachKeyOnce, E> {
                Ok(EachKeyOnce)
            }
        }
        deserializer.deserialize_any(Keys)
    }
}
