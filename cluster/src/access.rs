//! The two questions of a server that somebody with a token asks for something: who that is, and whether he may.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::{ApiClient, ApiFailure, Collection};

/// Somebody whom the API server knows, in its own words. Only good for asking what he may.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct ApiIdentity {
    /// `system:serviceaccount:monitoring:prometheus`.
    pub username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
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
    /// Whose token this is; nobody's that the API server knows, if `None`.
    ///
    /// # Errors
    /// As [`get`](Self::get): the answer to the question itself is never an error.
    pub async fn identify(&self, token: &str) -> Result<Option<ApiIdentity>, ApiFailure> {
        let reviews = Collection::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews");
        let asked = json!({ "apiVersion": reviews.api_version(), "kind": reviews.kind(), "spec": { "token": token } });
        let answer: TokenReview = self.ask("have a token reviewed", &reviews, &asked).await?;
        Ok(Some(answer.status).filter(|status| status.authenticated).map(|status| status.user))
    }

    /// Whether somebody may do `verb` with a path that is no object's, such as `/metrics`.
    ///
    /// # Errors
    /// As [`get`](Self::get): a no is no error.
    pub async fn allows(&self, who: &ApiIdentity, verb: &str, path: &str) -> Result<bool, ApiFailure> {
        let reviews = Collection::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews");
        let asked = json!({
            "apiVersion": reviews.api_version(), "kind": reviews.kind(),
            "spec": { "user": who.username, "uid": who.uid, "groups": who.groups, "extra": who.extra,
                      "nonResourceAttributes": { "path": path, "verb": verb } },
        });
        let answer: AccessReview = self.ask("have access reviewed", &reviews, &asked).await?;
        Ok(answer.status.allowed)
    }
}
