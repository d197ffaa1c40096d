//! The lock of the claims' owner: the thread that brings a request takes the owner, has it decide, and does the work.
//!
//! ```text
//!   request ── owner is free ──► taken: hears what waits, decides, shows, answers ──► free ──► this thread does work
//!      │                           ▲                                                             that was begun │
//!      │                           └───────────────── its end is a request ◄────────────────────────────────────┘
//!      └── owner is taken ──► waits for the thread that has it
//! ```
//!
//! No thread waits for the owner, and none keeps it while it works: hardware and disk are touched by threads that have
//! let go of it. So what is decided is decided in the order of the requests, and a claim alone changes threads twice,
//! from its caller and back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    ClaimsRequest,
    owner::{BegunRecovery, BegunWork, ClaimsOwner},
};
use crate::{claims::executor::ClaimExecutor, tasks::Tasks};

/// Asks the owner of the claims. Cheap to clone.
#[derive(Clone)]
pub(super) struct OwnerLock {
    queue: Arc<RequestQueue>,
    executor: Arc<ClaimExecutor>,
    tasks: Tasks,
}

/// Requests that wait for the owner, and the owner while no thread has it.
pub(super) struct RequestQueue(Mutex<LockedOwner>);

struct LockedOwner {
    requests: VecDeque<ClaimsRequest>,
    owner: OwnerPlace,
}

enum OwnerPlace {
    Free(Box<ClaimsOwner>),
    Taken,
    /// The owner was told to stop, and has: requests are dropped, which tells their callers.
    Ended,
}

impl RequestQueue {
    /// Number of the requests that wait.
    pub(super) fn len(&self) -> usize {
        self.lock().requests.len()
    }

    /// Takes the next request.
    pub(super) fn next(&self) -> Option<ClaimsRequest> {
        self.lock().requests.pop_front()
    }

    /// Adds a request, and says where the owner is; `None` if it has ended.
    fn add(&self, request: ClaimsRequest) -> Option<MutexGuard<'_, LockedOwner>> {
        let mut locked = self.lock();
        if matches!(locked.owner, OwnerPlace::Ended) {
            return None;
        }
        locked.requests.push_back(request);
        Some(locked)
    }

    fn lock(&self) -> MutexGuard<'_, LockedOwner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockedOwner {
    fn take(&mut self) -> Option<Box<ClaimsOwner>> {
        match std::mem::replace(&mut self.owner, OwnerPlace::Taken) {
            OwnerPlace::Free(owner) => Some(owner),
            elsewhere => {
                self.owner = elsewhere;
                None
            }
        }
    }
}

impl OwnerLock {
    /// The lock of a new owner, whose first work is begun.
    pub(super) fn new(owner: ClaimsOwner, executor: Arc<ClaimExecutor>, tasks: Tasks) -> Self {
        let locked = LockedOwner { requests: VecDeque::new(), owner: OwnerPlace::Taken };
        let lock = Self { queue: Arc::new(RequestQueue(Mutex::new(locked))), executor, tasks };
        let own = lock.decide(Box::new(owner));
        own.into_iter().for_each(|work| lock.spawn(work));
        lock
    }

    /// Passes a request on from any thread of the runtime; false if the owner has ended. Requests of one thread are
    /// heard in their order.
    pub(super) fn send(&self, request: ClaimsRequest) -> bool {
        let Some(locked) = self.queue.add(request) else { return false };
        let is_free = matches!(locked.owner, OwnerPlace::Free(_));
        drop(locked);
        if is_free {
            let lock = self.clone();
            self.tasks.blocking(move || lock.serve());
        }
        true
    }

    /// Passes a request on from a blocking thread, and does there what follows from it.
    pub(super) fn ask(&self, request: ClaimsRequest) {
        drop(self.queue.add(request));
        self.serve();
    }

    /// Decides and works until nothing is left for this thread.
    fn serve(&self) {
        let Some(owner) = self.queue.lock().take() else { return };
        if let Some(work) = self.decide(owner) {
            self.work(work);
        }
    }

    fn work(&self, mut work: BegunWork) {
        loop {
            let finished = ClaimsRequest::Finished(work(&self.executor));
            // The owner does not end before what is under way.
            let owner = self.queue.add(finished).and_then(|mut locked| locked.take());
            match owner.and_then(|owner| self.decide(owner)) {
                Some(next) => work = next,
                None => break,
            }
        }
        self.executor.tidy_records();
    }

    /// Has the owner decide until no request waits, and lets go of it. Returns work for this thread; threads of their
    /// own have the rest, so that no work waits for other work or for decisions.
    fn decide(&self, mut owner: Box<ClaimsOwner>) -> Option<BegunWork> {
        loop {
            owner.turn(&self.queue);
            let (mut begun, recoveries) = owner.take_begun();
            recoveries.into_iter().for_each(|recovery| self.recover(recovery));
            let mut locked = self.queue.lock();
            let is_over = locked.requests.is_empty() && !owner.has_turns();
            let own = if is_over { begun.pop() } else { None };
            if !is_over {
                drop(locked);
                begun.into_iter().for_each(|work| self.spawn(work));
                continue;
            }
            if owner.has_ended() {
                locked.owner = OwnerPlace::Ended;
                drop(locked);
                owner.end();
            } else {
                locked.owner = OwnerPlace::Free(owner);
                drop(locked);
            }
            begun.into_iter().for_each(|work| self.spawn(work));
            return own;
        }
    }

    fn spawn(&self, work: BegunWork) {
        let lock = self.clone();
        self.tasks.blocking(move || lock.work(work));
    }

    fn recover(&self, recovery: BegunRecovery) {
        let lock = self.clone();
        self.tasks.looking(move || {
            // Not as this thread's own work: a stop does not wait for this thread.
            let pass_on = |finished| lock.send(ClaimsRequest::Finished(finished));
            recovery.run(&lock.executor, pass_on);
        });
    }
}
