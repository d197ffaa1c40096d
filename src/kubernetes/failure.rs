//! What goes wrong with a call to the API server, in words that fit into a chain of causes.

use std::{error::Error, fmt, ops::Deref, time::Duration};

use hostler_api::resource::GROUP;

/// Why a call to the API server gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiFailure {
    /// The server could not be reached, or said no.
    #[error("failed to {step}")]
    Call {
        /// What was tried, for example `get ResourceClaim default/train`.
        step: String,
        /// What the server or the connection said.
        #[source]
        source: CallError,
    },
    /// No answer.
    #[error("failed to {step}: the API server gave no answer within {} s", after.as_secs())]
    TimedOut {
        /// What was tried.
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
    /// The HTTP status with which the server said no.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Call { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether no answer came: the server is away, too slow, or the connection broke.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Call { source, .. } => matches!(**source, kube::Error::HyperError(_) | kube::Error::Service(_)),
            Self::TimedOut { .. } => true,
            Self::NoResourceApi => false,
        }
    }

    /// Whether the same call may succeed in a moment: no answer came, or it was "not now".
    pub fn is_transient(&self) -> bool {
        self.is_outage() || self.code().is_some_and(|code| code == 429 || code >= 500)
    }

    /// Whether the server does not know the kind in this version, as opposed to the object.
    pub fn is_unknown_resource(&self) -> bool {
        let Self::Call { source, .. } = self else { return false };
        let kube::Error::Api(status) = &**source else { return false };
        status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
    }
}

/// What the server or the connection said, once: the client's own words repeat their causes.
#[derive(Debug)]
pub struct CallError(Box<kube::Error>);

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self(Box::new(error))
    }
}

impl Deref for CallError {
    type Target = kube::Error;

    fn deref(&self) -> &kube::Error {
        &self.0
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            kube::Error::Api(status) if status.message.is_empty() => write!(f, "HTTP status {}", status.code),
            kube::Error::Api(status) => f.write_str(&status.message),
            other => match other.source() {
                Some(source) => write!(f, "{source}"),
                None => write!(f, "{other}"),
            },
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.0 {
            kube::Error::Api(_) => None,
            other => other.source().and_then(Error::source),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use hostler_api::Chain;
    use kube::core::Status;

    use super::*;

    fn failure(source: kube::Error) -> ApiFailure {
        ApiFailure::Call { step: "get ResourceClaim a/b".to_owned(), source: source.into() }
    }

    fn api(code: u16, message: &str) -> ApiFailure {
        failure(kube::Error::Api(Status::failure(message, "").with_code(code).boxed()))
    }

    #[test]
    fn a_cause_is_told_once() {
        assert_eq!(Chain(&api(409, "it was changed")).to_string(), "failed to get ResourceClaim a/b: it was changed");
        assert_eq!(Chain(&api(502, "")).to_string(), "failed to get ResourceClaim a/b: HTTP status 502");
        let broken = failure(kube::Error::Service(io::Error::other("no route").into()));
        assert_eq!(Chain(&broken).to_string(), "failed to get ResourceClaim a/b: no route");
    }

    #[test]
    fn what_may_pass_by_itself_is_told_from_what_does_not() {
        for (failure, transient, outage) in [
            (api(429, "slow down"), true, false),
            (api(500, "etcd"), true, false),
            (api(503, "starting"), true, false),
            (api(403, "no"), false, false),
            (api(409, "conflict"), false, false),
            (failure(kube::Error::Service(io::Error::other("reset").into())), true, true),
            (ApiFailure::TimedOut { step: String::new(), after: Duration::from_secs(1) }, true, true),
            (ApiFailure::NoResourceApi, false, false),
        ] {
            assert_eq!((failure.is_transient(), failure.is_outage()), (transient, outage), "{failure:?}");
        }
    }
}
