//! Changes of the grid, sent to followers as server-sent events. A follower has one number: its revision. So a slow
//! reader costs nothing, and one that comes back goes on where it was.
//!
//! ```text
//!   view ──► GridBoard: revisions ──► a job for each follower: news for it ──► one event at a time ──► its connection
//! ```

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::body::Bytes;
use hostler_process::Tasks;
use serde::Serialize;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    access::AccessGuard,
    grid::{GridAnswer, GridFilter},
    places::VisitorPlace,
    problem::ApiProblem,
    read_right::ReadRight,
    revisions::Revisions,
};
use crate::{stock::NodeSummary, view::ClusterView};

/// Pause between two events of one follower: ten pictures in a second look alive, and a storm of changes is ten events.
const BETWEEN_EVENTS: Duration = Duration::from_millis(100);
/// Pause between two checks that a follower may still follow; the answers are mostly remembered.
const LOOK: Duration = Duration::from_secs(1);
/// The longest silence: proxies cut connections on which nothing is sent for a minute or half of one.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// The time after which a follower that does not take an event counts as gone.
const SLOWEST: Duration = Duration::from_secs(10);

/// Rows of every node as last shown, with the revision of each change. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct GridBoard {
    view_rx: watch::Receiver<Arc<ClusterView>>,
    revisions: Arc<Mutex<Revisions<NodeSummary>>>,
    revision_rx: watch::Receiver<u64>,
    /// The mark of this run: revisions of another run mean nothing here.
    run: Arc<str>,
}

impl GridBoard {
    /// Keeps a board of every view, until the process stops.
    pub(super) fn start(view_rx: watch::Receiver<Arc<ClusterView>>, tasks: &Tasks) -> Self {
        let (revision_tx, revision_rx) = watch::channel(0);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let run = format!("{:x}", since_1970.as_nanos()).into();
        let board = Self { view_rx: view_rx.clone(), revisions: Arc::default(), revision_rx, run };
        let (revisions, stop) = (board.revisions.clone(), tasks.stop_token());
        let keep = async move {
            let mut view_rx = view_rx;
            loop {
                let view = view_rx.borrow_and_update().clone();
                let revision = {
                    let mut revisions = revisions.lock().unwrap_or_else(PoisonError::into_inner);
                    revisions.update(view.stock.nodes.iter()).then(|| revisions.revision())
                };
                if let Some(revision) = revision {
                    revision_tx.send_replace(revision);
                }
                if view_rx.changed().await.is_err() {
                    return;
                }
            }
        };
        tasks.job(async move {
            tokio::select! {
                // Dropped at the end only.
                () = keep => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => {}
            }
        });
        board
    }

    fn revisions(&self) -> MutexGuard<'_, Revisions<NodeSummary>> {
        self.revisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all nodes that the filter selects.
    pub(super) fn all(&self, filter: &GridFilter) -> GridAnswer {
        let (view, all) = (self.view_rx.borrow().clone(), self.revisions().all());
        filter.all(&all, &view, self.mark(all.revision))
    }

    fn mark(&self, revision: u64) -> String {
        format!("{}-{revision}", self.run)
    }

    /// Returns the revision that a mark stands for, if it is one of this run.
    pub(super) fn revision_of(&self, mark: &str) -> Option<u64> {
        mark.strip_prefix(&*self.run)?.strip_prefix('-')?.parse().ok()
    }
}

/// A client that follows changes.
pub(super) struct GridFollower {
    pub(super) board: GridBoard,
    pub(super) filter: GridFilter,
    pub(super) guard: AccessGuard,
    pub(super) token: String,
    /// The follower's revision; `None` if it has nothing yet.
    pub(super) since: Option<u64>,
    pub(super) frames_tx: mpsc::Sender<Bytes>,
    pub(super) place: VisitorPlace,
}

/// The end of following: the client has hung up, does not read, or lacks the right.
struct Left;

impl GridFollower {
    /// Sends changes until the client is gone or the process stops.
    pub(super) fn start(mut self, tasks: &Tasks) {
        let stop = tasks.stop_token();
        tasks.job(async move {
            tokio::select! {
                // Dropped at the end only.
                _ = self.follow() => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => {}
            }
            drop(self.place);
        });
    }

    async fn follow(&mut self) -> Result<(), Left> {
        let mut revision_rx = self.board.revision_rx.clone();
        let (mut looked, mut spoken) = (Instant::now(), Instant::now());
        // The client hears at once that this is a stream.
        self.send("retry: 1000\n: here\n\n".to_owned()).await?;
        loop {
            if looked.elapsed() >= LOOK {
                self.check().await?;
                looked = Instant::now();
            }
            revision_rx.mark_unchanged();
            if let Some(frame) = self.news() {
                self.send(frame).await?;
                spoken = Instant::now();
                sleep(BETWEEN_EVENTS).await;
                continue;
            }
            if spoken.elapsed() >= SIGN_OF_LIFE {
                self.send(": still here\n\n".to_owned()).await?;
                spoken = Instant::now();
            }
            tokio::select! {
                // Cancel safe: a change that was not seen still counts as one.
                changed = revision_rx.changed() => changed.map_err(|_| Left)?,
                // Cancel safe: the timer only waits.
                () = sleep(LOOK) => {}
                // Cancel safe: the channel is only watched.
                () = self.frames_tx.closed() => return Err(Left),
            }
        }
    }

    /// Returns an event with the follower's news, if there are any.
    fn news(&mut self) -> Option<String> {
        let view = self.board.view_rx.borrow().clone();
        let entries = self.since.and_then(|since| self.board.revisions().since(since));
        let Some(entries) = entries else {
            let all = self.board.revisions().all();
            self.since = Some(all.revision);
            let mark = self.board.mark(all.revision);
            return Some(event("grid", &mark, &self.filter.all(&all, &view, mark.clone())));
        };
        let is_new = self.since != Some(entries.revision);
        self.since = Some(entries.revision);
        let mark = self.board.mark(entries.revision);
        is_new.then(|| event("nodes", &mark, &self.filter.news(entries, &view)))
    }

    /// Ends a follower that lost its right, and tells the client if it still reads.
    async fn check(&mut self) -> Result<(), Left> {
        let Err(problem) = self.may_follow().await else { return Ok(()) };
        let words = serde_json::json!({ "message": problem.to_string() });
        self.send(event("end", "", &words)).await?;
        Err(Left)
    }

    async fn may_follow(&self) -> Result<(), ApiProblem> {
        let visitor = self.guard.owner(&self.token).await?;
        visitor.must(ReadRight::Nodes)?;
        if self.filter.is_of_holders() { visitor.must(ReadRight::Holders) } else { Ok(()) }
    }

    async fn send(&mut self, frame: String) -> Result<(), Left> {
        let sent = timeout(SLOWEST, self.frames_tx.send(frame.into())).await;
        sent.map_err(|_| Left)?.map_err(|_| Left)
    }
}

/// Writes an event. JSON has no line breaks of its own.
fn event(name: &str, mark: &str, data: &impl Serialize) -> String {
    let id = if mark.is_empty() { String::new() } else { format!("id: {mark}\n") };
    format!("event: {name}\n{id}data: {}\n\n", serde_json::to_string(data).unwrap_or_default())
}
