//! Registered drivers: their connections, their health streams, and the deletion of slices when a driver has no
//! connection any more.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hostler_proto::{health_v1::DeviceHealth, registration::PluginInfo};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    KubeletRun,
    connection::{self, ConnectionState},
    times::Backoff,
    view::{DeviceHealthView, PluginView, SliceWipe},
};
use crate::kubelet::{DraApiVersion, KubeletComplaint, KubeletPlugin, KubeletRelease, KubeletResult, complain};

/// The store.
#[derive(Default)]
pub(crate) struct PluginRegistry {
    /// Instances in the order of registration.
    instances: Mutex<Vec<Arc<PluginInstance>>>,
    /// Planned deletions of slices, of drivers without a connection.
    wipes: Mutex<BTreeMap<String, CancellationToken>>,
}

struct PluginInstance {
    socket: PathBuf,
    info: PluginInfo,
    version: DraApiVersion,
    state_rx: watch::Receiver<ConnectionState>,
    connections: Mutex<usize>,
    stop: CancellationToken,
}

impl PluginInstance {
    fn is_connected(&self) -> bool {
        matches!(*self.state_rx.borrow(), ConnectionState::Ready(_))
    }
}

impl PluginRegistry {
    /// Registers a driver that was accepted, and begins to connect.
    pub(crate) fn add(
        &self,
        shared: &Arc<KubeletRun>,
        socket: &Path,
        info: PluginInfo,
        version: DraApiVersion,
    ) -> KubeletResult<()> {
        let driver = info.name.clone();
        let (state_tx, state_rx) = watch::channel(ConnectionState::Connecting);
        let endpoint = PathBuf::from(&info.endpoint);
        let stop = shared.token.child_token();
        let instance = Arc::new(PluginInstance {
            socket: socket.to_owned(),
            info,
            version,
            state_rx,
            connections: Mutex::new(0),
            stop: stop.clone(),
        });
        {
            let mut instances = self.lock();
            let same = |known: &&Arc<PluginInstance>| {
                known.info.name == driver && known.info.endpoint == instance.info.endpoint
            };
            if instances.iter().find(same).is_some() {
                return complain(format!("endpoint {} is already registered for {driver}", endpoint.display()));
            }
            instances.push(Arc::clone(&instance));
        }
        let authority = shared.settings.release.service_authority(&endpoint);
        let kept = connection::keep(endpoint, authority, shared.settings.times, state_tx);
        let watched = follow(Arc::clone(shared), Arc::clone(&instance));
        let health = follow_health(Arc::clone(shared), instance);
        let (ended, name) = (Arc::clone(shared), driver.clone());
        shared.spawn(async move {
            let all = async { tokio::join!(kept, watched, health) };
            let _ = stop.run_until_cancelled(all).await;
            // A stream that is given up ends like one that breaks: nothing is known of the driver's devices.
            ended.machine.show(|view| view.health.retain(|(driver, ..), _| *driver != name));
        });
        self.changed(shared, &driver);
        Ok(())
    }

    /// Deregisters what was found by a socket.
    pub(crate) fn remove(&self, shared: &Arc<KubeletRun>, socket: &Path) {
        let removed = {
            let mut instances = self.lock();
            let position = instances.iter().position(|instance| instance.socket == socket);
            position.map(|position| instances.remove(position))
        };
        if let Some(instance) = removed {
            instance.stop.cancel();
            self.changed(shared, &instance.info.name);
        }
    }

    /// Returns true if a driver is registered.
    pub(crate) fn is_registered(&self, driver: &str) -> bool {
        self.lock().iter().any(|instance| instance.info.name == driver)
    }

