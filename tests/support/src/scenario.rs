//! Scenarios: what is done to a cluster and what must come of it, in YAML, for the API server of a test and for a real
//! one (`HOSTLER_E2E_KUBECONFIG`) alike. What holds on both is how the real one behaves.
//!
//! ```yaml
//! name: a claim lets a pod have a device
//! devices: 2                     # on the node of the scenario, of the class $class
//! steps:
//! - create: {object: {apiVersion: v1, kind: Pod, …}}
//! - wait: {of: resource.k8s.io/v1 ResourceClaim c, has: {status: {reservedFor: [{name: p}]}}, lacks: [/status/devices]}
//! ```
//!
//! | Word | What stands for it |
//! |---|---|
//! | `$ns`, `$node`, `$driver`, `$class`, `$unique` | the scenario's own namespace, node, driver, class, and word |
//! | `of: v1 Pod p` | version, kind and name of an object; `*` for the only one of its kind in the namespace |
//! | `has` | all of it is there: lists are as long, `~text` is in a text, `?` is anything |
//! | `refused: {code, says}` | the server says no, in these words |
//! | `unchanged: true` | the object has the version that it had |
//! | `remember: {of, path, as}` | a word of the scenario's own, for later steps |

mod client;
mod matching;
mod steps;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{cluster::TestCluster, control_plane::ControlPlane};
use client::ScenarioClient;

/// Limit of the wait for work of a real cluster's scheduler, which looks every five seconds.
const PATIENCE: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(20);

/// A scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A sentence.
    pub name: String,
    /// Number of devices of the node.
    #[serde(default)]
    devices: usize,
    /// Read one by one, when it is known what words stand for.
    steps: Vec<Value>,
}

/// All scenarios of a YAML text, as they are written.
pub fn texts(text: &str) -> Vec<&str> {
    text.split("\n---\n").filter(|one| one.contains("steps:")).collect()
}

/// Runs a scenario on a cluster of its own, or on a part of the real one. Fails with the reason.
pub fn tell(text: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let cluster = TestCluster::new(runtime.handle());
    let controllers = cluster.shared_server().map(|server| {
        let _in_runtime = runtime.enter();
        ControlPlane::new().run(&Arc::clone(&server))
    });
    let text = [
        ("$ns", cluster.namespace()),
        ("$node", cluster.node()),
        ("$driver", cluster.driver()),
        ("$class", cluster.driver()),
        ("$unique", cluster.unique().to_owned()),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (word, stands_for)| text.replace(word, &stands_for));
    let scenario: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    let scenario: Scenario = serde_json::from_value(scenario).map_err(|error| error.to_string())?;
    let mut client = ScenarioClient::new(cluster.client(), cluster.namespace());
    let told = runtime.block_on(async {
        prepare(&mut client, &cluster, scenario.devices).await?;
        let mut words: BTreeMap<String, String> = BTreeMap::new();
        for (at, step) in scenario.steps.iter().enumerate() {
            let wrong = |why: String| format!("{}, step {}: {why}", scenario.name, at + 1);
            let text = words.iter().fold(step.to_string(), |text, (word, stands_for)| text.replace(word, stands_for));
            steps::take(&text, &mut client, &mut words).await.map_err(wrong)?;
        }
        Ok(())
    });
    runtime.block_on(client.clean_up());
    controllers.into_iter().for_each(|controllers| controllers.abort());
    drop(cluster);
    told
}

/// The node is ready, and has its devices.
async fn prepare(client: &mut ScenarioClient, cluster: &TestCluster, devices: usize) -> Result<(), String> {
    let node = cluster.node();
    let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "10" });
    let now = "2026-01-01T00:00:00Z";
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Scenario", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let status = json!({ "status": { "capacity": resources, "allocatable": resources, "conditions": [ready] } });
    client
        .patch(&format!("v1 Node {node}"), true, Some("status"), "scenario", &status)
        .await?
        .map_err(|told| told.message)?;
    let label = json!({ "metadata": { "labels": { "kubernetes.io/hostname": node } } });
    client.patch(&format!("v1 Node {node}"), true, None, "scenario", &label).await?.map_err(|told| told.message)?;
    if devices == 0 {
        return Ok(());
    }
    let driver = cluster.driver();
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": driver },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{driver}'") } }] },
    });
    let names: Vec<Value> = (0..devices).map(|at| json!({ "name": format!("d{at}") })).collect();
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{node}-slice") },
        "spec": {
            "driver": driver, "nodeName": node, "devices": names,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
        },
    });
    for object in [class, slice] {
        client.create(&object, None).await?.map_err(|told| told.message)?;
    }
    Ok(())
}

/// A refusal of a request by the server.
#[derive(Debug)]
struct ServerRefusal {
    code: u16,
    message: String,
}
