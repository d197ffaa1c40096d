//! Calls that the core asks for: reading a pod, listing claims, or writing an object; the outcome of each is told to
//! the core.

use hostler_api::{
    ObjectKey,
    reservation::ReservationStatus,
    well_known::{CONTROLLER_FIELD_MANAGER, HELD_TAINT},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, ObjectVersion};
use hostler_reconcile::WriteOutcome;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    claims::claims_of,
    kind::{HoldKind, HoldPlaces},
    listing::ListFailure,
    pods,
    read::{self, MANAGED_BY_LABEL},
    rules::RulesPlace,
};
use crate::{
    hold::{
        AllocatedClaim, FenceRule, HoldTarget, HoldWrite, OwnerPod, PodBudget, PodWrite, PriorityClasses,
        WrittenReservation,
    },
    reservation_object::ReservationObject,
};

/// The kind of writes of annotations, in one word.
pub(super) const ANNOTATIONS: &str = "annotations";

/// A call to the server.
#[derive(Clone, Debug)]
pub(super) enum HoldCall {
    Pod(ObjectKey),
    Priorities,
    Budgets,
    /// Read again what the server says of DeviceTaintRules.
    Rules,
    Claims(u64),
    Write(HoldWrite),
}

/// The answer to a call.
#[derive(Debug)]
pub(super) enum HoldCallAnswer {
    Pod(ObjectKey, Result<Option<Box<OwnerPod>>, String>),
    Priorities(Result<PriorityClasses, String>),
    Budgets(Result<Vec<PodBudget>, String>),
    /// `None` where the server does not answer.
    Rules(Option<RulesPlace>),
    /// The claims that have devices.
    Claims(u64, Result<Vec<AllocatedClaim>, ListFailure>),
    Written {
        target: HoldTarget,
        /// The kind of the write, in one word.
        what: &'static str,
        outcome: WriteOutcome,
        /// The object as the server returned it, if it did.
        object: Option<Value>,
    },
}

/// Makes calls to the API server.
#[derive(Clone, Debug)]
pub(in crate::hold) struct HoldCaller {
    pub(in crate::hold) client: ApiClient,
    pub(in crate::hold) places: HoldPlaces,
    /// Namespace of the claims that stand for parts of devices.
    pub(in crate::hold) namespace: String,
    /// True if daemons are told that they may close a part of a counter set.
    pub(in crate::hold) holds_partitions: bool,
    /// The release of the oldest scheduler by configuration, or empty.
    pub(in crate::hold) scheduler: String,
}

impl HoldCaller {
    pub(super) async fn call(&self, call: HoldCall) -> HoldCallAnswer {
        match call {
            HoldCall::Pod(key) => {
                let pod = pods::read(&self.client, &key).await;
                HoldCallAnswer::Pod(key, pod)
            }
            HoldCall::Priorities => HoldCallAnswer::Priorities(pods::priorities(&self.client).await),
            HoldCall::Budgets => HoldCallAnswer::Budgets(pods::budgets(&self.client).await),
            HoldCall::Rules => HoldCallAnswer::Rules(RulesPlace::find(&self.client, &self.scheduler).await.ok()),
            HoldCall::Claims(list) => HoldCallAnswer::Claims(list, self.claims().await.map_err(ListFailure::from)),
            HoldCall::Write(write) => {
                let (outcome, object) = match self.write(&write).await {
                    Ok(object) => (WriteOutcome::Done, object),
                    Err(failure) => (outcome_of(&write, &failure), None),
                };
                HoldCallAnswer::Written { target: write.target(), what: what(&write), outcome, object }
            }
        }
    }

    /// Reads a pod, with the fields that are compared with owners.
    pub(in crate::hold) async fn owner_pod(&self, key: &ObjectKey) -> Result<Option<Box<OwnerPod>>, String> {
        pods::read(&self.client, key).await
    }

    /// Lists the claims as of now, not from a cache: the list decides if another claim got a device.
    async fn claims(&self) -> Result<Vec<AllocatedClaim>, ApiFailure> {
        let all = Collection::resource(self.places.version, "ResourceClaim", HoldKind::Claim.plural());
        let (mut claims, mut wrong) = (Vec::new(), None);
        let mut read = |page: Vec<u8>| match claims_of(&page, &self.namespace) {
            Ok(page) => claims.extend(page),
            Err(failure) => wrong = Some(failure),
        };
        self.client.list(&all, &mut read).await?;
        // A claim that is left out might have the device.
        wrong.map_or(Ok(()), Err)?;
        claims.retain(|claim| !claim.devices.is_empty());
        Ok(claims)
    }

