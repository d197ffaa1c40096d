//! Passes the prepare and unprepare calls of kubelets of 1.26 to 1.31 to the claims task.
//!
//! ```text
//!   1.26          v1alpha1.Node, one claim  ─┐
//!   1.27          v1alpha2.Node, one claim  ─┤ handle ──► handle: node, driver, version ──► prepare, with allocation
//!   1.28 to 1.30  v1alpha3.Node, many       ─┘
//!   1.31          v1alpha3.Node, many        ─ no handle ───────────────────────────────► prepare: the claim is read
//! ```
//!
//! A call of `v1alpha3.Node` with a handle in any of its claims is one of 1.28 to 1.30: calls of 1.31 have no field for
//! it. A call without handles is one of 1.31, or its claims have none, and then no claim can be prepared anyway: an
//! answer that is all errors has the same bytes in both shapes. The answers to an unprepare are the same in both.

mod handle;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use hostler_api::{Allocation, ClaimUid};
use hostler_proto::{
    dra_v1,
    dra_v1alpha1::{self as v1alpha1, node_server::Node as V1Alpha1Api, node_server::NodeServer as V1Alpha1Server},
    dra_v1alpha2::{self as v1alpha2, node_server::Node as V1Alpha2Api, node_server::NodeServer as V1Alpha2Server},
    dra_v1alpha3_served::{
        self as v1alpha3, node_server::Node as V1Alpha3Api, node_server::NodeServer as V1Alpha3Server,
    },
    dra_v1alpha4::Device,
};
use prost::Message;
use tonic::{Request, Response, Status, service::Routes};

use self::handle::{CallHandle, HandleRefusal};
use super::{
    REQUEST_BYTES,
    dra::{Answers, DraService, reason},
};
use crate::{
    claims::{GivenAllocations, PreparedDevice},
    config::ClassicCalls,
};

/// Error for a claim that has no answer; each call for one claim must have one.
const UNANSWERED: &str = "the claim has no answer; try again";

/// Error for a claim without devices: kubelets of 1.26 and 1.27 make an annotation of an empty list that no container
/// runtime can read.
const NOTHING: &str = "the claim got no device, and kubelets of 1.26 and 1.27 start no container with a claim that gives \
                       nothing; let one of its requests be without optional: true";

/// Serves the node services of 1.26 to 1.31. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ClassicService {
    dra: DraService,
    driver: Arc<str>,
    node: Arc<str>,
    calls: ClassicCalls,
}

/// Adds the services that are to be answered.
pub(super) fn with_classic(routes: Routes, service: ClassicService) -> Routes {
    if service.calls == ClassicCalls::Off {
        return routes;
    }
    routes
        .add_service(V1Alpha1Server::new(service.clone()).max_decoding_message_size(REQUEST_BYTES))
        .add_service(V1Alpha2Server::new(service.clone()).max_decoding_message_size(REQUEST_BYTES))
        .add_service(V1Alpha3Server::new(service).max_decoding_message_size(REQUEST_BYTES))
}

/// A claim of a call, and the call's handle of its allocation.
struct HandedClaim {
    claim: dra_v1::Claim,
    handle: CallHandle,
}

impl ClassicService {
    /// Makes the service, on top of the service that kubelets of today call.
    pub(super) fn new(dra: DraService, driver: &str, node: &str, calls: ClassicCalls) -> Self {
        Self { dra, driver: driver.into(), node: node.into(), calls }
    }

