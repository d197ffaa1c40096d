//! The view of a kubelet for tests: its actions and its beliefs. Tests wait for states of the view.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use hostler_proto::{dra_v1::Device, health_v1::HealthStatus};

/// The view of a kubelet. It outlives restarts of the kubelet, so that a test sees the state before and after.
#[derive(Clone, Debug, Default)]
pub struct KubeletView {
    /// Drivers as the kubelet knows them now, in the order of their registration.
    pub plugins: Vec<PluginView>,
    /// Every attempt to register a socket.
    pub registrations: Vec<RegistrationAttempt>,
    /// Every prepare and unprepare, in the order in which they began.
    pub calls: Vec<DraCall>,
    /// Pods by name, also those that are gone.
    pub pods: BTreeMap<String, PodView>,
    /// Health of devices by driver, pool and device; of a driver without a stream nothing is known.
    pub health: BTreeMap<(String, String, String), DeviceHealthView>,
    /// Every deletion of slices that succeeded.
    pub wipes: Vec<SliceWipe>,
    /// Mistakes of the driver, also those that the kubelet can live with.
    pub complaints: Vec<String>,
}

/// A registered driver.
#[derive(Clone, Debug)]
pub struct PluginView {
    /// The driver's name.
    pub driver: String,
    /// The registration socket that it was found by.
    pub socket: PathBuf,
    /// True if the driver's service is connected.
    pub connected: bool,
    /// Number of connections so far.
    pub connections: usize,
}

/// An attempt to register a socket.
#[derive(Clone, Debug)]
pub struct RegistrationAttempt {
    /// The socket.
    pub socket: PathBuf,
    /// Time at which the call ended.
    pub at: Instant,
    /// The driver's name, or what went wrong.
    pub outcome: Result<String, String>,
}

/// Method of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DraMethod {
    /// NodePrepareResources
    Prepare,
    /// NodeUnprepareResources
    Unprepare,
}

/// A prepare or unprepare.
#[derive(Clone, Debug)]
pub struct DraCall {
    /// Method of the call.
    pub method: DraMethod,
    /// Driver that was called.
    pub driver: String,
    /// UIDs of the claims, in the order of the request.
    pub claims: Vec<String>,
    /// `None` while it runs, and for ever if the kubelet ended before.
    pub outcome: Option<Result<(), String>>,
    /// Duration of the call.
    pub took: Duration,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum PodPhase {
    /// The pod's claims are not ready.
    #[default]
    Pending,
    /// The pod's containers run.
    Running,
    /// The pod's containers were ended; its claims are not taken back yet.
    Terminating,
    /// Nothing of the pod is left.
    Gone,
}

/// A pod.
#[derive(Clone, Debug, Default)]
pub struct PodView {
    /// UID of the pod.
    pub uid: String,
    /// Phase of the pod.
    pub phase: PodPhase,
    /// The error that keeps the pod in its phase.
    pub error: Option<String>,
    /// Number of failures to start or end it.
    pub failures: usize,
    /// Devices of the pod's containers, by claim UID; kept when they have ended.
    pub devices: BTreeMap<String, Vec<Device>>,
}

/// The health of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceHealthView {
    /// Health as reported.
    pub status: HealthStatus,
    /// Message as reported.
    pub message: String,
    /// Time until which the report is valid.
    pub believed_until: Instant,
}

/// A deletion of slices.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SliceWipe {
    /// Driver whose slices are deleted; `None`: all drivers, at the kubelet's start.
    pub driver: Option<String>,
}

impl KubeletView {
    /// The calls of a method that have ended well.
    pub fn succeeded(&self, method: DraMethod) -> usize {
        let well = |call: &&DraCall| call.method == method && matches!(call.outcome, Some(Ok(())));
        self.calls.iter().filter(well).count()
    }

    /// The calls of a method that have failed.
    pub fn failed(&self, method: DraMethod) -> usize {
        let badly = |call: &&DraCall| call.method == method && matches!(call.outcome, Some(Err(_)));
        self.calls.iter().filter(badly).count()
    }

    /// The calls of a method that name a claim.
    pub fn calls_for<'a>(&'a self, method: DraMethod, uid: &'a str) -> impl Iterator<Item = &'a DraCall> {
        self.calls.iter().filter(move |call| call.method == method && call.claims.iter().any(|claim| claim == uid))
    }

    /// Returns true if calls can be made to a driver.
    pub fn is_connected(&self, driver: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.driver == driver && plugin.connected)
    }

    /// A pod; one that was never seen is pending.
    pub fn pod(&self, name: &str) -> PodView {
        self.pods.get(name).cloned().unwrap_or_default()
    }

    /// The health of a device as a pod's status would show it now.
    pub fn health_of(&self, driver: &str, pool: &str, device: &str) -> (HealthStatus, &str) {
        let key = (driver.to_owned(), pool.to_owned(), device.to_owned());
        match self.health.get(&key) {
            Some(health) if Instant::now() < health.believed_until => (health.status, &health.message),
            _ => (HealthStatus::Unknown, ""),
        }
    }
}
