//! Starts and ends the pods of the node, one task for each.
//!
//! ```text
//!   Pending ──claims prepared, CDI ids resolved──► Running ──deleted──► Terminating ──claims taken back──► Gone
//!      ▲  └─ failed: again after a while                                     ▲   └─ failed: again after a while
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use container_device_interface::{cache::Cache, spec_dirs::with_spec_dirs};
use hostler_proto::dra_v1::Device;
use tokio::{
    sync::watch,
    time::{interval, sleep},
};

use super::{
    KubeletRun,
    machine::BoundPod,
    view::{PodPhase, PodView},
};
use crate::kubelet::{KubeletComplaint, KubeletResult, complain};

/// Does all of it until it is dropped.
pub(crate) async fn run(shared: Arc<KubeletRun>) {
    let mut pods_rx = shared.machine.pods_tx.subscribe();
    let mut known = BTreeSet::new();
    end_orphans(&shared);
    let mut period = interval(shared.settings.times.claim_period);
    // The first tick comes at once, and the kubelet's does not.
    period.reset();
    loop {
        let pods: Vec<BoundPod> = pods_rx.borrow_and_update().values().cloned().collect();
        known.retain(|uid: &String| pods.iter().any(|pod| pod.uid == *uid));
        for pod in pods {
            if known.insert(pod.uid.clone()) {
                shared.spawn(follow(Arc::clone(&shared), pod));
            }
        }
        tokio::select! {
            // Cancel safe: a change that was not seen is still one.
            _ = pods_rx.changed() => {}
            // Cancel safe.
            _ = period.tick() => take_back_of_gone_pods(&shared).await,
        }
    }
}

/// Ends containers of pods that are not wanted any more.
fn end_orphans(shared: &KubeletRun) {
    let wanted = shared.machine.pods_tx.borrow();
    shared.machine.sandboxes.lock().expect("nothing panics under it").retain(|pod| wanted.contains_key(pod));
}

/// Takes back claims of pods that went while no kubelet ran: no pod task will do it.
async fn take_back_of_gone_pods(shared: &Arc<KubeletRun>) {
    for pod in shared.claims.pods() {
        let is_gone = shared.machine.pod(&pod).is_none();
        let ended = !shared.machine.sandboxes.lock().expect("nothing panics under it").contains(&pod);
        if is_gone && ended && shared.claims.unprepare(shared, &pod).await.is_ok() {
            shared.machine.show(|view| {
                let of_pod = view.pods.values_mut().find(|known| known.uid == pod);
                of_pod.into_iter().for_each(|known| known.phase = PodPhase::Gone);
            });
        }
    }
}

fn show(shared: &KubeletRun, pod: &BoundPod, change: impl FnOnce(&mut PodView)) {
    shared.machine.show(|view| change(view.pods.entry(pod.name.clone()).or_default()));
}

async fn follow(shared: Arc<KubeletRun>, pod: BoundPod) {
    let mut pods_rx = shared.machine.pods_tx.subscribe();
    let running = shared.machine.sandboxes.lock().expect("nothing panics under it").contains(&pod.uid);
    show(&shared, &pod, |view| *view = PodView { uid: pod.uid.clone(), ..PodView::default() });
    if running {
        // Containers that run have what they were given; their claims are not asked for again.
        show(&shared, &pod, |view| {
            view.phase = PodPhase::Running;
            view.devices = shared.claims.devices(&pod.uid);
        });
        wait_for_end(&mut pods_rx, &pod.uid).await;
    } else {
        let mut end_rx = pods_rx.clone();
        tokio::select! {
            // Dropped in the middle of a call when the pod's end is asked for: the real kubelet cancels it, too.
            () = start(&shared, &pod) => wait_for_end(&mut pods_rx, &pod.uid).await,
            // Cancel safe: it only waits.
            () = wait_for_end(&mut end_rx, &pod.uid) => {}
        }
    }
    end(&shared, &pod).await;
}

async fn wait_for_end(pods_rx: &mut watch::Receiver<BTreeMap<String, BoundPod>>, uid: &str) {
    let _ = pods_rx.wait_for(|pods| pods.get(uid).is_none_or(|pod| pod.deleting)).await;
}

async fn start(shared: &Arc<KubeletRun>, pod: &BoundPod) {
    while let Err(KubeletComplaint(error)) = start_once(shared, pod).await {
        show(shared, pod, |view| {
            view.error = Some(error);
            view.failures += 1;
        });
        sleep(shared.settings.times.pod_retry).await;
    }
}

async fn start_once(shared: &Arc<KubeletRun>, pod: &BoundPod) -> KubeletResult<()> {
    shared.claims.prepare(shared, pod).await?;
    let devices = shared.claims.devices(&pod.uid);
    if let Err(complaint) = resolve(shared, devices.values().flatten()) {
        shared.complain(format!("pod {}: {complaint}", pod.name));
        return Err(complaint);
    }
    shared.machine.sandboxes.lock().expect("nothing panics under it").insert(pod.uid.clone());
    show(shared, pod, |view| {
        view.phase = PodPhase::Running;
        view.error = None;
        view.devices = devices;
    });
    Ok(())
}

async fn end(shared: &Arc<KubeletRun>, pod: &BoundPod) {
    shared.machine.sandboxes.lock().expect("nothing panics under it").remove(&pod.uid);
    show(shared, pod, |view| {
        view.phase = PodPhase::Terminating;
        view.error = None;
    });
    while let Err(KubeletComplaint(error)) = shared.claims.unprepare(shared, &pod.uid).await {
        show(shared, pod, |view| {
            view.error = Some(error);
            view.failures += 1;
        });
        sleep(shared.settings.times.pod_retry).await;
    }
    shared.machine.finish(&pod.uid);
    show(shared, pod, |view| {
        view.phase = PodPhase::Gone;
        view.error = None;
    });
}

/// Gives the devices to a container, as a runtime does.
///
/// # Errors
/// When it could not be started.
pub(crate) fn resolve<'a>(shared: &KubeletRun, devices: impl Iterator<Item = &'a Device>) -> KubeletResult<()> {
    let ids: Vec<String> = devices.flat_map(|device| device.cdi_device_ids.clone()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let folder = shared.settings.cdi.display().to_string();
    let mut cache = Cache::default();
    with_spec_dirs(&[&folder])(&mut cache);
    // A file of another driver that cannot be read is no reason to refuse this one.
    let _ = cache.refresh();
    let mut container = oci_spec::runtime::Spec::default();
    match cache.inject_devices(Some(&mut container), ids.clone()) {
        Ok(_) => Ok(()),
        Err(error) => complain(format!("a container cannot be given {ids:?}: {error}")),
    }
}
