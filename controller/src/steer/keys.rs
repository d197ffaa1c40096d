//! The webhook's own certificates, and what becomes of them next. Pure.
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

/// How long a certificate is good for.
pub(super) const VALID: Duration = Duration::from_secs(90 * DAY);
const DAY: u64 = 24 * 3600;
/// How long a certificate is used before the next one: a month is left to mend what is broken.
const USED: u64 = 60 * DAY;
/// How long every API server has to hear of a new authority.
const KNOWN_AFTER: u64 = 3600;
/// How long every controller has to read the Secret.
const FORMER: u64 = DAY;

/// A certificate, its key, and what signed it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct ServingPair {
    /// Time of making, in seconds since 1970.
    pub(super) made: u64,
    /// The names that the certificate is for.
    pub(super) names: Vec<String>,
    /// PEM.
    pub(super) certificate: String,
    /// PEM.
    pub(super) key: String,
    /// PEM. Its key was thrown away: no other certificate can be signed with it.
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
    /// A certificate is made, and the Secret with it in use.
    Make,
    /// The configuration says these authorities.
    Bundle(String),
    /// A certificate is made, and is the next one in the Secret.
    Prepare,
    /// The Secret becomes this.
    Keep(Box<WebhookKeys>),
}

impl WebhookKeys {
    pub(super) fn new(in_use: ServingPair) -> Self {
        Self { in_use, next: None, former: None }
    }

    pub(super) fn with_next(self, next: ServingPair) -> Self {
        Self { next: Some(next), ..self }
    }

    /// Returns the authorities that the API server must trust, as PEM; in one order, so that a certificate that is
    /// taken into use is no news.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|it| &*it.authority);
        let former = self.former.as_ref().map(|it| &*it.authority);
        let mut all: Vec<&str> = [Some(&*self.in_use.authority), next, former].into_iter().flatten().collect();
        all.sort_unstable();
        all.concat()
    }
}

/// Returns the next write, by what was read; `None`: nothing. `bundle` is what the configuration says.
pub(super) fn next_step(keys: Option<&WebhookKeys>, bundle: &str, names: &[String], now: u64) -> Option<KeyStep> {
    // A clock that is behind makes nothing old.
    let age = |made: u64| now.saturating_sub(made);
    // No API server takes a certificate of a clock that was ahead, before its time comes.
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
