//! The election from the side of one candidate.

use super::{
    decision::{LEASE_TIME, RENEW_TIME},
    *,
};

type Moment = std::time::Instant;

const S: Duration = Duration::from_secs(1);

fn record(holder: &str) -> LeaseRecord {
    LeaseRecord { holder: holder.to_owned(), duration: LEASE_TIME, transitions: 3 }
}

fn seen(version: &str, holder: &str) -> SeenLease {
    SeenLease { version: version.to_owned(), record: record(holder) }
}

/// A candidate that leads since `now`, over version 1.
fn leader(now: Moment) -> LeaseCore {
    let mut core = LeaseCore::new("a", now);
    assert_eq!(core.step(now, LeaseEvent::Due), Some(LeaseCommand::Read));
    let taken = core.step(now, LeaseEvent::Read(None)).unwrap();
    let LeaseCommand::Write { over: None, record, is_new_term: true } = taken else { panic!("{taken:?}") };
    assert_eq!(core.step(now, LeaseEvent::Written(SeenLease { version: "1".to_owned(), record })), None);
    assert!(core.leads(now));
    core
}

fn over(command: Option<LeaseCommand>) -> Option<String> {
    match command {
        Some(LeaseCommand::Write { over, .. }) => over,
        other => panic!("{other:?} is no write"),
    }
}

#[test]
fn a_lease_that_is_seen_to_change_is_left_alone_whatever_its_times_say() {
    let now = Moment::now();
    let mut core = LeaseCore::new("a", now);
    for second in 0..60 {
        // It changes every seven seconds.
        let read = LeaseEvent::Read(Some(seen(&format!("v{}", second / 7), "b")));
        assert_eq!(core.step(now + S * second, read), None, "after {second} s");
        assert!(core.due() > now + S * second && core.due() <= now + S * (second + 5));
    }
}

#[test]
fn a_lease_that_was_not_seen_to_change_for_as_long_as_it_says_is_taken_over_its_last_version() {
    let now = Moment::now();
    let mut core = LeaseCore::new("a", now);
    let read = || LeaseEvent::Read(Some(seen("v1", "b")));
    assert_eq!(core.step(now, read()), None);
    assert_eq!(core.step(now + LEASE_TIME - S, read()), None);
    let taken = core.step(now + LEASE_TIME, read());
    let Some(LeaseCommand::Write { record, is_new_term, .. }) = &taken else { panic!("{taken:?}") };
    assert_eq!((&*record.holder, record.transitions, *is_new_term), ("a", 4, true));
    assert_eq!(over(taken).as_deref(), Some("v1"));
}

#[test]
fn a_count_of_transitions_at_its_end_stays_there_and_the_lease_changes_hands_all_the_same() {
    let stored: super::object::Lease = serde_json::from_value(serde_json::json!({
        "metadata": {"resourceVersion": "v1"},
        "spec": {"holderIdentity": "", "leaseTransitions": i32::MAX, "leaseDurationSeconds": i32::MAX},
    }))
    .unwrap();
    let mut core = LeaseCore::new("a", Moment::now());
    let taken = core.step(Moment::now(), LeaseEvent::Read(Some(stored.seen())));
    let Some(LeaseCommand::Write { record, over, is_new_term }) = taken else { panic!("{taken:?}") };
    let written = stored.written("n", "l", over.as_deref(), &record, is_new_term);
    let spec = &written["spec"];
    assert_eq!((&spec["leaseTransitions"], &spec["holderIdentity"]), (&i32::MAX.into(), &"a".into()));
}

#[test]
fn what_a_lease_asks_for_is_heeded_up_to_a_minute() {
    let now = Moment::now();
    for (asked, free_after) in [(0, 15), (15, 15), (40, 40), (1_000_000, 60)] {
        let mut lease = seen("v1", "b");
        lease.record.duration = S * asked;
        let mut core = LeaseCore::new("a", now);
        assert_eq!(core.step(now, LeaseEvent::Read(Some(lease.clone()))), None);
        assert_eq!(core.step(now + S * (free_after - 1), LeaseEvent::Read(Some(lease.clone()))), None, "{asked}");
        assert!(core.step(now + S * free_after, LeaseEvent::Read(Some(lease))).is_some(), "{asked}");
    }
}

#[test]
fn a_lease_that_was_given_back_is_taken_at_once() {
    let now = Moment::now();
    let mut core = LeaseCore::new("a", now);
    assert_eq!(over(core.step(now, LeaseEvent::Read(Some(seen("v9", ""))))).as_deref(), Some("v9"));
}

