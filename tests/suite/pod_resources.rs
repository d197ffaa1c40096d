//! Holders of devices, as agents read them: the real daemon on real sockets, with a kubelet that has its quirks.

use std::{fs, io::Write, process::Stdio};

use hostler_proto::{
    dra_v1::Claim,
    pod_resources_v1::{
        AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices, ContainerResources, DynamicResource,
        ListPodResourcesRequest, NumaNode, PodResources, TopologyInfo,
    },
};
use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions},
    binary::binary,
    host::{Host, PATIENCE, wait_for},
    http2::{self, GrpcOutcome},
    kubelet::{Kubelet, KubeletPlugin, KubeletRelease, claim},
    node::{TestNode, named, uid},
    pod_resources::{KubeletPodResources, KubeletTruth, PodResourcesReader},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Code;

const SCRIPT: &str = r#"
[[device]]
name = "card"
count = 4
numa_node = 1

[[device]]
name = "plain"

[[device]]
name = "memory"
sharing = "shared"
numa_node = 0
capacity.memory = { value = "8Gi", min = "1Gi", step = "1Gi", default = "1Gi" }
node_allocatable.hugepages-1Gi = { capacity = "memory", factor = 1 }
"#;

/// Bytes that `podresources/v1` of k8s.io/kubelet sends over grpc-go to `/run/hostler/pod-resources.sock`, for `List`.
const SENT_BY_GRPC_GO: &str = "\
    505249202a20485454502f322e300d0a0d0a534d0d0a0d0a0000000400000000000000000401000000000000550104000000\
    018386459363b857d679369507b6c21519cc8496c63399094186a0e41d139d095f8b1d75d0620d263d4c4d65647a8a9acac8\
    b4c7602bbc15c340027465864d833505b11f40899acac8b24d494f6a7f8669f744e3efdb0000050001000000010000000000\
    ";

/// Bytes of the same call over grpcio.
const SENT_BY_GRPCIO: &str = "\
    505249202a20485454502f322e300d0a0d0a534d0d0a0d0a0000240400000000000002000000000003000000000004004000\
    00000500400000000600004000fe0300000001000004080000000000003f00010000000401000000000000fc010400000001\
    40053a706174681b2f76312e506f645265736f75726365734c69737465722f4c697374400a3a617574686f72697479227275\
    6e253246686f73746c6572253246706f642d7265736f75726365732e736f636b8386400c636f6e74656e742d747970651061\
    70706c69636174696f6e2f677270634002746508747261696c6572734014677270632d6163636570742d656e636f64696e67\
    176964656e746974792c206465666c6174652c20677a6970400c677270632d74696d656f7574023353400a757365722d6167\
    656e7430677270632d707974686f6e2f312e38352e3120677270632d632f35382e302e3020286c696e75783b206368747470\
    322900000408000000000100000005000005000100000001000000000000000408000000000000000005\
    ";

/// A node on the real machine, so that notes of containers are judged as they are; only scripted devices.
fn node(more: &str) -> TestNode {
    let others = ["cpu", "memory", "fpga", "cxl"].map(|name| format!("[backends.{name}]\nenabled = false\n")).concat();
    let mut node = TestNode::new(Host::with(SCRIPT, &format!("{others}{more}")));
    node.begin();
    node
}

fn reader(node: &TestNode) -> PodResourcesReader {
    node.block_on(PodResourcesReader::connect(&node.path("run/pod-resources.sock"))).unwrap()
}

