//! Verbs on objects: get, list, create, update, patch, delete. Each is one step under the lock of the state.

mod deletion;
mod eviction;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    apply,
    auth::ApiUser,
    convert, features, fields, list, opaque, patch, protobuf,
    refusal::StatusError,
    resources::{ObjectKind, RequestTarget, ServedResource},
    reviews,
    rules::{self, ServerSettings},
    selectors::ObjectSelector,
    shape::Shape,
    state::ServerState,
    store::{ObjectKey, key_of, meta},
    strategic, strategy,
};

/// etcd's.
const MOST_BYTES_OF_AN_OBJECT: usize = 1_536 * 1024;
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Patch types of custom kinds.
const PATCHES: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
const STALE: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// A request for objects.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    pub target: RequestTarget,
    pub query: BTreeMap<String, String>,
    pub content_type: String,
    pub body: Vec<u8>,
    pub user: ApiUser,
    pub user_agent: String,
}

impl ApiRequest {
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(crate) fn selector(&self, settings: &ServerSettings) -> Result<ObjectSelector, StatusError> {
        let (labels, fields) = (self.parameter("labelSelector"), self.parameter("fieldSelector"));
        ObjectSelector::parse(settings.release, self.target.resource, labels, fields)
    }

    /// Returns the manager of the fields that this request writes.
    pub(crate) fn manager(&self) -> String {
        match self.parameter("fieldManager") {
            "" => self.user_agent.split('/').next().unwrap_or_default().to_owned(),
            manager => manager.to_owned(),
        }
    }

    fn key(&self) -> ObjectKey {
        let name = self.target.name.as_deref().unwrap_or_default();
        ObjectKey::new(self.target.resource.kind, self.target.namespace(), name)
    }

    pub(crate) fn body(&self) -> Result<Value, StatusError> {
        if self.content_type.contains("yaml") {
            let text = std::str::from_utf8(&self.body).map_err(|error| StatusError::bad_request(error.to_string()))?;
            return serde_saphyr::from_str(text).map_err(|error| StatusError::bad_request(error.to_string()));
        }
        let is_claim = matches!(self.target.resource.kind, ObjectKind::ResourceClaim | ObjectKind::ClassicClaim);
        if self.content_type == protobuf::MEDIA_TYPE && is_claim {
            return protobuf::decode(&self.body);
        }
        if !self.content_type.contains("json") && !self.content_type.is_empty() {
            return Err(StatusError::media_type(&self.content_type, "application/json, application/yaml"));
        }
        let body = match is_claim {
            true => opaque::parse(&String::from_utf8_lossy(&self.body)),
            false => serde_json::from_slice(&self.body),
        };
        body.map_err(|error| StatusError::bad_request(error.to_string()))
    }

    fn not_found(&self) -> StatusError {
        StatusError::not_found(self.target.resource, self.target.api.group, &self.key().name)
    }

    fn conflict(&self, name: &str, why: &str) -> StatusError {
        StatusError::conflict(self.target.resource, self.target.api.group, name, why)
    }

    fn shown(&self, object: &Value) -> Value {
        convert::from_stored(self.target.api, self.target.resource, object)
    }
}

/// Everything but `watch`: the HTTP status, and the object.
pub(crate) fn answer(
    state: &mut ServerState,
    settings: &ServerSettings,
    call: &ApiRequest,
) -> Result<(u16, Value), StatusError> {
    if let Some(answer) = reviews::answer(state, call, || call.body()) {
        return answer.map(|question| (201, question));
    }
    match call.verb {
        "get" => {
            let object = state.store.get(&call.key()).ok_or_else(|| call.not_found())?;
            Ok((200, call.shown(&object)))
        }
        "list" => Ok((200, list::list(&state.store, settings, call)?)),
        "create" if call.target.subresource.as_deref() == Some("eviction") => {
            eviction::evict(state, call).map(|status| (201, status))
        }
        "create" if call.target.subresource.is_some() => deletion::bind(state, call).map(|status| (201, status)),
        "create" => create(state, settings, call, &call.body()?).map(|object| (201, call.shown(&object))),
        "update" => update(state, settings, call).map(|object| (200, call.shown(&object))),
        "patch" => {
            let exists = state.store.get(&call.key()).is_some();
            let object = patched(state, settings, call)?;
            Ok((if exists { 200 } else { 201 }, call.shown(&object)))
        }
        "delete" => deletion::delete(state, call).map(|object| (200, call.shown(&object))),
        "deletecollection" => deletion::delete_collection(state, settings, call).map(|list| (200, list)),
        _ => Err(StatusError::method()),
    }
}

