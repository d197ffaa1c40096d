//! Each step of a connection that an operator had taken over.

use hostler_api::fabric::{
    AdoptedConnection, AttachmentPhase as Phase, ErasureMethod, FabricNodeReport, NodeDeviceState as State,
};
use hostler_fabric::{ExpectedConnection, FabricOutcome, Isolation, fake::FakeFabric};

use super::{
    super::{
        claim::ClaimNews,
        context::{
            AttachmentContext, AttachmentStep, AttachmentWrite, BoardDevice, ManagerAnswer, ManagerCall,
            OtherConnection, TwinAttachment,
        },
        decide::decide,
    },
    table::{SECOND, after, attachment, claim, news, reports, spec, status, status_after, unavailable, with},
};

const PATH: &str = "/fabric/connections/7";

fn other(host: u32) -> OtherConnection {
    OtherConnection { path: PATH.into(), host: FakeFabric::host(host), node: Some(format!("n{host}")) }
}

fn connection() -> AdoptedConnection {
    AdoptedConnection { path: PATH.to_owned(), host: FakeFabric::host(1).unwrap() }
}

/// A connection to node n1 that is to be taken over; no claim has the device.
fn adopting(change: impl FnOnce(&mut AttachmentContext)) -> AttachmentContext {
    with(Phase::Pending, |cx| {
        cx.claims.clear();
        attachment(cx).spec.claim = None;
        attachment(cx).spec.adopted = true;
        cx.board = Some(BoardDevice { trouble: None, others: vec![other(1)] });
        change(cx);
    })
}

/// It was taken over.
fn adopted(phase: Phase, change: impl FnOnce(&mut AttachmentContext)) -> AttachmentContext {
    adopting(|cx| {
        attachment(cx).status.phase = phase;
        attachment(cx).status.used = true;
        attachment(cx).status.deadline = None;
        attachment(cx).status.connection = Some(connection());
        change(cx);
    })
}

fn in_use(cx: &mut AttachmentContext) {
    let mut holder = claim("c");
    holder.told = holder.with(ClaimNews::Attached, "t").devices;
    attachment(cx).spec.claim = Some(holder.named());
    cx.claims = vec![holder];
}

fn isolation() -> AttachmentStep {
    let expected = vec![ExpectedConnection::Shown { path: PATH.into(), host: FakeFabric::host(1).unwrap() }];
    AttachmentStep::Call(ManagerCall::Isolate { device: FakeFabric::device(0), expected })
}

#[test]
fn a_connection_that_is_shown_to_the_node_is_taken_over_and_counts_as_used() {
    let taken = status(decide(&adopting(|_| {})));
    assert_eq!((taken.phase, &*taken.reason, taken.used), (Phase::Attached, "Adopted", true));
    assert_eq!((taken.connection, taken.deadline), (Some(connection()), None));
}

#[test]
fn what_cannot_be_taken_over_says_why_and_nothing_is_touched() {
    type Spoil = fn(&mut AttachmentContext);
    let cases: [(Spoil, &str); 7] = [
        (|cx| cx.board = None, "Unread"),
        (|cx| cx.board.as_mut().unwrap().trouble = Some("it is in 2 connections".to_owned()), "NotInOrder"),
        (|cx| cx.board.as_mut().unwrap().others.push(other(2)), "Several"),
        (|cx| cx.board.as_mut().unwrap().others = vec![other(2)], "OtherNode"),
        (|cx| cx.board.as_mut().unwrap().others[0].node = None, "NoNode"),
        (|cx| attachment(cx).spec.device = FakeFabric::device(7), "OtherDevice"),
        (
            |cx| {
                let node = "n1".to_owned();
                cx.twins.push(TwinAttachment { name: "twin".to_owned(), node, may_be_attached: true });
            },
            "SameSerial",
        ),
    ];
    for (spoil, reason) in cases {
        let mut cx = adopting(spoil);
        let said = status(decide(&cx));
        assert_eq!(
            (said.phase, &*said.reason, said.used, said.connection.clone()),
            (Phase::Pending, reason, false, None)
        );
        assert!(!said.message.is_empty(), "{reason}");
        attachment(&mut cx).status = said;
        assert_eq!(decide(&cx), AttachmentStep::Rest, "{reason}: it is said once");
        // A user who changes his mind deletes the object, and it goes at once.
        attachment(&mut cx).metadata.deletion_timestamp = Some("t".to_owned());
        assert_eq!(decide(&cx), AttachmentStep::Write(AttachmentWrite::Finalizer { is_wanted: false }), "{reason}");
        attachment(&mut cx).status.used = true;
        assert_eq!(decide(&cx), AttachmentStep::Rest, "{reason}: it remembers that the device holds data");
    }
}

