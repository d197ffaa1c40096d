//! Calls to the API server that are under way, and their answers.

use hostler_process::Tasks;
use tokio::sync::mpsc;

/// Runs calls beside each other, up to a number, and hands over their answers one by one. Answers of calls that are under way when the
/// pool is dropped are lost; the calls run to their end.
#[derive(Debug)]
pub struct CallPool<A> {
    tasks: Tasks,
    most: usize,
    under_way: usize,
    answers_tx: mpsc::Sender<A>,
    answers_rx: mpsc::Receiver<A>,
}

impl<A: Send + 'static> CallPool<A> {
    /// Returns an idle pool for at most `most` calls at a time.
    pub fn new(tasks: &Tasks, most: usize) -> Self {
        // Each call under way gives one answer: no call waits for a place in the channel.
        let (answers_tx, answers_rx) = mpsc::channel(most);
        Self { tasks: tasks.clone(), most, under_way: 0, answers_tx, answers_rx }
    }

    /// True if another call may begin.
    pub fn has_room(&self) -> bool {
        self.under_way < self.most
    }

    /// True if no call is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Begins a call. The caller has made sure that there is room and that this process leads.
    pub fn begin(&mut self, call: impl Future<Output = A> + Send + 'static) {
        self.under_way += 1;
        let answers_tx = self.answers_tx.clone();
        self.tasks.job(async move {
            // The pool may be gone by then.
            let _ = answers_tx.send(call.await).await;
        });
    }

    /// Waits for the next answer; for ever while no call is under way. Cancel safe.
    pub async fn answer(&mut self) -> A {
        // The pool holds a sender: the channel stays open.
        match self.answers_rx.recv().await {
            Some(answer) => {
                self.under_way -= 1;
                answer
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_pool_runs_so_many_calls_and_no_more_and_gives_every_answer_once() {
        let (tasks, _ended_rx) = Tasks::new();
        let mut pool = CallPool::new(&tasks, 2);
        let (first_tx, first_rx) = oneshot::channel::<()>();
        pool.begin(async move {
            let _ = first_rx.await;
            1
        });
        assert!(pool.has_room());
        pool.begin(async { 2 });
        assert!(!pool.has_room() && !pool.is_idle());
        assert_eq!(pool.answer().await, 2);
        assert!(pool.has_room());
        first_tx.send(()).unwrap();
        assert_eq!(pool.answer().await, 1);
        assert!(pool.is_idle());
    }
}
