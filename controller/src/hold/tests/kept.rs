//! Those who keep devices, for tests of others who rely on them: the real core, in a cluster with daemons and a planner.

use std::time::Duration;

use hostler_api::{ObjectKey, reservation::ReservationStatus};
use hostler_cluster::ObjectVersion;
use serde_json::Value;

use super::{
    super::{AllocatedClaim, DeviceKey, HoldSettings, OwnerPod, PodRef},
    server::{ModelPod, read},
    world::{DRIVER, World, settings},
};
use crate::{reservation_object::ReservationObject, testkit::Part};

/// A cluster in which devices are kept.
pub(crate) struct KeptWorld(World);

impl KeptWorld {
    /// Nodes `a`, `b`, … with so many devices each.
    pub(crate) fn new(devices: &[usize]) -> Self {
        Self(World::new(devices))
    }

    /// The same where places are kept as well.
    pub(crate) fn with_places(devices: &[usize]) -> Self {
        Self(World::with(HoldSettings { keeps_places: Some(true), ..settings() }, DRIVER, devices))
    }

    /// Since 1970.
    pub(crate) fn now(&self) -> Duration {
        self.0.true_time()
    }

    /// What happens within so many seconds.
    pub(crate) fn pass(&mut self, seconds: u64) {
        self.0.settle_for(seconds);
    }

    /// Whoever keeps devices dies, and begins anew.
    pub(crate) fn restart(&mut self) {
        self.0.restart();
    }

    /// What must be true at every moment: above all, that nobody is given what another one has.
    pub(crate) fn check(&mut self) {
        self.0.check();
        self.0.check_sealed();
    }

    /// Somebody else is given a device that was given already.
    pub(crate) fn give_twice(&mut self, stranger: &ObjectKey, device: &(String, String)) {
        let (pool, name) = device;
        let device_key = DeviceKey::new(&self.0.settings.own_driver, pool, name);
        self.0.given_twice.insert(device_key);
        let uid = format!("{}u", stranger.name);
        self.put_pod(stranger, &uid);
        self.put_claim(stranger, &uid, (&stranger.name, &uid), std::slice::from_ref(device));
    }

    pub(crate) fn reservations(&self) -> impl Iterator<Item = &ReservationObject> {
        self.0.server.reservations.values()
    }

    /// Makes one; says whether there was none of its name.
    pub(crate) fn create(&mut self, object: Value) -> bool {
        let created = self.now();
        self.0.server.create(ReservationObject { created, ..read(object) }).is_ok()
    }

    /// Deletes one, if it is this one in this version.
    pub(crate) fn delete(&mut self, name: &str, version: &ObjectVersion) {
        drop(self.0.server.delete::<ReservationObject>(&name.to_owned(), Some(version)));
    }

    /// Says something of one, if it is this one in this version.
    pub(crate) fn set_status(
        &mut self,
        name: &str,
        version: &ObjectVersion,
        status: ReservationStatus,
    ) -> Option<ReservationObject> {
        let change = |it: &mut ReservationObject| it.status = status;
        self.0.server.update(&name.to_owned(), Some(version), Part::Status, change).ok()
    }

    /// There is this pod, and nothing keeps it from being an owner.
    pub(crate) fn put_pod(&mut self, key: &ObjectKey, uid: &str) {
        let is = OwnerPod { uid: uid.to_owned(), ..OwnerPod::default() };
        let pod = ModelPod { is, wants: 0, part: 0, tolerates: String::new() };
        self.0.server.pods.insert(key.clone(), pod);
    }

    pub(crate) fn remove_pod(&mut self, key: &ObjectKey) {
        self.0.server.pods.remove(key);
    }

    /// A claim has these devices now, as `(pool, device)`, for this pod.
    pub(crate) fn put_claim(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        (pod, pod_uid): (&str, &str),
        devices: &[(String, String)],
    ) {
        let pod = PodRef { name: pod.to_owned(), uid: pod_uid.to_owned() };
        let pods = Some(pod).filter(|pod| !pod.name.is_empty()).into_iter().collect();
        let driver = &self.0.settings.own_driver;
        let devices = devices.iter().map(|(pool, device)| DeviceKey::new(driver, pool, device)).collect();
        self.0.server.put(AllocatedClaim {
            key: key.clone(),
            uid: uid.to_owned(),
            pods,
            devices,
            ..AllocatedClaim::default()
        });
    }

    pub(crate) fn remove_claim(&mut self, key: &ObjectKey) {
        self.0.server.remove_claim(key);
    }

    /// Devices that are closed, as `(pool, device)`.
    pub(crate) fn closed(&self) -> Vec<(String, String)> {
        self.devices(|device| device.is_closed())
    }

    /// Devices that anybody can be given, as `(pool, device)`.
    pub(crate) fn open(&self) -> Vec<(String, String)> {
        let mut open = self.devices(|device| !device.is_closed() && device.is_usable);
        let given: Vec<&DeviceKey> = self.0.server.claims.values().flat_map(|claim| &claim.devices).collect();
        open.retain(|(pool, device)| !given.iter().any(|it| it.pool == *pool && it.device == *device));
        open
    }

    fn devices(&self, which: impl Fn(&super::super::PublishedDevice) -> bool) -> Vec<(String, String)> {
        let slices = self.0.server.slices.values();
        let all = slices.flat_map(|slice| slice.devices.iter().map(move |device| (slice, device)));
        all.filter(|(_, device)| which(device)).map(|(slice, it)| (slice.pool.clone(), it.name.clone())).collect()
    }
}
