//! Task of the audit: looks at containers every some seconds, and as soon as a program has written into the cgroup of
//! one.

use std::{sync::Arc, time::Duration};

use hostler_linux::write_watch::WriteWatch;
use tokio::{
    io::unix::AsyncFd,
    sync::{broadcast, watch},
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use super::{
    AuditNews, AuditParts, AuditTable, WaitingAudit,
    pass::{AuditLook, Auditor},
    pool::PoolAuditor,
};
use crate::tasks::{Outcome, Tasks};

/// Time for the writes of one change: a runtime's update is several.
const SETTLE: Duration = Duration::from_millis(50);

/// Least time between two passes, however often a program writes.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);

pub(super) fn start(waiting: WaitingAudit, tasks: &Tasks) {
    let stop = tasks.stop_token();
    let Some(period) = waiting.parts.period else {
        // Listeners are told nothing, which does not mean that there will never be news.
        tasks.service("audit", async move {
            stop.cancelled().await;
            drop(waiting);
            Ok(())
        });
        return;
    };
    let task = AuditTask::new(waiting, period, tasks);
    tasks.service("audit", async move {
        tokio::select! {
            // Dropped between passes or while one runs to its end on its own.
            outcome = task.run() => outcome,
            () = stop.cancelled() => Ok(()),
        }
    });
}

struct AuditTask {
    parts: AuditParts,
    period: Duration,
    table_tx: watch::Sender<Arc<AuditTable>>,
    news_tx: broadcast::Sender<Arc<AuditNews>>,
    tasks: Tasks,
    watch: Option<AsyncFd<WriteWatch>>,
}

impl AuditTask {
    fn new(waiting: WaitingAudit, period: Duration, tasks: &Tasks) -> Self {
        let WaitingAudit { parts, table_tx, news_tx } = waiting;
        #[expect(
            deprecated,
            reason = "what takes its place is unsafe, and this descriptor is the watch's own as long as it lives"
        )]
        let opened = WriteWatch::new(&parts.root, "cpuset.").and_then(AsyncFd::new);
        let watch = opened.inspect_err(|error| {
            warn!(error = %error, "writes into cgroups are noticed by the timed audit only");
        });
        Self { parts, period, table_tx, news_tx, tasks: tasks.clone(), watch: watch.ok() }
    }

    async fn run(mut self) -> Outcome {
        let AuditParts { root, containers, kubelet, metrics, .. } = &self.parts;
        let mut auditor = Auditor::new(root.clone(), containers.clone(), kubelet.clone(), metrics.clone());
        let mut pool = PoolAuditor::new(root.clone(), kubelet.clone(), metrics.clone());
        loop {
            let began = Instant::now();
            let (table, seen) = (self.parts.table_rx.borrow().clone(), self.parts.seen_rx.borrow().clone());
            let looking = self.tasks.blocking(move || {
                let now = std::time::Instant::now();
                pool.look(&table, &seen, now);
                let look = auditor.look(&table, now);
                (auditor, pool, look)
            });
            let (auditor_back, pool_back, look) = looking.await?;
            (auditor, pool) = (auditor_back, pool_back);
            self.tell(look);
            // Not sooner: a writer that never stops must not keep a core busy.
            sleep_until(began + SHORTEST_PERIOD).await;
            self.wait(began + self.period).await;
        }
    }

    fn tell(&mut self, look: AuditLook) {
        self.parts
            .metrics
            .audited(look.containers, look.table.remarks.values().flatten().filter(|remark| remark.degraded).count());
        if let Some(watch) = &mut self.watch {
            let unwatched = watch.get_mut().watch(&look.folders);
            if unwatched > 0 {
                info!(unwatched, "more cgroups than are watched: the others are looked at by the timed audit only");
            }
        }
        for news in look.news {
            // There is no listener without an API server.
            let _ = self.news_tx.send(Arc::new(news));
        }
        self.table_tx.send_if_modified(|table| {
            let changed = **table != look.table;
            if changed {
                *table = Arc::new(look.table);
            }
            changed
        });
    }

    /// Waits for the next pass's time or for a write.
    async fn wait(&self, due: Instant) {
        tokio::select! {
            // Cancel safe: it only waits.
            () = sleep_until(due) => {}
            // Cancel safe: what was not taken is still to be read.
            () = written(self.watch.as_ref()) => tokio::time::sleep(SETTLE).await,
        }
    }
}

/// Returns when a program has written into a cgroup that is watched.
async fn written(watch: Option<&AsyncFd<WriteWatch>>) {
    let Some(watch) = watch else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = watch.readable().await else { return std::future::pending().await };
        match ready.get_inner().take() {
            Ok(true) => return,
            Ok(false) => ready.clear_ready(),
            Err(_) => return std::future::pending().await,
        }
    }
}
