//! Lists: consistent over all their pages, or 410.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    refusal::StatusError,
    rules::ServerSettings,
    store::{ObjectKey, ObjectStore},
    verbs::ApiRequest,
};

/// The place where a list continues.
struct ContinueToken {
    rv: u64,
    namespace: String,
    name: String,
}

impl ContinueToken {
    fn parse(token: &str) -> Option<Self> {
        let bytes: Option<Vec<u8>> =
            (0..token.len()).step_by(2).map(|at| u8::from_str_radix(token.get(at..at + 2)?, 16).ok()).collect();
        let text = String::from_utf8(bytes?).ok()?;
        let (rv, key) = text.split_once(' ')?;
        let (namespace, name) = key.split_once('/')?;
        Some(Self { rv: rv.parse().ok()?, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    fn token(rv: u64, key: &ObjectKey) -> String {
        format!("{rv} {}/{}", key.namespace, key.name).bytes().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(crate) fn list(store: &ObjectStore, settings: &ServerSettings, call: &ApiRequest) -> Result<Value, StatusError> {
    let selector = call.selector(settings)?;
    let after = match call.parameter("continue") {
        "" => None,
        token => Some(
            ContinueToken::parse(token)
                .ok_or_else(|| StatusError::bad_request("continue key is not valid: illegal"))?,
        ),
    };
    let rv = match &after {
        Some(after) => after.rv,
        None => state_for(store, call)?,
    };
    let objects = store.objects_at(rv).map_err(|_| too_old(store, after.as_ref()))?;
    let target = &call.target;
    let wanted = |key: &ObjectKey| {
        key.kind == target.resource.kind
            && target.namespace.as_ref().is_none_or(|namespace| key.namespace == *namespace)
    };
    let behind = |key: &ObjectKey| {
        after.as_ref().is_none_or(|after| (&key.namespace, &key.name) > (&after.namespace, &after.name))
    };
    let mut chosen: Vec<(&ObjectKey, &Arc<Value>)> =
        objects.iter().filter(|(key, object)| wanted(key) && behind(key) && selector.matches(object)).collect();
    let mut metadata = json!({ "resourceVersion": rv.to_string() });
    // A list "from anywhere" comes from the cache, which knows no pages.
    let limit =
        call.parameter("limit").parse().ok().filter(|limit| *limit > 0 && call.parameter("resourceVersion") != "0");
    if let Some(limit) = limit.filter(|limit| *limit < chosen.len()) {
        if selector.is_empty() {
            metadata["remainingItemCount"] = json!(chosen.len() - limit);
        }
        chosen.truncate(limit);
        metadata["continue"] = json!(chosen.last().map(|(key, _)| ContinueToken::token(rv, key)));
    }
    Ok(of(call, chosen.into_iter().map(|(_, object)| object), metadata))
}

/// The state that the request asks for: the newest, unless it wants an exact one.
fn state_for(store: &ObjectStore, call: &ApiRequest) -> Result<u64, StatusError> {
    let given = match call.parameter("resourceVersion") {
        "" | "0" => return Ok(store.rv()),
        text => text.parse::<u64>().map_err(|_| {
            StatusError::bad_request(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })?,
    };
    if given > store.rv() {
        return Err(StatusError::too_large_version(given, store.rv()));
    }
    Ok(if call.parameter("resourceVersionMatch") == "Exact" { given } else { store.rv() })
}

fn too_old(store: &ObjectStore, after: Option<&ContinueToken>) -> StatusError {
    match after {
        Some(after) => {
            let mut refusal = StatusError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list.",
            );
            let key = ObjectKey {
                kind: super::resources::ObjectKind::Namespace,
                namespace: after.namespace.clone(),
                name: after.name.clone(),
            };
            refusal.continue_token = Some(ContinueToken::token(store.rv(), &key));
            refusal
        }
        None => StatusError::expired("The provided resource version is too old"),
    }
}

/// A list of objects. Items of built-in types go without `kind` and `apiVersion`.
pub(crate) fn of<'a>(call: &ApiRequest, objects: impl Iterator<Item = &'a Arc<Value>>, metadata: Value) -> Value {
    let target = &call.target;
    let items = objects.map(|object| {
        let mut item = super::convert::from_stored(target.api, target.resource, object);
        if let Some(item) = item.as_object_mut().filter(|_| target.resource.custom.is_none()) {
            item.remove("kind");
            item.remove("apiVersion");
        }
        item
    });
    json!({
        "kind": format!("{}List", target.resource.kind_name), "apiVersion": target.api.api_version(),
        "metadata": metadata, "items": items.collect::<Vec<_>>(),
    })
}
