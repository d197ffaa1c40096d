//! Whose devices a Reservation may have that evicts pods of lower priority, and whom it takes them from: of those that are enough the
//! ones against whose going the fewest budgets are, then the least important, and of these as few as come out of sparing each in turn,
//! the most important first.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::ClusterFacts;
use hostler_api::{
    ObjectKey,
    core::PodTemplateSpec,
    reservation::{PodEviction, ReservedDevice},
};

use super::{
    agenda::Topic,
    asking::MOST_ASKED,
    budgets::{about, by_budgets, violations},
    core::{HoldCore, device_key},
    event::DeviceKey,
    question::{HoldQuestion, PlannedWish},
    seen::PodKnowledge,
    victims::Victim,
};

/// Pods that are tried alone, and pods that are tried to be spared: each takes a plan.
const MOST_TRIES: usize = 32;

impl HoldCore {
    /// Pods that a Reservation may evict, the least important first; `None` as long as it is not known who is.
    pub(super) fn preemptable(&mut self, name: &str, template: &PodTemplateSpec) -> Option<Vec<Victim>> {
        match self.priority_of(template)? {
            Ok(priority) => self.less_important(name, priority),
            Err(problem) => {
                let hold = self.holds.get_mut(name)?;
                hold.problem = Some(format!("nothing is free, and nobody can be evicted: {problem}"));
                self.agenda.now(Topic::Reservation(name.to_owned()));
                None
            }
        }
    }

    fn less_important(&mut self, name: &str, priority: i32) -> Option<Vec<Victim>> {
        let (kept, budgets) = (self.kept_by_others(name), self.pod_budgets()?);
        let mut found: BTreeMap<ObjectKey, Victim> = BTreeMap::new();
        let (mut unknown, mut lasting) = (Vec::new(), BTreeSet::new());
        for claim in self.seen.claims.values().filter(|claim| !claim.devices.is_empty()) {
            // What several pods share does not get free with one of them.
            let [pod] = &claim.pods[..] else { continue };
            let key = ObjectKey::new(&claim.key.namespace, &pod.name);
            match self.seen.pods.get(&key) {
                Some(PodKnowledge::Known(Some(known))) if known.uid == pod.uid => {
                    let is_owned =
                        self.holds.get(name).is_some_and(|it| it.object.spec.is_owned_by(&known.candidate(&key)));
                    let is_kept = claim.devices.iter().any(|device| kept.contains(device));
                    if known.priority >= priority || known.is_deleting || is_owned || is_kept {
                        lasting.insert(key);
                        continue;
                    }
                    let budgets = about(&budgets, &key, known);
                    let victim = Victim { pod: key.clone(), claims: Vec::new(), priority: known.priority, budgets };
                    found.entry(key).or_insert(victim).claims.push(claim.clone());
                }
                Some(PodKnowledge::Known(_)) => {}
                _ => unknown.push(key),
            }
        }
        unknown.iter().take(MOST_ASKED).for_each(|pod| self.ask_for(pod));
        let mut victims: Vec<Victim> = found.into_values().filter(|it| !lasting.contains(&it.pod)).collect();
        victims.sort_by_key(|victim| (victim.priority, victim.pod.clone()));
        unknown.is_empty().then_some(victims)
    }

    /// What other Reservations keep, also what they gave away: it comes back to them.
    fn kept_by_others(&self, name: &str) -> BTreeSet<DeviceKey> {
        let others = self.holds.iter().filter(|(other, hold)| *other != name && hold.is_open());
        let devices =
            others.flat_map(|(_, hold)| hold.object.status.devices.iter().chain(hold.proposal.iter().flatten()));
        devices.map(device_key).collect()
    }

    /// The pods that have some of these devices.
    pub(super) fn evictions_for(&self, devices: &[ReservedDevice]) -> Vec<PodEviction> {
        let mut evictions: Vec<PodEviction> = Vec::new();
        for owner in devices.iter().filter_map(|device| device.owner.as_ref()) {
            let claim = self.seen.claims.get(&ObjectKey::new(&owner.namespace, &owner.claim));
            let pods = claim.filter(|claim| claim.uid == owner.uid).map(|claim| &claim.pods).into_iter().flatten();
            for pod in pods.filter(|pod| pod.name == owner.pod) {
                if !evictions.iter().any(|it| it.uid == pod.uid) {
                    let (namespace, name, uid) = (owner.namespace.clone(), pod.name.clone(), pod.uid.clone());
                    evictions.push(PodEviction { namespace, name, uid, ..PodEviction::default() });
                }
            }
        }
        evictions
    }
}

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

/// Those of these pods that have some of the devices.
fn who_goes(victims: &[Victim], devices: &[ReservedDevice]) -> Vec<Victim> {
    let goes = |victim: &&Victim| {
        let has = |device: &ReservedDevice| {
            device.owner.as_ref().is_some_and(|it| it.namespace == victim.pod.namespace && it.pod == victim.pod.name)
        };
        devices.iter().any(has)
    };
    victims.iter().filter(goes).cloned().collect()
}
