//! The errors of calls to a Redfish service.

use std::io;

use hostler_api::ConfigProblem;
use hostler_files::FileError;
use hyper_util::client::legacy;

/// A call to a Redfish service failed. Credentials are in none of these.
#[derive(Debug, thiserror::Error)]
pub enum RedfishError {
    /// No connection could be made: the request was not sent.
    #[error("failed to connect to {service} for {path}; check its address, the network and its certificate")]
    Connect {
        /// The address of the service.
        service: String,
        /// The path of the call.
        path: String,
        /// The failure of the connection.
        #[source]
        source: Box<legacy::Error>,
    },
    /// The connection ended before the answer.
    #[error("{service} ended the connection before it answered {method} {path}")]
    Lost {
        /// The address of the service.
        service: String,
        /// The method of the call.
        method: &'static str,
        /// The path of the call.
        path: String,
        /// The failure of the connection.
        #[source]
        source: Box<legacy::Error>,
    },
    /// The answer did not come in time.
    #[error("{service} did not answer {method} {path} within {seconds} s; it may be overloaded")]
    TimedOut {
        /// The address of the service.
        service: String,
        /// The method of the call.
        method: &'static str,
        /// The path of the call.
        path: String,
        /// The time that it had.
        seconds: u64,
    },
    /// The answer is larger than a document can be.
    #[error("the answer of {service} to {path} is larger than {most} bytes; is this a Redfish service?")]
    TooLarge {
        /// The address of the service.
        service: String,
        /// The path of the call.
        path: String,
        /// The limit in bytes.
        most: usize,
    },
    /// The answer ended early.
    #[error("failed to read the whole answer of {service} to {path}")]
    Body {
        /// The address of the service.
        service: String,
        /// The path of the call.
        path: String,
        /// The failure of the connection.
        #[source]
        source: io::Error,
    },
    /// The answer is no JSON.
    #[error("the answer of {service} to {path} is no JSON")]
    Json {
        /// The address of the service.
        service: String,
        /// The path of the call.
        path: String,
        /// The mistake and its place.
        #[source]
        source: serde_json::Error,
    },
    /// The service refused the call or failed.
    #[error("{service} answered {method} {path} with {status}{said}; {fix}")]
    Status {
        /// The address of the service.
        service: String,
        /// The method of the call.
        method: &'static str,
        /// The path of the call.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the answer, for people.
        said: String,
        /// The fix.
        fix: &'static str,
    },
    /// The service has more documents than a fabric can have.
    #[error("{service} has more than {most} {what}; name a service that manages fewer devices")]
    TooMany {
        /// The address of the service.
        service: String,
        /// The limit.
        most: usize,
        /// The things that are counted.
        what: &'static str,
    },
    /// A path cannot be asked for.
    #[error("{service} names the path {path:?}, which cannot be asked for")]
    Path {
        /// The address of the service.
        service: String,
        /// The path.
        path: String,
    },
    /// User name and password cannot be read.
    #[error("failed to read the credentials for {service}")]
    Credentials {
        /// The address of the service.
        service: String,
        /// The failure of the file.
        #[source]
        source: FileError,
    },
    /// The file with credentials has none.
    #[error("the credentials for {service} have no {part}; write it into {file}")]
    NoCredentials {
        /// The address of the service.
        service: String,
        /// The missing part: `username` or `password`.
        part: &'static str,
        /// The file.
        file: String,
    },
}

/// The reason why there is no client of a service.
#[derive(Debug, thiserror::Error)]
pub enum RedfishSetupError {
    /// Settings cannot be used.
    #[error("{}", list(problems))]
    Settings {
        /// All mistakes.
        problems: Vec<ConfigProblem>,
    },
    /// The file with certificates cannot be read.
    #[error("failed to read the certificates for {service}")]
    Authority {
        /// The address of the service.
        service: String,
        /// The failure of the file.
        #[source]
        source: FileError,
    },
    /// The file with certificates has none that can be used.
    #[error("{file} cannot vouch for {service}: {reason}; write the certificate of its authority as PEM")]
    Certificate {
        /// The address of the service.
        service: String,
        /// The file.
        file: String,
        /// The mistake.
        reason: String,
    },
}

fn list(problems: &[ConfigProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl RedfishError {
    /// True if the service cannot have seen the request.
    pub(super) fn was_not_sent(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Path { .. } | Self::Credentials { .. } | Self::NoCredentials { .. })
    }

    /// True if the same read may succeed a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            // A document that is being rewritten is cut off for a moment.
            Self::Connect { .. } | Self::Lost { .. } | Self::Body { .. } | Self::Json { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}
