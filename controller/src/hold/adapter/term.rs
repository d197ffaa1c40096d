//! One leader term: from the first list to the moment at which this process no longer leads. Owns the core.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hostler_api::resource::ApiVersion;
use hostler_reconcile::{CallPool, EventSink, ReflectorEvent, ServerTime, Troubles, WriteOutcome, leads_until};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use super::{
    HoldParts,
    calls::{ANNOTATIONS, HoldCall, HoldCallAnswer, HoldCaller},
    event_notes::event_of,
    kind::{HoldKind, HoldPlaces},
    later::LaterRules,
    listing::ListTurn,
    objects::HoldReader,
    queue::CallQueue,
    status::{HoldPhase, HoldStatus},
};
use crate::{
    COMPONENT,
    askers::ASKER_BOX,
    hold::{HoldAnswer, HoldCommand, HoldCore, HoldEvent, HoldQuestion, HoldSettings, HoldTarget, HoldTime},
};

/// News that wait for the core. Few: a storm of changes waits on the server.
const NEWS: usize = 64;
/// The most calls in flight. An API server serves some hundreds of a client's calls at once; these leave room for
/// others.
const MOST_CALLS: usize = 32;
/// The shortest time between two reports of the status.
const BETWEEN_STATUSES: Duration = Duration::from_millis(250);

/// The reason why a term is over.
pub(super) enum HoldTermEnd {
    /// This process no longer leads.
    Deposed,
    /// The server no longer serves this kind.
    NotServed(String),
    /// The state of DeviceTaintRules differs from that at the start of the term.
    OtherRules,
}

/// Carries out the commands of the core.
pub(super) struct HoldTerm<'a> {
    parts: &'a mut HoldParts,
    core: HoldCore,
    objects: HoldReader,
    caller: HoldCaller,
    events: EventSink,
    queue: CallQueue,
    lists: ListTurn,
    rules: LaterRules,
    /// Failures of writes, by object and kind of write.
    troubles: Troubles<(HoldTarget, &'static str)>,
    calls: CallPool<HoldCallAnswer>,
    planned_tx: mpsc::Sender<HoldAnswer>,
    planned_rx: mpsc::Receiver<HoldAnswer>,
    began: Instant,
    wake: Option<Instant>,
    /// Revision of the facts that the core was told of.
    revision: u64,
    status: HoldStatus,
    /// The time that the server said last.
    server_time: Option<ServerTime>,
    /// The time of the next report of the status, if there is anything new.
    status_due: Option<Instant>,
}

impl<'a> HoldTerm<'a> {
    pub(super) fn new(parts: &'a mut HoldParts, places: HoldPlaces) -> Self {
        let config = &parts.config;
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let core = HoldCore::new(HoldSettings {
            keeps_places: *parts.places_rx.borrow_and_update(),
            own_driver: parts.driver.clone(),
            has_rules: places.rules.close(),
            // Parts of devices can be read from that version on.
            namespace: Some(parts.namespace.clone()).filter(|_| places.version == ApiVersion::V1),
            holds_partitions: config.holds_partitions,
            attaches: places.attaches,
            settle: seconds(config.settle_seconds),
            grace: seconds(config.grace_seconds),
            keep: seconds(config.keep_seconds),
            plan: parts.view_rx.borrow().options.clone(),
            asker_box: ASKER_BOX,
        });
        let rules_doubt = places.rules.doubt().map(str::to_owned);
        // One question at most is in flight.
        let (planned_tx, planned_rx) = mpsc::channel(1);
        let now = Instant::now();
        Self {
            core,
            rules: LaterRules::new(places.rules.clone(), now),
            objects: HoldReader::new(places.kinds(), &parts.namespace),
            events: EventSink::start(COMPONENT, parts.calling.clone(), &parts.tasks),
            caller: HoldCaller {
                client: parts.calling.clone(),
                places,
                namespace: parts.namespace.clone(),
                holds_partitions: parts.config.holds_partitions,
                scheduler: parts.config.oldest_scheduler.clone(),
            },
            queue: CallQueue::default(),
            lists: ListTurn::new(),
            troubles: Troubles::default(),
            calls: CallPool::new(&parts.tasks, MOST_CALLS),
            planned_tx,
            planned_rx,
            began: now,
            wake: None,
            revision: 0,
            status: HoldStatus { rules_doubt, ..HoldStatus::default() },
            server_time: None,
            status_due: Some(now),
            parts,
        }
    }