#[test]
fn who_leads_relies_on_a_renewal_for_ten_seconds_from_when_it_was_sent() {
    let now = Moment::now();
    let mut core = leader(now);
    assert!(core.due() > now && core.due() <= now + S * 5);
    // Sent after 4 s, answered after 6.
    let renewal = core.step(now + S * 4, LeaseEvent::Due);
    assert_eq!(over(renewal).as_deref(), Some("1"));
    core.step(now + S * 6, LeaseEvent::Written(seen("2", "a")));
    assert!(core.leads(now + S * 13) && !core.leads(now + S * 14));
    assert!(core.leadership(None).is_ours(now + S * 13) && !core.leadership(None).is_ours(now + S * 14));
    assert!(RENEW_TIME < LEASE_TIME);
}

#[test]
fn who_cannot_renew_stops_leading_before_anybody_else_begins() {
    let now = Moment::now();
    let mut core = leader(now);
    let mut other = LeaseCore::new("b", now);
    // The other one has seen the lease no sooner than it was written.
    assert_eq!(other.step(now, LeaseEvent::Read(Some(seen("1", "a")))), None);
    let at = now + RENEW_TIME;
    core.step(at - S, LeaseEvent::Failed);
    assert!(!core.leads(at));
    assert_eq!(other.step(at, LeaseEvent::Read(Some(seen("1", "a")))), None);
    assert!(other.step(now + LEASE_TIME, LeaseEvent::Read(Some(seen("1", "a")))).is_some());
    // It asks before it writes: it may not be its own any more.
    assert_eq!(core.step(at, LeaseEvent::Due), Some(LeaseCommand::Read));
}

#[test]
fn who_finds_another_holder_does_not_lead_any_more() {
    let now = Moment::now();
    let mut core = leader(now);
    assert_eq!(core.step(now + S, LeaseEvent::Refused), Some(LeaseCommand::Read));
    assert!(core.leads(now + S), "somebody may only have labelled the lease");
    assert_eq!(core.step(now + S, LeaseEvent::Read(Some(seen("7", "b")))), None);
    assert!(!core.leads(now + S));
    assert_eq!(core.leadership(None).holder.as_deref(), Some("b"));
}

#[test]
fn a_renewal_goes_over_what_others_wrote_beside_it() {
    let now = Moment::now();
    let mut core = leader(now);
    core.step(now + S, LeaseEvent::Refused);
    assert_eq!(over(core.step(now + S, LeaseEvent::Read(Some(seen("7", "a"))))).as_deref(), Some("7"));
}

#[test]
fn a_server_that_refuses_every_write_is_not_asked_on_and_on() {
    let now = Moment::now();
    let mut core = LeaseCore::new("a", now);
    assert!(core.step(now, LeaseEvent::Read(None)).is_some());
    assert_eq!(core.step(now, LeaseEvent::Refused), Some(LeaseCommand::Read));
    assert!(core.step(now, LeaseEvent::Read(None)).is_some());
    assert_eq!(core.step(now, LeaseEvent::Refused), None);
    assert!(core.due() > now + S);
}

#[test]
fn only_who_leads_gives_the_lease_back() {
    let now = Moment::now();
    let mut core = leader(now);
    let Some(LeaseCommand::Write { over, record, .. }) = core.step(now + S, LeaseEvent::Stop) else {
        panic!("it is not given back")
    };
    assert_eq!((over.as_deref(), &*record.holder), (Some("1"), ""));
    assert!(!core.leads(now + S));
    let mut late = leader(now);
    assert_eq!(late.step(now + RENEW_TIME, LeaseEvent::Stop), None);
    assert_eq!(LeaseCore::new("b", now).step(now, LeaseEvent::Stop), None);
}

#[test]
fn no_two_candidates_come_at_the_same_moments() {
    let now = Moment::now();
    let due = |identity: &str| {
        let mut core = LeaseCore::new(identity, now);
        core.step(now, LeaseEvent::Read(Some(seen("v1", "x"))));
        core.due() - now
    };
    let all = ["a", "b", "c", "d"].map(due);
    assert!(all.iter().all(|pause| *pause >= S * 15 / 4 && *pause <= S * 5), "{all:?}");
    assert!(all.iter().any(|pause| *pause != all[0]), "{all:?}");
}

#[test]
fn what_is_not_known_of_a_lease_goes_back_as_it_came() {
    let lease: Lease = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "x", "resourceVersion": "7", "labels": { "team": "a" } },
        "spec": { "holderIdentity": "b", "leaseDurationSeconds": 15, "acquireTime": "T", "strategy": "Oldest" },
    }))
    .unwrap();
    let written = lease.written("hw", "x", Some("7"), &record("b"), false);
    assert_eq!(written["metadata"]["labels"]["team"], "a");
    assert_eq!(written["metadata"]["resourceVersion"], "7");
    assert_eq!((&written["spec"]["strategy"], &written["spec"]["acquireTime"]), (&"Oldest".into(), &"T".into()));
    assert_ne!(lease.written("hw", "x", Some("7"), &record("b"), true)["spec"]["acquireTime"], "T");
}
