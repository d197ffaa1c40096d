//! Questions about the cluster, for people and programs with a token. docs/controller-api.md describes the questions
//! and the answers.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{FromRequestParts, Path, Query, State, rejection::QueryRejection},
    http::{
        HeaderMap,
        header::{CACHE_CONTROL, CONTENT_TYPE},
        request::Parts,
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hostler_process::Tasks;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::timeout,
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use super::{
    ServeState,
    access::{AccessGuard, Visitor, bearer},
    changes::{GridBoard, GridFollower},
    fits::fits,
    grid::GridQuery,
    machine::machine,
    places::{VisitorPlace, VisitorPlaces},
    plans::plans,
    problem::ApiProblem,
    read_right::ReadRight,
};
use crate::{
    availability::{Availability, AvailabilityBy},
    pooled::{FabricAnswer, ShownDevices},
    view::ClusterView,
};

/// The most questions at once, of all visitors and of one. A page asks three at a time.
const CALLS: (usize, usize) = (256, 16);
/// The most questions that need planning, of all visitors and of one, including those that wait.
const QUESTIONS: (usize, usize) = (8, 2);
/// The most streams of changes, of all visitors and of one: a page has one, and a visitor may have several pages open.
const STREAMS: (usize, usize) = (128, 12);
/// The most planner threads. Each question has a box of time: the next one waits for one box at most, which is less
/// than its turn may take.
const PLANNERS: usize = 2;
/// The longest wait for a planner thread: a question that waits for longer is better asked again.
const PLANNER_TURN: Duration = Duration::from_secs(10);
/// The most KiB of pasted pods and claims: what people paste has a few kilobytes.
const MOST_PASTED_KIB: usize = 256;
/// The most KiB of manifests to plan: folders that people keep for a cluster. Captured nodes have more, and are planned
/// by the client.
const MOST_PLANNED_KIB: usize = 8 << 10;
/// Time for the whole body of a question.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Parts that questions are answered from.
#[derive(Clone, Debug)]
pub(super) struct ApiState {
    view_rx: watch::Receiver<Arc<ClusterView>>,
    guard: AccessGuard,
    calls: VisitorPlaces,
    questions: VisitorPlaces,
    streams: VisitorPlaces,
    planners: Arc<Semaphore>,
    board: GridBoard,
    tasks: Tasks,
}

/// The routes.
pub(super) fn routes(state: &ServeState) -> Router {
    let state = ApiState {
        view_rx: state.view_rx.clone(),
        guard: AccessGuard::new(state.client.clone()),
        calls: VisitorPlaces::new(CALLS.0, CALLS.1),
        questions: VisitorPlaces::new(QUESTIONS.0, QUESTIONS.1),
        streams: VisitorPlaces::new(STREAMS.0, STREAMS.1),
        board: GridBoard::start(state.view_rx.clone(), &state.tasks),
        planners: Arc::new(Semaphore::new(PLANNERS)),
        tasks: state.tasks.clone(),
    };
    Router::new()
        .route("/v1/access", get(access))
        .route("/v1/availability", get(availability))
        .route("/v1/nodes", get(nodes))
        .route("/v1/nodes/{name}", get(node))
        .route("/v1/changes", get(changes))
        .route("/v1/fabric", get(fabric))
        .route("/v1/fits", post(would_fit))
        .route("/v1/plans", post(plan))
        .with_state(state)
}

/// A visitor that asks, with a place among all visitors. A `Caller` cannot be printed: there is a token in it.
pub(super) struct Caller {
    pub(super) visitor: Arc<Visitor>,
    pub(super) token: String,
    _place: VisitorPlace,
}

impl FromRequestParts<ApiState> for Caller {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiProblem> {
        let token = bearer(&parts.headers).ok_or(ApiProblem::NoToken)?.to_owned();
        let visitor = state.guard.owner(&token).await?;
        let place = state.calls.take(&visitor.user)?;
        Ok(Self { visitor, token, _place: place })
    }
}

impl ApiState {
    /// The cluster's view, once the cluster is known.
    pub(super) fn view(&self) -> Result<Arc<ClusterView>, ApiProblem> {
        let view = self.view_rx.borrow().clone();
        let is_known = view.missing().is_empty();
        is_known.then_some(view).ok_or(ApiProblem::Busy("the cluster is still being read; try again"))
    }

    /// Computes an answer on a thread of its own, when it is the visitor's turn.
    async fn compute<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> Result<T, ApiProblem> + Send + 'static,
    ) -> Result<T, ApiProblem> {
        let place = self.questions.take(&caller.visitor.user)?;
        let turn = timeout(PLANNER_TURN, self.planners.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(ApiProblem::Busy("others' questions take long; try again")) };
        let work = move || {
            // The thread gives both back: a client that hangs up frees no place while its answer is still being
            // computed.
            let _kept = (place, turn);
            work()
        };
        let done = self.tasks.looking(work).await;
        done.map_err(|error| ApiProblem::Internal(format!("the answer could not be computed: {error}")))?
    }
}

