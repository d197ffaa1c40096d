//! Orders of an operator for a device outside of any claim, and their results.
//!
//! Backends give facts; `Display` makes from them the words that people read, where they are told.

use std::{collections::BTreeSet, fmt};

use hostler_api::{Access, DeviceName};
use serde::{Deserialize, Serialize};

use crate::{Device, HeldDevice};

/// An order of an operator for a device.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "operation")]
pub enum DeviceOperation {
    /// Bring the device into service for all programs: the memory of a CXL device becomes memory of the system.
    Attach,
    /// Take the device out of the system, so that it can be pulled or given to another host.
    Detach {
        /// Erase the content of the device, by its own command.
        sanitize: bool,
        /// Overwrite the device's volatile memory with zeros.
        #[serde(default)]
        overwrite: bool,
        /// Remove the device's PCI function from the system, in the end.
        remove: bool,
    },
}

impl DeviceOperation {
    /// The operation in one word: `attach`, `detach`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Detach { .. } => "detach",
        }
    }
}

/// Input of [`Backend::operate`](crate::Backend::operate).
#[derive(Clone, Copy, Debug)]
pub struct OperateWork<'a> {
    /// The device, as last enumerated.
    pub device: &'a Device,
    /// The order.
    pub operation: DeviceOperation,
    /// Everything that all claims hold of this backend.
    pub held: &'a [HeldDevice<'a>],
}

impl OperateWork<'_> {
    /// The answer where something stands in the way of this order.
    pub fn refused(&self, obstacle: OperationObstacle) -> Box<OperationRefusal> {
        Box::new(OperationRefusal { device: self.device.name.clone(), operation: self.operation, obstacle })
    }

    /// The answer where a step of this order failed after these were done.
    pub fn failed(&self, cause: String, steps: Vec<OperationStep>) -> Box<OperationRefusal> {
        let failure = OperationFailure { cause, blocks: Vec::new(), users: Vec::new(), steps };
        self.refused(OperationObstacle::Failed(failure))
    }

    /// Refuses this order while claims use devices that stand in its way.
    ///
    /// # Errors
    /// When claims use such devices: the refusal names them.
    pub fn refuse_held(&self, is_in_the_way: impl Fn(&HeldDevice<'_>) -> bool) -> Result<(), Box<OperationRefusal>> {
        let is_in_use = |held: &&HeldDevice<'_>| held.grant.access == Access::Use && is_in_the_way(held);
        let holder = |held: &HeldDevice<'_>| DeviceHolder {
            claim_name: held.claim_name.to_owned(),
            device: held.grant.device.clone(),
        };
        let holders: BTreeSet<DeviceHolder> = self.held.iter().filter(is_in_use).map(holder).collect();
        if holders.is_empty() {
            return Ok(());
        }
        Err(self.refused(OperationObstacle::Held { holders: holders.into_iter().collect() }))
    }
}

/// Changes that a completed order made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OperationOutcome {
    /// Steps in order; empty where everything was as ordered already.
    pub steps: Vec<OperationStep>,
}

impl fmt::Display for OperationOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            f.write_str("nothing was left to do")
        } else {
            f.write_str(&joined(&self.steps, "; "))
        }
    }
}

/// Something that an order has changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OperationStep {
    /// The memory of a card became memory of the system that can be taken back.
    MemoryOnline {
        /// The card.
        card: String,
        /// Addresses of the memory, if known.
        memory: Option<AddressRange>,
        /// NUMA node of the memory, if known.
        node: Option<u32>,
    },
    /// Memory was taken out of the system and its region deleted.
    RegionDeleted {
        /// Kernel's name of the region.
        region: String,
        /// Cards that the region was made of.
        cards: Vec<String>,
        /// Addresses of the memory, if it had any.
        memory: Option<AddressRange>,
        /// NUMA nodes of the memory.
        nodes: Vec<u32>,
    },
    /// A region without memory of the system was deleted.
    RegionTakenDown {
        /// Kernel's name of the region.
        region: String,
    },
    /// A card was erased.
    CardErased {
        /// The card.
        card: String,
    },
    /// All volatile memory of a card was overwritten.
    CardOverwritten {
        /// The card.
        card: String,
    },
    /// A memory device was disabled.
    MemoryDeviceDisabled {
        /// Kernel's name of the memory device.
        memdev: String,
    },
    /// Every region of an FPGA was programmed with its blank image, which clears the memory of the card as well.
    LogicScrubbed {
        /// The card.
        card: String,
        /// Number of its regions.
        regions: usize,
    },
    /// A PCI function lost its driver.
    DriverUnbound {
        /// Address of the function.
        address: String,
        /// Name of the driver.
        driver: String,
    },
    /// A PCI function was reset, which cleared its memory.
    FunctionReset {
        /// Address of the function.
        address: String,
    },
    /// A PCI function was removed from the system.
    FunctionRemoved {
        /// Address of the function.
        address: String,
    },
}

