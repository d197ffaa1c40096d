//! The loop of a controller: while this process leads, each key is reconciled when it changes and again after a while
//! ([`WorkQueue`] says when). Reconciling reads everything anew, and ends with writes that each name the version that was
//! read.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use hostler_cluster::ApiClient;
use hostler_process::Tasks;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::debug;

use crate::{CallPool, Leadership, Requeue, ServerTime, WorkQueue, leads_until, wait_to_lead};

/// Keys that are reconciled at the same time, unless a reconciler says otherwise.
const MOST_AT_ONCE: usize = 8;
/// After keys were compared, they are not compared again for so many times as long as that took: while much changes, nine
/// tenths of the time are left for other work.
const REST_FACTOR: u32 = 9;
/// The longest time for which keys are not compared.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// Pause before another try to begin a term.
const BEGIN_AGAIN: Duration = Duration::from_secs(10);

/// A view of the cluster that a controller reconciles by.
pub trait Observed: Send + Sync + 'static {
    /// True if every kind was listed: on less, nothing is decided.
    fn is_complete(&self) -> bool;
}

/// The connections of a controller to the rest of its process.
#[derive(Debug)]
pub struct ControllerParts<V> {
    /// A connection that no watch can hold up.
    pub client: ApiClient,
    /// The latest view.
    pub view_rx: watch::Receiver<Arc<V>>,
    /// The leader.
    pub leadership_rx: watch::Receiver<Leadership>,
    /// Tasks that calls run in.
    pub tasks: Tasks,
}

/// Reconciles keys, for one leader term.
pub trait Reconciler: Send {
    /// The view of the cluster.
    type View: Observed;
    /// Result of one reconciliation.
    type Answer: Send + 'static;

    /// Returns the keys with a fingerprint each: a key whose fingerprint is another one than before is reconciled.
    fn keys(&mut self, view: &Self::View) -> BTreeMap<String, Fingerprint>;

    /// Reconciles one key.
    fn reconcile(
        &mut self,
        key: &str,
        moment: ReconcileMoment<Self::View>,
    ) -> impl Future<Output = Self::Answer> + Send + 'static;

    /// Takes the result for a key, and says when the key is reconciled again.
    fn reconciled(&mut self, key: &str, answer: Self::Answer) -> Requeue;

    /// Drops what is remembered of a key that does not exist any more.
    fn forget(&mut self, key: &str);

    /// Returns how many keys are reconciled at the same time.
    fn most_at_once(&self) -> usize {
        MOST_AT_ONCE
    }

    /// Waits until something besides the view may have changed fingerprints. Cancel safe.
    fn changed(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Begins a [`Reconciler`] for each term.
pub trait Controller: Send + Sync + 'static {
    /// The reconciler of a term.
    type Reconciler: Reconciler;

    /// Begins a term; or says why there is nothing to reconcile now.
    fn begin(
        &self,
        parts: &ControllerParts<<Self::Reconciler as Reconciler>::View>,
    ) -> impl Future<Output = Result<Self::Reconciler, String>> + Send;

    /// Runs the controller until the process stops.
    fn start(self, name: &'static str, mut parts: ControllerParts<<Self::Reconciler as Reconciler>::View>)
    where
        Self: Sized,
    {
        let tasks = parts.tasks.clone();
        let stop = tasks.stop_token();
        tasks.service(name, async move {
            tokio::select! {
                // Dropped at the end only. A call that was sent is done or not; the next leader finds out.
                () = run(name, &self, &mut parts) => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => {}
            }
            Ok(())
        });
    }
}

/// The state with which a reconciliation begins.
#[derive(Debug)]
pub struct ReconcileMoment<V> {
    /// The latest view.
    pub view: Arc<V>,
    /// Time since the term began.
    pub elapsed: Duration,
    leadership_rx: watch::Receiver<Leadership>,
}

impl<V> ReconcileMoment<V> {
    /// True if this process still leads: what was read was read by the leader, and the write is made by the leader.
    pub fn may_write(&self) -> bool {
        self.leadership_rx.borrow().is_ours(Instant::now().into_std())
    }

    /// Time since 1970 by the API server's clock, once it said so.
    pub fn server_time(&self) -> Option<Duration> {
        self.leadership_rx.borrow().server_time.map(ServerTime::now)
    }
}

/// Hash of everything that a key's reconciliation depends on.
#[derive(Clone, Debug, Default)]
pub struct Fingerprint(DefaultHasher);

impl Fingerprint {
    /// Adds a value.
    pub fn add(&mut self, value: impl Hash) {
        value.hash(&mut self.0);
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        self.0.finish() == other.0.finish()
    }
}

type ViewOf<C> = <<C as Controller>::Reconciler as Reconciler>::View;

async fn run<C: Controller>(name: &'static str, controller: &C, parts: &mut ControllerParts<ViewOf<C>>) {
    loop {
        wait_to_lead(&mut parts.leadership_rx, &mut parts.view_rx, || {}).await;
        match controller.begin(parts).await {
            Ok(reconciler) => Term::new(parts, reconciler).run().await,
            Err(why) => {
                debug!(why, name, "nothing is reconciled");
                sleep(BEGIN_AGAIN).await;
            }
        }
    }
}

struct Term<'a, R: Reconciler> {
    parts: &'a mut ControllerParts<R::View>,
    reconciler: R,
    queue: WorkQueue<String>,
    known: BTreeMap<String, Fingerprint>,
    began: Instant,
    /// The time before which keys are not compared.
    rest_until: Instant,
    /// True if something has changed since keys were compared.
    is_stale: bool,
    most_at_once: usize,
    calls: CallPool<(String, R::Answer)>,
}

impl<'a, R: Reconciler> Term<'a, R> {
    fn new(parts: &'a mut ControllerParts<R::View>, reconciler: R) -> Self {
        // A pool without room would never end.
        let most_at_once = reconciler.most_at_once().max(1);
        let calls = CallPool::new(&parts.tasks, most_at_once);
        let (queue, known, began) = (WorkQueue::default(), BTreeMap::new(), Instant::now());
        Self { parts, reconciler, queue, known, began, rest_until: began, is_stale: true, most_at_once, calls }
    }