#[test]
fn a_connection_that_is_gone_before_it_is_taken_over_leaves_the_device_free() {
    let gone = |cx: &mut AttachmentContext| cx.board.as_mut().unwrap().others.clear();
    let released = spec(decide(&adopting(gone)));
    assert!(released.release);
    let free = status(decide(&adopting(|cx| {
        gone(cx);
        attachment(cx).spec.release = true;
    })));
    assert_eq!((free.phase, free.used), (Phase::Detached, false));
    assert!(free.message.starts_with("nothing was taken over"), "{}", free.message);
}

#[test]
fn a_claim_that_uses_the_device_keeps_it_and_one_that_never_had_it_does_not_get_it() {
    // The command has not seen the claim.
    let named = spec(decide(&adopting(|cx| {
        in_use(cx);
        attachment(cx).spec.claim = None;
    })));
    assert_eq!((named.claim, named.attempt), (Some(claim("c").named()), 1));
    // It names one that waits for the device, or one that is gone.
    for claims in [vec![claim("c")], Vec::new()] {
        let unnamed = spec(decide(&adopting(|cx| {
            attachment(cx).spec.claim = Some(claim("c").named());
            cx.claims = claims;
        })));
        assert_eq!((unnamed.claim, unnamed.attempt), (None, 1));
    }
    assert_eq!(status(decide(&adopting(in_use))).phase, Phase::Attached);
    let waits = status(decide(&adopted(Phase::Attached, in_use)));
    assert_eq!((waits.phase, &*waits.reason), (Phase::Attached, "Adopted"), "no deadline fails it");
    let ready = status(decide(&adopted(Phase::Attached, |cx| {
        in_use(cx);
        reports(cx, State::Ready, None);
    })));
    assert_eq!((ready.phase, ready.used), (Phase::Ready, true));
    assert_eq!(decide(&adopted(Phase::Ready, in_use)), AttachmentStep::Rest);
    let late = adopted(Phase::Ready, |cx| {
        in_use(cx);
        cx.now += 100_000 * SECOND;
        cx.nodes.get_mut("n1").unwrap().exists = false;
    });
    assert_eq!(decide(&late), AttachmentStep::Rest, "pods of a node that is gone go first");
    let deleted = adopted(Phase::Ready, |cx| {
        in_use(cx);
        attachment(cx).metadata.deletion_timestamp = Some("t".to_owned());
    });
    assert!(matches!(news(decide(&deleted)), ClaimNews::Waits { reason: "AttachmentDeleted", .. }));
}

