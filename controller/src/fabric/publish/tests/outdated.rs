//! A pool is offered anew where anything has changed of which its offer is made, whatever else changes.

use hostler_api::{ObjectKey, fabric::AttachmentPhase};

use super::*;
use crate::{
    fabric::publish::domains::outdated_pools,
    observed::PooledHold,
    testkit::{Dice, seeds},
};

const POOLS: [&str; 3] = [POOL, "fabric/row2/fabric", "fabric/gone/fabric"];
const MANAGERS: [&str; 3] = ["row1", "row2", "gone"];
const DEVICES: u32 = 5;

/// Two managers, of which each shows devices that the other one shows, too.
fn scene() -> Scene {
    let mut scene = Scene::new(DEVICES - 1);
    let (mut parts, hostnames) = scene.managers["row1"].clone();
    parts.devices.iter_mut().for_each(|it| it.identity.as_mut().unwrap().serial += 1);
    scene.managers.insert("row2", (parts, hostnames));
    scene
}

/// One change of what the cluster says.
fn change(scene: &mut Scene, dice: &mut Dice) {
    let device = u32::try_from(dice.roll(DEVICES as usize)).unwrap();
    let (pool, manager) = (dice.pick(&POOLS).to_owned(), dice.pick(&MANAGERS).to_owned());
    match dice.roll(6) {
        0 | 1 => {
            use AttachmentPhase::{Attached, Detached, Failed, Ready, Releasing};
            let phase = dice.pick(&[Attached, Ready, Releasing, Detached, Failed]);
            let is_used = dice.one_in(2);
            scene.attach(device, phase, |it| (it.spec.manager, it.status.used) = (manager, is_used));
        }
        2 => drop(Arc::make_mut(&mut scene.objects).attachments.remove(&name(device))),
        3 => scene.claim_in(&pool, device, None),
        4 => {
            let key = ObjectKey::new("default", &format!("c{device}"));
            FabricObjects::forget_claim(&mut scene.objects, &key);
        }
        _ => {
            let hold = PooledHold { node: "n0".to_owned(), pool, device: name(device), value: "v".to_owned() };
            let holds = &mut Arc::make_mut(&mut scene.objects).holds;
            match holds.iter().position(|it| *it == hold) {
                Some(at) => drop(holds.remove(at)),
                None => holds.push(hold),
            }
        }
    }
}

#[test]
fn pools_that_are_not_to_be_offered_anew_would_be_offered_as_they_are() {
    let (mut same, mut others) = (0, 0);
    for seed in seeds(0..100) {
        let (mut scene, mut dice) = (scene(), Dice::new(seed));
        for _ in 0..20 {
            if dice.one_in(3) {
                scene.publish();
            }
            let (objects, (offer, before)) = (scene.objects.clone(), scene.offered());
            change(&mut scene, &mut dice);
            let (offer_now, now) = scene.offered();
            let inventories = scene.inventories();
            let read = inventories.iter().map(|(name, it)| (*name, it));
            let outdated = outdated_pools(objects.offered_otherwise(&scene.objects), read);
            for pool in POOLS {
                let [before, now] = [before.get(pool), now.get(pool)].map(|it| format!("{it:?}"));
                let is_other = before != now;
                assert!(!is_other || outdated.contains(pool), "{pool} is another one: {before} {now}");
                (same, others) = (same + i32::from(!outdated.contains(pool)), others + i32::from(is_other));
            }
            assert_eq!(offer_now.contradictions, offer.contradictions);
        }
    }
    assert!(same > 2000 && others > 200, "{same} pools were the same, and {others} others");
}
