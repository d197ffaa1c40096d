//! A real cluster whose one node is this machine, and what an administrator does there.
//!
//! `HOSTLER_E2E_KUBECONFIG` names the kubeconfig of an administrator, `HOSTLER_E2E_NODE` a folder of the node. In it
//! are
//!
//! | Name | What it is |
//! |---|---|
//! | `kubelet/` | the kubelet's root folder |
//! | `cdi/` | a folder in which the container runtime looks for CDI files; those of hostler go |
//! | `restart` | a program that kills the kubelet and starts it again |
//! | `import` | a program that imports the image archive which is its argument; only `tests/node_cluster` needs it |
//! | `daemon.kubeconfig` | how daemons reach the API server; without it they are administrators. A token that is bound to the Node is in a `tokenFile` |
//! | `controller.kubeconfig` | the same for the controller |
//!
//! The image of `HOSTLER_E2E_IMAGE` (`docker.io/library/busybox:latest` if it is not set) is there already; nothing is
//! pulled.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{binary::controller_binary, controller::ControllerOptions, host::ClusterMembership, skip::skipped};

const KUBECONFIG: &str = "HOSTLER_E2E_KUBECONFIG";
const NODE: &str = "HOSTLER_E2E_NODE";
const IMAGE: &str = "HOSTLER_E2E_IMAGE";

/// The node, for one test at a time.
pub struct RealNode {
    runtime: Runtime,
    client: Client,
    kubeconfig: PathBuf,
    folder: PathBuf,
    name: String,
    namespace: String,
    _turn: File,
}

/// More than the five minutes that a daemon waits before it takes back what a kubelet has forgotten, and a scheduler
/// before it looks again at a pod whose news it has missed.
const PATIENCE: Duration = Duration::from_secs(420);

