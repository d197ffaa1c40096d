//! Claims that are read before the kubelet asks: what a prepare takes then, and what it takes otherwise.
//!
//! On the tests' own API server, and on a real one where `HOSTLER_E2E_KUBECONFIG` names an administrator's kubeconfig.

use std::{
    env,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use hostler_proto::dra_v1::Claim;
use hostler_testing::{apiserver::ApiServer, host::wait_for, kubelet};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tokio::runtime::{self, Runtime};

use super::{
    idle::Memory,
    limits::Limits,
    machine,
    report::{Amount, Report},
    rig::Rig,
    samples::Samples,
};

const REAL: &str = "HOSTLER_E2E_KUBECONFIG";
const NODE: &str = "node";
const WARM_UP: usize = 20;
const SINGLE: usize = 200;
const PODS: usize = 250;
const MOST_BYTES: i64 = 1_500_000;

pub(crate) fn measure(report: &mut Report) {
    prepares(report, &AheadCluster::own(), "the tests' own API server");
    match env::var_os(REAL) {
        Some(kubeconfig) => prepares(report, &AheadCluster::real(Path::new(&kubeconfig)), "a real API server"),
        None => report.skipped("prepare of a claim that was read ahead, a real API server", REAL, "is not set"),
    }
    memory(report);
}

/// What the watch keeps of a node full of pods.
fn memory(report: &mut Report) {
    let cluster = AheadCluster::own();
    let server = cluster.server.as_ref().unwrap();
    (0..PODS).for_each(|number| drop(server.create(running_pod(number))));
    let anonymous = |watch_pods: bool| {
        let mut rig = Rig::here();
        rig.configure(&format!("{}cluster.watch_pods = {watch_pods}\n", cluster.configuration()));
        rig.host.start();
        wait_for("the pods to be known", || {
            let pods = rig.host.get("/v1/status")["pods"].take();
            (!watch_pods || pods["pods"] == PODS).then_some(())
        });
        thread::sleep(Duration::from_secs(5));
        i64::try_from(Memory::of(rig.host.pid()).anonymous).unwrap()
    };
    let grown = Amount::Bytes(anonymous(true) - anonymous(false));
    let how = "anonymous memory of a daemon that watches them less that of one that does not, 5 s after the start";
    report.at_most(&format!("memory of {PODS} watched pods"), Amount::Bytes(MOST_BYTES), grown, "", how);
}

/// As large as pods are: a server sends all of it, most of which is dropped.
fn running_pod(number: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.org/team/service:1.2.3",
            "env": (0..20).map(|at| json!({"name": format!("VARIABLE_{at}"), "value": "a value of some length"})).collect::<Vec<_>>(),
            "resources": {"claims": [{"name": "dev"}]},
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("service-{number}-7d9c5b8f6d-x2x4z"), "namespace": "default",
            "annotations": {"example.com/remark": "x".repeat(1000)},
        },
        "spec": {
            "nodeName": NODE, "containers": [container("main"), container("proxy")],
            "resourceClaims": [{"name": "dev", "resourceClaimName": "shared"}],
        },
    })
}

/// A cluster in which this is the scheduler.
struct AheadCluster {
    runtime: Runtime,
    client: Client,
    kubeconfig: PathBuf,
    /// In which nobody binds pods.
    server: Option<ApiServer>,
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

impl AheadCluster {
    fn own() -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (server, client) = runtime.block_on(async {
            let server = ApiServer::start(Default::default()).await;
            let client = server.client("administrator").await;
            (server, client)
        });
        let kubeconfig = server.kubeconfig("hostler");
        Self { runtime, client, kubeconfig, server: Some(server) }.with_node()
    }

