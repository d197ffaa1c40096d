//! No client can stop another: a client that connects and sends nothing, calls without end, asks for thousands of
//! claims or does not read the log costs the kubelet, the command line and the watchdog nothing.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::{UnixDatagram, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use hostler_testing::{
    host::{Host, PATIENCE, SCRIPT, script_with, wait_for},
    http2,
    node::{TestNode, named, uid},
};
use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    signal::Signal,
};
use serde_json::json;

const METRICS: &str = "run/metrics.sock";
const DROPPED: &str = "hostler_log_lines_dropped_total ";

/// Returns an address on which no process listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Returns the figure that begins with `name`.
fn figure(node: &TestNode, name: &str) -> u64 {
    let (_, figures) = node.metrics("/metrics");
    let line = figures.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {figures}"));
    line.parse().unwrap()
}

/// Returns the memory of the daemon, in kibibytes.
fn resident(node: &TestNode) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns the number of times that systemd heard that the host's daemon is alive.
fn watchdog(host: &mut Host) -> Arc<AtomicUsize> {
    let systemd = UnixDatagram::bind(host.path("notify")).unwrap();
    host.env("NOTIFY_SOCKET", host.path("notify"));
    host.env("WATCHDOG_USEC", "100000");
    let fed = Arc::new(AtomicUsize::new(0));
    let heard = fed.clone();
    thread::spawn(move || {
        let mut message = [0; 4096];
        while let Ok(length) = systemd.recv(&mut message) {
            if message[..length].starts_with(b"WATCHDOG=1") {
                heard.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    fed
}

#[test]
fn connections_on_which_nobody_speaks_stop_nobody() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let address = free_address();
    let mut host = Host::bare_with(SCRIPT, &format!("[metrics]\nlisten = \"{address}\"\n"));
    host.limit_descriptors(256);
    let fed = watchdog(&mut host);
    let mut node = TestNode::new(host);
    node.begin();
    // Connections without a free place wait in the kernel's queue, or before it.
    let connect = |address: String| async move {
        let stream = tokio::net::TcpStream::connect(address).await;
        std::future::pending::<()>().await;
        drop(stream);
    };
    let idle: Vec<_> = (0..1010).map(|_| node.spawn(connect(address.clone()))).collect();
    let sockets: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(node.service_socket()).unwrap()).collect();
    let pid = node.pid();
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    wait_for("connections to be accepted", || (open() > 70).then_some(()));

    node.allocate("a", &["card-0"]);
    node.prepare("a");
    assert_eq!(node.get("/v1/status")["claims"]["prepared"], 1);
    let before = fed.load(Ordering::Relaxed);
    wait_for("the watchdog", || (fed.load(Ordering::Relaxed) > before + 5).then_some(()));
    // The liveness probe, which kills a daemon that does not answer, has a socket of its own.
    assert_eq!(node.run_ok(&["ready", "--alive"]), "ok\n");
    assert_eq!(node.mode("run/probe.sock"), 0o600);
    assert!(open() < 256 - 64, "{} descriptors", open());
    idle.iter().for_each(tokio::task::JoinHandle::abort);
    drop(sockets);
    let answer = || {
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok().filter(|_| answer.ends_with("ok\n"))
    };
    wait_for("figures", answer);
    assert!(node.stop().success());
}

#[test]
fn who_says_nothing_half_of_it_or_nothing_more_is_hung_up_on() {
    let node = TestNode::started();
    let connect = |said: &str| {
        let mut stream = UnixStream::connect(node.path(METRICS)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        stream
    };
    let whole = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let streams = ["", "GET /healthz HTTP/1.1\r\nhost: ", whole].map(connect);
    for (mut stream, answer) in streams.into_iter().zip([None, None, Some("ok\n")]) {
        let mut heard = String::new();
        stream.read_to_string(&mut heard).expect("the end of the connection");
        assert!(answer.is_none_or(|answer| heard.ends_with(answer)), "{heard}");
    }
}

#[test]
fn calls_without_end_are_refused_beyond_a_bound() {
    const CALLS: u32 = 30_000;
    let mut node = TestNode::started();
    let before = resident(&node);
    let path = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
    let (outcome, connection) = node.block_on(http2::flood(&node.service_socket(), "localhost", path, CALLS));
    assert!(outcome.gone || outcome.refused >= CALLS as usize - 200, "{outcome:?}");
    assert!(outcome.refused > 0, "{outcome:?}");
    let grown = resident(&node).saturating_sub(before);
    println!("{CALLS} streams: {before} KiB resident before, {grown} KiB more after, {outcome:?}");
    assert!(grown < 64 << 10, "{grown} KiB more");
    node.allocate("a", &["card-0"]);
    node.prepare("a");
    drop(connection);
}

/// A node whose daemon writes a verbose log that no reader takes.
fn unread() -> (TestNode, std::process::ChildStderr) {
    let mut node = TestNode::new(Host::bare_with(SCRIPT, "[log]\nlevel = \"trace\"\n"));
    let (daemon, log) = node.spawn_with_piped_log();
    node.adopt(daemon);
    node.wait_until_served();
    node.register();
    node.allocate("a", &["card-0"]);
    wait_for("lines to be dropped", || {
        node.prepare("a");
        node.unprepare("a");
        (figure(&node, DROPPED) > 0).then_some(())
    });
    (node, log)
}

#[test]
fn a_log_that_nobody_reads_stops_neither_claims_nor_the_command_line_nor_the_end() {
    let (mut node, _log) = unread();
    node.prepare("a");
    assert_eq!(node.get("/v1/status")["claims"]["prepared"], 1);
    node.unprepare("a");
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success());
}

#[test]
fn a_log_that_is_read_again_says_how_much_is_missing() {
    let (mut node, log) = unread();
    let reading = thread::spawn(move || {
        let lines = BufReader::new(log).lines().map_while(Result::ok);
        lines.filter(|line| line.contains("lines of the log were dropped")).count()
    });
    wait_for("the word on what is missing", || {
        node.get("/v1/status");
        (reading.is_finished() || figure(&node, DROPPED) > 0).then_some(())
    });
    assert!(node.stop().success());
    assert!(reading.join().unwrap() > 0);
}

#[test]
fn a_request_for_thousands_of_claims_lets_others_pass_and_its_refusals_are_short() {
    const CLAIMS: usize = 2000;
    let script = script_with(&format!(
        "[[device]]\nname = \"wide\"\nsharing = \"shared\"\ncapacity.units = {{ value = {}, min = 1, step = 1 }}",
        CLAIMS
    ));
    let mut node = TestNode::new(Host::bare(&script));
    node.begin();
    let names: Vec<String> = (0..CLAIMS).map(|number| format!("c{number}")).collect();
    for name in &names {
        node.allocate(name, &["wide:1"]);
    }
    node.allocate("small", &["card-0"]);
    let claims: Vec<_> = names.iter().map(|name| named(name)).collect();
    let mut plugin = node.connected();
    let large = node.spawn(async move { plugin.prepare(&claims).await });
    wait_for("the large request to begin", || (!node.files("state/claims").is_empty()).then_some(()));
    let began = Instant::now();
    node.prepare("small");
    assert!(!large.is_finished(), "a small request waited for a large one");
    let small = began.elapsed();
    let answers = node.block_on(large).unwrap().unwrap();
    println!("{CLAIMS} claims in one request took {:?}, a small one beside them {small:?}", began.elapsed());
    assert_eq!(answers.values().filter(|answer| answer.is_ok()).count(), CLAIMS);

    node.manifest("late", &uid("late"), &[("part", "fake", "wide", json!({"units": 1}))]);
    let refusal = node.prepare_error("late");
    assert!(refusal.ends_with(" and 1,997 more"), "{} bytes", refusal.len());
    assert!(node.stop().success());
}
