//! The task that owns the model: takes events one after the other, does what the model says, and shows readers a new view at
//! most every 50 ms.

use std::{sync::Arc, time::Duration};

use hostler_process::Tasks;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tracing::warn;

use crate::{
    model::{ClusterEvent, ClusterModel, ModelCommand},
    view::ClusterView,
};

/// Between two views. Far below what a person notices, and a storm of changes makes twenty of them in a second.
const BETWEEN_VIEWS: Duration = Duration::from_millis(50);

/// Owns the model until the process stops; gives what readers see.
pub(super) fn start(
    model: ClusterModel,
    events_rx: mpsc::Receiver<ClusterEvent>,
    tasks: &Tasks,
) -> watch::Receiver<Arc<ClusterView>> {
    let (view_tx, view_rx) = watch::channel(Arc::default());
    let owner = ModelOwner { model, view_tx, due: None, last: None };
    let stop = tasks.stop_token();
    tasks.service("model", async move {
        tokio::select! {
            // Dropped at the end only.
            () = owner.run(events_rx) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
    view_rx
}

struct ModelOwner {
    model: ClusterModel,
    view_tx: watch::Sender<Arc<ClusterView>>,
    /// When the next view is to be shown, if there is anything new.
    due: Option<Instant>,
    last: Option<Instant>,
}

impl ModelOwner {
    async fn run(mut self, mut events_rx: mpsc::Receiver<ClusterEvent>) {
        loop {
            let due = self.due;
            let moment = self.model.next_moment().map(Instant::from_std);
            tokio::select! {
                // A view that is due is not put off by ever more events.
                biased;
                // Cancel safe: it only waits.
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.publish(),
                // Cancel safe: it only waits.
                () = sleep_until(moment.unwrap_or_else(Instant::now)), if moment.is_some() => {
                    self.take(ClusterEvent::TimePassed);
                }
                // Cancel safe: an event that was not taken stays in the channel.
                event = events_rx.recv() => match event {
                    Some(event) => self.take(event),
                    None => return,
                },
            }
        }
    }

    fn take(&mut self, event: ClusterEvent) {
        let now = Instant::now();
        for command in self.model.step(now.into_std(), event) {
            match command {
                ModelCommand::Publish => {
                    self.due.get_or_insert(self.last.map_or(now, |last| now.max(last + BETWEEN_VIEWS)));
                }
                ModelCommand::TellPoisoned { object, reason } => {
                    warn!(object, reason, "an object cannot be understood and is left out");
                }
            }
        }
    }

    fn publish(&mut self) {
        (self.due, self.last) = (None, Some(Instant::now()));
        self.view_tx.send_replace(Arc::new(self.model.view()));
    }
}
