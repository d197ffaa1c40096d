//! Where the API server knows no taints of devices, these are closed by an attribute that ordinary classes leave out. It does not say for
//! whom: whoever asks for a class that has them can have any. All else is as with taints, and so are the scenarios.

use hostler_api::reservation::ReservationPhase as Phase;

use super::{
    EVERYWHERE,
    crash::life,
    scenarios,
    world::{DRIVER, World, by_attribute, wants},
};
use crate::{hold::NodeFences, testkit::Fate};

#[test]
fn the_scenarios_are_the_same_where_an_attribute_closes_devices() {
    for scenario in EVERYWHERE.into_iter().chain([
        scenarios::slices_that_come_back_open_are_closed_before_anything_is_promised_again,
        scenarios::a_node_whose_daemon_does_not_answer_is_left_for_another,
    ]) {
        by_attribute(scenario);
    }
}

#[test]
fn whatever_happens_at_any_write_nothing_that_an_attribute_closes_is_lost_or_kept_twice() {
    by_attribute(|| {
        for at in 0..life(DRIVER, &[]) {
            for fate in Fate::ALL {
                life(DRIVER, &[(at, fate)]);
            }
        }
    });
}

#[test]
fn whoever_asks_for_the_class_of_what_is_held_can_take_what_is_kept_for_another() {
    by_attribute(|| {
        let mut world = World::new(&[1]);
        world.reserve("r", wants(1, "web"));
        world.settle();
        world.pod("ordinary", "db", 1, "");
        assert!(!world.schedule("ordinary"));
        world.pod("owner-of-another", "db", 1, "value-of-another");
        assert!(world.schedule("owner-of-another"));
        world.settle();
        assert_eq!((world.phase("r"), world.reason("r")), (Phase::Pending, "Lost"));
        assert!(world.condition("r", "Ready").1.contains("owner-of-another"));
        world.check_rest();
    });
}

#[test]
fn an_attribute_is_about_whom_the_node_was_told_of() {
    by_attribute(|| {
        let mut world = World::new(&[1]);
        world.reserve("r", wants(1, "web"));
        world.settle();
        assert!(world.server.slices["a"].devices[0].is_held);
        let told = world.server.node_fences["a"].clone();
        world.daemons_down.insert("a".to_owned());
        world.server.put(NodeFences { fences: Vec::new(), ..told });
        world.settle();
        assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 1), "it was told again");
        world.daemons_down.clear();
        world.check_rest();
    });
}
