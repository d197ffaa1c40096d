//! One term: from the first list to the moment at which this process is not the leader any more. Owns the core.

use std::{collections::VecDeque, time::Duration};

use hostler_api::{classic::ClassicVersion, resource::DeviceClass};
use hostler_reconcile::{
    CallPool, EventSink, Reflector, ReflectorEvent, ReflectorKind, WriteOutcome, leads_until, reach,
};
use tokio::{sync::mpsc, time::Instant};
use tracing::{debug, warn};

use super::{
    ClassicParts,
    calls::{CallAnswer, ClassicCall, ClassicCaller},
    event_notes::event_of,
    kind::ClassicKind,
    objects::ObjectReader,
    status::{ClassicPhase, ClassicStatus},
};
use crate::{
    COMPONENT,
    classic::{
        alarm::Alarm,
        core::ClassicCore,
        dialect::ClassicDialect,
        event::{ClassicCommand, ClassicEvent},
        settings::ClassicSettings,
    },
};

/// Capacity of the channel of reflector events. Small: a storm of changes waits on the server.
const NEWS: usize = 64;
/// Calls that are under way at once. An API server gives a client some hundreds of places; these leave room for others.
const MOST_CALLS: usize = 32;
/// Pause between two updates of the status.
const BETWEEN_STATUSES: Duration = Duration::from_millis(250);
/// The first minor release whose kubelets start a pod that has a claim without devices.
const FIRST_WITHOUT_DEVICES: u32 = 28;
/// Device classes of hostler's deployment, which parameters name until 1.30.
const CLASSES: &str = include_str!("../../../../deploy/cluster/deviceclasses.yaml");
/// The driver that the selectors of these classes name, where nothing else is configured.
const USUAL_DRIVER: &str = "hostler.dev";

/// The reason why a term ends.
pub(super) enum TermEnd {
    /// This process is not the leader any more.
    Deposed,
    /// The server does not have this kind any more.
    NotServed(String),
}

/// Carries out the core's commands.
pub(super) struct Term<'a> {
    parts: &'a mut ClassicParts,
    version: ClassicVersion,
    core: ClassicCore,
    objects: ObjectReader,
    caller: ClassicCaller,
    events: EventSink,
    /// Calls that wait for their turn.
    queue: VecDeque<ClassicCall>,
    calls: CallPool<CallAnswer>,
    began: Instant,
    alarm: Alarm,
    status: ClassicStatus,
    /// The time of the next update of the status, if it has changed.
    status_due: Option<Instant>,
}

impl<'a> Term<'a> {
    /// Begins a term; `minor` is the server's minor release.
    pub(super) fn new(parts: &'a mut ClassicParts, version: ClassicVersion, minor: u32) -> Self {
        let driver = parts.driver.clone();
        let dialect = ClassicDialect { version, driver: driver.clone() };
        let device_classes = device_classes(&driver);
        let core = ClassicCore::new(ClassicSettings {
            version,
            driver,
            device_classes,
            reserves_for_pods: true,
            needs_devices: minor < FIRST_WITHOUT_DEVICES,
        });
        Self {
            core,
            version,
            objects: ObjectReader::new(dialect.clone()),
            events: EventSink::start(COMPONENT, parts.calling.clone(), &parts.tasks),
            caller: ClassicCaller { client: parts.calling.clone(), dialect },
            queue: VecDeque::new(),
            calls: CallPool::new(&parts.tasks, MOST_CALLS),
            began: Instant::now(),
            alarm: Alarm::default(),
            status: ClassicStatus::default(),
            status_due: Some(Instant::now()),
            parts,
        }
    }

    pub(super) async fn run(mut self) -> TermEnd {
        let (news_tx, mut news_rx) = mpsc::channel(NEWS);
        let _own = watch(self.parts, self.version, &news_tx).await;
        // The reflectors hold the senders.
        drop(news_tx);
        loop {
            let Some(until) = leads_until(&mut self.parts.leadership_rx) else { return TermEnd::Deposed };
            self.begin_calls();
            tokio::select! {
                // An answer to a call is handled before other events, and before further calls begin.
                biased;
                // Cancel safe: an answer that was not taken stays in the channel.
                answer = self.calls.answer() => self.answered(answer),
                // Cancel safe: only waits. The next turn of the loop notices that the lease was not renewed.
                () = reach(Some(until)) => {}
                // Cancel safe: the change is read in the next turn of the loop.
                _ = self.parts.leadership_rx.changed() => {}
                // Cancel safe: only waits.
                () = reach(self.status_due) => self.tell_status(),
                // Cancel safe: news that were not taken stay in the channel.
                Some((kind, news)) = news_rx.recv() => {
                    if matches!(news, ReflectorEvent::NotServed) && !kind.is_optional() {
                        return TermEnd::NotServed(kind.plural(self.version).to_owned());
                    }
                    self.objects.take(kind, &news).into_iter().for_each(|event| self.step(event));
                }
                // Behind the events: the core asks to be woken at once while it has work left, and also works with each
                // event.
                // Cancel safe: only waits.
                () = reach(self.alarm.at().map(|at| self.began + at)) => {
                    self.alarm.ring();
                    self.step(ClassicEvent::Tick);
                }
            }
        }
    }

