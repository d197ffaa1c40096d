//! Devices behind switches: what a fabric manager has, and attaching it to hosts and detaching it again.
//!
//! ```text
//!   a manager's answers ──► InventoryParts ──► FabricInventory: objects, and problems ──► plan_attach: do it, done, refused
//!                              (a provider reads)    (pure)                                   (pure)
//! ```
//!
//! - [`FabricInventory`] is concluded from [`InventoryParts`]. An object that contradicts another one is listed with
//!   the reason, and never attached.
//! - A device without memory has a [`MemoryRoom`]: a chunk is made for it when it is attached, and freed when it is given
//!   back.
//! - [`FabricProvider`] reads, attaches, detaches, isolates and frees. A call that is repeated with its [`AttachKey`] is success.
//! - [`FabricOutcome`] tells apart: done, under way, not done, unknown. A missing answer never counts as "not done".
//! - [`redfish`] speaks to a Redfish service, [`fake`] is a fabric in memory that fails on demand.

mod error;
mod expected;
pub mod fake;
mod inventory;
mod key;
mod outcome;
mod path;
mod plan;
mod provider;
pub mod redfish;
mod request;
mod watch;

pub use self::{
    error::FabricError,
    expected::ExpectedConnection,
    inventory::{
        DeviceKind, DeviceMemory, FabricConnection, FabricDevice, FabricEndpoint, FabricHost, FabricInventory,
        InventoryParts, InventoryProblem, MemoryChunk, MemoryDomain, MemoryRoom, ObjectStatus, SwitchDomain,
        WatchedDomain, WatchedInventory,
    },
    key::{AttachKey, KeyError},
    outcome::{FabricOperation, FabricOutcome, Isolation},
    path::ObjectPath,
    plan::{AttachPlan, AttachRefusal, AttachStep, PlannedChunk, plan_attach, plan_free},
    provider::{FabricProvider, Provider},
    request::AttachRequest,
    watch::{FabricHint, FabricWatch},
};
