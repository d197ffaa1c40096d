//! Failures of calls to the API server, in words that fit into a chain of causes.

use std::{error::Error, fmt, time::Duration};

use hostler_api::resource::GROUP;
use hyper::http;
use serde::Deserialize;

/// Why a call to the API server gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiFailure {
    /// The server could not be reached, or said no.
    #[error("failed to {step}")]
    Call {
        /// The call, for example `get ResourceClaim default/train`.
        step: String,
        /// Error of the server or the connection.
        #[source]
        source: CallError,
    },
    /// No answer.
    #[error("failed to {step}: the API server gave no answer within {} s", after.as_secs())]
    TimedOut {
        /// The call.
        step: String,
        /// How long was waited.
        after: Duration,
    },
    /// The server has no version of the API that is spoken here.
    #[error(
        "the API server has no known version of {GROUP} (v1, v1beta2, v1beta1): it needs Kubernetes 1.32 with DynamicResourceAllocation switched on, or 1.34"
    )]
    NoResourceApi,
}

impl ApiFailure {
    /// A call that came to no end by itself: only a bug does that.
    pub fn ended(step: impl Into<String>, error: impl Error + Send + Sync + 'static) -> Self {
        Self::Call { step: step.into(), source: CallError::Connection(Box::new(error)) }
    }

    /// An answer that has the right shape and cannot be right.
    pub fn unusable(step: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self::Call { step: step.into(), source: CallError::Answer(serde::de::Error::custom(reason)) }
    }

    fn status(&self) -> Option<&StatusError> {
        match self {
            Self::Call { source: CallError::Status(status), .. } => Some(status),
            _ => None,
        }
    }

    /// The HTTP status with which the server said no.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// True if the server refuses for want of a permission on `resource`. The server looks for some permissions only
    /// when it has read the object; then it calls the object invalid, and says of a field that changing it is
    /// forbidden.
    pub fn lacks_permission(&self, resource: &str) -> bool {
        self.status().is_some_and(|status| {
            status.code == 403 || status.forbidden_fields.iter().any(|why| why.contains(resource))
        })
    }

    /// The budgets that do not let a pod be evicted now, in the server's words.
    pub fn disruption_budgets(&self) -> &[String] {
        self.status().map_or(&[], |status| &status.disruption_budgets)
    }

    /// True if the server takes a watch that begins with a list for a mistake of the caller, as one without `WatchList`
    /// does.
    pub fn is_refused_stream(&self) -> bool {
        matches!(self.code(), Some(400 | 422))
    }

    /// How long the server wants to be left alone, 30 s at most.
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(|status| status.retry_after)
    }

    /// True if no answer came: the server is away, too slow, or the connection broke.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Call { source: CallError::Connection(_), .. } | Self::TimedOut { .. })
    }

    /// True if the same call may succeed in a moment: no answer came, or the answer was "not now".
    pub fn is_transient(&self) -> bool {
        self.is_outage() || self.code().is_some_and(|code| code == 429 || code >= 500)
    }

    /// True if the server does not know the kind in this version, as opposed to the object.
    pub fn is_unknown_resource(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404 && !status.names_an_object)
    }
}

/// Error of the server or the connection.
#[derive(Debug)]
pub enum CallError {
    /// The server said no.
    Status(StatusError),
    /// There was no answer.
    Connection(Box<dyn Error + Send + Sync>),
    /// The request cannot be made.
    Request(http::Error),
    /// The answer, or what was to be sent, is not what it should be.
    Answer(serde_json::Error),
}

/// A server's no.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StatusError {
    /// The HTTP status.
    pub code: u16,
    /// In the server's words; may be empty.
    pub message: String,
    /// True if the refusal is about an object, as opposed to a kind that the server does not have.
    pub names_an_object: bool,
    /// How long the server wants to be left alone, 30 s at most.
    pub retry_after: Option<Duration>,
    /// Why fields of the object may not be what they were to be, in the server's words.
    pub forbidden_fields: Vec<String>,
    /// The budgets that do not let a pod be evicted now, in the server's words.
    pub disruption_budgets: Vec<String>,
}

/// The longest pause that a server can ask for. Flow control asks for one second, a server that stops for a few. A
/// longer pause is a mistake on the way, and would let a node count as gone.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// The reason of such a field among the causes of a no.
const FORBIDDEN_FIELD: &str = "FieldValueForbidden";
/// The reason of such a budget.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

impl StatusError {
    /// Reads a refusal. The pause in the header goes before that in the words.
    pub(crate) fn new(code: u16, retry_after: Option<u64>, said: Status) -> Self {
        let details = said.details.as_ref();
        let in_words = details.map(|details| u64::from(details.retry_after_seconds)).filter(|seconds| *seconds > 0);
        let causes = details.map_or(&[][..], |details| &details.causes);
        let of = |reason: &str| -> Vec<String> {
            causes.iter().filter(|cause| cause.reason == reason).map(|cause| cause.message.clone()).collect()
        };
        Self {
            code,
            names_an_object: details.is_some_and(|details| !details.name.is_empty()),
            retry_after: retry_after.or(in_words).map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER)),
            forbidden_fields: of(FORBIDDEN_FIELD),
            disruption_budgets: of(DISRUPTION_BUDGET),
            message: said.message,
        }
    }
}

/// Status: a refusal as the server sends it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) message: String,
    pub(crate) details: Option<StatusDetails>,
}

/// StatusDetails: the object that is refused, and the causes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusDetails {
    pub(crate) name: String,
    pub(crate) retry_after_seconds: u32,
    pub(crate) causes: Vec<StatusCause>,
}

