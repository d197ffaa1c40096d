//! Looks for the steps after which all pods of a request would have room.

use std::collections::BTreeSet;

use hostler_allocator::plan::{Plan, PodSet, Verdict};

use super::{Attach, AttachOffer, AttachStep};

/// Steps of one request. All of them stand in one detail.
const MOST_STEPS: usize = 48;
/// Characters of a node's name, and of what a device is called.
const LONGEST_NAME: usize = 253;

/// What is to be attached for a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::provision) struct AttachPlan {
    pub(in crate::provision) steps: Vec<AttachStep>,
    /// For people.
    pub(in crate::provision) message: String,
}

/// What looking for steps takes.
pub(in crate::provision) struct AttachSearch<'a> {
    pub(in crate::provision) attach: &'a dyn Attach,
    /// What is planned for others.
    pub(in crate::provision) planned: &'a BTreeSet<AttachStep>,
    /// The plan for the request when all of that is attached.
    pub(in crate::provision) plan: &'a dyn Fn(&[AttachOffer]) -> Plan,
    /// Whether there is still time.
    pub(in crate::provision) has_time: &'a mut dyn FnMut() -> bool,
}

impl AttachSearch<'_> {
    /// As few steps as can be found; or how many there are, when all of them are not enough.
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

    /// How many of the first ones are enough, when all are.
    fn shortest(&mut self, offers: &[AttachOffer]) -> usize {
        let (mut few, mut enough) = (0, offers.len());
        while enough - few > 1 && (self.has_time)() {
            let middle = few.midpoint(enough);
            if self.fits(&offers[..middle]) { enough = middle } else { few = middle }
        }
        enough
    }

    /// Leaves out those without which there is room as well.
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

/// The pods that have no room.
fn rest(lacking: &Plan, sets: &[PodSet]) -> Vec<PodSet> {
    let with_plans = sets.iter().zip(&lacking.sets);
    let rest = with_plans.map(|(set, plan)| PodSet { count: set.count.saturating_sub(plan.placed), ..set.clone() });
    rest.filter(|set| set.count > 0).collect()
}