    async fn run(mut self) {
        while let Some(until) = leads_until(&mut self.parts.leadership_rx) {
            if self.is_stale && self.rest_until <= Instant::now() {
                self.compare_keys();
            }
            self.begin_due();
            let due = self.queue.next(self.most_at_once).map(|at| self.began + at);
            let compare = self.is_stale.then_some(self.rest_until);
            let next = due.into_iter().chain(compare).fold(until, Instant::min);
            tokio::select! {
                // Answers of the API server count before more is asked of it.
                biased;
                // Cancel safe: see there.
                (key, answer) = self.calls.answer() => {
                    let requeue = self.reconciler.reconciled(&key, answer);
                    self.ended(&key, requeue);
                }
                // Cancel safe: it only waits.
                () = sleep_until(next) => {}
                // Cancel safe: a change is looked at in the next round.
                _ = self.parts.leadership_rx.changed() => {}
                // Cancel safe: what was seen of the view is kept here.
                Ok(()) = self.parts.view_rx.changed() => self.is_stale = true,
                // Cancel safe: see there.
                () = self.reconciler.changed() => self.is_stale = true,
            }
        }
    }

    /// Queues keys whose fingerprints changed.
    fn compare_keys(&mut self) {
        let began = Instant::now();
        let seen = self.reconciler.keys(&self.parts.view_rx.borrow_and_update());
        self.is_stale = false;
        self.rest_until = Instant::now() + (began.elapsed() * REST_FACTOR).min(LONGEST_REST);
        let now = self.began.elapsed();
        for (key, fingerprint) in &seen {
            if self.known.get(key) != Some(fingerprint) {
                self.queue.changed(key, now);
            }
        }
        for key in self.known.keys().filter(|key| !seen.contains_key(*key)) {
            self.queue.forget(key);
            self.reconciler.forget(key);
        }
        self.known = seen;
    }

    fn begin_due(&mut self) {
        let elapsed = self.began.elapsed();
        while let Some(key) = self.queue.begin(elapsed, self.most_at_once) {
            if !self.known.contains_key(&key) {
                self.ended(&key, Requeue::Now);
                continue;
            }
            let view = self.parts.view_rx.borrow().clone();
            let leadership_rx = self.parts.leadership_rx.clone();
            let reconciling = self.reconciler.reconcile(&key, ReconcileMoment { view, elapsed, leadership_rx });
            self.calls.begin(async move { (key, reconciling.await) });
        }
    }

    fn ended(&mut self, key: &String, requeue: Requeue) {
        self.queue.ended(key, self.began.elapsed(), requeue);
        if !self.known.contains_key(key) {
            self.queue.forget(key);
            self.reconciler.forget(key);
        }
    }
}
