//! Amounts of memory: made with the attachment, given back when no data of a tenant are in them, and never by a late call.

use std::sync::Arc;

use hostler_api::{
    Quantity,
    fabric::{AttachmentPhase as Phase, NodeDeviceState as State},
};
use hostler_fabric::{AttachKey, FabricOutcome, Provider, fake::FakeFabric};

use super::{
    super::{
        after_call::{CallEnd, after_call},
        context::{AttachmentContext, AttachmentStep, HostFact, ManagerAnswer, ManagerCall},
        decide::decide,
        freed::FreedMemory,
        reconciler::ask,
    },
    random::{DEVICES, NODES, rest, rounds, step},
    table::{attachment, claim, cx, released, reports, spec, status},
    world::{FabricWorld, WorldSeen},
};
use crate::{
    fabric::board::{FabricReadings, ManagerReading},
    testkit::{Dice, RandomLife, expect_enough, live, seeds},
};

const GIB: u64 = 1 << 30;

fn gib(amount: u64) -> Option<Quantity> {
    Some(Quantity::whole(amount * GIB))
}

fn key() -> AttachKey {
    AttachKey::new("u-0").unwrap()
}

fn free() -> AttachmentStep {
    AttachmentStep::Call(ManagerCall::Free { device: FakeFabric::device(0), key: key() })
}

/// No node has the device, and its manager shows memory that was made for it.
fn with_memory(change: impl FnOnce(&mut AttachmentContext)) -> AttachmentContext {
    released(Phase::Detached, |cx| {
        cx.made_memory = Some(key());
        change(cx);
    })
}

#[test]
fn the_amount_of_a_claim_goes_through_the_object_to_the_manager() {
    let mut first = cx(None);
    first.claims[0].memory = gib(64);
    let made = spec(decide(&first));
    assert_eq!(made.memory, gib(64));
    let mut attaching = cx(Some(Phase::Attaching));
    attachment(&mut attaching).spec.memory = gib(64);
    let AttachmentStep::Call(ManagerCall::Attach(request)) = decide(&attaching) else { panic!("it is not attached") };
    assert_eq!(request.memory, Some(64 * GIB));
    let mut next = released(Phase::Detached, |cx| cx.claims = vec![claim("d")]);
    assert_eq!(spec(decide(&next)).memory, None, "the claim before asked for something else");
    next.claims[0].memory = gib(1);
    assert_eq!(spec(decide(&next)).memory, gib(1));
}

#[test]
fn memory_is_given_back_before_anything_else_once_no_data_are_in_it() {
    assert_eq!(decide(&with_memory(|_| {})), free());
    let before_the_next = with_memory(|cx| cx.claims = vec![claim("d")]);
    assert_eq!(decide(&before_the_next), free());
    let holds_data = with_memory(|cx| attachment(cx).status.used = true);
    assert_eq!(decide(&holds_data), AttachmentStep::Rest);
    let erased_next = with_memory(|cx| {
        attachment(cx).status.used = true;
        cx.claims = vec![claim("d")];
    });
    assert!(spec(decide(&erased_next)).erase, "the memory stays with the device until a node has erased it");
    let on_the_way = released(Phase::Detaching, |cx| {
        cx.made_memory = Some(key());
        reports(cx, State::Released, None);
    });
    assert!(matches!(decide(&on_the_way), AttachmentStep::Call(ManagerCall::Detach(_))));
}

#[test]
fn what_is_given_back_is_forgotten_and_what_is_not_stands_in_the_status() {
    let mut cx = with_memory(|cx| cx.claims = vec![claim("d")]);
    let AttachmentStep::Call(call) = decide(&cx) else { panic!("no call") };
    let seen = cx.seen.clone().unwrap();
    let after = |answer| after_call(&cx, &seen, &call, ManagerAnswer::Undone(Ok(answer)));
    assert_eq!(after(FabricOutcome::Done(())), CallEnd::NotThere);
    let CallEnd::Write(write) = after(FabricOutcome::NotDone { reason: "it is in use".to_owned() }) else {
        panic!("nothing is noted")
    };
    let noted = status(AttachmentStep::Write(write));
    assert_eq!((noted.phase, &*noted.reason, &*noted.message), (Phase::Detached, "NotFreed", "it is in use"));
    cx.forget_shown(&call);
    assert_eq!(spec(decide(&cx)).attempt, 1);
}

