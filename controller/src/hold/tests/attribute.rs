//! Where the API server knows no taints of devices, these are closed by an attribute that ordinary classes leave out. It does not say for
//! whom: whoever asks for a class that has them can have any. All else is as with taints, and so are the scenarios.

use hostler_api::reservation::ReservationPhase as Phase;

use super::{
    conflicts,
    crash::life,
    scenarios, shares,
    world::{DRIVER, Fate, World, by_attribute, wants},
};
use crate::hold::NodeFences;

#[test]
fn the_scenarios_are_the_same_where_an_attribute_closes_devices() {
    for scenario in [
        scenarios::a_reservation_becomes_available_with_devices_and_few_writes,
        scenarios::nothing_is_promised_before_every_claim_was_listed_after_the_settle_time,
        scenarios::without_capacity_it_is_pending_with_a_reason_and_available_when_there_is_some,
        scenarios::a_scheduler_gives_what_is_kept_to_those_who_tolerate_it_only,
        scenarios::what_an_owner_did_not_take_is_open_at_once_and_what_it_took_after_the_settle_time,
        scenarios::with_allocate_once_false_devices_come_back_when_their_owner_goes,
        scenarios::replicas_are_served_one_after_the_other_and_shrink_with_the_spec,
        scenarios::two_reservations_never_plan_the_same_device,
        scenarios::a_late_allocation_keeps_its_device_and_the_reservation_moves,
        scenarios::a_device_that_somebody_got_later_than_anybody_expects_is_lost_and_replaced,
        scenarios::a_thief_that_tolerates_everything_is_named,
        scenarios::a_device_that_stops_working_is_replaced,
        scenarios::a_slice_that_goes_is_waited_for_and_then_replaced,
        scenarios::slices_that_come_back_open_are_closed_before_anything_is_promised_again,
        scenarios::a_node_whose_daemon_does_not_answer_is_left_for_another,
        scenarios::an_owner_that_goes_before_it_is_given_anything_changes_nothing,
        scenarios::an_owner_that_goes_while_it_is_handed_over_leaves_nothing_closed,
        conflicts::where_two_claims_have_a_device_it_stays_closed_until_both_are_gone,
        conflicts::what_two_claims_have_is_replaced_and_stays_closed,
        scenarios::devices_of_running_owners_are_kept_for_those_who_come_after_them,
        shares::a_part_is_kept_and_the_rest_of_the_device_is_for_everybody,
        shares::an_owner_gets_the_part_and_nobody_else_in_between,
        shares::what_stands_for_parts_goes_with_the_reservation,
    ] {
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
        world.server.put_fences(NodeFences { fences: Vec::new(), ..told });
        world.settle();
        assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 1), "it was told again");
        world.daemons_down.clear();
        world.check_rest();
    });
}
