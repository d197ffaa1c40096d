//! The edge of shared claims to the API server: each Reservation of that mode is reconciled when one of its objects
//! changes.

mod read;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{Chain, reservation::ReservationMode};
use hostler_reconcile::{
    Controller, ControllerParts, EventSink, Fingerprint, ReconcileMoment, Reconciler, Requeue, Troubles,
};
use tracing::warn;

use self::read::{LookAnswer, LookQuestion, Looker};
use crate::{
    COMPONENT,
    config::ReservationsConfig,
    hold::{
        HoldTime,
        adapter::{HoldCaller, HoldPlaces, event_of},
        topics::HoldClock,
    },
    view::ClusterView,
};

/// Keeps claims as long as this process leads.
pub(crate) fn start(config: ReservationsConfig, parts: ControllerParts<ClusterView>) {
    SharedController { config }.start("shared claims", parts);
}

struct SharedController {
    /// Settings of Reservations.
    config: ReservationsConfig,
}

struct SharedReconciler {
    looker: Looker,
    events: EventSink,
    /// The server's answers to the last writes that it refused.
    troubles: BTreeMap<String, String>,
    /// Failures of reconciles, by Reservation.
    errors: Troubles<String>,
    /// Times since which nodes are missed.
    missed: BTreeMap<String, Duration>,
    clock: HoldClock,
}

impl Controller for SharedController {
    type Reconciler = SharedReconciler;

    /// Begins without any report: the part that keeps devices by fences reports what is missing.
    async fn begin(&self, parts: &ControllerParts<ClusterView>) -> Result<SharedReconciler, String> {
        let client = parts.client.clone();
        let places = HoldPlaces::find(&client, false).await.map_err(|error| format!("{error:?}"))?;
        let minor = client.minor_release().await.map_err(|failure| Chain(&failure).to_string())?;
        // This mode closes nothing to others.
        let (namespace, holds_partitions, scheduler) = (String::new(), false, String::new());
        let caller = HoldCaller { client: client.clone(), places, namespace, holds_partitions, scheduler };
        Ok(SharedReconciler {
            looker: Looker { caller, minor, config: self.config.clone() },
            events: EventSink::start(COMPONENT, client, &parts.tasks),
            troubles: BTreeMap::new(),
            errors: Troubles::default(),
            missed: BTreeMap::new(),
            clock: HoldClock::default(),
        })
    }
}

impl Reconciler for SharedReconciler {
    type View = ClusterView;
    type Answer = LookAnswer;

    /// Returns each Reservation that keeps claims, or kept some.
    fn keys(&mut self, view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        let mut seen: BTreeMap<String, Fingerprint> = BTreeMap::new();
        let is_shared = |mode: ReservationMode| mode == ReservationMode::SharedClaim;
        for reservation in view.reservations.values().filter(|it| is_shared(it.spec.mode())) {
            seen.entry(reservation.name.clone()).or_default().add((&reservation.uid, &reservation.version));
        }
        for ((kind, key), mark) in &view.marks.made {
            seen.entry(mark.reservation.clone()).or_default().add((kind, key, mark.stamp));
        }
        seen
    }

    fn reconcile(
        &mut self,
        name: &str,
        now: ReconcileMoment<ClusterView>,
    ) -> impl Future<Output = LookAnswer> + Send + 'static {
        let (elapsed, wall) = (now.elapsed, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        self.clock.pass(HoldTime { elapsed, wall });
        if let Some(time) = now.server_time() {
            self.clock.server_said(time);
        }
        let question = LookQuestion {
            name: name.to_owned(),
            lost_nodes: self.lost_nodes(&now.view, elapsed),
            trouble: self.troubles.get(name).cloned(),
            now: self.clock.certain(),
            moment: now,
        };
        let looker = self.looker.clone();
        async move { looker.look(question).await }
    }

    fn reconciled(&mut self, name: &str, answer: LookAnswer) -> Requeue {
        let LookAnswer { end, trouble, notice, error } = answer;
        if let Some(notice) = notice {
            let (subject, note) = event_of(notice);
            self.events.record(subject, note);
        }
        match trouble {
            Some(Some(trouble)) => {
                if self.troubles.get(name) != Some(&trouble) {
                    warn!(reservation = name, error = trouble, "a write for a Reservation failed");
                }
                self.troubles.insert(name.to_owned(), trouble);
            }
            Some(None) => drop(self.troubles.remove(name)),
            None => {}
        }
        match error {
            Some(error) if self.errors.is_news(name.to_owned(), &error) => {
                warn!(reservation = name, error, "a Reservation cannot be looked at");
            }
            Some(_) => {}
            None => self.errors.mended(&name.to_owned()),
        }
        end
    }

    fn forget(&mut self, name: &str) {
        self.troubles.remove(name);
        self.errors.mended(&name.to_owned());
    }
}

impl SharedReconciler {
    /// Returns nodes of kept devices that have been gone for longer than the grace.
    fn lost_nodes(&mut self, view: &ClusterView, now: Duration) -> BTreeSet<String> {
        let devices = view.reservations.values().flat_map(|it| &it.status.devices);
        let nodes: BTreeSet<&String> = devices.map(|device| &device.node_name).collect();
        let is_gone = |node: &&&String| !node.is_empty() && view.facts.node(node).is_none();
        let gone: BTreeSet<&String> = nodes.iter().filter(is_gone).copied().collect();
        self.missed.retain(|node, _| gone.contains(node));
        for node in gone {
            self.missed.entry(node.clone()).or_insert(now);
        }
        let grace = Duration::from_secs(self.looker.config.grace_seconds.into());
        let is_lost = |since: &Duration| now.saturating_sub(*since) >= grace;
        self.missed.iter().filter(|(_, since)| is_lost(since)).map(|(node, _)| node.clone()).collect()
    }
}
