//! What is attached for whom, as it was last told, and the calls that are under way. All of it can be lost: it is asked again.
//!
//! While a call is under way nobody knows what is attached. So rounds follow one another: it is asked, then each request has its
//! next call, and when all of them have ended it is asked again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::Doubling;

use super::{AttachCall, AttachFailure, AttachStep, AttachToken, AttachedDevice};
use crate::{
    hold::{DeviceKey, taken_by_reservations},
    provision::sight::ProvisionSight,
};

/// It is asked again after that time, whatever happens: what a call of a controller that died has attached is found then.
const ASKED_EVERY: Duration = Duration::from_secs(60);
/// Between two tries of a call that does not succeed.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(2), Duration::from_secs(120));

/// Whether anything can be attached, and for how long what nobody uses stays so.
#[derive(Clone, Copy, Debug)]
pub(in crate::provision) struct AttachSettings {
    /// Whether there is somebody who attaches.
    pub(in crate::provision) is_there: bool,
    /// What is attached and nobody needs is detached after that time.
    pub(in crate::provision) unneeded: Duration,
}

/// What is attached for whom.
#[derive(Debug)]
pub(in crate::provision) struct AttachKeeper {
    settings: AttachSettings,
    listing: Listing,
    /// As it was last told.
    last: Option<Vec<AttachedDevice>>,
    under_way: BTreeSet<AttachToken>,
    failures: BTreeMap<AttachToken, CallFailure>,
    asking_failed: Option<CallFailure>,
    /// Since when nobody needs it.
    unneeded: BTreeMap<AttachToken, Duration>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Listing {
    /// To be asked, not before that time.
    Wanted(Duration),
    UnderWay,
    /// What was told last is how it is; from that time on it is asked again.
    Known(Duration),
}

/// A call that did not succeed.
#[derive(Debug)]
struct CallFailure {
    why: AttachFailure,
    pause: Duration,
    /// Not before that time again.
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

    /// Whether there is somebody who attaches.
    pub(in crate::provision) fn is_there(&self) -> bool {
        self.settings.is_there
    }

    /// What is attached, as it was told.
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

    /// A call has ended. Whether it was carried out is asked.
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

    /// Whether what is attached is known just now.
    pub(in crate::provision) fn is_known(&self) -> bool {
        matches!(self.listing, Listing::Known(_))
    }

    /// Whether it was ever told.
    pub(in crate::provision) fn was_told(&self) -> bool {
        self.last.is_some()
    }

    /// What is attached for a request; `None` while nobody knows.
    pub(super) fn of(&self, uid: &str) -> Option<Vec<&AttachedDevice>> {
        self.is_known().then(|| self.all().filter(|it| it.token.request == uid).collect())
    }

    /// What is attached for a request and can be taken back, the last first; `None` while nobody knows. What a claim was given
    /// meanwhile, whose ever it is, stays where it is until nobody uses it.
    pub(in crate::provision) fn left(&self, uid: &str, sight: &ProvisionSight<'_>) -> Option<Vec<AttachToken>> {
        let attached = self.of(uid)?;
        if attached.is_empty() {
            return Some(Vec::new());
        }
        let taken = taken_by_reservations(sight.reservations.values().map(|it| &it.status));
        let mut left: Vec<_> =
            attached.into_iter().filter(|it| !is_used(it, &taken, sight)).map(|it| it.token.clone()).collect();
        left.sort_by(|one, other| other.cmp(one));
        Some(left)
    }

    /// Why the last call of this token did not succeed.
    pub(super) fn failure(&self, token: &AttachToken) -> Option<&AttachFailure> {
        self.failures.get(token).map(|failure| &failure.why)
    }

    /// Devices that are attached for requests that were not promised them yet, or are being detached.
    pub(in crate::provision) fn closed(&self, is_closed: impl Fn(&str) -> bool) -> BTreeSet<DeviceKey> {
        let closed = self.all().filter(|it| is_closed(&it.token.request) || self.under_way.contains(&it.token));
        closed.flat_map(|it| it.devices.iter().cloned()).collect()
    }

    /// Steps that are attached.
    pub(in crate::provision) fn steps(&self) -> impl Iterator<Item = &AttachStep> {
        self.all().map(|it| &it.step)
    }

    /// What nobody has needed for so long that it is detached. Requests that look after theirs themselves, or have a booking, are
    /// left alone.
    pub(in crate::provision) fn spare(
        &mut self,
        is_needed: impl Fn(&str) -> bool,
        now: Duration,
        sight: &ProvisionSight<'_>,
    ) -> Vec<AttachCall> {
        if !self.is_known() {
            return Vec::new();
        }
        let taken = taken_by_reservations(sight.reservations.values().map(|it| &it.status));
        let mut calls = Vec::new();
        let attached = self.last.iter().flatten();
        self.failures.retain(|token, _| is_needed(&token.request) || attached.clone().any(|it| it.token == *token));
        for attached in attached {
            let token = &attached.token;
            if is_needed(&token.request) || is_used(attached, &taken, sight) {
                self.unneeded.remove(token);
            } else if now >= *self.unneeded.entry(token.clone()).or_insert(now) + self.settings.unneeded {
                calls.push(AttachCall::Detach(token.clone()));
            }
        }
        calls
    }

    /// Those of the calls whose turn it is; what nobody knows is asked when none is.
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
            // Nobody knows before all of them have ended.
            self.listing = Listing::UnderWay;
        } else if let Listing::Wanted(at) | Listing::Known(at) = self.listing
            && now >= at
        {
            self.listing = Listing::UnderWay;
            begun.push(AttachCall::List);
        }
        begun
    }

    /// When the next thing happens by itself.
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

/// Whether a claim was given any of it, or a Reservation keeps it.
fn is_used(attached: &AttachedDevice, taken: &BTreeSet<DeviceKey>, sight: &ProvisionSight<'_>) -> bool {
    let is_given = |key: &DeviceKey| sight.facts.has_given(&key.driver, &key.pool, &key.device);
    attached.devices.iter().any(|key| taken.contains(key) || is_given(key))
}
