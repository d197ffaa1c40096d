//! Attached devices by request, as they were last listed, and the calls in flight. All of it can be lost: a list tells
//! again.
//!
//! During a call the state of devices is unknown. So the keeper alternates: it lists, then each request has its next
//! call, and when all of these have ended it lists again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::Doubling;

use super::{AttachCall, AttachFailure, AttachStep, AttachToken, AttachedDevice};
use crate::{
    hold::{DeviceKey, taken_by_reservations},
    provision::context::ProvisionContext,
};

/// Time after which the keeper lists again in any case: this finds devices that calls of a dead controller attached.
const ASKED_EVERY: Duration = Duration::from_secs(60);
/// Pauses between two tries of a call that fails.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(2), Duration::from_secs(120));

/// Settings of attaching: whether it is possible, and how long unused devices stay attached.
#[derive(Clone, Copy, Debug)]
pub(in crate::provision) struct AttachSettings {
    /// True if an implementation of `Attach` is configured.
    pub(in crate::provision) is_there: bool,
    /// Time after which an unneeded device is detached.
    pub(in crate::provision) unneeded: Duration,
}

/// Attached devices by request, and calls in flight.
#[derive(Debug)]
pub(in crate::provision) struct AttachKeeper {
    settings: AttachSettings,
    listing: Listing,
    /// The devices of the last list.
    last: Option<Vec<AttachedDevice>>,
    under_way: BTreeSet<AttachToken>,
    failures: BTreeMap<AttachToken, CallFailure>,
    asking_failed: Option<CallFailure>,
    /// The time since which a device is not needed.
    unneeded: BTreeMap<AttachToken, Duration>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Listing {
    /// A list is due at this time.
    Wanted(Duration),
    UnderWay,
    /// The last list is valid; at this time the next one is due.
    Known(Duration),
}

/// A call that failed.
#[derive(Debug)]
struct CallFailure {
    why: AttachFailure,
    pause: Duration,
    /// The earliest time of the next try.
    until: Duration,
}

impl CallFailure {
    fn after(before: Option<Self>, why: AttachFailure, now: Duration) -> Self {
        let pause = PAUSES.next(before.map(|before| before.pause));
        Self { why, pause, until: now + pause }
    }
}

impl AttachKeeper {
    pub(in crate::provision) fn new(settings: AttachSettings) -> Self {
        Self {
            settings,
            listing: Listing::Wanted(Duration::ZERO),
            last: None,
            under_way: BTreeSet::new(),
            failures: BTreeMap::new(),
            asking_failed: None,
            unneeded: BTreeMap::new(),
        }
    }

    /// Returns true if an implementation of `Attach` is configured.
    pub(in crate::provision) fn is_there(&self) -> bool {
        self.settings.is_there
    }

    /// Stores the result of a list.
    pub(in crate::provision) fn listed(&mut self, told: Result<Vec<AttachedDevice>, AttachFailure>, now: Duration) {
        match told {
            Ok(attached) => {
                self.asking_failed = None;
                self.unneeded.retain(|token, _| attached.iter().any(|it| it.token == *token));
                self.last = Some(attached);
                self.listing = Listing::Known(now + ASKED_EVERY);
            }
            Err(why) => {
                let failure = CallFailure::after(self.asking_failed.take(), why, now);
                self.listing = Listing::Wanted(failure.until);
                self.asking_failed = Some(failure);
            }
        }
    }

    /// Notes the end of a call. The next list tells whether the call was carried out.
    pub(in crate::provision) fn called(&mut self, token: AttachToken, came: Result<(), AttachFailure>, now: Duration) {
        self.under_way.remove(&token);
        let before = self.failures.remove(&token);
        if let Err(why) = came {
            self.failures.insert(token, CallFailure::after(before, why, now));
        }
        if self.under_way.is_empty() {
            self.listing = Listing::Wanted(now);
        }
    }

    /// Returns true if the last list is still valid.
    pub(in crate::provision) fn is_known(&self) -> bool {
        matches!(self.listing, Listing::Known(_))
    }

