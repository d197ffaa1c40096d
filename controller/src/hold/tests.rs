//! The core against a server with versions, node daemons that publish what is closed, kube-scheduler as it is, the controller
//! manager, users, and nodes that go. docs/reservations.md says which test is which scenario.

#![allow(clippy::needless_pass_by_value, reason = "values are made for the call")]

mod annotations;
mod attribute;
mod cluster;
mod conflicts;
mod crash;
mod descheduling;
mod evictions;
mod example;
mod expiry;
pub(crate) mod kept;
mod parts;
mod planned;
mod pooled;
mod preemption;
mod questions;
mod quotas;
mod random;
mod recorded;
mod rules;
mod scenarios;
mod server;
mod shares;
mod unreadable;
mod world;

/// Scenarios that are the same whatever closes devices: taints of our own daemon, an attribute, or rules.
const EVERYWHERE: [fn(); 23] = [
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
    scenarios::an_owner_that_goes_before_it_is_given_anything_changes_nothing,
    scenarios::an_owner_that_goes_while_it_is_handed_over_leaves_nothing_closed,
    conflicts::where_two_claims_have_a_device_it_stays_closed_until_both_are_gone,
    conflicts::what_two_claims_have_is_replaced_and_stays_closed,
    scenarios::devices_of_running_owners_are_kept_for_those_who_come_after_them,
    scenarios::what_a_reservation_keeps_is_taken_for_all_who_plan,
    scenarios::a_shared_device_is_kept_as_a_whole_or_not_at_all,
    shares::a_part_is_kept_and_the_rest_of_the_device_is_for_everybody,
    shares::an_owner_gets_the_part_and_nobody_else_in_between,
    shares::what_stands_for_parts_goes_with_the_reservation,
];
