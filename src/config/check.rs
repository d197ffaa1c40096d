//! Rules for values: limits, and what one key demands of another.

use std::{
    path::{Component, Path},
    time::Duration,
};

use hostler_api::{DriverName, NodeName};

use super::{ClusterMode, ConfigMistake, DaemonConfig, ListenAddress, pod_resources};

/// The kernel's limit for the path of a unix socket, without the NUL byte.
const LONGEST_SOCKET_PATH: usize = 107;
/// Shortest time between scans; shorter ones would keep a large machine busy with itself.
const SHORTEST_RESCAN: Duration = Duration::from_secs(1);
/// Shortest wait for a backend: its threads have to be started before they can answer.
const SHORTEST_ANSWER: Duration = Duration::from_millis(100);
/// Longest wait for a backend; a start must not wait longer than this.
const LONGEST_ANSWER: Duration = Duration::from_secs(600);
/// Shortest time before a claim is taken back: two reads of the API server have to agree.
const SHORTEST_RELEASE: Duration = Duration::from_secs(10);

/// Every broken rule.
pub(super) fn problems(config: &DaemonConfig) -> Vec<ConfigMistake> {
    let mut problems = Vec::new();
    names(config, &mut problems);
    paths(config, &mut problems);
    sockets(config, &mut problems);
    scrape(config, &mut problems);
    topology_export(config, &mut problems);
    times(config, &mut problems);
    pod_resources::problems(&config.pod_resources, &mut problems);
    level(&config.log.level, &mut problems);
    problems.extend(config.audit.problems());
    backends(config, &mut problems);
    problems.extend(super::nri::problems(config));
    problems
}

fn names(config: &DaemonConfig, problems: &mut Vec<ConfigMistake>) {
    if DriverName::new(&config.driver).is_err() {
        problems.push(ConfigMistake::new(
            "driver",
            format!("{:?} is no driver name", config.driver),
            "write a DNS subdomain of at most 63 lower-case characters, such as \"hostler.dev\"",
        ));
    }
    if NodeName::new(&config.node_name).is_err() {
        problems.push(ConfigMistake::new(
            "node_name",
            format!("{:?} is no node name", config.node_name),
            "write the name of the Node object: a DNS subdomain in lower case",
        ));
    }
}

fn paths(config: &DaemonConfig, problems: &mut Vec<ConfigMistake>) {
    let paths = &config.paths;
    for (key, path) in [
        ("hook", &config.hook),
        ("paths.state", &paths.state),
        ("paths.run", &paths.run),
        ("paths.cdi", &paths.cdi),
        ("paths.kubelet", &paths.kubelet),
        ("paths.root", &paths.root),
        ("cluster.manifests", &config.cluster.manifests),
    ] {
        problems.extend(path_problem(key, path));
    }
    let optional = [
        ("hook_dir", &config.hook_dir),
        ("cluster.kubeconfig", &config.cluster.kubeconfig),
        ("nri.socket", &config.nri.socket),
        ("pod_resources.socket", &config.pod_resources.socket),
        ("pod_resources.kubelet_socket", &config.pod_resources.kubelet_socket),
    ];
    for (key, path) in optional {
        problems.extend(path.as_ref().and_then(|path| path_problem(key, path)));
    }
}

fn path_problem(key: &str, path: &Path) -> Option<ConfigMistake> {
    let shown = path.display();
    if !path.is_absolute() {
        return Some(ConfigMistake::new(key, format!("\"{shown}\" is not absolute"), "begin it with /"));
    }
    let climbs = path.components().any(|component| component == Component::ParentDir);
    climbs.then(|| ConfigMistake::new(key, format!("\"{shown}\" contains .."), "write the path that is meant"))
}

