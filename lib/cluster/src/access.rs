//! The two questions of a server about the bearer of a token: the identity, and the right to do what is asked.

mod readers;
mod verdicts;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{ApiClient, ApiFailure, Collection};

pub use readers::{FigureReaders, ReaderVerdict};
pub use verdicts::{ReviewError, TokenReviews, TokenVerdict};

/// An identity that the API server knows, in its own words. Only good for asking about its rights.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct ApiIdentity {
    /// `system:serviceaccount:monitoring:prometheus`.
    pub username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Tokens have about a kilobyte.
const LONGEST_TOKEN_BYTES: usize = 16 << 10;

impl ApiIdentity {
    /// Makes the identity of a service account, with the groups that the API server gives it.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = ["system:serviceaccounts", "system:authenticated"].map(str::to_owned);
        Self {
            username: format!("system:serviceaccount:{namespace}:{name}"),
            groups: groups.into_iter().chain([format!("system:serviceaccounts:{namespace}")]).collect(),
            ..Self::default()
        }
    }
}

/// The token in the value of an `Authorization` header, if there is one that could be one.
pub fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    let token = token.trim();
    let is_token = !token.is_empty() && token.len() <= LONGEST_TOKEN_BYTES && !token.contains(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token).then_some(token)
}

/// A deed that may be allowed or not.
#[derive(Clone, Copy, Debug)]
pub enum AskedDeed<'a> {
    /// With a path that is no object's, such as `/metrics`.
    Path {
        /// `get`.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
    /// With objects of a kind, in all namespaces.
    Everywhere {
        /// `list`.
        verb: &'a str,
        /// The group; empty for the core one.
        group: &'a str,
        /// The plural.
        resource: &'a str,
    },
    /// With objects of a kind, as a role can limit it.
    Object {
        /// `list`.
        verb: &'a str,
        /// The group; empty for the core one.
        group: &'a str,
        /// The plural, or `plural/subresource`.
        resource: &'a str,
        /// The namespace; `None`: all of them.
        namespace: Option<&'a str>,
        /// The name; `None`: all of them.
        name: Option<&'a str>,
    },
}

impl AskedDeed<'_> {
    /// Writes the question into the `spec` of a review.
    fn ask(self, spec: &mut Value) {
        match self {
            Self::Path { verb, path } => spec["nonResourceAttributes"] = json!({ "path": path, "verb": verb }),
            Self::Everywhere { verb, group, resource } => {
                spec["resourceAttributes"] = json!({ "group": group, "resource": resource, "verb": verb });
            }
            Self::Object { verb, group, resource, namespace, name } => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                spec["resourceAttributes"] = json!({
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace.unwrap_or_default(), "name": name.unwrap_or_default(),
                });
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct TokenReview {
    #[serde(default)]
    status: TokenReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenReviewStatus {
    authenticated: bool,
    user: ApiIdentity,
}

#[derive(Debug, Deserialize)]
struct AccessReview {
    status: AccessReviewStatus,
}

#[derive(Debug, Deserialize)]
struct AccessReviewStatus {
    allowed: bool,
}

impl ApiClient {
    /// Returns the identity that a token belongs to; `None` if the API server knows none.
    ///
    /// # Errors
    /// As [`get`](Self::get): the answer to the question itself is never an error.
    pub async fn identify(&self, token: &str) -> Result<Option<ApiIdentity>, ApiFailure> {
        let reviews = Collection::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews");
        let asked = json!({ "apiVersion": reviews.api_version(), "kind": reviews.kind(), "spec": { "token": token } });
        let answer: TokenReview = self.ask("have a token reviewed", &reviews, &asked).await?;
        Ok(Some(answer.status).filter(|status| status.authenticated).map(|status| status.user))
    }

    /// Asks whether this client's role gives a verb on a kind, in all namespaces. The verb may be one that no API
    /// server acts on: a role can give it as a mark.
    ///
    /// # Errors
    /// As [`get`](Self::get): a no is no error.
    pub async fn is_allowed(&self, verb: &str, group: &str, resource: &str) -> Result<bool, ApiFailure> {
        self.may(AskedDeed::Everywhere { verb, group, resource }).await
    }

    /// True if this client may do this.
    ///
    /// # Errors
    /// As [`get`](Self::get): a no is no error.
    pub async fn may(&self, deed: AskedDeed<'_>) -> Result<bool, ApiFailure> {
        let (plural, group) = ("selfsubjectaccessreviews", "authorization.k8s.io");
        let reviews = Collection::new(group, "v1", "SelfSubjectAccessReview", plural);
        let mut asked = json!({ "apiVersion": reviews.api_version(), "kind": reviews.kind(), "spec": {} });
        deed.ask(&mut asked["spec"]);
        let answer: AccessReview = self.ask("ask for its own rights", &reviews, &asked).await?;
        Ok(answer.status.allowed)
    }

    /// True if the identity may do this.
    ///
    /// # Errors
    /// As [`get`](Self::get): a no is no error.
    pub async fn allows(&self, who: &ApiIdentity, deed: AskedDeed<'_>) -> Result<bool, ApiFailure> {
        let reviews = Collection::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews");
        let mut asked = json!({
            "apiVersion": reviews.api_version(), "kind": reviews.kind(),
            "spec": { "user": who.username, "uid": who.uid, "groups": who.groups, "extra": who.extra },
        });
        deed.ask(&mut asked["spec"]);
        let answer: AccessReview = self.ask("have access reviewed", &reviews, &asked).await?;
        Ok(answer.status.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_token_is_no_question_for_the_api_server() {
        assert_eq!(bearer_token("Bearer abc.def"), Some("abc.def"));
        assert_eq!(bearer_token("bearer  abc"), Some("abc"));
        let long = format!("Bearer {}", "a".repeat(LONGEST_TOKEN_BYTES + 1));
        for wrong in ["", "Bearer", "Bearer ", "Bearer a b", "Basic YTpi", "abc", &long] {
            assert_eq!(bearer_token(wrong), None, "{:.20}", wrong);
        }
    }
}