fn create(
    state: &mut ServerState,
    settings: &ServerSettings,
    call: &ApiRequest,
    body: &Value,
) -> Result<Arc<Value>, StatusError> {
    let object = incoming(settings, call, body)?;
    create_stored(state, settings, call, object, false)
}

/// Stores a new object. An apply has set the ownership of the fields already.
fn create_stored(
    state: &mut ServerState,
    settings: &ServerSettings,
    call: &ApiRequest,
    object: Value,
    applied: bool,
) -> Result<Arc<Value>, StatusError> {
    let target = &call.target;
    if target.resource.namespaced {
        let namespace = ObjectKey::new(ObjectKind::Namespace, "", target.namespace());
        let Some(namespace) = state.store.get(&namespace) else {
            let of = ServedResource::of(ObjectKind::Namespace);
            return Err(StatusError::not_found(of, "", target.namespace()));
        };
        if !meta(&namespace, "deletionTimestamp").is_empty() {
            let why = format!(
                "unable to create new content in namespace {} because it is being terminated",
                target.namespace()
            );
            return Err(StatusError::forbidden(target.resource, target.api.group, meta(&object, "name"), &why));
        }
    }
    let mut object = strategy::created(target, object)?;
    features::settle(settings, target.resource, None, &mut object);
    let name = meta(&object, "name").to_owned();
    rules::check(settings, call, None, &object)?;
    if !applied {
        fields::written(call, None, &mut object);
    }
    check_size(&object)?;
    state.admit(call, "CREATE", &name, Some(&object), None)?;
    let key = key_of(target.resource.kind, &object);
    if state.store.get(&key).is_some() {
        return Err(StatusError::already_exists(target.resource, target.api.group, &name));
    }
    Ok(stored(state, call, key, object))
}

/// The object of a request as it would be stored; metadata is checked against the path.
fn incoming(settings: &ServerSettings, call: &ApiRequest, body: &Value) -> Result<Value, StatusError> {
    let target = &call.target;
    let wanted = target.api.api_version();
    for (field, wanted) in [("apiVersion", wanted.as_str()), ("kind", target.resource.kind_name)] {
        let given = body[field].as_str().unwrap_or_default();
        if !given.is_empty() && given != wanted {
            return Err(StatusError::bad_request(format!(
                "the {field} in the data ({given}) does not match the expected {field} ({wanted})"
            )));
        }
    }
    let object = convert::to_stored(target.api, target.resource, body.clone());
    check_fields(call, &object)?;
    let mut decoded = rules::decode(settings, target.resource, &object)?;
    let namespace = meta(&decoded, "namespace").to_owned();
    if !target.resource.namespaced {
        decoded["metadata"].as_object_mut().expect("decoded").remove("namespace");
    } else if namespace.is_empty() {
        decoded["metadata"]["namespace"] = json!(target.namespace());
    } else if namespace != target.namespace() {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let name = meta(&decoded, "name");
    match &target.name {
        Some(wanted) if name != wanted => Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        ))),
        _ => Ok(decoded),
    }
}

/// Refuses fields that would be pruned, if the request asks for strict validation.
fn check_fields(call: &ApiRequest, object: &Value) -> Result<(), StatusError> {
    let Some(custom) = call.target.resource.custom.filter(|_| call.parameter("fieldValidation") == "Strict") else {
        return Ok(());
    };
    let unknown: Vec<String> =
        custom.unknown_fields(object).iter().map(|path| format!("unknown field {path:?}")).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(StatusError::bad_request(format!("strict decoding error: {}", unknown.join(", "))))
}

fn update(state: &mut ServerState, settings: &ServerSettings, call: &ApiRequest) -> Result<Arc<Value>, StatusError> {
    let new = incoming(settings, call, &call.body()?)?;
    let old = state.store.get(&call.key()).ok_or_else(|| call.not_found())?;
    let (given, is) = (meta(&new, "uid"), meta(&old, "uid"));
    if !given.is_empty() && given != is {
        let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {is}");
        return Err(call.conflict(meta(&old, "name"), &why));
    }
    replace(state, settings, call, &old, new, false)
}

