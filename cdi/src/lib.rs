//! Container Device Interface (CDI) specs: the types, their validation, the minimum `cdiVersion` and an atomic spec
//! directory.
//!
//! Source of the format: the CDI specification of the Cloud Native Computing Foundation, versions 0.3.0 to 1.1.0.

mod spec;

pub use spec::{ContainerEdits, Device, DeviceNode, Hook, HookName, IntelRdt, Mount, NetDevice, Spec};