/// Runs the hook that a container runtime runs in front of a container with a claim. The container is this process.
fn run_hook(node: &Host, claim: &str, id: &str, annotations: &Value) {
    let bundle = node.path(id);
    fs::create_dir_all(&bundle).unwrap();
    let config = json!({"ociVersion": "1.2.0", "annotations": annotations});
    fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    let state = json!({"ociVersion": "1.2.0", "id": id, "pid": std::process::id(), "bundle": bundle});
    let mut hook = std::process::Command::new(binary())
        .args(["hook", "record", "--claim", claim, "--containers"])
        .arg(node.path("state/containers"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    hook.stdin.take().unwrap().write_all(state.to_string().as_bytes()).unwrap();
    assert!(hook.wait().unwrap().success());
}

fn of_containerd(pod: &str, container: &str) -> Value {
    json!({
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": container,
        "io.kubernetes.cri.sandbox-namespace": "ml",
        "io.kubernetes.cri.sandbox-name": pod,
        "io.kubernetes.cri.sandbox-uid": "5f0c",
    })
}

/// Waits until a list has a certain content.
fn wait_for_pods<T>(
    node: &TestNode,
    reader: &PodResourcesReader,
    what: &str,
    look: impl Fn(&[PodResources]) -> Option<T>,
) -> T {
    wait_for(what, || look(&node.block_on(reader.list())))
}

fn topology(nodes: &[i64]) -> Option<TopologyInfo> {
    Some(TopologyInfo { nodes: nodes.iter().map(|id| NumaNode { id: *id }).collect() })
}

fn device(resource: &str, id: &str, topology: Option<TopologyInfo>) -> ContainerDevices {
    ContainerDevices { resource_name: resource.to_owned(), device_ids: vec![id.to_owned()], topology }
}

/// The value of one of our counters or gauges.
fn figure(node: &Host, line: &str) -> String {
    let (_, text) = node.metrics("/metrics");
    let found = text.lines().find_map(|found| found.strip_prefix(line));
    found.unwrap_or_else(|| panic!("{line} is not in {text}")).trim().to_owned()
}

/// A pod `ml/train-0` whose container has a card, a device without a topology and huge pages.
fn started() -> (TestNode, PodResourcesReader) {
    let mut node = node("");
    node.manifest(
        "train",
        &uid("train"),
        &[
            ("gpu", "fake", "card-2", Value::Null),
            ("misc", "fake", "plain", Value::Null),
            ("mem", "fake", "memory", json!({"memory": "2Gi"})),
        ],
    );
    node.prepare("train");
    run_hook(&node, &uid("train"), "c1", &of_containerd("train-0", "main"));
    let reader = reader(&node);
    (node, reader)
}

#[test]
fn a_container_is_listed_with_its_devices_memory_and_claims() {
    let (mut node, reader) = started();
    let pod = wait_for_pods(&node, &reader, "the pod", |pods| pods.first().cloned());
    assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("ml", "train-0"));
    let [container] = &pod.containers[..] else { panic!("{pod:?}") };
    assert_eq!(container.name, "main");
    let expected = [device("hostler.dev/fake", "card-2", topology(&[1])), device("hostler.dev/fake", "plain", None)];
    assert_eq!(container.devices, expected, "no topology is none, not an empty one; memory is no device");
    let [memory] = &container.memory[..] else { panic!("{container:?}") };
    assert_eq!((&*memory.memory_type, memory.size, &memory.topology), ("hugepages-1Gi", 2 << 30, &topology(&[0])));
    let [dynamic] = &container.dynamic_resources[..] else { panic!("{container:?}") };
    assert_eq!((&*dynamic.claim_namespace, &*dynamic.claim_name), ("default", "train"));
    let prepared = node.prepare("train");
    for (told, device) in dynamic.claim_resources.iter().zip(&prepared) {
        assert_eq!(told.driver_name, "hostler.dev");
        assert_eq!((&told.pool_name, &told.device_name), (&device.pool_name, &device.device_name));
        let ids: Vec<&String> = told.cdi_devices.iter().map(|device| &device.name).collect();
        assert_eq!(ids, device.cdi_device_ids.iter().collect::<Vec<_>>());
    }
    assert_eq!((dynamic.claim_resources.len(), prepared.len()), (3, 3));
    assert_eq!(node.block_on(reader.get("ml", "train-0")).unwrap(), pod);
    let old = node.block_on(reader.list_v1alpha1()).unwrap();
    assert_eq!(old[0].containers[0].devices[0].device_ids, ["card-2", "plain"]);
    assert_eq!(node.mode("run/pod-resources.sock"), 0o600);
}

#[test]
fn a_call_of_every_library_is_answered_whatever_it_calls_the_socket() {
    let (node, reader) = started();
    wait_for_pods(&node, &reader, "the pod", |pods| (!pods.is_empty()).then_some(()));
    let socket = node.path("run/pod-resources.sock");
    for sent in [SENT_BY_GRPC_GO, SENT_BY_GRPCIO] {
        let bytes: Vec<u8> =
            (0..sent.len()).step_by(2).map(|at| u8::from_str_radix(&sent[at..at + 2], 16).unwrap()).collect();
        let outcome = node.block_on(http2::replay(&socket, &bytes));
        assert!(matches!(outcome, GrpcOutcome::Answer(_)), "{outcome:?} to {sent}");
    }
}

#[test]
fn a_pod_that_is_not_there_is_unknown_in_the_words_of_the_kubelet() {
    let node = node("");
    let error = node.block_on(reader(&node).get("ml", "nobody")).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unknown, "pod nobody in namespace ml not found"));
    assert_eq!(node.block_on(reader(&node).list()), []);
}

