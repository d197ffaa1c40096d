//! Decision that follows from a look at a claim. Pure; no clock is read here, and only a process's own counts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Least time between two looks at a claim that blocks another: longer than it takes to make a container whose
/// runtime has read the claim's CDI file already, and to note it. Shorter than a kubelet waits before it asks again.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Observation of a recorded claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClaimObservation {
    /// The claim is there and has something of what is on record.
    Allocated,
    /// The claim is not there.
    Gone,
    /// Another claim has the name.
    OtherUid,
    /// The claim is there, and nothing of what is on record is allocated to it.
    Deallocated,
}

/// Reason why a claim is taken back.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReason {
    /// The claim's object is gone.
    Gone,
    /// Another object has the claim's name.
    OtherUid,
    /// Nothing of what is on record is allocated to it any more.
    Deallocated,
}

impl ReleaseReason {
    /// Name of the reason, as in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::OtherUid => "other_uid",
            Self::Deallocated => "deallocated",
        }
    }
}

impl ClaimObservation {
    fn why(self) -> Option<ReleaseReason> {
        match self {
            Self::Allocated => None,
            Self::Gone => Some(ReleaseReason::Gone),
            Self::OtherUid => Some(ReleaseReason::OtherUid),
            Self::Deallocated => Some(ReleaseReason::Deallocated),
        }
    }
}

/// A claim that has been seen not to be needed, in every look that saw anything.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReleaseDoubt {
    /// Reason of the doubt.
    pub why: ReleaseReason,
    /// How long, from look to look: the time of an outage or between two daemons is not in it, and no clock that can be
    /// set, so it can be kept over restarts and reboots.
    pub seen_for: Duration,
}

/// A look at a claim.
#[derive(Clone, Copy, Debug)]
pub struct ClaimLook {
    /// The observation; `None` if there was none.
    pub seen: Option<ClaimObservation>,
    /// True if a container runs with the claim, as far as can be known.
    pub runs: bool,
    /// True if the claim blocks another.
    pub contested: bool,
    /// Time since the look before; `None` if that one saw nothing, or was no look of this process.
    pub since_last: Option<Duration>,
}

/// Decision that follows from a look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReleaseVerdict {
    /// Nothing is wrong with the claim, as far as can be known.
    Trust,
    /// The claim may not be needed any more.
    Doubt(ReleaseDoubt),
    /// The claim is not needed any more.
    Release(ReleaseDoubt),
}

/// Decides on a claim.
///
/// A look that saw nothing changes nothing. Whatever was seen before, two looks of this process in a row have to agree:
/// one alone can be of a server that was put back to an earlier state just now.
pub fn judge(doubt: Option<ReleaseDoubt>, look: &ClaimLook, grace: Duration) -> ReleaseVerdict {
    let Some(seen) = look.seen else { return doubt.map_or(ReleaseVerdict::Trust, ReleaseVerdict::Doubt) };
    let Some(why) = seen.why() else { return ReleaseVerdict::Trust };
    let Some(doubt) = doubt.filter(|doubt| doubt.why == why) else {
        return ReleaseVerdict::Doubt(ReleaseDoubt { why, seen_for: Duration::ZERO });
    };
    let doubt = ReleaseDoubt { seen_for: doubt.seen_for + look.since_last.unwrap_or_default(), ..doubt };
    let Some(since_last) = look.since_last.filter(|_| !look.runs) else { return ReleaseVerdict::Doubt(doubt) };
    // However long it was doubted before: a container that is being made is noted between these two looks.
    let long_enough = doubt.seen_for >= grace || look.contested && since_last >= grace.min(LOOK_AGAIN);
    if long_enough { ReleaseVerdict::Release(doubt) } else { ReleaseVerdict::Doubt(doubt) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(300);

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn look(seen: Option<ClaimObservation>, since_last: u64) -> ClaimLook {
        ClaimLook { seen, runs: false, contested: false, since_last: Some(after(since_last)) }
    }

    fn gone(seconds: u64) -> ReleaseDoubt {
        ReleaseDoubt { why: ReleaseReason::Gone, seen_for: after(seconds) }
    }

    #[test]
    fn a_claim_is_released_only_after_agreeing_looks_over_long_enough_and_without_containers() {
        use ClaimObservation::{Allocated, Deallocated, Gone, OtherUid};
        use ReleaseVerdict::{Doubt, Release, Trust};
        let first = |why| Doubt(ReleaseDoubt { why, seen_for: Duration::ZERO });
        let unseen = ClaimLook { since_last: None, ..look(Some(Gone), 0) };
        let used = |since| ClaimLook { runs: true, ..look(Some(Gone), since) };
        for (name, before, look, expected) in [
            ("all is well", None, look(Some(Allocated), 60), Trust),
            ("nothing was seen", None, look(None, 60), Trust),
            ("gone for the first time", None, look(Some(Gone), 60), first(ReleaseReason::Gone)),
            ("other for the first time", None, look(Some(OtherUid), 60), first(ReleaseReason::OtherUid)),
            ("deallocated for the first time", None, look(Some(Deallocated), 60), first(ReleaseReason::Deallocated)),
            ("gone again, too early", Some(gone(239)), look(Some(Gone), 60), Doubt(gone(299))),
            ("gone for long enough", Some(gone(240)), look(Some(Gone), 60), Release(gone(300))),
            ("back to life", Some(gone(999)), look(Some(Allocated), 60), Trust),
            ("an outage in between", Some(gone(299)), look(None, 60), Doubt(gone(299))),
            ("the first look after it", Some(gone(999)), unseen, Doubt(gone(999))),
            ("a disagreement", Some(gone(999)), look(Some(OtherUid), 60), first(ReleaseReason::OtherUid)),
            ("gone, and used", Some(gone(300)), used(60), Doubt(gone(360))),
            ("gone, used no more", Some(gone(360)), look(Some(Gone), 60), Release(gone(420))),
        ] {
            assert_eq!(judge(before, &look, GRACE), expected, "{name}");
        }
    }

    #[test]
    fn a_claim_that_stands_in_the_way_is_released_by_two_looks_some_seconds_apart() {
        use ReleaseVerdict::{Doubt, Release, Trust};
        let contested = |seen, since_last| ClaimLook { contested: true, ..look(seen, since_last) };
        let seen = Some(ClaimObservation::Gone);
        let late = LOOK_AGAIN.as_secs();
        for (name, before, look, expected) in [
            ("the first look", None, contested(seen, 60), Doubt(gone(0))),
            ("the second at once", Some(gone(0)), contested(seen, late - 1), Doubt(gone(late - 1))),
            ("the second", Some(gone(0)), contested(seen, late), Release(gone(late))),
            ("two at once after an earlier daemon's", Some(gone(240)), contested(seen, 1), Doubt(gone(241))),
            ("it is still allocated", Some(gone(0)), contested(Some(ClaimObservation::Allocated), late), Trust),
            ("nothing was seen", Some(gone(60)), contested(None, late), Doubt(gone(60))),
            (
                "the first look of this process",
                Some(gone(60)),
                ClaimLook { since_last: None, ..contested(seen, 0) },
                Doubt(gone(60)),
            ),
            ("a container runs", Some(gone(0)), ClaimLook { runs: true, ..contested(seen, 9999) }, Doubt(gone(9999))),
        ] {
            assert_eq!(judge(before, &look, GRACE), expected, "{name}");
        }
        let short = judge(Some(gone(0)), &contested(seen, 2), after(2));
        assert_eq!(short, Release(gone(2)), "never longer than for those in nobody's way");
    }
}
