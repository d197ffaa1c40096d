//! Who leads, decided from what was read and written and when: pure.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use super::Leadership;

/// For how long others leave alone who has renewed. Long enough for an API server that is started anew.
pub(super) const LEASE_TIME: Duration = Duration::from_secs(15);
/// For how long one who leads relies on his last renewal: others wait a third longer, so that he has ended before they begin.
pub(super) const RENEW_TIME: Duration = Duration::from_secs(10);
/// Between two looks, or two renewals.
const RETRY: Duration = Duration::from_secs(5);
/// After a call that failed.
const RETRY_FAILED: Duration = Duration::from_secs(2);
/// What a Lease may ask for. More is somebody's mistake, and would leave the cluster without a leader for as long.
const LONGEST_LEASE: Duration = Duration::from_secs(60);
/// What a Lease says that was given back: Kubernetes allows no zero.
const GIVEN_BACK: Duration = Duration::from_secs(1);

/// What stands in a Lease.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct LeaseRecord {
    /// Who has it; nobody if empty.
    pub(crate) holder: String,
    /// For how long, from a renewal on.
    pub(crate) duration: Duration,
    /// The number of changes of holder; an int32 in the API.
    pub(crate) transitions: i32,
}

/// A Lease in one of its versions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SeenLease {
    /// Which.
    pub(crate) version: String,
    /// What stands in it.
    pub(crate) record: LeaseRecord,
}

/// What happens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum LeaseEvent {
    /// The moment has come that [`LeaseCore::due`] said.
    Due,
    /// The Lease was read, or is not there.
    Read(Option<SeenLease>),
    /// It was written as wanted.
    Written(SeenLease),
    /// It was not: it is another one by now.
    Refused,
    /// A call failed; nobody knows whether it was done.
    Failed,
    /// The process stops.
    Stop,
}

/// What is to be done; the next event tells how it went.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum LeaseCommand {
    /// Read the Lease.
    Read,
    /// Write it.
    Write {
        /// Over this version and no other; `None` where there shall be none yet.
        over: Option<String>,
        /// What shall stand in it.
        record: LeaseRecord,
        /// Whether it goes to somebody else by this.
        is_new_term: bool,
    },
}

/// One candidate.
#[derive(Clone, Debug)]
pub(crate) struct LeaseCore {
    identity: String,
    /// The Lease as it was last seen, and since when it has been like that here.
    seen: Option<(SeenLease, Instant)>,
    /// When the write was sent that last made or kept it ours.
    renewed: Option<Instant>,
    /// When the write was sent that is under way.
    sent: Option<Instant>,
    /// Whether the last write was refused.
    refused: bool,
    due: Instant,
    /// Where pauses come from that no two candidates share.
    dice: u64,
}

impl LeaseCore {
    /// A candidate of this name, which no other process has or will have.
    pub(crate) fn new(identity: &str, now: Instant) -> Self {
        let mut dice = DefaultHasher::new();
        identity.hash(&mut dice);
        let dice = dice.finish() | 1;
        Self { identity: identity.to_owned(), seen: None, renewed: None, sent: None, refused: false, due: now, dice }
    }

    /// When to come back with [`LeaseEvent::Due`].
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Who leads.
    pub(crate) fn leadership(&self, trouble: Option<Arc<str>>) -> Leadership {
        let holder = self.seen.as_ref().map(|(seen, _)| &*seen.record.holder).filter(|holder| !holder.is_empty());
        let until = self.renewed.map(|renewed| renewed + RENEW_TIME);
        Leadership { holder: holder.map(Arc::from), until, trouble, server_time: None }
    }

    /// Whether this candidate leads.
    pub(crate) fn leads(&self, now: Instant) -> bool {
        self.renewed.is_some_and(|renewed| now < renewed + RENEW_TIME)
    }

    /// Takes what happened.
    pub(crate) fn step(&mut self, now: Instant, event: LeaseEvent) -> Option<LeaseCommand> {
        match event {
            LeaseEvent::Due if self.leads(now) => self.renew(now),
            LeaseEvent::Due => Some(LeaseCommand::Read),
            // Twice in a row is more than somebody who was faster: asking on and on would help nobody.
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

    /// Makes it ours.
    fn take(&mut self, now: Instant) -> Option<LeaseCommand> {
        let transitions = self.seen.as_ref().map_or(0, |(seen, _)| seen.record.transitions.saturating_add(1));
        self.write(now, transitions, true)
    }

    /// Keeps it ours.
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

    /// Between three quarters of a pause and all of it: who waits for the same thing does not come at the same moment.
    fn wait(&mut self, now: Instant, most: Duration) -> Option<LeaseCommand> {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let part = 768 + u32::try_from(self.dice % 257).unwrap_or_default();
        self.due = now + most * part / 1024;
        None
    }
}
