//! Parts of a capacity that several claims share, counted in whole units.

use std::collections::BTreeMap;

use hostler_api::{Quantity, few, resource::policy::Amount};

use crate::{BackendError, HeldDevice, PlanWork};

/// One capacity of the device that is planned.
#[derive(Clone, Copy, Debug)]
pub struct CapacityShare<'a> {
    work: &'a PlanWork<'a>,
    capacity: &'a str,
}

impl<'a> CapacityShare<'a> {
    /// The capacity called `capacity`.
    pub fn new(work: &'a PlanWork<'a>, capacity: &'a str) -> Self {
        Self { work, capacity }
    }

    /// The whole capacity; zero where the device has none of this name.
    pub fn whole(&self) -> Quantity {
        self.work.device.capacity.get(self.capacity).map(|capacity| capacity.value).unwrap_or_default()
    }

    /// Amount that the grant takes: the one that the grant names, else the whole.
    ///
    /// # Errors
    /// When the device does not give such an amount.
    pub fn wanted(&self) -> Result<u64, BackendError> {
        let asked = self.work.grant.consumed.get(self.capacity).copied().unwrap_or_else(|| self.whole());
        let policy = self.work.device.capacity.get(self.capacity).and_then(|capacity| capacity.policy);
        let rounded = policy.map_or(asked, |policy| policy.round_up(asked));
        asked.as_whole().filter(|_| rounded == asked).ok_or_else(|| {
            let step = policy.map_or_else(|| "1".to_owned(), |policy| policy.step.human());
            BackendError::refused(format!(
                "{} of {} cannot be given: it gives multiples of {step}; ask for {}",
                asked.human(),
                self.work.device.name,
                rounded.human()
            ))
        })
    }

    /// The most that a claim may have been given, for one whose plan cannot be read.
    pub fn at_most(&self, held: &HeldDevice<'_>) -> u64 {
        let asked = held.grant.consumed.get(self.capacity).copied().unwrap_or_else(|| self.whole());
        asked.as_whole().unwrap_or(u64::MAX)
    }

    /// Amount that is left, next to what claims hold.
    pub fn free(&self, holders: &CapacityHolders<'_>) -> u64 {
        self.whole().as_whole().unwrap_or(0).saturating_sub(holders.total())
    }

    /// Amount that the grant takes, if so much is left.
    ///
    /// # Errors
    /// When less is left: the message says what is wanted, what is left and who holds the rest.
    pub fn take(&self, holders: &CapacityHolders<'_>) -> Result<u64, BackendError> {
        let (wanted, free) = (self.wanted()?, self.free(holders));
        let [taken, held] = [wanted, holders.total()].map(|units| Amount::from(Quantity::whole(units)));
        if taken.fits(held, self.whole().into()) {
            return Ok(wanted);
        }
        let human = |amount| Quantity::whole(amount).human();
        let names = few(holders.0.iter().map(|(name, held)| format!("{name} ({})", human(*held))));
        Err(BackendError::refused(format!(
            "{} has {} of {} free, {} are wanted; held by {}",
            self.work.device.name,
            human(free),
            self.whole().human(),
            human(wanted),
            if names.is_empty() { "nobody".to_owned() } else { names }
        )))
    }
}

/// Claims by name, with what each holds.
#[derive(Clone, Debug, Default)]
pub struct CapacityHolders<'a>(BTreeMap<&'a str, u64>);

impl CapacityHolders<'_> {
    /// Sum of what the claims hold.
    fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, held| sum.saturating_add(*held))
    }
}

impl<'a> FromIterator<(&'a str, u64)> for CapacityHolders<'a> {
    /// Adds up what a claim holds in several places; claims that hold nothing are left out.
    fn from_iter<T: IntoIterator<Item = (&'a str, u64)>>(held: T) -> Self {
        let mut holders = BTreeMap::new();
        for (name, amount) in held.into_iter().filter(|(_, amount)| *amount > 0) {
            let sum: &mut u64 = holders.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
        Self(holders)
    }
}
