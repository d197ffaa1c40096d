//! Gathers what is known of a claim, for [`explain`](crate::explain).

use std::time::SystemTime;

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use hostler_api::{Chain, ClaimUid, Grant, resource::ResourceClaim};
use hostler_linux::IdSet;

use super::{
    AdminFailure, AdminService,
    claims::{AskedClaim, NamespaceQuery, near_claims},
    types::UnallocatedClaim,
};
use crate::{
    claims::{ClaimFailure, ClaimTable, ClaimView, store::RecordDevice},
    explain::{
        ClaimFacts, ClaimObject, ClaimOrigin, DeviceFact, ExplainedState, Explanation, FailureFact, RecordFact,
        explain as conclude,
    },
    inventory::Inventory,
    kubernetes::claim_reader::ClaimReadError,
    offer::foreign_classes,
    standalone::ManifestsError,
};

/// Explains why a claim failed, or what it holds.
pub(super) async fn explain(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
    Query(namespace): Query<NamespaceQuery>,
) -> Result<Json<Explanation>, AdminFailure> {
    let facts = admin.facts(&name, &namespace.namespace).await?;
    let explanation = conclude(&facts);
    if explanation.state == ExplainedState::Missing && facts.failure.is_none() {
        let all = admin.all_claims().await?;
        let near = near_claims(&all, &name, &namespace.namespace);
        let text = format!("claim {}: {}{near}", explanation.claim, explanation.summary);
        return Err(AdminFailure(StatusCode::NOT_FOUND, text));
    }
    Ok(Json(explanation))
}

impl AdminService {
    async fn facts(&self, name: &str, namespace: &str) -> Result<ClaimFacts, AdminFailure> {
        let asked = AskedClaim { name, namespace };
        let table = self.0.claims.table().borrow().clone();
        let record = find_record(&table, &asked);
        let failure = self.0.failures.last(|failure| asked.is(&failure.claim));
        // If the caller asked by UID, only these know the name.
        let known = record.and_then(|(_, view)| view.claim()).or(failure.as_ref().map(|failure| &failure.claim));
        let (namespace, name) = known.map_or((namespace, name), |claim| (&*claim.namespace, &*claim.name));
        let object = self.look_up(namespace, name, asked.name).await?;
        let inventory = self.0.inventory.reader().latest();
        let devices = match record {
            Some((uid, view)) => view.devices().iter().map(|held| held_device(held, uid, &inventory, &table)).collect(),
            None => allocated_devices(&object, &self.0.slices.driver, &inventory, &table),
        };
        let offer = match &object {
            ClaimObject::Found(claim) if record.is_none() && claim.status.allocation.is_none() => {
                self.offered(claim).await
            }
            _ => None,
        };
        Ok(ClaimFacts {
            asked: format!("{namespace}/{name}"),
            driver: self.0.slices.driver.clone(),
            node: self.0.node.clone(),
            origin: if self.0.manifests.is_some() { ClaimOrigin::Manifests } else { ClaimOrigin::Cluster },
            record: record.map(|(uid, view)| record_fact(uid, view)),
            object,
            failure: failure.as_ref().map(failure_fact),
            devices,
            offer,
        })
    }

    /// Describes what this node would give to a claim without an allocation.
    async fn offered(&self, claim: &ResourceClaim) -> Option<String> {
        let node = &self.0.node;
        let foreign = foreign_classes(&self.0.slices.driver, claim).unwrap_or_default();
        if !foreign.is_empty() {
            let foreign: Vec<&str> = foreign.into_iter().collect();
            return Some(format!(
                "node {node} cannot say whether it has what it asks for: of the classes it knows hostler's own, and not {}; \
                 hostler-controller plan reads those of the cluster",
                foreign.join(", ")
            ));
        }
        Some(match self.fits(UnallocatedClaim { claim: claim.clone(), classes: Vec::new() }).await {
            Ok(fit) if fit.times > 0 => format!("node {node} has what it asks for now"),
            Ok(fit) => format!("node {node} cannot give it: {}", fit.refusal?),
            Err(AdminFailure(_, error)) => format!("node {node} cannot give it: {error}"),
        })
    }

