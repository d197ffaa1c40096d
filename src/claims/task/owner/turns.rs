//! Calls that wait for their turn. A request may name thousands of claims, and later requests must not wait for all
//! of them. So a request is taken in slices, and requests take turns.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use hostler_api::ClaimUid;

use super::ClaimCall;

/// Calls that are begun together at most: enough to share the durable writes of a large request.
const SLICE: usize = 64;
/// Calls that are begun together at least: each slice has durable writes of its own.
const SMALLEST: usize = 16;
/// Time that a turn may take before the next ones are shorter. A call costs more, the more claims hold devices.
const TURN: Duration = Duration::from_millis(10);

/// Requests with calls that have not begun.
pub(super) struct RequestTurns {
    requests: VecDeque<VecDeque<ClaimCall>>,
    /// Number of calls that wait on each claim.
    claims: BTreeMap<ClaimUid, usize>,
    /// Number of calls that a turn has now.
    slice: usize,
}

impl Default for RequestTurns {
    fn default() -> Self {
        Self { requests: VecDeque::new(), claims: BTreeMap::new(), slice: SLICE }
    }
}

impl RequestTurns {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Queues a request. Calls on one claim keep their order: a later call joins the request that has the claim.
    pub(super) fn add(&mut self, calls: Vec<ClaimCall>) {
        let mut request = VecDeque::with_capacity(calls.len());
        for call in calls {
            let waits = self.claims.entry(call.uid.clone()).or_default();
            *waits += 1;
            let is_behind = *waits > 1;
            let earlier = |request: &&mut VecDeque<ClaimCall>| request.iter().any(|earlier| earlier.uid == call.uid);
            match self.requests.iter_mut().find(|request| is_behind && earlier(request)) {
                Some(earlier) => earlier.push_back(call),
                None => request.push_back(call),
            }
        }
        if !request.is_empty() {
            self.requests.push_back(request);
        }
    }

    /// Takes the next slice; the rest of its request waits behind the others.
    pub(super) fn next(&mut self) -> Option<Vec<ClaimCall>> {
        let mut request = self.requests.pop_front()?;
        let slice: Vec<ClaimCall> = request.drain(..request.len().min(self.slice)).collect();
        if !request.is_empty() {
            self.requests.push_back(request);
        }
        for call in &slice {
            if let Some(waits) = self.claims.get_mut(&call.uid) {
                *waits -= 1;
                if *waits == 0 {
                    self.claims.remove(&call.uid);
                }
            }
        }
        Some(slice)
    }

    /// Notes how long a turn has taken.
    pub(super) fn took(&mut self, turn: Duration) {
        self.slice = if turn > TURN { (self.slice / 2).max(SMALLEST) } else { (self.slice * 2).min(SLICE) };
    }
}

#[cfg(test)]
mod tests {
    use super::{super::CallKind, *};
    use crate::claims::call::CallAnswers;

    fn request(names: impl IntoIterator<Item = String>) -> Vec<ClaimCall> {
        let mut answers = CallAnswers::new();
        names.into_iter().map(|name| answers.call(ClaimUid::new(name).unwrap(), CallKind::Unprepare)).collect()
    }

    fn uids(slice: Option<Vec<ClaimCall>>) -> Vec<String> {
        slice.unwrap_or_default().iter().map(|call| call.uid.to_string()).collect()
    }

    #[test]
    fn a_small_request_does_not_wait_for_a_large_one() {
        let mut turns = RequestTurns::default();
        turns.add(request((0..1000).map(|number| format!("large-{number}"))));
        assert_eq!(uids(turns.next()).len(), SLICE);
        turns.add(request(["small".to_owned()]));
        turns.next();
        assert_eq!(uids(turns.next()), ["small"]);
        let mut left = 0;
        while let Some(slice) = turns.next() {
            assert!(slice.len() <= SLICE);
            left += slice.len();
        }
        assert_eq!(left, 1000 - 2 * SLICE);
        assert!(turns.is_empty() && turns.claims.is_empty());
    }

    #[test]
    fn turns_that_take_long_become_shorter_and_longer_again() {
        let mut turns = RequestTurns::default();
        turns.add(request((0..1000).map(|number| format!("large-{number}"))));
        let mut lengths = Vec::new();
        for turn in [1, 1, 1, 0].map(|factor| 2 * factor * TURN) {
            lengths.push(uids(turns.next()).len());
            turns.took(turn);
        }
        assert_eq!(lengths, [64, 32, 16, 16]);
        assert_eq!(uids(turns.next()).len(), 32);
    }

    #[test]
    fn calls_on_one_claim_keep_their_order() {
        let mut turns = RequestTurns::default();
        turns.add(request((0..200).map(|number| format!("large-{number}"))));
        turns.add(request(["large-199".to_owned(), "other".to_owned()]));
        let slices = std::iter::from_fn(|| turns.next().map(|slice| uids(Some(slice))));
        let order: Vec<String> = slices.flatten().collect();
        assert_eq!(order.iter().filter(|uid| *uid == "large-199").count(), 2);
        assert_eq!(order.last().unwrap(), "large-199");
        assert_eq!(order.len(), 202);
    }
}
