//! The loop of whoever looks at objects one by one: while this process leads, each of them is looked at when it changes, and again
//! after a while ([`Rounds`] says when). A look reads everything anew, and ends with at most one write.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use hostler_cluster::ApiClient;
use hostler_process::Tasks;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tracing::debug;

use crate::{
    lead::{Leadership, ServerTime},
    leading,
    rounds::{LookEnd, Rounds},
    view::ClusterView,
};

/// Looks that are under way at once.
const MOST_LOOKS: usize = 8;
/// Before it is tried again to begin a term.
const BEGIN_AGAIN: Duration = Duration::from_secs(10);

/// What looking takes.
#[derive(Clone, Debug)]
pub(crate) struct LookParts {
    /// A connection that no watch can hold up.
    pub(crate) client: ApiClient,
    /// What is there.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// Whether this process may write.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// Where looks run.
    pub(crate) tasks: Tasks,
}

/// Somebody who looks at objects, for one term.
pub(crate) trait LookTerm: Send {
    /// What a look comes to.
    type Answer: Send + 'static;

    /// What is to be looked at, by name.
    fn objects(view: &ClusterView) -> BTreeMap<String, Fingerprint>;

    /// One look at the object of this name.
    fn look(&mut self, name: &str, now: LookMoment) -> impl Future<Output = Self::Answer> + Send + 'static;

    /// A look has come to this.
    fn answered(&mut self, name: &str, answer: Self::Answer) -> LookEnd;

    /// The object of this name is not there any more.
    fn forget(&mut self, name: &str);
}

/// Somebody who looks at objects whenever this process leads.
pub(crate) trait LookKeeper: Send + Sync + 'static {
    /// What a term of it is.
    type Term: LookTerm;

    /// Begins a term; or why there is nothing to look at now.
    fn begin(&self, parts: &LookParts) -> impl Future<Output = Result<Self::Term, String>> + Send;
}

/// What a look begins with.
pub(crate) struct LookMoment {
    pub(crate) view: Arc<ClusterView>,
    /// How long the term has lasted.
    pub(crate) elapsed: Duration,
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
}

impl LookMoment {
    /// What was read is of the time of who leads; what is written is as well.
    pub(crate) fn may_write(&self) -> bool {
        self.leadership_rx.borrow().is_ours(Instant::now().into_std())
    }

    /// What time the server says that it is, since 1970.
    pub(crate) fn server_time(&self) -> Option<Duration> {
        self.leadership_rx.borrow().server_time.map(ServerTime::now)
    }
}

/// Changes when there is something new to see of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fingerprint(DefaultHasher);

impl Fingerprint {
    pub(crate) fn add(&mut self, what: impl Hash) {
        what.hash(&mut self.0);
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        self.0.finish() == other.0.finish()
    }
}

/// Looks at objects as long as this process leads.
pub(crate) fn start(name: &'static str, keeper: impl LookKeeper, mut parts: LookParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service(name, async move {
        tokio::select! {
            // Dropped at the end only. What was sent is done or not; whoever leads next finds out.
            () = run(name, &keeper, &mut parts) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

async fn run(name: &'static str, keeper: &impl LookKeeper, parts: &mut LookParts) {
    loop {
        leading::wait(&mut parts.leadership_rx, &mut parts.view_rx, || {}).await;
        match keeper.begin(parts).await {
            Ok(term) => Looks::new(parts, term).run().await,
            Err(why) => {
                debug!(why, name, "nothing is looked at");
                sleep(BEGIN_AGAIN).await;
            }
        }
    }
}

struct Looks<'a, T: LookTerm> {
    parts: &'a mut LookParts,
    term: T,
    rounds: Rounds,
    known: BTreeMap<String, Fingerprint>,
    began: Instant,
    answers_tx: mpsc::Sender<(String, T::Answer)>,
    answers_rx: mpsc::Receiver<(String, T::Answer)>,
}

impl<'a, T: LookTerm> Looks<'a, T> {
    fn new(parts: &'a mut LookParts, term: T) -> Self {
        // Each look under way gives one answer.
        let (answers_tx, answers_rx) = mpsc::channel(MOST_LOOKS);
        let (rounds, known, began) = (Rounds::default(), BTreeMap::new(), Instant::now());
        Self { parts, term, rounds, known, began, answers_tx, answers_rx }
    }

    async fn run(mut self) {
        self.view_changed();
        while let Some(until) = leading::until(&mut self.parts.leadership_rx) {
            self.begin_looks();
            let next = self.rounds.next(MOST_LOOKS).map_or(until, |at| (self.began + at).min(until));
            tokio::select! {
                // What the server answered is known before more is asked of it.
                biased;
                // Cancel safe: an answer that was not taken stays in the channel.
                Some((name, answer)) = self.answers_rx.recv() => {
                    let end = self.term.answered(&name, answer);
                    self.ended(&name, end);
                }
                // Cancel safe: it only waits.
                () = sleep_until(next) => {}
                // Cancel safe: what has changed is looked at in the next round.
                _ = self.parts.leadership_rx.changed() => {}
                // Cancel safe: what has changed is looked at at once.
                Ok(()) = self.parts.view_rx.changed() => self.view_changed(),
            }
        }
    }

    /// Those of which something is another than before are looked at.
    fn view_changed(&mut self) {
        let seen = T::objects(&self.parts.view_rx.borrow_and_update());
        let now = self.began.elapsed();
        for (name, fingerprint) in &seen {
            if self.known.get(name) != Some(fingerprint) {
                self.rounds.changed(name, now);
            }
        }
        for name in self.known.keys().filter(|name| !seen.contains_key(*name)) {
            self.rounds.forget(name);
            self.term.forget(name);
        }
        self.known = seen;
    }

    fn begin_looks(&mut self) {
        let elapsed = self.began.elapsed();
        while let Some(name) = self.rounds.begin(elapsed, MOST_LOOKS) {
            if !self.known.contains_key(&name) {
                self.ended(&name, LookEnd::Again);
                continue;
            }
            let view = self.parts.view_rx.borrow().clone();
            let leadership_rx = self.parts.leadership_rx.clone();
            let look = self.term.look(&name, LookMoment { view, elapsed, leadership_rx });
            let answers_tx = self.answers_tx.clone();
            self.parts.tasks.job(async move {
                // Nobody wants to know when the term is over.
                let _ = answers_tx.send((name, look.await)).await;
            });
        }
    }

    fn ended(&mut self, name: &str, end: LookEnd) {
        self.rounds.ended(name, self.began.elapsed(), end);
        if !self.known.contains_key(name) {
            self.rounds.forget(name);
            self.term.forget(name);
        }
    }
}
