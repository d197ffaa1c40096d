//! Each line of the table in docs/architecture.md.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    ObjectKey,
    core::ObjectMeta,
    fabric::{
        AttachmentPhase as Phase, ErasureMethod, FabricAttachment, FabricAttachmentSpec, FabricAttachmentStatus,
        FabricNodeReport, NodeDeviceState as State, fabric_pool,
    },
    hardware::ConditionStatus,
};
use hostler_fabric::{
    AttachKey, AttachRefusal, FabricConnection, FabricError, FabricOperation, FabricOutcome, Isolation,
    fake::FakeFabric,
};
use serde_json::Value;

use super::super::{
    after_call::{CallEnd, after_call},
    claim::{ClaimDevice, ClaimNews, ClaimOfDevice},
    context::{
        AttachmentContext, AttachmentLimits, AttachmentNode, AttachmentStep, AttachmentWrite, BoardDevice,
        FABRIC_FINALIZER, HostFact, ManagerAnswer, ManagerCall, SeenAttachment, ShownConnection, TwinAttachment,
    },
    decide::decide,
    status::time,
};
use crate::testkit::over;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const ALLOCATED: Duration = Duration::from_secs(1_800_000_000);

pub(super) fn claim(name: &str) -> ClaimOfDevice {
    ClaimOfDevice {
        key: ObjectKey::new("ml", name),
        uid: format!("uid-of-{name}"),
        version: "7".to_owned(),
        pool: fabric_pool("m", "d"),
        node: Some("n1".to_owned()),
        allocated: Some(ALLOCATED),
        device: FakeFabric::device(0).device_name(),
        memory: None,
        first: None,
        told: Vec::new(),
    }
}

/// A claim has the device, and the attachment has this phase.
pub(super) fn cx(phase: Option<Phase>) -> AttachmentContext {
    let device = FakeFabric::device(0);
    let asked = !matches!(phase, Some(Phase::Pending | Phase::Detached));
    let seen = phase.map(|phase| {
        let metadata = ObjectMeta {
            name: device.device_name(),
            uid: Some("u".to_owned()),
            finalizers: vec![FABRIC_FINALIZER.to_owned()],
            ..ObjectMeta::default()
        };
        let spec = FabricAttachmentSpec {
            manager: "m".to_owned(),
            domain: "d".to_owned(),
            device,
            node_name: "n1".to_owned(),
            claim: Some(claim("c").named()),
            ..FabricAttachmentSpec::default()
        };
        let deadline = asked.then(|| time(ALLOCATED + 480 * SECOND));
        let since = Some(time(ALLOCATED));
        let status = FabricAttachmentStatus { phase, deadline, since, ..FabricAttachmentStatus::default() };
        let attachment = FabricAttachment { metadata, spec, status };
        SeenAttachment { attachment, version: over("u", "5"), object: Value::Null }
    });
    let host = HostFact::Known(FakeFabric::host(1).unwrap());
    let node = AttachmentNode { exists: true, is_out_of_service: false, host };
    AttachmentContext {
        device,
        seen,
        claims: vec![claim("c")],
        kept: None,
        nodes: BTreeMap::from([("n1".to_owned(), node)]),
        twins: Vec::new(),
        shown: Vec::new(),
        board: Some(BoardDevice::default()),
        made_memory: None,
        is_tainted: true,
        limits: AttachmentLimits { attach: 480 * SECOND, late_call: 600 * SECOND },
        now: ALLOCATED + 10 * SECOND,
    }
}

pub(super) fn with(phase: Phase, change: impl FnOnce(&mut AttachmentContext)) -> AttachmentContext {
    let mut cx = cx(Some(phase));
    change(&mut cx);
    cx
}

pub(super) fn attachment(cx: &mut AttachmentContext) -> &mut FabricAttachment {
    &mut cx.seen.as_mut().unwrap().attachment
}

/// The node reports on the present attempt.
pub(super) fn reports(cx: &mut AttachmentContext, state: State, erased: Option<ErasureMethod>) {
    let attempt = attachment(cx).spec.attempt;
    attachment(cx).status.node = Some(FabricNodeReport { attempt, state, erased, ..FabricNodeReport::default() });
}

