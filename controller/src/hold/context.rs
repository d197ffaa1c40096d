//! The state that decisions read, and the effects that they ask for. A decision is a function of a [`HoldContext`]: it
//! changes nothing but the list of its effects, which the core carries out.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::ObjectKey;
use hostler_reconcile::InFlightWrites;

use super::{
    known::KnownCluster,
    objects::DeviceKey,
    reservation::{ClosedCheck, Problem, Reservation},
    reservations::Reservations,
    settings::HoldSettings,
    topics::{DecisionTopic, HoldClock},
    writes::{HoldTarget, HoldWrite},
};

/// A moment since which a fact holds. Moments are forgotten in a crash, and the wait begins anew.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Timer {
    /// A device of the Reservation is gone, does not work or is not closed.
    Amiss(String, DeviceKey),
    /// The pod that the Reservation moves was read.
    Replaced(String),
    /// The claim of this name stands for its part, for every scheduler to see.
    Accounted(String),
    /// A device is closed, and owners want parts of it.
    PartClosed(DeviceKey),
    /// A node is missing.
    NodeMissing(String),
}

/// The moments by the clock of the core.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeMap<Timer, Duration>);

impl Timers {
    pub(super) fn start(&mut self, timer: Timer, now: Duration) {
        self.0.entry(timer).or_insert(now);
    }

    pub(super) fn stop(&mut self, timer: &Timer) {
        self.0.remove(timer);
    }

    /// Stops the timers of a Reservation that is gone.
    pub(super) fn stop_all_of(&mut self, reservation: &str) {
        self.0.retain(|timer, _| match timer {
            Timer::Amiss(name, _) | Timer::Replaced(name) => name != reservation,
            Timer::Accounted(_) | Timer::PartClosed(_) | Timer::NodeMissing(_) => true,
        });
    }
}

/// An effect that a decision asks for.
#[derive(Debug)]
pub(super) enum HoldEffect {
    /// Read a pod that is not known yet.
    ReadPod(ObjectKey),
    /// Read a pod again.
    RereadPod(ObjectKey),
    ListPriorities,
    ListBudgets,
    /// Decide about a topic in this step.
    Decide(DecisionTopic),
    /// Decide about a topic later.
    DecideAfter(Duration, DecisionTopic),
    /// Ask the planner soon, together with other candidates that come meanwhile.
    PlanSoon,
    Start(Timer),
    Stop(Timer),
    /// Leave a device alone for a while.
    Avoid(DeviceKey, Duration),
    /// The check of a Reservation's devices begins, goes on or ends.
    Check(String, Option<ClosedCheck>),
    /// List all claims for the check of a Reservation.
    ListClaims(String),
    /// No devices can be chosen for a Reservation, for this reason.
    Problem(String, Problem),
}

/// The state that a decision reads, and its effects.
pub(super) struct HoldContext<'a> {
    pub(super) settings: &'a HoldSettings,
    pub(super) cluster: &'a KnownCluster,
    pub(super) reservations: &'a Reservations,
    pub(super) timers: &'a Timers,
    pub(super) clock: &'a HoldClock,
    /// Devices that could not be closed, and the end of the time for which they are left alone.
    pub(super) avoided: &'a BTreeMap<DeviceKey, Duration>,
    pub(super) writes: &'a InFlightWrites<HoldTarget, HoldWrite>,
    /// Number of the last list of all claims.
    pub(super) listed: u64,
    /// True if pods can be told from which Reservation they have devices.
    pub(super) can_annotate: bool,
    /// Time by the clock that does not jump.
    pub(super) now: Duration,
    /// Effects of the decision, in order.
    pub(super) effects: Vec<HoldEffect>,
}

impl<'a> HoldContext<'a> {
    pub(super) fn push(&mut self, effect: HoldEffect) {
        self.effects.push(effect);
    }

    pub(super) fn decide(&mut self, topic: DecisionTopic) {
        self.push(HoldEffect::Decide(topic));
    }

    pub(super) fn decide_after(&mut self, delay: Duration, topic: DecisionTopic) {
        self.push(HoldEffect::DecideAfter(delay, topic));
    }

    /// Stops a timer that runs.
    pub(super) fn stop(&mut self, timer: Timer) {
        if self.timers.0.contains_key(&timer) {
            self.push(HoldEffect::Stop(timer));
        }
    }

    /// Returns the time since a timer was started, and starts it if it does not run.
    pub(super) fn age(&mut self, timer: Timer) -> Duration {
        match self.timers.0.get(&timer) {
            Some(since) => self.now.saturating_sub(*since),
            None => {
                self.push(HoldEffect::Start(timer));
                Duration::ZERO
            }
        }
    }

    /// Reads a pod that is not known.
    pub(super) fn read_pod(&mut self, pod: &ObjectKey) {
        if !self.cluster.pods.contains_key(pod) {
            self.push(HoldEffect::ReadPod(pod.clone()));
        }
    }

    /// The Reservation with this name.
    pub(super) fn reservation(&self, name: &str) -> Option<&'a Reservation> {
        self.reservations.get(name)
    }
}
