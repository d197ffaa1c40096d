//! The two locks that a runtime holds while it talks to plugins, taken in the order in which the real one takes them.
//!
//! An event takes the runtime's lock, then that of the plugins. Up to NRI 0.12.0, an update that a plugin asks for
//! takes them the other way round; when each has its first, nothing moves any more in the real one. Here, everything
//! fails.

use std::sync::{Condvar, Mutex, MutexGuard};

#[derive(Default)]
struct Held {
    runtime: bool,
    plugins: bool,
    /// An event has the runtime's lock and waits for that of the plugins.
    event_waits: bool,
    /// An update has the lock of the plugins and waits for the runtime's.
    update_waits: bool,
    locked_up: bool,
}

/// The locks.
#[derive(Default)]
pub(super) struct RuntimeLocks {
    held: Mutex<Held>,
    changed: Condvar,
}

/// Both locks, or the runtime's alone, while they are held.
pub(super) struct RuntimeGuard<'a> {
    locks: &'a RuntimeLocks,
    plugins: bool,
}

impl RuntimeLocks {
    /// Takes the locks for an event, or for the runtime's own work.
    ///
    /// # Errors
    /// When the runtime is locked up.
    pub(super) fn for_event(&self) -> Result<RuntimeGuard<'_>, String> {
        let mut held = self.wait(self.held.lock().unwrap(), |held| held.runtime)?;
        held.runtime = true;
        if held.plugins && held.update_waits {
            return Err(self.lock_up(held));
        }
        held.event_waits = true;
        let mut held = self.wait(held, |held| held.plugins)?;
        held.event_waits = false;
        held.plugins = true;
        Ok(RuntimeGuard { locks: self, plugins: true })
    }

    /// Takes the locks for an update that a plugin sends by itself.
    ///
    /// # Errors
    /// When the runtime is locked up.
    pub(super) fn for_update(&self, locks_up: bool) -> Result<RuntimeGuard<'_>, String> {
        let mut held = self.held.lock().unwrap();
        if locks_up {
            held = self.wait(held, |held| held.plugins)?;
            held.plugins = true;
            if held.runtime && held.event_waits {
                return Err(self.lock_up(held));
            }
            held.update_waits = true;
        }
        let mut held = self.wait(held, |held| held.runtime)?;
        held.update_waits = false;
        held.runtime = true;
        Ok(RuntimeGuard { locks: self, plugins: locks_up })
    }

    /// Returns true if no thread moves any more.
    pub(super) fn are_locked_up(&self) -> bool {
        self.held.lock().unwrap().locked_up
    }

    fn lock_up(&self, mut held: MutexGuard<'_, Held>) -> String {
        held.locked_up = true;
        self.changed.notify_all();
        LOCKED_UP.to_owned()
    }

    fn wait<'a>(
        &self,
        held: MutexGuard<'a, Held>,
        mut taken: impl FnMut(&Held) -> bool,
    ) -> Result<MutexGuard<'a, Held>, String> {
        let held = self.changed.wait_while(held, |held| !held.locked_up && taken(held)).unwrap();
        if held.locked_up { Err(LOCKED_UP.to_owned()) } else { Ok(held) }
    }
}

const LOCKED_UP: &str = "the runtime is locked up";

impl Drop for RuntimeGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock().unwrap();
        held.runtime = false;
        held.plugins &= !self.plugins;
        self.locks.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread};

    use super::*;

    #[test]
    fn an_update_and_an_event_that_have_a_lock_each_lock_up_an_old_runtime() {
        let locks = RuntimeLocks::default();
        // An event is told of; an update comes, and then the next event.
        let first = locks.for_event().unwrap();
        thread::scope(|threads| {
            let update = threads.spawn(|| locks.for_update(true).map(drop));
            let next = threads.spawn(|| locks.for_event().map(drop));
            drop(first);
            let outcomes = [update.join().unwrap(), next.join().unwrap()];
            // Whether it happens is chance, as it is for the real one; that it is noticed is not.
            assert_eq!(locks.are_locked_up(), outcomes.iter().any(Result::is_err), "{outcomes:?}");
        });
    }

    #[test]
    fn a_new_runtime_makes_an_update_wait_for_the_event() {
        let locks = RuntimeLocks::default();
        let event = locks.for_event().unwrap();
        let (done_tx, done_rx) = channel();
        thread::scope(|threads| {
            threads.spawn(|| done_tx.send(locks.for_update(false).map(drop)).unwrap());
            assert!(done_rx.try_recv().is_err());
            drop(event);
            assert_eq!(done_rx.recv().unwrap(), Ok(()));
        });
        assert!(locks.for_event().is_ok() && !locks.are_locked_up());
    }
}
