//! Requests as Kueue writes them, and what it makes of the answers.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::provisioning::ProvisioningConditionType as Type;
use serde_json::json;

use super::world::{CLASS, ModelServer, World, key};

/// What Kueue makes of a request for a workload that waits for its check.
#[derive(Debug, Eq, PartialEq)]
enum CheckState {
    /// With the message that users see in their workload.
    Pending(String),
    Ready,
    /// Another attempt follows.
    Retry,
}

/// Kueue's rules, in its order.
fn check_state(world: &World, request: &str) -> CheckState {
    let is = |kind| world.server.request(request).status.is(kind);
    let provisioned = world.condition(request, Type::Provisioned);
    match provisioned {
        _ if is(Type::Failed) || is(Type::BookingExpired) => CheckState::Retry,
        Some(condition) if condition.is_true() => CheckState::Ready,
        Some(condition) if is(Type::Accepted) => CheckState::Pending(condition.message.clone()),
        _ => CheckState::Pending(String::new()),
    }
}

/// The request of an attempt, and, after it, its template, as Kueue did for long; today the template comes first.
fn attempt(world: &mut World, number: usize, pods: i64) -> String {
    let name = format!("job-train-3f2c-prov-{number}");
    let template = format!("ppt-{name}-main");
    world.ask_for(&name, CLASS, &[(&template, pods)], &[("ValidUntilSeconds", "3600")]);
    world.settle();
    assert_eq!(check_state(world, &name), CheckState::Pending(String::new()));
    world.server.template(&template, &ModelServer::pod_spec("one"));
    world.settle();
    name
}

/// What Kueue writes into the pods of an admitted workload: the annotations, and node selectors with values of the details.
fn pod_set_update(
    world: &World,
    request: &str,
    selectors: &[(&str, &str)],
) -> (serde_json::Value, BTreeMap<String, String>) {
    let annotations = json!({
        "autoscaling.x-k8s.io/consume-provisioning-request": request,
        "autoscaling.x-k8s.io/provisioning-class-name": CLASS,
    });
    let value =
        |(label, detail): &(&str, &str)| Some(((*label).to_owned(), world.details(request).get(*detail)?.clone()));
    (annotations, selectors.iter().filter_map(value).collect())
}

/// 42
#[test]
fn a_workload_is_ready_when_there_is_room_and_its_pods_are_led_to_the_node() {
    let mut world = World::of(&[0, 4]);
    let request = attempt(&mut world, 1, 4);
    assert_eq!(check_state(&world, &request), CheckState::Ready);
    let (annotations, selector) = pod_set_update(&world, &request, &[("kubernetes.io/hostname", "node")]);
    assert_eq!(selector, [("kubernetes.io/hostname".to_owned(), "n1".to_owned())].into());
    for device in 0..4 {
        world.server.pod(&format!("train-{device}"), &annotations, Some(("n1", device)));
    }
    world.settle();
    assert_eq!(world.says(&request, Type::BookingExpired), "True CapacityBookingConsumed");
}

/// 42
#[test]
fn a_workload_that_waits_shows_why_and_its_next_attempt_is_a_request_of_its_own() {
    let mut world = World::of(&[1]);
    let first = attempt(&mut world, 1, 2);
    let CheckState::Pending(message) = check_state(&world, &first) else { panic!("{:?}", check_state(&world, &first)) };
    assert!(message.contains("0 of 2: ") || message.contains("1 of 2: "), "{message}");
    assert!(
        message.ends_with("it is looked for again when something gets free, at the latest every 10 min"),
        "{message}"
    );
    world.pass(Duration::from_secs(3600));
    assert_eq!(check_state(&world, &first), CheckState::Retry);
    // It keeps the old one until the workload is done.
    world.server.node("n1", 2);
    let second = attempt(&mut world, 2, 2);
    assert_eq!(check_state(&world, &second), CheckState::Ready);
    // Before its pods are admitted the booking is over: another attempt.
    world.pass(Duration::from_secs(600));
    assert_eq!(check_state(&world, &second), CheckState::Retry);
    let third = attempt(&mut world, 3, 2);
    assert_eq!(check_state(&world, &third), CheckState::Ready);
    assert!(world.server.objects.requests.contains_key(&key(&first)));
}
