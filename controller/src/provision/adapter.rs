//! The edge of ProvisioningRequests. While this process leads, it shows the core what is there, has the planner answer on a
//! thread of its own, and writes what the core says.
//!
//! A term begins with nothing but what the server says, like one after a crash, and nothing of it is left when it ends.

pub(super) mod attach;
mod calls;
mod keep;
mod status;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_cluster::ApiClient;
use hostler_process::Tasks;
use hostler_reconcile::{CallPool, EventSink, Leadership, leads_until, wait_to_lead};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};
use uuid::Uuid;

use self::{
    attach::{carry_out, no_answer},
    calls::{RequestWriter, WriteAnswer, WrittenObject},
    keep::keep,
};
use super::{
    attach::{Attach, AttachCall},
    check::{CheckAnswer, CheckBatch},
    clock::ProvisionMoment,
    core::{ProvisionCore, ProvisionSettings},
    event::{FinalizerWrite, ProvisionCommand, ProvisionEvent, ReservationWrite, StatusWrite, WriteOutcome},
    sight::{Keeping, ProvisionSight},
};
use crate::{
    COMPONENT,
    askers::ASKER_BOX,
    config::ProvisioningConfig,
    hold::adapter::{HoldPhase, HoldStatus},
    model::ObservedKind,
    view::ClusterView,
};

pub(crate) use self::status::ProvisionStatus;

/// Writes that are under way at once.
const MOST_WRITES: usize = 16;
/// Nothing is due: somebody will tell.
const LATER: Duration = Duration::from_secs(3600);

/// What answering takes.
#[derive(Debug)]
pub(crate) struct ProvisionParts {
    /// A connection that no watch can hold up.
    pub(crate) client: ApiClient,
    /// How it is done.
    pub(crate) config: ProvisioningConfig,
    /// What is there.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// How keeping devices goes; `None` where nobody here wants to.
    pub(crate) holds_rx: Option<watch::Receiver<HoldStatus>>,
    /// Who attaches devices to nodes; `None`: nobody here does.
    pub(crate) attach: Option<Arc<dyn Attach>>,
    /// Whether this process may write.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// How it goes, for whoever wants to know.
    pub(crate) status_tx: watch::Sender<ProvisionStatus>,
    /// Where calls and questions run.
    pub(crate) tasks: Tasks,
}