    pub(in crate::hold) async fn write(&self, write: &HoldWrite) -> Result<Option<Value>, ApiFailure> {
        match write {
            HoldWrite::Finalizers(of, finalizers) => self.finalizers(of, finalizers).await.map(Some),
            HoldWrite::Status(of, status) => {
                let (all, whole) = (HoldKind::reservations(), (&*of.version, &**status));
                let object = self.client.write_status(&all, &of.name, CONTROLLER_FIELD_MANAGER, whole).await?;
                is_as_written(&of.name, status, &object).map(|()| Some(object))
            }
            HoldWrite::Delete(of) => {
                let version = ObjectVersion { uid: of.uid.clone(), resource_version: of.version.clone() };
                self.client.delete(&HoldKind::reservations(), &of.name, &version).await.map(|()| None)
            }
            HoldWrite::NodeFences { node, version, fences } => {
                let holds = fences.iter().map(|it| json!({"pool": it.pool, "device": it.device, "value": it.value}));
                let mut patch = json!({
                    "metadata": {"resourceVersion": version}, "spec": {"holds": holds.collect::<Vec<_>>()},
                });
                // The permission is never taken back: that would open what is closed by it.
                if self.holds_partitions {
                    patch["spec"]["holdsPartitions"] = json!(true);
                }
                self.client.change(&HoldKind::node_hardware(), node, CONTROLLER_FIELD_MANAGER, &patch).await.map(Some)
            }
            HoldWrite::CreateRule(rule) => self.create_rule(rule).await.map(Some),
            HoldWrite::DeleteRule(rule) => self.delete_rule(rule).await.map(|()| None),
            HoldWrite::Pod(write) => pods::write(&self.client, write).await.map(|()| None),
            HoldWrite::Claim(write) => write.send(&self.client, self.places.version).await,
        }
    }

    async fn finalizers(&self, of: &WrittenReservation, finalizers: &[String]) -> Result<Value, ApiFailure> {
        let mut metadata = metadata(of);
        metadata["finalizers"] = json!(finalizers);
        let patch = json!({ "metadata": metadata });
        self.client.change(&HoldKind::reservations(), &of.name, CONTROLLER_FIELD_MANAGER, &patch).await
    }

    fn rules(&self) -> Result<&Collection, ApiFailure> {
        let missing = || ApiFailure::unusable("write a DeviceTaintRule", "the API server serves none");
        self.places.rules.collection().ok_or_else(missing)
    }

    async fn create_rule(&self, rule: &FenceRule) -> Result<Value, ApiFailure> {
        let (all, device) = (self.rules()?, &rule.device);
        let object = json!({
            "apiVersion": all.api_version(), "kind": all.kind(),
            "metadata": {"name": rule.name, "labels": {MANAGED_BY_LABEL: CONTROLLER_FIELD_MANAGER}},
            "spec": {
                "deviceSelector": {"driver": device.driver, "pool": device.pool, "device": device.device},
                "taint": {"key": HELD_TAINT, "value": rule.value, "effect": "NoSchedule"},
            },
        });
        self.client.create(all, &rule.name, &object).await
    }

    /// Deletes a rule. A rule of another author that has the name by now stays.
    async fn delete_rule(&self, rule: &FenceRule) -> Result<(), ApiFailure> {
        let all = self.rules()?;
        let found: Value = self.client.get(all, &rule.name).await?;
        if read::rule(&found).as_ref() != Some(rule) {
            return Ok(());
        }
        let text = |field: &str| found["metadata"][field].as_str().unwrap_or_default().to_owned();
        let version = ObjectVersion { uid: text("uid"), resource_version: text("resourceVersion") };
        self.client.delete(all, &rule.name, &version).await
    }
}

/// Fails if the server has left out fields of the status: the status counts as not written, or it would be written
/// again and again.
fn is_as_written(name: &str, status: &ReservationStatus, object: &Value) -> Result<(), ApiFailure> {
    let step = || format!("write the status of Reservation {name}");
    let has = ReservationObject::deserialize(object).map_err(|error| ApiFailure::unusable(step(), error))?.status;
    if has == *status {
        return Ok(());
    }
    let why = "the API server has kept another status than it was given: apply deploy/holds of this release, and look \
        for webhooks that change Reservations";
    Err(ApiFailure::unusable(step(), why))
}

fn metadata(of: &WrittenReservation) -> Value {
    json!({"name": of.name, "uid": of.uid, "resourceVersion": of.version})
}

fn outcome_of(write: &HoldWrite, failure: &ApiFailure) -> WriteOutcome {
    match write {
        HoldWrite::Pod(PodWrite::Evict { .. }) => {
            pods::came_of_eviction(failure).unwrap_or_else(|| WriteOutcome::of_failure(failure))
        }
        _ => WriteOutcome::of_failure(failure),
    }
}

fn what(write: &HoldWrite) -> &'static str {
    match write {
        HoldWrite::Finalizers(..) => "finalizers",
        HoldWrite::Status(..) => "status",
        HoldWrite::Delete(_) => "deletion",
        HoldWrite::NodeFences { .. } => "fences",
        HoldWrite::CreateRule(_) | HoldWrite::DeleteRule(_) => "rules",
        HoldWrite::Pod(PodWrite::Evict { .. }) => "evictions",
        HoldWrite::Pod(PodWrite::Annotate { .. }) => ANNOTATIONS,
        HoldWrite::Claim(write) => write.what(),
    }
}