    fn step(&mut self, event: ClassicEvent) {
        self.status_due.get_or_insert_with(|| Instant::now() + BETWEEN_STATUSES);
        for command in self.core.step(self.began.elapsed(), event) {
            match command {
                ClassicCommand::FetchPod(key) => self.queue.push_back(ClassicCall::Pod(key)),
                ClassicCommand::FindClaim(key, uid) => self.queue.push_back(ClassicCall::Claim(key, uid)),
                ClassicCommand::Write(write) => self.queue.push_back(ClassicCall::Write(write)),
                ClassicCommand::Tell(note) => {
                    debug!(claim.name = %note.claim, reason = note.reason.as_str(), message = note.message, "told");
                    let (subject, note) = event_of(self.version, note);
                    self.events.record(subject, note);
                }
                ClassicCommand::WakeAt(at) => self.alarm.set(at),
            }
        }
    }

    /// Begins calls of the queue. The caller has just made sure that this process leads.
    fn begin_calls(&mut self) {
        while self.calls.has_room()
            && let Some(call) = self.queue.pop_front()
        {
            let caller = self.caller.clone();
            self.calls.begin(async move { caller.call(call).await });
        }
    }

    /// Handles the answer to a call. The core learns the object's new state before the outcome of the write: see the
    /// core.
    fn answered(&mut self, answer: CallAnswer) {
        match answer {
            CallAnswer::Pod(key, pod) => self.step(ClassicEvent::Pod(key, pod)),
            CallAnswer::Claim(uid, is_there) => self.step(ClassicEvent::ClaimFound(uid, is_there)),
            CallAnswer::Written { target, what, outcome, object } => {
                *self.status.writes.entry((what, outcome.as_str())).or_default() += 1;
                self.note(what, &outcome);
                let seen = object.and_then(|object| self.objects.answered(&target, &object));
                seen.into_iter().for_each(|event| self.step(event));
                self.step(ClassicEvent::Written(target, outcome));
            }
        }
    }

    fn note(&mut self, what: &'static str, outcome: &WriteOutcome) {
        match outcome {
            WriteOutcome::Dropped(fields) => self.status.phase = ClassicPhase::Dropped(fields.clone()),
            WriteOutcome::Done if what == "allocation" => self.status.phase = ClassicPhase::default(),
            WriteOutcome::Failed(error) | WriteOutcome::Forbidden(error) => {
                warn!(what, error, "a write for classic DRA failed")
            }
            _ => {}
        }
    }

    fn tell_status(&mut self) {
        self.status_due = None;
        let missing = self.objects.missing();
        if !matches!(self.status.phase, ClassicPhase::Dropped(_)) {
            self.status.phase = if missing.is_empty() {
                ClassicPhase::Allocating(self.version)
            } else {
                ClassicPhase::Listing(missing)
            };
        }
        self.status.summary = self.core.summary();
        self.status.queued = self.queue.len();
        self.status.unreadable = self.objects.unreadable();
        self.parts.status_tx.send_if_modified(|last| {
            let is_other = *last != self.status;
            last.clone_from(&self.status);
            is_other
        });
    }
}

/// Watches the kinds that decide. Returns the reflectors of kinds that no other part reads; they end with the term.
async fn watch(
    parts: &ClassicParts,
    version: ClassicVersion,
    news_tx: &mpsc::Sender<(ClassicKind, ReflectorEvent)>,
) -> Vec<Reflector> {
    let mut own = Vec::new();
    for kind in ClassicKind::of(version).iter().copied() {
        if let Some(observed) = kind.observed() {
            parts.watches.subscribe(observed, kind, news_tx).await;
            continue;
        }
        let collection = kind.collection(version);
        let collections = Box::new(move |_| vec![collection.clone()]);
        let kind_of_own = ReflectorKind { plural: kind.plural(version), collections, is_optional: false };
        let (reflector, task) = Reflector::new(parts.watching.clone(), kind_of_own);
        parts.tasks.job(task);
        reflector.subscribe(kind, news_tx).await;
        own.push(reflector);
    }
    own
}

/// Returns the device classes of hostler's deployment, with selectors for this driver.
fn device_classes(driver: &str) -> Vec<DeviceClass> {
    let text = CLASSES.replace(&format!("\"{USUAL_DRIVER}\""), &format!("\"{driver}\""));
    serde_saphyr::from_multiple(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_can_name_the_device_classes_of_the_deployment() {
        let names =
            |driver: &str| device_classes(driver).into_iter().map(|class| class.metadata.name).collect::<Vec<_>>();
        assert!(names("hostler.dev").contains(&"cpu.hostler.dev".to_owned()), "{:?}", names("hostler.dev"));
        let selectors = device_classes("other.example").into_iter().flat_map(|class| class.spec.selectors);
        let selectors: Vec<String> = selectors.filter_map(|it| serde_json::to_string(&it).ok()).collect();
        assert!(selectors.iter().all(|it| it.contains("other.example")), "{selectors:?}");
    }
}