#[test]
fn what_ended_is_not_listed_and_what_runs_is_listed_again_after_a_restart() {
    let (mut node, reader_before) = started();
    let before = wait_for_pods(&node, &reader_before, "the pod", |pods| (!pods.is_empty()).then(|| pods.to_vec()));
    node.kill();
    node.begin();
    let reader = reader(&node);
    assert_eq!(node.block_on(reader.list()), before);
    node.unprepare("train");
    wait_for_pods(&node, &reader, "an empty list", |pods| pods.is_empty().then_some(()));
}

#[test]
fn what_can_be_handed_out_does_not_depend_on_what_is_and_changes_with_the_hardware() {
    let (node, reader) = started();
    let allocatable = || node.block_on(reader.allocatable()).unwrap();
    let all = allocatable();
    let ids = |answer: &AllocatableResourcesResponse| -> Vec<String> {
        answer.devices.iter().flat_map(|device| device.device_ids.clone()).collect()
    };
    assert_eq!(ids(&all), ["card-0", "card-1", "card-2", "card-3", "plain"]);
    assert_eq!((all.devices[0].topology.clone(), all.devices[4].topology.clone()), (topology(&[1]), None));
    assert_eq!(all.memory.iter().map(|memory| memory.size).collect::<Vec<_>>(), [8 << 30]);
    node.run_ok(&["device", "drain", "fake/card-0"]);
    assert_eq!(allocatable(), all, "neither a claim nor a drain takes anything away");
    node.script(&SCRIPT.replace("name = \"plain\"", "name = \"plain\"\nhealth = \"unhealthy\"\nreason = \"broken\""));
    node.run_ok(&["status", "--rescan"]);
    assert_eq!(ids(&allocatable()), ["card-0", "card-1", "card-2", "card-3"], "only what is healthy");
    node.script(SCRIPT);
    node.run_ok(&["status", "--rescan"]);
    assert_eq!(allocatable(), all);
}

#[test]
fn cpus_are_told_without_the_reserved_ones_and_to_whom_they_are_given() {
    let cpu = "[backends.cpu]\nfull_cores = false\nreserved = \"0\"\n";
    let others = ["memory", "fpga", "cxl"].map(|name| format!("[backends.{name}]\nenabled = false\n")).concat();
    let mut node = TestNode::new(Host::with("", &format!("{others}{cpu}")));
    node.begin();
    let reader = reader(&node);
    let cpus = node.block_on(reader.allocatable()).unwrap().cpu_ids;
    assert!(!cpus.contains(&0), "{cpus:?}");
    let inventory = node.get("/v1/inventory");
    let devices = inventory["devices"].as_array().unwrap();
    let Some(device) = devices.iter().find(|device| device["backend"] == "cpu") else {
        assert!(cpus.is_empty(), "a machine with nothing but reserved CPUs: {cpus:?}");
        return;
    };
    node.manifest("pinned", &uid("pinned"), &[("r", "cpu", device["name"].as_str().unwrap(), json!({"cpus": "1"}))]);
    node.prepare("pinned");
    run_hook(&node, &uid("pinned"), "c1", &of_containerd("pinned-0", "main"));
    let pod = wait_for_pods(&node, &reader, "the pod", |pods| pods.first().cloned());
    let [cpu] = pod.containers[0].cpu_ids[..] else { panic!("{pod:?}") };
    assert!(cpus.contains(&cpu) && pod.containers[0].devices.is_empty(), "{pod:?}");
    assert_eq!(node.block_on(reader.allocatable()).unwrap().cpu_ids, cpus);
}

