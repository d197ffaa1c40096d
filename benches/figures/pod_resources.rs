//! What it costs to tell who holds what, on a full node.

use std::{
    fs,
    time::{Duration, Instant},
};

use hostler_proto::pod_resources_v1::{ListPodResourcesRequest, ListPodResourcesResponse};
use hostler_testing::{kubelet::claim, pod_resources::PodResourcesReader};
use prost::Message;
use serde_json::{Value, json};

use super::{
    idle::Memory,
    report::{Amount, Report},
    rig::{Rig, fake_backend},
    samples::{Millis, Samples},
};

const PODS: usize = 250;
const DEVICES_OF_EACH: usize = 4;
const CALLS: usize = 2_000;
const MOST: Duration = Duration::from_millis(5);
/// Calls before memory is looked at for the first time.
const WARM_UP: usize = 5_000;
const MANY_CALLS: usize = 100_000;
/// What the allocator and the kernel may round by.
const MOST_GROWTH: i64 = 200_000;

pub(crate) fn measure(report: &mut Report) {
    let mut rig = Rig::with(|host| {
        let count = PODS * DEVICES_OF_EACH;
        let cards = fake_backend(host, &format!("[[device]]\nname = \"card\"\ncount = {count}\nnuma_node = 0\n"));
        // As fast as it can be asked: the limit is not what is measured.
        format!("[pod_resources]\nrate = 1000000\nburst = 1000000\n{cards}")
    });
    rig.host.start();
    let mut plugin = rig.register();
    for number in 0..PODS {
        let uid = manifest(&rig, number);
        rig.prepare(&mut plugin, &[claim("default", &format!("claim-{number}"), &uid)]);
    }
    let reader = rig.run(PodResourcesReader::connect(&rig.host.path("run/pod-resources.sock"))).unwrap();
    let listed = rig.run(reader.list());
    let devices = listed.iter().flat_map(|pod| &pod.containers).map(|container| container.devices.len());
    assert_eq!((listed.len(), devices.sum::<usize>()), (PODS, PODS * DEVICES_OF_EACH));
    let bytes = ListPodResourcesResponse { pod_resources: listed }.encoded_len();

    let samples = calls(&rig, &reader, CALLS);
    let detail = format!("p50 {}, n = {CALLS}, {}", Millis(samples.median()), Amount::from(bytes as u64));
    let how = "250 pods, 1,000 devices of the fake backend; one call after the other, the answer decoded";
    report.at_most("`List`, p99", Amount::Time(MOST), Amount::Time(samples.percentile(99)), &detail, how);

    calls(&rig, &reader, WARM_UP);
    let before = Memory::of(rig.host.pid());
    calls(&rig, &reader, MANY_CALLS);
    let after = Memory::of(rig.host.pid());
    let grown = Amount::Bytes(after.anonymous.cast_signed() - before.anonymous.cast_signed());
    let detail = format!("{} to {}", Amount::from(before.anonymous), Amount::from(after.anonymous));
    let how = format!("the same, {MANY_CALLS} calls after {WARM_UP} to warm up");
    let figure = "growth of anonymous memory over 100,000 calls of `List`";
    report.at_most(figure, Amount::Bytes(MOST_GROWTH), grown, &detail, &how);
}

fn calls(rig: &Rig, reader: &PodResourcesReader, count: usize) -> Samples {
    let mut client = reader.v1();
    rig.run(async {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            client.list(ListPodResourcesRequest {}).await.unwrap();
            times.push(start.elapsed());
        }
        Samples::new(times)
    })
}

/// A claim for four cards that is reserved for a pod of its own; its UID.
fn manifest(rig: &Rig, number: usize) -> String {
    let uid = format!("5f0c6a1e-0000-4000-8000-{number:012}");
    let results: Vec<Value> = (0..DEVICES_OF_EACH)
        .map(|place| {
            let device = format!("card-{}", number * DEVICES_OF_EACH + place);
            json!({"request": "cards", "driver": "hostler.dev", "pool": "node/fake", "device": device})
        })
        .collect();
    let manifest = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": format!("claim-{number}"), "namespace": "default", "uid": uid},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": format!("pod-{number}"), "uid": format!("pod-uid-{number}")}],
        },
    });
    fs::create_dir_all(rig.host.path("manifests")).unwrap();
    let file = format!("manifests/default_claim-{number}.json");
    fs::write(rig.host.path(&file), manifest.to_string()).unwrap();
    uid
}
