//! Counts of devices by state, and of the amounts that shared devices offer.

use serde::{Deserialize, Serialize, Serializer};

use super::DeviceState;
use crate::Quantity;

/// Devices by state. A device in no state named here is free.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "WrittenCounts", into = "WrittenCounts")]
pub struct DeviceCounts {
    /// All devices.
    pub capacity: u32,
    /// Devices that work and are in service, allocated or not.
    pub allocatable: u32,
    /// Devices that claims have. A shared device counts once no part of it can be allocated any more.
    pub allocated: u32,
    /// Devices that are kept for a holder that does not have them yet.
    pub held: u32,
    /// Devices that no claim has and that do not work.
    pub unhealthy: u32,
    /// Devices that no claim has and that are out of service.
    pub drained: u32,
    /// Devices that no claim has and of which it is not known whether they work.
    pub unknown: u32,
    /// Devices that no claim has, blocked by devices that other claims have.
    pub blocked: u32,
}

/// Devices by state, each state named: sums of all counts, for people and for columns.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTotals {
    /// All devices.
    pub capacity: u32,
    /// Devices that work and are in service, allocated or not.
    pub allocatable: u32,
    /// Devices that claims have.
    pub allocated: u32,
    /// Devices that are kept for a holder that does not have them yet.
    pub held: u32,
    /// Devices that no claim has and that do not work.
    pub unhealthy: u32,
    /// Devices that no claim has and that are out of service.
    pub drained: u32,
    /// Devices that no claim has and of which it is not known whether they work.
    pub unknown: u32,
    /// Devices that no claim has, blocked by devices that other claims have.
    pub blocked: u32,
    /// Devices that any claim can be given.
    pub free: u32,
}

/// Amounts of one capacity of shared devices.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "WrittenAmounts", into = "WrittenAmounts")]
pub struct AmountCounts {
    /// Amount of all devices.
    pub capacity: Quantity,
    /// Amount on devices that work and are in service.
    pub allocatable: Quantity,
    /// Amount that claims have.
    pub allocated: Quantity,
    /// Amount that can still be allocated. Less than the rest where devices are out of service or claims keep others
    /// away.
    pub free: Quantity,
}

// Thousands of objects have dozens of these rows: usual values are left out.

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenCounts {
    /// All devices.
    capacity: u32,
    /// Devices that work and are in service, allocated or not. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocatable: Option<u32>,
    /// Devices that claims have. A shared device counts once no part of it can be allocated any more. Absent: none.
    #[serde(default, skip_serializing_if = "is_none")]
    allocated: u32,
    /// Devices that are kept for a holder that does not have them yet. Absent: none.
    #[serde(default, skip_serializing_if = "is_none")]
    held: u32,
    /// Devices that no claim has and that do not work. Absent: none.
    #[serde(default, skip_serializing_if = "is_none")]
    unhealthy: u32,
    /// Devices that no claim has and that are out of service. Absent: none.
    #[serde(default, skip_serializing_if = "is_none")]
    drained: u32,
    /// Devices that no claim has and of which it is not known whether they work. Absent: none.
    #[serde(default, skip_serializing_if = "is_none")]
    unknown: u32,
    /// Devices that no claim has, blocked by devices that other claims have. Absent: none.
    #[serde(default, skip_serializing_if = "is_none")]
    blocked: u32,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenAmounts {
    /// Amount of all devices.
    #[serde(serialize_with = "readable")]
    capacity: Quantity,
    /// Amount on devices that work and are in service. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "readable_option")]
    allocatable: Option<Quantity>,
    /// Amount that claims have. Absent: nothing.
    #[serde(default, skip_serializing_if = "is_nothing", serialize_with = "readable")]
    allocated: Quantity,
    /// Amount that can still be allocated. Absent: nothing.
    #[serde(default, skip_serializing_if = "is_nothing", serialize_with = "readable")]
    free: Quantity,
}

impl From<WrittenCounts> for DeviceCounts {
    fn from(written: WrittenCounts) -> Self {
        let WrittenCounts { capacity, allocatable, allocated, held, unhealthy, drained, unknown, blocked } = written;
        let allocatable = allocatable.unwrap_or(capacity);
        Self { capacity, allocatable, allocated, held, unhealthy, drained, unknown, blocked }
    }
}

impl From<DeviceCounts> for WrittenCounts {
    fn from(counts: DeviceCounts) -> Self {
        let DeviceCounts { capacity, allocatable, allocated, held, unhealthy, drained, unknown, blocked } = counts;
        let allocatable = (allocatable != capacity).then_some(allocatable);
        Self { capacity, allocatable, allocated, held, unhealthy, drained, unknown, blocked }
    }
}

impl From<WrittenAmounts> for AmountCounts {
    fn from(written: WrittenAmounts) -> Self {
        let WrittenAmounts { capacity, allocatable, allocated, free } = written;
        Self { capacity, allocatable: allocatable.unwrap_or(capacity), allocated, free }
    }
}

impl From<AmountCounts> for WrittenAmounts {
    fn from(counts: AmountCounts) -> Self {
        let AmountCounts { capacity, allocatable, allocated, free } = counts;
        Self { capacity, allocatable: (allocatable != capacity).then_some(allocatable), allocated, free }
    }
}

/// `128Gi`: shorter than the digits, and people read it.
fn readable<S: Serializer>(amount: &Quantity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&amount.human())
}