fn sockets(config: &DaemonConfig, problems: &mut Vec<ConfigMistake>) {
    let mut check = |key: &str, path: &Path| {
        let length = path.as_os_str().len();
        if length > LONGEST_SOCKET_PATH {
            let what = format!("makes the socket path {} {length} bytes long", path.display());
            problems.push(ConfigMistake::new(key, what, format!("shorten it: the kernel takes {LONGEST_SOCKET_PATH}")));
        }
    };
    check("paths.run", &config.admin_socket());
    if let Some(socket) = &config.nri.socket {
        check("nri.socket", socket);
    }
    if config.pod_resources.enabled {
        let is_named = config.pod_resources.socket.is_some();
        check(if is_named { "pod_resources.socket" } else { "paths.run" }, &config.pod_resources_socket());
    }
    if config.kubelet.enabled {
        // Either can be shortened; the longer one is where there is something to gain.
        let is_long_name = config.driver.len() > config.paths.kubelet.as_os_str().len();
        let key = if is_long_name { "driver" } else { "paths.kubelet" };
        let sockets = config.kubelet_sockets();
        check(key, &sockets.registration_socket());
        check(key, &sockets.service_socket());
    }
    match config.metrics_listen() {
        ListenAddress::Unix(path) if config.metrics.listen.is_some() => {
            check("metrics.listen", &path);
            problems.extend(path_problem("metrics.listen", &path));
        }
        ListenAddress::Unix(path) => check("paths.run", &path),
        _ => {}
    }
}

/// Checks `metrics.scrape`: only an API server can say who a reader is.
fn scrape(config: &DaemonConfig, problems: &mut Vec<ConfigMistake>) {
    if config.metrics.scrape.is_some() && config.cluster.mode != ClusterMode::Kubernetes {
        let what = "needs an API server that knows who a reader is";
        let fix = "write cluster.mode = \"kubernetes\", or use metrics.listen for readers on this host";
        problems.push(ConfigMistake::new("metrics.scrape", what, fix));
    }
}

/// Checks `topology_export`: the object is kept by an API server.
fn topology_export(config: &DaemonConfig, problems: &mut Vec<ConfigMistake>) {
    if config.topology_export.enabled && config.cluster.mode != ClusterMode::Kubernetes {
        let what = "needs an API server that keeps the object";
        let fix = "write cluster.mode = \"kubernetes\", or leave it out";
        problems.push(ConfigMistake::new("topology_export.enabled", what, fix));
    }
}

fn times(config: &DaemonConfig, problems: &mut Vec<ConfigMistake>) {
    let inventory = &config.inventory;
    if inventory.rescan < SHORTEST_RESCAN {
        problems.push(ConfigMistake::new("inventory.rescan", "is shorter than a second", "write \"1s\" or more"));
    }
    if !(SHORTEST_ANSWER..=LONGEST_ANSWER).contains(&inventory.answer_within) {
        let what = "is shorter than 100 ms or longer than 10 minutes";
        problems.push(ConfigMistake::new("inventory.answer_within", what, "write a time in between, such as \"10s\""));
    }
    if config.cluster.release_after < SHORTEST_RELEASE {
        let what = "is shorter than ten seconds, within which a claim can come back";
        problems.push(ConfigMistake::new("cluster.release_after", what, "write \"10s\" or more"));
    }
    if inventory.quiet_limit < inventory.quiet {
        let what = "is shorter than inventory.quiet, so that no burst of events would ever be collected";
        problems.push(ConfigMistake::new("inventory.quiet_limit", what, "write a time that is not shorter"));
    }
}

/// Checks `log.level`: a word without `=` would be taken for a module's name and switch on all of its tracing.
fn level(level: &str, problems: &mut Vec<ConfigMistake>) {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    for part in level.split(',') {
        let (target, name) = part.split_once('=').map_or((None, part), |(target, name)| (Some(target), name));
        if !levels.contains(&name.trim()) || target.is_some_and(str::is_empty) {
            let what = format!("{part:?} is no level");
            problems.push(ConfigMistake::new("log.level", what, format!("write one of {}", levels.join(", "))));
        }
    }
}

/// Checks the backends that are switched on. Others may keep their mistakes: nothing reads them.
fn backends(config: &DaemonConfig, problems: &mut Vec<ConfigMistake>) {
    let backends = &config.backends;
    let found = [
        ("cpu", backends.cpu.active().map(hostler_cpu::CpuBackendConfig::validate)),
        ("memory", backends.memory.active().map(hostler_memory::MemoryBackendConfig::validate)),
        ("fpga", backends.fpga.active().map(hostler_fpga::FpgaBackendConfig::validate)),
        ("cxl", backends.cxl.active().map(hostler_cxl::CxlBackendConfig::validate)),
        ("fake", backends.fake.active().map(hostler_fake::FakeBackendConfig::validate)),
    ];
    for (name, found) in found {
        problems.extend(found.into_iter().flatten().map(|problem| {
            // The reason of a backend's problem has the fix in it.
            ConfigMistake::new(format!("backends.{name}.{}", problem.field), problem.reason, "")
        }));
    }
}
