//! Requests of tests and of the controllers of a test: without the wire, authorization and faults, and otherwise like
//! any other request.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    ApiServer,
    auth::ApiUser,
    refusal::StatusError,
    resources::{Catalog, RequestTarget},
    state::{LoggedRequest, ServerState},
    store::{ObjectKey, meta},
    verbs::{self, ApiRequest},
    webhooks,
};
use crate::control_plane::{ControllerCommand, ControllerWrite};

/// Limit of the wait for a state; far above what any state takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The body of a request.
pub(super) struct DirectBody {
    content_type: &'static str,
    query: &'static [(&'static str, &'static str)],
    text: String,
}

impl DirectBody {
    fn of(object: &Value) -> Self {
        Self { content_type: "application/json", query: &[], text: object.to_string() }
    }

    fn of_type(content_type: &'static str, object: &Value) -> Self {
        Self { content_type, ..Self::of(object) }
    }
}

impl ApiServer {
    /// Creates an object, and its namespace. As it is stored.
    pub fn create(&self, object: Value) -> Value {
        self.try_create(object).unwrap_or_else(|refusal| panic!("{}", refusal.status()))
    }

    /// Creates all objects of a YAML text, in its order: definitions of kinds among them can be used at once.
    pub fn create_yaml(&self, text: &str) -> Vec<Value> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("a YAML text");
        documents.into_iter().filter(|document| !document.is_null()).map(|document| self.create(document)).collect()
    }

    /// Does the same as [`create`](Self::create), which may fail.
    pub fn try_create(&self, object: Value) -> Result<Value, StatusError> {
        let namespace = meta(&object, "namespace").to_owned();
        if !namespace.is_empty() && self.get("namespaces", &namespace).is_none() {
            self.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
        }
        self.ask("create", None, &object)
    }

    /// Creates an object of a text in JSON, whose spaces the server may keep.
    pub fn create_json(&self, text: &str) -> Value {
        let object = serde_json::from_str(text).expect("a text in JSON");
        let body = DirectBody { text: text.to_owned(), ..DirectBody::of(&Value::Null) };
        self.call("test", "create", None, &object, body).unwrap_or_else(|refusal| panic!("{}", refusal.status()))
    }

    /// Merges something into an object, which may fail.
    pub fn try_merge(&self, object: &Value, patch: &Value) -> Result<Value, StatusError> {
        let body = DirectBody::of_type("application/merge-patch+json", patch);
        self.call("test", "patch", None, object, body)
    }

    /// Replaces an object; the status of it stays.
    pub fn update(&self, object: Value) -> Value {
        self.ask("update", None, &object).unwrap_or_else(|refusal| panic!("{}", refusal.status()))
    }

    /// Replaces the status of an object; `path` is `name`, or `namespace/name`.
    pub fn set_status(&self, plural: &str, path: &str, status: Value) -> Value {
        let mut object = self.get(plural, path).unwrap_or_else(|| panic!("there is no {plural} {path}"));
        object["status"] = status;
        self.ask("update", Some("status"), &object).unwrap_or_else(|refusal| panic!("{}", refusal.status()))
    }

    /// An object as it is stored, in `v1`; `path` is `name`, or `namespace/name`.
    pub fn get(&self, plural: &str, path: &str) -> Option<Value> {
        self.shared
            .read(|state| state.store.get(&key(&state.catalog, plural, path)))
            .map(|object| Value::clone(&object))
    }

    /// All objects of a resource.
    pub fn list(&self, plural: &str) -> Vec<Value> {
        self.shared.read(|state| state.list(plural))
    }

    /// Deletes an object at once, whatever holds it. Whether there was one.
    pub fn delete(&self, plural: &str, path: &str) -> bool {
        self.shared.write(|state| state.store.remove(&key(&state.catalog, plural, path))).is_some()
    }

    /// Changes an object, past all rules.
    pub fn edit(&self, plural: &str, path: &str, change: impl FnOnce(&mut Value)) -> Value {
        self.shared.write(|state| {
            let key = key(&state.catalog, plural, path);
            let object = state.store.get(&key).unwrap_or_else(|| panic!("there is no {plural} {path}"));
            let mut object = Value::clone(&object);
            change(&mut object);
            Value::clone(&state.store.put(key, object))
        })
    }

    fn ask(&self, verb: &'static str, subresource: Option<&str>, object: &Value) -> Result<Value, StatusError> {
        self.call("test", verb, subresource, object, DirectBody::of(object))
    }

    /// Makes a request as a user who may do everything; `body` is about `object`.
    pub(super) fn call(
        &self,
        user_agent: &str,
        verb: &'static str,
        subresource: Option<&str>,
        object: &Value,
        body: DirectBody,
    ) -> Result<Value, StatusError> {
        let named = |field: &str| object[field].as_str().unwrap_or_else(|| panic!("an object has {field}"));
        let (version, kind) = (named("apiVersion"), named("kind"));
        let served = self.shared.read(|state| state.catalog.of_object(version, kind));
        let (api, resource) = served.unwrap_or_else(|| panic!("{version} {kind} is not served"));
        let text = |field| Some(meta(object, field).to_owned()).filter(|text| !text.is_empty());
        let target = RequestTarget {
            api,
            resource,
            namespace: text("namespace").or_else(|| resource.namespaced.then(|| "default".to_owned())),
            name: text("name").filter(|_| verb != "create" || subresource.is_some()),
            subresource: subresource.map(str::to_owned),
        };
        let call = ApiRequest {
            verb,
            target,
            query: body.query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            content_type: body.content_type.to_owned(),
            body: body.text.into_bytes(),
            user: ApiUser::new(user_agent),
            user_agent: user_agent.to_owned(),
        };
        let shared = &self.shared;
        let call = webhooks::mutated(shared, call)?;
        shared.write(|state| verbs::answer(state, &shared.settings, &call)).map(|(_, object)| object)
    }

    /// Waits until the state is as wanted; `look` says so by returning something.
    pub async fn until<T>(&self, what: &str, look: impl Fn(&ApiServerView<'_>) -> Option<T>) -> T {
        let mut changed = self.shared.changed();
        let wait = async {
            loop {
                changed.mark_unchanged();
                if let Some(found) = self.shared.read(|state| look(&ApiServerView(state))) {
                    return found;
                }
                changed.changed().await.expect("the server is there");
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited in vain until {what}"))
    }

    /// Reads the state, which does not change meanwhile.
    pub fn look<T>(&self, look: impl FnOnce(&ApiServerView<'_>) -> T) -> T {
        self.shared.read(|state| look(&ApiServerView(state)))
    }

    /// Returns a channel that tells of changes, and of answered requests.
    pub(crate) fn changes(&self) -> watch::Receiver<(u64, usize)> {
        self.shared.changed()
    }

    /// Writes what a controller wants.
    pub(crate) fn carry_out(&self, command: &ControllerCommand) -> Result<Value, StatusError> {
        let who = command.who;
        match &command.write {
            ControllerWrite::Create(object) => self.call(who, "create", None, object, DirectBody::of(object)),
            ControllerWrite::Update(object) => self.call(who, "update", None, object, DirectBody::of(object)),
            ControllerWrite::UpdateStatus(object) => {
                self.call(who, "update", Some("status"), object, DirectBody::of(object))
            }
            ControllerWrite::ApplyStatus(object) => {
                let body = DirectBody::of_type("application/apply-patch+yaml", object);
                let query = &[("fieldManager", "ResourceClaimController"), ("force", "true")];
                self.call(who, "patch", Some("status"), object, DirectBody { query, ..body })
            }
            ControllerWrite::PatchStatus(object) => {
                let body = DirectBody::of_type("application/strategic-merge-patch+json", object);
                self.call(who, "patch", Some("status"), object, body)
            }
            ControllerWrite::Delete { object, options } => {
                self.call(who, "delete", None, object, DirectBody::of(options))
            }
            ControllerWrite::Bind { pod, node } => {
                let binding = json!({ "target": { "kind": "Node", "name": node } });
                self.call(who, "create", Some("binding"), pod, DirectBody::of(&binding))
            }
        }
    }
}

/// The state of the server, held still.
#[derive(Debug)]
pub struct ApiServerView<'a>(&'a ServerState);

impl ApiServerView<'_> {
    /// Does the same as [`ApiServer::get`].
    pub fn get(&self, plural: &str, path: &str) -> Option<Value> {
        self.0.store.get(&key(&self.0.catalog, plural, path)).map(|object| Value::clone(&object))
    }

    /// Does the same as [`ApiServer::list`].
    pub fn list(&self, plural: &str) -> Vec<Value> {
        self.0.list(plural)
    }

    /// All objects of all kinds.
    pub fn all(&self) -> Vec<Value> {
        self.0.store.objects().values().map(|object| Value::clone(object)).collect()
    }

    /// An object by the name of its kind; the outer `None`: there is no such kind.
    pub fn find(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Option<Value>> {
        let (_, resource) = self.0.catalog.of_object(api_version, kind)?;
        let namespace = if resource.namespaced { namespace } else { "" };
        let key = ObjectKey::new(resource.kind, namespace, name);
        Some(self.0.store.get(&key).map(|object| Value::clone(&object)))
    }

    /// Does the same as [`ApiServer::log`].
    pub fn log(&self) -> &[LoggedRequest] {
        &self.0.log
    }
}

/// `name`, or `namespace/name`; without a namespace it is `default`.
fn key(catalog: &Catalog, plural: &str, path: &str) -> ObjectKey {
    let resource = catalog.named(plural);
    match path.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(resource.kind, namespace, name),
        None => ObjectKey::new(resource.kind, if resource.namespaced { "default" } else { "" }, path),
    }
}
