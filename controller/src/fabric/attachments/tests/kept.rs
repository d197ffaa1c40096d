//! Each line of the table about devices that Reservations keep.

use std::time::Duration;

use hostler_api::fabric::{
    AttachmentKeeper, AttachmentPhase as Phase, ErasureMethod, FabricAttachmentSpec, NodeDeviceState as State,
    fabric_pool,
};
use hostler_cluster::since_1970;

use super::{
    super::{
        claim::ClaimNews,
        context::{AttachmentContext, AttachmentStep, ManagerCall},
        decide::decide,
    },
    table::{ALLOCATED, SECOND, attachment, claim, cx, news, reports, spec, status, with},
};
use crate::fabric::keepers::DeviceKeeper;

fn keeper() -> AttachmentKeeper {
    AttachmentKeeper { name: "r".to_owned(), uid: "uid-of-r".to_owned() }
}

fn kept(node: &str) -> DeviceKeeper {
    DeviceKeeper { keeper: keeper(), pool: fabric_pool("m", "d"), node: node.to_owned(), memory: None, is_wanted: true }
}

/// A Reservation keeps the device for its node, no claim has it, and the attachment has this phase.
fn keeping(phase: Phase, change: impl FnOnce(&mut AttachmentContext)) -> AttachmentContext {
    with(phase, |cx| {
        cx.claims.clear();
        cx.kept = Some(kept("n1"));
        let spec = &mut attachment(cx).spec;
        (spec.claim, spec.kept_for) = (None, Some(keeper()));
        change(cx);
    })
}

#[test]
fn a_device_that_is_kept_is_attached_without_a_claim() {
    let mut first = cx(None);
    (first.claims, first.kept) = (Vec::new(), Some(kept("n1")));
    let made = spec(decide(&first));
    assert_eq!((&*made.node_name, made.claim, made.kept_for), ("n1", None, Some(keeper())));
    first.kept = Some(DeviceKeeper { is_wanted: false, ..kept("n1") });
    assert_eq!(decide(&first), AttachmentStep::Rest, "one of its devices is not closed to others yet");

    let pending = keeping(Phase::Pending, |_| {});
    let asked = status(decide(&pending));
    let deadline = asked.deadline.as_deref().and_then(since_1970).unwrap_or(Duration::ZERO);
    assert_eq!((asked.phase, deadline), (Phase::Attaching, pending.now + 480 * SECOND), "no claim has a time");
    let attaching = keeping(Phase::Attaching, |_| {});
    assert!(matches!(decide(&attaching), AttachmentStep::Call(ManagerCall::Attach(_))));
    let ready = keeping(Phase::Attached, |cx| reports(cx, State::Ready, None));
    let ready = status(decide(&ready));
    assert_eq!((ready.phase, ready.used), (Phase::Ready, false));
    assert_eq!(decide(&keeping(Phase::Ready, |_| {})), AttachmentStep::Rest);
}

#[test]
fn a_kept_device_is_given_to_a_claim_in_the_same_attempt() {
    for phase in [Phase::Pending, Phase::Attaching, Phase::Attached, Phase::Ready] {
        let given = spec(decide(&keeping(phase, |cx| cx.claims = vec![claim("c")])));
        assert_eq!((given.claim, given.attempt, given.release), (Some(claim("c").named()), 0, false), "{phase:?}");
        assert_eq!(given.kept_for, Some(keeper()));
    }
    // A container may use the device as soon as the claim is told: that is written first.
    let taken = keeping(Phase::Ready, |cx| {
        cx.claims = vec![claim("c")];
        attachment(cx).spec.claim = Some(claim("c").named());
    });
    let used = status(decide(&taken));
    assert_eq!((used.phase, used.used), (Phase::Ready, true));
    let mut told = taken;
    attachment(&mut told).status = used;
    assert_eq!(news(decide(&told)), ClaimNews::Attached);
}

