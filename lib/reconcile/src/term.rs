//! The time in which this process leads, for every part that writes only then.

use std::sync::Arc;

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{Leadership, Observed};

/// Returns the moment until which this process leads, if it does.
pub fn leads_until(leadership_rx: &mut watch::Receiver<Leadership>) -> Option<Instant> {
    let leadership = leadership_rx.borrow_and_update();
    leadership.until.filter(|_| leadership.is_ours(Instant::now().into_std())).map(Instant::from_std)
}

/// Waits until this process leads and everything is observed. `rest` is called each time that it is not so yet.
pub async fn wait_to_lead<V: Observed>(
    leadership_rx: &mut watch::Receiver<Leadership>,
    view_rx: &mut watch::Receiver<Arc<V>>,
    mut rest: impl FnMut(),
) {
    loop {
        let is_complete = view_rx.borrow_and_update().is_complete();
        if leads_until(leadership_rx).is_some() && is_complete {
            return;
        }
        rest();
        tokio::select! {
            // Both are cancel safe: a change is looked at in the next round. They end with the process.
            Ok(()) = leadership_rx.changed() => {}
            Ok(()) = view_rx.changed() => {}
            else => std::future::pending::<()>().await,
        }
    }
}

/// Waits until this process does not lead any more. Cancel safe.
pub async fn lead_ended(leadership_rx: &mut watch::Receiver<Leadership>) {
    while let Some(until) = leads_until(leadership_rx) {
        tokio::select! {
            // Cancel safe: it only waits.
            () = sleep_until(until) => {}
            // Cancel safe: a change is looked at in the next round.
            _ = leadership_rx.changed() => {}
        }
    }
}

/// Waits for a moment; for ever where there is none.
pub async fn reach(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
