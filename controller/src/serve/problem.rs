//! Reasons why a question has no answer, for programs and for people.

use axum::{
    Json,
    http::{
        HeaderName, StatusCode,
        header::{CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use hostler_cluster::ReviewError;
use serde::Serialize;

use super::read_right::ReadRight;

/// The reason why a question has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ApiProblem {
    /// No token was sent.
    #[error("a token is needed: Authorization: Bearer TOKEN")]
    NoToken,
    /// The token is not valid.
    #[error("the API server does not know this token, or not any more")]
    UnknownToken,
    /// The visitor lacks a right.
    #[error("{user} may not {right}; a role with this verb has to be bound to it")]
    Forbidden {
        /// The visitor's name.
        user: String,
        /// The right that is lacking.
        right: ReadRight,
    },
    /// The named object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The question makes no sense.
    #[error("{0}")]
    BadQuestion(String),
    /// The body cannot be used.
    #[error("{}", .0.join("\n"))]
    Unusable(Vec<String>),
    /// The body is larger than what is read.
    #[error("the body has more than {0} KiB")]
    TooLarge(usize),
    /// The body took too long to come.
    #[error("the body did not come in time")]
    TooSlow,
    /// One visitor has too many questions open.
    #[error("{0} asks too much at once; wait for the answers")]
    TooMany(String),
    /// All visitors together have too many questions open, or the API server does not answer.
    #[error("{0}")]
    Busy(&'static str),
    /// A failure that is not the client's.
    #[error("{0}")]
    Internal(String),
}

/// `{"error": {"code": "forbidden", "message": "…"}}`.
#[derive(Debug, Serialize)]
struct ProblemAnswer<'a> {
    error: ProblemWords<'a>,
}

#[derive(Debug, Serialize)]
struct ProblemWords<'a> {
    code: &'static str,
    message: String,
    /// Each mistake by itself, where there can be several.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    problems: &'a [String],
}

impl ApiProblem {
    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoToken | Self::UnknownToken => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Forbidden { .. } => (StatusCode::FORBIDDEN, "forbidden"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not-found"),
            Self::BadQuestion(_) => (StatusCode::BAD_REQUEST, "bad-question"),
            Self::Unusable(_) => (StatusCode::UNPROCESSABLE_ENTITY, "unusable"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too-slow"),
            Self::TooMany(_) => (StatusCode::TOO_MANY_REQUESTS, "too-many"),
            Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }

    /// Returns the header that tells a client how to go on.
    fn advice(&self) -> Option<(HeaderName, &'static str)> {
        match self {
            Self::NoToken | Self::UnknownToken => Some((WWW_AUTHENTICATE, "Bearer")),
            Self::TooMany(_) | Self::Busy(_) => Some((RETRY_AFTER, "1")),
            _ => None,
        }
    }

    fn each(&self) -> &[String] {
        if let Self::Unusable(problems) = self { problems } else { &[] }
    }
}

impl From<ReviewError> for ApiProblem {
    /// Hides the API server's answer: it is in the log, and not for strangers.
    fn from(error: ReviewError) -> Self {
        Self::Busy(match error {
            ReviewError::Busy => "too many tokens are being reviewed; try again",
            ReviewError::Review(_) => "tokens cannot be reviewed now: the API server does not answer; try again",
        })
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let (status, code) = self.status();
        let error = ProblemWords { code, message: self.to_string(), problems: self.each() };
        let mut response = (status, [(CACHE_CONTROL, "no-store")], Json(ProblemAnswer { error })).into_response();
        if let Some((name, value)) = self.advice() {
            response.headers_mut().insert(name, value.parse().unwrap_or(axum::http::HeaderValue::from_static("")));
        }
        response
    }
}
