//! The election, decided from reads and writes of the Lease and their times: pure.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use super::Leadership;

/// Time for which other candidates wait after a renewal. Long enough for an API server that is started anew.
pub(super) const LEASE_TIME: Duration = Duration::from_secs(15);
/// Time for which a leader relies on its last renewal: others wait half as long again, so that it has ended before they begin.
pub(super) const RENEW_TIME: Duration = Duration::from_secs(10);
/// Pause between two reads, or two renewals.
const RETRY: Duration = Duration::from_secs(5);
/// Pause after a call that failed.
const RETRY_FAILED: Duration = Duration::from_secs(2);
/// The longest duration of a Lease that counts. More is a mistake, and would leave the cluster without a leader for as long.
const LONGEST_LEASE: Duration = Duration::from_secs(60);
/// Duration of a Lease that was given back: Kubernetes allows no zero.
const GIVEN_BACK: Duration = Duration::from_secs(1);

/// Content of a Lease.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LeaseRecord {
    /// Holder; empty if there is none.
    pub holder: String,
    /// Duration from a renewal on.
    pub duration: Duration,
    /// The number of changes of holder; an int32 in the API.
    pub transitions: i32,
}

/// A Lease in one of its versions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SeenLease {
    /// Version.
    pub version: String,
    /// Content.
    pub record: LeaseRecord,
}

/// Events of the election.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LeaseEvent {
    /// The moment has come that [`LeaseCore::due`] said.
    Due,
    /// The Lease was read, or is not there.
    Read(Option<SeenLease>),
    /// The Lease was written.
    Written(SeenLease),
    /// The Lease was not written: it has another version by now.
    Refused,
    /// A call failed; it may have been carried out.
    Failed,
    /// The process stops.
    Stop,
}

/// The next call; the next event is its result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LeaseCommand {
    /// Read the Lease.
    Read,
    /// Write the Lease.
    Write {
        /// Version that is written over; `None` to create the Lease.
        over: Option<String>,
        /// Content to write.
        record: LeaseRecord,
        /// True if the holder changes.
        is_new_term: bool,
    },
}

/// One candidate.
#[derive(Clone, Debug)]
pub struct LeaseCore {
    identity: String,
    /// The Lease as it was last seen, and since when it has been like that here.
    seen: Option<(SeenLease, Instant)>,
    /// Moment at which the last write was sent that made or kept this candidate the holder.
    renewed: Option<Instant>,
    /// Moment at which the write in flight was sent.
    sent: Option<Instant>,
    /// True if the last write was refused.
    refused: bool,
    due: Instant,
    /// State of the generator of jitter: candidates do not come at the same moment.
    dice: u64,
}

impl LeaseCore {
    /// Returns a candidate with an identity that no other process has or will have.
    pub fn new(identity: &str, now: Instant) -> Self {
        let mut dice = DefaultHasher::new();
        identity.hash(&mut dice);
        let dice = dice.finish() | 1;
        Self { identity: identity.to_owned(), seen: None, renewed: None, sent: None, refused: false, due: now, dice }
    }

    /// Moment of the next [`LeaseEvent::Due`].
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Returns the leader.
    pub fn leadership(&self, trouble: Option<Arc<str>>) -> Leadership {
        let holder = self.seen.as_ref().map(|(seen, _)| &*seen.record.holder).filter(|holder| !holder.is_empty());
        let until = self.renewed.map(|renewed| renewed + RENEW_TIME);
        Leadership { holder: holder.map(Arc::from), until, trouble, server_time: None }
    }

    /// True if this candidate leads.
    pub fn leads(&self, now: Instant) -> bool {
        self.renewed.is_some_and(|renewed| now < renewed + RENEW_TIME)
    }

    /// Takes an event, and returns the next call.
    pub fn step(&mut self, now: Instant, event: LeaseEvent) -> Option<LeaseCommand> {
        match event {
            LeaseEvent::Due if self.leads(now) => self.renew(now),
            LeaseEvent::Due => Some(LeaseCommand::Read),
            // Twice in a row is more than another candidate that was faster: asking at once would not help.
            LeaseEvent::Refused if std::mem::replace(&mut self.refused, true) => self.wait(now, RETRY_FAILED),
            LeaseEvent::Refused => Some(LeaseCommand::Read),
            LeaseEvent::Read(found) => self.read(now, found),
            LeaseEvent::Written(lease) => {
                let sent = self.sent.take().unwrap_or(now);
                (self.renewed, self.seen, self.refused) = (Some(sent), Some((lease, sent)), false);
                self.wait(now, RETRY)
            }
            LeaseEvent::Failed => self.wait(now, RETRY_FAILED),
            LeaseEvent::Stop => self.give_back(now),
        }
    }

    fn read(&mut self, now: Instant, found: Option<SeenLease>) -> Option<LeaseCommand> {
        let Some(found) = found else {
            (self.seen, self.renewed) = (None, None);
            return self.take(now);
        };
        let is_known = self.seen.as_ref().is_some_and(|(seen, _)| seen.version == found.version);
        if !is_known {
            self.seen = Some((found.clone(), now));
        }
        // An answer that was lost may have been a yes.
        if found.record.holder == self.identity {
            return self.renew(now);
        }
        self.renewed = None;
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let free_at = since + found.record.duration.clamp(LEASE_TIME, LONGEST_LEASE);
        if found.record.holder.is_empty() || now >= free_at {
            return self.take(now);
        }
        self.wait(now, RETRY.min(free_at - now))
    }

    /// Takes the Lease.
    fn take(&mut self, now: Instant) -> Option<LeaseCommand> {
        let transitions = self.seen.as_ref().map_or(0, |(seen, _)| seen.record.transitions.saturating_add(1));
        self.write(now, transitions, true)
    }

    /// Renews the Lease.
    fn renew(&mut self, now: Instant) -> Option<LeaseCommand> {
        let transitions = self.seen.as_ref().map_or(0, |(seen, _)| seen.record.transitions);
        self.write(now, transitions, false)
    }

    fn write(&mut self, now: Instant, transitions: i32, is_new_term: bool) -> Option<LeaseCommand> {
        self.sent = Some(now);
        let record = LeaseRecord { holder: self.identity.clone(), duration: LEASE_TIME, transitions };
        Some(LeaseCommand::Write { over: self.version(), record, is_new_term })
    }

    fn version(&self) -> Option<String> {
        self.seen.as_ref().map(|(seen, _)| seen.version.clone())
    }

    fn give_back(&mut self, now: Instant) -> Option<LeaseCommand> {
        if !self.leads(now) {
            return None;
        }
        self.renewed = None;
        let (seen, _) = self.seen.as_ref()?;
        let record = LeaseRecord { holder: String::new(), duration: GIVEN_BACK, ..seen.record.clone() };
        Some(LeaseCommand::Write { over: self.version(), record, is_new_term: false })
    }

    /// Waits between three quarters of a pause and all of it.
    fn wait(&mut self, now: Instant, most: Duration) -> Option<LeaseCommand> {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let part = 768 + u32::try_from(self.dice % 257).unwrap_or_default();
        self.due = now + most * part / 1024;
        None
    }
}
