//! The edge of attachments to the API server and to fabric managers: each device is reconciled when its attachment, one of
//! its claims or what its manager shows has changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hostler_api::{
    Chain,
    fabric::{AttachmentPhase, DeviceIdentity, FabricAttachmentSpec, of_fabric_pool},
};
use hostler_cluster::{ApiFailure, events::EventSubject};
use hostler_fabric::FabricProvider;
use hostler_reconcile::{
    Controller, ControllerParts, EventSink, Fingerprint, ReconcileMoment, Reconciler, Requeue, Troubles,
};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::{
    after_call::{CallEnd, after_call},
    context::{AnsweredWrite, AttachmentContext, AttachmentLimits, AttachmentWrite, ManagerAnswer, ManagerCall},
    freed::FreedMemory,
    notes::{AttachmentNote, note_of},
    read::AttachmentReader,
    round::{AttachmentRound, RoundStep},
    write::carry_out,
};
use crate::{
    COMPONENT,
    config::FabricConfig,
    fabric::{board::FabricReadings, figures::FabricFigures, keepers::device_keepers},
    view::ClusterView,
};

/// The longest time between two reconciliations of a device.
const RECONCILE_AGAIN: Duration = Duration::from_secs(30);
/// The pause after a write that another one came before.
const SOON: Duration = Duration::from_millis(50);
/// A call is given minutes by its client; the Lease ends within seconds. Ten minutes are more than both.
const LATE_CALL: Duration = Duration::from_secs(600);

/// Parts of the reconciler.
#[derive(Debug)]
pub(crate) struct AttachmentParts {
    pub(crate) config: FabricConfig,
    pub(crate) driver: String,
    /// The latest readings of all managers.
    pub(crate) readings_rx: watch::Receiver<Arc<FabricReadings>>,
    /// Time for which a call may still be carried out after its caller has lost the Lease.
    pub(crate) late_call: Duration,
    /// Figures, in which failed attempts are counted.
    pub(crate) figures_tx: watch::Sender<FabricFigures>,
}

impl AttachmentParts {
    /// Parts with the time for which calls may be late.
    pub(crate) fn new(config: FabricConfig, driver: String, readings_rx: watch::Receiver<Arc<FabricReadings>>) -> Self {
        Self { config, driver, readings_rx, late_call: LATE_CALL, figures_tx: watch::Sender::default() }
    }
}

/// Attaches and detaches devices as long as this process leads.
pub(crate) fn start(parts: AttachmentParts, controller: ControllerParts<ClusterView>) {
    AttachmentsController(parts).start("fabric attachments", controller);
}

struct AttachmentsController(AttachmentParts);

pub(super) struct AttachmentReconciler {
    worker: AttachmentWorker,
    events: EventSink,
    troubles: Troubles<String>,
    /// Memory that is gone, by device.
    freed: BTreeMap<String, FreedMemory>,
    figures_tx: watch::Sender<FabricFigures>,
}

/// Carries steps out.
#[derive(Clone, Debug)]
struct AttachmentWorker {
    reader: AttachmentReader,
    readings_rx: watch::Receiver<Arc<FabricReadings>>,
}

/// The result of a reconciliation.
pub(super) struct AttachmentAnswer {
    end: Requeue,
    error: Option<String>,
    notes: Vec<AttachmentNote>,
    /// Manager and reason of an attempt that failed.
    failure: Option<(String, String)>,
    /// Memory of the device that is gone.
    freed: Option<FreedMemory>,
}

impl Controller for AttachmentsController {
    type Reconciler = AttachmentReconciler;

