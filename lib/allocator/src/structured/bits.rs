//! Sets of devices of a node, as bits.

/// A set of devices, by their index among those of a node.
#[derive(Clone, Debug)]
pub(super) struct DeviceBits(Box<[u64]>);

impl DeviceBits {
    /// Makes an empty set for this number of devices.
    pub(super) fn none(devices: usize) -> Self {
        Self(vec![0; devices.div_ceil(64)].into())
    }

    pub(super) fn has(&self, device: usize) -> bool {
        self.0[device / 64] & (1 << (device % 64)) != 0
    }

    pub(super) fn insert(&mut self, device: usize) {
        self.0[device / 64] |= 1 << (device % 64);
    }

    pub(super) fn remove(&mut self, device: usize) {
        self.0[device / 64] &= !(1 << (device % 64));
    }
}
