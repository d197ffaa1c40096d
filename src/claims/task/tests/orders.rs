//! An operator's orders beside claims.

use hostler_api::DeviceName;
use hostler_backend::{DeviceOperation, OperationOutcome, OperationStep};

use uuid::Uuid;

use super::{
    super::order::{OperateCall, OrderEnd, OrderNews, OrderNotice},
    *,
};

/// An order that the test moves on itself.
struct TestOrder {
    id: Uuid,
    stage_rx: watch::Receiver<OrderStage>,
    end_rx: oneshot::Receiver<OrderEnd>,
}

impl TestOrder {
    async fn give(handle: &ClaimsHandle, device: &str) -> Self {
        let (stage_tx, stage_rx) = watch::channel(OrderStage::Waiting(Vec::new()));
        let (end_tx, end_rx) = oneshot::channel();
        let (id, order) = (Uuid::new_v4(), device_order(device, Duration::from_secs(3600)));
        handle.send(ClaimsRequest::Operate(OperateCall::new(id, order, Arc::new(stage_tx), end_tx)));
        handle.ping().await;
        Self { id, stage_rx, end_rx }
    }

    async fn heed(&self, handle: &ClaimsHandle, news: OrderNews) {
        let notice = OrderNotice { backend: backend_name(), id: self.id, news };
        handle.send(ClaimsRequest::OrderNotice(notice));
        handle.ping().await;
    }

    /// What it waits for, in words.
    fn obstacles(&self) -> Vec<String> {
        match &*self.stage_rx.borrow() {
            OrderStage::Waiting(obstacles) => obstacles.iter().map(ToString::to_string).collect(),
            other => panic!("it does not wait: {other:?}"),
        }
    }

    async fn done(self) -> OperationOutcome {
        match self.end_rx.await.unwrap() {
            OrderEnd::Operated(result) => result.unwrap(),
            OrderEnd::Refused(error) => panic!("{error}"),
        }
    }

    async fn refused(self) -> String {
        match self.end_rx.await.unwrap() {
            OrderEnd::Refused(error) => error.to_string(),
            OrderEnd::Operated(result) => panic!("it was begun: {result:?}"),
        }
    }
}

fn device_order(device: &str, patience: Duration) -> DeviceOrder {
    let operation = DeviceOperation::Detach { sanitize: false, overwrite: false, remove: true };
    DeviceOrder { backend: backend_name(), device: DeviceName::new(device).unwrap(), operation, patience }
}

async fn operate(handle: &ClaimsHandle, device: &str) -> Result<OperationOutcome, String> {
    end(handle.order(device_order(device, Duration::from_secs(3600)))).await
}

async fn end(mut stage_rx: watch::Receiver<OrderStage>) -> Result<OperationOutcome, String> {
    let stage = stage_rx.wait_for(|stage| matches!(stage, OrderStage::Ended(_))).await.unwrap();
    let OrderStage::Ended(result) = &*stage else { panic!("{stage:?}") };
    result.clone().map_err(|error| hostler_api::Chain(&*error).to_string())
}

/// Calls without waiting, so that what comes next is behind it.
async fn call(handle: &ClaimsHandle, uid: &ClaimUid, kind: CallKind) -> CallAnswers {
    let mut answers = CallAnswers::new();
    let call = answers.call(uid.clone(), kind);
    handle.send(ClaimsRequest::Calls(vec![call]));
    answers
}

async fn ask_prepare(handle: &ClaimsHandle, claim: &ClaimRef, device: &str) -> CallAnswers {
    let kind = CallKind::Prepare { claim: claim.clone(), allocation: Some(allocation(&[grant(device)])) };
    call(handle, &claim.uid, kind).await
}

