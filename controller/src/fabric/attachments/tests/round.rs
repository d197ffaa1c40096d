//! Steps that follow from one reading, and those that need another one.

use hostler_api::fabric::{AttachmentPhase as Phase, NodeDeviceState as State};

use super::{
    super::{
        context::{AnsweredWrite, AttachmentContext, AttachmentWrite, ManagerCall},
        round::{AttachmentRound, RoundStep},
    },
    table::{attachment, claim, cx, reports, with},
};

/// The attachment of a context, as the answer to a write returns it.
fn answer(mut cx: AttachmentContext, change: impl FnOnce(&mut AttachmentContext)) -> AnsweredWrite {
    change(&mut cx);
    AnsweredWrite::Attachment(Box::new(cx.seen.unwrap()))
}

fn is_status(step: &RoundStep, phase: Phase) -> bool {
    matches!(step, RoundStep::Write(AttachmentWrite::Status(status)) if status.phase == phase)
}

#[test]
fn writes_follow_each_other_and_a_call_follows_from_a_fresh_reading() {
    let mut round = AttachmentRound::new(cx(None));
    assert!(matches!(round.next(), RoundStep::Write(AttachmentWrite::Create(_))));
    assert!(round.take(answer(cx(Some(Phase::Pending)), |_| {})));
    assert!(is_status(&round.next(), Phase::Attaching), "{:?}", round.next());
    assert!(round.take(answer(cx(Some(Phase::Attaching)), |_| {})));
    assert_eq!(round.next(), RoundStep::ReadAnew, "another logical device of the same serial number may be attached");
    let fresh = AttachmentRound::new(cx(Some(Phase::Attaching)));
    assert!(matches!(fresh.next(), RoundStep::Call(ManagerCall::Attach(_))));
}

#[test]
fn the_claim_is_told_in_the_round_in_which_the_device_became_ready() {
    let mut round = AttachmentRound::new(with(Phase::Attached, |cx| reports(cx, State::Ready, None)));
    assert!(is_status(&round.next(), Phase::Ready));
    assert!(round.take(answer(cx(Some(Phase::Ready)), |cx| attachment(cx).status.used = true)));
    let RoundStep::Write(AttachmentWrite::Claim(told)) = round.next() else { panic!("{:?}", round.next()) };
    assert_eq!(told.version, "7");
    let mut known = claim("c");
    (known.version, known.told) = ("8".to_owned(), told.devices);
    assert!(round.take(AnsweredWrite::Claim(Some(Box::new(known)))));
    assert_eq!(round.next(), RoundStep::Rest);
    assert!(!round.take(AnsweredWrite::Claim(None)), "the claim has let go of the device meanwhile");
}

#[test]
fn after_a_call_nothing_is_done_on_what_was_read_before_it() {
    let mut round = AttachmentRound::new(cx(Some(Phase::Attaching)));
    round.called();
    assert!(round.take(answer(cx(Some(Phase::Attached)), |_| {})));
    assert!(matches!(round.next(), RoundStep::Until(_)), "{:?}", round.next());
    assert!(round.take(answer(cx(Some(Phase::Attached)), |cx| reports(cx, State::Ready, None))));
    assert_eq!(round.next(), RoundStep::Later);
}

#[test]
fn a_round_ends_where_what_was_read_is_not_about_the_object_any_more() {
    type Change = fn(&mut AttachmentContext);
    let cases: [(Change, bool); 4] = [
        (|_| {}, true),
        (|cx| attachment(cx).spec.node_name = "n2".to_owned(), false),
        (|cx| attachment(cx).spec.manager = "other".to_owned(), false),
        (|cx| attachment(cx).spec.domain = "other".to_owned(), false),
    ];
    for (at, (change, goes_on)) in cases.into_iter().enumerate() {
        let mut round = AttachmentRound::new(cx(Some(Phase::Pending)));
        assert_eq!(round.take(answer(cx(Some(Phase::Pending)), change)), goes_on, "case {at}");
    }
    assert!(!AttachmentRound::new(cx(Some(Phase::Detached))).take(AnsweredWrite::Gone));
}

#[test]
fn steps_that_do_not_end_are_decided_on_a_new_reading() {
    let mut round = AttachmentRound::new(cx(Some(Phase::Pending)));
    let writes = (0..100).take_while(|_| {
        let is_write = matches!(round.next(), RoundStep::Write(_));
        is_write && round.take(answer(cx(Some(Phase::Pending)), |_| {}))
    });
    assert_eq!(writes.count(), 4);
    assert_eq!(round.next(), RoundStep::Later);
}
