//! Chooses the pods that make room. Of all sufficient sets, those whose eviction is against the fewest budgets come
//! first, then the least important. Of these pods as few go as remain when each in turn is spared, the most important
//! first.

use std::collections::BTreeSet;

use hostler_allocator::plan::ClusterFacts;
use hostler_api::reservation::ReservedDevice;

use super::{
    budgets::{by_budgets, violations},
    objects::DeviceKey,
    question::{HoldQuestion, PlannedCandidate},
    victims::{Victim, who_goes},
};

/// The most pods that are tried alone, and the most that are tried to be spared: each try takes a plan.
const MOST_TRIES: usize = 32;

impl HoldQuestion {
    /// Devices that the candidate gets once pods of lower priority are gone.
    pub(super) fn found_by_preemption(
        &self,
        facts: &ClusterFacts,
        candidate: &PlannedCandidate<'_>,
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let without = |victims: &[Victim]| self.found_without(facts, candidate, victims, taken);
        let all: Vec<Victim> =
            candidate.victims().iter().filter(|it| self.closing.can_close_all_of(it)).cloned().collect();
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

/// Devices that are free without the least important of these pods, and without as few of them as possible.
fn least_important(
    victims: &[Victim],
    without: impl Fn(&[Victim]) -> Option<Vec<ReservedDevice>>,
) -> Option<Vec<ReservedDevice>> {
    without(victims)?;
    // The lowest priority up to which pods have to go. Further pods that go make no plan worse.
    let levels: Vec<i32> = victims.iter().map(|it| it.priority).collect::<BTreeSet<i32>>().into_iter().collect();
    let below = |level: i32| &victims[..victims.partition_point(|victim| victim.priority <= level)];
    let level = levels.partition_point(|level| without(below(*level)).is_none());
    let chosen = below(*levels.get(level)?);
    let alone = chosen.chunks(1).take(MOST_TRIES).find_map(&without);
    alone.or_else(|| Some(spared(chosen, without(chosen)?, without)))
}

/// Devices that are free if only those of these pods go that must.
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
