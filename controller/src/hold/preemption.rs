//! Pods of lower priority that a Reservation may evict.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    ObjectKey,
    core::PodTemplateSpec,
    reservation::{PodEviction, ReservationConditionReason as Reason, ReservedDevice},
};

use super::{
    budgets::{about, pod_budgets},
    context::{HoldContext, HoldEffect},
    known::PodReading,
    priorities::priority_of,
    reservation::{Problem, Reservation},
    topics::DecisionTopic,
    victims::{MOST_READ, Victim, kept_by_others},
};

/// Returns the pods that a Reservation may evict, the least important first; `None` as long as the objects that decide
/// are being read.
pub(super) fn preemptable(
    cx: &mut HoldContext<'_>,
    reservation: &Reservation,
    template: &PodTemplateSpec,
) -> Option<Vec<Victim>> {
    match priority_of(cx, template)? {
        Ok(priority) => less_important(cx, reservation, priority),
        Err(why) => {
            let message = format!("nothing is free, and no pod can be evicted: {why}");
            let problem = Problem { reason: Reason::Incomplete, message };
            let name = reservation.object.name.clone();
            cx.push(HoldEffect::Problem(name.clone(), problem));
            cx.decide(DecisionTopic::Reservation(name));
            None
        }
    }
}

fn less_important(cx: &mut HoldContext<'_>, reservation: &Reservation, priority: i32) -> Option<Vec<Victim>> {
    let (kept, budgets) = (kept_by_others(cx, reservation), pod_budgets(cx)?);
    let mut found: BTreeMap<ObjectKey, Victim> = BTreeMap::new();
    let (mut unknown, mut lasting) = (Vec::new(), BTreeSet::new());
    for claim in cx.cluster.claims.values().filter(|claim| !claim.devices.is_empty()) {
        // Devices that several pods share do not become free with one of them.
        let [pod] = &claim.pods[..] else { continue };
        let key = ObjectKey::new(&claim.key.namespace, &pod.name);
        match cx.cluster.pods.get(&key) {
            Some(PodReading::Known(Some(known))) if known.uid == pod.uid => {
                let is_owned = reservation.object.spec.is_owned_by(&known.candidate(&key));
                let is_kept = claim.devices.iter().any(|device| kept.contains(device));
                if known.priority >= priority || known.is_deleting || is_owned || is_kept {
                    lasting.insert(key);
                    continue;
                }
                let budgets = about(&budgets, &key, known);
                let victim = Victim { pod: key.clone(), claims: Vec::new(), priority: known.priority, budgets };
                found.entry(key).or_insert(victim).claims.push(claim.clone());
            }
            Some(PodReading::Known(_)) => {}
            _ => unknown.push(key),
        }
    }
    unknown.iter().take(MOST_READ).for_each(|pod| cx.read_pod(pod));
    let mut victims: Vec<Victim> = found.into_values().filter(|it| !lasting.contains(&it.pod)).collect();
    victims.sort_by_key(|victim| (victim.priority, victim.pod.clone()));
    unknown.is_empty().then_some(victims)
}

/// Returns the pods that have some of these devices.
pub(super) fn evictions_for(cx: &HoldContext<'_>, devices: &[ReservedDevice]) -> Vec<PodEviction> {
    let mut evictions: Vec<PodEviction> = Vec::new();
    for owner in devices.iter().filter_map(|device| device.owner.as_ref()) {
        let claim = cx.cluster.claims.get(&ObjectKey::new(&owner.namespace, &owner.claim));
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