impl fmt::Display for OperationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryOnline { card, memory, node } => {
                let memory = memory.map(|memory| format!("{memory} ")).unwrap_or_default();
                let node = node.map_or_else(|| "a node".to_owned(), |node| format!("node {node}"));
                write!(f, "memory {memory}of card {card} is online on {node}, movable")
            }
            Self::RegionDeleted { region, cards, memory, nodes } => {
                let memory = memory.map_or_else(|| "without addresses".to_owned(), |memory| memory.to_string());
                let nodes: Vec<String> = nodes.iter().map(|node| format!("node {node}")).collect();
                let of = if nodes.is_empty() { String::new() } else { format!(" of {}", nodes.join(", ")) };
                let cards = cards.join(" and ");
                write!(f, "memory {memory}{of} taken out of the system and {region} of card {cards} deleted")
            }
            Self::RegionTakenDown { region } => write!(f, "{region} taken down"),
            Self::CardErased { card } => write!(f, "card {card} erased"),
            Self::CardOverwritten { card } => write!(f, "memory of card {card} overwritten"),
            Self::MemoryDeviceDisabled { memdev } => write!(f, "{memdev} disabled"),
            Self::LogicScrubbed { card, regions } => {
                write!(f, "FPGA {card} scrubbed: its {regions} regions programmed with their blank images")
            }
            Self::DriverUnbound { address, driver } => write!(f, "driver {driver} taken from PCI function {address}"),
            Self::FunctionReset { address } => write!(f, "PCI function {address} reset, its memory cleared"),
            Self::FunctionRemoved { address } => {
                write!(f, "PCI function {address} removed; `echo 1 > /sys/bus/pci/rescan` brings it back")
            }
        }
    }
}

/// A range of physical addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AddressRange {
    /// The first address.
    pub first: u64,
    /// The last address.
    pub last: u64,
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x}", self.first, self.last)
    }
}

/// An order that was not carried out, or not to its end.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{device} cannot be {}ed: {obstacle}", operation.word())]
pub struct OperationRefusal {
    /// The device.
    pub device: DeviceName,
    /// The order.
    pub operation: DeviceOperation,
    /// The obstacle to the order.
    pub obstacle: OperationObstacle,
}

/// An obstacle to an order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OperationObstacle {
    /// Devices of this kind are always there.
    AlwaysThere,
    /// The device is a part of a card.
    NotWhole,
    /// Claims hold the memory, or a part of it.
    Held {
        /// Claims that hold the memory, with what each holds.
        holders: Vec<DeviceHolder>,
    },
    /// A step failed.
    Failed(OperationFailure),
}

impl fmt::Display for OperationObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlwaysThere => f.write_str("devices of its kind are always attached"),
            Self::NotWhole => f.write_str("orders are for whole cards"),
            Self::Held { holders } => write!(f, "it is held by {}", joined(holders, ", ")),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

/// A claim that holds a device.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DeviceHolder {
    /// Name of the claim for people: `namespace/name`.
    pub claim_name: String,
    /// Device that the claim holds.
    pub device: DeviceName,
}

impl fmt::Display for DeviceHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (claim {})", self.claim_name, self.device)
    }
}

/// A step of an order that failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OperationFailure {
    /// The whole chain of causes.
    pub cause: String,
    /// Numbers of the memory blocks that are in the way, if blocks are the cause.
    pub blocks: Vec<u64>,
    /// Users of the nodes of these blocks.
    pub users: Vec<NodeMemoryUsers>,
    /// Steps that were done before.
    pub steps: Vec<OperationStep>,
}

impl fmt::Display for OperationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        self.users.iter().try_for_each(|users| write!(f, "; {users}"))?;
        if self.steps.is_empty() {
            return f.write_str("; nothing is changed");
        }
        write!(f, "; done before: {}", joined(&self.steps, "; "))
    }
}

