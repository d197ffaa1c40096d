//! A real Prometheus: it scrapes the real programs as the shipped PodMonitors say, draws the dashboard, and raises the
//! alerts about programs that are killed.

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hostler_testing::{
    apiserver::ApiServer,
    binary::tool,
    controller::{ControllerOptions, RunningController},
    kubelet::{Kubelet, KubeletRelease, claim},
    skip::skipped,
    visitor::Visitor,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{all_rules, drawn, objects, rule_file, text};
use crate::scrape::{READER, ScrapeRig, shipped_role};

const CONTROLLER: &str = "system:serviceaccount:hostler-controller:hostler-controller";
const CONTROLLER_READER: &str = "system:serviceaccount:hostler-controller:hostler-controller-scraper";
/// Limit of the wait for a state; far above what any takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two questions to Prometheus, which tells nothing by itself.
const PAUSE: Duration = Duration::from_millis(50);
/// A device with the capacities that the dashboard draws.
const SCRIPT: &str =
    "[[device]]\nname = \"card\"\ncount = 2\nnuma_node = 0\ncapacity.cpus = 8\ncapacity.memory = \"1Gi\"\n";

/// Panels about what does not happen here.
const QUIET: [&str; 10] = [
    // Failures, which a rule leaves out as long as they are zeros.
    "hostler_backend_unanswered_seconds",
    "hostler_claim_failures_total",
    "hostler_events_total",
    "hostler_audit_repairs_total",
    "hostler_audit_failures_total",
    "hostler_controller_silent_seconds",
    "hostler_controller_unreadable_objects",
    // Clusters with a fabric manager.
    "hostler_controller_fabric_",
    // Clusters of 1.26 to 1.31, and requests for capacity.
    "hostler_controller_classic_writes_total",
    "hostler_controller_provisioning_requests",
];

/// A Prometheus; it is killed when it is dropped.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// Starts a Prometheus with these jobs, and the shipped rules with a shorter `for`.
    async fn start(program: &Path, jobs: Vec<Value>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut rules = all_rules();
        for rule in &mut rules {
            if rule["for"].is_string() {
                rule["for"] = json!("3s");
            }
        }
        fs::write(folder.path().join("rules.yml"), rule_file(&rules)).unwrap();
        let config = json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
            "rule_files": ["rules.yml"],
            "scrape_configs": jobs,
        });
        fs::write(folder.path().join("prometheus.yml"), config.to_string()).unwrap();
        // Which port is free is for the kernel to say; Prometheus itself does not tell which one it got.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(program)
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let prometheus = Self { process, address, folder };
        prometheus.until("it serves", async |it| it.serves().await.then_some(())).await;
        prometheus
    }

    async fn serves(&self) -> bool {
        tokio::net::TcpStream::connect(self.address).await.is_ok()
            && Visitor::new(self.address).get("/-/ready").await.code == 200
    }

    async fn until<T>(&self, what: &str, look: impl AsyncFn(&Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look(self).await {
                return found;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "waited in vain until {what}; targets: {}; log:\n{}",
                self.api("targets").await["data"]["activeTargets"],
                fs::read_to_string(self.folder.path().join("log")).unwrap()
            );
            sleep(PAUSE).await;
        }
    }

    async fn api(&self, path: &str) -> Value {
        let answer = Visitor::new(self.address).get(&format!("/api/v1/{path}")).await;
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{path}: {}", answer.body))
    }

    /// Returns the series that an expression gives.
    async fn query(&self, expression: &str) -> Vec<Value> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.api(&format!("query?query={escaped}")).await;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Returns name and state of the alerts that are pending or firing.
    async fn alerts(&self) -> Vec<(String, String, Value)> {
        let answer = self.api("alerts").await;
        let alerts = answer["data"]["alerts"].as_array().unwrap().iter();
        let named = |alert: &Value| text(&alert["labels"], "alertname").to_owned();
        alerts.map(|alert| (named(alert), text(alert, "state").to_owned(), alert["labels"].clone())).collect()
    }

    /// Returns the names of the alerts that are raised. One that is pending may be about a scrape that came late.
    async fn raised(&self) -> BTreeSet<String> {
        let alerts = self.alerts().await.into_iter().filter(|(_, state, _)| state == "firing");
        alerts.map(|(name, ..)| name).collect()
    }

    /// Waits until an alert is pending, and then until it is raised; returns its labels.
    async fn until_raised(&self, alert: &str) -> Value {
        let mut states = Vec::new();
        for state in ["pending", "firing"] {
            let is_so = async |it: &Self| {
                let alerts = it.alerts().await;
                // It may be raised before the first look.
                let found = alerts.into_iter().find(|(name, is, _)| name == alert && (is == state || is == "firing"));
                found.map(|(_, _, labels)| labels)
            };
            states.push(self.until(&format!("{alert} is {state}"), is_so).await);
        }
        states.remove(1)
    }
}

