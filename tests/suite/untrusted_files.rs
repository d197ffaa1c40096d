//! Files that hostler reads: anything that lies under such a name is read as a file or refused by name. No read waits
//! without an end or takes all memory, and the daemon starts.
use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output, Stdio},
};

use hostler_testing::host::{Host, SCRIPT, wait_for};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::json;

const UID: &str = "11111111-1111-4111-8111-111111111111";

/// Less memory than [`Trap::Sparse`] pretends to have, and far more than any command needs.
const MOST_KIBIBYTES: u64 = 2 << 20;

/// Objects that can lie where a file is expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trap {
    Fifo,
    /// A link to a device that never ends.
    Device,
    Folder,
    Sparse,
    Loop,
}

impl Trap {
    const ALL: [Self; 5] = [Self::Fifo, Self::Device, Self::Folder, Self::Sparse, Self::Loop];

    fn lay(self, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match self {
            Self::Fifo => mkfifo(path, Mode::S_IRUSR).unwrap(),
            Self::Device => symlink("/dev/zero", path).unwrap(),
            Self::Folder => fs::create_dir(path).unwrap(),
            Self::Sparse => File::create(path).unwrap().set_len(3 << 30).unwrap(),
            Self::Loop => symlink(path.file_name().unwrap(), path).unwrap(),
        }
    }

    /// Returns words of the message about it.
    fn reason(self) -> &'static str {
        match self {
            Self::Fifo => "it is a FIFO; put a regular file in its place",
            Self::Device => "it is a device; put a regular file in its place",
            Self::Folder => "it is a folder; put a regular file in its place",
            Self::Sparse => "it has 3221225472 bytes; ",
            Self::Loop => "Too many levels of symbolic links",
        }
    }

    /// Returns words of the message about it, for a file that only hostler may have made.
    fn distrust(self) -> &'static str {
        match self {
            Self::Fifo | Self::Folder => "is not a file; remove it",
            Self::Device | Self::Loop => "is a link; remove it",
            Self::Sparse => "has 3221225472 bytes; ",
        }
    }
}

/// The binary, with less memory than a sparse file would take.
fn hostler(args: &[&str], input: Stdio) -> Output {
    let limited = format!("ulimit -v {MOST_KIBIBYTES}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_hostler")]).args(args);
    command.stdin(input).output().unwrap()
}

/// Returns everything that a command has written.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The most memory that the daemon ever had.
fn peak_kibibytes(host: &Host) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_daemon_starts_whatever_lies_where_its_records_notes_drains_and_manifests_should_be() {
    for trap in Trap::ALL {
        let mut host = Host::bare(SCRIPT);
        host.manifest("good", UID, &[("r", "fake", "card-1", json!({}))]);
        host.start();
        host.run_ok(&["claim", "prepare", "good"]);
        host.stop();
        trap.lay(&host.path("state/claims/bad.json"));
        trap.lay(&host.path(&format!("state/containers/{UID}/box.5.json")));
        trap.lay(&host.path("state/drains.json"));
        trap.lay(&host.path("manifests/default_bad.yaml"));
        host.start();

        assert_eq!(host.get("/v1/status")["claims"]["quarantined"], 1, "{trap:?}");
        let record = host.run_ok(&["claim", "show", "bad"]);
        assert!(record.contains("claims/bad.json") && record.contains(trap.distrust()), "{trap:?}: {record}");
        let drains = host.run_ok(&["device", "list"]);
        assert!(drains.contains("drains.json") && drains.contains(trap.distrust()), "{trap:?}: {drains}");
        let shown = host.run_ok(&["claim", "show", "good"]);
        assert!(shown.contains("box"), "what cannot be judged counts as a container: {shown}");
        // A line of the log can come after the answer that it is about.
        let note = wait_for("the note in the log", || {
            host.log().lines().find(|line| line.contains("box.5.json")).map(str::to_owned)
        });
        assert!(note.contains(trap.distrust()), "{trap:?}: {note}");
        let refused = host.run_refused(&["claim", "prepare", "bad", "--namespace", "default"]);
        assert!(refused.contains("default_bad.yaml") || refused.contains("bad.json"), "{trap:?}: {refused}");
        assert!(peak_kibibytes(&host) < MOST_KIBIBYTES / 4, "{trap:?}");
    }
}

#[test]
fn a_manifest_that_is_no_file_is_refused_by_its_name() {
    for trap in Trap::ALL {
        let mut host = Host::bare(SCRIPT);
        trap.lay(&host.path("manifests/default_trap.yaml"));
        host.start();
        let refused = host.run_refused(&["claim", "create", "trap", "--device", "fake/card-1"]);
        let listed = host.get("/v1/claims").to_string();
        for text in [refused, listed] {
            assert!(text.contains("default_trap.yaml") && text.contains(trap.reason()), "{trap:?}: {text}");
        }
        assert!(peak_kibibytes(&host) < MOST_KIBIBYTES / 4, "{trap:?}");
    }
}