#[test]
fn a_device_that_no_claim_uses_is_let_go_of_by_its_node_before_its_connection_is_ended() {
    for phase in [Phase::Attached, Phase::Ready] {
        assert!(spec(decide(&adopted(phase, |_| {}))).release, "{phase:?}");
    }
    let releasing = |state: Option<State>, change: fn(&mut AttachmentContext)| {
        adopted(Phase::Releasing, |cx| {
            attachment(cx).spec.release = true;
            state.into_iter().for_each(|state| reports(cx, state, None));
            change(cx);
        })
    };
    assert_eq!(
        status(decide(&adopted(Phase::Attached, |cx| attachment(cx).spec.release = true))).phase,
        Phase::Releasing
    );
    for state in [State::Ready, State::Found, State::Releasing, State::Unknown] {
        assert_eq!(decide(&releasing(Some(state), |_| {})), AttachmentStep::Rest, "{state:?}");
    }
    // A daemon that is too old reports nothing: it is said, and nothing is taken from it.
    for state in [None, Some(State::Absent)] {
        let waits = status(decide(&releasing(state, |_| {})));
        assert_eq!((waits.phase, &*waits.reason), (Phase::Releasing, "Releasing"));
        assert!(waits.message.contains("node n1 is to report"), "{}", waits.message);
        let unread = status(decide(&releasing(state, |cx| cx.board = None)));
        assert_eq!(unread.phase, Phase::Releasing);
        let gone = status(decide(&releasing(state, |cx| cx.board.as_mut().unwrap().others.clear())));
        assert_eq!((gone.phase, gone.used, gone.connection), (Phase::Detached, true, None));
    }
    let detaching = status(decide(&releasing(Some(State::Released), |_| {})));
    assert_eq!((detaching.phase, detaching.used), (Phase::Detaching, true));
    let erased = releasing(None, |cx| reports(cx, State::Released, Some(ErasureMethod::Sanitize)));
    assert!(!status(decide(&erased)).used);
    let off = releasing(None, |cx| cx.nodes.get_mut("n1").unwrap().is_out_of_service = true);
    assert_eq!(decide(&off), isolation(), "the node is gone");
}

#[test]
fn only_the_connection_that_was_taken_over_is_ended() {
    let detaching = |state| {
        adopted(Phase::Detaching, |cx| {
            attachment(cx).spec.release = true;
            reports(cx, state, None);
            // Whatever the manager shows by now.
            cx.board = Some(BoardDevice { trouble: None, others: vec![other(2)] });
        })
    };
    assert_eq!(decide(&detaching(State::Released)), isolation());
    assert_eq!(status(decide(&detaching(State::Releasing))).phase, Phase::Releasing, "its kernel is a new one");
    let cx = detaching(State::Released);
    let removed = Isolation::Removed { connections: vec!["7".to_owned()] };
    let free = status_after(&cx, ManagerAnswer::Isolated(Ok(FabricOutcome::Done(removed))));
    assert_eq!((free.phase, free.connection, free.retry_at), (Phase::Detached, None, None));
    let kept = status_after(&cx, ManagerAnswer::Isolated(Ok(FabricOutcome::NotDone { reason: "no".to_owned() })));
    assert_eq!((kept.phase, &*kept.reason, kept.connection), (Phase::Detaching, "NotIsolated", Some(connection())));
    let unanswered = after(&cx, ManagerAnswer::Isolated(Err(unavailable())));
    assert!(!matches!(unanswered, super::super::after_call::CallEnd::NotThere), "{unanswered:?}");
}

#[test]
fn the_next_claim_gets_the_device_as_any_other_and_erased() {
    let next = spec(decide(&adopted(Phase::Detached, |cx| {
        attachment(cx).spec.release = true;
        cx.claims = vec![claim("next")];
    })));
    assert_eq!((next.adopted, next.erase, next.attempt), (false, true, 1));
    // An object that is there is used again: its own attempt begins anew.
    let again = status(decide(&adopted(Phase::Detached, |cx| attachment(cx).spec.attempt = 4)));
    assert_eq!(again.phase, Phase::Pending);
    let mut cx = adopted(Phase::Attached, in_use);
    attachment(&mut cx).status.node =
        Some(FabricNodeReport { attempt: 9, state: State::Ready, ..FabricNodeReport::default() });
    assert_eq!(status(decide(&cx)).phase, Phase::Attached, "a report on another attempt counts for nothing");
}

#[test]
fn a_claim_whose_object_was_lost_is_not_attached_anew_before_an_operator_says_so() {
    let mut cx = super::table::cx(None);
    cx.claims[0].told = claim("c").with(ClaimNews::Attached, "t").devices;
    assert_eq!(decide(&cx), AttachmentStep::Rest);
}
