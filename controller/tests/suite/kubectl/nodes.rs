//! `kubectl hostler node` and `top`.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Read, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    process::{Child, Command, Stdio},
};

use nix::{
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt},
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, tcgetattr},
    },
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{
    plugin,
    scene::{OPERATOR, PluginScene, given, kept, node, out_of_service, reserve, slice, with_namespace},
};

async fn scene() -> PluginScene {
    let scene = PluginScene::new().await;
    let value = reserve(&scene, "night", json!({"object": {"namespace": "ml", "name": "other"}}));
    scene.put(node("n2"));
    scene.put(slice("n2", json!([{"name": "a"}, kept("b", &value), out_of_service("c", "drained", "operator")])));
    scene.put(given("x", "a", "other-0"));
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_have_a_row_with_a_bar_and_their_holders() {
    let said = scene().await.ask(&["node"]).await;
    assert_eq!(
        said.out,
        "NODE   DEVICES  USE               FREE  ALLOCATED  HELD  OTHER  STATUS  HOLDERS\n\
         n1           2  ########........     1          1     0      0  ready   ml 1\n\
         n2           3  :::::xxxxx......     1          0     1      1  ready   kept for night 1\n\
         TOTAL        5  ###:::xxx.......     2          1     1      1\n\n\
         Bars: # allocated, : held, x out of service or not known, . free\n",
        "{}",
        said.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_shown_with_devices_holders_reservations_and_the_age_of_its_report() {
    let scene = scene().await;
    let said = scene.ask(&["node", "n2"]).await;
    assert!(
        said.out.starts_with("Node n2: ready; 3 devices: 1 drained, 1 free, 1 held\nDaemon: no report"),
        "{}{}",
        said.out,
        said.err
    );
    for line in [
        "night        Available        1  Pod ml/other  for ever",
        "gpu.example/n2/c  drained  -     gpu      -       -",
    ] {
        assert!(said.out.contains(line), "{line}: {}", said.out);
    }
    let states = ["capacity", "allocatable", "allocated", "held", "unhealthy", "drained", "unknown", "blocked", "free"];
    let counts: serde_json::Map<String, Value> = states.iter().map(|state| ((*state).to_owned(), json!(0))).collect();
    scene.put(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": {"name": "n1"},
        "spec": {"nodeName": "n1"},
        "status": {
            "driver": "gpu.example", "hostlerVersion": "0.1.0", "kernelVersion": "6.1.0", "bootID": "b",
            "devices": counts, "lastReportTime": "2026-01-01T00:00:00Z",
        },
    }));
    let said = scene.ask(&["node", "n1"]).await;
    assert!(
        said.out.starts_with("Node n1: ready, unknown; 2 devices: 2 unknown\nDaemon: hostler 0.1.0"),
        "{}{}",
        said.out,
        said.err
    );
    let said = scene.ask(&["node", "n1", "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&answer["kind"], &answer["report"]), (&json!("Machine"), &json!("unknown")), "{answer}");
    assert_eq!(answer["daemon"]["hostlerVersion"], "0.1.0");
    let said = scene.ask(&["node", "n3"]).await;
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(2), "kubectl hostler: there is no node n3; did you mean n1 or n2?\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_nodes_again_whenever_anything_changes() {
    let scene = scene().await;
    let mut command = plugin(scene.folder.path(), &["top", "-o", "json"]);
    command.env("KUBECONFIG", with_namespace(&scene.kubeconfig(OPERATOR), "ml")).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = tokio::task::spawn_blocking(move || {
        assert!(lines.any(|line| line.unwrap().contains("\"free\": 2")), "the first answer");
        lines
    });
    let mut lines = (&mut until).await.unwrap();
    scene.put(given("y", "b", "other-1"));
    let seen = tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap().contains("\"ml\": 2")));
    assert!(seen.await.unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    let said = scene.ask(&["top", "--once", "--class", "gp"]).await;
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("there is no DeviceClass gp; did you mean gpu?"), "{}", said.err);
}

/// A terminal without a session of its own.
struct Terminal {
    master: PtyMaster,
    path: String,
    shown: String,
}

impl Terminal {
    fn new() -> Self {
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname_r(&master).unwrap();
        Self { master, path, shown: String::new() }
    }

    fn start(&self, mut command: Command) -> Child {
        let end = || -> Stdio {
            let no_control = OFlag::O_NOCTTY.bits();
            OpenOptions::new().read(true).write(true).custom_flags(no_control).open(&self.path).unwrap().into()
        };
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    /// Reads until a text was shown.
    fn until(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        while !self.shown.contains(text) {
            let ready = poll(&mut [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)], PollTimeout::from(60_000_u16));
            assert!(ready.unwrap() > 0, "waited in vain for {text:?} behind {:?}", self.shown);
            let length = self.master.read(&mut bytes).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_top_shows_its_keys_and_ends_with_q() {
    let scene = scene().await;
    let command = |args: &[&str]| {
        let mut command = plugin(scene.folder.path(), args);
        command.env("KUBECONFIG", with_namespace(&scene.kubeconfig(OPERATOR), "ml"));
        command
    };
    let (first, second) = (command(&["top"]), command(&["top"]));
    let watched = tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::new();
        let mut child = terminal.start(first);
        terminal.until("q ends it, ? shows the keys");
        assert!(!terminal.shown.contains("Ctrl-C"), "{}", terminal.shown);
        terminal.press(b"x?");
        terminal.until("Keys: q, Escape or Ctrl-C end it");
        terminal.press(b"q");
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let flags = tcgetattr(&terminal.master).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO), "the terminal is as before");
        let mut child = terminal.start(second);
        terminal.shown.clear();
        terminal.until("q ends it");
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
        child.wait().unwrap();
        let flags = tcgetattr(&terminal.master).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO), "also after a signal");
    });
    watched.await.unwrap();
}