/// Waits until `condition` gives something.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A name that no other test has.
fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("e2e-{:x}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A server's answer to a request, or status and message.
pub type RealAnswer = Result<Value, (u16, String)>;

impl RealNode {
    /// The node of a cluster whose versions of `resource.k8s.io` suit, when it is this one's turn. Else says why
    /// nothing is tried; `unsuited` is the word for a cluster of another age.
    pub fn find(suits: impl Fn(&[String]) -> bool, unsuited: &str) -> Option<Self> {
        let (Some(kubeconfig), Some(folder)) = (env::var_os(KUBECONFIG), env::var_os(NODE)) else {
            skipped(&format!("{KUBECONFIG} and {NODE} name no node"));
            return None;
        };
        let node = Self::at(kubeconfig.into(), folder.into());
        let is_suited = suits(&node.versions("resource.k8s.io"));
        if !is_suited {
            skipped(unsuited);
        }
        is_suited.then_some(node)
    }

    /// The node of a cluster of 1.34 or later.
    pub fn find_modern() -> Option<Self> {
        Self::find(|versions| versions.iter().any(|version| version == "v1"), "the cluster is older than 1.34")
    }

    fn at(kubeconfig: PathBuf, folder: PathBuf) -> Self {
        let turn = File::create(folder.join("hostler-tests.lock")).unwrap();
        turn.lock().unwrap();
        // The first test of a process chooses for all.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let runtime = Runtime::new().unwrap();
        let read = Kubeconfig::read_from(&kubeconfig).expect("a kubeconfig");
        let config = runtime.block_on(Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()));
        let entered = runtime.enter();
        let client = Client::try_from(config.expect("a kubeconfig with a current context")).unwrap();
        drop(entered);
        let (name, namespace) = (String::new(), unique());
        let mut node = Self { runtime, client, kubeconfig, folder, name, namespace, _turn: turn };
        node.begin();
        node
    }

    fn begin(&mut self) {
        for entry in fs::read_dir(self.folder.join("cdi")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("hostler.dev-claim_") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let nodes = self.get("/api/v1/nodes").unwrap();
        nodes["items"][0]["metadata"]["name"].as_str().unwrap().clone_into(&mut self.name);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        self.create("/api/v1/namespaces", &namespace);
        eventually("the account of pods", || self.get(&self.of("/api/v1", "serviceaccounts/default")));
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the namespace, whose objects go with the test.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the kubeconfig of a program of ours.
    fn kubeconfig_of(&self, program: &str) -> PathBuf {
        let own = self.folder.join(format!("{program}.kubeconfig"));
        if own.is_file() { own } else { self.kubeconfig.clone() }
    }

    /// Returns the options of a controller's start.
    pub fn controller_options(&self) -> ControllerOptions {
        ControllerOptions {
            binary: controller_binary(),
            kubeconfig: self.kubeconfig_of("controller"),
            ..ControllerOptions::default()
        }
    }

    /// Waits for something of the controller's.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Returns the membership of a daemon of this node.
    pub fn membership(&self) -> ClusterMembership {
        ClusterMembership {
            node: self.name.clone(),
            driver: "hostler.dev".to_owned(),
            kubeconfig: self.kubeconfig_of("daemon"),
            kubelet: Some(self.folder.join("kubelet")),
            cdi: Some(self.folder.join("cdi")),
        }
    }

    /// Makes the daemon's token again, as its administrator does: one that is bound to the Node goes with it.
    pub fn renew_token(&self) {
        let text = fs::read_to_string(self.kubeconfig_of("daemon")).unwrap();
        let config: Value = serde_saphyr::from_str(&text).unwrap();
        let Some(file) = config["users"][0]["user"]["tokenFile"].as_str() else { return };
        let node = self.get(&format!("/api/v1/nodes/{}", self.name)).unwrap();
        let bound = json!({"kind": "Node", "apiVersion": "v1", "name": self.name, "uid": node["metadata"]["uid"]});
        let asked = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": 86400, "boundObjectRef": bound},
        });
        let made = self.create("/api/v1/namespaces/hostler-system/serviceaccounts/hostler/token", &asked);
        let new = format!("{file}.new");
        fs::write(&new, made["status"]["token"].as_str().unwrap()).unwrap();
        fs::rename(&new, file).unwrap();
    }

    /// Returns the kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The folder of the node.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if images can be brought to the node.
    pub fn imports_images(&self) -> bool {
        self.folder.join("import").is_file()
    }

    /// Imports the images of an archive into the container runtime.
    pub fn import_image(&self, archive: &Path) {
        let output = Command::new(self.folder.join("import")).arg(archive).output().unwrap();
        assert!(output.status.success(), "import: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Kills the kubelet, and starts another one.
    pub fn restart_kubelet(&self) {
        let status = Command::new(self.folder.join("restart")).status().unwrap();
        assert!(status.success(), "restart: {status}");
    }

    /// The versions in which the server has a group.
    pub fn versions(&self, group: &str) -> Vec<String> {
        let groups = self.get("/apis").unwrap();
        let found = groups["groups"].as_array().unwrap().iter().find(|it| it["name"] == group);
        let versions = found.and_then(|it| it["versions"].as_array()).into_iter().flatten();
        versions.map(|it| it["version"].as_str().unwrap().to_owned()).collect()
    }

    /// The path of objects of the test's namespace: of `/api/v1` and `pods/a`.
    pub fn of(&self, root: &str, rest: &str) -> String {
        format!("{root}/namespaces/{}/{rest}", self.namespace)
    }

    /// Any request.
    pub fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> RealAnswer {
        let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = hyper::Request::builder().method(method).uri(path).header("content-type", content_type);
        match self.runtime.block_on(self.client.request(request.body(text).unwrap())) {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err((status.code, status.message)),
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    /// Returns an object, if it exists.
    pub fn get(&self, path: &str) -> Option<Value> {
        match self.ask("GET", path, "application/json", &Value::Null) {
            Ok(object) => Some(object),
            Err((404, _)) => None,
            Err((code, message)) => panic!("GET {path}: {code}: {message}"),
        }
    }

    /// Makes an object in a collection.
    pub fn create(&self, collection: &str, object: &Value) -> Value {
        let answer = self.ask("POST", collection, "application/json", object);
        answer.unwrap_or_else(|(code, message)| panic!("{object}: {code}: {message}"))
    }

    /// Reads an object, changes it, and writes it to `path` with `part` appended, until no other writer was faster.
    pub fn change(&self, path: &str, part: &str, change: impl Fn(&mut Value)) {
        eventually(&format!("a change of {path}"), || {
            let mut object = self.get(path).unwrap_or_else(|| panic!("{path} is not there"));
            change(&mut object);
            match self.ask("PUT", &format!("{path}{part}"), "application/json", &object) {
                Ok(_) => Some(()),
                Err((409, _)) => None,
                Err((code, message)) => panic!("{object}: {code}: {message}"),
            }
        });
    }

    /// Applies the object of a file.
    pub fn apply_file(&self, collection: &str, file: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let path =
            format!("{collection}/{}?fieldManager=test&force=true", object["metadata"]["name"].as_str().unwrap());
        let answer = self.ask("PATCH", &path, "application/apply-patch+yaml", &object);
        answer.unwrap_or_else(|(code, message)| panic!("{}: {code}: {message}", file.display()));
    }

    /// Asks for an object to go, in so many seconds. One that has gone is fine.
    pub fn delete(&self, path: &str, grace: u32) {
        match self.ask("DELETE", path, "application/json", &json!({"gracePeriodSeconds": grace})) {
            Ok(_) | Err((404, _)) => {}
            Err((code, message)) => panic!("DELETE {path}: {code}: {message}"),
        }
    }

    /// Makes a pod whose one container runs until it is stopped. It gets all claims of `claims`, which are entries of
    /// the pod.
    pub fn run_pod(&self, name: &str, claims: &[Value], node_selector: &Value) {
        self.run_pod_with(name, claims, &json!({"nodeSelector": node_selector}));
    }

    /// Does the same as `run_pod`, with more fields of the pod's spec.
    pub fn run_pod_with(&self, name: &str, claims: &[Value], more: &Value) {
        let image = env::var(IMAGE).unwrap_or_else(|_| "docker.io/library/busybox:latest".to_owned());
        let used: Vec<Value> = claims.iter().map(|claim| json!({"name": claim["name"]})).collect();
        let script = format!("while :; do sleep 1; done # {}", self.marker(name));
        let mut spec = json!({
            "terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
            "resourceClaims": claims,
            "containers": [{"name": "main", "image": image, "imagePullPolicy": "Never",
                "command": ["sh", "-c", script], "resources": {"claims": used}}],
        });
        more.as_object().unwrap().iter().for_each(|(field, value)| spec[field] = value.clone());
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.create(&self.of("/api/v1", "pods"), &pod);
    }

    fn marker(&self, pod: &str) -> String {
        format!("pod {}/{pod}.", self.namespace)
    }

    /// The first process of a pod's container.
    pub fn pid(&self, pod: &str) -> Option<u32> {
        let marker = self.marker(pod);
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.into_iter().find(|pid| {
            // Processes go while they are looked at.
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"sh\0") && String::from_utf8_lossy(&line).contains(&marker)
        })
    }

    /// Returns the messages of Events about an object, such as kind `Pod` and name `a`.
    pub fn events(&self, kind: &str, name: &str) -> Vec<String> {
        let events = self.get(&self.of("/api/v1", "events")).unwrap();
        let of_it = |event: &&Value| event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name;
        let events = events["items"].as_array().unwrap().iter().filter(of_it);
        events.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        let _ = self.ask("DELETE", &format!("/api/v1/namespaces/{}", self.namespace), "application/json", &Value::Null);
    }
}
