//! The edge of shared claims to the API server: while this process leads, each Reservation of that mode is looked at when
//! something of it changes. A look reads everything anew, and ends with at most one write.

mod look;

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{Chain, reservation::ReservationMode};
use hostler_cluster::ApiClient;
use hostler_process::Tasks;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, warn};

use self::look::{LookAnswer, LookQuestion, Looker};
use crate::{
    config::ReservationsConfig,
    hold::{
        HoldTime,
        adapter::{HoldCaller, HoldPlaces, Notices},
        agenda::HoldClock,
    },
    lead::Leadership,
    leading,
    rounds::{LookEnd, Rounds},
    view::ClusterView,
};

/// Looks that are under way at once.
const MOST_LOOKS: usize = 8;
/// Before it is asked again whether there is anything to lead.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What keeping claims takes.
#[derive(Debug)]
pub(crate) struct SharedParts {
    /// A connection that no watch can hold up.
    pub(crate) client: ApiClient,
    /// How it is done.
    pub(crate) config: ReservationsConfig,
    /// What is there.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// Whether this process may write.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// Where looks run.
    pub(crate) tasks: Tasks,
}

/// Keeps claims as long as this process leads.
pub(crate) fn start(mut parts: SharedParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service("shared claims", async move {
        tokio::select! {
            // Dropped at the end only. What was sent is done or not; whoever leads next finds out.
            () = parts.run() => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

/// What changes when there is something new to see of a Reservation.
type Fingerprint = u64;

struct SharedTerm<'a> {
    parts: &'a mut SharedParts,
    looker: Looker,
    notices: Notices,
    rounds: Rounds,
    known: BTreeMap<String, Fingerprint>,
    /// What the server said to the last write that it refused.
    troubles: BTreeMap<String, String>,
    /// Since when nodes are missed.
    missed: BTreeMap<String, Duration>,
    clock: HoldClock,
    began: Instant,
    answers_tx: mpsc::Sender<LookAnswer>,
    answers_rx: mpsc::Receiver<LookAnswer>,
}

impl SharedParts {
    async fn run(&mut self) {
        loop {
            leading::wait(&mut self.leadership_rx, &mut self.view_rx, || {}).await;
            match self.looker().await {
                Ok(looker) => SharedTerm::new(self, looker).run().await,
                // Whoever keeps devices by fences has said it.
                Err(why) => {
                    debug!(why, "no claims are kept");
                    sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    async fn looker(&self) -> Result<Looker, String> {
        let places = HoldPlaces::find(&self.client).await.map_err(|error| format!("{error:?}"))?;
        let minor = self.client.minor_release().await.map_err(|failure| Chain(&failure).to_string())?;
        let caller = HoldCaller { client: self.client.clone(), places, namespace: String::new() };
        Ok(Looker { caller, minor, config: self.config.clone() })
    }
}

impl<'a> SharedTerm<'a> {
    fn new(parts: &'a mut SharedParts, looker: Looker) -> Self {
        // Each look under way gives one answer.
        let (answers_tx, answers_rx) = mpsc::channel(MOST_LOOKS);
        Self {
            notices: Notices::start(parts.client.clone(), &parts.tasks),
            parts,
            looker,
            rounds: Rounds::default(),
            known: BTreeMap::new(),
            troubles: BTreeMap::new(),
            missed: BTreeMap::new(),
            clock: HoldClock::default(),
            began: Instant::now(),
            answers_tx,
            answers_rx,
        }
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
                Some(answer) = self.answers_rx.recv() => self.answered(answer),
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
        let view = self.parts.view_rx.borrow_and_update().clone();
        let now = self.began.elapsed();
        let seen = fingerprints(&view);
        for (name, fingerprint) in &seen {
            if self.known.get(name) != Some(fingerprint) {
                self.rounds.changed(name, now);
            }
        }
        let gone = self.known.keys().filter(|name| !seen.contains_key(*name)).cloned();
        for name in gone.collect::<Vec<_>>() {
            self.rounds.forget(&name);
            self.troubles.remove(&name);
        }
        self.known = seen;
    }

    fn begin_looks(&mut self) {
        let elapsed = self.began.elapsed();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.clock.pass(HoldTime { elapsed, wall });
        while let Some(name) = self.rounds.begin(elapsed, MOST_LOOKS) {
            if !self.known.contains_key(&name) {
                self.rounds.ended(&name, elapsed, LookEnd::Again);
                self.rounds.forget(&name);
                continue;
            }
            let view = self.parts.view_rx.borrow().clone();
            let question = LookQuestion {
                lost_nodes: self.lost_nodes(&view, elapsed),
                trouble: self.troubles.get(&name).cloned(),
                now: self.clock.certain(),
                leadership_rx: self.parts.leadership_rx.clone(),
                view,
                name,
            };
            let (looker, answers_tx) = (self.looker.clone(), self.answers_tx.clone());
            self.parts.tasks.job(async move {
                // Nobody wants to know when the term is over.
                let _ = answers_tx.send(looker.look(question).await).await;
            });
        }
    }

    /// Nodes of kept devices that have been gone for longer than the grace.
    fn lost_nodes(&mut self, view: &ClusterView, now: Duration) -> BTreeSet<String> {
        let devices = view.reservations.values().flat_map(|it| &it.status.devices);
        let nodes: BTreeSet<&String> = devices.map(|device| &device.node_name).collect();
        let is_gone = |node: &&&String| !node.is_empty() && view.facts.node(node).is_none();
        let gone: BTreeSet<&String> = nodes.iter().filter(is_gone).copied().collect();
        self.missed.retain(|node, _| gone.contains(node));
        for node in gone {
            self.missed.entry(node.clone()).or_insert(now);
        }
        let grace = Duration::from_secs(self.parts.config.grace_seconds.into());
        let is_lost = |since: &Duration| now.saturating_sub(*since) >= grace;
        self.missed.iter().filter(|(_, since)| is_lost(since)).map(|(node, _)| node.clone()).collect()
    }

    fn answered(&mut self, answer: LookAnswer) {
        let LookAnswer { name, end, trouble, server_time, notice } = answer;
        if let Some(time) = server_time {
            self.clock.server_said(time);
        }
        if let Some(notice) = notice {
            self.notices.tell(notice);
        }
        match trouble {
            Some(Some(trouble)) => {
                warn!(reservation = name, error = trouble, "a write for a Reservation failed");
                self.troubles.insert(name.clone(), trouble);
            }
            Some(None) => drop(self.troubles.remove(&name)),
            None => {}
        }
        self.rounds.ended(&name, self.began.elapsed(), end);
        if !self.known.contains_key(&name) {
            self.rounds.forget(&name);
        }
    }
}

/// Of each Reservation that keeps claims, or did.
fn fingerprints(view: &ClusterView) -> BTreeMap<String, Fingerprint> {
    let mut seen: BTreeMap<String, DefaultHasher> = BTreeMap::new();
    let is_shared = |mode: ReservationMode| mode == ReservationMode::SharedClaim;
    for reservation in view.reservations.values().filter(|it| is_shared(it.spec.mode())) {
        (&reservation.uid, &reservation.version).hash(seen.entry(reservation.name.clone()).or_default());
    }
    for ((kind, key), mark) in &view.marks.made {
        (kind, key, mark.stamp).hash(seen.entry(mark.reservation.clone()).or_default());
    }
    seen.into_iter().map(|(name, hasher)| (name, hasher.finish())).collect()
}
