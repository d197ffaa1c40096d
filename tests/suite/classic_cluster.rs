//! The real binary in clusters of 1.26 to 1.31: the fields of claims that it reads there, and the objects that it
//! writes.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use hostler_testing::{
    host::{ClusterMembership, Host, SCRIPT, wait_for},
    kubelet::classic::{AllocatedClaim, ClassicKubelet, ClassicRelease},
    node::{TestNode, named, uid},
};
use serde_json::{Value, json};

const DRIVER: &str = "hostler.dev";
const HARDWARE: &str = "/apis/hostler.dev/v1alpha1/nodehardware/node";

/// An API server with one version of `resource.k8s.io`, with as much of it as a daemon needs: objects can be read by
/// path, and fields can be put into them.
#[derive(Clone)]
struct OldApiServer {
    address: String,
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    /// The part of paths that is refused, and the paths that were refused.
    forbidden: Arc<Mutex<Option<&'static str>>>,
    refused: Arc<Mutex<Vec<String>>>,
}

impl OldApiServer {
    fn start(version: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Self { address, objects: Arc::default(), forbidden: Arc::default(), refused: Arc::default() };
        server.put(
            "/api/v1/nodes/node",
            json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node", "uid": "node-uid"}}),
        );
        let group = format!("resource.k8s.io/{version}");
        let version = json!({"groupVersion": group, "version": version});
        server.put(
            "/apis",
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
            {"name": "resource.k8s.io", "versions": [version], "preferredVersion": version}]}),
        );
        let serving = server.clone();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let server = serving.clone();
                thread::spawn(move || server.serve(&connection.unwrap()));
            }
        });
        server
    }

    fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap().get(path).cloned()
    }

    /// Refuses all paths with this part.
    fn forbid(&self, part: &'static str) {
        *self.forbidden.lock().unwrap() = Some(part);
    }

    /// Returns true if a request for this name was refused.
    fn has_refused(&self, name: &str) -> bool {
        self.refused.lock().unwrap().iter().any(|path| path.ends_with(name))
    }

    fn serve(&self, connection: &TcpStream) {
        let mut reader = BufReader::new(connection);
        while let Some((method, path, body)) = read_request(&mut reader) {
            let (code, answer) = self.answer(&method, path.split('?').next().unwrap(), &body);
            let head = format!(
                "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            // A client that has gone needs no answer.
            let mut writer = connection;
            let _ = writer.write_all(&[head.as_bytes(), answer.as_bytes()].concat());
        }
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        if self.forbidden.lock().unwrap().is_some_and(|part| path.contains(part)) {
            self.refused.lock().unwrap().push(path.to_owned());
            return (403, json!({"kind": "Status", "code": 403, "reason": "Forbidden"}).to_string());
        }
        let target = path.strip_suffix("/status").unwrap_or(path);
        let mut objects = self.objects.lock().unwrap();
        if method == "PATCH" && target == HARDWARE {
            let fields: Value = serde_json::from_slice(body).unwrap();
            let object = objects.entry(target.to_owned()).or_insert_with(|| json!({}));
            for (field, value) in fields.as_object().unwrap() {
                object[field] = value.clone();
            }
            return (200, object.to_string());
        }
        match objects.get(target).filter(|_| method == "GET") {
            Some(object) => (200, object.to_string()),
            None if target == HARDWARE || target.contains("/resourceclaims/") => {
                let details = json!({"name": "x", "kind": "x"});
                (404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": details}).to_string())
            }
            None => (404, "404 page not found".to_owned()),
        }
    }

    /// A node of this cluster whose daemon runs.
    fn node(&self, kubeconfig: &tempfile::TempDir) -> TestNode {
        let path = kubeconfig.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "test", "user": {"token": "t"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(&path, config.to_string()).unwrap();
        let member = ClusterMembership {
            node: "node".to_owned(),
            driver: DRIVER.to_owned(),
            kubeconfig: path,
            kubelet: None,
            cdi: None,
        };
        let mut node = TestNode::new(Host::in_cluster(SCRIPT, "", member));
        node.start();
        node
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<(String, String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        let (name, value) = header.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((method, path, body))
}

/// A claim as our controller writes it in 1.31: results in the fields of 1.31, and the rest beside the configuration.
fn claim_of_1_31(name: &str) -> Value {
    let known = |device: &str| json!({"request": "r", "driver": DRIVER, "pool": "node/fake", "device": device});
    let mut shared = known("pool");
    shared["shareID"] = json!("5f0c7b9e-0000-4000-8000-000000000001");
    shared["consumedCapacity"] = json!({"units": "3"});
    let handle = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ResourceHandle", "node": "node",
        "results": [known("card-1"), shared]});
    json!({
        "apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": uid(name)},
        "spec": {"controller": DRIVER, "devices": {"requests": [{"name": "r", "deviceClassName": "fake"}]}},
        "status": {
            "allocation": {
                "controller": DRIVER,
                "devices": {
                    "results": [known("card-1"), known("pool")],
                    "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": handle}}],
                },
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "p1"}],
        },
    })
}

