//! Slices and given devices by pool: slices come and go one by one, and claims name devices by pool.

use std::sync::Arc;

use super::{ClusterFacts, PackedClaim, PackedSlice};
use crate::plan::sequences::Texts;
use hostler_api::{
    ObjectKey,
    resource::{DeviceTaint, DeviceTaintRuleSpec, DeviceTaintSelector},
};

/// Numbers of driver and pool.
pub(in crate::plan) type PoolKey = (u32, u32);

/// Slices and given devices of a pool.
#[derive(Clone, Debug, Default)]
pub(in crate::plan) struct PoolFacts {
    /// Names of its slices of any generation, in order.
    pub(in crate::plan) slices: Vec<Arc<str>>,
    /// Devices that claims were given.
    pub(in crate::plan) given: Vec<PoolGiven>,
}

/// A device that a claim was given.
#[derive(Clone, Debug)]
pub(in crate::plan) struct PoolGiven {
    pub(in crate::plan) device: u32,
    /// See [`PackedResult`](super::PackedResult).
    pub(in crate::plan) consumed: Option<u32>,
    pub(in crate::plan) claim: Arc<ObjectKey>,
}

impl PoolFacts {
    fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.given.is_empty()
    }
}

impl ClusterFacts {
    pub(in crate::plan) fn put_slice(&mut self, name: Arc<str>, slice: Arc<PackedSlice>) {
        if let Some(old) = self.slices.remove(&name) {
            self.leave_pool(&name, &old);
        }
        let key = slice.pool_key();
        self.changes.pool(key);
        self.changes.gained();
        let slices = &mut self.pools.get_or_default(key).slices;
        slices.insert(slices.partition_point(|other| *other < name), name.clone());
        self.slices.insert(name, slice);
    }

    pub(in crate::plan) fn leave_pool(&mut self, name: &str, slice: &PackedSlice) {
        self.change_pool(slice.pool_key(), |pool| pool.slices.retain(|other| **other != *name));
    }

    pub(in crate::plan) fn put_claim(&mut self, key: &Arc<ObjectKey>, claim: &Arc<PackedClaim>) {
        self.changes.other();
        if let Some(old) = self.claims.insert(key.clone(), claim.clone()) {
            self.take_back(key, &old);
        }
        self.give(key, claim);
    }

    /// Notes the devices that a claim was given.
    pub(super) fn give(&mut self, key: &Arc<ObjectKey>, claim: &PackedClaim) {
        for result in claim.allocation.iter().flat_map(|given| &given.results) {
            let given = PoolGiven { device: result.device, consumed: result.consumed, claim: key.clone() };
            let pool = (result.driver, result.pool);
            self.changes.pool(pool);
            self.pools.get_or_default(pool).given.push(given);
        }
    }

    /// Takes back the devices that a claim was given.
    pub(in crate::plan) fn take_back(&mut self, key: &ObjectKey, claim: &PackedClaim) {
        for result in claim.allocation.iter().flat_map(|given| &given.results) {
            self.changes.gained();
            self.change_pool((result.driver, result.pool), |pool| pool.given.retain(|given| *given.claim != *key));
        }
    }

    fn change_pool(&mut self, key: PoolKey, change: impl FnOnce(&mut PoolFacts)) {
        self.changes.pool(key);
        let Some(pool) = self.pools.get_mut(&key) else { return };
        change(pool);
        if pool.is_empty() {
            self.pools.remove(&key);
        }
    }

    /// Returns true if a claim was given the device, or a part of it.
    pub fn has_given(&self, driver: &str, pool: &str, device: &str) -> bool {
        let pool = self.pool_key(driver, pool).and_then(|key| self.pools.get(&key));
        let number = self.store.texts.find(device);
        pool.zip(number).is_some_and(|(pool, number)| pool.given.iter().any(|given| given.device == number))
    }

    /// Returns true if a taint of this key and value is on the device: in a slice, or by a rule.
    pub fn has_taint(&self, names: [&str; 3], key: &str, value: &str) -> bool {
        self.has_taint_where(names, |taint| &*taint.key == key && taint.value.as_deref() == Some(value))
    }

    /// Returns true if a taint of this key keeps new claims off the device: in a slice, or by a rule.
    pub fn is_closed_by(&self, names: [&str; 3], key: &str) -> bool {
        self.has_taint_where(names, |taint| &*taint.key == key && taint.prevents_allocation())
    }

    fn has_taint_where(&self, names: [&str; 3], is_meant: impl Fn(&DeviceTaint) -> bool) -> bool {
        let [driver, pool, device] = names;
        let slices = self.pool_key(driver, pool).and_then(|key| self.pools.get(&key)).map(|pool| &pool.slices);
        let number = self.store.texts.find(device);
        let mut published = slices.into_iter().flatten().filter_map(|name| {
            let slice = self.slices.get(name)?;
            Some(slice.rest(slice.position(number?, &self.store)?, &self.store).taints)
        });
        let is_selected = |selector: &DeviceTaintSelector| {
            let fields = [&selector.driver, &selector.pool, &selector.device];
            fields.into_iter().zip(names).all(|(field, name)| field.as_deref().is_none_or(|field| field == name))
        };
        let by_rule =
            |rule: &DeviceTaintRuleSpec| is_meant(&rule.taint) && rule.device_selector.as_ref().is_none_or(is_selected);
        published.any(|taints| taints.iter().any(&is_meant)) || self.rules.values().any(|rule| by_rule(&rule.spec))
    }

    /// Returns the key of a pool; `None` if its driver or name is unknown.
    pub(in crate::plan) fn pool_key(&self, driver: &str, pool: &str) -> Option<PoolKey> {
        let texts: &Texts = &self.store.texts;
        Some((texts.find(driver)?, texts.find(pool)?))
    }
}
