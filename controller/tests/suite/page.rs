//! The page, as a browser shows it. Skipped with a word where there is no Chromium.

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease},
    browser::Browser,
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};

use crate::visit::sign_in;

const CONTROLLER: &str = "system:serviceaccount:hostler:hostler-controller";
const GPU: &str = "gpu.example.com";
/// What somebody hostile would call things.
const HOSTILE: &str = "<img src=x onerror=\"window.broken=1\">";

/// A cluster with so many nodes, of which every third has a claim on a device, and somebody who looks at it.
struct Scene {
    server: ApiServer,
    controller: RunningController,
    browser: Browser,
}

impl Scene {
    /// `None` where there is no browser.
    async fn start(nodes: usize) -> Option<Self> {
        Self::configured(nodes, String::new()).await
    }

    /// The same with this configuration.
    async fn configured(nodes: usize, config: String) -> Option<Self> {
        let browser = Browser::start()?;
        let server = ApiServer::of(ApiServerRelease::default()).await;
        server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "ml" } }));
        for name in [GPU, "cpu.example.com"] {
            server.create(class(name));
        }
        for at in 0..nodes {
            server.create(node(at));
            server.create(slice(at, GPU, 8));
            if nodes < 100 {
                server.create(cpus(at));
            }
            if at % 3 == 0 && nodes < 100 {
                allocate(&server, at);
            }
        }
        let options = ControllerOptions {
            binary: env!("CARGO_BIN_EXE_hostler-controller").into(),
            kubeconfig: server.kubeconfig(CONTROLLER),
            config,
            ..ControllerOptions::default()
        };
        let controller = RunningController::start(&options).await;
        controller.until_answers("/readyz", 200).await;
        Some(Self { server, controller, browser })
    }

    /// Opens the page, and signs in as somebody who may list these.
    fn sign_in(&mut self, resources: &[&str]) {
        sign_in(&mut self.browser, &self.server, &self.controller, resources);
    }

    fn sign_in_as_viewer(&mut self) {
        self.sign_in(&["nodehardware", "resourceclaims", "resourceslices"]);
        self.browser.until("performance.getEntriesByName('hostler:painted').length === 1");
    }

    fn text(&mut self, id: &str) -> String {
        let text = self.browser.evaluate(&format!("document.getElementById({id:?}).textContent"));
        text.as_str().unwrap_or_default().to_owned()
    }

    fn ends_well(mut self) {
        assert_eq!(self.browser.complaints(), Vec::<String>::new());
        assert_eq!(self.browser.evaluate("window.broken === undefined"), true);
    }
}

fn name(at: usize) -> String {
    format!("node-{at:04}")
}

fn node(at: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name(at), "labels": { "zone": if at.is_multiple_of(2) { "a" } else { "b" } } },
        "status": {
            "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

fn class(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{name}'") } }] },
    })
}

fn slice(at: usize, driver: &str, devices: usize) -> Value {
    let device = |at: usize| {
        json!({
            "name": format!("gpu-{at}"),
            "attributes": { "resource.kubernetes.io/numaNode": { "int": at % 2 } },
        })
    };
    of_node(at, driver, &(0..devices).map(device).collect::<Vec<_>>())
}

fn cpus(at: usize) -> Value {
    let device = |numa: u32| {
        json!({
            "name": format!("numa{numa}"), "allowMultipleAllocations": true,
            "attributes": { "resource.kubernetes.io/numaNode": { "int": numa } },
            "capacity": { "cpus": { "value": "16" } },
        })
    };
    of_node(at, "cpu.example.com", &[device(0), device(1)])
}

fn of_node(at: usize, driver: &str, devices: &[Value]) -> Value {
    let node = name(at);
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{node}-{driver}") },
        "spec": {
            "driver": driver, "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 }, "devices": devices,
        },
    })
}

/// A claim that has all CPUs of the second NUMA node of a node.
fn fill(server: &ApiServer, at: usize) {
    let claim = format!("full-{at}");
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": claim, "namespace": "ml" },
        "spec": { "devices": { "requests": [{ "name": "c", "exactly": { "deviceClassName": "cpu.example.com" } }] } },
    }));
    let result = json!({
        "request": "c", "driver": "cpu.example.com", "pool": name(at), "device": "numa1",
        "consumedCapacity": { "cpus": "16" }, "shareID": format!("{at:08x}-0000-4000-8000-000000000001"),
    });
    let status = json!({ "allocation": { "devices": { "results": [result] } } });
    server.set_status("resourceclaims", &format!("ml/{claim}"), status);
}

