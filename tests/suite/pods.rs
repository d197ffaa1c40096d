//! The pods of this node as a daemon sees them: the real one watches an API server in this process.

use std::fs;

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease, LoggedRequest, PolicyRule},
    host::{Host, wait_for},
};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:hostler-system:hostler";

/// A cluster of several nodes, one of which has a daemon.
struct Rig {
    server: ApiServer,
    host: Host,
}

/// Returns the rules that a file of `deploy/` grants.
fn role(file: &str) -> Vec<PolicyRule> {
    let path = format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"));
    PolicyRule::from_yaml(&fs::read_to_string(path).unwrap())
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    })
}

impl Rig {
    /// Makes a daemon that may do what these files grant; everything if there are none.
    async fn granted(files: &[&str], cluster: &str) -> Self {
        Self::of(ApiServerRelease::V1_36, files, cluster).await
    }

    async fn of(release: ApiServerRelease, files: &[&str], cluster: &str) -> Self {
        let server = ApiServer::of(release).await;
        server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
        for file in files {
            server.allow(USER, role(file));
        }
        server.user(USER, Some("node"));
        let mut host = Host::bare("[[device]]\nname = \"card\"\n");
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
        let kubeconfig = server.kubeconfig(USER);
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = {kubeconfig:?}\n{cluster}");
        fs::write(host.path("hostler.toml"), config.replace("[cluster]\n", &cluster)).unwrap();
        host.start();
        Self { server, host }
    }

    fn told(&self) -> Value {
        self.host.get("/v1/status")["pods"].take()
    }

    fn wait_for_pods(&self, count: usize) {
        wait_for("the pods to be known", || {
            let told = self.told();
            (told["known"] == true && told["pods"] == count).then_some(())
        });
    }

    fn calls(&self) -> Vec<LoggedRequest> {
        self.server.log().into_iter().filter(|call| call.resource == "pods").collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_this_node_are_known_and_those_of_others_are_not() {
    let rig = Rig::granted(&[], "").await;
    rig.wait_for_pods(0);
    for (name, node) in [("here", "node"), ("also", "node"), ("elsewhere", "other"), ("nowhere", "")] {
        let mut pod = pod(name, node);
        if node.is_empty() {
            pod["spec"].as_object_mut().unwrap().remove("nodeName");
        }
        rig.server.create(pod);
    }
    rig.wait_for_pods(2);
    rig.server.edit("pods", "nowhere", |pod| pod["spec"]["nodeName"] = json!("node"));
    rig.wait_for_pods(3);
    rig.server.delete("pods", "here");
    rig.wait_for_pods(2);
    assert!(rig.host.run_ok(&["status"]).contains("pods     2 on this node\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_streamed_and_listed_where_the_server_streams_nothing() {
    for (release, lists) in [(ApiServerRelease::V1_36, 0), (ApiServerRelease::V1_33, 1)] {
        let rig = Rig::of(release, &[], "").await;
        rig.wait_for_pods(0);
        rig.server.create(pod("here", "node"));
        rig.wait_for_pods(1);
        assert_eq!(rig.calls().iter().filter(|call| call.verb == "list").count(), lists, "{release:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_ends_expires_or_breaks_misses_no_pod() {
    let rig = Rig::granted(&[], "").await;
    rig.wait_for_pods(0);
    rig.server.close_watches();
    rig.server.create(pod("a", "node"));
    rig.wait_for_pods(1);
    rig.server.expire_watches();
    rig.server.create(pod("b", "node"));
    rig.wait_for_pods(2);
    rig.server.stop_listening().await;
    rig.server.delete("pods", "a");
    let told = rig.told();
    assert_eq!((&told["known"], &told["pods"]), (&json!(true), &json!(2)), "a minute is not over: {told}");
    rig.server.listen_again().await;
    rig.wait_for_pods(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_role_for_pods_everything_else_works_and_the_reason_is_told_once() {
    let rig = Rig::granted(&["cluster/rbac.yaml"], "").await;
    let reason = wait_for("the reason", || {
        let told = rig.told();
        let reason = told["error"].as_str()?.to_owned();
        (told["known"] == false && reason.contains("cannot watch resource \"pods\"")).then_some(reason)
    });
    assert!(reason.contains("it is asked again soon"), "it is not known yet whether the role is missing: {reason}");
    assert!(rig.host.run_ok(&["status"]).contains("pods     not known: failed to watch the pods of this node"));
    wait_for("the daemon to be ready", || {
        rig.host.get("/v1/status")["publication"]["synced"].as_bool().filter(|it| *it)
    });
    let log = rig.host.log();
    assert_eq!(log.matches("the pods of this node are not known; everything else works").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_component_for_pods_grants_what_the_watch_needs() {
    let rig = Rig::granted(&["cluster/rbac.yaml", "components/pods/rbac.yaml"], "").await;
    rig.wait_for_pods(0);
    rig.server.create(pod("a", "node"));
    rig.wait_for_pods(1);
    assert!(rig.calls().iter().all(|call| call.status == 200), "{:?}", rig.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_not_to_watch_pods_does_not_ask_for_any() {
    let rig = Rig::granted(&[], "watch_pods = false\n").await;
    wait_for("the devices to be published", || {
        rig.host.get("/v1/status")["publication"]["synced"].as_bool().filter(|it| *it)
    });
    assert_eq!((rig.told(), rig.calls().len()), (Value::Null, 0));
}
