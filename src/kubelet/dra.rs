//! Passes the kubelet's prepare and unprepare calls to the claims task, in both versions of the API.
//!
//! The messages of v1beta1 are those of v1 without the share id, so this module works with those of v1. A claim that
//! fails does not fail others: its answer carries the error, the others are prepared.

use std::collections::BTreeMap;

use hostler_api::{Chain, ClaimRef, ClaimUid, NameError};
use hostler_proto::{
    dra_v1::{self as v1, dra_plugin_server::DraPlugin as V1Api},
    dra_v1beta1::{self as v1beta1, dra_plugin_server::DraPlugin as V1Beta1Api},
};
use tokio::{
    sync::watch,
    time::{Duration, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status};
use tracing::{debug, error};

use crate::{
    claims::{ClaimResult, ClaimsHandle, GivenAllocations, PreparedDevice},
    metrics::{CountedOperation, FailureReason, Metrics},
};

/// Time that a call waits for this daemon's turn: until another daemon has ended, and claims are recovered. The kubelet
/// gives up after 45 s, and must hear the reason before.
const TURN: Duration = Duration::from_secs(40);

/// Error for calls whose daemon did not get its turn in time.
const NOT_YET: &str = "this daemon waits for another one to end, or for claims to be recovered; try again";
const STOPPING: &str = "the daemon is stopping; try again";

/// Serves the DRA API. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct DraService {
    claims_rx: watch::Receiver<Option<ClaimsHandle>>,
    stop: CancellationToken,
    /// Counters of refusals in this module: all other outcomes are counted where they are decided.
    metrics: Metrics,
    /// Calls in flight, for the stop.
    calls: TaskTracker,
}

/// Answers to a call by claim UID, one for each claim of the call.
pub(super) type Answers<T> = BTreeMap<String, Result<T, String>>;

impl DraService {
    /// Makes the service on top of the claims task, once there is one.
    pub(super) fn new(
        claims_rx: watch::Receiver<Option<ClaimsHandle>>,
        calls: TaskTracker,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        Self { claims_rx, stop, metrics, calls }
    }

    /// Prepares claims whose allocations are read, or, in old clusters, were given with the call.
    pub(super) async fn prepare(
        &self,
        claims: Vec<v1::Claim>,
        given: Option<GivenAllocations>,
    ) -> Answers<Vec<PreparedDevice>> {
        let _call = self.calls.token();
        let (claims, mut answers) = self.sort_out(claims, CountedOperation::Prepare);
        debug!(claims = claims.len(), "prepare asked for");
        match self.turn().await {
            Ok(task) => {
                let results = match given {
                    Some(given) => task.prepare_allocated(claims.clone(), given).await,
                    None => task.prepare(claims.clone()).await,
                };
                answer(&mut answers, &claims, results);
            }
            Err(reason) => self.refuse(&mut answers, &claims, reason, CountedOperation::Prepare),
        }
        answers
    }

    /// Unprepares claims.
    pub(super) async fn unprepare(&self, claims: Vec<v1::Claim>) -> Answers<()> {
        let _call = self.calls.token();
        let (claims, mut answers) = self.sort_out(claims, CountedOperation::Unprepare);
        debug!(claims = claims.len(), "unprepare asked for");
        match self.turn().await {
            Ok(task) => answer(&mut answers, &claims, task.unprepare(claims.clone()).await),
            Err(reason) => self.refuse(&mut answers, &claims, reason, CountedOperation::Unprepare),
        }
        answers
    }

    /// Splits claims into those with valid identities, and answers for the others.
    fn sort_out<T>(&self, claims: Vec<v1::Claim>, operation: CountedOperation) -> (Vec<ClaimRef>, Answers<T>) {
        let mut refused = Answers::new();
        let mut accepted = Vec::new();
        for v1::Claim { namespace, uid, name } in claims {
            match ClaimUid::new(uid.clone()) {
                Ok(uid) => accepted.push(ClaimRef { namespace, name, uid }),
                Err(error) => {
                    self.metrics.answered(operation, Some(FailureReason::Invalid));
                    refused.insert(uid, Err(refusal(&error, &namespace, &name)));
                }
            }
        }
        (accepted, refused)
    }

    /// Adds the same refusal for each claim.
    fn refuse<T>(&self, answers: &mut Answers<T>, claims: &[ClaimRef], reason: &str, operation: CountedOperation) {
        for claim in claims {
            error!(claim.uid = %claim.uid, claim.name = claim.full_name(), error = reason, "claim refused");
            self.metrics.answered(operation, Some(FailureReason::Interrupted));
            answers.entry(claim.uid.to_string()).or_insert_with(|| Err(reason.to_owned()));
        }
    }

