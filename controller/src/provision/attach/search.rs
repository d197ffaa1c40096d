//! Searches the steps after which all pods of a request have room.

use std::collections::BTreeSet;

use hostler_allocator::plan::{Plan, PodSet, Verdict};

use super::{Attach, AttachOffer, AttachStep};

/// Limit of steps of one request: one detail of the status has them all.
const MOST_STEPS: usize = 48;
/// Limit of characters of a node's name and of a device's name.
const LONGEST_NAME: usize = 253;

/// The steps for a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::provision) struct AttachPlan {
    pub(in crate::provision) steps: Vec<AttachStep>,
    /// The message for the request's condition.
    pub(in crate::provision) message: String,
}

/// The inputs of a search.
pub(in crate::provision) struct AttachSearch<'a> {
    pub(in crate::provision) attach: &'a dyn Attach,
    /// Steps that are planned for other requests.
    pub(in crate::provision) planned: &'a BTreeSet<AttachStep>,
    /// Plans the request with the slices of these offers.
    pub(in crate::provision) plan: &'a dyn Fn(&[AttachOffer]) -> Plan,
    /// Returns true while the search may continue.
    pub(in crate::provision) has_time: &'a mut dyn FnMut() -> bool,
}

impl AttachSearch<'_> {
    /// Returns as few steps as can be found; or the number of offers, if all of them are not enough.
    pub(in crate::provision) fn run(mut self, lacking: &Plan, sets: &[PodSet]) -> Result<Vec<AttachStep>, usize> {
        let mut offers = self.attach.offers(&rest(lacking, sets));
        let devices: BTreeSet<&String> = self.planned.iter().map(|step| &step.device).collect();
        let mut seen = BTreeSet::new();
        offers.retain(|AttachOffer { step, .. }| {
            let fits = step.node.len().max(step.device.len()) <= LONGEST_NAME;
            fits && !devices.contains(&step.device) && seen.insert(step.device.clone())
        });
        offers.truncate(MOST_STEPS);
        if offers.is_empty() || !self.fits(&offers) {
            return Err(offers.len());
        }
        offers.truncate(self.shortest(&offers));
        self.spare(&mut offers);
        Ok(offers.into_iter().map(|offer| offer.step).collect())
    }

    fn fits(&self, offers: &[AttachOffer]) -> bool {
        (self.plan)(offers).verdict() == Verdict::Fits
    }

    /// Returns how many of the first offers are enough; all of them are.
    fn shortest(&mut self, offers: &[AttachOffer]) -> usize {
        let (mut few, mut enough) = (0, offers.len());
        while enough - few > 1 && (self.has_time)() {
            let middle = few.midpoint(enough);
            if self.fits(&offers[..middle]) { enough = middle } else { few = middle }
        }
        enough
    }

    /// Removes offers that are not needed.
    fn spare(&mut self, offers: &mut Vec<AttachOffer>) {
        for at in (0..offers.len().saturating_sub(1)).rev() {
            if !(self.has_time)() {
                return;
            }
            let offer = offers.remove(at);
            if !self.fits(offers) {
                offers.insert(at, offer);
            }
        }
    }
}

/// Returns the pods without room.
fn rest(lacking: &Plan, sets: &[PodSet]) -> Vec<PodSet> {
    let with_plans = sets.iter().zip(&lacking.sets);
    let rest = with_plans.map(|(set, plan)| PodSet { count: set.count.saturating_sub(plan.placed), ..set.clone() });
    rest.filter(|set| set.count > 0).collect()
}