    /// Prepares claims with the allocations in the call. A claim that got no device has nothing to prepare.
    async fn prepare(&self, claims: Vec<HandedClaim>) -> Answers<Vec<PreparedDevice>> {
        let mut given: BTreeMap<String, Result<Allocation, HandleRefusal>> = BTreeMap::new();
        let mut asked = Vec::new();
        for HandedClaim { claim, handle } in claims {
            let read = handle.allocation(&self.driver, &self.node);
            match given.entry(claim.uid.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(read);
                    asked.push(claim);
                }
                // The handle of a driver is complete; of two that differ, neither is.
                Entry::Occupied(mut entry) if !same(entry.get(), &read) => {
                    *entry.get_mut() = Err(HandleRefusal::SeveralHandles);
                }
                Entry::Occupied(_) => {}
            }
        }
        let has_nothing = |claim: &dra_v1::Claim| matches!(given.get(&claim.uid), Some(Ok(it)) if it.grants.is_empty());
        let (empty, asked): (Vec<_>, Vec<_>) = asked.into_iter().partition(has_nothing);
        let mut answers = self.dra.prepare(asked, Some(by_uid(given))).await;
        answers.extend(empty.into_iter().map(|claim| (claim.uid, Ok(Vec::new()))));
        answers
    }

    /// Prepares a claim for a kubelet that asks for one at a time.
    async fn prepare_one(&self, claim: HandedClaim) -> Result<Vec<String>, Status> {
        let mut answers = self.prepare(vec![claim]).await.into_values();
        let answer = answers.next().unwrap_or_else(|| Err(UNANSWERED.to_owned()));
        let cdi_ids = answer.map(cdi_ids).map_err(Status::failed_precondition)?;
        if cdi_ids.is_empty() { Err(Status::failed_precondition(NOTHING)) } else { Ok(cdi_ids) }
    }

    async fn unprepare_one(&self, claim: dra_v1::Claim) -> Result<(), Status> {
        let mut answers = self.dra.unprepare(vec![claim]).await.into_values();
        answers.next().unwrap_or_else(|| Err(UNANSWERED.to_owned())).map_err(Status::failed_precondition)
    }

    /// True if a call of `v1alpha3.Node` holds the allocations.
    fn has_handles(&self, claims: &[v1alpha3::Claim]) -> bool {
        let has_handle =
            |claim: &v1alpha3::Claim| !claim.resource_handle.is_empty() || !claim.structured_resource_handle.is_empty();
        match self.calls {
            ClassicCalls::Auto | ClassicCalls::Off => claims.iter().any(has_handle),
            ClassicCalls::Handles => true,
            ClassicCalls::Claims => false,
        }
    }
}

/// True if two handles of a claim are equal. Two errors are.
fn same(one: &Result<Allocation, HandleRefusal>, other: &Result<Allocation, HandleRefusal>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one == other,
        (one, other) => one.is_err() && other.is_err(),
    }
}

/// Maps allocations to valid UIDs. The check of the claim itself refuses an invalid UID.
fn by_uid(given: BTreeMap<String, Result<Allocation, HandleRefusal>>) -> GivenAllocations {
    let valid = given.into_iter().filter_map(|(uid, read)| Some((ClaimUid::new(uid).ok()?, read)));
    valid.map(|(uid, read)| (uid, read.map_err(Into::into))).collect()
}

fn claim(namespace: String, uid: String, name: String) -> dra_v1::Claim {
    dra_v1::Claim { namespace, uid, name }
}

/// All CDI ids of a claim: these kubelets know no requests, so each of its containers gets all.
fn cdi_ids(devices: Vec<PreparedDevice>) -> Vec<String> {
    devices.into_iter().flat_map(|device| device.cdi_ids).collect()
}

#[tonic::async_trait]
impl V1Alpha1Api for ClassicService {
    async fn node_prepare_resource(
        &self,
        request: Request<v1alpha1::NodePrepareResourceRequest>,
    ) -> Result<Response<v1alpha1::NodePrepareResourceResponse>, Status> {
        let v1alpha1::NodePrepareResourceRequest { namespace, claim_uid, claim_name, resource_handle } =
            request.into_inner();
        let handle = CallHandle::new(resource_handle, &[]);
        let cdi_devices =
            self.prepare_one(HandedClaim { claim: claim(namespace, claim_uid, claim_name), handle }).await?;
        Ok(Response::new(v1alpha1::NodePrepareResourceResponse { cdi_devices }))
    }

    async fn node_unprepare_resource(
        &self,
        request: Request<v1alpha1::NodeUnprepareResourceRequest>,
    ) -> Result<Response<v1alpha1::NodeUnprepareResourceResponse>, Status> {
        let v1alpha1::NodeUnprepareResourceRequest { namespace, claim_uid, claim_name, .. } = request.into_inner();
        self.unprepare_one(claim(namespace, claim_uid, claim_name)).await?;
        Ok(Response::new(v1alpha1::NodeUnprepareResourceResponse {}))
    }
}

