//! Passes the kubelet's prepare and unprepare calls to the claims task, in both versions of the API.
//!
//! The messages of v1beta1 are those of v1 without the share id, so v1 is what this module thinks in. A claim that
//! fails fails alone: its answer carries the error, the others are prepared.

use std::collections::BTreeMap;

use hostler_api::{Chain, ClaimRef, ClaimUid, NameError};
use hostler_proto::{
    dra_v1::{self as v1, dra_plugin_server::DraPlugin as V1Api},
    dra_v1beta1::{self as v1beta1, dra_plugin_server::DraPlugin as V1Beta1Api},
};
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use tracing::{debug, error};

use crate::{
    claims::{ClaimResult, ClaimsHandle, PreparedDevice},
    metrics::CountedOperation,
};

/// Serves the DRA API. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct DraService {
    claims: ClaimsHandle,
    /// Counts the calls in flight, for the stop.
    calls: TaskTracker,
}

/// The answers to a call by claim UID, one for each that was asked for.
type Answers<T> = BTreeMap<String, Result<T, String>>;

impl DraService {
    /// Over the claims task.
    pub(super) fn new(claims: ClaimsHandle, calls: TaskTracker) -> Self {
        Self { claims, calls }
    }

    async fn prepare(&self, claims: Vec<v1::Claim>) -> BTreeMap<String, v1::NodePrepareResourceResponse> {
        let _call = self.calls.token();
        let (claims, mut answers) = sort_out(claims);
        answers.keys().for_each(|_| self.claims.count_misnamed(CountedOperation::Prepare));
        debug!(claims = claims.len(), "prepare asked for");
        answer(&mut answers, &claims, self.claims.prepare(claims.clone()).await);
        answers.into_iter().map(|(uid, answer)| (uid, prepared(answer))).collect()
    }

    async fn unprepare(&self, claims: Vec<v1::Claim>) -> BTreeMap<String, v1::NodeUnprepareResourceResponse> {
        let _call = self.calls.token();
        let (claims, mut answers) = sort_out(claims);
        answers.keys().for_each(|_| self.claims.count_misnamed(CountedOperation::Unprepare));
        debug!(claims = claims.len(), "unprepare asked for");
        answer(&mut answers, &claims, self.claims.unprepare(claims.clone()).await);
        let response =
            |answer: Result<(), String>| v1::NodeUnprepareResourceResponse { error: answer.err().unwrap_or_default() };
        answers.into_iter().map(|(uid, answer)| (uid, response(answer))).collect()
    }
}

/// The claims that can be worked on, and the answers for those that cannot.
fn sort_out<T>(claims: Vec<v1::Claim>) -> (Vec<ClaimRef>, Answers<T>) {
    let mut refused = Answers::new();
    let mut accepted = Vec::new();
    for v1::Claim { namespace, uid, name } in claims {
        match ClaimUid::new(uid.clone()) {
            Ok(uid) => accepted.push(ClaimRef { namespace, name, uid }),
            Err(error) => {
                refused.insert(uid, Err(refusal(&error, &namespace, &name)));
            }
        }
    }
    (accepted, refused)
}

fn refusal(error: &NameError, namespace: &str, name: &str) -> String {
    error!(claim.name = %format_args!("{namespace}/{name}"), error = %Chain(error), "claim refused");
    Chain(error).to_string()
}

/// Adds what the claims task answered. The kubelet fails a whole pod if one claim has no answer, so each gets one.
fn answer<T>(answers: &mut Answers<T>, claims: &[ClaimRef], mut results: BTreeMap<ClaimUid, ClaimResult<T>>) {
    for claim in claims {
        // The second mention of a claim in one request has the first one's answer.
        if answers.contains_key(claim.uid.as_str()) {
            continue;
        }
        let result = match results.remove(&claim.uid) {
            Some(result) => result.map_err(|error| Chain(&*error).to_string()),
            None => Err("the daemon is stopping; try again".to_owned()),
        };
        answers.insert(claim.uid.to_string(), result);
    }
}

fn prepared(answer: Result<Vec<PreparedDevice>, String>) -> v1::NodePrepareResourceResponse {
    match answer {
        Ok(devices) => {
            v1::NodePrepareResourceResponse { devices: devices.into_iter().map(device).collect(), error: String::new() }
        }
        Err(error) => v1::NodePrepareResourceResponse { devices: Vec::new(), error },
    }
}

fn device(device: PreparedDevice) -> v1::Device {
    v1::Device {
        request_names: device.request_names,
        pool_name: device.pool,
        device_name: device.device.into(),
        cdi_device_ids: device.cdi_ids,
        share_id: device.share_id.map(|share| share.0),
    }
}

#[tonic::async_trait]
impl V1Api for DraService {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1::NodePrepareResourcesResponse>, Status> {
        let claims = self.prepare(request.into_inner().claims).await;
        Ok(Response::new(v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        let claims = self.unprepare(request.into_inner().claims).await;
        Ok(Response::new(v1::NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl V1Beta1Api for DraService {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let claims = self.prepare(from_v1beta1(request.into_inner().claims)).await;
        let claims = claims.into_iter().map(|(uid, answer)| (uid, to_v1beta1(answer))).collect();
        Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let claims = self.unprepare(from_v1beta1(request.into_inner().claims)).await;
        let old =
            |answer: v1::NodeUnprepareResourceResponse| v1beta1::NodeUnprepareResourceResponse { error: answer.error };
        let claims = claims.into_iter().map(|(uid, answer)| (uid, old(answer))).collect();
        Ok(Response::new(v1beta1::NodeUnprepareResourcesResponse { claims }))
    }
}

fn from_v1beta1(claims: Vec<v1beta1::Claim>) -> Vec<v1::Claim> {
    claims.into_iter().map(|v1beta1::Claim { namespace, uid, name }| v1::Claim { namespace, uid, name }).collect()
}

fn to_v1beta1(answer: v1::NodePrepareResourceResponse) -> v1beta1::NodePrepareResourceResponse {
    let devices = answer.devices.into_iter().map(|device| v1beta1::Device {
        request_names: device.request_names,
        pool_name: device.pool_name,
        device_name: device.device_name,
        cdi_device_ids: device.cdi_device_ids,
    });
    v1beta1::NodePrepareResourceResponse { devices: devices.collect(), error: answer.error }
}
