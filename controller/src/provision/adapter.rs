//! The edge of ProvisioningRequests. While this process leads, the edge shows the core the state of the cluster, runs
//! the planner on a thread of its own, and makes the writes that the core returns.
//!
//! A term begins with nothing but the server's state, as after a crash, and leaves nothing behind when it ends.

mod calls;
mod keep;
mod status;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_api::ObjectKey;
use hostler_cluster::{ApiClient, ObjectVersion};
use hostler_process::Tasks;
use hostler_reconcile::{CallPool, EventSink, Leadership, WriteOutcome, leads_until, wait_to_lead};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};
use uuid::Uuid;

use self::{
    calls::{RequestWriter, WriteAnswer, WrittenObject},
    keep::keep,
};
use super::{
    check::{CheckAnswer, CheckBatch},
    clock::ProvisionMoment,
    context::{Keeping, ProvisionContext},
    core::{ProvisionCore, ProvisionSettings},
    event::{ProvisionCommand, ProvisionEvent, ReservationWrite, StatusWrite},
};
use crate::{
    COMPONENT,
    askers::ASKER_BOX,
    config::ProvisioningConfig,
    hold::adapter::{HoldPhase, HoldStatus},
    observed::ObservedKind,
    view::ClusterView,
    webhook_status::WebhookStatus,
};

pub(crate) use self::status::ProvisionStatus;

/// Limit of writes in flight.
const MOST_WRITES: usize = 16;
/// A time that stands for no deadline: an event will come before.
const LATER: Duration = Duration::from_secs(3600);

/// Everything that answering needs: view, clients, configuration and channels.
#[derive(Debug)]
pub(crate) struct ProvisionParts {
    /// A connection that no watch can hold up.
    pub(crate) client: ApiClient,
    /// Configuration of answers and bookings.
    pub(crate) config: ProvisioningConfig,
    /// The shared view of the cluster.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// Status of Reservations; `None` if they are switched off.
    pub(crate) holds_rx: Option<watch::Receiver<HoldStatus>>,
    /// Status of the webhook; `None` if it is switched off.
    pub(crate) webhook_rx: Option<watch::Receiver<WebhookStatus>>,
    /// State of the lease: this process writes only while it leads.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// Progress of answers, for conditions and figures.
    pub(crate) status_tx: watch::Sender<ProvisionStatus>,
    /// Owner of the tasks of calls and questions.
    pub(crate) tasks: Tasks,
}

