//! An operator's orders for devices over the admin socket: one answer at the end, or a line for every stage.
//!
//! A caller that breaks the connection while its order waits withdraws it: its stage is not watched any more.

use std::{convert::Infallible, time::Duration};

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use hostler_api::Chain;
use hostler_backend::{BackendError, DeviceOperation, OperationOutcome, duration};
use hostler_process::serve::CallInFlight;
use serde::Deserialize;
use tokio::sync::watch;
use tokio_stream::{StreamExt, wrappers::WatchStream};

use super::{
    AdminFailure, AdminService,
    types::{AdminOperated, AdminOrderLine, LONGEST_ORDER_TIMEOUT, ORDER_LINES, ORDER_TIMEOUT},
};
use crate::{
    claims::{ClaimError, ClaimResult, DeviceOrder, OrderStage},
    inventory::lookup::DeviceKey,
};

/// `?timeout=60s` beside an order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrderQuery {
    #[serde(default = "order_timeout", with = "duration")]
    timeout: Duration,
}

fn order_timeout() -> Duration {
    ORDER_TIMEOUT
}

/// Brings a device into service for all claims, or takes it out of the system.
pub(super) async fn operate(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
    Query(OrderQuery { timeout }): Query<OrderQuery>,
    Extension(call): Extension<CallInFlight>,
    headers: HeaderMap,
    Json(operation): Json<DeviceOperation>,
) -> Result<Response, AdminFailure> {
    if timeout > LONGEST_ORDER_TIMEOUT {
        let error = format!("an order waits at most {}", duration::format(LONGEST_ORDER_TIMEOUT));
        return Err(AdminFailure(StatusCode::BAD_REQUEST, error));
    }
    let key = admin.device(&name)?;
    let (backend, device) = key.clone();
    let stage_rx = admin.0.claims.order(DeviceOrder { backend, device, operation, patience: timeout });
    if headers.get(ACCEPT).is_some_and(|accepted| accepted == ORDER_LINES) {
        return Ok(lines(key, stage_rx, call));
    }
    let operated = ended(stage_rx).await.map(|outcome| operated(&key, &outcome));
    Ok(Json(operated.map_err(|error| AdminFailure::new(refused(&error), &*error))?).into_response())
}

/// Returns what an order would do, or why it would be refused.
pub(super) async fn rehearse(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
    Json(operation): Json<DeviceOperation>,
) -> Result<Json<AdminOperated>, AdminFailure> {
    let key = admin.device(&name)?;
    let (backend, device) = key.clone();
    let outcome = admin.0.claims.rehearse(backend, device, operation).await;
    outcome.map(|outcome| Json(operated(&key, &outcome))).map_err(|error| AdminFailure::new(refused(&error), &*error))
}

/// Waits for the outcome of the order.
async fn ended(mut stage_rx: watch::Receiver<OrderStage>) -> ClaimResult<OperationOutcome> {
    match stage_rx.wait_for(|stage| matches!(stage, OrderStage::Ended(_))).await.as_deref() {
        Ok(OrderStage::Ended(result)) => result.clone(),
        // The order is gone without a word, and so is the daemon.
        _ => Err(ClaimError::Stopping.into()),
    }
}

/// Streams a line for each stage from now on. A slow reader misses stages that are over. The daemon does not stop
/// before the last.
fn lines(key: DeviceKey, stage_rx: watch::Receiver<OrderStage>, call: CallInFlight) -> Response {
    let lines = WatchStream::from_changes(stage_rx).map(move |stage| {
        let _in_flight = &call;
        Ok::<Bytes, Infallible>(in_one_line(&line(&key, stage)))
    });
    ([(CONTENT_TYPE, ORDER_LINES)], Body::from_stream(lines)).into_response()
}

fn in_one_line(line: &AdminOrderLine) -> Bytes {
    // Numbers and text alone: this cannot fail.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

fn line(key: &DeviceKey, stage: OrderStage) -> AdminOrderLine {
    match stage {
        OrderStage::Waiting(obstacles) => {
            AdminOrderLine::Waiting { obstacles: obstacles.iter().map(ToString::to_string).collect() }
        }
        OrderStage::UnderWay => AdminOrderLine::UnderWay,
        OrderStage::Scanned => AdminOrderLine::Scanned,
        OrderStage::Ended(Ok(outcome)) => AdminOrderLine::Done(operated(key, &outcome)),
        OrderStage::Ended(Err(error)) => {
            AdminOrderLine::Failed { status: refused(&error).as_u16(), error: Chain(&*error).to_string() }
        }
    }
}

fn operated((backend, device): &DeviceKey, outcome: &OperationOutcome) -> AdminOperated {
    AdminOperated { backend: backend.to_string(), device: device.to_string(), done: outcome.to_string() }
}

fn refused(error: &ClaimError) -> StatusCode {
    match error {
        ClaimError::NoSuchDevice { .. } | ClaimError::NotAttached { .. } => StatusCode::NOT_FOUND,
        ClaimError::Stopping | ClaimError::UnknownPool { .. } => StatusCode::SERVICE_UNAVAILABLE,
        ClaimError::Held { .. }
        | ClaimError::OrderTimedOut { .. }
        | ClaimError::Backend { source: BackendError::Refused { .. } | BackendError::Operation(_), .. } => {
            StatusCode::CONFLICT
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