    async fn begin(&self, parts: &ControllerParts<ClusterView>) -> Result<AttachmentReconciler, String> {
        let client = parts.client.clone();
        let version = client.version().await.map_err(|failure| Chain(&failure).to_string())?;
        let events = EventSink::start(COMPONENT, client.clone(), &parts.tasks);
        let AttachmentParts { config, driver, readings_rx, late_call, figures_tx } = &self.0;
        let attach = Duration::from_secs(config.attach_seconds.into());
        let limits = AttachmentLimits { attach, late_call: *late_call };
        let (config, driver) = (config.clone(), driver.clone());
        let reader = AttachmentReader { client, version, driver, config, limits };
        let worker = AttachmentWorker { reader, readings_rx: readings_rx.clone() };
        let (troubles, freed) = (Troubles::default(), BTreeMap::new());
        Ok(AttachmentReconciler { worker, events, troubles, freed, figures_tx: figures_tx.clone() })
    }
}

impl Reconciler for AttachmentReconciler {
    type View = ClusterView;
    type Answer = AttachmentAnswer;

    /// Returns each device that has an attachment, or that a claim has or a Reservation keeps.
    fn keys(&mut self, view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        let readings = self.worker.readings_rx.borrow_and_update().clone();
        let read = |fingerprint: &mut Fingerprint, manager: &str| {
            let reading = readings.managers.get(manager);
            // Readings that are the same are not published again.
            fingerprint.add(reading.and_then(|it| it.inventory.as_ref()).map(|it| Arc::as_ptr(it) as usize));
            fingerprint.add(reading.and_then(|it| it.error.as_deref()));
        };
        let driver = &*self.worker.reader.driver;
        let mut seen: BTreeMap<String, Fingerprint> = BTreeMap::new();
        for (name, object) in &view.fabric.attachments {
            let fingerprint = seen.entry(name.clone()).or_default();
            let spec = &object.attachment.spec;
            fingerprint.add(object.stamp);
            see_node(fingerprint, &spec.node_name, view);
            read(fingerprint, &spec.manager);
            fingerprint.add(is_tainted(driver, spec, name, view));
        }
        for (name, claims) in &view.fabric.claims {
            let fingerprint = seen.entry(name.clone()).or_default();
            for claim in claims {
                fingerprint.add((&claim.uid, &claim.node, claim.stamp));
                see_node(fingerprint, claim.node.as_deref().unwrap_or_default(), view);
                read(fingerprint, of_fabric_pool(&claim.pool).map_or("", |(manager, _)| manager));
            }
        }
        for (name, kept) in device_keepers(view, driver) {
            let fingerprint = seen.entry(name).or_default();
            see_node(fingerprint, &kept.node, view);
            read(fingerprint, of_fabric_pool(&kept.pool).map_or("", |(manager, _)| manager));
            fingerprint.add(kept);
        }
        seen
    }

