//! Brings the memory of a dax device into the system, movable, and takes it back; or makes it a device.
//!
//! ```text
//!                      ┌── unplug or offline every block, kmem lets go ──► no driver ──► device_dax
//!   kmem, all online ──┘                                                      │
//!        ▲                                                                    │
//!        └──────────────── kmem, every block online_movable ◄─────────────────┘
//! ```
//!
//! Blocks are chosen by the addresses of the dax device and never by node: a node may hold others, too.

use hostler_linux::{
    IdSet, ReadFailure, SysRoot,
    memory_blocks::{self, BlockState, MemoryBlock, MemoryBlockError, PhysicalRange},
    memory_tiers,
};

use crate::{
    gate::{DangerousWrite, GateError, MemoryGate},
    objects::DaxDevice,
    write::{WaitLimits, WriteError, write, write_until},
};

const KMEM: &str = "kmem";
const DEVICE_DAX: &str = "device_dax";
const MOVABLE: &str = "online_movable";

/// Reason why memory is not where it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    /// A user holds the memory.
    #[error("{} cannot be taken offline", named(blocks, *range))]
    Held {
        /// Addresses of the blocks.
        range: PhysicalRange,
        /// The blocks, as far as they are known.
        blocks: Vec<MemoryBlock>,
        /// Error of the kernel.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel has put the memory into a zone that it may never give back, and does not part with it.
    #[error(
        "{} are online in another zone than Movable, as the kernel's policy for new memory is ({policy:?})",
        memory_blocks::listed(blocks)
    )]
    NotMovable {
        /// The blocks.
        blocks: Vec<MemoryBlock>,
        /// `auto_online_blocks`.
        policy: String,
    },
    /// Not all blocks of the memory are there.
    #[error("of the {expected} memory blocks of {dax}, {online} are online")]
    Missing {
        /// Kernel's name.
        dax: String,
        /// Number of blocks that there should be.
        expected: u64,
        /// Number of blocks that are online.
        online: u64,
    },
    /// The node did not appear.
    #[error("NUMA node {node} of {dax} is not online with memory")]
    NoNode {
        /// Kernel's name.
        dax: String,
        /// The node.
        node: u32,
    },
    /// The dax device has no addresses, or no node.
    #[error("{dax} does not say where its memory is")]
    Unknown {
        /// Kernel's name.
        dax: String,
    },
    /// The dax device is bound to another driver.
    #[error("{dax} is bound to {found} and should be bound to {wanted}: is the kernel's driver there?")]
    Driver {
        /// Kernel's name.
        dax: String,
        /// Driver that should be bound.
        wanted: &'static str,
        /// Driver that is bound.
        found: String,
    },
    /// A process works with the device.
    #[error("/{node} is in use by {users}")]
    Open {
        /// The device node.
        node: String,
        /// Processes that have the node open.
        users: String,
    },
    /// There is no device node.
    #[error("/{node} is absent although its driver is bound")]
    NoDevice {
        /// The device node.
        node: String,
    },
    /// The state could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// An operation on a memory block failed.
    #[error(transparent)]
    MemoryBlock(#[from] MemoryBlockError),
    /// The gate refused.
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// Takes the memory of `dax` out of the system, all of it or nothing, and makes the driver let go. Afterwards none of
/// its blocks is there. A dax device that is not memory of the system is left alone.
pub(crate) fn take_back(root: &SysRoot, dax: &DaxDevice, waits: &WaitLimits) -> Result<(), MemoryError> {
    if !dax.is_system_ram() {
        return Ok(());
    }
    offline(root, dax, waits)?;
    MemoryGate::of_dax(root, dax)?.pass(&DangerousWrite::Release { dax: dax.name.clone() })?;
    has_driver(root, dax, "nothing")
}

/// Takes all memory of `dax` offline; newer kernels take its blocks away with it.
fn offline(root: &SysRoot, dax: &DaxDevice, waits: &WaitLimits) -> Result<(), MemoryError> {
    let range = range_of(dax)?;
    if dax.state.is_some() {
        let path = dax.folder.join("state");
        let unplug = || {
            let _readers_wait = memory_tiers::going_offline();
            write_until(root, &path, "unplugged", |now| now == "unplugged")
        };
        return waits.retry(WriteError::is_busy, unplug).map_err(|source| held(root, range, source));
    }
    let mut done = Vec::new();
    for block in inside(root, range)?.into_iter().filter(|block| block.state != BlockState::Offline) {
        if let Err(source) = waits.retry(MemoryBlockError::is_busy, || memory_blocks::offline(root, block.number)) {
            let error = held(root, range, source);
            // Half of the memory is of no use. Blocks that do not come back are told by the next look at them.
            for number in done {
                let _ = memory_blocks::online_movable(root, number);
            }
            return Err(error);
        }
        done.push(block.number);
    }
    Ok(())
}

fn held(
    root: &SysRoot,
    range: PhysicalRange,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> MemoryError {
    let mut blocks = memory_blocks::in_range(root, range).unwrap_or_default();
    blocks.retain(|block| block.state != BlockState::Offline);
    MemoryError::Held { range, blocks, source: source.into() }
}

fn named(blocks: &[MemoryBlock], range: PhysicalRange) -> String {
    if blocks.is_empty() { format!("memory of {range}") } else { memory_blocks::listed(blocks) }
}

/// Makes all memory of `dax` memory of the system, movable.
pub(crate) fn bring_online(root: &SysRoot, dax: &DaxDevice, waits: &WaitLimits) -> Result<(), MemoryError> {
    let dax = &with_driver(root, dax, KMEM)?;
    match dax.state.as_deref() {
        Some("unplugged") => write_until(root, dax.folder.join("state"), MOVABLE, |now| now == MOVABLE)?,
        Some("online" | "online_kernel") => {
            offline(root, dax, waits).map_err(|_| not_movable(root, dax))?;
            write_until(root, dax.folder.join("state"), MOVABLE, |now| now == MOVABLE)?;
        }
        _ => online_blocks(root, dax, waits)?,
    }
    is_online(root, dax)
}

/// Brings blocks of `dax` online that are not, and makes those movable that are not.
fn online_blocks(root: &SysRoot, dax: &DaxDevice, waits: &WaitLimits) -> Result<(), MemoryError> {
    for block in inside(root, range_of(dax)?)? {
        if block.state == BlockState::Online && !memory_blocks::is_movable(root, block.number)? {
            let taken = waits.retry(MemoryBlockError::is_busy, || memory_blocks::offline(root, block.number));
            taken.map_err(|_| not_movable(root, dax))?;
        }
        memory_blocks::online_movable(root, block.number)?;
    }
    Ok(())
}

fn not_movable(root: &SysRoot, dax: &DaxDevice) -> MemoryError {
    let mut blocks = range_of(dax).and_then(|range| inside(root, range)).unwrap_or_default();
    blocks.retain(|block| !memory_blocks::is_movable(root, block.number).unwrap_or(false));
    // This is about an error that there is already: unknown details are left out.
    let policy = root.attribute("sys/devices/system/memory/auto_online_blocks").ok().flatten().unwrap_or_default();
    MemoryError::NotMovable { blocks, policy }
}

/// Checks that all memory of `dax` is memory of the system that can be taken back, on its node.
pub(crate) fn is_online(root: &SysRoot, dax: &DaxDevice) -> Result<(), MemoryError> {
    let node = dax.target_node.ok_or_else(|| MemoryError::Unknown { dax: dax.name.clone() })?;
    has_driver(root, dax, KMEM)?;
    let (expected, mut fixed, mut online) = (numbers(root, range_of(dax)?)?, Vec::new(), 0);
    for block in inside(root, range_of(dax)?)?.into_iter().filter(|block| block.state == BlockState::Online) {
        online += 1;
        if !memory_blocks::is_movable(root, block.number)? {
            fixed.push(block);
        }
    }
    let expected = expected.end.saturating_sub(expected.start);
    if online == 0 || online != expected {
        return Err(MemoryError::Missing { dax: dax.name.clone(), expected, online });
    }
    if !fixed.is_empty() {
        return Err(not_movable(root, dax));
    }
    if is_listed(root, "online", node)? && is_listed(root, "has_memory", node)? {
        return Ok(());
    }
    Err(MemoryError::NoNode { dax: dax.name.clone(), node })
}

fn is_listed(root: &SysRoot, list: &str, node: u32) -> Result<bool, ReadFailure> {
    let nodes = root.attribute(format!("sys/devices/system/node/{list}"))?;
    Ok(nodes.and_then(|nodes| nodes.parse::<IdSet>().ok()).is_some_and(|nodes| nodes.contains(node)))
}

/// Makes `dax` a device that programs map, and takes its memory out of the system for that.
pub(crate) fn make_device(root: &SysRoot, dax: &DaxDevice, waits: &WaitLimits) -> Result<(), MemoryError> {
    take_back(root, dax, waits)?;
    with_driver(root, dax, DEVICE_DAX)?;
    is_device(root, dax)
}

/// Checks that `dax` is a device that programs can map, and that none of its memory is memory of the system.
pub(crate) fn is_device(root: &SysRoot, dax: &DaxDevice) -> Result<(), MemoryError> {
    has_driver(root, dax, DEVICE_DAX)?;
    let blocks = memory_blocks::in_range(root, range_of(dax)?)?;
    if !blocks.is_empty() {
        let range = range_of(dax)?;
        return Err(GateError::InUse { range, blocks, state: "are memory of the system" }.into());
    }
    let node = dax.device_node();
    if root.exists(&node)? { Ok(()) } else { Err(MemoryError::NoDevice { node: node.display().to_string() }) }
}

/// Checks that no process works with `dax` as a device.
pub(crate) fn is_closed(root: &SysRoot, dax: &DaxDevice) -> Result<(), MemoryError> {
    if dax.driver.as_deref() != Some(DEVICE_DAX) {
        return Ok(());
    }
    let node = dax.device_node().display().to_string();
    let users = hostler_linux::users(root, &[format!("/{node}")])?;
    if users.is_empty() {
        return Ok(());
    }
    let users = users.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(MemoryError::Open { node, users })
}

/// Binds `dax` to `driver`. Memory of the system has to be taken back before another driver is bound.
fn with_driver(root: &SysRoot, dax: &DaxDevice, driver: &'static str) -> Result<DaxDevice, MemoryError> {
    let name = &dax.name;
    let now = || root.link_name(dax.folder.join("driver"));
    let folder = |driver: &str| format!("sys/bus/dax/drivers/{driver}");
    if now()?.as_deref() == Some(DEVICE_DAX) && driver == KMEM {
        write(root, format!("{}/unbind", folder(DEVICE_DAX)), name)?;
    }
    if now()?.is_none() {
        if driver == DEVICE_DAX {
            // The driver takes devices of this kind by name only. It takes them at once, and needs the name no longer:
            // a later device may have it, too.
            write(root, format!("{}/new_id", folder(driver)), name)?;
            write(root, format!("{}/remove_id", folder(driver)), name)?;
        } else {
            write(root, format!("{}/bind", folder(driver)), name)?;
        }
    }
    has_driver(root, dax, driver)?;
    Ok(root.look(|tree| DaxDevice::of(tree, name.clone(), dax.folder.clone()))?)
}

fn has_driver(root: &SysRoot, dax: &DaxDevice, wanted: &'static str) -> Result<(), MemoryError> {
    let found = root.link_name(dax.folder.join("driver"))?.unwrap_or_else(|| "nothing".to_owned());
    if found == wanted { Ok(()) } else { Err(MemoryError::Driver { dax: dax.name.clone(), wanted, found }) }
}

fn range_of(dax: &DaxDevice) -> Result<PhysicalRange, MemoryError> {
    dax.range().ok_or_else(|| MemoryError::Unknown { dax: dax.name.clone() })
}

/// The numbers of the blocks that lie in a range as a whole: the kernel makes no others of it.
fn numbers(root: &SysRoot, range: PhysicalRange) -> Result<std::ops::Range<u64>, MemoryError> {
    let size = memory_blocks::block_bytes(root)?;
    Ok(range.start.div_ceil(size)..range.end() / size)
}

/// The blocks that are there and lie in a range as a whole. One at the edge may be a neighbour's.
fn inside(root: &SysRoot, range: PhysicalRange) -> Result<Vec<MemoryBlock>, MemoryError> {
    let numbers = numbers(root, range)?;
    let mut blocks = memory_blocks::in_range(root, range)?;
    blocks.retain(|block| numbers.contains(&block.number));
    Ok(blocks)
}
