//! Devices that the scheduler takes for allocated: a plain set, as upstream's. A claim that gets devices adds them, and
//! one that loses them or is deleted removes them, even if other claims have them. A new scheduler reads the existing
//! claims.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    super::{list, text},
    uid,
};
use crate::apiserver::ApiServerView;

/// Driver, pool and name.
type Device = [String; 3];

/// The set, and what claims were seen to have.
#[derive(Debug, Default)]
pub(super) struct GivenDevices {
    devices: BTreeSet<Device>,
    /// Devices of claims, by UID.
    claims: BTreeMap<String, Vec<Device>>,
}

impl GivenDevices {
    /// Takes in all changes since the last call.
    pub(super) fn look(&mut self, view: &ApiServerView<'_>) {
        let claims = view.list("resourceclaims");
        let now: BTreeMap<String, Vec<Device>> =
            claims.iter().map(|claim| (uid(claim).to_owned(), devices_of(claim))).collect();
        let before = std::mem::take(&mut self.claims);
        let has_none = |all: &BTreeMap<String, Vec<Device>>, uid: &String| all.get(uid).is_none_or(Vec::is_empty);
        for (_, devices) in before.iter().filter(|(uid, _)| has_none(&now, uid)) {
            for device in devices {
                self.devices.remove(device);
            }
        }
        for (_, devices) in now.iter().filter(|(uid, _)| has_none(&before, uid)) {
            self.devices.extend(devices.iter().cloned());
        }
        self.claims = now;
    }

    /// Returns the part of an allocation that counts. Parts of shared devices are counted one by one.
    pub(super) fn counted(&self, allocation: &Value) -> Value {
        let mut counted = allocation.clone();
        if let Some(results) = counted["devices"]["results"].as_array_mut() {
            results.retain(|result| result["shareID"].is_string() || self.devices.contains(&device_of(result)));
        }
        counted
    }
}

fn devices_of(claim: &Value) -> Vec<Device> {
    let results = list(&claim["status"]["allocation"]["devices"]["results"]).iter();
    let is_whole = |result: &&Value| result["shareID"].is_null() && result["adminAccess"] != true;
    results.filter(is_whole).map(device_of).collect()
}

fn device_of(result: &Value) -> Device {
    ["driver", "pool", "device"].map(|field| text(result, field).to_owned())
}