    /// Returns true if a list ever succeeded.
    pub(in crate::provision) fn was_told(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the devices that are attached for a request; `None` while they are unknown.
    pub(in crate::provision) fn of(&self, uid: &str) -> Option<Vec<&AttachedDevice>> {
        self.is_known().then(|| self.all().filter(|it| it.token.request == uid).collect())
    }

    /// Returns the devices of a request that can be detached, the last one first; `None` while they are unknown. A
    /// device that any claim was given meanwhile stays attached until it is unused.
    pub(in crate::provision) fn left(&self, uid: &str, cx: &ProvisionContext<'_>) -> Option<Vec<AttachToken>> {
        let attached = self.of(uid)?;
        if attached.is_empty() {
            return Some(Vec::new());
        }
        let taken = taken_by_reservations(cx.reservations.values().map(|it| &it.status));
        let mut left: Vec<_> =
            attached.into_iter().filter(|it| !is_used(it, &taken, cx)).map(|it| it.token.clone()).collect();
        left.sort_by(|one, other| other.cmp(one));
        Some(left)
    }

    /// Returns the reason why the last call with this token failed.
    pub(in crate::provision) fn failure(&self, token: &AttachToken) -> Option<&AttachFailure> {
        self.failures.get(token).map(|failure| &failure.why)
    }

    /// Returns devices that are attached for requests without a promise, or are being detached.
    pub(in crate::provision) fn closed(&self, is_closed: impl Fn(&str) -> bool) -> BTreeSet<DeviceKey> {
        let closed = self.all().filter(|it| is_closed(&it.token.request) || self.under_way.contains(&it.token));
        closed.flat_map(|it| it.devices.iter().cloned()).collect()
    }

    /// Returns the steps that are carried out.
    pub(in crate::provision) fn steps(&self) -> impl Iterator<Item = &AttachStep> {
        self.all().map(|it| &it.step)
    }

    /// Returns calls that detach devices which were unneeded for long enough. Requests that have a booking, or are
    /// still being decided about, keep their devices.
    pub(in crate::provision) fn spare(
        &mut self,
        is_needed: impl Fn(&str) -> bool,
        now: Duration,
        cx: &ProvisionContext<'_>,
    ) -> Vec<AttachCall> {
        if !self.is_known() {
            return Vec::new();
        }
        let taken = taken_by_reservations(cx.reservations.values().map(|it| &it.status));
        let mut calls = Vec::new();
        let attached = self.last.iter().flatten();
        self.failures.retain(|token, _| is_needed(&token.request) || attached.clone().any(|it| it.token == *token));
        for attached in attached {
            let token = &attached.token;
            if is_needed(&token.request) || is_used(attached, &taken, cx) {
                self.unneeded.remove(token);
            } else if now >= *self.unneeded.entry(token.clone()).or_insert(now) + self.settings.unneeded {
                calls.push(AttachCall::Detach(token.clone()));
            }
        }
        calls
    }

    /// Begins the calls that may begin now; a list, if one is due and no call begins.
    pub(in crate::provision) fn begin(&mut self, calls: Vec<AttachCall>, now: Duration) -> Vec<AttachCall> {
        if !self.is_there() {
            return Vec::new();
        }
        let mut begun = Vec::new();
        for call in calls {
            let token = match &call {
                AttachCall::Attach(order) => &order.token,
                AttachCall::Detach(token) => token,
                AttachCall::List => continue,
            };
            let is_due = self.failures.get(token).is_none_or(|failure| now >= failure.until);
            if self.is_known() && is_due && self.under_way.insert(token.clone()) {
                begun.push(call);
            }
        }
        if !begun.is_empty() {
            // The state of devices is unknown until all of these calls have ended.
            self.listing = Listing::UnderWay;
        } else if let Listing::Wanted(at) | Listing::Known(at) = self.listing
            && now >= at
        {
            self.listing = Listing::UnderWay;
            begun.push(AttachCall::List);
        }
        begun
    }

    /// Returns the time at which the keeper has to be asked again.
    pub(in crate::provision) fn due(&self, now: Duration) -> Option<Duration> {
        if !self.is_there() {
            return None;
        }
        let asked = match self.listing {
            Listing::Wanted(at) | Listing::Known(at) => Some(at),
            Listing::UnderWay => None,
        };
        let again = self.failures.values().map(|failure| failure.until);
        let unneeded = self.unneeded.values().map(|since| *since + self.settings.unneeded);
        asked.into_iter().chain(again).chain(unneeded).filter(|due| *due > now).min()
    }

    fn all(&self) -> impl Iterator<Item = &AttachedDevice> {
        self.last.iter().flatten()
    }
}

/// Returns true if a claim was given one of the devices, or a Reservation keeps one.
fn is_used(attached: &AttachedDevice, taken: &BTreeSet<DeviceKey>, cx: &ProvisionContext<'_>) -> bool {
    let is_given = |key: &DeviceKey| cx.facts.has_given(&key.driver, &key.pool, &key.device);
    attached.devices.iter().any(|key| taken.contains(key) || is_given(key))
}
