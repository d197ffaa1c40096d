//! `hostler-controller check-upgrade` as operators call it: against an API server, and against manifests.

use std::{fs, path::Path, process::Output};

use hostler_testing::apiserver::{ApiServer, ApiServerRelease, PolicyRule};
use serde_json::{Value, json};

use crate::{
    rig::root,
    transcript::{call, text},
};

const USER: &str = "operator";

/// Roles and workloads of a cluster, which a server of these tests does not have by itself.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", "Cluster"),
    ("rbac.authorization.k8s.io", "Role", "roles", "Namespaced"),
    ("apps", "DaemonSet", "daemonsets", "Namespaced"),
    ("apps", "Deployment", "deployments", "Namespaced"),
];

fn deployed(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join("deploy").join(file)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// The objects that `check-upgrade` looks at, as this version deploys them.
pub(crate) fn of_this_version() -> Vec<Value> {
    let files = [
        "crds/nodehardware.yaml",
        "crds/clusterhardware.yaml",
        "crds/reservations.yaml",
        "cluster/rbac.yaml",
        "controller/base/rbac.yaml",
    ];
    let kinds = ["CustomResourceDefinition", "ClusterRole", "Role"];
    files.iter().flat_map(|file| deployed(file)).filter(|it| kinds.contains(&it["kind"].as_str().unwrap())).collect()
}

fn workload(kind: &str, namespace: &str, name: &str, version: &str) -> Value {
    let containers = json!([{ "name": name, "image": format!("{name}:{version}") }]);
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": namespace },
        "spec": { "template": { "spec": { "containers": containers } } },
    })
}

/// A cluster with these objects, and both programs in this version.
pub(crate) async fn cluster(objects: &[Value]) -> ApiServer {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    for (group, kind, plural, scope) in KINDS {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
        server.create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": { "group": group, "scope": scope, "versions": [version], "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
            } },
        }));
    }
    for namespace in ["hostler-system", "hostler-controller"] {
        server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
    }
    for object in objects {
        server.create(object.clone());
    }
    let own = env!("CARGO_PKG_VERSION");
    server.create(workload("DaemonSet", "hostler-system", "hostler", own));
    server.create(workload("Deployment", "hostler-controller", "hostler-controller", own));
    server
}

/// Checks a cluster; returns the exit code and the answer in JSON.
async fn checked(server: &ApiServer) -> (i32, Value) {
    let output = asked(server, &["-o", "json"]).await;
    let code = output.status.code().unwrap();
    (code, serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{code} {}", text(&output.stderr))))
}

async fn asked(server: &ApiServer, more: &[&str]) -> Output {
    let kubeconfig = server.kubeconfig(USER).display().to_string();
    let mut args: Vec<String> = ["check-upgrade", "--kubeconfig", &kubeconfig].map(str::to_owned).into();
    args.extend(more.iter().map(|word| (*word).to_owned()));
    let work = move || call(&args.iter().map(String::as_str).collect::<Vec<_>>(), &root());
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// The findings of an answer, a line each.
fn lines(answer: &Value) -> Vec<String> {
    let word = |finding: &Value, field: &str| finding[field].as_str().unwrap_or("-").to_owned();
    let line = |it: &Value| ["urgency", "object", "message", "command"].map(|field| word(it, field)).join(" | ");
    answer["findings"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_this_version_has_nothing_in_the_way() {
    let server = cluster(&of_this_version()).await;
    let (code, answer) = checked(&server).await;
    assert_eq!((code, lines(&answer)), (0, Vec::new()));
    assert_eq!([&answer["kind"], &answer["version"]], ["UpgradeCheck", env!("CARGO_PKG_VERSION")]);
    let output = asked(&server, &[]).await;
    assert!(text(&output.stdout).ends_with(": nothing is in the way\n"), "{}", text(&output.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_version_lacks_comes_first_with_the_command_that_mends_it() {
    let mut objects = of_this_version();
    let named = |objects: &mut Vec<Value>, kind: &str, name: &str| {
        objects.iter().position(|it| it["kind"] == kind && it["metadata"]["name"] == name).unwrap()
    };
    let definition = named(&mut objects, "CustomResourceDefinition", "reservations.hostler.dev");
    let schema = &mut objects[definition]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"].as_object_mut().unwrap().remove("plannedDevices").unwrap();
    let role = named(&mut objects, "ClusterRole", "hostler-controller");
    objects[role]["rules"].as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["resourcequotas"]));
    let gone = named(&mut objects, "CustomResourceDefinition", "clusterhardware.hostler.dev");
    objects.remove(gone);
    let server = cluster(&objects).await;

    let (code, answer) = checked(&server).await;
    let expected = [
        "first | CustomResourceDefinition clusterhardware.hostler.dev | it is missing | kubectl apply -k deploy/crds",
        "first | CustomResourceDefinition reservations.hostler.dev | it is of another version: the API server drops or \
         refuses spec.plannedDevices | kubectl apply -k deploy/crds",
        "first | ClusterRole hostler-controller | it does not allow list resourcequotas, watch resourcequotas | \
         kubectl apply -k deploy/controller",
    ];
    assert_eq!((code, lines(&answer)), (1, expected.map(str::to_owned).to_vec()));
    let output = asked(&server, &[]).await;
    assert!(text(&output.stdout).contains(": 3 to mend first, 0 to know\n"), "{}", text(&output.stdout));

    for (plural, name) in
        [("customresourcedefinitions", "reservations.hostler.dev"), ("clusterroles", "hostler-controller")]
    {
        server.delete(plural, name);
    }
    let is_mended = |it: &&Value| {
        ["reservations.hostler.dev", "clusterhardware.hostler.dev"].iter().any(|name| it["metadata"]["name"] == *name)
            || (it["kind"] == "ClusterRole" && it["metadata"]["name"] == "hostler-controller")
    };
    of_this_version().iter().filter(is_mended).for_each(|object| drop(server.create(object.clone())));
    let (code, answer) = checked(&server).await;
    assert_eq!((code, lines(&answer)), (0, Vec::new()), "the commands have mended all");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_may_not_read_is_no_answer() {
    let server = cluster(&of_this_version()).await;
    let rules = "kind: ClusterRole\nmetadata: {name: some}\nrules:\n  - {apiGroups: [apiextensions.k8s.io], resources: \
                 [customresourcedefinitions], verbs: [get]}\n";
    server.allow(USER, PolicyRule::from_yaml(rules));
    let output = asked(&server, &[]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("needs the verb get on clusterroles"), "{}", text(&output.stderr));
}

#[test]
fn manifests_are_checked_before_they_are_applied() {
    let folder = root();
    let output = call(&["check-upgrade", "-f", "deploy/crds/reservations.yaml"], &folder);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.contains("CustomResourceDefinition nodehardware.hostler.dev"), "{told}");
    assert!(!told.contains("reservations.hostler.dev"), "{told}");
    let output = call(&["check-upgrade", "-f", "deploy/crds", "-f", "deploy/holds"], &folder);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let output = call(&["check-upgrade", "-f", "examples/plan/broken.txt"], &folder);
    assert_eq!(output.status.code(), Some(2));
    let output = call(&["check-upgrade", "--kubeconfig", "absent"], Path::new("/"));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}