    pub(super) async fn run(mut self) -> HoldTermEnd {
        let (news_tx, mut news_rx) = mpsc::channel(NEWS);
        for kind in self.caller.places.kinds() {
            self.parts.watches.subscribe(kind.observed(), kind, &news_tx).await;
        }
        // The reflectors hold the senders.
        drop(news_tx);
        loop {
            let Some(until) = leads_until(&mut self.parts.leadership_rx) else { return HoldTermEnd::Deposed };
            if self.rules.is_other() && self.calls.is_idle() {
                return HoldTermEnd::OtherRules;
            }
            self.hear_time();
            self.begin_calls();
            let next = [Some(until), self.status_due, self.wake, self.lists.due(), self.rules.due()];
            let next = next.into_iter().flatten().min().unwrap_or(until);
            tokio::select! {
                // Answers to calls are taken before all other news, and before more calls are made.
                biased;
                // Cancel safe: an answer that was not taken stays in the channel.
                answer = self.calls.answer() => self.answered(answer),
                // Cancel safe: an answer that was not taken stays in the channel.
                Some(answer) = self.planned_rx.recv() => self.step(HoldEvent::Planned(answer)),
                // Cancel safe: the timer only waits. The next turn of the loop finds out if this process still leads.
                () = sleep_until(next) => self.time_passed(),
                // Cancel safe: the next turn of the loop reads the change.
                _ = self.parts.leadership_rx.changed() => {}
                // Cancel safe: the change is read at once.
                Ok(()) = self.parts.view_rx.changed() => self.facts_changed(),
                // Cancel safe: the change is read at once.
                Ok(()) = self.parts.places_rx.changed() => {
                    let kept = *self.parts.places_rx.borrow_and_update();
                    self.step(HoldEvent::PlacesKept(kept));
                }
                // Cancel safe: news that were not taken stay in the channel.
                Some((kind, news)) = news_rx.recv() => {
                    let is_needed = !matches!(kind, HoldKind::Rule | HoldKind::Attachment);
                    if matches!(news, ReflectorEvent::NotServed) && is_needed {
                        return HoldTermEnd::NotServed(kind.plural().to_owned());
                    }
                    self.objects.take(kind, &news).into_iter().for_each(|event| self.step(event));
                }
            }
        }
    }

    /// Takes the server's time, which each renewal of the Lease tells: before the first list, and where nothing else is
    /// written.
    fn hear_time(&mut self) {
        let heard = self.parts.leadership_rx.borrow().server_time;
        if heard != self.server_time {
            self.server_time = heard;
            heard.into_iter().for_each(|time| self.step(HoldEvent::ServerTime(time.now())));
        }
    }

    fn time_passed(&mut self) {
        let now = Instant::now();
        if self.status_due.is_some_and(|due| due <= now) {
            self.tell_status();
        }
        if let Some(list) = self.lists.take_due(now) {
            self.queue.push(HoldCall::Claims(list));
        }
        if self.rules.take_due(now) {
            self.queue.push(HoldCall::Rules);
        }
        if self.wake.take_if(|wake| *wake <= now).is_some() {
            self.step(HoldEvent::Tick);
        }
    }

    fn facts_changed(&mut self) {
        let (revision, gains) = {
            let view = self.parts.view_rx.borrow_and_update();
            (view.facts.revision(), view.facts.gains())
        };
        if revision != self.revision {
            self.revision = revision;
            self.step(HoldEvent::FactsChanged(gains));
        }
    }

    fn step(&mut self, event: HoldEvent) {
        self.status_due.get_or_insert_with(|| Instant::now() + BETWEEN_STATUSES);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = HoldTime { elapsed: self.began.elapsed(), wall };
        for command in self.core.step(now, event) {
            match command {
                HoldCommand::Write(write) => self.queue.push(HoldCall::Write(write)),
                HoldCommand::FetchPod(key) => self.queue.push(HoldCall::Pod(key)),
                HoldCommand::ListPriorities => self.queue.push(HoldCall::Priorities),
                HoldCommand::ListBudgets => self.queue.push(HoldCall::Budgets),
                HoldCommand::ListClaims(list) => self.queue.push(HoldCall::Claims(list)),
                HoldCommand::Plan(question) => self.ask(question),
                HoldCommand::Tell(notice) => {
                    debug!(name = notice.name, reason = notice.reason, message = notice.message, "told");
                    let (subject, note) = event_of(notice);
                    self.events.record(subject, note);
                }
                // The core repeats a time only if it is earlier than the last one, or if the last one has passed.
                HoldCommand::WakeAt(at) => self.wake = Some(self.began + at),
            }
        }
    }

