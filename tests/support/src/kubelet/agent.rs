//! A kubelet that runs: it finds drivers, keeps connected to them, deletes their slices when it has lost them, starts
//! and ends pods, and does all that again after it was stopped. It enforces what the real one enforces, in the same
//! order and with the same pauses, and complains of what the real one would suffer from later.
//!
//! ```text
//!   plugins_registry ──► registration ──► plugins ──┬── connection: one per endpoint, made anew when it breaks
//!                                                   ├── health stream ──► view
//!                                                   └── no connection for 30 s ──► slices deleted
//!   machine: pods ──► pods ──► claims ──prepare, unprepare──► plugins
//! ```
//!
//! Tests see everything in a [`view::KubeletView`] and wait for states of it.

mod claims;
mod connection;
pub mod machine;
mod plugins;
mod pods;
mod registration;
pub mod times;
pub mod view;

use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt, path::PathBuf, sync::Arc, time::Duration};

use kube::Client;
use tokio::{runtime::Handle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{KubeletRelease, PATIENCE};

use claims::ClaimInfoCache;
use machine::NodeMachine;
use plugins::PluginRegistry;
use times::KubeletTimes;
use view::KubeletView;

/// Settings of a kubelet.
#[derive(Clone)]
pub struct KubeletAgentSettings {
    /// The kubelet's root folder.
    pub root: PathBuf,
    /// The folder in which the container runtime looks for CDI files.
    pub cdi: PathBuf,
    /// Name of the node.
    pub node: String,
    /// The kubelet's release.
    pub release: KubeletRelease,
    /// The kubelet's pauses and deadlines.
    pub times: KubeletTimes,
    /// The API server.
    pub client: Client,
}

/// A run of a kubelet.
struct KubeletRun {
    settings: KubeletAgentSettings,
    machine: Arc<NodeMachine>,
    plugins: PluginRegistry,
    claims: ClaimInfoCache,
    token: CancellationToken,
    tracker: TaskTracker,
    handle: Handle,
}

impl KubeletRun {
    /// Runs until it ends, or the kubelet does.
    fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        let token = self.token.clone();
        self.tracker.spawn_on(
            async move {
                // Whatever it is dropped in the middle of, a kubelet that is killed is too.
                let _ = token.run_until_cancelled(job).await;
            },
            &self.handle,
        );
    }

    fn complain(&self, text: String) {
        self.machine.show(|view| view.complaints.push(text));
    }
}

/// A kubelet and the node that it works on.
pub struct KubeletAgent {
    settings: KubeletAgentSettings,
    machine: Arc<NodeMachine>,
    handle: Handle,
    running: Option<Arc<KubeletRun>>,
}

impl KubeletAgent {
    /// A kubelet that does not run yet, whose tasks will run on `handle`.
    pub fn new(settings: KubeletAgentSettings, handle: Handle) -> Self {
        Self { settings, machine: Arc::new(NodeMachine::new()), handle, running: None }
    }

    /// The node.
    pub fn machine(&self) -> &NodeMachine {
        &self.machine
    }

    /// Returns the settings.
    pub fn settings(&self) -> &KubeletAgentSettings {
        &self.settings
    }

    /// Another release from the next start on.
    pub fn upgrade(&mut self, release: KubeletRelease) {
        self.settings.release = release;
    }

    /// Starts it.
    pub fn start(&mut self) {
        assert!(self.running.is_none(), "the kubelet runs already");
        for folder in ["plugins_registry", "plugins", "pods"] {
            let made = DirBuilder::new().recursive(true).mode(0o750).create(self.settings.root.join(folder));
            made.expect("the kubelet's folders can be made");
        }
        let claims = ClaimInfoCache::restore(self.settings.root.join("dra_manager_state"));
        let shared = Arc::new(KubeletRun {
            settings: self.settings.clone(),
            machine: Arc::clone(&self.machine),
            plugins: PluginRegistry::default(),
            claims: claims.unwrap_or_else(|complaint| panic!("{complaint}")),
            token: CancellationToken::new(),
            tracker: TaskTracker::new(),
            handle: self.handle.clone(),
        });
        shared.spawn(plugins::wipe_after(Arc::clone(&shared), Duration::ZERO, None));
        shared.spawn(registration::run(Arc::clone(&shared)));
        shared.spawn(pods::run(Arc::clone(&shared)));
        self.running = Some(shared);
    }

    /// Stops it, in the middle of whatever it does. Containers run on.
    pub fn stop(&mut self) {
        let Some(shared) = self.running.take() else { return };
        shared.token.cancel();
        shared.tracker.close();
        self.handle.block_on(shared.tracker.wait());
        self.machine.show(|view| {
            view.plugins.clear();
            view.health.clear();
        });
    }

    /// Stops it and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Returns the present view.
    pub fn view(&self) -> KubeletView {
        self.machine.view_tx.borrow().clone()
    }

    /// Waits for a state.
    pub fn wait<T>(&self, what: &str, mut wanted: impl FnMut(&KubeletView) -> Option<T>) -> T {
        let mut view_rx = self.machine.view_tx.subscribe();
        let mut found = None;
        let waiting = async {
            let seen = view_rx.wait_for(|view| {
                found = wanted(view);
                found.is_some()
            });
            timeout(PATIENCE, seen).await.is_ok()
        };
        if !self.handle.block_on(waiting) {
            panic!("waited in vain for {what}: {:#?}", self.view());
        }
        found.expect("the wait has ended with it")
    }

    /// Waits until a condition holds.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&KubeletView) -> bool) {
        self.wait(what, |view| holds(view).then_some(()));
    }

    /// Gives the devices of a pod to another container, as for a restarted one: the driver is not asked.
    ///
    /// # Errors
    /// When the container cannot be started.
    pub fn restart_container(&self, pod: &str) -> Result<(), String> {
        let shared = self.running.as_ref().expect("the kubelet runs");
        let devices = self.view().pod(pod).devices;
        pods::resolve(shared, devices.values().flatten()).map_err(|complaint| complaint.to_string())
    }
}

impl Drop for KubeletAgent {
    fn drop(&mut self) {
        self.stop();
    }
}