/// Makes a job out of a shipped PodMonitor, as the operator of Prometheus does, with one pod.
fn job(monitor: &str, token: &str, address: SocketAddr) -> Value {
    let (_, monitor) =
        objects("PodMonitor").into_iter().find(|(_, object)| object["metadata"]["name"] == monitor).unwrap();
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    let (port, metadata) = (address.port().to_string(), &monitor["metadata"]);
    let relabelings = endpoint["relabelings"].as_array().cloned().unwrap_or_default().into_iter().map(|rule| {
        // The port of the test instead of the shipped one, which another test may have.
        let replacement = rule["replacement"].as_str().unwrap_or("$1").replace("9464", &port);
        json!({
            "source_labels": rule["sourceLabels"], "regex": rule["regex"].as_str().unwrap_or("(.*)"),
            "target_label": rule["targetLabel"], "replacement": replacement,
        })
    });
    json!({
        "job_name": format!("{}/{}", text(metadata, "namespace"), text(metadata, "name")),
        "metrics_path": endpoint["path"],
        "scheme": endpoint["scheme"],
        "tls_config": { "insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"] },
        "authorization": { "credentials": token },
        "relabel_configs": relabelings.collect::<Vec<_>>(),
        "static_configs": [{
            "targets": [format!("127.0.0.1:{port}")],
            "labels": { "__meta_kubernetes_pod_ip": "127.0.0.1", "__meta_kubernetes_pod_node_name": "node" },
        }],
    })
}

/// Starts a controller that serves other hosts, beside the daemon.
async fn controller(server: &ApiServer, binary: PathBuf) -> RunningController {
    let controller = RunningController::start(&ControllerOptions {
        binary,
        kubeconfig: server.kubeconfig(CONTROLLER),
        listen: "0.0.0.0".to_owned(),
        ..ControllerOptions::default()
    })
    .await;
    controller
        .until("it leads", async |it| it.log().iter().any(|line| line.contains("this controller leads")).then_some(()))
        .await;
    controller
}

/// Has the kubelet prepare a claim on a device.
async fn prepare(rig: &ScrapeRig) {
    let created = rig.server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "c" },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "fake" } }] } },
    }));
    let result = json!({ "request": "r", "driver": "hostler.dev", "pool": "node/fake", "device": "card-0" });
    let status = json!({ "allocation": { "devices": { "results": [result] } } });
    rig.server.set_status("resourceclaims", "default/c", status);
    let claim = claim("default", "c", text(&created["metadata"], "uid"));
    let mut plugin = Kubelet::new(rig.host.path("kubelet"), KubeletRelease::V1_36).register().await.unwrap();
    plugin.prepare(std::slice::from_ref(&claim)).await.unwrap().remove(&claim.uid).unwrap().unwrap();
}

/// Has the controller keep a device.
fn reserve(server: &ApiServer) {
    let request = json!({ "name": "r", "exactly": { "deviceClassName": "fake" } });
    server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": { "name": "kept" },
        "spec": {
            "deviceClaims": [{ "name": "c", "spec": { "devices": { "requests": [request] } } }],
            "owners": [{ "labelSelector": { "matchLabels": { "app": "later" } } }],
        },
    }));
}