/// Answers requests while this process leads.
pub(crate) fn start(parts: ProvisionParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service("provisioning", async move {
        tokio::select! {
            // Dropped at the end only. A write that was sent is done or not; the next leader reads which.
            () = run(parts) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

async fn run(mut parts: ProvisionParts) {
    loop {
        parts.wait_to_lead().await;
        info!("ProvisioningRequests are answered here");
        ProvisionTerm::new(&mut parts).run().await;
    }
}

impl ProvisionParts {
    /// Returns the state of keeping devices for Reservations: the same leader answers requests and keeps devices.
    fn keeping(&mut self, view: &ClusterView) -> Keeping {
        let is_absent = [ObservedKind::Reservation, ObservedKind::ProvisioningRequest]
            .iter()
            .any(|kind| view.kinds.get(kind).is_none_or(|status| status.is_absent));
        let Some(holds_rx) = &mut self.holds_rx else {
            return Keeping::NotKept("capabilities.reservations is \"off\"".to_owned());
        };
        match &holds_rx.borrow_and_update().phase {
            // The kind exists and cannot be read: bookings must not be taken for deleted.
            HoldPhase::Keeping if is_absent => Keeping::Unknown,
            HoldPhase::Keeping => Keeping::Kept,
            HoldPhase::NotLeading | HoldPhase::Listing(_) | HoldPhase::Unknown(_) => Keeping::Unknown,
            HoldPhase::NotServed(what) => Keeping::NotKept(format!("the API server has no {what}: apply deploy/holds")),
            HoldPhase::Forbidden(why) => Keeping::NotKept(format!("{why}: apply deploy/holds")),
        }
    }

    /// True if the webhook leads pods to the kept devices.
    fn leads_pods(&self) -> bool {
        self.webhook_rx.as_ref().is_some_and(|webhook_rx| webhook_rx.borrow().is_installed())
    }

    /// Waits until this process leads, and the first lists are complete.
    async fn wait_to_lead(&mut self) {
        let Self { leadership_rx, view_rx, status_tx, .. } = self;
        wait_to_lead(leadership_rx, view_rx, || drop(status_tx.send_replace(ProvisionStatus::default()))).await;
    }
}

/// An object that is to be written.
#[derive(Debug)]
enum ProvisionWrite {
    Status(StatusWrite),
    Reservation(ReservationWrite),
    Deletion(ObjectKey, ObjectVersion),
}

/// Waits until the status of Reservations changes.
async fn changed(holds_rx: &mut Option<watch::Receiver<HoldStatus>>) -> Result<(), watch::error::RecvError> {
    match holds_rx {
        Some(holds_rx) => holds_rx.changed().await,
        None => std::future::pending().await,
    }
}

/// Carries out the core's commands.
struct ProvisionTerm<'a> {
    parts: &'a mut ProvisionParts,
    core: ProvisionCore,
    writer: RequestWriter,
    events: EventSink,
    queue: VecDeque<ProvisionWrite>,
    writes: CallPool<WriteAnswer>,
    checked_tx: mpsc::Sender<CheckAnswer>,
    checked_rx: mpsc::Receiver<CheckAnswer>,
    began: Instant,
    wake: Option<Instant>,
    status: ProvisionStatus,
}

impl<'a> ProvisionTerm<'a> {
    fn new(parts: &'a mut ProvisionParts) -> Self {
        let config = &parts.config;
        let core = ProvisionCore::new(ProvisionSettings {
            classes: config.classes(),
            batch: usize::try_from(config.batch).unwrap_or(usize::MAX),
            time_box: Duration::from_secs(config.time_box_seconds.into()),
            term: Uuid::new_v4().to_string(),
            longest_booking: Duration::from_secs(config.longest_booking_seconds.into()),
            keep: Some(Duration::from_secs(config.keep_seconds.into())).filter(|keep| !keep.is_zero()),
            asker_box: ASKER_BOX,
        });
        let (checked_tx, checked_rx) = mpsc::channel(1);
        Self {
            core,
            writer: RequestWriter::new(parts.client.clone()),
            events: EventSink::start(COMPONENT, parts.client.clone(), &parts.tasks),
            queue: VecDeque::new(),
            writes: CallPool::new(&parts.tasks, MOST_WRITES),
            checked_tx,
            checked_rx,
            began: Instant::now(),
            wake: None,
            status: ProvisionStatus::default(),
            parts,
        }
    }

    async fn run(mut self) {
        let mut event = ProvisionEvent::Changed;
        loop {
            let Some(until) = leads_until(&mut self.parts.leadership_rx) else { return };
            self.step(event);
            self.begin_writes();
            let due = self.wake.unwrap_or_else(|| Instant::now() + LATER).min(until);
            event = tokio::select! {
                // The server's answer to a write is handled before other events.
                biased;
                // Cancel safe: an answer that was not taken stays in the channel.
                answer = self.writes.answer() => self.written(answer),
                // Cancel safe: an answer that was not taken stays in the channel.
                Some(answer) = self.checked_rx.recv() => ProvisionEvent::Checked(answer),
                // Cancel safe: the change is read in the next turn of the loop.
                _ = self.parts.leadership_rx.changed() => ProvisionEvent::Changed,
                // Cancel safe: the change is read in the next turn of the loop.
                _ = self.parts.view_rx.changed() => ProvisionEvent::Changed,
                // Cancel safe: the change is read in the next turn of the loop.
                Ok(()) = changed(&mut self.parts.holds_rx) => ProvisionEvent::Changed,
                // Cancel safe: only waits.
                () = sleep_until(due) => ProvisionEvent::Changed,
            };
        }
    }

    fn step(&mut self, event: ProvisionEvent) {
        let view = self.parts.view_rx.borrow_and_update().clone();
        let now = ProvisionMoment { wall: SystemTime::now(), steady: self.began.elapsed() };
        self.wake = None;
        let keeping = self.parts.keeping(&view);
        let cx = ProvisionContext {
            objects: &view.provisioning,
            reservations: &view.reservations,
            facts: &view.facts,
            keeping: &keeping,
            leads_pods: self.parts.leads_pods(),
        };
        for command in self.core.step(now, &cx, event) {
            match command {
                ProvisionCommand::Write(write) => self.queue.push_back(ProvisionWrite::Status(write)),
                ProvisionCommand::Keep(write) => self.queue.push_back(ProvisionWrite::Reservation(write)),
                ProvisionCommand::Delete(key, version) => {
                    self.queue.push_back(ProvisionWrite::Deletion(key, version));
                }
                ProvisionCommand::Tell(notice) => {
                    debug!(request = %notice.key, reason = notice.reason, message = notice.message, "told");
                    let (subject, note) = self.writer.event_of(notice);
                    self.events.record(subject, note);
                }
                ProvisionCommand::Check(batch) => self.check(batch, &view),
                ProvisionCommand::WakeAt(at) => self.wake = Some(self.began + at),
            }
        }
        self.status.requests = self.core.counts(&view.provisioning);
        self.tell();
    }

    /// Begins the queued writes. The caller has just made sure that this process leads.
    fn begin_writes(&mut self) {
        while self.writes.has_room()
            && let Some(write) = self.queue.pop_front()
        {
            let writer = self.writer.clone();
            self.writes.begin(async move {
                match write {
                    ProvisionWrite::Status(write) => writer.write(write).await,
                    ProvisionWrite::Deletion(key, version) => writer.delete(key, version).await,
                    ProvisionWrite::Reservation(write) => keep(writer.client(), write).await,
                }
            });
        }
    }

    /// Runs the planner on the view that the requests came from too.
    fn check(&mut self, batch: CheckBatch, view: &Arc<ClusterView>) {
        self.status.checks += 1;
        let (view, checked_tx) = (view.clone(), self.checked_tx.clone());
        let number = batch.number();
        let answering = self.parts.tasks.blocking(move || {
            let began = std::time::Instant::now();
            batch.run(view.planner.get(), &view.options, &mut || began.elapsed())
        });
        self.parts.tasks.job(async move {
            let answer = answering.await.unwrap_or_else(|_| CheckBatch::unanswered(number));
            // The receiver is gone when the term is over.
            let _ = checked_tx.send(answer).await;
        });
    }

    fn written(&mut self, answer: WriteAnswer) -> ProvisionEvent {
        let WriteAnswer { object, result } = answer;
        let trouble = result.as_ref().err().and_then(WriteOutcome::trouble).map(str::to_owned);
        match &trouble {
            Some(error) if self.status.trouble != trouble => warn!(%object, error, "a request cannot be answered"),
            _ => debug!(%object, ?result, "written"),
        }
        // A write that lost against another writer, or against the object's end, leaves the last failure as it is.
        if trouble.is_some() || result.is_ok() {
            self.status.trouble = trouble;
        }
        match object {
            WrittenObject::Request(_, uid) => ProvisionEvent::Written(uid, result),
            WrittenObject::Reservation(name) => ProvisionEvent::Kept(name, result),
        }
    }

    fn tell(&self) {
        self.parts.status_tx.send_if_modified(|last| {
            let is_other = *last != self.status;
            last.clone_from(&self.status);
            is_other
        });
    }
}