/// Writes the result of an update or a patch. An apply has set the ownership of the fields already.
fn replace(
    state: &mut ServerState,
    settings: &ServerSettings,
    call: &ApiRequest,
    old: &Arc<Value>,
    new: Value,
    applied: bool,
) -> Result<Arc<Value>, StatusError> {
    let target = &call.target;
    let name = meta(old, "name").to_owned();
    let rv = meta(&new, "resourceVersion");
    if !rv.is_empty() && rv != meta(old, "resourceVersion") {
        return Err(call.conflict(&name, STALE));
    }
    rules::check_metadata(call, old, &new)?;
    let mut new = strategy::updated(target, old, new);
    features::settle(settings, target.resource, Some(old), &mut new);
    rules::check(settings, call, Some(old), &new)?;
    if !applied {
        fields::written(call, Some(old), &mut new);
    }
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
    if **old == new || fields::differ_in_times_only(old, &new) {
        return Ok(Arc::clone(old));
    }
    check_size(&new)?;
    state.admit(call, "UPDATE", &name, Some(&new), Some(old))?;
    let key = call.key();
    if deletion::is_due(&new) {
        if call.parameter("dryRun").is_empty() {
            state.store.remove(&key);
        }
        return Ok(Arc::new(new));
    }
    Ok(stored(state, call, key, new))
}

fn patched(state: &mut ServerState, settings: &ServerSettings, call: &ApiRequest) -> Result<Arc<Value>, StatusError> {
    let target = &call.target;
    let old = state.store.get(&call.key());
    if call.content_type.starts_with("application/apply-patch") {
        return applied(state, settings, call, old);
    }
    let old = old.ok_or_else(|| call.not_found())?;
    let mut shown = opaque::compacted(&call.shown(&old));
    match call.content_type.split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => patch::merge(&mut shown, &call.body()?),
        STRATEGIC => {
            if target.resource.custom.is_some() {
                return Err(StatusError::media_type(STRATEGIC, PATCHES));
            }
            shown = opaque::sorted(&shown);
            strategic::merge(&Shape::of(target.resource), &mut shown, &call.body()?)?;
        }
        "application/json-patch+json" => patch::operations(&mut shown, &call.body()?)?,
        other => return Err(StatusError::media_type(other, PATCHES)),
    }
    let new = incoming(settings, call, &shown)?;
    replace(state, settings, call, &old, new, false)
}

/// Carries out an apply: the configuration is merged as it was written, and then read as its kind.
fn applied(
    state: &mut ServerState,
    settings: &ServerSettings,
    call: &ApiRequest,
    old: Option<Arc<Value>>,
) -> Result<Arc<Value>, StatusError> {
    let target = &call.target;
    apply::check_parameters(call)?;
    let body = call.body()?;
    // It is refused here if it cannot be read.
    incoming(settings, call, &body)?;
    let mut config = convert::to_stored(target.api, target.resource, body);
    if target.resource.namespaced {
        config["metadata"]["namespace"] = json!(target.namespace());
    }
    let unknown = target.resource.custom.map(|custom| custom.unknown_fields(&config)).unwrap_or_default();
    if let Some(unknown) = unknown.first() {
        return Err(StatusError::not_typed(&call.shown(&config), unknown));
    }
    match old {
        Some(old) => {
            let new = opaque::sorted(&apply::apply(call, &old, &config)?);
            let new = rules::decode(settings, target.resource, &new)?;
            replace(state, settings, call, &old, new, true)
        }
        None if target.subresource.is_some() => Err(call.not_found()),
        None => {
            let new = apply::apply(call, &json!({ "metadata": {} }), &config)?;
            create_stored(state, settings, call, rules::decode(settings, target.resource, &new)?, true)
        }
    }
}

fn check_size(object: &Value) -> Result<(), StatusError> {
    if object.to_string().len() > MOST_BYTES_OF_AN_OBJECT {
        return Err(StatusError::too_large(MOST_BYTES_OF_AN_OBJECT));
    }
    Ok(())
}

fn stored(state: &mut ServerState, call: &ApiRequest, key: ObjectKey, object: Value) -> Arc<Value> {
    if call.parameter("dryRun").is_empty() { state.store.put(key, object) } else { Arc::new(object) }
}
