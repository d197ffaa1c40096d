//! Several calls at once, without tasks of their own: they end when the caller is dropped.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

/// Runs the futures, at most `most` at once, and returns their results in the same order. The first error ends all. A
/// future is taken from the iterator when it is to run: thousands that wait would be megabytes.
pub(super) async fn all<T, E, F>(futures: impl Iterator<Item = F>, most: usize) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut waiting = futures.fuse();
    // As many as there will be: a list that grows has room for four, and most of these have one and are kept.
    let mut results: Vec<Option<T>> = Vec::with_capacity(waiting.size_hint().0);
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    poll_fn(|context| {
        loop {
            while running.len() < most.max(1) {
                let Some(future) = waiting.next() else { break };
                running.push((results.len(), Box::pin(future)));
                results.push(None);
            }
            if running.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let before = running.len();
            let mut at = 0;
            while at < running.len() {
                match running[at].1.as_mut().poll(context) {
                    Poll::Pending => at += 1,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(value)) => {
                        let (place, _) = running.swap_remove(at);
                        results[place] = Some(value);
                    }
                }
            }
            // Where one has ended the next ones are begun, and polled: without that, nothing would wake this future for them.
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await?;
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn results_keep_their_order_and_only_so_many_run_at_once() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let futures = (0..20_u64).map(|at| {
            let (running, most) = (&running, &most);
            async move {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                tokio::time::sleep(Duration::from_millis(100 - at)).await;
                running.set(running.get() - 1);
                Ok::<u64, ()>(at)
            }
        });
        assert_eq!(all(futures, 4).await.unwrap(), (0..20).collect::<Vec<u64>>());
        assert_eq!(most.get(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_error_ends_all() {
        let futures = (0..3).map(|at| async move {
            if at == 1 {
                return Err(at);
            }
            std::future::pending::<()>().await;
            Ok(())
        });
        assert_eq!(all::<(), _, _>(futures, 3).await, Err(1));
        assert_eq!(all(std::iter::empty::<std::future::Ready<Result<(), ()>>>(), 3).await, Ok(Vec::new()));
    }
}