/// Writes an answer that is only true now: no cache may keep it.
pub(super) fn answer<T: Serialize>(answer: T) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}

async fn access(caller: Caller) -> Response {
    answer(&*caller.visitor)
}

/// The subject of rows.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AvailabilityQuery {
    by: AvailabilityBy,
}

type Asked<Q> = Result<Query<Q>, QueryRejection>;

/// Parses the query of the address.
fn query<Q>(asked: Asked<Q>) -> Result<Q, ApiProblem> {
    asked.map(|Query(query)| query).map_err(|rejection| ApiProblem::BadQuestion(rejection.body_text()))
}

async fn availability(
    State(state): State<ApiState>,
    caller: Caller,
    asked: Asked<AvailabilityQuery>,
) -> Result<Response, ApiProblem> {
    caller.visitor.must(ReadRight::Nodes)?;
    let by = query(asked)?.by;
    if by == AvailabilityBy::Namespace {
        caller.visitor.must(ReadRight::Holders)?;
    }
    let view = state.view()?;
    let told = Availability::of(&view.stock, by);
    Ok(answer(if caller.visitor.reservations { told.with_names(&view.reservations) } else { told }))
}

async fn nodes(State(state): State<ApiState>, caller: Caller, asked: Asked<GridQuery>) -> Result<Response, ApiProblem> {
    caller.visitor.must(ReadRight::Nodes)?;
    let filter = query(asked)?.understood(&caller.visitor)?;
    state.view()?;
    Ok(answer(state.board.all(&filter)))
}

async fn node(State(state): State<ApiState>, caller: Caller, Path(name): Path<String>) -> Result<Response, ApiProblem> {
    caller.visitor.must(ReadRight::Nodes)?;
    Ok(answer(machine(&*state.view()?, &name, &caller.visitor)?))
}

/// The subject of an answer about devices behind switches.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FabricQuery {
    pool: Option<String>,
    devices: ShownDevices,
}

/// Answers about devices behind switches. Those that no FabricAttachment is about stand in slices alone.
async fn fabric(
    State(state): State<ApiState>,
    caller: Caller,
    asked: Asked<FabricQuery>,
) -> Result<Response, ApiProblem> {
    caller.visitor.must(ReadRight::Fabric)?;
    let FabricQuery { pool, devices } = query(asked)?;
    let view = state.view()?;
    let attachments = view.fabric.attachments.values().map(|object| &object.attachment);
    let slices = view.fabric.slices.values().filter(|_| caller.visitor.fits).map(|slice| &**slice);
    Ok(answer(FabricAnswer::of(attachments, slices).narrowed(pool.as_deref(), devices)))
}

/// Streams changes since the named event, or from the beginning.
async fn changes(
    State(state): State<ApiState>,
    caller: Caller,
    asked: Asked<GridQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    caller.visitor.must(ReadRight::Nodes)?;
    let filter = query(asked)?.understood(&caller.visitor)?;
    state.view()?;
    let last = headers.get("last-event-id").and_then(|mark| mark.to_str().ok());
    // One event is being sent while the next is made: a longer queue would only grow old.
    let (frames_tx, frames_rx) = mpsc::channel(1);
    let follower = GridFollower {
        since: last.and_then(|mark| state.board.revision_of(mark)),
        place: state.streams.take(&caller.visitor.user)?,
        board: state.board,
        filter,
        guard: state.guard,
        token: caller.token,
        frames_tx,
    };
    follower.start(&state.tasks);
    let frames = ReceiverStream::new(frames_rx).map(Ok::<_, std::convert::Infallible>);
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    // Proxies that collect a whole answer before they pass it on would pass nothing on.
    Ok((head, [("x-accel-buffering", "no")], Body::from_stream(frames)).into_response())
}

async fn would_fit(State(state): State<ApiState>, caller: Caller, body: Body) -> Result<Response, ApiProblem> {
    caller.visitor.must(ReadRight::Fits)?;
    let view = state.view()?;
    let text = text(body, MOST_PASTED_KIB).await?;
    Ok(answer(state.compute(&caller, move || fits(&view, text)).await?))
}

async fn plan(State(state): State<ApiState>, caller: Caller, body: Body) -> Result<Response, ApiProblem> {
    caller.visitor.must(ReadRight::Fits)?;
    let view = state.view()?;
    let request = text(body, MOST_PLANNED_KIB).await?;
    Ok(answer(state.compute(&caller, move || plans(&view, &request)).await?))
}

/// Reads the body, if it is not too large and comes in time.
async fn text(body: Body, most_kib: usize) -> Result<String, ApiProblem> {
    let bytes = timeout(BODY_TIME, to_bytes(body, most_kib << 10)).await.map_err(|_| ApiProblem::TooSlow)?;
    let bytes = bytes.map_err(|_| ApiProblem::TooLarge(most_kib))?;
    String::from_utf8(bytes.into()).map_err(|_| ApiProblem::Unusable(vec!["it is not UTF-8 text".to_owned()]))
}
