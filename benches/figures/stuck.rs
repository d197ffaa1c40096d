//! Whether the kubelet's plugin watcher is answered while hardware hangs: it waits one second, then gives the driver up.

use std::time::{Duration, Instant};

use hostler_proto::registration::InfoRequest;
use hostler_testing::kubelet::claim;
use serde_json::Value;

use super::{
    report::{Amount, Report},
    rig::{Rig, fake_backend},
    samples::{Millis, Samples},
};

const UID: &str = "5f0c6a1e-0000-4000-8000-000000000001";
const CALLS: usize = 1000;
const MOST: Duration = Duration::from_millis(10);

/// The prepare of the device takes longer than all calls.
const SCRIPT: &str = "[[device]]\nname = \"slow\"\n[[fault]]\nstep = \"prepare\"\ndelay_ms = 60000\n";

pub(crate) fn measure(report: &mut Report) {
    let mut rig = Rig::with(|host| fake_backend(host, SCRIPT));
    rig.host.start();
    rig.host.manifest("stuck", UID, &[("one", "fake", "slow", Value::Null)]);
    let mut plugin = rig.register();
    let claims = [claim("default", "stuck", UID)];
    let samples = rig.run(async {
        let calls = async {
            // The prepare is on its way first.
            tokio::time::sleep(Duration::from_millis(200)).await;
            calls(&rig).await
        };
        tokio::select! {
            answer = plugin.prepare(&claims) => panic!("the prepare was to be stuck: {answer:?}"),
            samples = calls => samples,
        }
    });
    let detail = format!("p50 {}, n = {CALLS}", Millis(samples.median()));
    let how = "a device that takes 60 s to prepare, meanwhile calls of GetInfo on the registration socket";
    let p99 = Amount::Time(samples.percentile(99));
    report.at_most("GetInfo while a prepare is stuck, p99", Amount::Time(MOST), p99, &detail, how);
}

async fn calls(rig: &Rig) -> Samples {
    let mut registration = rig.registration().await.unwrap();
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let start = Instant::now();
        registration.get_info(InfoRequest {}).await.unwrap();
        times.push(start.elapsed());
    }
    Samples::new(times)
}
