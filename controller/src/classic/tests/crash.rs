//! A whole life of claims, with something going wrong at every single write.

use hostler_api::classic::ClassicVersion;

use super::world::World;
use crate::testkit::{Dice, Fate};

/// Two pods with two claims of their own and one in common come, run and go. Says how many writes that took.
fn life(version: ClassicVersion, fates: &[(usize, Fate)]) -> usize {
    let mut world = World::new(version);
    world.fates.extend(fates.iter().copied());
    world.node("a", 3);
    world.node("b", 3);
    for claim in ["one", "two", "shared"] {
        world.claim(claim, 1);
    }
    world.pod("p", &["one", "shared"]);
    world.pod("q", &["two", "shared"]);
    assert_eq!(world.run(&mut Dice::new(7)).len(), 2, "{fates:?}");
    world.server.delete("pods", "default", "p");
    world.control();
    world.settle();
    world.server.delete("resourceclaims", "default", "one");
    world.server.delete("resourceclaims", "default", "shared");
    world.settle();
    world.check();
    world.server.delete("pods", "default", "q");
    world.control();
    world.settle();
    assert!(world.get_claim("one").is_none() && world.get_claim("shared").is_none(), "{fates:?}");
    assert!(world.devices("two").is_none(), "{fates:?}");
    let writes = world.writes.len();
    world.check_rest();
    assert!(world.grants().is_empty(), "{fates:?}");
    writes
}

#[test]
fn whatever_happens_at_any_write_nothing_is_lost_doubled_or_left_behind() {
    for version in ClassicVersion::ALL {
        let writes = life(version, &[]);
        assert!(writes >= 15, "{writes}");
        for at in 0..writes {
            for fate in Fate::ALL.into_iter().filter(|it| *it != Fate::Refuse) {
                life(version, &[(at, fate)]);
            }
        }
    }
}

/// A second death long after the first one is as a first one.
#[test]
fn two_deaths_at_any_two_writes_do_no_harm() {
    let version = ClassicVersion::V1Alpha3;
    for first in 0..life(version, &[]) {
        for second in first + 1..first + 7 {
            for fates in [[Fate::DieAfter, Fate::DieBefore], [Fate::DieBefore, Fate::DieAfter], [Fate::DieAfter; 2]] {
                life(version, &[(first, fates[0]), (second, fates[1])]);
            }
        }
    }
}

#[test]
fn a_grant_of_a_claim_that_was_not_heard_of_yet_is_left_alone() {
    for mut world in ClassicVersion::ALL.map(World::new) {
        world.node("a", 1);
        world.settle();
        world.begin_rival();
        world.swap();
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a"]);
        world.settle();
        let (grants, writes) = (world.grants(), world.writes.len());
        assert_eq!(grants.len(), 1);
        world.swap();
        for _ in 0..20 {
            world.deliver_of("nodehardware");
            while world.execute_next(0) {}
        }
        assert_eq!((world.grants(), world.writes.len()), (grants, writes), "it is asked for, and there it is");
        world.settle();
        world.rival = None;
        world.check_rest();
    }
}