#[test]
fn whoever_calls_in_a_tight_loop_hears_how_long_to_wait_and_nothing_counts_as_an_error() {
    let node = node("");
    let reader = reader(&node);
    let refusal = wait_for("a call that is too soon", || {
        node.block_on(async { reader.v1().list(ListPodResourcesRequest {}).await }).err()
    });
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert!(refusal.message().starts_with("rejected by rate limit: try again in "), "{refusal:?}");
    let millis: u64 = refusal.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse().unwrap();
    assert!((1..=11).contains(&millis), "{millis}");
    let listed = wait_for("a call that is answered again", || {
        node.block_on(async { reader.v1().list(ListPodResourcesRequest {}).await }).ok()
    });
    assert_eq!(listed.into_inner().pod_resources, []);
    assert_ne!(figure(&node, "hostler_pod_resources_endpoint_throttled_total"), "0");
    for call in ["list", "get", "get_allocatable"] {
        let line = format!("hostler_pod_resources_endpoint_errors_{call}_total{{server_api_version=\"v1\"}}");
        assert_eq!(figure(&node, &line), "0");
    }
}

#[test]
fn calls_are_counted_under_the_names_of_the_kubelet() {
    let node = node("");
    let reader = reader(&node);
    node.block_on(async {
        reader.list().await;
        reader.list_v1alpha1().await.unwrap();
        reader.allocatable().await.unwrap();
        reader.get("ml", "nobody").await.unwrap_err();
    });
    for (line, count) in [
        ("requests_total{server_api_version=\"v1\"}", "3"),
        ("requests_total{server_api_version=\"v1alpha1\"}", "1"),
        ("requests_list_total{server_api_version=\"v1\"}", "1"),
        ("requests_get_total{server_api_version=\"v1\"}", "1"),
        ("errors_get_total{server_api_version=\"v1\"}", "1"),
        ("requests_get_allocatable_total{server_api_version=\"v1\"}", "1"),
        ("errors_list_total{server_api_version=\"v1\"}", "0"),
    ] {
        assert_eq!(figure(&node, &format!("hostler_pod_resources_endpoint_{line}")), count, "{line}");
    }
}

#[test]
fn a_call_that_is_switched_off_gets_the_error_of_a_kubelet_and_the_others_work() {
    let off = |key: &str| {
        let mut node = TestNode::new(Host::bare(SCRIPT));
        node.configure(&format!("[pod_resources]\n{key} = false\n"));
        node.begin();
        let reader = reader(&node);
        let list = node.block_on(async { reader.v1().list(ListPodResourcesRequest {}).await }).err();
        let get = node.block_on(reader.get("ml", "nobody")).err();
        let allocatable = node.block_on(reader.allocatable()).err();
        let old = node.block_on(reader.list_v1alpha1()).err();
        [list, get, allocatable, old].map(|error| error.map(|error| (error.code(), error.message().to_owned())))
    };
    let disabled = |words: &str| Some((Code::Unknown, words.to_owned()));
    let missing = disabled("pod nobody in namespace ml not found");
    let list = disabled("PodResources API List method disabled");
    assert_eq!(off("list"), [list.clone(), missing.clone(), None, list]);
    assert_eq!(off("get"), [None, disabled("PodResources API Get method disabled"), None, None]);
    let words = "Pod Resources API GetAllocatableResources disabled";
    assert_eq!(off("get_allocatable"), [None, missing, disabled(words), None]);
}

#[test]
fn containers_of_podman_are_pods_by_themselves() {
    let mut node = node("");
    node.allocate("solo", &["card-1"]);
    node.prepare("solo");
    run_hook(&node, &uid("solo"), "abc123", &json!({"io.container.manager": "libpod"}));
    let reader = reader(&node);
    let pod = wait_for_pods(&node, &reader, "the container", |pods| pods.first().cloned());
    assert_eq!((&*pod.namespace, &*pod.name, &*pod.containers[0].name), ("default", "abc123", "abc123"));
}

