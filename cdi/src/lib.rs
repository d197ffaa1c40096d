//! Container Device Interface (CDI) specs: the types, their validation, the minimum `cdiVersion` and an atomic spec
//! directory.
//!
//! Source of the format: the CDI specification of the Cloud Native Computing Foundation, versions 0.3.0 to 1.1.0.
//!
//! ```
//! # let root = std::env::temp_dir().join(format!("hostler-cdi-doc-{}", std::process::id()));
//! use hostler_cdi::{CdiDevice, CdiSpec, ContainerEdits, SpecDir};
//!
//! let edits = ContainerEdits { env: vec!["HOSTLER_CPUS=0-3".to_owned()], ..Default::default() };
//! let device = CdiDevice { name: "5f0c7a1e-cpu-0".to_owned(), container_edits: edits, ..Default::default() };
//! let spec = CdiSpec { kind: "hostler.dev/claim".to_owned(), devices: vec![device], ..Default::default() }.with_minimum_version();
//!
//! let dir = SpecDir::new(&root);
//! dir.write("hostler.dev-claim_5f0c7a1e", &spec)?;
//! assert_eq!(spec.cdi_version, "0.5.0"); // for the device name that begins with a digit
//! dir.remove("hostler.dev-claim_5f0c7a1e")?;
//! # std::fs::remove_dir(&root)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod catalog;
mod dir;
mod names;
mod read;
mod spec;
mod validate;
mod version;

pub use catalog::{CatalogDevice, DeviceCatalog, DeviceConflict};
pub use dir::{DirError, SpecDir, SpecFile, WriteOutcome};
pub use read::{MAX_FILE_BYTES, ParseError, ReadError, read_spec};
pub use spec::{CdiDevice, CdiHook, CdiMount, CdiSpec, ContainerEdits, DeviceNode, HookName, IntelRdt, NetDevice};
pub use validate::{ProblemSeverity, SpecProblem};
pub use version::{CdiVersion, UnknownVersion, minimum_version};
