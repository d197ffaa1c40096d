//! Facts that were made smaller say what they said before.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::plan::{PlanOptions, Snapshot, fixtures};

/// Slices that are unlike others come and go, as do claims and pods of many names.
fn churn(facts: &mut ClusterFacts, round: usize) {
    let node = format!("n{}", round % 3);
    let mut slice = fixtures::slice(&node, 4);
    for device in &mut slice.spec.devices {
        let serial = fixtures::read(&format!(r#"{{"serial":{{"string":"serial-{round}"}}}}"#));
        device.attributes = serial;
    }
    facts.add_slice(slice);
    let name = format!("claim-{round}");
    let device = format!("{node}/gpu-{}", round % 4);
    facts.add_claim(&fixtures::claim(&name, &[&device], &[&name]));
    facts.add_pod(&fixtures::pod(&name, &node, ""));
    if let Some(old) = round.checked_sub(5) {
        let key = ObjectKey::new("default", &format!("claim-{old}"));
        facts.remove_claim(&key);
        facts.remove_pod(&key);
    }
}

#[test]
fn what_nobody_refers_to_is_given_back() {
    let mut facts = fixtures::cluster(&[4, 4, 4]);
    (0..50).for_each(|round| churn(&mut facts, round));
    let few = facts.store.size();
    (50..5_000).for_each(|round| churn(&mut facts, round));
    assert!(facts.store.size() < 3 * few, "{} bytes after {few}", facts.store.size());
}

/// Everything that is known, whatever its numbers are.
fn told(facts: &ClusterFacts) -> impl PartialEq + std::fmt::Debug + use<> {
    let slices: BTreeMap<_, _> = facts
        .slices
        .iter()
        .map(|(name, slice)| (name.clone(), serde_json::to_string(&slice.unpack(name, &facts.store)).unwrap()))
        .collect();
    let texts = &facts.store.texts;
    let claims: BTreeMap<_, _> = facts
        .claims
        .iter()
        .map(|(key, claim)| {
            let pods: Vec<&str> = claim.pods.iter().map(|pod| texts.get(*pod)).collect();
            let given = claim.allocation.iter().flat_map(|given| &given.results);
            let given: Vec<[&str; 3]> =
                given.map(|it| [it.driver, it.pool, it.device].map(|number| texts.get(number))).collect();
            (key.clone(), format!("{:?} {pods:?} {given:?}", claim.spec(texts)))
        })
        .collect();
    let pods: BTreeMap<_, _> = facts
        .pods
        .iter()
        .map(|(key, pod)| (key.clone(), format!("{} {:?}", texts.get(pod.node), pod.spec(texts))))
        .collect();
    (slices, claims, pods)
}

#[test]
fn what_is_referred_to_stays_what_it_was() {
    let mut facts = fixtures::cluster(&[4, 4, 4]);
    (0..20).for_each(|round| churn(&mut facts, round));
    let (before, copy) = (told(&facts), facts.clone());
    let left = Snapshot::new(facts.clone()).left(&PlanOptions::default());
    facts.take_changes();
    let living = Living::of(&facts);
    facts.compact(&living);
    assert_eq!(told(&facts), before);
    assert_eq!(told(&copy), before);
    assert_eq!(Snapshot::new(facts.clone()).left(&PlanOptions::default()), left);
    assert!(facts.store.size() < copy.store.size());
    assert!(facts.take_changes().is_all());
}

/// By driver and pool: slices, and what claims have.
type NamedPools = BTreeMap<(String, String), (Vec<Arc<str>>, Vec<String>)>;

fn pools(facts: &ClusterFacts) -> NamedPools {
    let texts = &facts.store.texts;
    let of_pool = |(key, pool): (&(u32, u32), &super::super::PoolFacts)| {
        let mut given: Vec<String> =
            pool.given.iter().map(|given| format!("{} {}", texts.get(given.device), given.claim)).collect();
        given.sort();
        ((texts.get(key.0).to_owned(), texts.get(key.1).to_owned()), (pool.slices.clone(), given))
    };
    facts.pools.iter().map(of_pool).collect()
}

proptest! {
    #[test]
    fn pools_are_what_slices_and_claims_make_of_them(rounds in prop::collection::vec((0..8usize, 0..4usize, any::<bool>()), 1..60)) {
        let mut facts = fixtures::cluster(&[4, 4, 4]);
        for (number, device, is_gone) in rounds {
            let (name, node) = (format!("claim-{number}"), format!("n{}", number % 3));
            match is_gone {
                true if number < 3 => facts.remove_slice(&format!("{node}-gpus")),
                true => facts.remove_claim(&ObjectKey::new("default", &name)),
                false if number < 3 => facts.add_slice(fixtures::slice(&node, device)),
                false => facts.add_claim(&fixtures::claim(&name, &[&format!("{node}/gpu-{device}")], &[])),
            }
            let kept = pools(&facts);
            facts.put_into_pools();
            prop_assert_eq!(kept, pools(&facts));
        }
    }
}