#[test]
fn people_see_who_holds_what_and_where() {
    let (mut node, reader) = started();
    node.allocate("spare", &["card-0"]);
    node.prepare("spare");
    wait_for_pods(&node, &reader, "the pod", |pods| pods.first().cloned());
    let words = |args: &[&str]| -> Vec<Vec<String>> {
        let text = node.run_ok(args);
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let table = words(&["pods"]);
    assert_eq!(table[0], ["NAMESPACE", "POD", "CONTAINER", "CLAIM", "DEVICES", "CPUS", "MEMORY", "NODES"]);
    assert_eq!(table[1][..5], ["ml", "train-0", "main", "default/train", "fake/card-2"]);
    assert_eq!(table[2], ["-", "-", "default/spare", "fake/card-0", "1"]);
    assert_eq!(node.run_ok(&["pods", "-o", "name"]), "ml/train-0\n");
    assert_eq!(node.run_ok(&["pods", "-n", "other", "-o", "name"]), "");
    let wide = node.run_ok(&["pods", "-o", "wide"]);
    assert!(wide.contains("KNOWN BY") && wide.contains(" note ") && wide.contains(" c1 "), "{wide}");
    let json: Value = serde_json::from_str(&node.run_ok(&["pods", "-o", "json"])).unwrap();
    assert_eq!((&json["kind"], json["items"].as_array().unwrap().len()), (&json!("PodList"), 2));
    assert_eq!(json["items"][0]["containers"][0]["claims"][0]["devices"][2]["memory"]["hugepages-1Gi"], 2u64 << 30);
    assert!(node.run_ok(&["pods", "-o", "yaml"]).contains("known_by: note"));
}

/// A daemon in a cluster, with more lines of that section, and the kubelet's view of it.
async fn in_cluster(more: &str) -> (ApiServer, Host, KubeletPlugin) {
    const USER: &str = "system:serviceaccount:hostler-system:hostler";
    let server = ApiServer::start(ApiServerOptions::default()).await;
    server.user(USER, Some("node"));
    let mut host = Host::bare(SCRIPT);
    let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
    let kubeconfig = server.kubeconfig(USER);
    let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = \"{}\"\n{more}", kubeconfig.display());
    fs::write(host.path("hostler.toml"), config.replace("[cluster]\n", &cluster)).unwrap();
    host.start();
    let plugin = Kubelet::new(host.path("kubelet"), KubeletRelease::V1_36).register().await.unwrap();
    (server, host, plugin)
}

/// Claim `ml/train` with a share of the scripted memory, reserved for pod `train-0` and prepared.
async fn prepared_for_a_pod(server: &ApiServer, plugin: &mut KubeletPlugin, pod_uid: &str) -> Claim {
    let object = server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fake"}}]}},
    }));
    let share = json!({"request": "r", "driver": "hostler.dev", "pool": "node/fake", "device": "memory",
        "shareID": "5f0c6a1e-0000-4000-8000-000000000001", "consumedCapacity": {"memory": "1Gi"}});
    server.set_status(
        "resourceclaims",
        "ml/train",
        json!({
            "allocation": {"devices": {"results": [share]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["node"]}]}]}},
            "reservedFor": [{"resource": "pods", "name": "train-0", "uid": pod_uid}],
        }),
    );
    let claim = claim("ml", "train", object["metadata"]["uid"].as_str().unwrap());
    plugin.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].clone().unwrap();
    claim
}

#[tokio::test(flavor = "multi_thread")]
async fn where_pods_are_not_watched_the_record_tells_for_whom_a_claim_is_reserved() {
    let (server, mut host, mut plugin) = in_cluster("watch_pods = false\n").await;
    let claim = prepared_for_a_pod(&server, &mut plugin, "pod-5f0c").await;
    let record = host.path(&format!("state/claims/{}.json", claim.uid));
    let record: Value = serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
    assert_eq!(record["record"]["reserved_for"], json!([{"resource": "pods", "name": "train-0", "uid": "pod-5f0c"}]));
    let reader = PodResourcesReader::connect(&host.path("run/pod-resources.sock")).await.unwrap();
    let pods = reader.list().await;
    let [pod] = &pods[..] else { panic!("{pods:?}") };
    assert_eq!((&*pod.namespace, &*pod.name), ("ml", "train-0"));
    let [nameless] = &pod.containers[..] else { panic!("{pod:?}") };
    assert_eq!((&*nameless.name, nameless.memory[0].size), ("", 1 << 30));
    let told = &nameless.dynamic_resources[0].claim_resources[0];
    assert_eq!(told.share_id.as_deref(), Some("5f0c6a1e-0000-4000-8000-000000000001"));
    host.kill();
    host.start();
    let reader = PodResourcesReader::connect(&host.path("run/pod-resources.sock")).await.unwrap();
    assert_eq!(reader.list().await, pods, "a restart keeps it");
}