    /// The instance of a driver that calls go to: the newest that is connected, else the newest.
    pub(crate) async fn get(&self, driver: &str, release: KubeletRelease) -> KubeletResult<KubeletPlugin> {
        let chosen = {
            let instances = self.lock();
            let of_driver = || instances.iter().rev().filter(|instance| instance.info.name == driver);
            of_driver().find(|instance| instance.is_connected()).or_else(|| of_driver().next()).cloned()
        };
        let Some(instance) = chosen else { return complain(format!("DRA driver {driver} is not registered")) };
        let channel = connection::channel(instance.state_rx.clone()).await?;
        Ok(KubeletPlugin::new(instance.info.clone(), instance.version, release, channel))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<PluginInstance>>> {
        self.instances.lock().expect("nothing panics under it")
    }

    /// Something about a driver is not as it was.
    fn changed(&self, shared: &Arc<KubeletRun>, driver: &str) {
        let instances = self.lock();
        let plugins = instances.iter().map(|instance| PluginView {
            driver: instance.info.name.clone(),
            socket: instance.socket.clone(),
            connected: instance.is_connected(),
            connections: *instance.connections.lock().expect("nothing panics under it"),
        });
        let plugins: Vec<_> = plugins.collect();
        let usable = plugins.iter().any(|plugin| plugin.driver == driver && plugin.connected);
        shared.machine.show(|view| view.plugins = plugins);
        let mut wipes = self.wipes.lock().expect("nothing panics under it");
        if usable {
            wipes.remove(driver).iter().for_each(CancellationToken::cancel);
        } else if !wipes.contains_key(driver) {
            let stop = shared.token.child_token();
            wipes.insert(driver.to_owned(), stop.clone());
            let wipe = wipe_after(Arc::clone(shared), shared.settings.times.wipe, Some(driver.to_owned()));
            shared.spawn(async move {
                let _ = stop.run_until_cancelled(wipe).await;
            });
        }
    }
}

/// Reports every change of a connection.
async fn follow(shared: Arc<KubeletRun>, instance: Arc<PluginInstance>) {
    let mut state_rx = instance.state_rx.clone();
    while state_rx.changed().await.is_ok() {
        if matches!(*state_rx.borrow_and_update(), ConnectionState::Ready(_)) {
            *instance.connections.lock().expect("nothing panics under it") += 1;
        }
        shared.plugins.changed(&shared, &instance.info.name);
    }
}

/// Deletes the slices of a driver, or of all drivers of the node, after a while, and tries again until it is done.
pub(crate) async fn wipe_after(shared: Arc<KubeletRun>, pause: Duration, driver: Option<String>) {
    sleep(pause).await;
    let times = shared.settings.times;
    let mut backoff = Backoff::doubling(times.wipe_retry_first, times.wipe_retry_last);
    let slices: Api<ResourceSlice> = Api::all(shared.settings.client.clone());
    let node = format!("spec.nodeName={}", shared.settings.node);
    let fields = driver.as_ref().map_or_else(|| node.clone(), |driver| format!("{node},spec.driver={driver}"));
    let list = ListParams::default().fields(&fields);
    while slices.delete_collection(&DeleteParams::default(), &list).await.is_err() {
        sleep(backoff.next()).await;
    }
    shared.machine.show(|view| view.wipes.push(SliceWipe { driver }));
}

/// Keeps the health stream of a driver open, as far as the kubelet knows health.
async fn follow_health(shared: Arc<KubeletRun>, instance: Arc<PluginInstance>) {
    if shared.settings.release == KubeletRelease::V1_33 {
        return;
    }
    loop {
        if let Err(KubeletComplaint(text)) = read_health(&shared, &instance).await {
            // A connection that ends is no fault; a report that cannot be used is.
            if !text.starts_with("health:") && !text.starts_with("Unavailable") {
                shared.complain(format!("{}: {text}", instance.info.name));
            }
        }
        // All of the driver, whichever instance said it.
        shared.machine.show(|view| view.health.retain(|(driver, ..), _| *driver != instance.info.name));
        sleep(shared.settings.times.health_retry).await;
    }
}

async fn read_health(shared: &KubeletRun, instance: &PluginInstance) -> KubeletResult<()> {
    let channel = connection::channel(instance.state_rx.clone()).await?;
    let plugin = KubeletPlugin::new(instance.info.clone(), instance.version, shared.settings.release, channel);
    let mut reports = plugin.health().await?;
    while let Some(devices) = reports.next().await? {
        let now = Instant::now();
        shared.machine.show(|view| {
            for health in devices {
                take_in(view, &instance.info.name, &health, now + believed(shared, &health));
            }
        });
    }
    Ok(())
}

fn believed(shared: &KubeletRun, health: &DeviceHealth) -> Duration {
    match u64::try_from(health.health_check_timeout_seconds) {
        Ok(seconds @ 1..) => Duration::from_secs(seconds),
        _ => shared.settings.times.health_believed,
    }
}

fn take_in(view: &mut super::view::KubeletView, driver: &str, health: &DeviceHealth, believed_until: Instant) {
    let device = health.device.clone().unwrap_or_default();
    let known = DeviceHealthView { status: health.health(), message: health.message.clone(), believed_until };
    view.health.insert((driver.to_owned(), device.pool_name, device.device_name), known);
}
