//! Container Device Interface (CDI) specs: the types, their validation, the minimum `cdiVersion` and an atomic spec
//! directory.
//!
//! Source of the format: the CDI specification of the Cloud Native Computing Foundation, versions 0.3.0 to 1.1.0.

mod catalog;
mod dir;
mod names;
mod read;
mod spec;
mod validate;
mod version;

pub use catalog::{Catalog, CatalogDevice, Conflict, ResolveError};
pub use dir::{DirError, SpecDir, SpecFile, Written};
pub use names::{
    Kind, NameError, check_device_name, check_vendor_or_class, parse_qualified_name, qualified_name, transient_id,
    transient_stem,
};
pub use read::{MAX_FILE_BYTES, ParseError, ReadError, read_spec};
pub use spec::{ContainerEdits, Device, DeviceNode, Hook, HookName, IntelRdt, Mount, NetDevice, Spec};
pub use validate::{Problem, Severity};
pub use version::{UnknownVersion, Version, minimum_version};
