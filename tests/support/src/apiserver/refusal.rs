//! Refusals of the server: `Status` objects, shaped as clients expect them.

use std::num::NonZeroU64;

use serde_json::{Value, json};

use super::resources::ServedResource;

/// A failed request.
#[derive(Clone, Debug)]
pub struct StatusError {
    /// HTTP status.
    pub code: u16,
    reason: String,
    message: String,
    details: Value,
    /// Seconds, for the header.
    pub retry_after: Option<NonZeroU64>,
    /// Lets a client go on with an inconsistent list.
    pub continue_token: Option<String>,
}

/// A complaint of the validation.
#[derive(Clone, Debug)]
pub(crate) struct FieldError {
    field: String,
    reason: &'static str,
    text: String,
}

impl FieldError {
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {value}: {why}"))
    }

    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let text = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self::new(field, "FieldValueRequired", text)
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {why}"))
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, "FieldValueDuplicate", format!("Duplicate value: {value}"))
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: usize, most: usize) -> Self {
        Self::new(field, "FieldValueTooMany", format!("Too many: {actual}: must have at most {most} items"))
    }

    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        Self::new(field, "FieldValueTooLong", format!("Too long: may not be more than {most} bytes"))
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let text = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Self::new(field, "FieldValueNotSupported", text)
    }

    pub(crate) fn wrong_type(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new(field, "FieldValueTypeInvalid", format!("Invalid value: {value}: {why}"))
    }

    /// Returns the complaint about a broken rule of a definition, which can name its reason.
    pub(crate) fn broken_rule(field: &str, reason: Option<&str>, value: &Value, why: &str) -> Self {
        let field = if field.is_empty() { "<nil>" } else { field };
        match reason {
            Some("FieldValueRequired") => Self::required(field, why),
            Some("FieldValueForbidden") => Self::forbidden(field, why),
            Some("FieldValueDuplicate") => Self::duplicate(field, value),
            // Of what has parts, the real one names the type only.
            _ if value.is_object() => Self::invalid(field, &json!("object"), why),
            _ if value.is_array() => Self::invalid(field, &json!("array"), why),
            _ => Self::invalid(field, value, why),
        }
    }

    fn new(field: impl Into<String>, reason: &'static str, text: String) -> Self {
        Self { field: field.into(), reason, text }
    }

    /// Returns the mistake, without the field.
    pub(crate) fn why(&self) -> &str {
        &self.text
    }

    /// Returns true if rules of a definition are not evaluated any more: they would read a missing field, or one that
    /// is too large.
    pub(crate) fn keeps_rules_away(&self) -> bool {
        [
            "FieldValueRequired",
            "FieldValueTooLong",
            "FieldValueTooMany",
            "FieldValueTypeInvalid",
            "FieldValueNotSupported",
        ]
        .contains(&self.reason)
    }

    fn line(&self) -> String {
        format!("{}: {}", self.field, self.text)
    }
}

