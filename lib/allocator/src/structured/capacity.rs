//! Parts of capacities: the amounts that a request takes of a device, and that are left there.

use std::collections::BTreeMap;

use hostler_api::{
    ExactQuantity,
    resource::{
        CapacityRequirements, DeviceCapacity, SliceQuantity,
        policy::{self, Amount},
    },
};

use super::{
    bits::DeviceBits,
    node::NodeDevice,
    node_state::NodeState,
    pools::NodePools,
    shortage::{CapacityShortage, Lack},
};

/// State of the amounts that a request takes of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RequestShare {
    /// The amounts have not been worked out yet.
    Unknown,
    /// The amounts have been worked out.
    Known,
    /// The device has no such capacity, or gives no such amount.
    Refused,
}

/// Capacities during a search.
#[derive(Debug)]
pub(super) struct CapacityUse<'p, 'a> {
    pools: &'p NodePools<'a>,
    state: &'p NodeState<'p>,
    /// Number of different requests.
    requests: usize,
    /// Amounts, once some device is not simply held whole. Most devices are, and need no calculation.
    amounts: Option<TakenAmounts>,
    /// Devices of which this search holds parts.
    in_use: DeviceBits,
    /// True if the amounts alone show when a device is no longer in use.
    by_amounts: bool,
}

/// Amounts that are taken of each capacity.
#[derive(Debug)]
struct TakenAmounts {
    capacities: usize,
    devices: usize,
    /// By request and device.
    shares: Vec<RequestShare>,
    /// By request and capacity.
    taken: Vec<ExactQuantity>,
    /// Amounts that this search holds, by capacity.
    held: Vec<Amount>,
}

impl TakenAmounts {
    fn new(pools: &NodePools<'_>, requests: usize) -> Self {
        let (capacities, devices) = (pools.capacities, pools.devices.len());
        Self {
            capacities,
            devices,
            shares: vec![RequestShare::Unknown; requests * devices],
            taken: vec![ExactQuantity::ZERO; requests * capacities],
            held: vec![Amount::default(); capacities],
        }
    }

    fn taken(&self, request: usize, slot: usize) -> Amount {
        self.taken[request * self.capacities + slot].into()
    }

    fn share(
        &mut self,
        request: usize,
        wanted: Option<&CapacityRequirements>,
        device: usize,
        at: &NodeDevice<'_>,
    ) -> RequestShare {
        let share = request * self.devices + device;
        if self.shares[share] == RequestShare::Unknown {
            let offset = request * self.capacities;
            let taken = &mut self.taken[offset + at.first_capacity..offset + at.capacities().end];
            self.shares[share] = if work_out(wanted, at, taken) { RequestShare::Known } else { RequestShare::Refused };
        }
        self.shares[share]
    }
}

impl<'p, 'a> CapacityUse<'p, 'a> {
    /// Makes the capacities for a search with this number of different requests.
    pub(super) fn new(pools: &'p NodePools<'a>, state: &'p NodeState<'p>, requests: usize, by_amounts: bool) -> Self {
        let in_use = DeviceBits::none(pools.devices.len());
        Self { pools, state, requests, amounts: None, in_use, by_amounts }
    }

    /// Returns true if the amounts that the request takes of the device are left.
    pub(super) fn fits(&mut self, request: usize, wanted: Option<&CapacityRequirements>, device: usize) -> bool {
        let at = &self.pools.devices[device];
        if self.is_whole(wanted, device) {
            return true;
        }
        let amounts = self.amounts.get_or_insert_with(|| TakenAmounts::new(self.pools, self.requests));
        if amounts.share(request, wanted, device, at) == RequestShare::Refused {
            return false;
        }
        at.capacities().zip(at.device.capacity.iter()).all(|(slot, (_, capacity))| {
            let held = self.state.consumed(slot).plus(amounts.held[slot]);
            amounts.taken(request, slot).fits(held, (&capacity.value).into())
        })
    }

    /// Returns true if it is clear that the request takes all of the device, and that all of it is there.
    fn is_whole(&self, wanted: Option<&CapacityRequirements>, device: usize) -> bool {
        let at = &self.pools.devices[device];
        wanted.is_none() && at.is_simple && !self.state.shared.has(device)
    }

    /// Returns true if the device, were it not held by others, has the amounts that the request asks for.
    pub(super) fn is_offered(&mut self, request: usize, wanted: Option<&CapacityRequirements>, device: usize) -> bool {
        let amounts = self.amounts.get_or_insert_with(|| TakenAmounts::new(self.pools, self.requests));
        amounts.share(request, wanted, device, &self.pools.devices[device]) == RequestShare::Known
    }