/// Answers as long as this process leads.
pub(crate) fn start(parts: ProvisionParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service("provisioning", async move {
        tokio::select! {
            // Dropped at the end only. What was sent is written or not; whoever leads next finds out.
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
    /// Whether somebody keeps what Reservations ask for: whoever leads answers requests and keeps devices.
    fn keeping(&mut self, view: &ClusterView) -> Keeping {
        let is_absent = [ObservedKind::Reservation, ObservedKind::ProvisioningRequest]
            .iter()
            .any(|kind| view.kinds.get(kind).is_none_or(|status| status.is_absent));
        let Some(holds_rx) = &mut self.holds_rx else {
            return Keeping::NotKept("capabilities.reservations is \"off\"".to_owned());
        };
        match &holds_rx.borrow_and_update().phase {
            // They are there, and cannot be seen: what is booked must not be taken for deleted.
            HoldPhase::Keeping if is_absent => Keeping::Unknown,
            HoldPhase::Keeping => Keeping::Kept,
            HoldPhase::NotLeading | HoldPhase::Listing(_) | HoldPhase::Unknown(_) => Keeping::Unknown,
            HoldPhase::NotServed(what) => Keeping::NotKept(format!("the API server has no {what}: apply deploy/holds")),
            HoldPhase::Forbidden(why) => Keeping::NotKept(format!("{why}: apply deploy/holds")),
        }
    }

    /// Waits until this process leads, and everything is known.
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
    Finalizers(FinalizerWrite),
}

/// What there is to know about keeping devices, when it is other than before.
async fn changed(holds_rx: &mut Option<watch::Receiver<HoldStatus>>) -> Result<(), watch::error::RecvError> {
    match holds_rx {
        Some(holds_rx) => holds_rx.changed().await,
        None => std::future::pending().await,
    }
}

/// Carries out what the core says.
struct ProvisionTerm<'a> {
    parts: &'a mut ProvisionParts,
    core: ProvisionCore,
    writer: RequestWriter,
    events: EventSink,
    queue: VecDeque<ProvisionWrite>,
    writes: CallPool<WriteAnswer>,
    called_tx: mpsc::Sender<ProvisionEvent>,
    called_rx: mpsc::Receiver<ProvisionEvent>,
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
            attaches: parts.attach.is_some(),
            unneeded: Duration::from_secs(config.scale_down_unneeded_seconds.into()),
            longest_booking: Duration::from_secs(config.longest_booking_seconds.into()),
            asker_box: ASKER_BOX,
        });
        let (checked_tx, checked_rx) = mpsc::channel(1);
        let (called_tx, called_rx) = mpsc::channel(MOST_WRITES);
        Self {
            core,
            writer: RequestWriter::new(parts.client.clone()),
            events: EventSink::start(COMPONENT, parts.client.clone(), &parts.tasks),
            queue: VecDeque::new(),
            writes: CallPool::new(&parts.tasks, MOST_WRITES),
            called_tx,
            called_rx,
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
                // What the server answered is known before anything else.
                biased;
                // Cancel safe: an answer that was not taken stays in the channel.
                answer = self.writes.answer() => self.written(answer),
                // Cancel safe: see there.
                Some(answer) = self.checked_rx.recv() => ProvisionEvent::Checked(answer),
                // Cancel safe: see there.
                Some(answer) = self.called_rx.recv() => self.called(answer),
                // Cancel safe: what has changed is looked at in the next round.
                _ = self.parts.leadership_rx.changed() => ProvisionEvent::Changed,
                // Cancel safe: see there.
                _ = self.parts.view_rx.changed() => ProvisionEvent::Changed,
                // Cancel safe: see there.
                Ok(()) = changed(&mut self.parts.holds_rx) => ProvisionEvent::Changed,
                // Cancel safe: it only waits.
                () = sleep_until(due) => ProvisionEvent::Changed,
            };
        }
    }

    fn step(&mut self, event: ProvisionEvent) {
        let view = self.parts.view_rx.borrow_and_update().clone();
        let now = ProvisionMoment { wall: SystemTime::now(), steady: self.began.elapsed() };
        self.wake = None;
        let keeping = self.parts.keeping(&view);
        let sight = ProvisionSight {
            objects: &view.provisioning,
            reservations: &view.reservations,
            facts: &view.facts,
            keeping: &keeping,
        };
        for command in self.core.step(now, &sight, event) {
            match command {
                ProvisionCommand::Write(write) => self.queue.push_back(ProvisionWrite::Status(write)),
                ProvisionCommand::Keep(write) => self.queue.push_back(ProvisionWrite::Reservation(write)),
                ProvisionCommand::Finalize(write) => self.queue.push_back(ProvisionWrite::Finalizers(write)),
                ProvisionCommand::Call(call) => self.call(call),
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

    /// Whoever calls has just made sure that this process leads.
    fn begin_writes(&mut self) {
        while self.writes.has_room()
            && let Some(write) = self.queue.pop_front()
        {
            let writer = self.writer.clone();
            self.writes.begin(async move {
                match write {
                    ProvisionWrite::Status(write) => writer.write(write).await,
                    ProvisionWrite::Finalizers(write) => writer.finalize(write).await,
                    ProvisionWrite::Reservation(write) => keep(writer.client(), write).await,
                }
            });
        }
    }

    /// Has the planner answer, from the cluster as it is in the same view as the requests.
    fn check(&mut self, batch: CheckBatch, view: &Arc<ClusterView>) {
        self.status.checks += 1;
        let (view, checked_tx) = (view.clone(), self.checked_tx.clone());
        let (number, attach) = (batch.number(), self.parts.attach.clone());
        let answering = self.parts.tasks.blocking(move || {
            let began = std::time::Instant::now();
            batch.run(view.planner.get(), &view.options, attach.as_deref(), &mut || began.elapsed())
        });
        self.parts.tasks.job(async move {
            let answer = answering.await.unwrap_or_else(|_| CheckBatch::unanswered(number));
            // Nobody wants to know when the term is over.
            let _ = checked_tx.send(answer).await;
        });
    }

    /// Has a device attached or detached, or asks what is attached; whoever does it may wait.
    fn call(&self, call: AttachCall) {
        let Some(attach) = self.parts.attach.clone() else { return };
        let (called_tx, gone) = (self.called_tx.clone(), no_answer(&call));
        let calling = self.parts.tasks.blocking(move || carry_out(&*attach, call));
        self.parts.tasks.job(async move {
            // Nobody wants to know when the term is over.
            let _ = called_tx.send(calling.await.unwrap_or(gone)).await;
        });
    }

    fn called(&mut self, answer: ProvisionEvent) -> ProvisionEvent {
        if let ProvisionEvent::Listed(Err(failure)) | ProvisionEvent::Called(_, Err(failure)) = &answer {
            warn!(error = %failure, "devices cannot be attached or detached");
            self.status.trouble = Some(failure.to_string());
        }
        answer
    }

    fn written(&mut self, answer: WriteAnswer) -> ProvisionEvent {
        let WriteAnswer { object, outcome, trouble } = answer;
        match &trouble {
            Some(error) if self.status.trouble != trouble => warn!(%object, error, "a request cannot be answered"),
            _ => debug!(%object, ?outcome, "written"),
        }
        // Of what somebody else wrote before, or of what is gone, nothing follows.
        if trouble.is_some() || matches!(outcome, WriteOutcome::Done(_)) {
            self.status.trouble = trouble;
        }
        match object {
            WrittenObject::Request(_, uid) => ProvisionEvent::Written(uid, outcome),
            WrittenObject::Reservation(name) => ProvisionEvent::Kept(name, outcome),
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