impl StatusError {
    fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: Value::Null,
            retry_after: None,
            continue_token: None,
        }
    }

    fn about(mut self, resource: &ServedResource, group: &str, name: &str) -> Self {
        let mut details = json!({ "kind": resource.plural });
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        self.details = details;
        self
    }

    pub(crate) fn not_found(resource: &ServedResource, group: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(resource.plural, group));
        Self::new(404, "NotFound", message).about(resource, group, name)
    }

    /// Returns the refusal of a path at which nothing is served.
    pub(crate) fn no_such_path() -> Self {
        let mut refusal = Self::new(404, "NotFound", "the server could not find the requested resource");
        refusal.details = json!({});
        refusal
    }

    pub(crate) fn already_exists(resource: &ServedResource, group: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(resource.plural, group));
        Self::new(409, "AlreadyExists", message).about(resource, group, name)
    }

    pub(crate) fn conflict(resource: &ServedResource, group: &str, name: &str, why: &str) -> Self {
        let of = qualified(resource.plural, group);
        let message = format!("Operation cannot be fulfilled on {of} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(resource, group, name)
    }

    /// Fields that others own; each with the name of one who does.
    pub(crate) fn apply_conflict(owned: &[(String, String)]) -> Self {
        let causes = owned.iter().map(|(owner, field)| {
            json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {owner}"), "field": field })
        });
        let message = match owned {
            [(owner, field)] => format!("Apply failed with 1 conflict: conflict with {owner}: {field}"),
            _ => {
                let mut lines: Vec<String> = Vec::new();
                for (at, (owner, field)) in owned.iter().enumerate() {
                    if at == 0 || owned[at - 1].0 != *owner {
                        lines.push(format!("conflicts with {owner}:"));
                    }
                    lines.push(format!("- {field}"));
                }
                format!("Apply failed with {} conflicts: {}", owned.len(), lines.join("\n"))
            }
        };
        let mut refusal = Self::new(409, "Conflict", message);
        refusal.details = json!({ "causes": causes.collect::<Vec<_>>() });
        refusal
    }

    pub(crate) fn invalid(resource: &ServedResource, group: &str, name: &str, errors: &[FieldError]) -> Self {
        let lines: Vec<String> = errors.iter().map(FieldError::line).collect();
        let lines = if let [one] = lines.as_slice() { one.clone() } else { format!("[{}]", lines.join(", ")) };
        let message = format!("{} {name:?} is invalid: {lines}", qualified(resource.kind_name, group));
        let mut refusal = Self::new(422, "Invalid", message).about(resource, group, name);
        let causes =
            errors.iter().map(|error| json!({ "reason": error.reason, "message": error.text, "field": error.field }));
        refusal.details["kind"] = json!(resource.kind_name);
        refusal.details["causes"] = Value::Array(causes.collect());
        refusal
    }

    pub(crate) fn forbidden(resource: &ServedResource, group: &str, name: &str, why: &str) -> Self {
        let of = qualified(resource.plural, group);
        let of = if name.is_empty() { of } else { format!("{of} {name:?}") };
        Self::new(403, "Forbidden", format!("{of} is forbidden: {why}")).about(resource, group, name)
    }

    /// Returns the refusal by an admission policy.
    pub(crate) fn denied(resource: &ServedResource, group: &str, name: &str, why: &str) -> Self {
        let mut refusal = Self::forbidden(resource, group, name, why);
        (refusal.code, refusal.reason) = (422, "Invalid".to_owned());
        refusal.details["causes"] = json!([{ "message": why }]);
        refusal
    }

    /// A budget that does not let a pod go now.
    pub(crate) fn disruption(budget: &str, desired: i64, current: i64) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let why = format!("The disruption budget {budget} needs {desired} healthy pods and has {current} currently");
        let mut refusal = Self::new(429, "TooManyRequests", message);
        refusal.details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
        refusal
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// A version that the server does not know yet.
    pub(crate) fn too_large_version(given: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {given}, current: {current}");
        let mut refusal = Self::new(504, "Timeout", message);
        refusal.details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
        });
        refusal.retry_after = NonZeroU64::new(1);
        refusal
    }

    /// A watch that asks for what it cannot have.
    pub(crate) fn bad_watch(has_initial_events: bool) -> Self {
        let why = if has_initial_events {
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        } else {
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        };
        Self::bad_options(&format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"))
    }

    /// Parameters that cannot be.
    pub(crate) fn bad_options(message: &str) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// An applied object with a field that its kind does not have.
    pub(crate) fn not_typed(object: &Value, field: &str) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (metadata, version) = (&object["metadata"], text(&object["apiVersion"]));
        let (kind, namespace, name) = (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
        let of = format!("{namespace}/{name}; {version}, Kind={kind}");
        let why = format!("failed to create typed patch object ({of}): .{field}: field not declared in schema");
        Self::new(500, "", why)
    }

    /// A patch that cannot be applied.
    pub(crate) fn invalid_patch(message: &str) -> Self {
        Self::new(422, "Invalid", format!("the server rejected our request due to an error in our request: {message}"))
    }

    /// A member of a list that a strategic merge patch cannot find.
    pub(crate) fn missing_merge_key(message: &str) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// History that is gone.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    pub(crate) fn media_type(given: &str, accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted} (not {given})"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn method() -> Self {
        let mut refusal =
            Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        refusal.details = json!({});
        refusal
    }

    /// Returns a refusal for an error of the server itself.
    pub(crate) fn trouble_with(message: &str) -> Self {
        Self::new(500, "", message)
    }

    /// Returns the refusal of a server in trouble.
    pub(crate) fn trouble(code: u16, retry_after: Option<u64>) -> Self {
        let (reason, message) = match code {
            409 => (
                "Conflict",
                "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again",
            ),
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            500 => ("InternalError", "Internal error occurred: injected"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "The request did not complete within the allotted timeout"),
            _ => ("Unknown", "injected"),
        };
        Self { retry_after: retry_after.and_then(NonZeroU64::new), ..Self::new(code, reason, message) }
    }

    /// Returns the refusal as a `Status` object.
    pub fn status(&self) -> Value {
        let mut details = self.details.clone();
        if let Some(seconds) = self.retry_after {
            details = if details.is_null() { json!({}) } else { details };
            details["retryAfterSeconds"] = json!(seconds.get());
        }
        let metadata = self.continue_token.as_ref().map_or_else(|| json!({}), |token| json!({ "continue": token }));
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !details.is_null() {
            status["details"] = details;
        }
        if let Some(object) = status.as_object_mut().filter(|_| self.reason.is_empty()) {
            object.remove("reason");
        }
        status
    }
}

/// `name.group`, or the name alone for the core group.
pub(crate) fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}
