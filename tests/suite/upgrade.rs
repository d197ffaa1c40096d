//! One daemon takes over from another on the same folders: probes while it stands by, and no claim lost on the way.

mod records;

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hostler_proto::dra_v1::Device;
use hostler_testing::{
    binary::binary,
    host::{DaemonProcess, Host, SCRIPT, http, script_with, wait_for},
    kubelet::{ClaimAnswers, Kubelet, KubeletPlugin, KubeletRelease, KubeletResult},
    node::{TestNode, named, uid},
};
use nix::sys::signal::Signal;

/// Claims that are prepared and taken back all the time.
const CLAIMS: [&str; 4] = ["c0", "c1", "c2", "c3"];

/// Writes the configuration of a second instance, with a run folder of its own, as a pod of a DaemonSet would have it.
fn second(host: &Host) -> std::path::PathBuf {
    let text = fs::read_to_string(host.path("hostler.toml")).unwrap();
    let own = text.replace(&host.path("run").display().to_string(), &host.path("run2").display().to_string());
    assert_ne!(own, text);
    let path = host.path("second.toml");
    fs::write(&path, own).unwrap();
    path
}

fn hostler(host: &Host, config: &str, verb: &str) -> Command {
    let mut command = Command::new(binary());
    command.arg(verb).arg("--config").arg(host.path(config)).stdin(Stdio::null());
    command
}

fn ready(host: &Host, config: &str) -> Output {
    hostler(host, config, "ready").output().unwrap()
}

fn start_second(host: &Host) -> DaemonProcess {
    second(host);
    let log = fs::OpenOptions::new().create(true).append(true).open(host.path("log")).unwrap();
    let mut command = hostler(host, "second.toml", "run");
    let daemon = DaemonProcess::of(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    wait_for("the second daemon to stand by", || {
        (http(&host.path("run2/metrics.sock"), "GET", "/readyz", "").ok()? == (200, "standing by\n".to_owned()))
            .then_some(())
    });
    daemon
}

#[test]
fn a_daemon_that_stands_by_is_ready_and_the_same_address_tells_when_it_works() {
    let mut node = TestNode::started();
    let socket = node.path("run2/metrics.sock");
    let get = |path: &str| http(&socket, "GET", path, "").unwrap();
    let daemon = start_second(&node);
    assert_eq!(get("/healthz"), (200, "standing by\n".to_owned()));
    assert_eq!(get("/metrics").0, 503);
    let said = ready(&node, "second.toml");
    assert_eq!((said.status.code(), &*said.stdout), (Some(0), &b"standing by\n"[..]));
    let alive = hostler(&node, "second.toml", "ready").arg("--alive").output().unwrap();
    assert_eq!(
        (alive.status.code(), &*alive.stdout),
        (Some(0), &b"standing by\n"[..]),
        "waiting is no reason to kill it"
    );
    assert!(!node.path("run2/admin.sock").exists(), "nothing can be asked of it yet");
    assert!(node.stop().success());
    wait_for("the second daemon to work", || (get("/healthz").1 == "ok\n").then_some(()));
    assert_eq!(get("/metrics").0, 200);
    assert_eq!(ready(&node, "hostler.toml").status.code(), Some(1), "the first one is gone");
    node.register();
    wait_for("the second daemon to be ready", || (get("/readyz") == (200, "ready\n".to_owned())).then_some(()));
    assert_eq!(ready(&node, "second.toml").status.code(), Some(0));
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
}

#[test]
fn a_daemon_that_is_not_ready_says_why() {
    let mut host = Host::bare("");
    host.start();
    let said = ready(&host, "hostler.toml");
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8(said.stdout).unwrap().contains("the kubelet has not registered the driver yet"));
}

/// Prepares and takes back one claim until it is told to stop; returns the devices of every answer, and the refusals.
async fn load(
    mut plugin: KubeletPlugin,
    kubelet: Kubelet,
    name: &str,
    stop: Arc<AtomicBool>,
) -> (Vec<Vec<Device>>, Vec<String>) {
    let (mut lists, mut refused) = (Vec::new(), Vec::new());
    loop {
        // Once more after the end, so that the claim is whole at last.
        let last = stop.load(Ordering::Relaxed);
        match plugin.prepare(&[named(name)]).await {
            Ok(mut answers) => match answers.remove(&uid(name)).unwrap() {
                Ok(list) => lists.push(list),
                // A daemon that stops refuses each claim that it does not begin with any more.
                Err(error) => {
                    refused.push(error);
                    continue;
                }
            },
            Err(complaint) => {
                refused.push(complaint.0);
                if let Ok(new) = kubelet.register().await {
                    plugin = new;
                }
                continue;
            }
        }
        if last {
            return (lists, refused);
        }
        if let Err(complaint) = plugin.unprepare(&[named(name)]).await {
            refused.push(complaint.0);
        }
    }
}

