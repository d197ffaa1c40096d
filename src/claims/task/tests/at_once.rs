//! Several callers at once.

use super::*;

/// Waits until work has come to the gate.
async fn at_gate(world: &ClaimsWorld) {
    while world.bench.gate.lock().unwrap().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn two_claims_prepared_at_once_do_not_wait_for_each_others_hardware() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let (slow, fast) = (world.allocate("a", &[grant("one")]), world.allocate("b", &[grant("two")]));
    let gate = world.gate("prepare");
    let (slow, ()) = tokio::join!(prepare(&handle, &slow), async {
        at_gate(&world).await;
        prepare(&handle, &fast).await.unwrap();
        unprepare(&handle, &fast).await.unwrap();
        drop(gate);
    });
    slow.unwrap();
    assert_eq!(world.bench.ready(), [("a".to_owned(), "one".to_owned())]);
}

#[tokio::test]
async fn a_claim_that_is_worked_on_for_long_is_in_the_table_before_its_answer() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    let gate = world.gate("verify");
    let (prepared, ()) = tokio::join!(prepare(&handle, &claim), async {
        let is_busy = |table: &Arc<ClaimTable>| table.claims.get(&uid("a")).and_then(ClaimView::busy).is_some();
        handle.table().wait_for(is_busy).await.unwrap();
        drop(gate);
    });
    prepared.unwrap();
}

/// Ten claims that share a device, over and over, from threads of the runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_at_once_are_all_answered_and_no_claim_is_worked_on_twice_at_a_time() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claims: Vec<ClaimRef> =
        (0..10).map(|number| world.allocate(&format!("c{number}"), &[part("many", 1)])).collect();
    let (tasks, _ended_rx) = Tasks::new();
    let callers = claims.iter().flat_map(|claim| [claim.clone(), claim.clone()]).map(|claim| {
        let handle = handle.clone();
        tasks.job(async move {
            for _ in 0..20 {
                // The other caller may take the claim back before it is read.
                match prepare(&handle, &claim).await {
                    Err(error) => assert!(error.contains("was taken back in the meantime"), "{error}"),
                    Ok(devices) => assert_eq!(devices.len(), 1),
                }
                unprepare(&handle, &claim).await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert!(world.files("claims").is_empty() && world.files("cdi").is_empty() && world.bench.ready().is_empty());
    assert!(handle.table().borrow().claims.is_empty());
    let steps = world.bench.steps();
    for claim in &claims {
        let own = steps.iter().filter_map(|step| step.strip_suffix(&format!(" {}", claim.uid)));
        let mut is_ready = false;
        for step in own {
            match step {
                "plan" | "prepare" => assert!(!is_ready, "{steps:?}"),
                "unprepare" => is_ready = false,
                _ => is_ready = true,
            }
        }
        assert!(!is_ready);
    }
}

#[tokio::test]
async fn a_stop_waits_for_work_that_is_under_way_and_refuses_what_comes_later() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let (first, later) = (world.allocate("a", &[grant("one")]), world.allocate("b", &[grant("two")]));
    let gate = world.gate("prepare");
    let (prepared, ()) = tokio::join!(prepare(&handle, &first), async {
        at_gate(&world).await;
        handle.send(ClaimsRequest::Stop);
        assert_eq!(prepare(&handle, &later).await.unwrap_err(), "the daemon is stopping; try again");
        drop(gate);
    });
    prepared.unwrap();
    assert_eq!(prepare(&handle, &later).await.unwrap_err(), "the daemon is stopping; try again");
    assert_eq!(unprepare(&handle, &first).await.unwrap_err(), "the daemon is stopping; try again");
    assert_eq!(world.files("claims"), ["a.json"]);
}

#[tokio::test]
async fn a_claim_that_is_forgotten_twice_at_once_is_set_aside_once() {
    let world = ClaimsWorld::new();
    let claim = world.allocate("bad", &[grant("one")]);
    prepare(&world.start().await, &claim).await.unwrap();
    fs::write(world.temp.path().join("claims/bad.json"), "garbage").unwrap();
    let handle = world.start().await;
    let (one, two) = tokio::join!(handle.forget(uid("bad")), handle.forget(uid("bad")));
    one.unwrap();
    assert!(two.is_ok() || matches!(*two.unwrap_err(), ClaimError::NotQuarantined(_)));
    assert_eq!((world.files("forgotten"), world.files("cdi").len()), (vec!["bad.json".to_owned()], 0));
    prepare(&handle, &claim).await.unwrap();
}