pub(super) fn released(phase: Phase, change: impl FnOnce(&mut AttachmentContext)) -> AttachmentContext {
    with(phase, |cx| {
        cx.claims.clear();
        attachment(cx).spec.release = true;
        change(cx);
    })
}

#[track_caller]
pub(super) fn spec(step: AttachmentStep) -> FabricAttachmentSpec {
    match step {
        AttachmentStep::Write(AttachmentWrite::Spec(spec) | AttachmentWrite::Create(spec)) => *spec,
        other => panic!("it writes no spec: {other:?}"),
    }
}

#[track_caller]
pub(super) fn status(step: AttachmentStep) -> FabricAttachmentStatus {
    match step {
        AttachmentStep::Write(AttachmentWrite::Status(status)) => *status,
        other => panic!("it writes no status: {other:?}"),
    }
}

#[track_caller]
pub(super) fn news(step: AttachmentStep) -> ClaimNews {
    match step {
        AttachmentStep::Write(AttachmentWrite::Claim(claim)) => claim.news,
        other => panic!("it tells no claim: {other:?}"),
    }
}

fn key() -> AttachKey {
    AttachKey::new("u-0").unwrap()
}

#[track_caller]
pub(super) fn after(cx: &AttachmentContext, answer: ManagerAnswer) -> CallEnd {
    match decide(cx) {
        AttachmentStep::Call(call) => after_call(cx, cx.seen.as_ref().unwrap(), &call, answer),
        other => panic!("it calls nothing: {other:?}"),
    }
}

#[track_caller]
pub(super) fn status_after(cx: &AttachmentContext, answer: ManagerAnswer) -> FabricAttachmentStatus {
    match after(cx, answer) {
        CallEnd::Write(write) => status(AttachmentStep::Write(write)),
        other => panic!("it writes nothing: {other:?}"),
    }
}

fn done() -> ManagerAnswer {
    ManagerAnswer::Connection(Ok(FabricOutcome::Done(FabricConnection::default())))
}

fn not_done() -> ManagerAnswer {
    ManagerAnswer::Connection(Ok(FabricOutcome::NotDone { reason: "there is none".to_owned() }))
}

pub(super) fn unavailable() -> FabricError {
    FabricError::Unavailable { service: "m".to_owned(), reason: "no route".to_owned() }
}

fn under_way() -> FabricOperation {
    FabricOperation { monitor: None, state: None, percent: None }
}

#[test]
fn a_claim_with_a_device_gets_an_attachment_unless_its_time_is_almost_over() {
    let made = spec(decide(&cx(None)));
    assert_eq!((&*made.manager, &*made.domain, &*made.node_name), ("m", "d", "n1"));
    assert_eq!((made.attempt, made.claim, made.erase, made.release), (0, Some(claim("c").named()), false, false));
    let mut late = cx(None);
    late.now = ALLOCATED + 460 * SECOND;
    assert_eq!(decide(&late), AttachmentStep::Rest);
    late.claims.clear();
    assert_eq!(decide(&late), AttachmentStep::Rest);
}

#[test]
fn a_free_device_is_given_to_the_next_claim_in_an_attempt_of_its_own_and_erased_where_it_was_used() {
    let cx = with(Phase::Detached, |cx| {
        cx.claims = vec![claim("next")];
        attachment(cx).spec.release = true;
        attachment(cx).status.used = true;
    });
    let next = spec(decide(&cx));
    assert_eq!((next.attempt, next.erase, next.release), (1, true, false));
    assert_eq!(next.claim, Some(claim("next").named()));
    let begun = with(Phase::Detached, |cx| {
        cx.claims = vec![claim("next")];
        attachment(cx).spec = next.clone();
    });
    assert_eq!(status(decide(&begun)).phase, Phase::Pending);
}

#[test]
fn a_device_that_failed_is_not_attached_before_its_time_and_the_claim_is_told_to_wait() {
    let mut cx = with(Phase::Detached, |cx| {
        attachment(cx).spec.release = true;
        attachment(cx).status.retry_at = Some(time(cx.now + 20 * SECOND));
    });
    assert!(matches!(news(decide(&cx)), ClaimNews::Waits { reason: "Releasing", .. }));
    let told = match decide(&cx) {
        AttachmentStep::Write(AttachmentWrite::Claim(claim)) => claim.devices,
        other => panic!("{other:?}"),
    };
    cx.claims[0].told = told;
    assert_eq!(decide(&cx), AttachmentStep::Until(cx.now + 20 * SECOND));
    cx.now += 20 * SECOND;
    assert_eq!(spec(decide(&cx)).attempt, 1);
}