/// A claim whose prepare has come to a step that hangs until the first value is dropped.
async fn stuck(world: &ClaimsWorld, handle: &ClaimsHandle) -> (std::sync::mpsc::Sender<()>, CallAnswers) {
    let gate = world.gate("prepare");
    let answers = ask_prepare(handle, &claim("a"), "one").await;
    // Another claim that came first would hang in its place.
    while world.bench.gate.lock().unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    (gate, answers)
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
    world.bench.fail("orders", true);
    let error = operate(&handle, "one").await.unwrap_err();
    assert!(error.contains("one cannot be detached: devices of its kind are always attached"), "{error}");
    world.bench.fail("orders", false);
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
    let order = TestOrder::give(&handle, "two").await;
    let prepared = ask_prepare(&handle, &claim("b"), "two").await;
    let taken_back = call(&handle, &held.uid, CallKind::Unprepare).await;
    handle.ping().await;
    assert_eq!(world.bench.steps(), [""; 0]);
    drop(gate);
    order.done().await;
    handle.ping().await;
    assert_eq!(world.bench.steps(), ["operate two"]);
    handle.send(ClaimsRequest::Rescanned(backend_name()));
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
    let (first, second) = (TestOrder::give(&handle, "two").await, TestOrder::give(&handle, "many").await);
    assert!(first.obstacles()[0].starts_with("claim default/name-a (preparing since "), "{:?}", first.obstacles());
    assert_eq!(second.obstacles()[1..], ["the order to detach two"]);
    let later = ask_prepare(&handle, &claim("b"), "two").await;
    handle.ping().await;
    drop(gate);
    answer(first_prepare).await.unwrap();
    first.done().await;
    handle.send(ClaimsRequest::Rescanned(backend_name()));
    second.done().await;
    handle.send(ClaimsRequest::Rescanned(backend_name()));
    answer(later).await.unwrap();
    let steps = world.bench.steps();
    let at = |step: &str| steps.iter().position(|other| other == step).unwrap();
    assert!(at("verify a") < at("operate two") && at("operate two") < at("operate many"), "{steps:?}");
    assert!(at("operate many") < at("plan b"), "{steps:?}");
}

#[tokio::test]
async fn an_order_that_gives_up_names_what_it_waited_for_and_leaves_the_claims_to_themselves() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let (gate, stuck) = stuck(&world, &handle).await;
    let order = TestOrder::give(&handle, "two").await;
    let held_back = ask_prepare(&handle, &claim("b"), "two").await;
    handle.ping().await;
    assert!(!world.bench.steps().contains(&"plan b".to_owned()), "it is held back");
    order.heed(&handle, OrderNews::GiveUp(Duration::from_secs(60))).await;
    let error = order.refused().await;
    let expected = "gave up after 1m, before anything was changed: busy with claim default/name-a (preparing since 2";
    assert!(error.starts_with(expected), "{error}");
    answer(held_back).await.unwrap();
    drop(gate);
    answer(stuck).await.unwrap();
    assert!(!world.bench.steps().iter().any(|step| step.starts_with("operate")));
}

#[tokio::test]
async fn claims_pass_an_order_that_does_not_hold_them_back_and_it_has_its_turn_all_the_same() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let (gate, stuck) = stuck(&world, &handle).await;
    let order = TestOrder::give(&handle, "two").await;
    let passing = ask_prepare(&handle, &claim("b"), "two").await;
    order.heed(&handle, OrderNews::Pass).await;
    answer(passing).await.unwrap();
    unprepare(&handle, &claim("b")).await.unwrap();
    order.heed(&handle, OrderNews::Hold).await;
    let held_back = ask_prepare(&handle, &claim("c"), "two").await;
    drop(gate);
    answer(stuck).await.unwrap();
    order.done().await;
    handle.ping().await;
    assert!(!world.bench.steps().contains(&"plan c".to_owned()));
    handle.send(ClaimsRequest::Rescanned(backend_name()));
    answer(held_back).await.unwrap();
}