#[tokio::test(flavor = "multi_thread")]
async fn watched_pods_are_listed_with_what_each_container_has_until_they_have_ended() {
    let (server, host, mut plugin) = in_cluster("").await;
    let object = server.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-0", "namespace": "ml"},
        "spec": {
            "nodeName": "node",
            "initContainers": [
                {"name": "first", "image": "none", "resources": {"claims": [{"name": "c"}]}},
                {"name": "proxy", "image": "none", "restartPolicy": "Always"},
            ],
            "containers": [
                {"name": "main", "image": "none", "resources": {"claims": [{"name": "c", "request": "r"}]}},
                {"name": "idle", "image": "none"},
            ],
            "resourceClaims": [{"name": "c", "resourceClaimName": "train"}],
        },
    }));
    prepared_for_a_pod(&server, &mut plugin, object["metadata"]["uid"].as_str().unwrap()).await;
    let reader = PodResourcesReader::connect(&host.path("run/pod-resources.sock")).await.unwrap();
    let listed = async |wanted: &[(&str, usize)]| loop {
        let pods = reader.list().await;
        let told = pods.iter().flat_map(|pod| &pod.containers);
        let told: Vec<(&str, usize)> = told.map(|it| (it.name.as_str(), it.dynamic_resources.len())).collect();
        if told == wanted {
            return;
        }
    };
    timeout(PATIENCE, listed(&[("proxy", 0), ("main", 1), ("idle", 0)])).await.expect("the pod is listed");
    assert_eq!(reader.get("ml", "train-0").await.unwrap().containers[1].memory[0].size, 1 << 30);
    server.set_status("pods", "ml/train-0", json!({"phase": "Succeeded"}));
    timeout(PATIENCE, listed(&[])).await.expect("the pod has ended");
    let error = reader.get("ml", "train-0").await.unwrap_err();
    assert_eq!(error.message(), "pod train-0 in namespace ml not found");
}

/// The pod `ml/train-0` as the kubelet knows it, with a device plugin's device on two nodes and another driver's claim.
fn kubelet_pod() -> PodResources {
    let resource = |driver: &str, device: &str| ClaimResource {
        cdi_devices: vec![CdiDevice { name: format!("{driver}/claim={device}") }],
        driver_name: driver.to_owned(),
        pool_name: "node".to_owned(),
        device_name: device.to_owned(),
        share_id: None,
    };
    let dynamic = DynamicResource {
        claim_name: "nics".to_owned(),
        claim_namespace: "ml".to_owned(),
        claim_resources: vec![resource("nic.example.com", "n0"), resource("nic.example.com", "n1")],
    };
    let main = ContainerResources {
        name: "main".to_owned(),
        devices: vec![device("example.com/gpu", "g0", topology(&[0, 1])), device("example.com/gpu", "g1", None)],
        cpu_ids: vec![100, 101],
        dynamic_resources: vec![dynamic],
        ..ContainerResources::default()
    };
    let sidecar = ContainerResources { name: "sidecar".to_owned(), ..ContainerResources::default() };
    PodResources {
        name: "train-0".to_owned(),
        namespace: "ml".to_owned(),
        containers: vec![main, sidecar],
        ..PodResources::default()
    }
}

fn truth() -> KubeletTruth {
    let other = PodResources { name: "web-0".to_owned(), ..kubelet_pod() };
    let allocatable = AllocatableResourcesResponse {
        devices: vec![device("example.com/gpu", "g0", topology(&[0, 1]))],
        cpu_ids: vec![100, 101, 102],
        memory: Vec::new(),
    };
    KubeletTruth { pods: vec![kubelet_pod(), other], allocatable }
}

const MERGE: &str = "[pod_resources]\nmerge = true\nkubelet_poll = \"1s\"\n";