#[tonic::async_trait]
impl V1Alpha2Api for ClassicService {
    async fn node_prepare_resource(
        &self,
        request: Request<v1alpha2::NodePrepareResourceRequest>,
    ) -> Result<Response<v1alpha2::NodePrepareResourceResponse>, Status> {
        let v1alpha2::NodePrepareResourceRequest { namespace, claim_uid, claim_name, resource_handle, .. } =
            request.get_ref().clone();
        let handle = CallHandle::new(resource_handle, &request.get_ref().structured_resource_handle);
        let cdi_devices =
            self.prepare_one(HandedClaim { claim: claim(namespace, claim_uid, claim_name), handle }).await?;
        Ok(Response::new(v1alpha2::NodePrepareResourceResponse { cdi_devices }))
    }

    async fn node_unprepare_resource(
        &self,
        request: Request<v1alpha2::NodeUnprepareResourceRequest>,
    ) -> Result<Response<v1alpha2::NodeUnprepareResourceResponse>, Status> {
        let v1alpha2::NodeUnprepareResourceRequest { namespace, claim_uid, claim_name, .. } = request.into_inner();
        self.unprepare_one(claim(namespace, claim_uid, claim_name)).await?;
        Ok(Response::new(v1alpha2::NodeUnprepareResourceResponse {}))
    }
}

#[tonic::async_trait]
impl V1Alpha3Api for ClassicService {
    async fn node_prepare_resources(
        &self,
        request: Request<v1alpha3::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1alpha3::NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        let has_handles = self.has_handles(&claims);
        let answers = if has_handles {
            self.prepare(claims.into_iter().map(handed).collect()).await
        } else {
            self.dra.prepare(claims.into_iter().map(bare).collect(), None).await
        };
        let encoded = if has_handles { as_names } else { as_devices };
        let response = |answer: Result<Vec<PreparedDevice>, String>| match answer {
            Ok(devices) => v1alpha3::NodePrepareResourceResponse { prepared: encoded(devices), error: String::new() },
            Err(error) => v1alpha3::NodePrepareResourceResponse { prepared: Vec::new(), error },
        };
        let entry = |(key, answer)| v1alpha3::PreparedClaim { key, value: Some(response(answer)) };
        let claims = answers.into_iter().map(entry).collect();
        Ok(Response::new(v1alpha3::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1alpha3::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1alpha3::NodeUnprepareResourcesResponse>, Status> {
        let answers = self.dra.unprepare(request.into_inner().claims.into_iter().map(bare).collect()).await;
        let response = |answer| v1alpha3::NodeUnprepareResourceResponse { error: reason(answer) };
        let entry = |(key, answer)| v1alpha3::UnpreparedClaim { key, value: Some(response(answer)) };
        let claims = answers.into_iter().map(entry).collect();
        Ok(Response::new(v1alpha3::NodeUnprepareResourcesResponse { claims }))
    }
}

fn handed(called: v1alpha3::Claim) -> HandedClaim {
    let handle = CallHandle::new(called.resource_handle, &called.structured_resource_handle);
    HandedClaim { claim: claim(called.namespace, called.uid, called.name), handle }
}

fn bare(called: v1alpha3::Claim) -> dra_v1::Claim {
    claim(called.namespace, called.uid, called.name)
}

/// Encodes devices as kubelets of 1.28 to 1.30 read them.
fn as_names(devices: Vec<PreparedDevice>) -> Vec<Vec<u8>> {
    cdi_ids(devices).into_iter().map(String::into_bytes).collect()
}

/// Encodes devices as kubelets of 1.31 read them.
fn as_devices(devices: Vec<PreparedDevice>) -> Vec<Vec<u8>> {
    let device = |device: PreparedDevice| Device {
        request_names: device.request_names,
        pool_name: device.pool,
        device_name: device.device.into(),
        cdi_device_ids: device.cdi_ids,
    };
    devices.into_iter().map(|it| device(it).encode_to_vec()).collect()
}
