//! The time in which this process leads, for everybody who does something only then.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

use crate::{lead::Leadership, view::ClusterView};

/// Until when this process leads, if it does.
pub(crate) fn until(leadership_rx: &mut watch::Receiver<Leadership>) -> Option<Instant> {
    let leadership = leadership_rx.borrow_and_update();
    leadership.until.filter(|_| leadership.is_ours(Instant::now().into_std())).map(Instant::from_std)
}

/// Waits until this process leads, and everything is known. `rest` is called each time that it is not so yet.
pub(crate) async fn wait(
    leadership_rx: &mut watch::Receiver<Leadership>,
    view_rx: &mut watch::Receiver<Arc<ClusterView>>,
    mut rest: impl FnMut(),
) {
    loop {
        let is_known = view_rx.borrow_and_update().missing().is_empty();
        if until(leadership_rx).is_some() && is_known {
            return;
        }
        rest();
        tokio::select! {
            // Both are cancel safe: what has changed is looked at in the next round. They end with the process.
            Ok(()) = leadership_rx.changed() => {}
            Ok(()) = view_rx.changed() => {}
            else => std::future::pending::<()>().await,
        }
    }
}
