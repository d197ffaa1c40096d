//! Claims over the admin socket: made, shown, prepared, taken back and forgotten.

use std::{collections::BTreeSet, path::PathBuf, time::UNIX_EPOCH};

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use hostler_api::{
    Chain, ClaimRef, ClaimState, ClaimUid, did_you_mean, listed,
    resource::{DeviceRequestAllocationResult, ResourceClaim},
};
use hostler_linux::IdSet;
use serde::Deserialize;

use super::{
    AdminFailure, AdminService,
    types::{AdminBusyClaim, AdminClaim, AdminClaimDevice, AdminClaimState, AdminContainer, CreateClaim},
};
use crate::{
    claims::{BusyClaim, ClaimView, spec::prepared_devices, store::RecordDevice},
    standalone::{ManifestFile, ManifestFolder, ManifestsError, allocate, refuse_drained, rounded_devices},
};

/// `?namespace=…` beside a claim that is named rather than identified.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceQuery {
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// `?force=true` beside a claim to delete.
#[derive(Debug, Deserialize)]
pub(super) struct DeleteQuery {
    #[serde(default = "default_namespace")]
    namespace: String,
    #[serde(default)]
    force: bool,
}

/// Returns all claims: prepared ones, and manifests that are not prepared.
pub(super) async fn list(State(admin): State<AdminService>) -> Result<Json<Vec<AdminClaim>>, AdminFailure> {
    Ok(Json(admin.all_claims().await?))
}

pub(super) async fn show(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
    Query(namespace): Query<NamespaceQuery>,
) -> Result<Json<AdminClaim>, AdminFailure> {
    let mut claim = admin.find(&name, &namespace.namespace).await?;
    if let Ok(uid) = ClaimUid::new(&*claim.uid) {
        claim.files = admin.files(&claim, &uid).await;
        claim.containers = admin.containers(uid).await?;
    }
    Ok(Json(claim))
}

/// `?dry_run=true` beside a claim to make.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateQuery {
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// Makes a manifest and prepares it. If that fails, the manifest goes again. A dry run decides the same and changes
/// nothing.
pub(super) async fn create(
    State(admin): State<AdminService>,
    Query(CreateQuery { dry_run }): Query<CreateQuery>,
    Json(request): Json<CreateClaim>,
) -> Result<(StatusCode, Json<AdminClaim>), AdminFailure> {
    admin.has_manifests("create it with kubectl; the scheduler allocates it and the kubelet asks for it")?;
    let uid = uuid::Uuid::new_v4().to_string();
    let inventory = admin.0.inventory.reader().latest();
    let manifest = allocate(&request, &uid, &admin.0.slices.driver, &inventory)
        .map_err(|error| AdminFailure::new(StatusCode::BAD_REQUEST, &error))?;
    let notes = rounded_devices(&request.devices, results(&manifest));
    admin.make(manifest, dry_run).await.map(|made| with_notes(made, notes))
}

/// The devices of an allocated claim.
pub(super) fn results(claim: &ResourceClaim) -> &[DeviceRequestAllocationResult] {
    claim.status.allocation.as_ref().map_or(&[], |allocation| &allocation.devices.results)
}

/// The answer to a request that creates a claim, with notes on what is given otherwise than it was asked for.
pub(super) fn with_notes(
    (status, Json(claim)): (StatusCode, Json<AdminClaim>),
    notes: Vec<String>,
) -> (StatusCode, Json<AdminClaim>) {
    (status, Json(AdminClaim { notes, ..claim }))
}

pub(super) async fn prepare(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
    Query(namespace): Query<NamespaceQuery>,
) -> Result<Json<AdminClaim>, AdminFailure> {
    admin.has_manifests("the kubelet asks for it when a pod that uses it starts")?;
    let found = admin.find(&name, &namespace.namespace).await?;
    admin.prepare(reference(&found)?).await?;
    admin.find(&found.uid, &found.namespace).await.map(Json)
}

