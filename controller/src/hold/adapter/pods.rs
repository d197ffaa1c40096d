//! Pods, PriorityClasses and PodDisruptionBudgets: their fields that count here, and the calls about them.

use std::collections::BTreeMap;

use hostler_api::{
    Chain, ObjectKey,
    provisioning::CONSUME_ANNOTATIONS,
    reservation::{LabelSelector, OwnerController, PRE_ALLOCATABLE_PRIORITY, RESERVATION_ALLOCATED},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use hostler_reconcile::WriteOutcome;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::json;

use crate::hold::{OwnerPod, PodBudget, PodWrite, PriorityClasses};

/// Advice where the role does not allow a call with which the controller makes room.
const RIGHT: &str = "give the controller the role of deploy/holds/evictions";

/// Key under which the server's refusals of evictions are remembered.
const EVICTIONS: &str = "pods/eviction";

/// Text in the server's answer when a role does not allow an eviction.
const LACKS_RIGHT: &str = "cannot create resource";

#[derive(Deserialize)]
struct SeenPod {
    metadata: SeenPodMeta,
    #[serde(default)]
    spec: SeenPodSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenPodMeta {
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<PodOwner>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenPodSpec {
    node_name: String,
    priority: i32,
}

/// An owner of a pod.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodOwner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

/// A page of a list.
#[derive(Deserialize)]
struct PodListPage<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenClass {
    metadata: SeenClassMeta,
    #[serde(default)]
    value: i32,
    #[serde(default)]
    global_default: bool,
}

#[derive(Deserialize)]
struct SeenClassMeta {
    name: String,
}

#[derive(Deserialize)]
struct SeenBudget {
    metadata: SeenBudgetMeta,
    #[serde(default)]
    spec: SeenBudgetSpec,
    #[serde(default)]
    status: SeenBudgetStatus,
}

#[derive(Deserialize)]
struct SeenBudgetMeta {
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
struct SeenBudgetSpec {
    selector: Option<LabelSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenBudgetStatus {
    disruptions_allowed: i64,
    disrupted_pods: BTreeMap<String, IgnoredAny>,
}

/// The owner that makes pods like this one anew. Its namespace is the pod's.
pub(crate) fn controller_of(owners: Vec<PodOwner>) -> Option<OwnerController> {
    owners.into_iter().find(|owner| owner.controller).map(|owner| OwnerController {
        api_version: owner.api_version,
        kind: owner.kind,
        namespace: String::new(),
        name: owner.name,
        uid: owner.uid,
    })
}

impl SeenPod {
    fn owner(self) -> OwnerPod {
        let Self { metadata, spec } = self;
        OwnerPod {
            uid: metadata.uid,
            labels: metadata.labels,
            // Other annotations can be long, and there are many pods.
            annotations: metadata.annotations.into_iter().filter(|(key, _)| is_read(key)).collect(),
            controller: controller_of(metadata.owner_references),
            node: spec.node_name,
            priority: spec.priority,
            is_deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

fn is_read(annotation: &str) -> bool {
    [RESERVATION_ALLOCATED, PRE_ALLOCATABLE_PRIORITY].contains(&annotation) || CONSUME_ANNOTATIONS.contains(&annotation)
}

fn pods(key: &ObjectKey) -> Collection {
    Collection::core("Pod", "pods").of(&key.namespace)
}

/// Reads a pod; `None` if there is none.
pub(super) async fn read(client: &ApiClient, key: &ObjectKey) -> Result<Option<Box<OwnerPod>>, String> {
    let found = client.find::<SeenPod>(&pods(key), &key.name).await.map_err(|failure| Chain(&failure).to_string())?;
    Ok(found.map(|pod| Box::new(pod.owner())))
}

/// Reads all PriorityClasses.
pub(super) async fn priorities(client: &ApiClient) -> Result<PriorityClasses, String> {
    let all = Collection::custom("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
    let listed = listed::<SeenClass>(client, &all).await?;
    let default = listed.iter().rfind(|class| class.global_default).map_or(0, |class| class.value);
    Ok(PriorityClasses {
        default,
        values: listed.into_iter().map(|class| (class.metadata.name, class.value)).collect(),
    })
}

/// Reads all PodDisruptionBudgets.
pub(super) async fn budgets(client: &ApiClient) -> Result<Vec<PodBudget>, String> {
    let all = Collection::custom("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    let budget = |SeenBudget { metadata, spec, status }: SeenBudget| PodBudget {
        key: ObjectKey::new(&metadata.namespace, &metadata.name),
        selector: spec.selector,
        allowed: u64::try_from(status.disruptions_allowed).unwrap_or_default(),
        going: status.disrupted_pods.into_keys().collect(),
    };
    Ok(listed(client, &all).await?.into_iter().map(budget).collect())
}

/// Lists all objects of a kind that is only needed to make room.
async fn listed<T: DeserializeOwned>(client: &ApiClient, all: &Collection) -> Result<Vec<T>, String> {
    let (mut objects, mut wrong) = (Vec::new(), None);
    let mut read = |page: Vec<u8>| match serde_json::from_slice::<PodListPage<T>>(&page) {
        Ok(page) => objects.extend(page.items),
        Err(error) => wrong = Some(error),
    };
    let listed = client.list(all, &mut read).await;
    let step = || format!("read {}", all.plural());
    let listed = listed.and_then(|()| wrong.map_or(Ok(()), |error| Err(ApiFailure::unusable(step(), error))));
    let refusals = client.refusals();
    match listed {
        Ok(()) => {
            refusals.allowed(all.plural());
            Ok(objects)
        }
        Err(failure) => {
            let said = Chain(&failure).to_string();
            if failure.code() != Some(403) {
                return Err(said);
            }
            Err(format!("{said}; {}", refusals.advice(all.plural(), RIGHT)))
        }
    }
}

/// Evicts a pod. A conflict says that another pod has the name, or only that this pod kept changing: in the second case
/// the eviction is tried again. So it is where a role is missing that a server which has just started may not have read
/// yet.
async fn evict(client: &ApiClient, pod: &ObjectKey, uid: &str) -> Result<(), ApiFailure> {
    match client.evict(&pods(pod), &pod.name, uid).await {
        Err(failure) if failure.code() == Some(409) => {
            let why = match read(client, pod).await {
                Ok(found) if found.as_ref().is_none_or(|found| found.uid != uid) => return Err(failure),
                Ok(_) => Chain(&failure).to_string(),
                Err(error) => error,
            };
            Err(ApiFailure::unusable(format!("evict Pod {pod}"), why))
        }
        Err(failure) if lacks_right(&failure) && !client.refusals().refused(EVICTIONS) => {
            Err(ApiFailure::unusable(format!("evict Pod {pod}"), Chain(&failure)))
        }
        Err(failure) => Err(failure),
        Ok(()) => {
            client.refusals().allowed(EVICTIONS);
            Ok(())
        }
    }
}

/// Carries out a write about a pod.
pub(super) async fn write(client: &ApiClient, write: &PodWrite) -> Result<(), ApiFailure> {
    match write {
        PodWrite::Evict { pod, uid } => evict(client, pod, uid).await,
        PodWrite::Annotate { pod, uid, value } => {
            // A UID that is not the object's is a conflict.
            let patch = json!({"metadata": {"uid": uid, "annotations": {RESERVATION_ALLOCATED: value}}});
            client.merge("annotate", &pods(pod), &pod.name, &patch).await
        }
    }
}

/// True if the eviction failed for lack of a role. Webhooks answer 403 as well.
fn lacks_right(failure: &ApiFailure) -> bool {
    failure.code() == Some(403) && Chain(failure).to_string().contains(LACKS_RIGHT)
}

/// The outcome of a failed eviction, where it differs from that of other writes: if a budget forbids the eviction, the
/// answer is a plain refusal, and the pod stays. A server that is overloaded, or fails, says nothing about the pod.
pub(super) fn came_of_eviction(failure: &ApiFailure) -> Option<WriteOutcome> {
    let said = Chain(failure).to_string();
    match failure.code()? {
        403 if lacks_right(failure) => Some(WriteOutcome::Refused(format!("{said}; {RIGHT}"))),
        429 if !failure.disruption_budgets().is_empty() => {
            Some(WriteOutcome::Refused(format!("{said} {}", failure.disruption_budgets().join("; "))))
        }
        // Several budgets count the pod.
        500 if said.contains("PodDisruptionBudget") => Some(WriteOutcome::Refused(said)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hostler_cluster::{CallError, StatusError};
    use hostler_testing::apiserver::{ApiFault, ApiServer, ApiServerRelease, FaultEffect};
    use serde_json::json;

    use super::*;

    fn failure(code: u16, message: &str, budgets: &[&str]) -> ApiFailure {
        let disruption_budgets = budgets.iter().map(|it| (*it).to_owned()).collect();
        let source = StatusError { code, message: message.to_owned(), disruption_budgets, ..StatusError::default() };
        ApiFailure::Call { step: "evict Pod n/p".to_owned(), source: CallError::Status(source) }
    }

    #[test]
    fn only_budgets_and_roles_block_an_eviction_and_only_roles_are_blamed_on_roles() {
        let refused = |failure: &ApiFailure| match came_of_eviction(failure) {
            Some(WriteOutcome::Refused(why)) => Some(why),
            _ => None,
        };
        assert!(
            refused(&failure(429, "Cannot evict pod", &["budget web needs 2"]))
                .unwrap()
                .ends_with("budget web needs 2")
        );
        assert!(
            refused(&failure(500, "This pod has more than one PodDisruptionBudget, which is not supported", &[]))
                .is_some()
        );
        let right = "pods \"p\" is forbidden: User \"u\" cannot create resource \"pods/eviction\"";
        assert!(refused(&failure(403, right, &[])).unwrap().ends_with(RIGHT));
        for (code, said) in
            [(429, "too many requests"), (500, "etcd has no leader"), (403, "admission webhook \"w\" denied it")]
        {
            assert_eq!(refused(&failure(code, said, &[])), None, "{said}");
        }
    }

    #[test]
    fn a_pod_says_where_it_runs_how_important_it_is_and_whether_it_goes() {
        let pod: SeenPod = serde_json::from_value(json!({
            "metadata": {
                "name": "p", "uid": "u", "annotations": {"long": "text", RESERVATION_ALLOCATED: "{}"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "cu"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "ru", "controller": true},
                ],
            },
            "spec": {"nodeName": "n", "priority": -7},
        }))
        .unwrap();
        let pod = pod.owner();
        assert_eq!((&*pod.node, pod.priority, pod.is_deleting), ("n", -7, true));
        assert_eq!(pod.annotations.len(), 1);
        assert_eq!(pod.controller.unwrap().name, "r");
    }

    #[tokio::test]
    async fn a_server_that_has_just_started_is_asked_again_before_its_refusal_is_blamed_on_a_role() {
        let server = ApiServer::of(ApiServerRelease::default()).await;
        let client = ApiClient::new(Some(&*server.kubeconfig("controller"))).unwrap();
        for plural in ["priorityclasses", "poddisruptionbudgets"] {
            server.fail(ApiFault::new("list", plural, 1, FaultEffect::Status(403, None)));
        }
        for why in [priorities(&client).await.unwrap_err(), budgets(&client).await.unwrap_err()] {
            assert!(why.contains("it is asked again soon") && !why.contains(RIGHT), "{why}");
        }
        assert!(priorities(&client).await.is_ok() && budgets(&client).await.is_ok());
    }

    #[tokio::test]
    async fn a_first_refusal_of_an_eviction_is_no_refusal_yet() {
        let server = ApiServer::of(ApiServerRelease::default()).await;
        let client = ApiClient::new(Some(&*server.kubeconfig("controller"))).unwrap();
        server.allow("controller", Vec::new());
        let of_pod = PodWrite::Evict { pod: ObjectKey::new("default", "p"), uid: "u".to_owned() };
        let failure = write(&client, &of_pod).await.unwrap_err();
        assert!(Chain(&failure).to_string().contains(LACKS_RIGHT), "{}", Chain(&failure));
        assert!(came_of_eviction(&failure).is_none() && failure.code().is_none(), "it is asked for again");
    }
}
