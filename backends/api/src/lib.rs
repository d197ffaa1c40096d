//! The vocabulary of devices, and the [`Backend`] trait that every kind of hardware implements.
//!
//! A backend is plain synchronous Rust: it knows no Kubernetes, no async runtime and no file of the daemon's. It says
//! what hardware is there ([`Backend::enumerate`]), chooses what a claim gets ([`Backend::plan`]), changes the hardware
//! ([`Backend::prepare`], [`Backend::unprepare`]) and checks that the result is usable ([`Backend::verify`]).

mod backend;
mod device;
pub mod duration;
mod limits;
pub mod opaque;
mod operation;
mod scope;
mod share;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

pub use backend::{
    Backend, BackendError, BackendWarning, DevicePlan, Enumeration, HeldDevice, MemoryPolicy, Pinning, PlanWork,
    PrepareOutcome, PrepareWork, UnprepareWork, VerifyWork,
};
pub use device::{
    AttributeValue, Attributes, BindingConditions, Capacities, Capacity, CardSerials, CounterSet, CounterUse, Device,
    Erasure, Health, NodeAllocatable, RequestPolicy, Sharing,
};
pub use hostler_cdi::ContainerEdits;
pub use limits::{DeviceProblem, edits_problems};
pub use opaque::refuse_opaque_config;
pub use operation::{
    AddressRange, DeviceHolder, DeviceOperation, HugePages, MemoryProcess, NodeMemoryUsers, OperateWork,
    OperationFailure, OperationObstacle, OperationOutcome, OperationRefusal, OperationStep,
};
pub use scope::{EditScope, ForeignEdits};
pub use share::{CapacityHolders, CapacityShare};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-backend.md")]
struct WritingABackend;
