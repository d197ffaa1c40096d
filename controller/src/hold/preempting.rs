//! The choice of pods that make room: of those that are enough the ones whose eviction is against the fewest budgets, then the least
//! important, and of these as few as come out of sparing each in turn, the most important first.

use std::collections::BTreeSet;

use hostler_allocator::plan::ClusterFacts;
use hostler_api::reservation::ReservedDevice;

use super::{
    budgets::{by_budgets, violations},
    objects::DeviceKey,
    question::{HoldQuestion, PlannedWish},
    victims::{Victim, who_goes},
};

/// Pods that are tried alone, and pods that are tried to be spared: each takes a plan.
const MOST_TRIES: usize = 32;

impl HoldQuestion {
    /// Devices that it gets once pods of lower priority are gone.
    pub(super) fn found_by_preemption(
        &self,
        facts: &ClusterFacts,
        wish: &PlannedWish<'_>,
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let without = |victims: &[Victim]| self.found_without(facts, wish, victims, taken);
        let all: Vec<Victim> = wish.victims().iter().filter(|it| self.closing.can_close_all_of(it)).cloned().collect();
        without(&all)?;
        let mut best: Option<(usize, Vec<ReservedDevice>)> = None;
        for victims in by_budgets(&all) {
            let Some(found) = least_important(&victims, without) else { continue };
            let against = violations(&who_goes(&victims, &found));
            if best.as_ref().is_none_or(|(least, _)| against < *least) {
                best = Some((against, found));
            }
            if against == 0 {
                break;
            }
        }
        best.map(|(_, found)| found)
    }
}

/// What is found without the least important of these pods, and without as few of them as can be.
fn least_important(
    victims: &[Victim],
    without: impl Fn(&[Victim]) -> Option<Vec<ReservedDevice>>,
) -> Option<Vec<ReservedDevice>> {
    without(victims)?;
    // The lowest priority up to which pods have to go. Whoever goes besides makes nothing worse.
    let levels: Vec<i32> = victims.iter().map(|it| it.priority).collect::<BTreeSet<i32>>().into_iter().collect();
    let below = |level: i32| &victims[..victims.partition_point(|victim| victim.priority <= level)];
    let level = levels.partition_point(|level| without(below(*level)).is_none());
    let chosen = below(*levels.get(level)?);
    let alone = chosen.chunks(1).take(MOST_TRIES).find_map(&without);
    alone.or_else(|| Some(spared(chosen, without(chosen)?, without)))
}

/// What is found if of these pods only those go that must.
fn spared(
    chosen: &[Victim],
    mut found: Vec<ReservedDevice>,
    without: impl Fn(&[Victim]) -> Option<Vec<ReservedDevice>>,
) -> Vec<ReservedDevice> {
    let mut going = who_goes(chosen, &found);
    let mut at = going.len().min(MOST_TRIES);
    while at > 0 {
        at -= 1;
        let mut fewer = going.clone();
        fewer.remove(at);
        if let Some(better) = without(&fewer) {
            going = who_goes(&fewer, &better);
            found = better;
            at = at.min(going.len());
        }
    }
    found
}