fn claim_path(name: &str) -> String {
    format!("/apis/resource.k8s.io/v1alpha3/namespaces/default/resourceclaims/{name}")
}

#[test]
fn in_1_31_the_claim_is_read_with_its_shares() {
    let (server, folder) = (OldApiServer::start("v1alpha3"), tempfile::tempdir().unwrap());
    let node = server.node(&folder);
    let mut kubelet = ClassicKubelet::new(node.path("kubelet"), ClassicRelease::V1_31);
    node.block_on(kubelet.register()).unwrap();
    let claim = AllocatedClaim::new(named("train"), DRIVER, "");
    let error = node.block_on(kubelet.prepare(std::slice::from_ref(&claim))).unwrap_err().to_string();
    assert!(error.contains("there is no claim default/train"), "{error}");

    server.put(&claim_path("train"), claim_of_1_31("train"));
    let cdi_ids = node.block_on(kubelet.prepare(std::slice::from_ref(&claim))).unwrap();
    assert_eq!(cdi_ids[0].len(), 2);
    assert!(node.traces("train").is_whole(2));
    let record = String::from_utf8(node.traces("train").record.unwrap().bytes).unwrap();
    assert!(record.contains("units"), "three units and not all of the pool: {record}");

    server.objects.lock().unwrap().remove(&claim_path("train"));
    node.block_on(kubelet.unprepare(&[uid("train")])).unwrap();
    assert!(node.traces("train").is_gone());
}

/// In clusters up to 1.30 the kubelet passes the allocation with its call.
#[test]
fn a_daemon_that_may_read_no_claims_is_ready_where_prepares_read_none() {
    for (version, ready) in [("v1alpha1", "True"), ("v1alpha2", "True"), ("v1alpha3", "False")] {
        let (server, folder) = (OldApiServer::start(version), tempfile::tempdir().unwrap());
        server.forbid("/resourceclaims/");
        let node = server.node(&folder);
        wait_for("the report of a node that has tried to read a claim", || {
            let object = server.get(HARDWARE)?;
            let condition = object["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == "Ready")?.clone();
            (server.has_refused("hostler-readiness-probe") && condition["status"] == ready).then_some(())
        });
        let says = || node.get("/v1/status")["not_ready"].to_string().contains("new claims cannot be prepared");
        wait_for("the daemon's own word", || (says() == (ready == "False")).then_some(()));
    }
}

#[test]
fn a_handle_of_a_later_controller_is_named_in_1_31_too() {
    let (server, folder) = (OldApiServer::start("v1alpha3"), tempfile::tempdir().unwrap());
    let node = server.node(&folder);
    let mut kubelet = ClassicKubelet::new(node.path("kubelet"), ClassicRelease::V1_31);
    node.block_on(kubelet.register()).unwrap();
    let mut claim = claim_of_1_31("train");
    claim["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"]["apiVersion"] =
        json!("hostler.dev/v9");
    server.put(&claim_path("train"), claim);
    let error = node.block_on(kubelet.prepare(&[AllocatedClaim::new(named("train"), DRIVER, "")])).unwrap_err();
    assert!(error.to_string().contains("hostler.dev/v9"), "{error}");
    assert!(node.traces("train").is_gone());
}

#[test]
fn where_there_are_no_slices_of_today_the_node_hardware_has_them() {
    for version in ["v1alpha1", "v1alpha2", "v1alpha3"] {
        let (server, folder) = (OldApiServer::start(version), tempfile::tempdir().unwrap());
        let node = server.node(&folder);
        let slices = wait_for("slices in the NodeHardware", || {
            let object = server.get(HARDWARE)?;
            object["status"]["slices"].as_array().cloned().filter(|slices| !slices.is_empty())
        });
        let devices = slices.iter().flat_map(|slice| slice["devices"].as_array().unwrap());
        let mut names: Vec<&str> = devices.map(|device| device["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!((names.len(), names[0], names[8]), (9, "card-0", "pool"), "{version}");
        let spec = &slices[0];
        assert_eq!(
            (&spec["driver"], &spec["nodeName"], &spec["pool"]["name"]),
            (&json!(DRIVER), &json!("node"), &json!("node/fake"))
        );
        // No permission is missing for that.
        wait_for("a node that has told of its devices", || {
            (node.get("/v1/status")["publication"]["synced"] == true).then_some(())
        });
    }
}