    /// Waits for the claims task until it is this daemon's turn to work.
    async fn turn(&self) -> Result<ClaimsHandle, &'static str> {
        let mut claims_rx = self.claims_rx.clone();
        tokio::select! {
            biased;
            // Cancel safe: the task only waits. A daemon that has begun to work finishes the calls in flight.
            turn = timeout(TURN, claims_rx.wait_for(Option::is_some)) => match turn {
                Ok(Ok(task)) => task.clone().ok_or(NOT_YET),
                Ok(Err(_)) => Err(STOPPING),
                Err(_) => Err(NOT_YET),
            },
            // Cancel safe: the token stays cancelled.
            () = self.stop.cancelled() => Err(STOPPING),
        }
    }
}

fn refusal(error: &NameError, namespace: &str, name: &str) -> String {
    error!(claim.name = %format_args!("{namespace}/{name}"), error = %Chain(error), "claim refused");
    Chain(error).to_string()
}

/// Adds the answers of the claims task. The kubelet fails a whole pod if one claim has no answer, so each claim gets
/// one.
fn answer<T>(answers: &mut Answers<T>, claims: &[ClaimRef], mut results: BTreeMap<ClaimUid, ClaimResult<T>>) {
    for claim in claims {
        // The second mention of a claim in one request has the first one's answer.
        if answers.contains_key(claim.uid.as_str()) {
            continue;
        }
        let result = match results.remove(&claim.uid) {
            Some(result) => result.map_err(|error| Chain(&*error).to_string()),
            None => Err(STOPPING.to_owned()),
        };
        answers.insert(claim.uid.to_string(), result);
    }
}

/// Reason why a claim could not be unprepared; empty on success.
pub(super) fn reason(answer: Result<(), String>) -> String {
    answer.err().unwrap_or_default()
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
        let answers = self.prepare(request.into_inner().claims, None).await;
        let claims = answers.into_iter().map(|(uid, answer)| (uid, prepared(answer))).collect();
        Ok(Response::new(v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        let answers = self.unprepare(request.into_inner().claims).await;
        let response = |answer| v1::NodeUnprepareResourceResponse { error: reason(answer) };
        let claims = answers.into_iter().map(|(uid, answer)| (uid, response(answer))).collect();
        Ok(Response::new(v1::NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl V1Beta1Api for DraService {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let answers = self.prepare(from_v1beta1(request.into_inner().claims), None).await;
        let claims = answers.into_iter().map(|(uid, answer)| (uid, to_v1beta1(prepared(answer)))).collect();
        Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let answers = self.unprepare(from_v1beta1(request.into_inner().claims)).await;
        let response = |answer| v1beta1::NodeUnprepareResourceResponse { error: reason(answer) };
        let claims = answers.into_iter().map(|(uid, answer)| (uid, response(answer))).collect();
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

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn one_claim() -> Vec<v1::Claim> {
        vec![v1::Claim { namespace: "default".to_owned(), uid: "u".to_owned(), name: "train".to_owned() }]
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_turn_does_not_come_is_refused_in_words_before_the_kubelet_gives_up() {
        let (_claims_tx, claims_rx) = watch::channel(None);
        let service = DraService::new(claims_rx, TaskTracker::new(), Metrics::default(), CancellationToken::new());
        let asked = Instant::now();
        assert_eq!(service.prepare(one_claim(), None).await["u"].as_ref().unwrap_err(), NOT_YET);
        assert_eq!(service.unprepare(one_claim()).await["u"].as_ref().unwrap_err(), NOT_YET);
        assert_eq!(asked.elapsed(), 2 * TURN);
        assert!(TURN < Duration::from_secs(45));
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_stops_before_its_turn_refuses_at_once() {
        let (_claims_tx, claims_rx) = watch::channel(None);
        let stop = CancellationToken::new();
        let service = DraService::new(claims_rx, TaskTracker::new(), Metrics::default(), stop.clone());
        let asked = Instant::now();
        let (answers, ()) = tokio::join!(service.prepare(one_claim(), None), async { stop.cancel() });
        assert_eq!((answers["u"].as_ref().unwrap_err().as_str(), asked.elapsed()), (STOPPING, Duration::ZERO));
    }
}