/// Users of the memory of a NUMA node, as far as they can be told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeMemoryUsers {
    /// The node.
    pub node: u32,
    /// Processes, the largest first.
    pub processes: Vec<MemoryProcess>,
    /// Pools of huge pages that are not empty.
    pub huge_pages: Vec<HugePages>,
    /// True if not all processes were looked at.
    pub incomplete: bool,
}

/// A process with pages on a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryProcess {
    /// Process id.
    pub pid: u32,
    /// Name that the process gives itself.
    pub command: String,
    /// Memory of the process on the node.
    pub bytes: u64,
}

/// The huge pages of one size on a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HugePages {
    /// Size of a page, kB.
    pub page_kb: u64,
    /// Pages in the pool: their memory cannot be taken back while they are there.
    pub pages: u64,
    /// Pages in the pool that are unused.
    pub free: u64,
}

impl fmt::Display for NodeMemoryUsers {
    /// Writes the largest processes and all pools, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        write!(f, "node {} is used by ", self.node)?;
        if self.processes.is_empty() && self.huge_pages.is_empty() {
            return f.write_str("no process that can be seen from here");
        }
        let process = |process: &MemoryProcess| {
            format!("process {} ({}) with {} kB", process.pid, process.command, process.bytes / 1024)
        };
        let pool =
            |pool: &HugePages| format!("{} huge pages of {} kB, {} of them free", pool.pages, pool.page_kb, pool.free);
        let mut parts: Vec<String> = self.processes.iter().take(SHOWN).map(process).collect();
        if let Some(more) = self.processes.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            parts.push(format!("{more} more processes"));
        }
        parts.extend(self.huge_pages.iter().map(pool));
        if self.incomplete {
            parts.push("processes that could not be looked at in time".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

fn joined(parts: &[impl ToString], separator: &str) -> String {
    parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(processes: u32) -> NodeMemoryUsers {
        let process = |pid| MemoryProcess { pid, command: "db".to_owned(), bytes: 36 << 10 };
        let huge_pages = vec![HugePages { page_kb: 2048, pages: 8, free: 5 }];
        NodeMemoryUsers { node: 5, processes: (1..=processes).map(process).collect(), huge_pages, incomplete: false }
    }

    fn refusal(obstacle: OperationObstacle) -> String {
        let operation = DeviceOperation::Detach { sanitize: false, overwrite: false, remove: false };
        OperationRefusal { device: DeviceName::new("card").unwrap(), operation, obstacle }.to_string()
    }

    #[test]
    fn an_outcome_reads_as_a_list_of_what_was_done() {
        assert_eq!(OperationOutcome::default().to_string(), "nothing was left to do");
        let memory = Some(AddressRange { first: 0x1000, last: 0x1fff });
        let (region, cards) = ("region0".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        let deleted = OperationStep::RegionDeleted { region, cards, memory, nodes: vec![5, 6] };
        let steps = vec![deleted, OperationStep::CardErased { card: "a".to_owned() }];
        assert_eq!(
            OperationOutcome { steps }.to_string(),
            "memory 0x1000-0x1fff of node 5, node 6 taken out of the system and region0 of card a and b deleted; card a erased"
        );
    }

    #[test]
    fn a_refusal_says_who_is_in_the_way_and_what_was_done() {
        assert_eq!(
            refusal(OperationObstacle::AlwaysThere),
            "card cannot be detached: devices of its kind are always attached"
        );
        let failure = |users, steps| {
            let cause = "memory112 cannot be taken offline: busy".to_owned();
            refusal(OperationObstacle::Failed(OperationFailure { cause, blocks: vec![112], users, steps }))
        };
        assert_eq!(
            failure(vec![users(1)], Vec::new()),
            "card cannot be detached: memory112 cannot be taken offline: busy; node 5 is used by process 1 (db) with 36 \
             kB, 8 huge pages of 2048 kB, 5 of them free; nothing is changed"
        );
        let nobody = NodeMemoryUsers { processes: Vec::new(), huge_pages: Vec::new(), ..users(0) };
        let step = OperationStep::MemoryDeviceDisabled { memdev: "mem0".to_owned() };
        assert_eq!(
            failure(vec![nobody], vec![step]),
            "card cannot be detached: memory112 cannot be taken offline: busy; node 5 is used by no process that can be \
             seen from here; done before: mem0 disabled"
        );
    }

    #[test]
    fn of_many_processes_the_largest_are_named() {
        assert!(users(7).to_string().contains("process 5 (db) with 36 kB, 2 more processes, 8 huge pages"));
    }
}