/// A reading of the manager.
fn reading() -> FabricReadings {
    let provider = Arc::new(Provider::Fake(FakeFabric::shared(1, 1, GIB)));
    let reading = ManagerReading { provider, inventory: Some(Arc::default()), error: None };
    FabricReadings { managers: [("m".to_owned(), reading)].into(), ..FabricReadings::default() }
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_gone_is_not_given_back_again_as_long_as_an_older_inventory_shows_it() {
    let cx = with_memory(|_| {});
    let AttachmentStep::Call(call) = decide(&cx) else { panic!("no call") };
    let (before, later) = (reading(), reading());
    assert!(FreedMemory::of(&ManagerCall::Detach(key()), &cx, &before).is_none(), "nothing was freed");
    let freed = FreedMemory::of(&call, &cx, &before).unwrap();
    assert!(freed.is_gone(&cx, &before.clone()));
    assert!(!freed.is_gone(&cx, &later), "the manager shows it again");
    let next = with_memory(|cx| cx.made_memory = AttachKey::new("u-1").ok());
    assert!(!freed.is_gone(&next, &before), "the memory of the next attempt is another one");
    tokio::time::advance(cx.limits.late_call).await;
    assert!(!freed.is_gone(&cx, &before), "a late call may have made it again, so that the inventory is the same");
}

#[test]
fn a_device_is_not_to_blame_for_memory_that_others_were_given_first() {
    let fabric = FakeFabric::shared(2, 1, 2 * GIB);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut attaching = cx(Some(Phase::Attaching));
    attachment(&mut attaching).spec.memory = gib(3);
    let AttachmentStep::Call(call) = decide(&attaching) else { panic!("no call") };
    let answer = runtime.block_on(ask(&fabric, &call));
    let CallEnd::Write(write) = after_call(&attaching, attaching.seen.as_ref().unwrap(), &call, answer) else {
        panic!("nothing is written")
    };
    let failed = status(AttachmentStep::Write(write));
    assert_eq!((failed.phase, &*failed.reason, failed.failures), (Phase::Failed, "NoRoom", 0));
    assert!(failed.message.contains("2147483648 bytes of memory domain /memory/0 are free"), "{}", failed.message);
}

#[test]
fn memory_is_given_back_before_the_manager_is_asked_where_it_was_not_read_before() {
    let pending = |change: fn(&mut AttachmentContext)| {
        let mut cx = cx(Some(Phase::Pending));
        cx.made_memory = Some(key());
        change(&mut cx);
        decide(&cx)
    };
    assert_eq!(pending(|_| {}), free());
    assert_eq!(status(pending(|cx| attachment(cx).status.used = true)).phase, Phase::Attaching, "its node erases it");
    let unread = pending(|cx| {
        cx.made_memory = None;
        cx.nodes.get_mut("n1").unwrap().host = HostFact::Unread("it has not answered yet".to_owned());
    });
    assert!(matches!(unread, AttachmentStep::Until(_)), "{unread:?}");
}

struct AmountChaos {
    world: FabricWorld,
    dice: Dice,
}

impl RandomLife for AmountChaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn check(&mut self) {
        self.world.check();
    }

    fn step(&mut self) {
        let Self { world, dice } = self;
        world.amount = gib(1 + dice.roll(6) as u64).filter(|_| !dice.one_in(8));
        step(world, dice, false);
    }
}

fn lives(seed: u64, seen: WorldSeen) -> WorldSeen {
    let mut world = FabricWorld::of(FakeFabric::shared(NODES, DEVICES, 12 * GIB), NODES, DEVICES);
    world.seen = seen;
    let mut chaos = AmountChaos { world, dice: Dice::new(seed) };
    live(&mut chaos, 160);
    let AmountChaos { mut world, mut dice } = chaos;
    world.fates.clear();
    world.finish_work(&mut dice);
    for node in 0..NODES {
        if !world.machines[node as usize].is_on {
            world.switch(node);
        }
    }
    // What holds data of the lives before is erased for small claims first.
    for amount in [1, 4] {
        world.amount = gib(amount);
        rest(&mut world, &mut dice);
        (0..DEVICES).for_each(|_| world.pod());
        rounds(&mut world, &mut dice, 8, 35);
    }
    let running = world.machines.iter().map(|it| it.containers.len()).sum::<usize>();
    assert_eq!(running, DEVICES as usize, "memory was lost: {}", world.told());
    rest(&mut world, &mut dice);
    assert!(world.server.attachments.is_empty(), "an attachment is left: {}", world.told());
    assert!(world.made_memory().is_empty(), "memory was not given back: {}", world.told());
    world.seen.clone()
}

#[test]
fn in_any_order_memory_that_holds_data_is_never_given_back_and_none_is_lost() {
    let seen = seeds(0..150).fold(WorldSeen::default(), |seen, seed| lives(seed, seen));
    let is_enough =
        seen.bound > 200 && seen.failed > 20 && seen.isolated > 20 && seen.late_calls > 50 && seen.given_back > 200;
    expect_enough(is_enough, &seen);
}
