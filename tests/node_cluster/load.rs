//! A rolling update while pods with claims come and go.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use hostler_testing::real_node::eventually;

use super::bundle::{Installation, RESOURCE};

/// Number of pods that come and go at once: each takes a CPU of the smallest node.
const WORKERS: usize = 2;

/// Ends the workers also when the test fails meanwhile.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has a second image take over and the first one come back, while pods with claims come and go. No claim fails.
pub fn roll_under_load(cluster: &Installation) -> String {
    let (stop, pods) = (AtomicBool::new(false), AtomicUsize::new(0));
    let began = Instant::now();
    let longest = thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.spawn({
                    let (stop, pods) = (&stop, &pods);
                    move || come_and_go(cluster, worker, stop, pods)
                })
            })
            .collect();
        for (tag, revision) in [("second", "hostler:second"), (env!("CARGO_PKG_VERSION"), "hostler:0.2.0")] {
            let before = pods.load(Ordering::Relaxed);
            let args = ["-n", "hostler-system", "set", "image", "daemonset/hostler", &format!("hostler={revision}")];
            cluster.kubectl(&args).unwrap();
            cluster.until_daemons_are(tag);
            // Claims are prepared by the new one as well.
            eventually("pods of the new daemon", || (pods.load(Ordering::Relaxed) > before + WORKERS).then_some(()));
        }
        drop(end);
        workers.into_iter().map(|worker| worker.join().unwrap()).max().unwrap()
    });
    eventually("all claims to be gone", || {
        let claims = cluster.node.get(&cluster.node.of(RESOURCE, "resourceclaims"))?;
        claims["items"].as_array()?.is_empty().then_some(())
    });
    let failed = failures(cluster);
    assert!(failed.is_empty(), "{failed:?}");
    let count = pods.load(Ordering::Relaxed);
    format!("{count} pods in {} s, the slowest after {} ms", began.elapsed().as_secs(), longest.as_millis())
}

fn come_and_go(cluster: &Installation, worker: usize, stop: &AtomicBool, pods: &AtomicUsize) -> Duration {
    let mut longest = Duration::ZERO;
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("w{worker}-{turn}");
        let began = Instant::now();
        cluster.run_pod(&name);
        longest = longest.max(began.elapsed());
        cluster.end_pod(&name);
        pods.fetch_add(1, Ordering::Relaxed);
    }
    longest
}

/// Returns the kubelet's events about claims that it could not have prepared or taken back.
fn failures(cluster: &Installation) -> Vec<String> {
    let events = cluster.node.get(&cluster.node.of("/api/v1", "events")).unwrap();
    let events = events["items"].as_array().unwrap().iter();
    let is_failure = |reason: &str| reason.contains("DynamicResources") && reason.starts_with("Failed");
    let failed = events.filter(|event| event["reason"].as_str().is_some_and(is_failure));
    failed.map(|event| event["message"].to_string()).collect()
}