/// A claim that has two devices of a node, and some of its CPUs.
fn allocate(server: &ApiServer, at: usize) {
    let request = |name: &str, class: &str| json!({ "name": name, "exactly": { "deviceClassName": class } });
    let result = |request: &str, driver: &str, device: &str| json!({ "request": request, "driver": driver, "pool": name(at), "device": device });
    let mut cpus = result("c", "cpu.example.com", "numa0");
    cpus["consumedCapacity"] = json!({ "cpus": "6" });
    cpus["shareID"] = json!(format!("{at:08x}-0000-4000-8000-000000000000"));
    let claim = format!("train-{at}");
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": claim, "namespace": "ml" },
        "spec": { "devices": { "requests": [request("g", GPU), request("c", "cpu.example.com")] } },
    }));
    let results = [result("g", GPU, "gpu-0"), cpus];
    let status = json!({
        "allocation": { "devices": { "results": results } },
        "reservedFor": [{ "resource": "pods", "name": format!("train-{at}-0"), "uid": "u" }],
    });
    server.set_status("resourceclaims", &format!("ml/{claim}"), status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_nodes_are_seen_at_once() {
    let Some(mut scene) = Scene::start(5000).await else { return };
    scene.sign_in_as_viewer();
    assert_eq!(scene.text("count"), "5,000 nodes");
    assert_eq!(scene.text("devices"), "40,000 devices");
    let asked =
        "performance.getEntriesByType('resource').filter((it) => it.name.includes('/v1/nodes')).at(-1).startTime";
    let painted = "performance.getEntriesByName('hostler:painted')[0].startTime";
    let took = scene.browser.evaluate(&format!("Math.round({painted} - {asked})"));
    println!("5,000 nodes: {took} ms from the question to the first picture");
    scene.browser.picture("real-5000");
    // What is in sight is drawn, and what is out of sight can be walked to.
    scene.browser.evaluate("document.getElementById('cell').focus()");
    scene.browser.press("End");
    scene.browser.until("document.getElementById('cell').getAttribute('aria-label').startsWith('node-4999:')");
    scene.browser.until("document.getElementById('grid').scrollTop > 0");
    scene.ends_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_can_be_done_with_the_keyboard() {
    let Some(mut scene) = Scene::start(12).await else { return };
    scene.sign_in_as_viewer();
    scene.browser.press("g");
    scene.browser.press("ArrowRight");
    scene.browser.press("ArrowDown");
    scene.browser.press("Home");
    scene.browser.picture("real-small");
    scene.browser.press("Enter");
    scene.browser.until("document.querySelector('#machine .zone') !== null");
    assert_eq!(scene.text("panel-title"), "node-0000");
    scene.browser.press("ArrowDown");
    scene.browser.until("document.activeElement.matches('.device')");
    scene.browser.until("document.querySelector('.facts').textContent.includes('cpu.example.com/node-0000/numa0')");
    scene.browser.picture("real-machine");
    let holders = scene.browser.evaluate("document.querySelector('.holders tbody').textContent");
    assert_eq!(holders, "aml/train-0train-0-0cpus 6, 1 device");
    scene.browser.press("Escape");
    scene.browser.until("document.getElementById('panel').hidden && document.activeElement.id === 'cell'");
    scene.browser.press("/");
    scene.browser.call("Input.insertText", json!({ "text": "0003" }));
    scene.browser.until("document.getElementById('count').textContent === '1 of 12 nodes'");
    scene.browser.press("Escape");
    scene.browser.until("document.getElementById('count').textContent === '12 nodes'");
    scene.browser.press("Escape");
    scene.browser.press("g");
    scene.browser.press("?");
    scene.browser.until("document.getElementById('help').open");
    scene.browser.press("Escape");
    scene.browser.until("!document.getElementById('help').open");
    scene.browser.press("f");
    scene.browser.until("document.activeElement.id === 'fit-text'");
    scene.ends_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_claims_have_of_shared_devices_counts_and_an_amount_of_nothing_is_0() {
    let Some(mut scene) = Scene::start(12).await else { return };
    fill(&scene.server, 3);
    scene.sign_in_as_viewer();
    scene.browser.evaluate("location.hash = 'node=node-0003'");
    scene.browser.until("document.getElementById('machine').textContent.includes('cpus 0/16 free')");
    let machine = scene.text("machine");
    assert!(machine.contains("cpus 10/16 free") && !machine.contains("undefined"), "{machine}");
    // Of the ten devices one GPU and one NUMA node are taken, and 6 of 16 CPUs of the other one.
    let tile = "document.getElementById('cell').getAttribute('aria-label')";
    scene.browser.until(&format!("{tile}.startsWith('node-0003:')"));
    let told = scene.browser.evaluate(tile);
    let expected =
        "8 free, 2 allocated of 10 devices; parts of free ones are taken, worth 0.3 of a device; node without report";
    assert_eq!(told, format!("node-0003: {expected}"));
    assert!(!scene.text("classes-body").contains("undefined"));
    // It is the fullest one, and nothing else makes it so than what is taken of its CPUs.
    scene.browser.evaluate("document.getElementById('order').value = 'busy'");
    scene.browser.evaluate("document.getElementById('order').dispatchEvent(new Event('change'))");
    scene.browser.press("Escape");
    scene.browser.press("g");
    scene.browser.press("Home");
    scene.browser.until(&format!("{tile}.startsWith('node-0003:')"));
    scene.browser.press("ArrowRight");
    scene.browser.until(&format!("{tile}.startsWith('node-0000:')"));
    scene.ends_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_part_of_the_page_is_wider_than_its_window() {
    let Some(mut scene) = Scene::start(12).await else { return };
    scene.browser.resize(500, 900);
    let url = format!("http://{}/", scene.controller.address());
    scene.browser.go(&url);
    scene.browser.until("document.activeElement.id === 'token'");
    let fits = |id: &str| format!("document.getElementById({id:?}).getBoundingClientRect().right <= innerWidth");
    assert_eq!(scene.browser.evaluate(&fits("sign-in-form")), true);
    assert_eq!(
        scene.browser.evaluate("document.querySelector('.sign-in pre').getBoundingClientRect().right < innerWidth"),
        true
    );
    scene.browser.picture("real-sign-in-500");
    scene.sign_in_as_viewer();
    scene.browser.until("document.documentElement.scrollWidth <= innerWidth");
    scene.browser.picture("real-500");
    scene.browser.press("f");
    scene.browser.until("document.activeElement.id === 'fit-text'");
    assert_eq!(
        scene
            .browser
            .evaluate("getComputedStyle(document.getElementById('fit-text')).fontFamily.includes('monospace')"),
        true
    );
    scene.browser.picture("real-fit-500");
    scene.browser.press("Escape");
    for width in [1000, 1400] {
        scene.browser.resize(width, 900);
        scene.browser.until("document.documentElement.scrollWidth <= innerWidth");
        scene.browser.picture(&format!("real-{width}"));
    }
    scene.ends_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pasted_claim_is_answered_and_what_it_is_called_stays_text() {
    let Some(mut scene) = Scene::start(12).await else { return };
    scene.sign_in_as_viewer();
    scene.browser.press("f");
    let asked = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": HOSTILE, "namespace": "ml" },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": GPU, "count": 8 } }] } },
    });
    scene.browser.until("document.activeElement.id === 'fit-text'");
    scene.browser.call("Input.insertText", json!({ "text": asked.to_string() }));
    scene.browser.evaluate("document.getElementById('fit-form').requestSubmit()");
    scene.browser.until("document.querySelector('#fit-answer h3') !== null");
    let said = scene.text("fit-answer");
    assert!(said.contains("It fits on 8 of 12 nodes") && said.contains(HOSTILE), "{said}");
    assert_eq!(scene.browser.evaluate("document.querySelectorAll('img').length"), 0);
    scene.browser.picture("real-fit");
    scene.browser.evaluate("document.getElementById('fit-text').value = 'kind: ['");
    scene.browser.evaluate("document.getElementById('fit-form').requestSubmit()");
    scene.browser.until("document.querySelector('#fit-answer .problem') !== null");
    scene.ends_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_is_seen_without_asking() {
    let Some(mut scene) = Scene::start(3).await else { return };
    scene.sign_in_as_viewer();
    scene.browser.until("document.getElementById('live').dataset.state === 'live'");
    scene.server.create(node(3));
    scene.browser.until("document.getElementById('count').textContent === '4 nodes'");
    scene.server.delete("nodes", &name(3));
    scene.browser.until("document.getElementById('count').textContent === '3 nodes'");
    scene.server.forget_user("viewer");
    scene.browser.until("document.body.classList.contains('signed-out')");
    scene.ends_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colours_follow_the_system_until_somebody_chooses() {
    let Some(mut scene) = Scene::start(12).await else { return };
    scene.browser.prefer_dark(false);
    scene.sign_in_as_viewer();
    let background = "getComputedStyle(document.body).backgroundColor";
    let light = scene.browser.evaluate(background);
    scene.browser.prefer_dark(true);
    scene.browser.until(&format!("{background} !== {light}"));
    scene.browser.picture("real-dark");
    // As the system has it, then light, then dark.
    scene.browser.evaluate("document.getElementById('theme').click()");
    scene.browser.until(&format!("{background} === {light}"));
    scene.browser.evaluate("document.getElementById('theme').click()");
    scene.browser.prefer_dark(false);
    scene.browser.until(&format!("{background} !== {light}"));
    scene.browser.resize(420, 860);
    scene.browser.until("document.documentElement.scrollWidth <= innerWidth");
    scene.browser.picture("real-narrow");
    scene.ends_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_see_less_is_told_so() {
    let Some(mut scene) = Scene::start(3).await else { return };
    scene.sign_in(&["nodehardware"]);
    scene.browser.until("document.getElementById('count').textContent === '3 nodes'");
    for (id, is_hidden) in [("fit-open", true), ("namespace-field", true), ("namespaces", true), ("no-holders", false)]
    {
        assert_eq!(scene.browser.evaluate(&format!("document.getElementById({id:?}).hidden")), is_hidden, "{id}");
    }
    scene.browser.press("g");
    scene.browser.press("Enter");
    scene.browser.until("document.querySelector('#machine .notes') !== null");
    let notes = scene.text("machine");
    assert!(notes.contains("who holds what is left out") && !notes.contains("train"), "{notes}");
    scene.ends_well();
}

/// What expressions about modules of the page come to, in the browser that runs them.
async fn assert_pure(cases: &[(&str, &str, Value)]) {
    let Some(mut scene) = Scene::start(1).await else { return };
    let url = format!("http://{}/", scene.controller.address());
    scene.browser.go(&url);
    for (module, expression, expected) in cases {
        let expression = format!("import('/{module}.js').then((it) => {expression})");
        assert_eq!(scene.browser.evaluate(&expression), *expected, "{expression}");
    }
    scene.ends_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_keep_their_ends_and_amounts_count_what_is_taken_in_part() {
    assert_pure(&[
        ("text", "[it.cut('gpu-node-rack-1-0001', 9), it.cut('short', 9), it.cut('ab', 1)]", json!(["gpu-…0001", "short", "…"])),
        ("text", "it.sharedDomain(['ip-10-1.eu.internal', 'ip-10-2.eu.internal'])", json!(".eu.internal")),
        ("text", "it.sharedDomain(['a.x.y', 'b.z.y'])", json!(".y")),
        ("text", "[it.sharedDomain(['a.x']), it.sharedDomain(['a', 'b']), it.sharedDomain([])]", json!(["", "", ""])),
        ("text", "it.amountCounts({ capacity: '2' })", json!({ "capacity": "2", "allocated": "0", "free": "0" })),
        (
            "text",
            "[it.shareTaken({ a: { capacity: '8', allocated: '2' }, b: { capacity: '4Gi', allocated: '2Gi' } }), it.shareTaken()]",
            json!([0.5, 0]),
        ),
        ("cells", "it.nodeOf(['a', 0, [0, 8, 0, 0, 0, 0, 0, 0, 0, 2500]]).amounts.slice(0, 2)", json!([5.5, 2.5])),
        ("cells", "it.nodeOf(['a', 0, [0, 0, 2, 0, 0, 0, 0, 0, 6, -500]]).amounts", json!([0, 1.5, 0, 0, 0, 0, 0, 6.5])),
        (
            "cells",
            "[2500, 10, 7990, 0].map((parts) => it.tileWords(it.nodeOf(['a', 0, [0, 8, 0, 0, 0, 0, 0, 0, 0, parts]])))",
            json!(["5.5 of 8 free", "7.9 of 8 free", "0.1 of 8 free", "8 of 8 free"]),
        ),
        (
            "cells",
            "it.shown(it.nodesOf([['a', 0, [0, 8]], ['b', 0, [0, 8, 0, 0, 0, 0, 0, 0, 0, 4000]]]).values(), '', 'busy').map((node) => node.name)",
            json!(["b", "a"]),
        ),
        ("cells", "[500, 1000, 1400].map((width) => { const { columns, tile } = it.layout(12, 5, width); return columns * (tile + 12) + 12 })", json!([500, 1000, 1400])),
    ])
    .await;
}

/// The parts of the page that are pure, in the browser that runs them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pure_parts_give_what_is_expected() {
    assert_pure(&[
        ("text", "it.counted(5000, 'node') + it.counted(1, 'node')", json!("5,000 nodes1 node")),
        (
            "text",
            "[it.percent(1, 1000), it.percent(999, 1000), it.percent(2, 2), it.percent(0, 0)]",
            json!(["1 %", "99 %", "100 %", "0 %"]),
        ),
        ("text", "[it.amountOf('1.5Gi'), it.amountOf('500m'), it.amountOf('7')]", json!([1_610_612_736_u64, 0.5, 7])),
        ("text", "[it.amountShown('62Gi'), it.amountShown('16'), it.amountShown('x')]", json!(["62 GiB", "16", "x"])),
        ("text", "['n10', 'n2', 'n1'].sort(it.byName)", json!(["n1", "n2", "n10"])),
        ("cells", "it.nodeOf(['a', 9, [0, 1, 2], [-1, 0, 0, 3]]).counts", json!([1, 2, 3, 0, 0, 0, 0, 0])),
        ("cells", "(({ report, flags }) => [report, flags])(it.nodeOf(['a', 9]))", json!([1, 8])),
        ("cells", "it.fittingSize(5000, 1100, 800)", json!(1)),
        (
            "cells",
            "it.described(it.nodeOf(['a', 17, [0, 1, 2]]))",
            json!("a: 1 free, 2 allocated of 3 devices; node stale; node cordoned"),
        ),
        ("signs", "[0, 25, 26, 51, 52].map(it.letterOf).join('')", json!("azAZ*")),
        (
            "kept",
            "new it.Kept({ devices: [], reservations: [{ name: 'r', phase: 'Waiting', owners: [], lasts: 'for ever' }] })
                .words({ keptFor: 'r' })",
            json!("kept for r (Waiting): nobody, for ever"),
        ),
        ("kept", "new it.Kept({ devices: [] }).words({ keptFor: 'r' })", json!(null)),
        ("dom", "it.plain('a\\u202eb\\n<i>')", json!("a\u{fffd}b\u{fffd}<i>")),
        (
            "stream",
            "new it.EventParser().push('event: e\\r\\nid: 4\\ndata: 1\\ndata: 2\\n\\n: no\\n\\nda')",
            json!([{ "type": "e", "id": "4", "data": "1\n2" }]),
        ),
        (
            "stream",
            "(() => { const p = new it.EventParser(); return [...p.push('data: a\\n'), ...p.push('\\ndata: b'), ...p.push('\\n\\n')].map((e) => e.data) })()",
            json!(["a", "b"]),
        ),
        ("stream", "[it.pauseBefore(0, 0), it.pauseBefore(3, 1), it.pauseBefore(99, 1)]", json!([250, 4000, 30000])),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_behind_switches_have_a_section_and_open_as_a_table() {
    let manager = "[[fabric.managers]]\nname = 'row1'\nfake = { hosts = ['918eda4d-2b69-432f-b0d3-dc2a8d80a351'] }\n";
    let Some(mut scene) = Scene::configured(1, manager.to_owned()).await else { return };
    let definition = crate::rig::root().join("deploy/crds/fabric/fabricattachments.yaml");
    scene.server.create_yaml(&std::fs::read_to_string(definition).unwrap());
    scene.server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "FabricAttachment", "metadata": { "name": "0000000000001001-0001" },
        "spec": {
            "manager": "row1", "domain": "cxl", "device": "00-00-00-00-00-00-10-01:0001", "nodeName": HOSTILE, "attempt": 0,
        },
    }));
    scene.controller.until_figure("hostler_controller_objects{kind=\"fabricattachments\"} 1").await;
    scene.sign_in(&["nodehardware", "resourceclaims", "resourceslices", "fabricattachments"]);
    scene.browser.until("!document.getElementById('switches-section').hidden");
    scene.browser.until("document.getElementById('switches-body').textContent === 'row1/cxl1 Pending'");
    scene.browser.evaluate("document.querySelector('[data-pool]').click()");
    scene.browser.until("document.querySelector('#switches tbody td') !== null");
    let row = "[...document.querySelectorAll('#switches tbody td')].slice(0, 3).map((cell) => cell.textContent)";
    assert_eq!(scene.browser.evaluate(row), json!(["0000000000001001-0001", "Pending", HOSTILE]));
    scene.browser.press("Escape");
    scene.browser.until("document.getElementById('panel').hidden");
    scene.ends_well();
}
