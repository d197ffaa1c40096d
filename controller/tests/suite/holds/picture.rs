//! The picture of the page in the README, made by the real page in a browser, and the words on it. Skipped with a word
//! where there is no Chromium.

use std::{env, fs};

use base64::{Engine, engine::general_purpose::STANDARD};
use hostler_testing::{apiserver::ApiServer, browser::Browser};
use serde_json::{Value, json};

use super::cluster::HoldCluster;
use crate::{rig::root, visit::sign_in};

const NODES: u32 = 12;
/// CPUs and gibibytes of memory of each NUMA node.
const CPUS: u32 = 32;
const MEMORY: u32 = 256;
const PICTURE: &str = "docs/pictures/page.png";
const WORDS: &str = "tests/golden/page.txt";
/// Everything that the page says, but for times, which are those of the run.
const SAID: &str = "[...document.querySelectorAll('h1, h2, h3, th, td, legend, .device, #cell, #count, #devices')]
    .filter((it) => !it.closest('section[hidden]'))
    .map((it) => it.getAttribute('aria-label') ?? it.textContent.trim()).filter((text) => text).join('\\n') + '\\n'";

fn name(at: u32) -> String {
    format!("worker-{at:02}")
}

/// What hostler publishes of a node with two NUMA nodes and four FPGA regions.
fn machine(cluster: &HoldCluster, at: u32) {
    let node = name(at);
    let region = |index: u32| {
        let numa = json!({ "int": index / 2 });
        let attributes = json!({ "kind": { "string": "region" }, "resource.kubernetes.io/numaNode": numa });
        let hot = json!([{ "key": "hostler.dev/unhealthy", "value": "hot", "effect": "NoSchedule" }]);
        let taints = if (at, index) == (7, 3) { hot } else { json!([]) };
        json!({ "name": format!("fme{index}-region0"), "attributes": attributes, "taints": taints })
    };
    cluster.node_with(&node, &(0..4).map(region).collect::<Vec<_>>());
    let part = |name: String, numa: u32, attribute: &str, capacity: Value| {
        let numa = json!({ "int": numa });
        let is_huge = json!({ "bool": false });
        let value = if attribute == "hugepages" { is_huge } else { json!({ "string": "all" }) };
        let attributes = json!({ attribute: value, "resource.kubernetes.io/numaNode": numa });
        json!({ "name": name, "allowMultipleAllocations": true, "attributes": attributes, "capacity": capacity })
    };
    let cpus = |numa| part(format!("numa{numa}"), numa, "cpus", json!({ "cpus": { "value": CPUS.to_string() } }));
    let bytes = json!({ "memory": { "value": format!("{MEMORY}Gi") } });
    let memory = |numa| part(format!("node{numa}"), numa, "hugepages", bytes.clone());
    for (backend, devices) in [("cpu", [cpus(0), cpus(1)]), ("memory", [memory(0), memory(1)])] {
        cluster.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": { "name": format!("{node}-{backend}") },
            "spec": {
                "driver": "hostler.dev", "nodeName": node, "devices": devices,
                "pool": { "name": format!("{node}/{backend}"), "generation": 1, "resourceSliceCount": 1 },
            },
        }));
    }
}

/// A claim for CPUs and memory of a NUMA node, and for regions of it.
fn claim(server: &ApiServer, namespace: &str, at: u32, numa: u32, cpus: u32, regions: u32) {
    let claim = format!("{namespace}-{at}-{numa}");
    let class = |kind: &str| json!({ "deviceClassName": format!("{kind}.hostler.dev") });
    let part = |kind: &str, device: String, consumed: Value| {
        json!({
            "request": kind, "driver": "hostler.dev", "pool": format!("{}/{kind}", name(at)), "device": device,
            "consumedCapacity": consumed, "shareID": format!("{at:08x}-000{numa}-4000-8000-00000000000{}", kind.len()),
        })
    };
    let region = |index: u32| {
        let device = format!("fme{}-region0", numa * 2 + index);
        json!({ "request": "fpga", "driver": "hostler.dev", "pool": format!("{}/fake", name(at)), "device": device })
    };
    let mut results = vec![
        part("cpu", format!("numa{numa}"), json!({ "cpus": cpus.to_string() })),
        part("memory", format!("node{numa}"), json!({ "memory": format!("{}Gi", cpus * 4) })),
    ];
    results.extend((0..regions).map(region));
    let requests: Vec<Value> =
        ["cpu", "memory", "fpga"].iter().map(|kind| json!({ "name": kind, "exactly": class(kind) })).collect();
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": claim, "namespace": namespace }, "spec": { "devices": { "requests": requests } },
    }));
    let status = json!({ "allocation": { "devices": { "results": results } } });
    server.set_status("resourceclaims", &format!("{namespace}/{claim}"), status);
}

/// Twelve machines that some claims share, and a Reservation of two regions.
async fn scene() -> HoldCluster {
    let cluster = HoldCluster::start().await;
    cluster.server.delete("deviceclasses", "card");
    cluster.server.create_yaml(&fs::read_to_string(root().join("deploy/cluster/deviceclasses.yaml")).unwrap());
    for namespace in ["training", "serving"] {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        cluster.server.create(namespace);
    }
    (1..=NODES).for_each(|at| machine(&cluster, at));
    for at in (1..=NODES).filter(|at| at % 2 == 1) {
        claim(&cluster.server, "training", at, 0, 4 + 2 * at, 2);
    }
    for at in (1..=NODES).filter(|at| at % 3 == 0) {
        claim(&cluster.server, "serving", at, 1, 16, at % 2);
        claim(&cluster.server, "serving", at, 0, 4, 0);
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_picture_of_the_readme_shows_the_page_as_it_is() {
    let Some(mut browser) = Browser::start() else { return };
    let cluster = scene().await;
    let controller = cluster.controller().await;
    let request = json!({ "name": "region", "exactly": { "deviceClassName": "fpga.hostler.dev", "count": 2 } });
    cluster.reserve(
        "nightly",
        0,
        "nightly-0",
        &json!({
            "deviceClaims": [{ "name": "regions", "spec": { "devices": { "requests": [request] } } }], "ttl": "0",
        }),
    );
    let node = cluster.until_phase("nightly", "Available").await["status"]["nodeName"].clone();
    browser.resize(1440, 860);
    browser.prefer_dark(false);
    let seen = ["nodehardware", "resourceclaims", "resourceslices", "reservations"];
    sign_in(&mut browser, &cluster.server, &controller, &seen);
    browser.until("document.getElementById('count').textContent === '12 nodes'");
    browser.until("document.getElementById('live').dataset.state === 'live'");
    browser.evaluate(&format!("location.hash = 'node=' + {node}"));
    browser.until("document.querySelectorAll('#machine .device').length === 8");
    // An open node slides in.
    browser.until("document.getAnimations().length === 0");
    let said = browser.evaluate(SAID);
    let shot = browser.call("Page.captureScreenshot", json!({ "format": "png" }));
    let shot = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(root().join(WORDS), said.as_str().unwrap()).unwrap();
        fs::write(root().join(PICTURE), shot).unwrap();
    }
    let expected = fs::read_to_string(root().join(WORDS)).unwrap();
    assert_eq!(said, expected, "the page changed; if that is right, run the test with UPDATE_GOLDEN=1");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
