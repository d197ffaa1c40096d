//! Updates that the runtime is asked for: in batches, one at a time; those that fail are found out one by one. Pure.
//!
//! A runtime answers with an error as soon as one container of a batch fails, and does not say which. So a batch that
//! failed is halved, until the failing container stands alone; the others are served by then. The failing one
//! is tried again later, for as long as it lives.

use std::{collections::VecDeque, time::Duration};

use hostler_proto::nri::{UpdateContainersRequest, UpdateContainersResponse};
use tokio::time::Instant;

use super::known::KnownContainers;
use crate::pinning::Pins;

/// Containers in one request. A runtime needs some 20 ms for each and does nothing else meanwhile: a container that is
/// to be started waits a second at most.
const BATCH: usize = 50;

/// Time for a batch. A runtime needs a second; it may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Updates to be asked for, and the ones that have been.
#[derive(Debug, Default)]
pub(super) struct UpdateQueue {
    batches: VecDeque<Vec<String>>,
    in_flight: Option<RequestedUpdates>,
}

/// Updates that the runtime was asked for.
#[derive(Debug)]
struct RequestedUpdates {
    stream: u32,
    pins: Vec<(String, Pins)>,
    until: Instant,
}

impl UpdateQueue {
    /// Returns the next request, unless one is on its way or nothing is due; `stream` is its number.
    pub(super) fn next(
        &mut self,
        known: &KnownContainers,
        stream: u32,
        now: Instant,
    ) -> Option<UpdateContainersRequest> {
        if self.in_flight.is_some() {
            return None;
        }
        if self.batches.is_empty() {
            self.batches = known.due(now).chunks(BATCH).map(<[String]>::to_vec).collect();
        }
        while let Some(batch) = self.batches.pop_front() {
            // A container that has changed since it was queued is told of as it is now; one that needs no update is
            // not.
            let updates =
                batch.into_iter().filter_map(|id| known.update(&id).map(|(pins, update)| ((id, pins), update)));
            let (pins, update): (Vec<_>, Vec<_>) = updates.unzip();
            if !update.is_empty() {
                self.in_flight = Some(RequestedUpdates { stream, pins, until: now + PATIENCE });
                return Some(UpdateContainersRequest { update, evict: Vec::new() });
            }
        }
        None
    }

    /// Returns when the awaited answer is overdue.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.in_flight.as_ref().map(|requested| requested.until)
    }

    /// Returns the call whose answer is awaited.
    pub(super) fn awaited(&self) -> Option<u32> {
        self.in_flight.as_ref().map(|requested| requested.stream)
    }

    /// Takes the answer, and returns how many containers could not be updated.
    pub(super) fn answered(
        &mut self,
        outcome: Result<UpdateContainersResponse, String>,
        known: &mut KnownContainers,
        now: Instant,
    ) -> usize {
        let Some(RequestedUpdates { pins, .. }) = self.in_flight.take() else { return 0 };
        match outcome {
            Ok(response) => {
                let failed = |id: &String| response.failed.iter().any(|failed| failed.container_id == *id);
                let (failed, done): (Vec<_>, Vec<_>) = pins.into_iter().partition(|(id, _)| failed(id));
                done.iter().for_each(|(id, pins)| known.told(id, pins));
                failed.iter().for_each(|(id, _)| known.failed(id, "the runtime could not do it", now));
                failed.len()
            }
            Err(error) if pins.len() == 1 => {
                pins.iter().for_each(|(id, _)| known.failed(id, &error, now));
                1
            }
            Err(_) => {
                let ids: Vec<String> = pins.into_iter().map(|(id, _)| id).collect();
                let (first, second) = ids.split_at(ids.len() / 2);
                self.batches.push_front(second.to_vec());
                self.batches.push_front(first.to_vec());
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nri::testing::{UID_A, facts, known_with};

    fn ids(request: &UpdateContainersRequest) -> Vec<&str> {
        request.update.iter().map(|update| update.container_id.as_str()).collect()
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("c{number:03}")).collect()
    }

    #[tokio::test]
    async fn all_that_are_due_are_asked_for_in_batches_one_at_a_time() {
        let now = Instant::now();
        let (mut known, mut queue) =
            (known_with(&names(120), &facts("0-7", &[(UID_A, &["2-3"])])), UpdateQueue::default());
        let mut asked = Vec::new();
        while let Some(request) = queue.next(&known, 3, now) {
            assert_eq!(queue.next(&known, 5, now), None, "one is on its way");
            assert!(request.update.iter().all(|update| {
                let cpu = update.linux.as_ref().unwrap().resources.as_ref().unwrap().cpu.as_ref().unwrap();
                (&*cpu.cpus, &*cpu.mems) == ("1,4-7", "")
            }));
            asked.push(request.update.len());
            assert_eq!(queue.answered(Ok(UpdateContainersResponse::default()), &mut known, now), 0);
        }
        assert_eq!(asked, [50, 50, 20]);
    }

    #[tokio::test]
    async fn one_container_that_fails_is_found_and_the_others_are_served() {
        let mut now = Instant::now();
        let (mut known, mut queue) = (known_with(&names(100), &facts("0-7", &[])), UpdateQueue::default());
        let (mut requests, mut failed) = (0, 0);
        while let Some(request) = queue.next(&known, 3, now) {
            requests += 1;
            let outcome = match ids(&request).contains(&"c042") {
                true => Err("failed".to_owned()),
                false => Ok(UpdateContainersResponse::default()),
            };
            failed += queue.answered(outcome, &mut known, now);
        }
        assert_eq!((failed, known.due(now).len()), (1, 0), "it is not tried again at once");
        assert!(requests < 20, "{requests}");
        now = known.next_retry().unwrap();
        assert_eq!(known.due(now), ["c042"], "but it is tried again");
    }

    #[tokio::test]
    async fn what_is_not_wanted_any_more_is_not_asked_for() {
        let now = Instant::now();
        let (mut known, mut queue) = (known_with(&names(60), &facts("0-7", &[])), UpdateQueue::default());
        assert_eq!(queue.next(&known, 3, now).unwrap().update.len(), 50);
        queue.answered(Ok(UpdateContainersResponse::default()), &mut known, now);
        names(60).iter().for_each(|id| known.ended(id));
        assert_eq!(queue.next(&known, 5, now), None);
    }
}
