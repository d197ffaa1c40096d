//! Sets of devices of a node, as bits.

/// A set of devices, by their index among those of a node. Most nodes have few, and a search has many sets: those of the
/// first 64 devices need no memory of their own.
#[derive(Clone, Debug)]
pub(super) struct DeviceBits {
    first: u64,
    rest: Box<[u64]>,
}

impl DeviceBits {
    /// Makes an empty set for this number of devices.
    pub(super) fn none(devices: usize) -> Self {
        Self { first: 0, rest: vec![0; devices.div_ceil(64).saturating_sub(1)].into() }
    }

    pub(super) fn has(&self, device: usize) -> bool {
        let bits = if device < 64 { self.first } else { self.rest[device / 64 - 1] };
        bits & (1 << (device % 64)) != 0
    }

    pub(super) fn insert(&mut self, device: usize) {
        *self.bits(device) |= 1 << (device % 64);
    }

    pub(super) fn remove(&mut self, device: usize) {
        *self.bits(device) &= !(1 << (device % 64));
    }

    fn bits(&mut self, device: usize) -> &mut u64 {
        if device < 64 { &mut self.first } else { &mut self.rest[device / 64 - 1] }
    }
}
