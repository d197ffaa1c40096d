//! A kubelet that runs: it finds drivers, keeps connected to them, deletes their slices when it has lost them, starts
//! and ends pods, and does all that again after it was stopped. It enforces what the real one enforces, in the same
//! order and with the same pauses, and complains of what the real one would suffer from later.
//!
//! ```text
//!   plugins_registry ──► registration ──► plugins ──┬── connection: one per endpoint, made anew when it breaks
//!                                                   ├── health stream ──► view
//!                                                   └── nobody connected for 30 s ──► slices deleted
//!   machine: pods ──► pods ──► claims ──prepare, unprepare──► plugins
//! ```
//!
//! Tests see everything in a [`view::View`] and wait for states of it.

#![allow(dead_code, unreachable_pub, reason = "part of several programs, of which each uses what it needs")]
#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    missing_debug_implementations,
    reason = "a test fails by panicking"
)]

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

use super::kubelet;

use claims::Claims;
use kubelet::{PATIENCE, Release};
use machine::Machine;
use plugins::Plugins;
use times::Times;
use view::View;

/// What a kubelet is started with.
#[derive(Clone)]
pub struct Settings {
    /// Its root folder.
    pub root: PathBuf,
    /// The folder in which the container runtime looks for CDI files.
    pub cdi: PathBuf,
    /// Name of the node.
    pub node: String,
    /// Which release it is of.
    pub release: Release,
    /// Its patience.
    pub times: Times,
    /// The API server.
    pub client: Client,
}

/// One run of a kubelet.
struct Shared {
    settings: Settings,
    machine: Arc<Machine>,
    plugins: Plugins,
    claims: Claims,
    token: CancellationToken,
    tracker: TaskTracker,
    handle: Handle,
}

impl Shared {
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
    settings: Settings,
    machine: Arc<Machine>,
    handle: Handle,
    running: Option<Arc<Shared>>,
}

impl KubeletAgent {
    /// A kubelet that does not run yet, whose tasks will run on `handle`.
    pub fn new(settings: Settings, handle: Handle) -> Self {
        Self { settings, machine: Arc::new(Machine::new()), handle, running: None }
    }

    /// The node.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Where it works.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Another release from the next start on.
    pub fn upgrade(&mut self, release: Release) {
        self.settings.release = release;
    }

    /// Starts it.
    pub fn start(&mut self) {
        assert!(self.running.is_none(), "the kubelet runs already");
        for folder in ["plugins_registry", "plugins", "pods"] {
            let made = DirBuilder::new().recursive(true).mode(0o750).create(self.settings.root.join(folder));
            made.expect("the kubelet's folders can be made");
        }
        let claims = Claims::restore(self.settings.root.join("dra_manager_state"));
        let shared = Arc::new(Shared {
            settings: self.settings.clone(),
            machine: Arc::clone(&self.machine),
            plugins: Plugins::default(),
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

    /// What can be seen of it now.
    pub fn view(&self) -> View {
        self.machine.view_tx.borrow().clone()
    }

    /// Waits for a state.
    pub fn wait<T>(&self, what: &str, mut wanted: impl FnMut(&View) -> Option<T>) -> T {
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
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&View) -> bool) {
        self.wait(what, |view| holds(view).then_some(()));
    }

    /// Gives the devices of a pod to another container, as when one that ended is started again: nobody asks the driver.
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
