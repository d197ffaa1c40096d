//! Reviews, which are posted as objects and never stored: the user of a token, and the rights of a user or of the
//! client.

use serde_json::{Value, json};

use super::{
    auth::ApiUser, refusal::StatusError, resources::ObjectKind, schema, state::ServerState, verbs::ApiRequest,
};

/// Returns the answer to a review; `None` for objects that are stored.
pub(crate) fn answer(
    state: &ServerState,
    call: &ApiRequest,
    body: impl FnOnce() -> Result<Value, StatusError>,
) -> Option<Result<Value, StatusError>> {
    let status: fn(&ServerState, &ApiUser, &Value) -> Value = match call.target.resource.kind {
        ObjectKind::TokenReview => whose,
        ObjectKind::SubjectAccessReview => allowed,
        ObjectKind::SelfSubjectAccessReview => own,
        _ => return None,
    };
    // A question cannot be read, changed or deleted.
    if call.verb != "create" {
        return Some(Err(StatusError::method()));
    }
    let question = body().and_then(|question| schema::decode(call.target.resource, &question));
    Some(question.map(|mut question| {
        question["status"] = status(state, &call.user, &question["spec"]);
        question
    }))
}

fn whose(state: &ServerState, _: &ApiUser, spec: &Value) -> Value {
    let token = spec["token"].as_str().unwrap_or_default();
    match state.users.get(token) {
        Some(user) => json!({ "authenticated": true, "user": {
            "username": user.name, "uid": format!("uid-of-{}", user.name), "groups": ["system:authenticated"],
            "extra": { "authentication.kubernetes.io/credential-id": ["JTI=1"] },
        } }),
        // As the real one: in words, beside an answer that is a no.
        None => json!({ "user": {}, "error": "[invalid bearer token, token lookup failed]" }),
    }
}

/// Returns the decision about a user. Only the name counts here: no user has a role by a group.
fn allowed(state: &ServerState, _: &ApiUser, spec: &Value) -> Value {
    let user = state.users.values().find(|user| spec["user"] == user.name.as_str());
    verdict(user.is_some_and(|user| may(user, spec)))
}

/// Returns the decision about the client itself.
fn own(_: &ServerState, asker: &ApiUser, spec: &Value) -> Value {
    verdict(may(asker, spec))
}

fn verdict(allowed: bool) -> Value {
    json!({ "allowed": allowed, "reason": if allowed { "RBAC: allowed" } else { "" } })
}

fn may(user: &ApiUser, spec: &Value) -> bool {
    match &spec["resourceAttributes"] {
        Value::Null => may_path(user, &spec["nonResourceAttributes"]),
        asked => may_object(user, asked),
    }
}

fn may_path(user: &ApiUser, asked: &Value) -> bool {
    user.may_path(text(asked, "verb"), text(asked, "path"))
}

fn may_object(user: &ApiUser, asked: &Value) -> bool {
    let resource = match (text(asked, "resource"), text(asked, "subresource")) {
        (resource, "") => resource.to_owned(),
        (resource, sub) => format!("{resource}/{sub}"),
    };
    let namespace = asked["namespace"].as_str().filter(|name| !name.is_empty());
    user.may_in(namespace, text(asked, "verb"), text(asked, "group"), &resource, text(asked, "name"))
}

fn text<'a>(asked: &'a Value, field: &str) -> &'a str {
    asked[field].as_str().unwrap_or_default()
}