#[tokio::test]
async fn an_order_is_withdrawn_when_nobody_waits_for_it_unless_it_is_under_way() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let (gate, stuck) = stuck(&world, &handle).await;
    drop(handle.order(device_order("two", Duration::from_secs(3600))));
    // This one is held back by the order, and goes on only because that is gone: the first claim is still stuck.
    answer(ask_prepare(&handle, &claim("b"), "two").await).await.unwrap();
    unprepare(&handle, &claim("b")).await.unwrap();
    drop(gate);
    answer(stuck).await.unwrap();
    assert!(!world.bench.steps().iter().any(|step| step.starts_with("operate")));

    let gate = world.gate("operate");
    let mut stage_rx = handle.order(device_order("two", Duration::from_secs(3600)));
    stage_rx.wait_for(|stage| matches!(stage, OrderStage::UnderWay)).await.unwrap();
    drop(stage_rx);
    let behind = ask_prepare(&handle, &claim("b"), "two").await;
    drop(gate);
    answer(behind).await.unwrap();
    let steps = world.bench.steps();
    let at = |step: &str| steps.iter().position(|other| other == step).unwrap();
    assert!(at("operate two") < at("plan b"), "{steps:?}");
}

#[tokio::test]
async fn an_order_behind_another_one_can_give_up_and_be_withdrawn() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let gate = world.gate("operate");
    let first = TestOrder::give(&handle, "two").await;
    let (second, third) = (TestOrder::give(&handle, "one").await, TestOrder::give(&handle, "many").await);
    assert_eq!(second.obstacles(), ["the order to detach two"]);
    assert_eq!(third.obstacles(), ["the order to detach two", "the order to detach one"]);
    first.heed(&handle, OrderNews::GiveUp(Duration::from_secs(1))).await;
    second.heed(&handle, OrderNews::GiveUp(Duration::from_secs(1))).await;
    third.heed(&handle, OrderNews::Withdraw).await;
    let waited = "gave up after 1s, before anything was changed: busy with the order to detach two";
    assert_eq!(second.refused().await, waited);
    assert_eq!(third.refused().await, "the order was withdrawn before anything was changed");
    drop(gate);
    first.done().await;
    handle.send(ClaimsRequest::Rescanned(backend_name()));
    prepare(&handle, &world.allocate("a", &[grant("one")])).await.unwrap();
    assert_eq!(world.bench.steps().iter().filter(|step| step.starts_with("operate")).count(), 1);
}

#[tokio::test]
async fn an_order_whose_time_is_over_ends_by_itself() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let (gate, stuck) = stuck(&world, &handle).await;
    let error = end(handle.order(device_order("two", Duration::from_millis(20)))).await.unwrap_err();
    assert!(error.starts_with("gave up after 20ms, before anything was changed: busy with claim "), "{error}");
    drop(gate);
    answer(stuck).await.unwrap();
}

#[tokio::test]
async fn a_daemon_that_stops_ends_the_order_under_way_and_tells_those_that_wait() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let gate = world.gate("operate");
    let order = TestOrder::give(&handle, "two").await;
    let waiting = TestOrder::give(&handle, "one").await;
    handle.send(ClaimsRequest::Stop);
    drop(gate);
    order.done().await;
    assert!(waiting.end_rx.await.is_err());
}

#[tokio::test]
async fn an_order_that_waits_when_the_daemon_stops_is_not_begun() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    let gate = world.gate("verify");
    let (prepared, order) = tokio::join!(prepare(&handle, &claim), async {
        let mut table = handle.table();
        table.wait_for(|table| table.claims.contains_key(&uid("a"))).await.unwrap();
        let order = TestOrder::give(&handle, "two").await;
        assert_eq!(order.obstacles().len(), 1);
        handle.send(ClaimsRequest::Stop);
        drop(gate);
        order
    });
    prepared.unwrap();
    order.end_rx.await.unwrap_err();
    let steps = world.bench.steps();
    assert!(!steps.iter().any(|step| step.starts_with("operate")), "{steps:?}");
}
