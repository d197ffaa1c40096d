//! A cluster for a test: an API server of its own, or a part of a real one (`HOSTLER_E2E_KUBECONFIG`) that no other
//! test touches. The test is its scheduler.

mod allocator;
mod proxy;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Namespace, Node, Pod, ServiceAccount},
        resource::v1::{ResourceClaim, ResourceSlice},
    },
};
use kube::{
    Api, Client, Config, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::apiserver::{ApiServer, ApiServerRelease};

pub use allocator::DeviceWant;
pub use proxy::WireState;

use proxy::TcpProxy;

/// Names a kubeconfig of a cluster that tests may use as administrators.
const REAL: &str = "HOSTLER_E2E_KUBECONFIG";

/// A cluster with a namespace and a node for one test.
pub struct TestCluster {
    handle: Handle,
    client: Client,
    folder: TempDir,
    proxy: TcpProxy,
    /// Name for nodes, namespaces and drivers of this test.
    unique: String,
    /// `None`: the cluster is a real one.
    server: Option<Arc<ApiServer>>,
}

/// A name that no other test on this machine has, and hardly one on another.
fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("h{:x}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

impl TestCluster {
    /// Reaches the cluster, and makes the test's namespace and node there.
    pub fn new(handle: &Handle) -> Self {
        let (original, server) = match std::env::var_os(REAL) {
            Some(path) => (PathBuf::from(path), None),
            None => {
                let server = handle.block_on(ApiServer::of(ApiServerRelease::V1_36));
                (server.kubeconfig("administrator"), Some(Arc::new(server)))
            }
        };
        let kubeconfig = Kubeconfig::read_from(&original).expect("a kubeconfig");
        let config = handle.block_on(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()));
        let config = config.expect("a kubeconfig with a current context");
        let (host, port) =
            (config.cluster_url.host().unwrap().to_owned(), config.cluster_url.port_u16().unwrap_or(443));
        let _in_runtime = handle.enter();
        // The first test of a process chooses for all.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let cluster = Self {
            client: Client::try_from(config).expect("credentials that can be used"),
            handle: handle.clone(),
            folder: TempDir::new().unwrap(),
            proxy: TcpProxy::start(format!("{host}:{port}"), handle),
            unique: unique(),
            server,
        };
        cluster.write_kubeconfig(&original, &host);
        cluster.begin();
        cluster
    }

    /// Returns the server, if it is the test's own and can have faults; a real cluster cannot.
    pub fn faults(&self) -> Option<&ApiServer> {
        if self.server.is_none() {
            println!("skipped: makes trouble in an API server of its own, not in that of {REAL}");
        }
        self.server.as_deref()
    }

    /// The server, if the cluster is none that is real.
    pub fn shared_server(&self) -> Option<Arc<ApiServer>> {
        self.server.clone()
    }

    /// A word that no other test has.
    pub fn unique(&self) -> &str {
        &self.unique
    }

    /// Writes the same credentials with the address of the proxy.
    fn write_kubeconfig(&self, original: &Path, host: &str) {
        let text = fs::read_to_string(original).unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
        let current = kubeconfig["current-context"].clone();
        let named = |list: &mut Value, name: &Value| {
            let list = list.as_array_mut().unwrap();
            list.iter().position(|entry| entry["name"] == *name).unwrap()
        };
        let context = named(&mut kubeconfig["contexts"], &current);
        let cluster = kubeconfig["contexts"][context]["context"]["cluster"].clone();
        let cluster = named(&mut kubeconfig["clusters"], &cluster);
        let cluster = &mut kubeconfig["clusters"][cluster]["cluster"];
        let scheme = cluster["server"].as_str().unwrap().split("://").next().unwrap().to_owned();
        cluster["server"] = json!(format!("{scheme}://{}", self.proxy.address()));
        if cluster["tls-server-name"].is_null() && host != "127.0.0.1" {
            cluster["tls-server-name"] = json!(host);
        }
        fs::write(self.kubeconfig(), kubeconfig.to_string()).unwrap();
    }

    fn begin(&self) {
        let namespace = self.namespace();
        self.create(
            &self.all::<Namespace>(),
            &json!({"metadata": {
            "name": namespace, "labels": {"resource.kubernetes.io/admin-access": "true"}}}),
        );
        self.create(&self.all::<Node>(), &json!({"metadata": {"name": self.node()}}));
        if self.server.is_none() {
            let accounts: Api<ServiceAccount> = self.api();
            // A controller may have been faster.
            let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
            let _ = self.handle.block_on(accounts.create(&PostParams::default(), &account));
        }
    }

    /// Runs a call.
    pub fn block_on<T>(&self, call: impl Future<Output = T>) -> T {
        self.handle.block_on(call)
    }

    /// Returns an administrator's client, which does not use the connection that can be cut.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the kubeconfig of a daemon, which uses the connection that can be cut.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Sets the state of the daemon's connections from now on.
    pub fn wire(&self, wire: WireState) {
        self.proxy.set(wire);
    }

    /// The test's namespace.
    pub fn namespace(&self) -> String {
        format!("e2e-{}", self.unique)
    }

    /// The test's node.
    pub fn node(&self) -> String {
        format!("node-{}", self.unique)
    }

    /// A driver of the test's own: classes of others do not select it.
    pub fn driver(&self) -> String {
        format!("{}.hostler.dev", self.unique)
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client())
    }

    /// Objects of the test's namespace.
    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client(), &self.namespace())
    }

    fn create<K>(&self, api: &Api<K>, object: &Value) -> K
    where
        K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        let typed = serde_json::from_value(object.clone()).unwrap();
        let created = self.block_on(api.create(&PostParams::default(), &typed));
        created.unwrap_or_else(|error| panic!("{object} cannot be created: {error}"))
    }

    /// Makes a pod that uses claims; its UID. The API server must know who a claim is reserved for: a real cluster
    /// frees claims of pods that are not there.
    pub fn create_pod(&self, name: &str, node: &str, claims: &[&str]) -> String {
        let wanted: Vec<Value> =
            claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
        let pod = self.create(
            &self.api::<Pod>(),
            &json!({"metadata": {"name": name}, "spec": {
            "nodeName": node, "resourceClaims": wanted, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "none"}]}}),
        );
        let uid = pod.metadata.uid.unwrap();
        let is_allocated =
            |claim: &ResourceClaim| claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
        for name_of_claim in claims {
            if self.claim(name_of_claim).as_ref().is_some_and(is_allocated) {
                self.reserve(name_of_claim, name, &uid);
            }
        }
        uid
    }

    /// Lets a pod use a claim that is allocated. For a pod that has its node from the beginning, a controller of a real
    /// cluster does the same, sooner or later.
    pub fn reserve(&self, claim: &str, pod: &str, uid: &str) {
        self.patch_status(claim, |status| {
            let consumer = json!({"resource": "pods", "name": pod, "uid": uid});
            match status["reservedFor"].as_array_mut() {
                Some(reserved) if reserved.iter().any(|other| other["uid"] == uid) => {}
                Some(reserved) => reserved.push(consumer),
                None => status["reservedFor"] = json!([consumer]),
            }
        });
    }

    /// Removes what a pod that has ended leaves in the API; an unused claim loses its devices, as a controller of the
    /// cluster sees to.
    pub fn remove_pod(&self, name: &str, uid: &str, claims: &[String]) {
        let now = DeleteParams::default().grace_period(0);
        // Gone is gone.
        let _ = self.block_on(self.api::<Pod>().delete(name, &now));
        for claim in claims {
            if self.claim(claim).is_some() {
                self.patch_status(claim, |status| {
                    // A controller of a real cluster removes the reservation too, but leaves the devices: it takes only
                    // those away that the scheduler gave.
                    let reserved = status["reservedFor"].as_array_mut();
                    if reserved.is_none_or(|reserved| {
                        reserved.retain(|consumer| consumer["uid"] != uid);
                        reserved.is_empty()
                    }) {
                        free(status);
                    }
                });
            }
        }
    }

    /// A claim, if it is there.
    pub fn claim(&self, name: &str) -> Option<ResourceClaim> {
        self.block_on(self.api::<ResourceClaim>().get_opt(name)).unwrap()
    }

    /// Makes a claim for devices, without an allocation; its UID.
    pub fn create_claim(&self, name: &str, driver: &str, wants: &[DeviceWant], config: &[Value]) -> String {
        let mut requests: BTreeMap<&str, Value> = BTreeMap::new();
        for want in wants {
            let mut exactly = json!({"deviceClassName": driver});
            if !want.capacity.is_empty() {
                exactly["capacity"] = json!({"requests": want.capacity});
            }
            if want.admin {
                exactly["adminAccess"] = json!(true);
            }
            let request = match want.request.split_once('/') {
                Some((main, sub)) => {
                    exactly["name"] = json!(sub);
                    (main, json!({"name": main, "firstAvailable": [exactly]}))
                }
                None => (&*want.request, json!({"name": want.request, "exactly": exactly})),
            };
            requests.insert(request.0, request.1);
        }
        let requests: Vec<Value> = requests.into_values().collect();
        let claim = self.create(
            &self.api::<ResourceClaim>(),
            &json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests, "config": config}}}),
        );
        claim.metadata.uid.unwrap()
    }

    /// Gives a claim its devices, as the scheduler does.
    pub fn allocate(&self, name: &str, driver: &str, node: &str, wants: &[DeviceWant]) -> Result<(), String> {
        let claims = self.block_on(self.all::<ResourceClaim>().list(&ListParams::default())).unwrap().items;
        let results = allocator::allocate(&self.slices(driver), &claims, driver, node, wants)?;
        self.set_allocation(name, node, &results);
        Ok(())
    }

    /// Writes results that the test has chosen.
    pub fn set_allocation(&self, name: &str, node: &str, results: &[Value]) {
        let claim = serde_json::to_value(self.claim(name).unwrap()).unwrap();
        let config = claim["spec"]["devices"]["config"].as_array().cloned().unwrap_or_default();
        let config: Vec<Value> = config
            .into_iter()
            .map(|mut entry| {
                entry["source"] = json!("FromClaim");
                entry
            })
            .collect();
        self.patch_status(name, |status| {
            status["allocation"] = json!({
                "devices": {"results": results, "config": config},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [node]}]}]},
            });
        });
    }

    /// Gives a claim one device for a pod, with parameters of another driver's that are stored as they are written
    /// here: creators of claims spell them in various ways.
    pub fn allocate_as_written(&self, name: &str, result: &Value, parameters: &str, pod: &str) {
        let mut claim = serde_json::to_value(self.claim(name).unwrap()).unwrap();
        claim["apiVersion"] = json!("resource.k8s.io/v1");
        claim["kind"] = json!("ResourceClaim");
        claim["status"] = json!({
            "allocation": {
                "devices": {
                    "results": [result],
                    "config": [{
                        "source": "FromClaim",
                        "opaque": {"driver": "other.example.com", "parameters": {"here": 0}},
                    }],
                },
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [self.node()]}]}]},
            },
            "reservedFor": [{"resource": "pods", "name": name, "uid": pod}],
        });
        let written = claim.to_string().replace(r#"{"here":0}"#, parameters);
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{name}/status", self.namespace());
        let request = hyper::Request::put(path).header("content-type", "application/json").body(written.into_bytes());
        self.block_on(self.client().request_text(request.unwrap())).unwrap();
    }

    /// Reads, changes and writes the status, again if another writer was faster.
    fn patch_status(&self, name: &str, change: impl Fn(&mut Value)) {
        let api: Api<ResourceClaim> = self.api();
        loop {
            let claim = self.block_on(api.get(name)).unwrap();
            let mut value = serde_json::to_value(&claim).unwrap();
            if value["status"].is_null() {
                value["status"] = json!({});
            }
            change(&mut value["status"]);
            let changed: ResourceClaim = serde_json::from_value(value).unwrap();
            match self.block_on(api.replace_status(name, &PostParams::default(), &changed)) {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("the status of claim {name} cannot be written: {error}"),
            }
        }
    }

    /// Deletes a claim, whatever holds it.
    pub fn delete_claim(&self, name: &str) {
        let api: Api<ResourceClaim> = self.api();
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let _ = self.block_on(api.patch(name, &PatchParams::default(), &free));
        self.block_on(api.delete(name, &DeleteParams::default())).unwrap();
    }

    /// The slices of a driver, by name.
    pub fn slices(&self, driver: &str) -> Vec<ResourceSlice> {
        let of_driver = ListParams::default().fields(&format!("spec.driver={driver}"));
        let mut slices = self.block_on(self.all::<ResourceSlice>().list(&of_driver)).unwrap().items;
        slices.sort_by_key(|slice| slice.metadata.name.clone());
        slices
    }

    /// Slices of any driver or node.
    pub fn slice_api(&self) -> Api<ResourceSlice> {
        self.all()
    }
}

/// Removes the allocation of an unused claim.
fn free(status: &mut Value) {
    for field in ["allocation", "reservedFor", "devices"] {
        status.as_object_mut().unwrap().remove(field);
    }
}

impl Drop for TestCluster {
    /// Leaves nothing behind; what is gone already is fine.
    fn drop(&mut self) {
        if self.server.is_some() {
            return;
        }
        let (namespace, node) = (self.namespace(), self.node());
        let now = DeleteParams::default().grace_period(0);
        self.block_on(async {
            let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
            let _ = self.all::<ResourceSlice>().delete_collection(&now, &of_node).await;
            let claims: Api<ResourceClaim> = self.api();
            for claim in claims.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
                let name = claim.metadata.name.unwrap_or_default();
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let _ = claims.patch(&name, &PatchParams::default(), &free).await;
                let _ = claims.delete(&name, &now).await;
            }
            let _ = self.api::<Pod>().delete_collection(&now, &ListParams::default()).await;
            let _ = self.all::<Node>().delete(&node, &now).await;
            let _ = self.all::<Namespace>().delete(&namespace, &now).await;
        });
    }
}