    /// Sends the planner a question about the cluster as it is. This thread renews the Lease, and must not wait for the
    /// answer.
    fn ask(&self, question: Box<HoldQuestion>) {
        let (view, planned_tx) = (self.parts.view_rx.borrow().clone(), self.planned_tx.clone());
        let number = question.number();
        let answering = self.parts.tasks.looking(move || question.run(view.planner.get()));
        self.parts.tasks.job(async move {
            let answer = answering.await.unwrap_or_else(|_| HoldQuestion::unanswered(number));
            // The answer has no reader once the term is over.
            let _ = planned_tx.send(answer).await;
        });
    }

    /// Begins calls. The caller has just made sure that this process leads. The last answers are waited for before
    /// another term begins.
    fn begin_calls(&mut self) {
        while self.calls.has_room()
            && !self.rules.is_other()
            && let Some(call) = self.queue.pop()
        {
            let caller = self.caller.clone();
            self.calls.begin(async move { caller.call(call).await });
        }
    }

    /// Takes the answer to a call. The core is told of the new object before the outcome of its write: see the core.
    fn answered(&mut self, answer: HoldCallAnswer) {
        match answer {
            HoldCallAnswer::Pod(key, pod) => self.step(HoldEvent::Pod(key, pod)),
            HoldCallAnswer::Priorities(classes) => self.step(HoldEvent::Priorities(classes)),
            HoldCallAnswer::Budgets(budgets) => self.step(HoldEvent::Budgets(budgets)),
            HoldCallAnswer::Rules(known) => self.rules.answered(known.as_ref(), Instant::now()),
            HoldCallAnswer::Claims(list, Ok(claims)) => {
                self.lists.succeeded();
                let news = self.objects.claims_listed(claims);
                news.into_iter().for_each(|claim| self.step(HoldEvent::Claim(Box::new(claim))));
                self.step(HoldEvent::ClaimsListed(list));
            }
            HoldCallAnswer::Claims(list, Err(failure)) => {
                if self.lists.failed(list, &failure, Instant::now()) {
                    let error = failure.error;
                    warn!(error, "the claims that devices are compared with cannot be listed");
                }
            }
            HoldCallAnswer::Written { target, what, outcome, object } => {
                *self.status.writes.entry((what, outcome.as_str())).or_default() += 1;
                self.log_outcome(&target, what, &outcome);
                if what == ANNOTATIONS && matches!(outcome, WriteOutcome::Refused(_) | WriteOutcome::Forbidden(_)) {
                    self.status.is_silent_to_pods = true;
                }
                let seen = object.map(|object| self.objects.answered(&target, &object)).unwrap_or_default();
                seen.into_iter().for_each(|event| self.step(event));
                self.step(HoldEvent::Written(target, outcome));
            }
        }
    }

    /// Logs the outcome of a write. A write is tried again and again: the same failure is logged once.
    fn log_outcome(&mut self, target: &HoldTarget, what: &'static str, outcome: &WriteOutcome) {
        let object = (target.clone(), what);
        match outcome.trouble() {
            // One role stands behind all pods.
            Some(_) if what == ANNOTATIONS && self.status.is_silent_to_pods => {}
            Some(error) if self.troubles.is_news(object.clone(), error) => {
                warn!(what, %target, error, "a write for a Reservation failed");
            }
            None if *outcome != WriteOutcome::Conflict => self.troubles.mended(&object),
            Some(_) | None => {}
        }
    }

    fn tell_status(&mut self) {
        self.status_due = None;
        let missing = self.objects.missing();
        self.status.phase = if missing.is_empty() { HoldPhase::Keeping } else { HoldPhase::Listing(missing) };
        self.status.unreadable = self.objects.unreadable();
        self.status.reservations = self.objects.phases();
        self.status.rules = self.objects.rules();
        self.parts.tell(self.status.clone());
    }
}