#[test]
fn a_claim_that_goes_before_it_was_told_leaves_the_device_and_one_that_was_told_has_it_erased() {
    let gone = |used: bool| {
        keeping(Phase::Ready, |cx| {
            attachment(cx).spec.claim = Some(claim("c").named());
            attachment(cx).status.used = used;
        })
    };
    let left = spec(decide(&gone(false)));
    assert_eq!((left.claim, left.release, left.attempt), (None, false, 0));
    let released = spec(decide(&gone(true)));
    assert!(released.release);
    let detached = keeping(Phase::Detached, |cx| {
        attachment(cx).spec.release = true;
        attachment(cx).status.used = true;
    });
    let next = spec(decide(&detached));
    assert_eq!((next.attempt, next.erase, next.release), (1, true, false));
    assert_eq!((next.claim, next.kept_for), (None, Some(keeper())));
    // That it was used before does not end the attempt that erases it.
    let erasing = keeping(Phase::Attached, |cx| {
        attachment(cx).spec.erase = true;
        attachment(cx).status.used = true;
        reports(cx, State::Ready, Some(ErasureMethod::Sanitize));
    });
    let ready = status(decide(&erasing));
    assert_eq!((ready.phase, ready.used), (Phase::Ready, false));
}

#[test]
fn a_device_is_let_go_when_it_is_not_kept_for_this_node_any_more() {
    let others: [fn(&mut AttachmentContext); 5] = [
        |cx| cx.kept = None,
        |cx| cx.kept = Some(kept("n2")),
        |cx| cx.kept.as_mut().unwrap().keeper.uid = "another".to_owned(),
        |cx| cx.nodes.get_mut("n1").unwrap().exists = false,
        |cx| attachment(cx).metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned()),
    ];
    for change in others {
        let let_go = spec(decide(&keeping(Phase::Ready, change)));
        assert!(let_go.release);
    }
    // One that is still being attached is waited for: the node must not say too early that it has let go.
    let attaching = keeping(Phase::Attaching, |cx| cx.kept = None);
    assert!(matches!(decide(&attaching), AttachmentStep::Call(ManagerCall::Settle(_))));
    // What is on its way stays where only another device of the Reservation is not closed for a moment.
    let stays = keeping(Phase::Ready, |cx| cx.kept.as_mut().unwrap().is_wanted = false);
    assert_eq!(decide(&stays), AttachmentStep::Rest);
}

#[test]
fn an_owner_on_another_node_gets_the_device_there() {
    let mut elsewhere = claim("c");
    elsewhere.node = Some("n2".to_owned());
    let cx = keeping(Phase::Ready, |cx| cx.claims = vec![elsewhere.clone()]);
    let ClaimNews::Waits { message, .. } = news(decide(&cx)) else { panic!("the claim is not told to wait") };
    assert!(message.contains("Ready on node \"n1\""), "{message}");
    let told = keeping(Phase::Ready, |cx| {
        let waits = elsewhere.with(ClaimNews::Waits { reason: "Releasing", message }, "2026-01-01T00:00:00Z");
        elsewhere.told = waits.devices;
        cx.claims = vec![elsewhere.clone()];
    });
    assert!(spec(decide(&told)).release, "it is let go here");
    let free = with(Phase::Detached, |cx| {
        cx.claims = vec![elsewhere];
        cx.kept = Some(kept("n1"));
        attachment(cx).spec = FabricAttachmentSpec {
            release: true,
            claim: None,
            kept_for: Some(keeper()),
            ..attachment(cx).spec.clone()
        };
    });
    let next = spec(decide(&free));
    assert_eq!((&*next.node_name, next.attempt, next.kept_for), ("n2", 1, None));
}

#[test]
fn a_kept_device_that_is_not_in_order_any_more_fails() {
    for state in [State::Found, State::Absent] {
        let failed = status(decide(&keeping(Phase::Ready, |cx| reports(cx, state, None))));
        assert_eq!((failed.phase, &*failed.reason), (Phase::Failed, "NotReady"));
    }
    let ready = keeping(Phase::Ready, |cx| reports(cx, State::Ready, None));
    assert_eq!(decide(&ready), AttachmentStep::Rest);
}

#[test]
fn a_failed_device_is_let_go_and_tried_again_after_its_pause() {
    let failed = keeping(Phase::Failed, |_| {});
    assert!(matches!(decide(&failed), AttachmentStep::Call(ManagerCall::Settle(_))));
    let later = ALLOCATED + 60 * SECOND;
    let detached = keeping(Phase::Detached, |cx| {
        attachment(cx).spec.release = true;
        attachment(cx).status.retry_at = Some(super::super::status::time(later));
    });
    assert_eq!(decide(&detached), AttachmentStep::Until(later));
}
