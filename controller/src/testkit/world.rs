//! A world: a server, a controller whose every event, command and answer is one step that a test can take, delay, lose or
//! repeat, and at times a second controller that believes that it is the only one.

use std::{
    collections::VecDeque,
    fmt::Debug,
    ops::{Deref, DerefMut},
    time::Duration,
};

use super::{
    fate::{Fate, Fated, Fates},
    server::{ApiError, ModelWatch},
};

/// The variable that has worlds print each event, command and write.
const TRACE: &str = "HOSTLER_TEST_TRACE";

/// A core under test, and what its world has besides.
pub(crate) trait Model: Sized {
    type Core;
    type Server;
    /// An entry of the server's log.
    type Entry: Clone;
    type Event: Debug;
    type Command: Debug;
    type Notice;
    type Write: Clone + Debug;
    /// The answer of the server to a write.
    type Written: Debug;
    /// An answer that the controller was not told yet.
    type Answer;

    /// Begins a core, which knows nothing.
    fn core(&self) -> Self::Core;

    fn log(server: &Self::Server) -> &[Self::Entry];

    /// Returns what the controller makes of an entry of the log.
    fn event(&self, entry: &Self::Entry) -> Option<Self::Event>;

    /// Returns all that a controller is told when it begins.
    fn everything(world: &World<Self>) -> Vec<Self::Event>;

    fn time_passed() -> Self::Event;

    fn step(world: &mut World<Self>, event: Self::Event) -> Vec<Self::Command>;

    fn sort(command: Self::Command) -> Sorted<Self>;

    /// Checks what must be true when the core wants this.
    fn check_command(_world: &World<Self>, _command: &Self::Command) {}

    fn execute(world: &mut World<Self>, command: Self::Command);

    /// Returns the fate of a write, of which this one was planned.
    fn fate(&self, _write: &Self::Write, planned: Option<Fate>) -> Option<Fate> {
        planned
    }

    /// Has another writer change the object first.
    fn overtake(world: &mut World<Self>, write: &Self::Write);

    fn write(world: &mut World<Self>, write: &Self::Write) -> Result<Self::Written, ApiError>;

    /// Tells the core what came of a write.
    fn written(world: &mut World<Self>, write: Self::Write, answer: Result<Self::Written, ApiError>);

    /// Prepares for so many seconds in which all happens that is to happen.
    fn settling(&mut self, _seconds: u64) {}

    /// Lets others do something. Says whether they did.
    fn others(_world: &mut World<Self>) -> bool {
        false
    }

    /// Nothing is left to happen until then.
    fn rests(_world: &mut World<Self>, _until: Duration) {}
}

/// A command, as the world takes it.
pub(crate) enum Sorted<M: Model> {
    WakeAt(Duration),
    Tell(M::Notice),
    /// A command that is executed later.
    Queue(M::Command),
}

/// A controller, what it has heard, and what it wants done.
pub(crate) struct Controller<M: Model> {
    pub(crate) core: M::Core,
    watch: ModelWatch,
    pub(crate) commands: VecDeque<M::Command>,
    pub(crate) answers: VecDeque<M::Answer>,
    pub(crate) wake: Option<Duration>,
}

impl<M: Model> Controller<M> {
    fn new(model: &M) -> Self {
        let (commands, answers) = (VecDeque::new(), VecDeque::new());
        Self { core: model.core(), watch: ModelWatch::default(), commands, answers, wake: None }
    }
}

/// The world.
pub(crate) struct World<M: Model> {
    pub(crate) server: M::Server,
    pub(crate) model: M,
    pub(crate) now: Duration,
    /// The one that runs, or of two that one which is just running.
    pub(crate) controller: Controller<M>,
    /// Another one, that believes that it is the only one.
    pub(crate) rival: Option<Controller<M>>,
    /// Whether there were two controllers since the world was at rest: what either of them knows may be older than what
    /// the other one did.
    pub(crate) is_disputed: bool,
    pub(crate) notices: Vec<M::Notice>,
    /// All writes that were sent.
    pub(crate) writes: Vec<M::Write>,
    pub(crate) fates: Fates,
    pub(crate) restarts: usize,
}

impl<M: Model> Deref for World<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M: Model> DerefMut for World<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.model
    }
}

impl<M: Model> World<M> {
    pub(crate) fn begin(server: M::Server, model: M, now: Duration) -> Self {
        let controller = Controller::new(&model);
        let (notices, writes, fates) = (Vec::new(), Vec::new(), Fates::default());
        Self { server, model, now, controller, rival: None, is_disputed: false, notices, writes, fates, restarts: 0 }
    }