#[test]
fn the_kubelets_answer_and_ours_become_one_without_doubles_and_outlive_the_kubelet() {
    let mut node = node(MERGE);
    let socket = node.path("kubelet/pod-resources/kubelet.sock");
    let mut kubelet = node.block_on(async { KubeletPodResources::serve(&socket, truth()) });
    node.allocate("train", &["card-2"]);
    node.prepare("train");
    run_hook(&node, &uid("train"), "c1", &of_containerd("train-0", "main"));
    let reader = reader(&node);
    let both = wait_for_pods(&node, &reader, "both answers", |pods| {
        let claims = pods.first()?.containers.first()?.dynamic_resources.len();
        (pods.len() == 2 && claims == 2).then(|| pods.to_vec())
    });
    let pod = kubelet_pod();
    assert_eq!(both[1], PodResources { name: "web-0".to_owned(), ..pod.clone() }, "the quirks are mended");
    let [main, sidecar] = &both[0].containers[..] else { panic!("{both:?}") };
    assert_eq!(*sidecar, pod.containers[1]);
    assert_eq!((&main.cpu_ids, &main.devices[..2]), (&pod.containers[0].cpu_ids, &pod.containers[0].devices[..]));
    assert_eq!(main.devices[2], device("hostler.dev/fake", "card-2", topology(&[1])));
    let claims: Vec<&str> = main.dynamic_resources.iter().map(|claim| claim.claim_name.as_str()).collect();
    assert_eq!(claims, ["train", "nics"]);
    let allocatable = node.block_on(reader.allocatable()).unwrap();
    assert_eq!((allocatable.cpu_ids, allocatable.devices.len()), (vec![100, 101, 102], 6));
    assert_eq!(figure(&node, "hostler_pod_resources_kubelet_stale"), "0");
    kubelet.stop();
    wait_for("a stale answer", || (figure(&node, "hostler_pod_resources_kubelet_stale") == "1").then_some(()));
    assert_eq!(node.block_on(reader.list()), both, "the last good answer is used");
    assert!(node.log().contains("the kubelet cannot be asked for its pods: its last answer is used"));
    kubelet.answer();
    kubelet.learn(KubeletTruth { pods: Vec::new(), ..truth() });
    node.block_on(async { kubelet.restart() });
    wait_for_pods(&node, &reader, "the new answer", |pods| (pods.len() == 1).then_some(()));
    assert_eq!(figure(&node, "hostler_pod_resources_kubelet_stale"), "0");
}

#[test]
fn the_kubelet_names_the_container_of_a_claim_that_is_only_reserved() {
    let mut node = node(MERGE);
    let ours = ClaimResource {
        driver_name: "hostler.dev".to_owned(),
        pool_name: "node/fake".to_owned(),
        device_name: "card-2".to_owned(),
        ..ClaimResource::default()
    };
    let mut pod = kubelet_pod();
    pod.containers[1].dynamic_resources = vec![DynamicResource {
        claim_name: named("train").name,
        claim_namespace: named("train").namespace,
        claim_resources: vec![ours],
    }];
    let socket = node.path("kubelet/pod-resources/kubelet.sock");
    let truth = KubeletTruth { pods: vec![pod], ..truth() };
    let _kubelet = node.block_on(async { KubeletPodResources::serve(&socket, truth) });
    node.allocate("train", &["card-2"]);
    let prepared = node.prepare("train");
    let reader = reader(&node);
    let sidecar = wait_for_pods(&node, &reader, "our devices", |pods| {
        let sidecar = pods.first()?.containers.get(1)?;
        (!sidecar.devices.is_empty()).then(|| sidecar.clone())
    });
    assert_eq!(sidecar.devices, [device("hostler.dev/fake", "card-2", topology(&[1]))]);
    let [told] = &sidecar.dynamic_resources[0].claim_resources[..] else { panic!("a double: {sidecar:?}") };
    assert_eq!(told.cdi_devices[0].name, prepared[0].cdi_device_ids[0]);
}

#[test]
fn answers_of_more_than_four_mebibytes_go_both_ways_and_one_of_more_than_sixteen_is_not_taken() {
    let node = node(MERGE);
    let socket = node.path("kubelet/pod-resources/kubelet.sock");
    let devices = |count: usize| {
        let id = |n| device("example.com/gpu", &format!("{n:0>400}"), None);
        let main = ContainerResources { devices: (0..count).map(id).collect(), ..kubelet_pod().containers[0].clone() };
        KubeletTruth { pods: vec![PodResources { containers: vec![main], ..kubelet_pod() }], ..truth() }
    };
    let kubelet = node.block_on(async { KubeletPodResources::serve(&socket, devices(20_000)) });
    let reader = reader(&node);
    let listed = |pods: &[PodResources]| (pods.first()?.containers[0].devices.len() == 20_000).then_some(());
    wait_for_pods(&node, &reader, "a large answer", listed);
    let mut usual = reader.v1().max_decoding_message_size(4 << 20);
    let refused = node.block_on(async { usual.list(ListPodResourcesRequest {}).await }).unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "the client's own limit: {refused:?}");
    kubelet.learn(devices(50_000));
    wait_for("a stale answer", || (figure(&node, "hostler_pod_resources_kubelet_stale") == "1").then_some(()));
    assert!(listed(&node.block_on(reader.list())).is_some(), "the last good answer is used");
    kubelet.learn(devices(1));
    wait_for_pods(&node, &reader, "a small answer", |pods| (pods[0].containers[0].devices.len() == 1).then_some(()));
}