#[test]
fn the_deadline_is_written_before_the_manager_is_asked() {
    let asked = status(decide(&cx(Some(Phase::Pending))));
    assert_eq!(asked.phase, Phase::Attaching);
    assert_eq!(asked.deadline, Some(time(ALLOCATED + 480 * SECOND)));
    match decide(&cx(Some(Phase::Attaching))) {
        AttachmentStep::Call(ManagerCall::Attach(request)) => {
            assert_eq!((request.key, request.host), (key(), FakeFabric::host(1).unwrap()));
            assert_eq!(request.device, FakeFabric::device(0));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_whose_node_cannot_have_the_device_fails_before_anything_is_asked_and_the_device_is_not_blamed() {
    let twin = |phase: bool| TwinAttachment { name: "t".to_owned(), node: "n1".to_owned(), may_be_attached: phase };
    let host = |cx: &mut AttachmentContext, host| cx.nodes.get_mut("n1").unwrap().host = host;
    for (reason, cx) in [
        ("NoHost", with(Phase::Pending, |cx| host(cx, HostFact::Unknown("no UUID".to_owned())))),
        ("NodeGone", with(Phase::Pending, |cx| cx.nodes.get_mut("n1").unwrap().exists = false)),
        ("SameSerial", with(Phase::Pending, |cx| cx.twins.push(twin(true)))),
        ("DeadlineExceeded", with(Phase::Pending, |cx| cx.now = ALLOCATED + 480 * SECOND)),
        (
            "NoNode",
            with(Phase::Pending, |cx| {
                cx.claims[0].node = None;
                attachment(cx).spec.node_name = String::new();
            }),
        ),
    ] {
        let failed = status(decide(&cx));
        assert_eq!((failed.phase, &*failed.reason, failed.failures), (Phase::Failed, reason, 0));
        assert_eq!((failed.deadline, failed.retry_at), (None, Some(time(cx.now + 30 * SECOND))), "{reason}");
    }
    let free = with(Phase::Pending, |cx| cx.twins.push(twin(false)));
    assert_eq!(status(decide(&free)).phase, Phase::Attaching);
    let unread = with(Phase::Pending, |cx| host(cx, HostFact::Unread("not read".to_owned())));
    assert_eq!(decide(&unread), AttachmentStep::Until(ALLOCATED + 480 * SECOND));
    // Two attachments can begin at once: each looks at the other one after it was written that it begins.
    let raced = with(Phase::Attaching, |cx| cx.twins.push(twin(true)));
    assert_eq!(status(decide(&raced)).reason, "SameSerial");
}

#[test]
fn the_answer_to_an_attach_decides_the_phase() {
    let cx = cx(Some(Phase::Attaching));
    assert_eq!(status_after(&cx, done()).phase, Phase::Attached);
    let failed = |answer| {
        let status = status_after(&cx, ManagerAnswer::Connection(answer));
        assert_eq!((status.phase, status.failures), (Phase::Failed, 1));
        (status.reason, status.deadline.is_some())
    };
    let refusal = AttachRefusal::UnknownTarget { target: "device".to_owned() };
    let mismatch = FabricError::Mismatch {
        service: "m".to_owned(),
        key: key(),
        found: "another".to_owned(),
        asked: "this".to_owned(),
    };
    assert_eq!(failed(Err(refusal.into())), ("Refused".to_owned(), true));
    assert_eq!(failed(Err(mismatch)), ("OtherDevice".to_owned(), true));
    assert_eq!(failed(Ok(FabricOutcome::NotDone { reason: String::new() })), ("NotDone".to_owned(), false));
}

#[test]
fn an_attach_without_an_end_is_repeated_until_the_deadline() {
    let mut cx = cx(Some(Phase::Attaching));
    let noted = status_after(&cx, ManagerAnswer::Connection(Err(unavailable())));
    assert_eq!((noted.phase, &*noted.reason), (Phase::Attaching, "Unanswered"));
    attachment(&mut cx).status = noted;
    let again = after(&cx, ManagerAnswer::Connection(Err(unavailable())));
    assert!(matches!(again, CallEnd::Failed(_)), "{again:?}");
    let begun = status_after(&cx, ManagerAnswer::Connection(Ok(FabricOutcome::UnderWay(under_way()))));
    assert_eq!((begun.phase, &*begun.reason), (Phase::Attaching, "UnderWay"));
    attachment(&mut cx).status = begun;
    assert_eq!(decide(&cx), AttachmentStep::Call(ManagerCall::Progress(key())));
    cx.now = ALLOCATED + 480 * SECOND;
    let failed = status(decide(&cx));
    assert_eq!((failed.phase, &*failed.reason, failed.deadline.is_some()), (Phase::Failed, "DeadlineExceeded", true));
}

#[test]
fn a_node_makes_the_device_ready_and_erases_it_where_it_was_asked_to() {
    let ready = with(Phase::Attached, |cx| {
        attachment(cx).status.failures = 3;
        reports(cx, State::Ready, None);
    });
    let status_of = |cx: &AttachmentContext| status(decide(cx));
    let written = status_of(&ready);
    assert_eq!((written.phase, written.used, written.failures), (Phase::Ready, true, 0));
    let erases = |erased| {
        with(Phase::Attached, |cx| {
            attachment(cx).spec.erase = true;
            reports(cx, State::Ready, erased);
        })
    };
    assert_eq!(status_of(&erases(Some(ErasureMethod::Sanitize))).phase, Phase::Ready);
    assert_eq!(status_of(&erases(None)).reason, "NotErased");
    let earlier = with(Phase::Attached, |cx| {
        reports(cx, State::Ready, None);
        attachment(cx).spec.attempt = 1;
    });
    assert_eq!(decide(&earlier), AttachmentStep::Until(ALLOCATED + 480 * SECOND), "a report on an earlier attempt");
    let late = with(Phase::Attached, |cx| {
        reports(cx, State::Found, None);
        cx.now = ALLOCATED + 480 * SECOND;
    });
    assert_eq!(status_of(&late).reason, "NotReady");
}

#[test]
fn the_claim_is_told_that_its_device_is_attached_once() {
    let mut cx = cx(Some(Phase::Ready));
    assert_eq!(news(decide(&cx)), ClaimNews::Attached);
    cx.claims[0].told = claim("c").with(ClaimNews::Attached, "t").devices;
    assert_eq!(decide(&cx), AttachmentStep::Rest);
}

#[test]
fn a_failure_is_told_on_the_first_device_too_and_only_once_the_device_is_hidden() {
    let mut cx = with(Phase::Failed, |cx| {
        attachment(cx).status.reason = "Refused".to_owned();
        cx.claims[0].first = Some(ClaimDevice { pool: fabric_pool("m", "d"), device: "first".to_owned() });
        cx.is_tainted = false;
    });
    assert!(matches!(decide(&cx), AttachmentStep::Until(_)));
    cx.is_tainted = true;
    let AttachmentStep::Write(AttachmentWrite::Claim(told)) = decide(&cx) else { panic!("{:?}", decide(&cx)) };
    let failed = |device: &str| {
        let of = told.devices.iter().find(|it| it.device.device == device).unwrap();
        of.conditions.iter().any(|it| it.kind == "hostler.dev/attach-failed" && it.status == ConditionStatus::True)
    };
    assert!(failed("first") && failed(&FakeFabric::device(0).device_name()), "{told:?}");
    cx.claims[0].told = told.devices;
    assert_eq!(decide(&cx), AttachmentStep::Rest);
}

#[test]
fn a_node_is_told_to_let_go_when_no_claim_has_the_device_as_the_spec_says() {
    let gone = with(Phase::Ready, |cx| cx.claims.clear());
    assert!(spec(decide(&gone)).release);
    let elsewhere = with(Phase::Ready, |cx| {
        cx.claims[0].node = Some("n2".to_owned());
        cx.claims[0].told =
            claim("c").with(ClaimNews::Waits { reason: "Releasing", message: String::new() }, "t").devices;
    });
    assert!(spec(decide(&elsewhere)).release);
    let mut deleted = with(Phase::Ready, |cx| {
        cx.claims[0].told = claim("c").with(ClaimNews::Attached, "t").devices;
        attachment(cx).metadata.deletion_timestamp = Some("t".to_owned());
    });
    // No claim may be told that a device is attached which is being detached.
    let deleted_news = |step| matches!(news(step), ClaimNews::Waits { reason: "AttachmentDeleted", .. });
    assert!(deleted_news(decide(&deleted)));
    let told = |reason| claim("c").with(ClaimNews::Waits { reason, message: String::new() }, "t").devices;
    for before in [Vec::new(), told("Releasing")] {
        deleted.claims[0].told = before;
        assert!(deleted_news(decide(&deleted)), "a late write that tells it of the device finds another version");
    }
    deleted.claims[0].told = told("AttachmentDeleted");
    assert!(spec(decide(&deleted)).release);
}

#[test]
fn an_attach_has_ended_before_the_node_is_told_to_let_go() {
    let gone = with(Phase::Attaching, |cx| cx.claims.clear());
    assert_eq!(decide(&gone), AttachmentStep::Call(ManagerCall::Settle(key())));
    match after(&gone, done()) {
        CallEnd::Write(AttachmentWrite::Spec(spec)) => assert!(spec.release),
        other => panic!("{other:?}"),
    }
    let nothing = status_after(&gone, not_done());
    assert_eq!((nothing.phase, nothing.deadline), (Phase::Pending, None));
    let failed = with(Phase::Failed, |cx| cx.claims.clear());
    assert_eq!(decide(&failed), AttachmentStep::Call(ManagerCall::Settle(key())));
    let off = with(Phase::Attaching, |cx| {
        cx.claims.clear();
        cx.nodes.get_mut("n1").unwrap().is_out_of_service = true;
    });
    assert_eq!(decide(&off), AttachmentStep::Call(ManagerCall::Settle(key())), "the node may come back");
}

#[test]
fn what_was_never_asked_for_is_detached_at_once_and_all_else_is_let_go_of_first() {
    assert_eq!(status(decide(&released(Phase::Pending, |_| {}))).phase, Phase::Detached);
    let never = released(Phase::Failed, |cx| attachment(cx).status.deadline = None);
    assert_eq!(status(decide(&never)).phase, Phase::Detached);
    for phase in [Phase::Attaching, Phase::Attached, Phase::Ready, Phase::Failed, Phase::Unknown] {
        assert_eq!(status(decide(&released(phase, |_| {}))).phase, Phase::Releasing, "{phase:?}");
    }
}

#[test]
fn a_device_is_detached_when_its_node_has_let_go_of_it_and_only_then() {
    let used = |state, erased| {
        released(Phase::Releasing, |cx| {
            attachment(cx).status.used = true;
            reports(cx, state, erased);
        })
    };
    let detaching = status(decide(&used(State::Released, None)));
    assert_eq!((detaching.phase, detaching.used), (Phase::Detaching, true));
    assert!(!status(decide(&used(State::Released, Some(ErasureMethod::Overwrite)))).used);
    for state in [State::Ready, State::Found, State::Releasing, State::Unknown] {
        assert_eq!(decide(&used(state, None)), AttachmentStep::Rest, "{state:?}");
    }
    let absent = used(State::Absent, None);
    assert_eq!(decide(&absent), AttachmentStep::Call(ManagerCall::LookFor(key())));
    assert_eq!(status_after(&absent, not_done()).phase, Phase::Detached);
    assert_eq!(status_after(&absent, done()).phase, Phase::Releasing, "it only says who is waited for");
    let off = released(Phase::Releasing, |cx| cx.nodes.get_mut("n1").unwrap().exists = false);
    assert_eq!(decide(&off), AttachmentStep::Call(ManagerCall::of_key(FakeFabric::device(0), key())));
    let isolated = Isolation::Removed { connections: Vec::new() };
    let free = status_after(&off, ManagerAnswer::Isolated(Ok(FabricOutcome::Done(isolated))));
    assert_eq!((free.phase, free.retry_at), (Phase::Detached, None), "a late isolation hits no later attempt");
    let isolated = Isolation::PortDisabled { port: "/port".into() };
    let cut = status_after(&off, ManagerAnswer::Isolated(Ok(FabricOutcome::Done(isolated))));
    assert_eq!((cut.phase, cut.retry_at), (Phase::Detached, Some(time(off.now + 600 * SECOND))));
}

#[test]
fn a_node_that_takes_its_report_back_is_waited_for_once_more() {
    let back = released(Phase::Detaching, |cx| reports(cx, State::Releasing, None));
    assert_eq!(status(decide(&back)).phase, Phase::Releasing);
    let gone = released(Phase::Detaching, |cx| reports(cx, State::Released, None));
    assert_eq!(decide(&gone), AttachmentStep::Call(ManagerCall::Detach(key())));
}

#[test]
fn a_detached_device_says_when_it_is_offered_again() {
    let detaching = |failures| {
        released(Phase::Detaching, |cx| {
            attachment(cx).status.failures = failures;
            attachment(cx).status.retry_at = (failures > 0).then(|| time(cx.now + 60 * SECOND));
        })
    };
    let done = || ManagerAnswer::Undone(Ok(FabricOutcome::Done(())));
    assert_eq!(decide(&detaching(0)), AttachmentStep::Call(ManagerCall::Detach(key())));
    let free = status_after(&detaching(0), done());
    assert_eq!((free.phase, &*free.reason, free.retry_at), (Phase::Detached, "Detached", None));
    let failed = status_after(&detaching(1), done());
    assert_eq!((&*failed.reason, failed.retry_at.is_some()), ("Failed", true));
    assert_eq!(status_after(&detaching(5), done()).reason, "Quarantined");
    let unknown = status_after(&detaching(1), ManagerAnswer::Undone(Err(unavailable())));
    assert_eq!((&*unknown.reason, &*unknown.message), ("Unanswered", ""), "the message of the failure stays");
}

#[test]
fn a_detachment_without_an_end_is_looked_at_and_the_node_asked_before_the_next_one() {
    let detaching = |reason: &str| {
        released(Phase::Detaching, |cx| {
            reports(cx, State::Released, Some(ErasureMethod::Sanitize));
            attachment(cx).status.reason = reason.to_owned();
        })
    };
    let begun = || ManagerAnswer::Undone(Ok(FabricOutcome::UnderWay(under_way())));
    let lost = || ManagerAnswer::Undone(Ok(FabricOutcome::Unknown { reason: "no answer".to_owned() }));
    assert_eq!(decide(&detaching("Released")), AttachmentStep::Call(ManagerCall::Detach(key())));
    assert_eq!(status_after(&detaching("Released"), begun()).reason, "UnderWay");
    assert_eq!(status_after(&detaching("Released"), lost()).reason, "Unanswered");
    for reason in ["UnderWay", "Unanswered"] {
        let mut cx = detaching(reason);
        assert_eq!(decide(&cx), AttachmentStep::Call(ManagerCall::LookFor(key())), "{reason}");
        assert_eq!(status_after(&cx, not_done()).phase, Phase::Detached);
        attachment(&mut cx).status.since = Some(time(cx.now - 4 * SECOND));
        assert_eq!(after(&cx, done()), CallEnd::Wait, "a manager that ends no detachment is asked every few seconds");
        attachment(&mut cx).status.since = Some(time(cx.now - 5 * SECOND));
        let back = status_after(&cx, done());
        let report = back.node.unwrap();
        assert_eq!((back.phase, report.state), (Phase::Releasing, State::Releasing), "its word is from before");
        assert_eq!(report.erased, Some(ErasureMethod::Sanitize), "no claim has used it since");
        attachment(&mut cx).status.phase = Phase::Releasing;
        reports(&mut cx, State::Releasing, None);
        assert_eq!(decide(&cx), AttachmentStep::Rest);
    }
    let refused = FabricOutcome::NotDone { reason: "busy".to_owned() };
    let refused = status_after(&detaching("Released"), ManagerAnswer::Undone(Ok(refused)));
    assert_eq!(
        decide(&detaching(&refused.reason)),
        AttachmentStep::Call(ManagerCall::Detach(key())),
        "nothing changed"
    );
}

#[test]
fn failures_double_the_pause_up_to_a_day() {
    for (failures, seconds) in [(0, 30), (1, 60), (2, 120), (4, 480), (20, 86_400)] {
        let cx = with(Phase::Attaching, |cx| {
            attachment(cx).status.failures = failures;
            cx.now = ALLOCATED + 480 * SECOND;
        });
        let failed = status(decide(&cx));
        let pause = Duration::from_secs(seconds);
        assert_eq!((failed.failures, failed.retry_at), (failures + 1, Some(time(cx.now + pause))));
    }
}

#[test]
fn an_object_goes_when_nothing_must_be_remembered() {
    let detached = |change: &dyn Fn(&mut AttachmentContext)| released(Phase::Detached, |cx| change(cx));
    let kept_until = ALLOCATED + 600 * SECOND;
    assert_eq!(decide(&detached(&|_| {})), AttachmentStep::Until(kept_until), "a late call may still come");
    let old = |cx: &mut AttachmentContext| cx.now = kept_until;
    assert_eq!(decide(&detached(&old)), AttachmentStep::Write(AttachmentWrite::Delete));
    let used = |cx: &mut AttachmentContext| {
        old(cx);
        attachment(cx).status.used = true;
    };
    assert_eq!(decide(&detached(&used)), AttachmentStep::Rest, "nothing else remembers that it holds data");
    let failed = |cx: &mut AttachmentContext| {
        old(cx);
        attachment(cx).status.failures = 2;
        attachment(cx).status.retry_at = Some(time(ALLOCATED));
    };
    assert_eq!(decide(&detached(&failed)), AttachmentStep::Until(ALLOCATED + 3600 * SECOND));
    let deleted = |cx: &mut AttachmentContext| {
        old(cx);
        attachment(cx).metadata.deletion_timestamp = Some("t".to_owned());
    };
    assert_eq!(decide(&detached(&deleted)), AttachmentStep::Write(AttachmentWrite::Finalizer { is_wanted: false }));
}

#[test]
fn a_device_that_was_attached_too_late_is_taken_back_by_an_attempt_of_its_own() {
    let shown = ShownConnection { key: key(), node: Some("n1".to_owned()) };
    let mut cx = released(Phase::Detached, |cx| cx.shown = vec![shown.clone()]);
    assert_eq!(decide(&cx), AttachmentStep::Call(ManagerCall::Verify(shown.clone())));
    assert_eq!(after(&cx, not_done()), CallEnd::NotThere);
    let CallEnd::Write(AttachmentWrite::Spec(next)) = after(&cx, done()) else { panic!("it is not taken back") };
    assert_eq!((next.attempt, next.claim.clone(), next.release), (1, None, false));
    attachment(&mut cx).spec = *next;
    let late = status(decide(&cx));
    assert_eq!((late.phase, &*late.reason), (Phase::Attached, "AttachedLate"));
    attachment(&mut cx).status = late;
    assert!(spec(decide(&cx)).release, "the node lets go of it as of any other");
    attachment(&mut cx).spec.release = true;
    attachment(&mut cx).status.phase = Phase::Releasing;
    assert_eq!(decide(&cx), AttachmentStep::Call(ManagerCall::LookFor(key())), "under the key that it has");
    attachment(&mut cx).status.phase = Phase::Detaching;
    assert_eq!(decide(&cx), AttachmentStep::Call(ManagerCall::Detach(key())), "under the key that it has");
}

#[test]
fn a_claim_of_a_device_that_is_anothers_waits_and_gets_another_device_in_time() {
    let mut cx = with(Phase::Ready, |cx| {
        cx.claims[0].told = claim("c").with(ClaimNews::Attached, "t").devices;
        cx.claims.push(claim("other"));
    });
    assert!(matches!(news(decide(&cx)), ClaimNews::Waits { reason: "Releasing", .. }));
    cx.claims[1].told =
        claim("other").with(ClaimNews::Waits { reason: "Releasing", message: String::new() }, "t").devices;
    assert_eq!(decide(&cx), AttachmentStep::Rest);
    cx.now = ALLOCATED + 480 * SECOND;
    assert!(matches!(news(decide(&cx)), ClaimNews::Failed { .. }));
}

#[test]
fn an_object_without_the_finalizer_gets_it_first() {
    let cx = with(Phase::Pending, |cx| attachment(cx).metadata.finalizers.clear());
    assert_eq!(decide(&cx), AttachmentStep::Write(AttachmentWrite::Finalizer { is_wanted: true }));
}