    /// Lets happen what is to happen within two minutes.
    pub(crate) fn settle(&mut self) {
        self.settle_for(120);
    }

    pub(crate) fn settle_for(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        self.model.settling(seconds);
        for _ in 0..100_000 {
            if self.deliver() || self.execute_next(0) || M::others(self) {
                continue;
            }
            match self.controller.wake.filter(|wake| *wake <= until) {
                Some(wake) => self.tick(wake),
                None => {
                    self.is_disputed = self.rival.is_some();
                    return M::rests(self, until);
                }
            }
        }
        panic!("there is no rest: {:#?}", self.writes.iter().rev().take(6).collect::<Vec<_>>());
    }

    pub(crate) fn tick(&mut self, at: Duration) {
        self.now = at.max(self.now);
        self.controller.wake = self.controller.wake.filter(|wake| *wake > self.now);
        self.feed(M::time_passed());
    }

    pub(crate) fn feed(&mut self, event: M::Event) {
        trace(|| format!("{:?} EVENT {event:?}", self.now));
        for command in M::step(self, event) {
            trace(|| format!("      COMMAND {command:?}"));
            match M::sort(command) {
                Sorted::WakeAt(at) => self.controller.wake = Some(at),
                Sorted::Tell(notice) => self.notices.push(notice),
                Sorted::Queue(command) => {
                    M::check_command(self, &command);
                    self.controller.commands.push_back(command);
                }
            }
        }
    }

    /// Delivers the next watch event, if there is one.
    pub(crate) fn deliver(&mut self) -> bool {
        let next = self.controller.watch.next(M::log(&self.server)).cloned();
        next.is_some_and(|entry| self.hear(&entry))
    }

    /// Delivers the next watch event of a kind, before those of other kinds.
    pub(crate) fn deliver_where(&mut self, is_of: impl Fn(&M::Entry) -> bool) -> bool {
        let next = self.controller.watch.next_of(M::log(&self.server), is_of).cloned();
        next.is_some_and(|entry| self.hear(&entry))
    }

    fn hear(&mut self, entry: &M::Entry) -> bool {
        let event = self.model.event(entry);
        event.into_iter().for_each(|event| self.feed(event));
        true
    }

    /// Executes one of the commands, if there is one.
    pub(crate) fn execute_next(&mut self, at: usize) -> bool {
        let Some(command) = self.controller.commands.remove(at) else { return false };
        M::execute(self, command);
        true
    }

    pub(crate) fn send(&mut self, write: M::Write) {
        let planned = self.fates.next();
        let fate = self.model.fate(&write, planned);
        self.writes.push(write.clone());
        let fated = Fate::carry_out(fate, self, |world| M::overtake(world, &write), |world| M::write(world, &write));
        let answer = match fated {
            Fated::Answered(answer) => answer,
            Fated::Dead => return self.restart(),
            Fated::Silent => Err(ApiError(500, "no answer".to_owned())),
            Fated::Refused => Err(ApiError(422, "it shall not be".to_owned())),
        };
        trace(|| format!("      WRITE {write:?} {fate:?} -> {answer:?}"));
        M::written(self, write, answer);
    }

    /// A second controller is started while the first one runs.
    pub(crate) fn begin_rival(&mut self) {
        self.is_disputed = true;
        let next = Controller::new(&self.model);
        self.rival = Some(std::mem::replace(&mut self.controller, next));
        self.read_everything();
    }

    /// Of two controllers the other one is running now.
    pub(crate) fn swap(&mut self) {
        if let Some(rival) = &mut self.rival {
            trace(|| "SWAP".to_owned());
            std::mem::swap(rival, &mut self.controller);
        }
    }

    /// The controller is started anew.
    pub(crate) fn restart(&mut self) {
        trace(|| "RESTART".to_owned());
        self.restarts += 1;
        self.controller = Controller::new(&self.model);
        self.read_everything();
    }

    fn read_everything(&mut self) {
        self.controller.watch = ModelWatch::from_now(M::log(&self.server));
        M::everything(self).into_iter().for_each(|event| self.feed(event));
    }

    /// Checks that no write is left to be made, not by a controller either that begins.
    pub(crate) fn check_no_more_writes(&mut self) {
        let before = self.writes.len();
        self.settle();
        self.restart();
        self.settle();
        let more = &self.writes[before..];
        assert!(more.is_empty(), "writes at rest: {more:#?}");
    }
}

/// Prints what happens, where the environment asks for it.
fn trace(what: impl FnOnce() -> String) {
    if std::env::var_os(TRACE).is_some() {
        eprintln!("{}", what());
    }
}