fn readable_option<S: Serializer>(amount: &Option<Quantity>, serializer: S) -> Result<S::Ok, S::Error> {
    readable(&amount.unwrap_or_default(), serializer)
}

fn is_nothing(amount: &Quantity) -> bool {
    amount.is_zero()
}

/// Adds without overflow: counts that others wrote can be any number, and distort only their own sum.
fn add(sum: &mut u32, count: u32) {
    *sum = sum.saturating_add(count);
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

impl DeviceCounts {
    /// Counts one more device.
    pub fn add(&mut self, state: DeviceState, is_allocatable: bool) {
        self.capacity += 1;
        self.allocatable += u32::from(is_allocatable);
        match state {
            DeviceState::Allocated => self.allocated += 1,
            DeviceState::Held => self.held += 1,
            DeviceState::Unhealthy => self.unhealthy += 1,
            DeviceState::Drained => self.drained += 1,
            DeviceState::Unknown => self.unknown += 1,
            DeviceState::Blocked => self.blocked += 1,
            DeviceState::Free => {}
        }
    }

    /// Devices that any claim can be given: all that are in no other state.
    pub fn free(&self) -> u32 {
        let taken = [self.allocated, self.held, self.unhealthy, self.drained, self.unknown, self.blocked];
        self.capacity.saturating_sub(taken.into_iter().fold(0, u32::saturating_add))
    }
}

impl DeviceTotals {
    /// Adds the counts of another row.
    pub fn add(&mut self, counts: &DeviceCounts) {
        add(&mut self.capacity, counts.capacity);
        add(&mut self.allocatable, counts.allocatable);
        add(&mut self.allocated, counts.allocated);
        add(&mut self.held, counts.held);
        add(&mut self.unhealthy, counts.unhealthy);
        add(&mut self.drained, counts.drained);
        add(&mut self.unknown, counts.unknown);
        add(&mut self.blocked, counts.blocked);
        add(&mut self.free, counts.free());
    }

    /// Number of devices in a state.
    pub fn in_state(&self, state: DeviceState) -> u32 {
        match state {
            DeviceState::Allocated => self.allocated,
            DeviceState::Held => self.held,
            DeviceState::Unhealthy => self.unhealthy,
            DeviceState::Drained => self.drained,
            DeviceState::Unknown => self.unknown,
            DeviceState::Blocked => self.blocked,
            DeviceState::Free => self.free,
        }
    }
}

impl AmountCounts {
    /// Adds the amounts of another row.
    pub fn add(&mut self, other: &Self) {
        self.capacity = self.capacity.plus(other.capacity);
        self.allocatable = self.allocatable.plus(other.allocatable);
        self.allocated = self.allocated.plus(other.allocated);
        self.free = self.free.plus(other.free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_is_in_one_state() {
        let mut counts = DeviceCounts::default();
        for state in DeviceState::ALL {
            counts.add(state, state == DeviceState::Free);
        }
        let mut totals = DeviceTotals::default();
        totals.add(&counts);
        assert_eq!((totals.capacity, totals.allocatable), (7, 1));
        for state in DeviceState::ALL {
            assert_eq!(totals.in_state(state), 1, "{state}");
        }
    }

    #[test]
    fn counts_that_others_wrote_never_leave_more_free_than_there_is() {
        let counts = DeviceCounts { capacity: 2, allocated: u32::MAX, held: 3, ..DeviceCounts::default() };
        assert_eq!(counts.free(), 0);
    }

    #[test]
    fn absurd_counts_end_at_the_largest_number() {
        let absurd = DeviceCounts { capacity: u32::MAX, allocated: u32::MAX, ..DeviceCounts::default() };
        let mut totals = DeviceTotals::default();
        totals.add(&absurd);
        totals.add(&absurd);
        assert_eq!((totals.capacity, totals.allocated, totals.free), (u32::MAX, u32::MAX, 0));
    }

    #[test]
    fn what_is_usual_is_not_written() {
        let usual = DeviceCounts { capacity: 2, allocatable: 2, held: 1, ..DeviceCounts::default() };
        for (counts, expected) in [
            (usual, r#"{"capacity":2,"held":1}"#),
            (DeviceCounts { allocatable: 0, ..usual }, r#"{"capacity":2,"allocatable":0,"held":1}"#),
        ] {
            let text = serde_json::to_string(&counts).unwrap();
            assert_eq!(text, expected);
            assert_eq!(serde_json::from_str::<DeviceCounts>(&text).unwrap(), counts);
        }
    }

    #[test]
    fn amounts_come_back_as_they_were_written() {
        let gib = |gib: u64| Quantity::whole(gib << 30);
        let amounts =
            AmountCounts { capacity: gib(128), allocatable: gib(128), free: gib(127), ..AmountCounts::default() };
        let text = serde_json::to_string(&amounts).unwrap();
        assert_eq!(text, r#"{"capacity":"128Gi","free":"127Gi"}"#);
        assert_eq!(serde_json::from_str::<AmountCounts>(&text).unwrap(), amounts);
    }
}