/// Takes a claim back and removes its manifest. In a cluster only by force: the kubelet believes that the claim is
/// prepared until it takes it back itself.
pub(super) async fn delete(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
    Query(DeleteQuery { namespace, force }): Query<DeleteQuery>,
) -> Result<StatusCode, AdminFailure> {
    if !force {
        admin.has_manifests(
            "the kubelet takes it back when its last pod is gone; delete the pod, or use --force if the kubelet has forgotten the claim",
        )?;
    }
    let found = admin.find(&name, &namespace).await?;
    let claim = reference(&found)?;
    let answer = admin.0.claims.unprepare(vec![claim.clone()]).await.remove(&claim.uid);
    if let Some(Err(error)) = answer {
        return Err(AdminFailure::new(StatusCode::CONFLICT, &error));
    }
    if admin.0.manifests.is_some() {
        admin.manifests(move |manifests| remove_manifest(manifests, &claim)).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

fn remove_manifest(manifests: &ManifestFolder, claim: &ClaimRef) -> Result<(), ManifestsError> {
    match manifests.find(&claim.namespace, &claim.name) {
        // A claim of the same name with another UID is not the one that was taken back.
        Ok(found) if found.manifest.metadata.uid.as_deref() == Some(claim.uid.as_str()) => {
            manifests.remove(&found.path)
        }
        Ok(_) | Err(ManifestsError::Missing { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Gives a quarantined claim up. Of several claims of one name the quarantined one is meant.
pub(super) async fn forget(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
    Query(namespace): Query<NamespaceQuery>,
) -> Result<StatusCode, AdminFailure> {
    let all = admin.all_claims().await?;
    let (quarantined, others): (Vec<AdminClaim>, Vec<AdminClaim>) =
        all.into_iter().partition(|claim| claim.state == AdminClaimState::OnRecord(ClaimState::Quarantined));
    let all = [quarantined, others].concat();
    let found = find(&all, &name, &namespace.namespace)?;
    let uid = ClaimUid::new(&*found.uid).map_err(|error| AdminFailure::new(StatusCode::BAD_REQUEST, &error))?;
    admin.0.claims.forget(uid).await.map_err(|error| AdminFailure::new(StatusCode::CONFLICT, &error))?;
    Ok(StatusCode::NO_CONTENT)
}

fn reference(claim: &AdminClaim) -> Result<ClaimRef, AdminFailure> {
    let uid = ClaimUid::new(&*claim.uid).map_err(|error| AdminFailure::new(StatusCode::BAD_REQUEST, &error))?;
    Ok(ClaimRef { namespace: claim.namespace.clone(), name: claim.name.clone(), uid })
}

/// A claim as the caller names it: by UID, or by name.
pub(super) struct AskedClaim<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
}

impl AskedClaim<'_> {
    pub(super) fn is(&self, claim: &ClaimRef) -> bool {
        claim.uid.as_str() == self.name || (claim.name == self.name && claim.namespace == self.namespace)
    }
}

/// A claim that has a manifest and is not prepared.
#[derive(Debug)]
pub(super) struct AddedClaim {
    claim: ClaimRef,
    path: PathBuf,
}

impl AdminService {
    /// Adds the manifest of a claim that has an allocation, and prepares it; in a dry run, returns what both would
    /// come to.
    pub(super) async fn make(
        &self,
        manifest: ResourceClaim,
        dry_run: bool,
    ) -> Result<(StatusCode, Json<AdminClaim>), AdminFailure> {
        if dry_run {
            return self.rehearse(manifest).await;
        }
        let added = self.add(manifest).await?;
        self.prepare_added(added).await
    }

    /// Adds the manifest of a claim that has an allocation.
    pub(super) async fn add(&self, manifest: ResourceClaim) -> Result<AddedClaim, AdminFailure> {
        let claim = manifest.claim().map_err(|error| AdminFailure::new(StatusCode::BAD_REQUEST, &error))?;
        let path = self.manifests(move |manifests| manifests.add(&manifest)).await?;
        Ok(AddedClaim { claim, path })
    }

    /// Prepares a claim whose manifest was just added. If that fails, the manifest goes again.
    pub(super) async fn prepare_added(
        &self,
        AddedClaim { claim, path }: AddedClaim,
    ) -> Result<(StatusCode, Json<AdminClaim>), AdminFailure> {
        if let Err(failure) = self.prepare(claim.clone()).await {
            self.manifests(move |manifests| manifests.remove(&path)).await?;
            return Err(failure);
        }
        Ok((StatusCode::CREATED, Json(self.find(claim.uid.as_str(), &claim.namespace).await?)))
    }

    async fn prepare(&self, claim: ClaimRef) -> Result<(), AdminFailure> {
        let uid = claim.uid.clone();
        match self.0.claims.prepare(vec![claim]).await.remove(&uid) {
            Some(Err(error)) => Err(AdminFailure::new(StatusCode::CONFLICT, &error)),
            _ => Ok(()),
        }
    }

    /// Returns the claim as it would be made, with what it would be bound to; refuses it as it would be refused.
    pub(super) async fn rehearse(
        &self,
        manifest: ResourceClaim,
    ) -> Result<(StatusCode, Json<AdminClaim>), AdminFailure> {
        let claim = manifest.claim().map_err(|error| AdminFailure::new(StatusCode::BAD_REQUEST, &error))?;
        let inventory = self.0.inventory.reader().latest();
        let allocation = manifest.allocation(&self.0.slices.driver);
        let allocation = allocation.map_err(|error| AdminFailure::new(StatusCode::BAD_REQUEST, &error))?;
        let ClaimRef { namespace, name, .. } = claim.clone();
        self.manifests(move |manifests| manifests.refuse_taken(&namespace, &name)).await?;
        refuse_drained(&allocation, &inventory).map_err(|error| AdminFailure::new(StatusCode::CONFLICT, &error))?;
        let planned = self.0.claims.plan(claim, allocation).await;
        let planned = planned.map_err(|error| AdminFailure::new(StatusCode::CONFLICT, &*error))?;
        let devices = planned.iter().map(|device| held(device, Vec::new())).collect();
        let claim = AdminClaim { devices, ..allocated_claim(&manifest, &self.0.slices.driver) };
        Ok((StatusCode::OK, Json(claim)))
    }

    /// Refuses actions that only a host without a cluster allows, and names the alternative.
    pub(super) fn has_manifests(&self, instead: &str) -> Result<(), AdminFailure> {
        if self.0.manifests.is_some() {
            return Ok(());
        }
        Err(AdminFailure(StatusCode::CONFLICT, format!("claims of this host belong to the cluster: {instead}")))
    }

    /// Works on the manifests, which are files.
    pub(super) async fn manifests<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ManifestFolder) -> Result<T, ManifestsError> + Send + 'static,
    ) -> Result<T, AdminFailure> {
        let Some(manifests) = self.0.manifests.clone() else {
            return Err(AdminFailure(StatusCode::CONFLICT, "this host has no manifests".to_owned()));
        };
        let tasks = manifests.tasks().clone();
        let done = tasks.blocking(move || work(&manifests)).await;
        let done = done.map_err(|error| AdminFailure::new(StatusCode::INTERNAL_SERVER_ERROR, &error))?;
        done.map_err(|error| {
            let status = match &error {
                ManifestsError::Missing { .. } => StatusCode::NOT_FOUND,
                ManifestsError::Exists { .. } | ManifestsError::OtherUid { .. } => StatusCode::CONFLICT,
                ManifestsError::Invalid { .. } | ManifestsError::Name(_) => StatusCode::BAD_REQUEST,
                ManifestsError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            AdminFailure::new(status, &error)
        })
    }

    /// The containers that run with a claim.
    async fn containers(&self, uid: ClaimUid) -> Result<Vec<AdminContainer>, AdminFailure> {
        let found = self.0.claims.containers_of(uid).await;
        let found = found.map_err(|error| AdminFailure::new(StatusCode::INTERNAL_SERVER_ERROR, &error))?;
        let running = found.into_iter().filter(|container| container.runs);
        let shown = running.map(|container| AdminContainer {
            id: container.id.as_str().to_owned(),
            pid: container.note.as_ref().map(|note| note.pid),
            cgroup: container.note.and_then(|note| note.cgroup),
        });
        Ok(shown.collect())
    }

    /// The files of a claim that are there.
    async fn files(&self, claim: &AdminClaim, uid: &ClaimUid) -> Vec<PathBuf> {
        let parts = &self.0;
        let mut files = vec![
            parts.records.join(format!("{uid}.json")),
            parts.cdi.join(format!("{}.json", parts.claims.naming().stem(uid))),
            parts.claims.containers().path().join(uid.as_str()),
        ];
        let (namespace, name) = (claim.namespace.clone(), claim.name.clone());
        let manifest = self.manifests(move |manifests| manifests.find(&namespace, &name)).await;
        // Another claim of the same name may have come since.
        let is_own = |uid: Option<&String>| uid == Some(&claim.uid);
        let manifest = manifest.ok().filter(|found| is_own(found.manifest.metadata.uid.as_ref()));
        files.extend(manifest.map(|found| found.path));
        let there = parts.tasks.looking(move || files.into_iter().filter(|file| file.exists()).collect()).await;
        there.unwrap_or_default()
    }

    async fn find(&self, name: &str, namespace: &str) -> Result<AdminClaim, AdminFailure> {
        // Claims of other names are read only to say which may have been meant.
        match find(&self.claims_named(name, namespace).await?, name, namespace) {
            Ok(found) => Ok(found.clone()),
            Err(_) => find(&self.all_claims().await?, name, namespace).cloned(),
        }
    }

    pub(super) async fn all_claims(&self) -> Result<Vec<AdminClaim>, AdminFailure> {
        let manifests = match &self.0.manifests {
            Some(_) => self.manifests(ManifestFolder::all).await?,
            None => Vec::new(),
        };
        Ok(self.joined(|_, _| true, manifests))
    }

    /// Returns the claims of which [`find`] chooses.
    async fn claims_named(&self, name: &str, namespace: &str) -> Result<Vec<AdminClaim>, AdminFailure> {
        let (asked_name, asked_namespace) = (name.to_owned(), namespace.to_owned());
        let manifests = match &self.0.manifests {
            Some(_) => self.manifests(move |manifests| manifests.named(&asked_namespace, &asked_name)).await?,
            None => Vec::new(),
        };
        let asked = AskedClaim { name, namespace };
        let is_meant = |uid: &ClaimUid, view: &ClaimView| {
            uid.as_str() == name || view.claim().is_some_and(|claim| asked.is(claim))
        };
        Ok(self.joined(is_meant, manifests.into_iter().map(Ok).collect()))
    }

    /// Joins claims on record, those of a choice, with manifests of claims that are not on record.
    fn joined(
        &self,
        is_chosen: impl Fn(&ClaimUid, &ClaimView) -> bool,
        manifests: Vec<Result<ManifestFile, ManifestsError>>,
    ) -> Vec<AdminClaim> {
        let table = self.0.claims.table().borrow().clone();
        let recorded = table.claims.iter().filter(|(uid, view)| is_chosen(uid, view));
        let mut all: Vec<AdminClaim> = recorded.map(|(uid, view)| self.recorded_claim(uid, view)).collect();
        let is_recorded = |uid: &str| ClaimUid::new(uid).is_ok_and(|uid| table.claims.contains_key(&uid));
        let mut seen = BTreeSet::new();
        for found in manifests {
            let claim = match found {
                Ok(found) => allocated_claim(&found.manifest, &self.0.slices.driver),
                Err(error) => broken_claim(&error),
            };
            if claim.uid.is_empty() || (!is_recorded(&claim.uid) && seen.insert(claim.uid.clone())) {
                all.push(claim);
            }
        }
        all.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        all
    }

    fn recorded_claim(&self, uid: &ClaimUid, view: &ClaimView) -> AdminClaim {
        let state = view.state();
        let audit = self.0.audit_rx.borrow().clone();
        let recorded = match view {
            ClaimView::Recorded { record, .. } => record.since,
            ClaimView::Quarantined(_) => None,
        };
        let (problem, mut cdi_ids) = match view {
            ClaimView::Quarantined(found) => (Some(Chain(&found.error()).to_string()), Vec::new()),
            ClaimView::Recorded { record, problem, .. } => {
                let ids = prepared_devices(record, self.0.claims.naming()).into_iter().map(|device| device.cdi_ids);
                (problem.clone(), if state == ClaimState::Prepared { ids.collect() } else { Vec::new() })
            }
        };
        cdi_ids.resize(view.devices().len(), Vec::new());
        let devices = view.devices().iter().zip(cdi_ids).map(|(device, cdi_ids)| held(device, cdi_ids));
        let (namespace, name) =
            view.claim().map(|claim| (claim.namespace.clone(), claim.name.clone())).unwrap_or_default();
        AdminClaim {
            namespace,
            name,
            uid: uid.to_string(),
            state: AdminClaimState::OnRecord(state),
            recorded,
            problem,
            degraded: audit.degraded(uid),
            unaudited: audit.unseen(uid),
            busy: view.busy().map(busy_claim),
            devices: devices.collect(),
            notes: Vec::new(),
            containers: Vec::new(),
            files: Vec::new(),
        }
    }
}

/// Finds the claim with this UID, else the one with this name.
fn find<'a>(all: &'a [AdminClaim], name: &str, namespace: &str) -> Result<&'a AdminClaim, AdminFailure> {
    let by_uid = all.iter().find(|claim| claim.uid == name);
    let by_name = || all.iter().find(|claim| claim.name == name && claim.namespace == namespace);
    by_uid.or_else(by_name).ok_or_else(|| {
        let near = near_claims(all, name, namespace);
        let text = format!("there is no claim with name or uid {name:?} in namespace {namespace:?}{near}");
        AdminFailure(StatusCode::NOT_FOUND, listed(2, "; ", [text, "`hostler claim list` has all".to_owned()]))
    })
}

/// The claims that may have been meant, with words in front: those of the name in other namespaces, or with a like
/// name.
pub(super) fn near_claims(all: &[AdminClaim], name: &str, namespace: &str) -> String {
    let full = |claim: &AdminClaim| format!("{}/{}", claim.namespace, claim.name);
    let elsewhere: Vec<String> =
        all.iter().filter(|claim| claim.name == name && claim.namespace != namespace).map(full).collect();
    if !elsewhere.is_empty() {
        return did_you_mean(name, elsewhere);
    }
    // The namespace is right, or in doubt itself: it makes no name like another.
    did_you_mean(name, all.iter().map(full).chain(all.iter().map(|claim| claim.uid.clone())))
}

fn busy_claim(busy: BusyClaim) -> AdminBusyClaim {
    let since = busy.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    AdminBusyClaim { operation: busy.operation.as_str().to_owned(), since }
}

/// A device with what its claim is bound to.
fn held(device: &RecordDevice, cdi_ids: Vec<String>) -> AdminClaimDevice {
    AdminClaimDevice {
        cpus: IdSet::from(device.plan.pinning.cpus.clone()).to_string(),
        mems: IdSet::from(device.plan.pinning.mems.clone()).to_string(),
        unmet: device.unmet.clone(),
        ..granted(&device.grant, cdi_ids)
    }
}

fn granted(grant: &hostler_api::Grant, cdi_ids: Vec<String>) -> AdminClaimDevice {
    AdminClaimDevice {
        pool: grant.pool.clone(),
        device: grant.device.to_string(),
        request: grant.request.clone(),
        cdi_ids,
        cpus: String::new(),
        mems: String::new(),
        consumed: grant.consumed.iter().map(|(name, amount)| (name.to_string(), *amount)).collect(),
        unmet: Vec::new(),
    }
}

/// A claim of a manifest that is not prepared.
fn allocated_claim(manifest: &ResourceClaim, driver: &str) -> AdminClaim {
    let (devices, problem) = match manifest.claim().and_then(|_| manifest.allocation(driver)) {
        Ok(allocation) => (allocation.grants.iter().map(|grant| granted(grant, Vec::new())).collect(), None),
        Err(error) => (Vec::new(), Some(Chain(&error).to_string())),
    };
    AdminClaim {
        namespace: manifest.metadata.namespace.clone(),
        name: manifest.metadata.name.clone(),
        uid: manifest.metadata.uid.clone().unwrap_or_default(),
        state: AdminClaimState::Allocated,
        recorded: None,
        problem,
        degraded: None,
        unaudited: Vec::new(),
        busy: None,
        devices,
        notes: Vec::new(),
        containers: Vec::new(),
        files: Vec::new(),
    }
}

/// A claim for a file that is no manifest: it is shown, so that its owner finds the mistake.
fn broken_claim(error: &ManifestsError) -> AdminClaim {
    AdminClaim {
        namespace: String::new(),
        name: String::new(),
        uid: String::new(),
        state: AdminClaimState::Invalid,
        recorded: None,
        problem: Some(Chain(error).to_string()),
        degraded: None,
        unaudited: Vec::new(),
        busy: None,
        devices: Vec::new(),
        notes: Vec::new(),
        containers: Vec::new(),
        files: Vec::new(),
    }
}
