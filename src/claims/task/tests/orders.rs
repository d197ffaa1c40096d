//! An operator's orders beside claims.

use hostler_api::DeviceName;
use hostler_backend::{DeviceOperation, OperationStep};

use super::*;

fn order(device: &str) -> (ClaimsRequest, oneshot::Receiver<ClaimResult<OperationOutcome>>) {
    let (answer_tx, answer_rx) = oneshot::channel();
    let device = DeviceName::new(device).unwrap();
    let call = owner::OperateCall { backend: backend_name(), device, operation: DeviceOperation::Attach, answer_tx };
    (ClaimsRequest::Operate(call), answer_rx)
}

async fn operate(handle: &ClaimsHandle, device: &str) -> Result<OperationOutcome, String> {
    let detach = DeviceOperation::Detach { sanitize: false, remove: true };
    let answer = handle.operate(backend_name(), DeviceName::new(device).unwrap(), detach).await;
    answer.map_err(|error| hostler_api::Chain(&*error).to_string())
}

/// Calls without waiting, so that what comes next is behind it.
async fn call(handle: &ClaimsHandle, uid: &ClaimUid, kind: CallKind) -> CallAnswers {
    let mut answers = CallAnswers::new();
    let call = answers.call(uid.clone(), kind);
    handle.send(ClaimsRequest::Calls(vec![call])).await;
    answers
}

async fn ask_prepare(handle: &ClaimsHandle, claim: &ClaimRef, device: &str) -> CallAnswers {
    let kind = CallKind::Prepare { claim: claim.clone(), allocation: Some(allocation(&[grant(device)])) };
    call(handle, &claim.uid, kind).await
}

async fn answer(answers: CallAnswers) -> CallResult {
    answers.collect().await.into_values().next().unwrap()
}

#[tokio::test]
async fn an_order_is_carried_out_beside_what_claims_hold_of_the_backend() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    prepare(&handle, &world.allocate("a", &[grant("one")])).await.unwrap();
    let steps = operate(&handle, "two").await.unwrap().steps;
    let (region, cards) = ("two".to_owned(), vec!["name-a holds one".to_owned()]);
    assert_eq!(steps, [OperationStep::RegionDeleted { region, cards, memory: None, nodes: Vec::new() }]);
    let inventory = world.inventory().reader().latest();
    let (_, device) = inventory.find(POOL, "one").unwrap();
    assert_eq!(
        device.attributes.values().next(),
        Some(&"detach".into()),
        "the hardware is scanned when it is answered"
    );
    prepare(&handle, &world.allocate("b", &[grant("two")])).await.unwrap();
}

#[tokio::test]
async fn an_order_for_what_a_claim_holds_or_nobody_has_is_refused() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    prepare(&handle, &world.allocate("a", &[grant("one")])).await.unwrap();
    world.bench.steps();
    assert_eq!(
        operate(&handle, "one").await.unwrap_err(),
        "device one is already prepared for claim a (default/name-a)"
    );
    assert!(operate(&handle, "three").await.unwrap_err().starts_with("device three is not in pool node/bench"));
    assert_eq!(world.bench.steps(), [""; 0]);
    world.bench.fail("operate", true);
    let error = operate(&handle, "two").await.unwrap_err();
    assert_eq!(error, "failed to detach device two: operate is told to fail");
    // What came after a failed order is not kept waiting.
    unprepare(&handle, &claim("a")).await.unwrap();
}

#[tokio::test]
async fn claims_wait_for_an_order_and_for_the_look_at_what_it_has_changed() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let held = world.allocate("a", &[grant("one")]);
    prepare(&handle, &held).await.unwrap();
    world.bench.steps();
    let gate = world.gate("operate");
    let (request, answer_rx) = order("two");
    handle.send(request).await;
    let prepared = ask_prepare(&handle, &claim("b"), "two").await;
    let taken_back = call(&handle, &held.uid, CallKind::Unprepare).await;
    handle.ping().await;
    assert_eq!(world.bench.steps(), [""; 0]);
    drop(gate);
    answer_rx.await.unwrap().unwrap();
    handle.ping().await;
    assert_eq!(world.bench.steps(), ["operate two"]);
    handle.send(ClaimsRequest::Rescanned(backend_name())).await;
    answer(prepared).await.unwrap();
    answer(taken_back).await.unwrap();
    assert_eq!(world.bench.ready(), [("b".to_owned(), "two".to_owned())]);
}

#[tokio::test]
async fn an_order_waits_for_the_work_on_claims_and_comes_before_what_was_asked_later() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let gate = world.gate("prepare");
    let first_prepare = ask_prepare(&handle, &claim("a"), "one").await;
    let (first_order, first_answer_rx) = order("two");
    let (second_order, second_answer_rx) = order("many");
    handle.send(first_order).await;
    handle.send(second_order).await;
    let later = ask_prepare(&handle, &claim("b"), "two").await;
    handle.ping().await;
    drop(gate);
    answer(first_prepare).await.unwrap();
    first_answer_rx.await.unwrap().unwrap();
    handle.send(ClaimsRequest::Rescanned(backend_name())).await;
    second_answer_rx.await.unwrap().unwrap();
    handle.send(ClaimsRequest::Rescanned(backend_name())).await;
    answer(later).await.unwrap();
    let steps = world.bench.steps();
    let at = |step: &str| steps.iter().position(|other| other == step).unwrap();
    assert!(at("verify a") < at("operate two") && at("operate two") < at("operate many"), "{steps:?}");
    assert!(at("operate many") < at("plan b"), "{steps:?}");
}

#[tokio::test]
async fn a_daemon_that_stops_ends_the_order_under_way_and_tells_those_that_wait() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let gate = world.gate("operate");
    let (request, answer_rx) = order("two");
    handle.send(request).await;
    let (waiting, waiting_rx) = order("one");
    handle.send(waiting).await;
    handle.send(ClaimsRequest::Stop).await;
    drop(gate);
    assert!(answer_rx.await.unwrap().is_ok());
    assert!(waiting_rx.await.is_err());
}
