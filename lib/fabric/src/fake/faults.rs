//! Faults of the fabric in memory.

use std::time::Duration;

use hostler_api::fabric::DeviceIdentity;

use crate::{AttachPlan, FabricInventory, InventoryParts, ObjectPath};

/// A way to fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FabricFault {
    /// Every call takes so long.
    Slow(Duration),
    /// The next calls find nothing that answers, and change nothing.
    Unavailable(u32),
    /// The next changes are made, and their answers are lost.
    AnswerLost(u32),
    /// The next chunks are made, and the calls end without an answer before anything is connected.
    MemoryAnswerLost(u32),
    /// Chunks are made with this size at most.
    SmallMemory(u64),
    /// Attachments take another free device than was asked for.
    WrongDevice,
    /// A device is offline in every second inventory.
    FlappingLink(DeviceIdentity),
    /// The inventory shows every device twice.
    Contradiction,
    /// Attachments are under way until their state was read so often.
    Pending(u32),
    /// Attachments are under way until [`finish`](super::FakeFabric::finish).
    NeverEnds,
}

/// The faults that are set.
#[derive(Debug, Default)]
pub(super) struct FaultTable {
    pub(super) slow: Duration,
    unavailable: u32,
    lost: u32,
    memory_lost: u32,
    most_bytes: Option<u64>,
    is_wrong: bool,
    flapping: Option<DeviceIdentity>,
    is_down: bool,
    contradicts: bool,
    /// The reads until an attachment ends; `Some(None)`: it never does.
    pub(super) pending: Option<Option<u32>>,
}

impl FaultTable {
    pub(super) fn inject(&mut self, fault: FabricFault) {
        match fault {
            FabricFault::Slow(time) => self.slow = time,
            FabricFault::Unavailable(calls) => self.unavailable = calls,
            FabricFault::AnswerLost(calls) => self.lost = calls,
            FabricFault::MemoryAnswerLost(calls) => self.memory_lost = calls,
            FabricFault::SmallMemory(bytes) => self.most_bytes = Some(bytes),
            FabricFault::WrongDevice => self.is_wrong = true,
            FabricFault::FlappingLink(device) => self.flapping = Some(device),
            FabricFault::Contradiction => self.contradicts = true,
            FabricFault::Pending(reads) => self.pending = Some(Some(reads)),
            FabricFault::NeverEnds => self.pending = Some(None),
        }
    }

    pub(super) fn is_unavailable(&mut self) -> bool {
        take_one(&mut self.unavailable)
    }

    pub(super) fn loses_answer(&mut self) -> bool {
        take_one(&mut self.lost)
    }

    pub(super) fn loses_memory_answer(&mut self) -> bool {
        take_one(&mut self.memory_lost)
    }

    /// The size that a chunk gets in truth.
    pub(super) fn made_bytes(&self, asked: u64) -> u64 {
        self.most_bytes.map_or(asked, |most| asked.min(most))
    }

    /// The inventory as the faults show it.
    pub(super) fn shown(&mut self, mut parts: InventoryParts) -> FabricInventory {
        if let Some(device) = self.flapping {
            self.is_down = !self.is_down;
            let state = if self.is_down { "UnavailableOffline" } else { "Enabled" };
            let flapping = parts.devices.iter_mut().filter(|it| it.identity == Some(device));
            flapping.for_each(|it| it.status.state = Some(state.into()));
        }
        if self.contradicts {
            let mut twins = parts.devices.clone();
            twins.iter_mut().for_each(|twin| twin.path = ObjectPath::new(format!("{}-twin", twin.path)));
            parts.devices.extend(twins);
        }
        FabricInventory::conclude(parts)
    }

    /// The plan with the device that is attached in truth: a free one, and none on which work is under way.
    pub(super) fn redirected(
        &self,
        inventory: &FabricInventory,
        plan: AttachPlan,
        is_busy: impl Fn(DeviceIdentity) -> bool,
    ) -> AttachPlan {
        let is_other_free = |identity| {
            identity != plan.device && !is_busy(identity) && inventory.connections_of(identity).next().is_none()
        };
        let other = inventory.devices.iter().find(|it| it.unusable.is_none() && it.identity.is_some_and(is_other_free));
        match other {
            Some(other) if self.is_wrong => {
                AttachPlan { targets: other.endpoints.clone(), chunks: other.chunks.clone(), ..plan }
            }
            _ => plan,
        }
    }
}

fn take_one(left: &mut u32) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}