/// A node whose daemon never comes: its DaemonSet has made a pod, which is not scheduled.
fn add_a_node_without_a_daemon(server: &ApiServer) {
    server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n7" } }));
    let labels = objects("DaemonSet").remove(0).1["spec"]["template"]["metadata"]["labels"].clone();
    let named = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n7"] }] });
    server.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "hostler-x", "namespace": "default", "labels": labels,
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "hostler", "uid": "u", "controller": true }],
        },
        "spec": {
            "containers": [{ "name": "hostler", "image": "hostler" }],
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [named] } } },
        },
    }));
}

/// Asks for everything that the dashboard draws, until each panel shows something.
async fn draw(prometheus: &Prometheus) {
    let start = Instant::now();
    let mut empty = drawn();
    while !empty.is_empty() {
        assert!(start.elapsed() < PATIENCE, "panels that show nothing: {empty:#?}");
        for (panel, expression) in std::mem::take(&mut empty) {
            let asked = expression.replace("$__rate_interval", "10s").replace("$instance", ".*");
            let series = prometheus.query(&asked).await;
            if series.is_empty() && !QUIET.iter().any(|figure| expression.contains(figure)) {
                empty.push((panel, expression));
            }
        }
        sleep(PAUSE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_draws_the_dashboard_and_raises_alerts_for_what_is_killed_and_for_nothing_else() {
    let Some(program) = tool("prometheus") else { return skipped("needs prometheus") };
    let beside = Path::new(env!("CARGO_BIN_EXE_hostler")).with_file_name("hostler-controller");
    if !beside.exists() {
        return skipped("needs hostler-controller beside hostler: cargo build -p hostler-controller");
    }
    let mut rig = ScrapeRig::started_in(SCRIPT, |server| {
        for kind in ["nodehardware", "clusterhardware", "reservations"] {
            let path = super::deploy().join(format!("crds/{kind}.yaml"));
            server.create_yaml(&fs::read_to_string(path).unwrap());
        }
        server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostler-controller" } }));
        server.allow(CONTROLLER_READER, shipped_role("components/prometheus-controller/scraper.yaml"));
        server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "fake" },
            "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"hostler.dev\"" } }] },
        }));
    })
    .await;
    prepare(&rig).await;
    reserve(&rig.server);
    let controller = controller(&rig.server, beside).await;
    let jobs = vec![
        job("hostler", &rig.server.user(READER, None), rig.address),
        job("hostler-controller", &rig.server.user(CONTROLLER_READER, None), controller.address()),
    ];
    let prometheus = Prometheus::start(&program, jobs).await;
    let both = async |it: &Prometheus| (it.query("up == 1").await.len() == 2).then_some(());
    prometheus.until("both are scraped", both).await;
    let node = prometheus.query("up{node=\"node\"}").await;
    assert_eq!(node.len(), 1, "the node of a daemon is a label of its figures: {node:?}");
    draw(&prometheus).await;
    // For as long as an alert of a correct cluster would take to be raised.
    let evaluated =
        async |it: &Prometheus| (!it.query("min_over_time(up[5s] offset 8s)").await.is_empty()).then_some(());
    prometheus.until("rules were evaluated for a while", evaluated).await;
    assert_eq!(prometheus.raised().await, BTreeSet::new());

    add_a_node_without_a_daemon(&rig.server);
    assert_eq!(prometheus.until_raised("HostlerNodeUnreported").await["node"], "n7");
    rig.host.kill();
    let raised = prometheus.until_raised("HostlerDown").await;
    assert_eq!((&raised["job"], &raised["node"]), (&json!("hostler-system/hostler"), &json!("node")));
    drop(controller);
    assert_eq!(prometheus.until_raised("HostlerControllerDown").await["job"], "hostler-controller/hostler-controller");
    // Without its figures nothing is known of the third.
    let expected = ["HostlerControllerDown", "HostlerDown"].map(str::to_owned);
    let are_so = async |it: &Prometheus| (it.raised().await == expected.clone().into()).then_some(());
    prometheus.until("both alerts are raised, and no others", are_so).await;
}
