//! Objects of all resources, patches by their paths, and the rules that the real server enforces for claims and negotiations
//! (controller-made allocations of 1.26 to 1.31).

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Deref, DerefMut},
};

use hostler_api::classic::ClassicVersion;
use hostler_cluster::ObjectVersion;
use serde_json::{Map, Value, json};

use super::super::dialect::ClassicPatch;
use crate::testkit::{ApiError, Change, ModelCluster, ModelMeta, ModelObject, ModelServer, Part, Serves, over};

type ApiResult = Result<Value, ApiError>;

/// Resource, namespace and name.
pub(super) type Id = (String, String, String);

/// What watchers are told.
#[derive(Clone, Debug)]
pub(super) struct WatchEvent {
    pub(super) resource: String,
    pub(super) object: Value,
    pub(super) is_gone: bool,
}

/// An object of any resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonObject {
    resource: String,
    pub(super) json: Value,
}

impl ModelObject for JsonObject {
    type Key = Id;

    fn key(&self) -> Id {
        let meta = &self.json["metadata"];
        id(&self.resource, meta["namespace"].as_str().unwrap_or_default(), meta["name"].as_str().unwrap())
    }

    fn meta(&self) -> ModelMeta {
        let meta = &self.json["metadata"];
        ModelMeta {
            uid: meta["uid"].as_str().unwrap_or_default().to_owned(),
            version: meta["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            finalizers: finalizers(&self.json),
            is_deleting: !meta["deletionTimestamp"].is_null(),
            ..ModelMeta::default()
        }
    }

    fn set_meta(&mut self, meta: ModelMeta) {
        let is_deleting = !self.json["metadata"]["deletionTimestamp"].is_null();
        let json = &mut self.json["metadata"];
        (json["uid"], json["resourceVersion"]) = (json!(meta.uid), json!(meta.version));
        if meta.is_deleting && !is_deleting {
            json["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
    }

    /// The status endpoint changes nothing else: V2.
    fn restrict(&mut self, old: &Self, part: Part) {
        let fields: &[&str] = if part == Part::Status { &["metadata", "spec"] } else { &["status"] };
        fields.iter().for_each(|field| self.json[*field] = old.json[*field].clone());
        prune(&mut self.json);
    }

    fn is_same(&self, old: &Self) -> bool {
        let (mut old, mut new) = (old.json.clone(), self.json.clone());
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        prune(&mut old);
        old == new
    }
}

/// Objects of the server.
#[derive(Debug)]
pub(super) struct ClassicCluster {
    pub(super) version: ClassicVersion,
    /// Whether the gate for allocation by controllers is on; only 1.31 has it.
    pub(super) is_gate_on: bool,
    pub(super) objects: BTreeMap<Id, JsonObject>,
    /// Names of entries that an apply owns, by object.
    owned: BTreeMap<Id, BTreeSet<String>>,
}

impl ModelCluster for ClassicCluster {
    type Event = WatchEvent;
}

impl Serves<JsonObject> for ClassicCluster {
    fn objects(&mut self) -> &mut BTreeMap<Id, JsonObject> {
        &mut self.objects
    }

    fn admit(&self, old: Option<&JsonObject>, new: &mut JsonObject) -> Vec<String> {
        let is_claim = new.resource == "resourceclaims";
        let Some(old) = old else {
            if is_claim {
                new.json["status"] = json!({});
                if !self.is_gate_on {
                    new.json["spec"].as_object_mut().unwrap().remove("controller");
                }
            }
            return Vec::new();
        };
        if is_claim && !self.is_gate_on {
            drop_gated(&old.json, &mut new.json);
        }
        match &*new.resource {
            "resourceclaims" => claim_problems(self.version, &old.json, &new.json),
            "podschedulingcontexts" | "podschedulings" => context_problems(&new.json),
            _ => Vec::new(),
        }
    }

    fn changed(&mut self, change: Change<'_, JsonObject>) -> Vec<WatchEvent> {
        let (JsonObject { resource, json }, is_gone) = match change {
            Change::Put(object) => (object, false),
            Change::Gone(object) => {
                self.owned.remove(&object.key());
                (object, true)
            }
        };
        vec![WatchEvent { resource: resource.clone(), object: json.clone(), is_gone }]
    }
}

/// The server, by resources and paths.
#[derive(Debug)]
pub(super) struct Server(ModelServer<ClassicCluster>);

impl Deref for Server {
    type Target = ModelServer<ClassicCluster>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Server {
    pub(super) fn new(version: ClassicVersion) -> Self {
        let (objects, owned) = (BTreeMap::new(), BTreeMap::new());
        Self(ModelServer::new(ClassicCluster { version, is_gate_on: true, objects, owned }))
    }

    pub(super) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        Some(&self.objects.get(&id(resource, namespace, name))?.json)
    }

    pub(super) fn all(&self, resource: &str) -> impl Iterator<Item = &Value> {
        self.objects.values().filter(move |it| it.resource == resource).map(|it| &it.json)
    }

    pub(super) fn list(&self, resource: &str) -> Vec<Value> {
        self.all(resource).cloned().collect()
    }

    pub(super) fn create(&mut self, resource: &str, json: Value) -> Value {
        self.0.create(JsonObject { resource: resource.to_owned(), json }).unwrap().json
    }

    /// As a merge patch or an apply.
    pub(super) fn patch(&mut self, patch: &ClassicPatch) -> ApiResult {
        let id = parse(&patch.path);
        let JsonObject { json: old, .. } = self.find::<JsonObject>(&id, None)?;
        let wanted = |field: &str| {
            let wanted = patch.body["metadata"][field].as_str();
            wanted.or(old["metadata"][field].as_str()).unwrap_or_default().to_owned()
        };
        let version = over(&wanted("uid"), &wanted("resourceVersion"));
        self.find::<JsonObject>(&id, Some(&version))?;
        let new = if patch.is_apply { self.apply(&id, &old, &patch.body) } else { merged(old.clone(), &patch.body) };
        let new = if id.0 == "nodes" { owned_labels(&old, new, &patch.body) } else { new };
        self.replace(&id, Some(&version), patch.is_status, |object| *object = new)
    }

    /// Reads, changes and writes an object, as those do who have no other writer to fear here.
    pub(super) fn edit(
        &mut self,
        resource: &str,
        namespace: &str,
        name: &str,
        is_status: bool,
        change: impl FnOnce(&mut Value),
    ) -> ApiResult {
        self.replace(&id(resource, namespace, name), None, is_status, change)
    }

    pub(super) fn delete(&mut self, resource: &str, namespace: &str, name: &str) {
        drop(self.0.delete::<JsonObject>(&id(resource, namespace, name), None));
    }

    fn replace(
        &mut self,
        id: &Id,
        over: Option<&ObjectVersion>,
        is_status: bool,
        change: impl FnOnce(&mut Value),
    ) -> ApiResult {
        let part = if is_status { Part::Status } else { Part::Spec };
        Ok(self.0.update(id, over, part, |object: &mut JsonObject| change(&mut object.json))?.json)
    }

    /// Entries of `status.resourceClaims` are owned one by one.
    fn apply(&mut self, id: &Id, old: &Value, body: &Value) -> Value {
        let empty = Vec::new();
        let applied = body["status"]["resourceClaims"].as_array().unwrap_or(&empty);
        let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = applied.iter().map(name).collect();
        let before = self.owned.insert(id.clone(), names.clone()).unwrap_or_default();
        let kept = old["status"]["resourceClaims"].as_array().unwrap_or(&empty).iter();
        let kept = kept.filter(|entry| !names.contains(&name(entry)) && !before.contains(&name(entry)));
        let mut new = old.clone();
        new["status"]["resourceClaims"] = kept.chain(applied).cloned().collect();
        new
    }
}

pub(super) fn id(resource: &str, namespace: &str, name: &str) -> Id {
    (resource.to_owned(), namespace.to_owned(), name.to_owned())
}

/// What a patch changes of labels is the controller's from then on, and what it takes off is nobody's.
fn owned_labels(old: &Value, mut new: Value, patch: &Value) -> Value {
    let fields = &old["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"];
    let mut fields = fields.as_object().cloned().unwrap_or_default();
    for (key, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
        let field = format!("f:{key}");
        if value.is_null() {
            fields.remove(&field);
        } else if old["metadata"]["labels"][key] != *value {
            fields.insert(field, json!({}));
        }
    }
    let fields = json!({"f:metadata": {"f:labels": fields}});
    new["metadata"]["managedFields"] = json!([{"manager": "hostler-controller", "fieldsV1": fields}]);
    new
}

fn parse(path: &str) -> Id {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        [_, "api", "v1", resource, name] => id(resource, "", name),
        [_, "apis", _, _, "namespaces", namespace, resource, name] => id(resource, namespace, name),
        [_, "apis", _, _, resource, name] => id(resource, "", name),
        _ => panic!("no path of an object: {path}"),
    }
}

pub(super) fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// RFC 7386.
fn merged(old: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut new = match old {
        Value::Object(old) => old,
        _ => Map::new(),
    };
    for (name, value) in patch {
        if value.is_null() {
            new.remove(name);
        } else {
            let old = new.remove(name).unwrap_or_default();
            new.insert(name.clone(), merged(old, value));
        }
    }
    Value::Object(new)
}

/// What a server does not store: nothing, and false, and empty lists of a claim's status.
fn prune(object: &mut Value) {
    if let Some(status) = object["status"].as_object_mut() {
        status.retain(|_, value| {
            !value.is_null() && *value != json!(false) && *value != json!([]) && *value != json!("")
        });
    }
}

fn drop_gated(old: &Value, new: &mut Value) {
    if old["status"]["allocation"]["controller"].is_null()
        && let Some(allocation) = new["status"]["allocation"].as_object_mut()
    {
        allocation.remove("controller");
    }
    if old["status"]["deallocationRequested"].is_null() {
        new["status"].as_object_mut().unwrap().remove("deallocationRequested");
    }
}

/// V1 and V3 to V10.
fn claim_problems(version: ClassicVersion, old: &Value, new: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let mut forbid = |is_wrong: bool, what: &str| {
        if is_wrong {
            problems.push(what.to_owned());
        }
    };
    let is_deleting = !old["metadata"]["deletionTimestamp"].is_null();
    forbid(old["spec"] != new["spec"], "V1 spec: is immutable");
    let (was, is) = (&old["status"], &new["status"]);
    let uids = |status: &Value| -> Vec<String> {
        let list = status["reservedFor"].as_array().cloned().unwrap_or_default();
        list.iter().map(|it| it["uid"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let (old_uids, new_uids) = (uids(was), uids(is));
    let is_allocated = is["allocation"].is_object();
    let is_requested = is["deallocationRequested"] == true;
    forbid(!new_uids.is_empty() && !is_allocated, "V3 reservedFor: needs an allocation");
    let is_more = new_uids.iter().any(|uid| !old_uids.contains(uid));
    forbid(is_more && (is_deleting || is_requested), "V4 reservedFor: nobody new while it goes");
    forbid(
        was["allocation"].is_object() && is_allocated && was["allocation"] != is["allocation"],
        "V5 allocation: is immutable",
    );
    forbid(is_requested && !new_uids.is_empty(), "V6 deallocationRequested: somebody uses it");
    forbid(
        is_requested && was["deallocationRequested"] != true && !is_allocated,
        "V6 deallocationRequested: needs an allocation",
    );
    forbid(
        was["deallocationRequested"] == true && !is_requested && is_allocated,
        "V7 deallocationRequested: cannot be cancelled",
    );
    let distinct: BTreeSet<&String> = new_uids.iter().collect();
    forbid(distinct.len() != new_uids.len() || new_uids.iter().any(String::is_empty), "V8 reservedFor: uid");
    forbid(new_uids.len() > 32, "reservedFor: too many");
    if version == ClassicVersion::V1Alpha3 {
        forbid(is_allocated && !are_results_good(new), "V10 allocation.devices");
    } else {
        forbid(is_allocated && is["driverName"].is_null(), "V9 driverName: is needed");
        forbid(is["allocation"]["shareable"] != true && new_uids.len() > 1, "V9 reservedFor: it cannot be shared");
        let data =
            is["allocation"]["resourceHandles"][0]["data"].as_str().or(is["allocation"]["resourceHandle"].as_str());
        forbid(data.is_some_and(|data| data.len() > 16 * 1024), "allocation: the handle is too long");
    }
    problems
}

fn are_results_good(claim: &Value) -> bool {
    let empty = Vec::new();
    let requests = claim["spec"]["devices"]["requests"].as_array().unwrap_or(&empty);
    let names: BTreeSet<&str> = requests.iter().filter_map(|request| request["name"].as_str()).collect();
    let results = claim["status"]["allocation"]["devices"]["results"].as_array().unwrap_or(&empty);
    let known = ["request", "driver", "pool", "device"];
    results.iter().all(|result| {
        let has_all = known.iter().all(|field| result[field].as_str().is_some_and(|text| !text.is_empty()));
        let has_only = result.as_object().unwrap().keys().all(|field| known.contains(&&**field));
        has_all && has_only && names.contains(result["request"].as_str().unwrap())
    })
}

/// V11.
fn context_problems(new: &Value) -> Vec<String> {
    let is_set = |list: &Value| {
        let empty = Vec::new();
        let list = list.as_array().unwrap_or(&empty);
        let distinct: BTreeSet<String> = list.iter().map(Value::to_string).collect();
        list.len() <= 128 && distinct.len() == list.len()
    };
    let empty = Vec::new();
    let entries = new["status"]["resourceClaims"].as_array().unwrap_or(&empty);
    let names: Value = entries.iter().map(|entry| entry["name"].clone()).collect();
    let lists =
        [&new["spec"]["potentialNodes"], &names].into_iter().chain(entries.iter().map(|it| &it["unsuitableNodes"]));
    lists.filter(|list| !is_set(list)).map(|list| format!("V11: no set, or too long: {list}")).collect()
}
