//! The webhook's own certificates, and the next write about them. Pure.
//!
//! All of it is in one Secret, which every controller reads and the leader writes. The API server must know the next
//! authority before any controller serves with its certificate, and the former one as long as a controller may still
//! serve with that:
//!
//! | State read | Write |
//! |---|---|
//! | no keys, or of other names, expired, or made by a fast clock | W1 the Secret: a new certificate, in use at once |
//! | the configuration does not say the authorities of the Secret | W2 `caBundle` of the configuration |
//! | in use for 60 days | W3 the Secret: the next certificate beside it |
//! | the next one is in `caBundle`, and an hour old | W4 the Secret: that one in use, the former authority beside it |
//! | the former authority is not needed any more | W5 the Secret without it |

use std::time::Duration;

use hostler_process::serve::BACKDATED;
use serde::{Deserialize, Serialize};

/// Time for which a certificate is valid.
pub(super) const VALID: Duration = Duration::from_secs(90 * DAY);
const DAY: u64 = 24 * 3600;
/// Time for which a certificate is used before the next one: a month is left to repair failures.
const USED: u64 = 60 * DAY;
/// Time in which every API server reads a new authority.
const KNOWN_AFTER: u64 = 3600;
/// Time in which every controller reads the Secret.
const FORMER: u64 = DAY;

/// A certificate, its key, and the authority that signed it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct ServingPair {
    /// Time of making, in seconds since 1970.
    pub(super) made: u64,
    /// The names that the certificate is for.
    pub(super) names: Vec<String>,
    /// The certificate, as PEM.
    pub(super) certificate: String,
    /// The certificate's key, as PEM.
    pub(super) key: String,
    /// The authority, as PEM. Its key was thrown away: no other certificate can be signed with it.
    pub(super) authority: String,
}

/// An authority whose certificate a controller may still show.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct FormerAuthority {
    until: u64,
    authority: String,
}

/// Content of the Secret.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct WebhookKeys {
    pub(super) in_use: ServingPair,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<ServingPair>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<FormerAuthority>,
}

/// The next write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum KeyStep {
    /// Make a certificate, and a Secret that uses it.
    Make,
    /// Write these authorities into the configuration.
    Bundle(String),
    /// Make a certificate, as the next one in the Secret.
    Prepare,
    /// Write these keys into the Secret.
    Keep(Box<WebhookKeys>),
}

impl WebhookKeys {
    pub(super) fn new(in_use: ServingPair) -> Self {
        Self { in_use, next: None, former: None }
    }

    pub(super) fn with_next(self, next: ServingPair) -> Self {
        Self { next: Some(next), ..self }
    }

    /// Returns the authorities that the API server must trust, as PEM. Their order is fixed, so taking a certificate
    /// into use changes nothing here.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|it| &*it.authority);
        let former = self.former.as_ref().map(|it| &*it.authority);
        let mut all: Vec<&str> = [Some(&*self.in_use.authority), next, former].into_iter().flatten().collect();
        all.sort_unstable();
        all.concat()
    }
}

/// Returns the next write, by the keys and the configuration that were read; `None` if there is none. `bundle` is the
/// configuration's.
pub(super) fn next_step(keys: Option<&WebhookKeys>, bundle: &str, names: &[String], now: u64) -> Option<KeyStep> {
    // A clock that is behind makes no certificate old.
    let age = |made: u64| now.saturating_sub(made);
    // A certificate of a clock that was ahead is accepted by no API server before its time comes.
    let is_early = |pair: &ServingPair| pair.made > now + BACKDATED.as_secs();
    let is_good = |pair: &ServingPair| pair.names == names && age(pair.made) < VALID.as_secs() && !is_early(pair);
    let good = |keys: &&WebhookKeys| is_good(&keys.in_use);
    let Some(keys) = keys.filter(good) else { return Some(KeyStep::Make) };
    let wanted = keys.bundle();
    if bundle != wanted {
        return Some(KeyStep::Bundle(wanted));
    }
    match (&keys.next, &keys.former) {
        (Some(next), _) if age(next.made) >= KNOWN_AFTER => {
            let former = FormerAuthority { until: now + FORMER, authority: keys.in_use.authority.clone() };
            let keys = WebhookKeys { in_use: next.clone(), next: None, former: Some(former) };
            Some(KeyStep::Keep(Box::new(keys)))
        }
        (_, Some(former)) if now >= former.until => {
            Some(KeyStep::Keep(Box::new(WebhookKeys { former: None, ..keys.clone() })))
        }
        (next, _) if age(keys.in_use.made) >= USED && next.as_ref().is_none_or(is_early) => Some(KeyStep::Prepare),
        _ => None,
    }
}