#[test]
fn nothing_is_lost_when_a_second_daemon_takes_over_under_load() {
    let mut node = TestNode::started();
    node.allocate("running", &["card-7", "pool:2"]);
    let (running, whole) = (node.prepare("running"), node.traces("running"));
    for (index, name) in CLAIMS.iter().enumerate() {
        node.allocate(name, &[&format!("card-{index}"), "pool:1"]);
    }
    let daemon = start_second(&node);
    let stop = Arc::new(AtomicBool::new(false));
    let kubelet = Kubelet::new(node.path("kubelet"), KubeletRelease::V1_36);
    let loads: BTreeMap<&str, _> = CLAIMS
        .iter()
        .map(|name| (*name, node.spawn(load(node.connected(), kubelet.clone(), name, stop.clone()))))
        .collect();
    wait_for("some load", || fs::read_dir(node.path("state/claims")).unwrap().nth(2).map(drop));
    assert!(node.stop().success());
    wait_for("the second daemon to work", || node.path("run2/admin.sock").exists().then_some(()));
    stop.store(true, Ordering::Relaxed);
    for (name, load) in loads {
        let (lists, refused) = node.block_on(load).unwrap();
        assert!(lists.iter().all(|list| *list == lists[0]), "{name}: {lists:?}");
        let clean = |text: &String| {
            ["Unavailable", "Cancelled", "Unknown", "dial", "is stopping; try again"]
                .iter()
                .any(|word| text.contains(word))
        };
        assert!(refused.iter().all(clean), "{name}: {refused:?}");
        assert!(node.traces(name).is_whole(2), "{name}: {:?}", node.traces(name));
    }
    assert_eq!(node.traces("running"), whole, "a running claim notices nothing");
    node.register();
    assert_eq!(node.prepare("running"), running);
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
}

/// Removes the lock's file under the daemon that holds it: a clean-up of the state folder, or one that was restored.
fn lose_lock(node: &TestNode) {
    fs::remove_file(node.path("state/lock")).unwrap();
}

/// Checks that the call was refused, or not even received.
fn assert_refused(answer: KubeletResult<ClaimAnswers<Vec<Device>>>, claim: &str) {
    if let Ok(mut answers) = answer {
        let error = answers.remove(&uid(claim)).unwrap().unwrap_err();
        assert!(
            error.contains("state/lock was removed or replaced: another daemon may work on the same folders"),
            "{error}"
        );
    }
}

#[test]
fn a_daemon_that_has_lost_its_lock_does_nothing_more_and_ends() {
    let mut node = TestNode::started();
    for (name, device) in [("kept", "card-0"), ("asked", "card-1")] {
        node.allocate(name, &[device]);
    }
    let (list, whole) = (node.prepare("kept"), node.traces("kept"));
    lose_lock(&node);
    let second = node.spawn_beside();
    assert_refused(node.call_prepare(&["asked"]), "asked");
    assert!(node.traces("asked").is_gone(), "not a step was done");
    let taken = node.call_unprepare(&["kept"]);
    assert!(taken.is_err() || taken.unwrap()[&uid("kept")].is_err());
    assert_eq!(node.traces("kept"), whole);
    assert!(!node.wait().success(), "its service manager starts it again");
    assert!(node.log().contains("another daemon may be live"));
    drop(second);
    node.begin();
    assert_eq!(node.prepare("kept"), list);
    node.prepare("asked");
    assert!(node.stop().success());
}

#[test]
fn what_is_under_way_when_the_lock_is_lost_is_left_to_the_next_daemon() {
    let mut node = TestNode::started();
    node.allocate("half", &["card-0"]);
    node.script(&script_with("[[fault]]\nstep = \"prepare\"\nat = \"after\"\ndelay_ms = 3600000"));
    let mut plugin = node.connected();
    let call = node.spawn(async move { plugin.prepare(&[named("half")]).await });
    wait_for("the hardware", || (node.traces("half").hardware.len() == 1).then_some(()));
    lose_lock(&node);
    node.script(SCRIPT);
    assert_refused(node.block_on(call).unwrap(), "half");
    let left = node.traces("half");
    assert_eq!((left.cdi, left.hardware.len()), (None, 1), "neither promised nor undone");
    assert!(!node.wait().success());
    node.begin();
    assert!(node.traces("half").is_gone(), "rolled back by the one that has the lock");
    node.prepare("half");
    assert!(node.stop().success());
}