/// StatusCause: one cause of a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusCause {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl From<hyper_util::client::legacy::Error> for CallError {
    fn from(error: hyper_util::client::legacy::Error) -> Self {
        Self::Connection(Box::new(error))
    }
}

impl From<hyper::Error> for CallError {
    fn from(error: hyper::Error) -> Self {
        Self::Connection(Box::new(error))
    }
}

impl From<http::Error> for CallError {
    fn from(error: http::Error) -> Self {
        Self::Request(error)
    }
}

/// Advice where the server does not accept the credentials. Tokens are bound to objects by UID: a Node that was deleted
/// and made again under its old name is another one.
const UNAUTHORIZED: &str = " (the token or certificate has expired, is of another cluster, or is bound to a Node or Pod \
    object that no longer exists; in a pod: delete the pod, its successor gets a new token; elsewhere: create the token \
    or certificate again)";

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(StatusError { code, message, .. }) => {
                match message.as_str() {
                    "" => write!(f, "HTTP status {code}")?,
                    message => f.write_str(message)?,
                }
                // The server's own word is one, and does not say which of the reasons it is.
                if *code == 401 { f.write_str(UNAUTHORIZED) } else { Ok(()) }
            }
            Self::Answer(error) => write!(f, "{error}"),
            Self::Connection(error) => write!(f, "{error}"),
            Self::Request(error) => write!(f, "{error}"),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Status(_) => None,
            Self::Answer(error) => error.source(),
            Self::Connection(error) => error.source(),
            Self::Request(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use hostler_api::Chain;

    use super::*;

    fn failure(source: CallError) -> ApiFailure {
        ApiFailure::Call { step: "get ResourceClaim a/b".to_owned(), source }
    }

    fn refused(said: Status) -> ApiFailure {
        failure(CallError::Status(StatusError::new(said.code, None, said)))
    }

    fn api(code: u16, message: &str) -> ApiFailure {
        refused(Status { code, message: message.to_owned(), details: None })
    }

    fn broken(why: &'static str) -> ApiFailure {
        failure(CallError::Connection(io::Error::other(why).into()))
    }

    #[test]
    fn a_cause_is_told_once() {
        assert_eq!(Chain(&api(409, "it was changed")).to_string(), "failed to get ResourceClaim a/b: it was changed");
        assert_eq!(Chain(&api(502, "")).to_string(), "failed to get ResourceClaim a/b: HTTP status 502");
        assert_eq!(Chain(&broken("no route")).to_string(), "failed to get ResourceClaim a/b: no route");
    }

    #[test]
    fn a_server_that_does_not_know_us_is_no_riddle() {
        let said = Chain(&api(401, "Unauthorized")).to_string();
        for words in [
            "failed to get ResourceClaim a/b: Unauthorized (",
            "bound to a Node or Pod object that no longer exists",
            "in a pod: delete the pod",
            "elsewhere: create the token or certificate again",
        ] {
            assert!(said.contains(words), "{words} is not in: {said}");
        }
        assert_eq!(Chain(&api(403, "no")).to_string(), "failed to get ResourceClaim a/b: no");
    }

    #[test]
    fn a_permission_that_is_looked_for_late_is_missed_as_any_other() {
        let invalid = |reason: &str| {
            let said = serde_json::json!({ "code": 422, "details": { "causes": [
                { "reason": reason, "message": "Forbidden: it requires resource=\"things/part\"", "field": "status.part" },
            ] } });
            refused(serde_json::from_value(said).unwrap())
        };
        assert!(invalid("FieldValueForbidden").lacks_permission("things/part"));
        assert!(!invalid("FieldValueForbidden").lacks_permission("things/whole"));
        assert!(!invalid("FieldValueInvalid").lacks_permission("things/part"));
        assert!(api(403, "no").lacks_permission("things/part"));
    }

    #[test]
    fn budgets_that_are_in_the_way_of_an_eviction_are_told() {
        let said = serde_json::json!({ "code": 429, "message": "Cannot evict pod", "details": { "causes": [
            { "reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently" },
        ] } });
        let blocked = refused(serde_json::from_value(said).unwrap());
        assert_eq!(
            blocked.disruption_budgets(),
            ["The disruption budget web needs 2 healthy pods and has 2 currently"]
        );
        assert!(api(429, "slow down").disruption_budgets().is_empty());
    }

    #[test]
    fn a_server_that_asks_for_a_long_silence_gets_a_short_one() {
        for (seconds, pause) in [(1, 1), (30, 30), (3_600, 30), (u64::MAX, 30)] {
            let asked = StatusError::new(503, Some(seconds), Status::default());
            assert_eq!(asked.retry_after, Some(Duration::from_secs(pause)), "{seconds}");
        }
        let said = serde_json::json!({ "code": 503, "details": { "retryAfterSeconds": u32::MAX } });
        let asked = StatusError::new(503, None, serde_json::from_value(said).unwrap());
        assert_eq!(asked.retry_after, Some(LONGEST_RETRY_AFTER));
    }

    #[test]
    fn what_may_pass_by_itself_is_told_from_what_does_not() {
        for (failure, transient, outage) in [
            (api(429, "slow down"), true, false),
            (api(500, "etcd"), true, false),
            (api(503, "starting"), true, false),
            (api(403, "no"), false, false),
            (api(409, "conflict"), false, false),
            (broken("reset"), true, true),
            (ApiFailure::TimedOut { step: String::new(), after: Duration::from_secs(1) }, true, true),
            (ApiFailure::NoResourceApi, false, false),
        ] {
            assert_eq!((failure.is_transient(), failure.is_outage()), (transient, outage), "{failure:?}");
        }
    }
}
