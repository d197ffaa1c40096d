//! Group commit: jobs that come while one is being done are joined, and one of their callers does all of them at once.
//!
//! ```text
//!   job ── no caller leads ──► its caller leads: takes all jobs that wait, does them, hands out the results
//!    └── a caller leads ──► waits: for its result, or to lead the next group
//! ```
//!
//! No caller waits for others to come: a job alone is done at once.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// A job in a group, with its result, which is success unless the leader says otherwise.
#[derive(Debug)]
pub(super) struct GroupMember<J, E> {
    pub(super) job: J,
    pub(super) result: Result<(), E>,
    ticket: u64,
}

/// Joins jobs of several threads.
pub(super) struct GroupCommit<J, E> {
    group: Mutex<Group<J, E>>,
    /// Notified when a leader is done.
    led: Condvar,
}

struct Group<J, E> {
    waiting: Vec<GroupMember<J, E>>,
    /// Results that their callers have not taken yet.
    results: BTreeMap<u64, Result<(), E>>,
    next_ticket: u64,
    is_led: bool,
}

impl<J, E> Default for GroupCommit<J, E> {
    fn default() -> Self {
        let group = Group { waiting: Vec::new(), results: BTreeMap::new(), next_ticket: 0, is_led: false };
        Self { group: Mutex::new(group), led: Condvar::new() }
    }
}

impl<J, E> fmt::Debug for GroupCommit<J, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

impl<J, E> GroupCommit<J, E> {
    /// Has a job done, alone or with others, and returns its result. `work` does those of a group that this caller
    /// leads; at most one group is under way.
    pub(super) fn join(&self, job: J, work: impl FnOnce(&mut [GroupMember<J, E>])) -> Result<(), E> {
        let mut group = self.lock();
        let ticket = group.next_ticket;
        group.next_ticket += 1;
        group.waiting.push(GroupMember { job, result: Ok(()), ticket });
        while group.is_led {
            group = self.led.wait(group).unwrap_or_else(PoisonError::into_inner);
            if let Some(result) = group.results.remove(&ticket) {
                return result;
            }
        }
        group.is_led = true;
        let mut members = std::mem::take(&mut group.waiting);
        drop(group);
        work(&mut members);
        self.end(ticket, members)
    }

    /// Hands out the results of a group, and returns the leader's own.
    fn end(&self, leader: u64, members: Vec<GroupMember<J, E>>) -> Result<(), E> {
        let mut own = Ok(());
        let mut group = self.lock();
        for GroupMember { result, ticket, .. } in members {
            if ticket == leader {
                own = result;
            } else {
                group.results.insert(ticket, result);
            }
        }
        group.is_led = false;
        let is_alone = group.results.is_empty() && group.waiting.is_empty();
        drop(group);
        // To notify no thread is a system call all the same.
        if !is_alone {
            self.led.notify_all();
        }
        own
    }

    fn lock(&self) -> MutexGuard<'_, Group<J, E>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the jobs that wait for a leader.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }
}

#[cfg(test)]
mod tests;