    fn reconcile(
        &mut self,
        name: &str,
        moment: ReconcileMoment<ClusterView>,
    ) -> impl Future<Output = AttachmentAnswer> + Send + 'static {
        let (worker, device) = (self.worker.clone(), DeviceIdentity::of_device_name(name));
        let freed = self.freed.get(name).cloned();
        async move {
            match device {
                Some(device) => worker.reconcile(device, freed, &moment).await,
                None => AttachmentAnswer::failed("its name is no device: delete the object".to_owned()),
            }
        }
    }

    fn reconciled(&mut self, name: &str, answer: AttachmentAnswer) -> Requeue {
        match answer.error {
            Some(error) if self.troubles.is_news(name.to_owned(), &error) => {
                warn!(device = name, error, "a device behind a switch cannot be attached or detached for now");
            }
            Some(_) => {}
            None => self.troubles.mended(&name.to_owned()),
        }
        if let Some((manager, reason)) = &answer.failure {
            self.figures_tx.send_modify(|figures| figures.count_failure(manager, reason));
        }
        if let Some(freed) = answer.freed {
            self.freed.insert(name.to_owned(), freed);
        }
        for AttachmentNote { namespace, name, uid, note } in answer.notes {
            let api_version = self.worker.reader.version.group_version();
            self.events.record(EventSubject { api_version, kind: "ResourceClaim", namespace, name, uid }, note);
        }
        answer.end
    }

    fn forget(&mut self, name: &str) {
        self.freed.remove(name);
        self.troubles.mended(&name.to_owned());
    }

    fn most_at_once(&self) -> usize {
        usize::try_from(self.worker.reader.config.workers).unwrap_or(usize::MAX)
    }

    async fn changed(&mut self) {
        // Cancel safe: a change that was not taken is still there.
        if self.worker.readings_rx.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for AttachmentReconciler {
    /// The next leader counts anew.
    fn drop(&mut self) {
        self.figures_tx.send_modify(|figures| figures.failed_attempts.clear());
    }
}

fn see_node(fingerprint: &mut Fingerprint, node: &str, view: &ClusterView) {
    let known = view.facts.node(node);
    let taints = known.into_iter().flat_map(|node| &node.spec.taints);
    taints.for_each(|taint| fingerprint.add(&taint.key));
    fingerprint.add((known.is_some(), view.fabric.system_uuids.get(node)));
}

fn is_tainted(driver: &str, spec: &FabricAttachmentSpec, name: &str, view: &ClusterView) -> bool {
    let pool = hostler_api::fabric::fabric_pool(&spec.manager, &spec.domain);
    view.facts.is_closed_by([driver, &pool, name], hostler_api::fabric::FABRIC_TAINT)
}

/// Manager and reason of the attempt that fails with a write.
fn failure_of(cx: &AttachmentContext, write: &AttachmentWrite) -> Option<(String, String)> {
    let AttachmentWrite::Status(status) = write else { return None };
    let seen = cx.seen.as_ref().filter(|seen| seen.status().phase != AttachmentPhase::Failed)?;
    (status.phase == AttachmentPhase::Failed).then(|| (seen.spec().manager.clone(), status.reason.clone()))
}

impl AttachmentAnswer {
    fn new(end: Requeue) -> Self {
        Self { end, error: None, notes: Vec::new(), failure: None, freed: None }
    }

    fn failed(error: String) -> Self {
        Self { error: Some(error), ..Self::new(Requeue::Failed) }
    }

    /// Notes a write that was made.
    fn note(&mut self, cx: &AttachmentContext, write: &AttachmentWrite) {
        self.notes.extend(note_of(cx, write));
        self.failure = failure_of(cx, write).or_else(|| self.failure.take());
    }

    fn ended_by(self, end: AttachmentEnd) -> Self {
        let (end, error) = match end {
            AttachmentEnd::Requeue(end) => (end, None),
            AttachmentEnd::Failed(error) => (Requeue::Failed, Some(error)),
        };
        Self { end, error, ..self }
    }
}

/// The reason why nothing more is done now.
enum AttachmentEnd {
    Requeue(Requeue),
    Failed(String),
}

impl From<ApiFailure> for AttachmentEnd {
    fn from(failure: ApiFailure) -> Self {
        Self::Failed(Chain(&failure).to_string())
    }
}

impl AttachmentWorker {
    async fn reconcile(
        &self,
        device: DeviceIdentity,
        freed: Option<FreedMemory>,
        moment: &ReconcileMoment<ClusterView>,
    ) -> AttachmentAnswer {
        let mut answer = AttachmentAnswer { freed, ..AttachmentAnswer::new(Requeue::Now) };
        let end = loop {
            let readings = self.readings_rx.borrow().clone();
            let mut cx = match self.reader.read(device, &readings, moment).await {
                Ok(cx) => cx,
                Err(failure) => break failure.into(),
            };
            if answer.freed.as_ref().is_some_and(|freed| freed.is_gone(&cx, &readings)) {
                cx.made_memory = None;
            }
            let round = AttachmentRound::new(cx);
            if let Err(end) = self.go_on(round, &readings, moment, &mut answer).await {
                break end;
            }
        };
        answer.ended_by(end)
    }

    /// Carries out steps until the device is to be read anew.
    async fn go_on(
        &self,
        mut round: AttachmentRound,
        readings: &FabricReadings,
        moment: &ReconcileMoment<ClusterView>,
        answer: &mut AttachmentAnswer,
    ) -> Result<(), AttachmentEnd> {
        loop {
            let write = match round.next() {
                RoundStep::Rest => return Err(AttachmentEnd::Requeue(Requeue::After(RECONCILE_AGAIN))),
                RoundStep::Until(at) => {
                    let pause = at.saturating_sub(round.cx.now).clamp(SOON, RECONCILE_AGAIN);
                    return Err(AttachmentEnd::Requeue(Requeue::After(pause)));
                }
                RoundStep::ReadAnew => return Ok(()),
                RoundStep::Later => return Err(AttachmentEnd::Requeue(Requeue::Now)),
                RoundStep::Write(write) => write,
                RoundStep::Call(call) => match self.call(&round.cx, &call, readings, moment).await {
                    CallEnd::Write(write) => {
                        round.called();
                        write
                    }
                    CallEnd::Wait => return Err(AttachmentEnd::Requeue(Requeue::Waiting)),
                    CallEnd::Failed(error) => return Err(AttachmentEnd::Failed(error)),
                    // Each time there is one connection less, or no memory.
                    CallEnd::NotThere => {
                        let freed = FreedMemory::of(&call, &round.cx, readings);
                        answer.freed = freed.or_else(|| answer.freed.take());
                        round.cx.forget_shown(&call);
                        continue;
                    }
                },
            };
            let written = self.write(&round.cx, &write, moment).await?;
            answer.note(&round.cx, &write);
            if !round.take(written) {
                return Err(AttachmentEnd::Requeue(Requeue::Now));
            }
        }
    }

    /// Calls the manager, and decides on its answer.
    async fn call(
        &self,
        cx: &AttachmentContext,
        call: &ManagerCall,
        readings: &FabricReadings,
        moment: &ReconcileMoment<ClusterView>,
    ) -> CallEnd {
        let Some(seen) = &cx.seen else { return CallEnd::Wait };
        let manager = &seen.spec().manager;
        let Some(reading) = readings.managers.get(manager) else {
            return CallEnd::Failed(format!("fabric manager {manager} is not configured: add it to the configuration"));
        };
        if !moment.may_write() {
            return CallEnd::Wait;
        }
        let device = cx.device.device_name();
        debug!(device, manager, what = call.what(), "a call of a fabric manager");
        let answer = ask(&*reading.provider, call).await;
        after_call(cx, seen, call, answer)
    }

    async fn write(
        &self,
        cx: &AttachmentContext,
        write: &AttachmentWrite,
        moment: &ReconcileMoment<ClusterView>,
    ) -> Result<AnsweredWrite, AttachmentEnd> {
        if !moment.may_write() {
            return Err(AttachmentEnd::Requeue(Requeue::Waiting));
        }
        let device = cx.device.device_name();
        debug!(device, what = write.what(), "a write for a device behind a switch");
        let written = carry_out(&self.reader, cx, write).await.map_err(|failure| match failure.code() {
            // Another write came before.
            Some(404 | 409) => AttachmentEnd::Requeue(Requeue::After(SOON)),
            _ => failure.into(),
        })?;
        if let AttachmentWrite::Status(status) = write {
            info!(device, phase = status.phase.as_str(), reason = status.reason, "a device changed its phase");
        }
        Ok(written)
    }
}

pub(super) async fn ask(provider: &impl FabricProvider, call: &ManagerCall) -> ManagerAnswer {
    match call {
        ManagerCall::Attach(request) => ManagerAnswer::Connection(provider.attach(request).await),
        ManagerCall::Progress(key) | ManagerCall::Settle(key) | ManagerCall::LookFor(key) => {
            ManagerAnswer::Connection(provider.state(key).await)
        }
        ManagerCall::Verify(shown) => ManagerAnswer::Connection(provider.state(&shown.key).await),
        ManagerCall::Detach(key) => ManagerAnswer::Undone(provider.detach(key).await),
        ManagerCall::Free { device, key } => ManagerAnswer::Undone(provider.free(*device, key).await),
        ManagerCall::Isolate { device, expected } => ManagerAnswer::Isolated(provider.isolate(*device, expected).await),
    }
}