    /// Reads the claim itself: in the API server, or in the folder of manifests.
    async fn look_up(&self, namespace: &str, name: &str, asked: &str) -> Result<ClaimObject, AdminFailure> {
        if let Some(reader) = &self.0.claim_reader {
            return Ok(match reader.find(namespace, name).await {
                Ok(claim) => ClaimObject::Found(Box::new(claim)),
                Err(ClaimReadError::Missing { .. }) => ClaimObject::Missing,
                Err(error) => ClaimObject::Unknown(Chain(&error).to_string()),
            });
        }
        let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), asked.to_owned());
        self.manifests(move |manifests| {
            Ok(match manifests.find(&namespace, &name) {
                Ok(found) => ClaimObject::Found(Box::new(found.manifest)),
                Err(ManifestsError::Missing { .. }) => manifests
                    .named(&namespace, &uid)?
                    .into_iter()
                    .find(|found| found.manifest.metadata.uid.as_ref() == Some(&uid))
                    .map_or(ClaimObject::Missing, |found| ClaimObject::Found(Box::new(found.manifest))),
                Err(error) => ClaimObject::Unknown(Chain(&error).to_string()),
            })
        })
        .await
    }
}

/// Finds the claim on record with that UID, else the one with that name.
fn find_record<'a>(table: &'a ClaimTable, asked: &AskedClaim<'_>) -> Option<(&'a ClaimUid, &'a ClaimView)> {
    let by_uid = table.claims.iter().find(|(uid, _)| uid.as_str() == asked.name);
    by_uid.or_else(|| table.claims.iter().find(|(_, view)| view.claim().is_some_and(|claim| asked.is(claim))))
}

fn record_fact(uid: &ClaimUid, view: &ClaimView) -> RecordFact {
    let problem = match view {
        ClaimView::Recorded { problem, .. } => problem.clone(),
        ClaimView::Quarantined(found) => Some(Chain(&found.error()).to_string()),
    };
    RecordFact { uid: uid.to_string(), state: view.state(), problem }
}

fn failure_fact(failure: &ClaimFailure) -> FailureFact {
    FailureFact {
        uid: failure.claim.uid.to_string(),
        operation: failure.operation.to_owned(),
        error: Chain(&*failure.error).to_string(),
        seconds_ago: SystemTime::now().duration_since(failure.at).unwrap_or_default().as_secs(),
    }
}

fn allocated_devices(object: &ClaimObject, driver: &str, inventory: &Inventory, table: &ClaimTable) -> Vec<DeviceFact> {
    let ClaimObject::Found(claim) = object else { return Vec::new() };
    // The explanation reports an allocation that cannot be read.
    let grants = claim.allocation(driver).map(|allocation| allocation.grants).unwrap_or_default();
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    grants.iter().map(|grant| device_fact(grant, String::new(), uid, inventory, table)).collect()
}

fn held_device(held: &RecordDevice, uid: &ClaimUid, inventory: &Inventory, table: &ClaimTable) -> DeviceFact {
    let pinning = &held.plan.pinning;
    let mut bound = Vec::new();
    for (what, ids) in [("CPUs", &pinning.cpus), ("memory of NUMA nodes", &pinning.mems)] {
        if !ids.is_empty() {
            bound.push(format!("bound to {what} {}", IdSet::from(ids.clone())));
        }
    }
    bound.extend(held.grant.consumed.iter().map(|(name, amount)| format!("takes {} of {name}", amount.human())));
    bound.extend(held.unmet.iter().cloned());
    device_fact(&held.grant, bound.join(", "), uid.as_str(), inventory, table)
}

fn device_fact(grant: &Grant, bound: String, uid: &str, inventory: &Inventory, table: &ClaimTable) -> DeviceFact {
    let found = inventory.find(&grant.pool, grant.device.as_str());
    let pool = match found {
        Some((backend, _)) => inventory.pools.get(backend),
        None => inventory.pools.values().find(|pool| pool.name == grant.pool),
    };
    let drain = found.and_then(|(backend, device)| inventory.drain(backend, &device.name));
    let is_it = |held: &RecordDevice| match found {
        Some((backend, device)) => held.backend == *backend && *held.local_name() == device.name,
        None => (&held.grant.pool, &held.grant.device) == (&grant.pool, &grant.device),
    };
    let holds = |(holder, view): &(&ClaimUid, &ClaimView)| holder.as_str() != uid && view.devices().iter().any(is_it);
    DeviceFact {
        pool: grant.pool.clone(),
        device: grant.device.to_string(),
        access: grant.access,
        health: found.map(|(_, device)| device.health.clone()),
        stale: pool.and_then(|pool| pool.stale.clone()),
        unknown: inventory.unknown_reason(&grant.pool).map(str::to_owned),
        drained: drain.map(|drain| drain.reason.clone().unwrap_or_else(|| "no reason given".to_owned())),
        others: table.claims.iter().filter(holds).map(|(uid, view)| holder(uid, view)).collect(),
        bound,
    }
}

fn holder(uid: &ClaimUid, view: &ClaimView) -> String {
    view.claim().map_or_else(|| uid.to_string(), ToString::to_string)
}