    /// Returns the first capacity that keeps the device from a request that does not fit.
    pub(super) fn shortage(&self, wanted: Option<&CapacityRequirements>, device: usize) -> Option<CapacityShortage> {
        let at = &self.pools.devices[device];
        let requests = wanted.map(|wanted| &wanted.requests);
        let absent = requests.iter().flat_map(|it| it.iter()).find(|(name, _)| at.device.capacity.get(name).is_none());
        if let Some((name, amount)) = absent {
            return Some(CapacityShortage::new(name, amount.get(), Lack::Absent));
        }
        at.capacities().zip(at.device.capacity.iter()).find_map(|(slot, (name, capacity))| {
            let asked = requests.and_then(|requests| requests.get(name)).map(SliceQuantity::get);
            let Some(taken) = share_of(asked, capacity) else {
                return Some(CapacityShortage::new(name, asked.flatten(), Lack::NotGiven));
            };
            let is_all = asked.is_none() && capacity.value.get() == Some(taken);
            let (amount, total): (Amount, Amount) = (taken.into(), (&capacity.value).into());
            let lack = if !amount.fits(Amount::default(), total) {
                Lack::TooSmall
            } else if !amount.fits(self.held(slot), total) {
                Lack::Taken
            } else {
                return None;
            };
            Some(CapacityShortage::new(name, (!is_all).then_some(taken), lack))
        })
    }

    /// The amount of a capacity that this search and other claims hold.
    fn held(&self, slot: usize) -> Amount {
        let here = self.amounts.as_ref().map(|amounts| amounts.held[slot]).unwrap_or_default();
        self.state.consumed(slot).plus(here)
    }

    /// Returns true if parts of the device are held, by this search or by others.
    pub(super) fn is_in_use(&self, device: usize) -> bool {
        self.state.shared.has(device) || self.in_use.has(device)
    }

    /// Takes the amounts of the request from the device, after it was found to fit.
    pub(super) fn take(&mut self, request: usize, device: usize) {
        self.in_use.insert(device);
        let Some(amounts) = &mut self.amounts else { return };
        for slot in self.pools.devices[device].capacities() {
            amounts.held[slot] = amounts.held[slot].plus(amounts.taken(request, slot));
        }
    }

    /// Gives the amounts back; the search may hold other parts of the device.
    pub(super) fn give_back(&mut self, request: usize, device: usize, is_held: bool) {
        let Some(amounts) = &mut self.amounts else { return };
        let slots = self.pools.devices[device].capacities();
        for slot in slots.clone() {
            amounts.held[slot] = amounts.held[slot].minus(amounts.taken(request, slot));
        }
        let is_free = match self.by_amounts {
            true => !slots.is_empty() && amounts.held[slots].iter().all(|held| held.is_zero()),
            false => !is_held,
        };
        if is_free {
            self.in_use.remove(device);
        }
    }

    /// Returns the amounts that the request takes of the device, by name.
    pub(super) fn consumed(&self, request: usize, device: usize) -> BTreeMap<String, serde_json::Value> {
        let Some(amounts) = &self.amounts else { return BTreeMap::new() };
        let at = &self.pools.devices[device];
        let taken = &amounts.taken[request * amounts.capacities..][at.capacities()];
        let names = at.device.capacity.iter().map(|(name, _)| name.to_owned());
        names.zip(taken.iter().map(|quantity| quantity.to_string().into())).collect()
    }
}

/// Works out the amounts that are taken of each capacity. Returns false if the device does not give them.
fn work_out(wanted: Option<&CapacityRequirements>, at: &NodeDevice<'_>, taken: &mut [ExactQuantity]) -> bool {
    let wanted = wanted.map(|wanted| &wanted.requests);
    let has_all = wanted.is_none_or(|it| it.iter().all(|(name, _)| at.device.capacity.get(name).is_some()));
    has_all
        && at.device.capacity.iter().zip(taken).all(|((name, capacity), taken)| {
            let asked: Option<&SliceQuantity> = wanted.and_then(|wanted| wanted.get(name));
            share_of(asked.map(SliceQuantity::get), capacity).is_some_and(|amount| {
                *taken = amount;
                true
            })
        })
}

/// Returns the amount that is taken of a capacity. `None`: the capacity gives no such amount, or the amount is invalid.
fn share_of(asked: Option<Option<ExactQuantity>>, capacity: &DeviceCapacity) -> Option<ExactQuantity> {
    match asked {
        None => policy::taken(None, capacity),
        Some(asked) => policy::taken(Some(asked?), capacity),
    }
}