#[test]
fn a_configuration_that_is_no_file_is_refused_by_its_name() {
    let temp = tempfile::tempdir().unwrap();
    for trap in Trap::ALL {
        let path = temp.path().join(format!("{trap:?}.toml"));
        trap.lay(&path);
        for command in [&["config", "check"][..], &["config", "show"], &["inventory"], &["run"]] {
            let output = hostler(&[command, &["--config", path.to_str().unwrap()]].concat(), Stdio::null());
            let text = said(&output);
            assert_eq!(output.status.code(), Some(78), "{trap:?} {command:?}: {text}");
            assert!(text.contains(path.to_str().unwrap()) && text.contains(trap.reason()), "{trap:?}: {text}");
        }
    }
}

#[test]
fn what_is_validated_is_a_file_or_a_pipe_and_has_an_end() {
    let temp = tempfile::tempdir().unwrap();
    for trap in Trap::ALL {
        let path = temp.path().join(format!("{trap:?}.yaml"));
        trap.lay(&path);
        let output = hostler(&["validate", path.to_str().unwrap()], Stdio::null());
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{trap:?}: {text}");
        assert!(text.contains(path.to_str().unwrap()) && text.contains(trap.reason()), "{trap:?}: {text}");
    }
    for name in ["-", "/dev/stdin", "/dev/fd/0"] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"apiVersion: v1\nkind: Pod\n").unwrap();
        drop(writer);
        let output = hostler(&["validate", name], reader.into());
        assert_eq!(output.status.code(), Some(0), "{name}: {}", said(&output));
        let endless = File::open("/dev/zero").unwrap();
        let text = said(&hostler(&["validate", name], endless.into()));
        assert!(text.contains("it has more bytes than it may have"), "{name}: {text}");
    }
}

/// A machine of one CPU in a folder.
fn machine(root: &Path) {
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for list in ["possible", "present", "online"] {
        file(&format!("sys/devices/system/cpu/{list}"), "0\n");
    }
    file("sys/devices/system/node/online", "0\n");
    file("sys/devices/system/node/node0/cpulist", "0\n");
    file("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       1048576 kB\n");
}

#[test]
fn a_file_of_a_machine_in_a_folder_that_is_none_is_refused_by_its_name() {
    for trap in Trap::ALL {
        let temp = tempfile::tempdir().unwrap();
        machine(temp.path());
        let place = "sys/devices/system/cpu/online";
        fs::remove_file(temp.path().join(place)).unwrap();
        trap.lay(&temp.path().join(place));
        let output = hostler(&["inventory", "--root", temp.path().to_str().unwrap()], Stdio::null());
        let text = said(&output);
        if trap == Trap::Device {
            // The link's target is in the folder, where there is no device.
            assert_eq!(output.status.code(), Some(0), "{text}");
        } else {
            assert_ne!(output.status.code(), Some(0), "{trap:?}: {text}");
            assert!(text.contains(place) && text.contains(trap.reason()), "{trap:?}: {text}");
        }
    }
}

#[test]
fn links_of_a_machine_in_a_folder_show_nothing_of_the_host() {
    const SECRET: &str = "model name : secret of the host\nflags : lm\n";
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    machine(&root);
    fs::write(temp.path().join("secret"), SECRET).unwrap();
    fs::create_dir(root.join("proc")).unwrap();
    for target in [temp.path().join("secret"), "../../secret".into(), "/../../../../../../secret".into()] {
        let _ = fs::remove_file(root.join("proc/cpuinfo"));
        symlink(&target, root.join("proc/cpuinfo")).unwrap();
        let output = hostler(&["inventory", "-o", "json", "--root", root.to_str().unwrap()], Stdio::null());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(!said(&output).contains("secret"), "{}: {}", target.display(), said(&output));
    }
    fs::create_dir(root.join("files")).unwrap();
    fs::write(root.join("files/cpuinfo"), SECRET.replace("secret of the host", "its own")).unwrap();
    fs::remove_file(root.join("proc/cpuinfo")).unwrap();
    symlink("/files/cpuinfo", root.join("proc/cpuinfo")).unwrap();
    let output = hostler(&["inventory", "-o", "json", "--root", root.to_str().unwrap()], Stdio::null());
    assert!(said(&output).contains("its own"), "links lead where they would on that machine: {}", said(&output));
}