    fn real(kubeconfig: &Path) -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
            let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
            Client::try_from(config).unwrap()
        });
        Self { runtime, client, kubeconfig: kubeconfig.to_owned(), server: None }.with_node()
    }

    fn with_node(self) -> Self {
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource("", "Node", "nodes"));
        let node = object(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}));
        match self.runtime.block_on(nodes.create(&PostParams::default(), &node)) {
            Ok(_) => self,
            Err(kube::Error::Api(status)) if status.code == 409 => self,
            Err(error) => panic!("{error}"),
        }
    }

    /// What a daemon needs in order to use it. What is written about claims would compete for two CPUs.
    fn configuration(&self) -> String {
        let kubeconfig = &self.kubeconfig;
        format!(
            "cluster.mode = \"kubernetes\"\ncluster.kubeconfig = {kubeconfig:?}\ncluster.claim_status = false\ncluster.events = false\n"
        )
    }

    fn pods(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "default", &resource("", "Pod", "pods"))
    }

    fn claims(&self) -> Api<DynamicObject> {
        let claims = resource("resource.k8s.io", "ResourceClaim", "resourceclaims");
        Api::namespaced_with(self.client.clone(), "default", &claims)
    }

    fn create(&self, api: &Api<DynamicObject>, value: Value) -> String {
        let created = self.runtime.block_on(api.create(&PostParams::default(), &object(value))).unwrap();
        created.metadata.uid.unwrap()
    }

    fn patch_status(&self, api: &Api<DynamicObject>, name: &str, status: &Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.runtime.block_on(api.patch_status(name, &PatchParams::default(), &patch)).unwrap();
    }

    /// A pod that is bound to the node, and its claim for one CPU: made for it, or one that it names.
    fn bound(&self, number: usize, is_made_for_it: bool) -> (String, Claim) {
        let (pod, name) = (format!("ahead-{number}"), format!("ahead-{number}-dev"));
        let named = if is_made_for_it { "resourceClaimTemplateName" } else { "resourceClaimName" };
        let pod_uid = self.create(
            &self.pods(),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
                "spec": {
                    // So that no other scheduler takes it.
                    "schedulerName": "figures", "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": "none"}], "resourceClaims": [{"name": "dev", named: name}],
                },
            }),
        );
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid, "controller": true}]);
        let uid = self.create(
            &self.claims(),
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {
                    "name": name, "finalizers": ["resource.kubernetes.io/delete-protection"],
                    "annotations": {"resource.kubernetes.io/pod-claim-name": "dev"},
                    "ownerReferences": if is_made_for_it { owner } else { json!([]) },
                },
                "spec": {"devices": {"requests": [
                    {"name": "cpu", "exactly": {"deviceClassName": "cpu.hostler.dev"}}]}},
            }),
        );
        let result = json!({
            "request": "cpu", "driver": "hostler.dev", "pool": format!("{NODE}/cpu"), "device": format!("numa{}", number % 4),
            "shareID": format!("3f0c6a1e-0000-4000-8000-{number:012}"), "consumedCapacity": {"cpus": "1"},
        });
        let reserved = json!([{"resource": "pods", "name": pod, "uid": pod_uid}]);
        let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved});
        self.patch_status(&self.claims(), &name, &status);
        let told = json!({"resourceClaimStatuses": [{"name": "dev", "resourceClaimName": name}]});
        if is_made_for_it {
            self.patch_status(&self.pods(), &pod, &told);
        }
        self.bind(&pod);
        (pod, kubelet::claim("default", &name, &uid))
    }

    fn bind(&self, pod: &str) {
        if let Some(server) = &self.server {
            server.edit("pods", pod, |pod| pod["spec"]["nodeName"] = json!(NODE));
            return;
        }
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": NODE},
        });
        let bind = async {
            let now = PostParams::default();
            let _: Value = self.pods().create_subresource("binding", pod, &now, &binding).await.unwrap();
        };
        self.runtime.block_on(bind);
    }

    fn remove(&self, pod: &str, claim: &Claim) {
        let now = DeleteParams::default().grace_period(0);
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.runtime.block_on(async {
            self.pods().delete(pod, &now).await.unwrap();
            // A controller of a real cluster may have been faster with these.
            let _ = self.claims().patch(&claim.name, &PatchParams::default(), &free).await;
            let _ = self.claims().delete(&claim.name, &now).await;
        });
    }
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// How often claims were read so.
fn reads(rig: &Rig, how: &str) -> usize {
    let (_, figures) = rig.host.metrics("/metrics");
    let line = format!("hostler_claim_reads_total{{kind=\"{how}\"}} ");
    figures.lines().find_map(|figure| figure.strip_prefix(&*line)).map_or(0, |count| count.parse().unwrap())
}

fn prepares(report: &mut Report, cluster: &AheadCluster, server: &str) {
    let how = "one CPU of a captured machine with 128, state on disk; the claim was read some milliseconds before";
    let figure = format!("prepare of a claim that was read ahead, {server}");
    let Some(mut rig) = Rig::large(&machine::disk()) else {
        return report.skipped(&figure, "captures are absent", how);
    };
    rig.configure(&cluster.configuration());
    rig.host.start();
    let mut plugin = rig.register();
    let mut measure = |first: usize, is_made_for_it: bool| {
        let mut times = Vec::new();
        for number in first..first + WARM_UP + SINGLE {
            let kept = reads(&rig, "kept");
            let (pod, claim) = cluster.bound(number, is_made_for_it);
            if is_made_for_it {
                wait_for("the claim to be read", || (reads(&rig, "kept") > kept).then_some(()));
            }
            let claims = [claim];
            times.push(rig.prepare(&mut plugin, &claims));
            rig.unprepare(&mut plugin, &claims);
            cluster.remove(&pod, &claims[0]);
        }
        Samples::new(times.split_off(WARM_UP))
    };
    let (ahead, asked) = (measure(0, true), measure(10_000, false));
    report.median_of_budget(&figure, Limits::of_this_machine().prepare_on_disk(), &ahead, how);
    report.median(
        &format!("prepare of a claim that its pod names, {server}"),
        &asked,
        "as above, read when it is asked for",
    );
    assert_eq!(reads(&rig, "ahead"), WARM_UP + SINGLE, "some were not read ahead");
    rig.host.kill();
}
