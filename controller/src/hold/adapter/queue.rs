//! The order in which calls are made: calls that devices wait for go before calls that only people wait for.

use std::collections::VecDeque;

use super::calls::HoldCall;
use crate::hold::HoldWrite;

/// Calls that are to be made, by rank; within a rank the first goes first.
///
/// Thousands of Reservations that come at once each need a finalizer and a status. The few that have devices do not
/// wait for them.
#[derive(Debug, Default)]
pub(super) struct CallQueue {
    ranks: [VecDeque<HoldCall>; 4],
}

impl CallQueue {
    pub(super) fn push(&mut self, call: HoldCall) {
        self.ranks[rank(&call)].push_back(call);
    }

    pub(super) fn pop(&mut self) -> Option<HoldCall> {
        self.ranks.iter_mut().find_map(VecDeque::pop_front)
    }
}

fn rank(call: &HoldCall) -> usize {
    match call {
        // All other calls wait for devices to be closed, and one write closes many devices.
        HoldCall::Write(write) if write.is_of_fences() => 0,
        HoldCall::Write(HoldWrite::Finalizers(..)) => 3,
        HoldCall::Write(HoldWrite::Status(_, status)) if status.devices.is_empty() => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use hostler_api::reservation::{ReservationStatus, ReservedDevice};

    use super::*;
    use crate::hold::WrittenReservation;

    #[test]
    fn those_that_have_devices_wait_for_no_crowd_that_has_none() {
        let written =
            |name: &str| WrittenReservation { name: name.to_owned(), uid: String::new(), version: String::new() };
        let status = |devices| ReservationStatus { devices, ..ReservationStatus::default() };
        let fences = || HoldWrite::NodeFences { node: "n".to_owned(), version: String::new(), fences: Vec::new() };
        let kept = HoldWrite::Status(written("kept"), Box::new(status(vec![ReservedDevice::default()])));
        let pending = |name| HoldWrite::Status(written(name), Box::default());
        let order = [fences(), kept, pending("1"), pending("2"), HoldWrite::Finalizers(written("3"), Vec::new())];
        let mut queue = CallQueue::default();
        for at in [4, 2, 1, 3, 0] {
            queue.push(HoldCall::Write(order[at].clone()));
        }
        let calls = std::iter::from_fn(|| queue.pop());
        let writes = calls.map(|call| if let HoldCall::Write(write) = call { write } else { panic!("{call:?}") });
        assert_eq!(writes.collect::<Vec<_>>(), order);
    }
}
