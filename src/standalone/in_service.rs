//! Keeps drained devices from new claims on hosts without an API server. In a cluster the scheduler does so: it sees
//! the taint.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_api::{Access, Allocation, BackendName, ClaimRef, Grant};

use crate::{
    claims::{ReadClaims, ReadContinuation, ReadResult},
    inventory::{Drain, Inventory, InventoryReader},
    units::elapsed,
};

/// Reader of allocations that refuses those with a drained device. Only new claims are read; a claim keeps the devices
/// that it holds.
#[derive(Debug)]
pub struct InService<R> {
    claims: R,
    inventory: InventoryReader,
}

/// A drained device was given to a claim.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "device {name} is drained ({reason}, for {elapsed}): put it back into service with `hostler device undrain {name}`"
)]
pub struct DrainedError {
    /// `backend/device`.
    pub name: String,
    /// The operator's reason.
    pub reason: String,
    /// Age of the drain, for people.
    pub elapsed: String,
}

impl<R> InService<R> {
    /// Makes a reader of `claims` that refuses the devices that `inventory` has as drained.
    pub fn new(claims: R, inventory: InventoryReader) -> Self {
        Self { claims, inventory }
    }
}

impl<R: ReadClaims> ReadClaims for InService<R> {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let inventory = self.inventory.clone();
        let check_all = move |read: Vec<ReadResult>| {
            let inventory: Arc<Inventory> = inventory.latest();
            let check = |allocation: Allocation| match refuse_drained(&allocation, &inventory) {
                Err(error) => Err(error.into()),
                Ok(()) => Ok(allocation),
            };
            then(read.into_iter().map(|read| read.and_then(check)).collect());
        };
        self.claims.read(claims, Box::new(check_all));
    }
}

/// Refuses an allocation that gives a drained device to a new claim.
///
/// # Errors
/// With the first such device.
pub fn refuse_drained(allocation: &Allocation, inventory: &Inventory) -> Result<(), DrainedError> {
    drained(allocation, inventory).map_or(Ok(()), Err)
}

/// Finds the first drained device of an allocation. Administrators' access to drained devices is allowed.
fn drained(allocation: &Allocation, inventory: &Inventory) -> Option<DrainedError> {
    let of = |grant: &Grant| {
        let (backend, device) = inventory.find(&grant.pool, grant.device.as_str())?;
        Some(DrainedError::new(backend, grant, inventory.drain(backend, &device.name)?))
    };
    allocation.grants.iter().filter(|grant| grant.access == Access::Use).find_map(of)
}

impl DrainedError {
    fn new(backend: &BackendName, grant: &Grant, drain: &Drain) -> Self {
        // A drain that begins in the future, since the clock was set back, has lasted for no time yet.
        let lasted = SystemTime::now().duration_since(drain.since).unwrap_or(Duration::ZERO);
        Self {
            name: format!("{backend}/{}", grant.device),
            reason: drain.reason.clone().unwrap_or_else(|| "no reason given".to_owned()),
            elapsed: elapsed(lasted),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use hostler_api::{ClaimUid, DeviceName};
    use hostler_backend::Device;
    use tokio::sync::watch;

    use super::*;
    use crate::inventory::Pool;

    /// Gives every claim the device that it is named after, twice over.
    struct ByName(Access);

    impl ReadClaims for ByName {
        fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
            let grant = |claim: &ClaimRef| Grant {
                request: "all".to_owned(),
                pool: "n/fake".to_owned(),
                device: DeviceName::new(&*claim.name).unwrap(),
                share_id: None,
                access: self.0,
                consumed: Default::default(),
                config: Vec::new(),
            };
            let allocation = |claim| Allocation { grants: vec![grant(claim)], ..Allocation::default() };
            then(claims.iter().map(|claim| Ok(allocation(claim))).collect());
        }
    }

    fn read(access: Access, drain: Drain, device: &str) -> Result<Allocation, String> {
        let fake = BackendName::new("fake").unwrap();
        let devices = ["a", "b"].map(|name| Device::new(DeviceName::new(name).unwrap())).to_vec();
        let pool = Pool { name: "n/fake".to_owned(), devices, ..Pool::default() };
        let drains = [((fake.clone(), DeviceName::new("a").unwrap()), drain)].into();
        let inventory = Inventory { pools: [(fake, pool.into())].into(), drains, ..Inventory::default() };
        let (_inventory_tx, inventory_rx) = watch::channel(Arc::new(inventory));
        let claim = ClaimRef { namespace: "default".into(), name: device.into(), uid: ClaimUid::new("u").unwrap() };
        let (read_tx, read_rx) = mpsc::channel();
        let then = Box::new(move |read| read_tx.send(read).unwrap());
        InService::new(ByName(access), InventoryReader::new(inventory_rx)).read(vec![claim], then);
        read_rx.recv().unwrap().remove(0).map_err(|error| error.to_string())
    }

    #[test]
    fn a_new_claim_on_a_drained_device_hears_why_since_when_and_what_to_do() {
        let since = SystemTime::now() - Duration::from_secs(7200);
        let drain = Drain { since, reason: Some("fan is broken".to_owned()), evict: false };
        let error = read(Access::Use, drain.clone(), "a").unwrap_err();
        assert!(error.starts_with("device fake/a is drained (fan is broken, for 2h 0m"), "{error}");
        assert!(error.ends_with("`hostler device undrain fake/a`"), "{error}");
        assert!(read(Access::Use, drain.clone(), "b").is_ok());
        assert!(read(Access::Admin, drain, "a").is_ok());
    }

    #[test]
    fn a_clock_that_was_set_back_breaks_nothing() {
        let drain = Drain { since: SystemTime::now() + Duration::from_secs(60), reason: None, evict: false };
        let error = read(Access::Use, drain, "a").unwrap_err();
        assert!(error.contains("(no reason given, for 0s)"), "{error}");
    }
}
