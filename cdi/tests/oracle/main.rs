//! Checks this crate against `container-device-interface`, the library of other runtimes in Rust: what we write it must
//! accept and inject, what it refuses we must refuse.
//!
//! The Go library (CDI 1.1.0) is the reference; the oracle here differs from it, and from the CDI specification, so:
//! - it checks annotation keys, which Go means to and never does;
//! - it refuses a negative `timeout` (in the edits of a device, not in those of the file) and the root class `/`, and wants 1.1.0 for `enableMonitoring: false`;
//! - it takes `permissions: none`, which Go knows only after 1.1.0, and `enableCMT` and `enableMBM` below 1.1.0, which Go
//!   refuses since 1.1.0 as unknown fields;
//! - it has no number for a name in YAML (`name: 0`) and no octal `0666`, both of which Go reads;
//! - one bad file in a directory hides all others from it, it descends into subdirectories, and it still hands out a
//!   device that two files of one directory define.
//!
//! Both take what the specification forbids: relative paths of hooks, a `timeout` of 0, vendors that are no DNS name,
//! classes of more than 63 characters.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the lints know test functions, not their helpers")]

mod generate;
mod injection;
mod properties;
mod samples;

use std::path::{Path, PathBuf};

use container_device_interface::cache::{Cache, with_auto_refresh};
use container_device_interface::spec_dirs::with_spec_dirs;
use serde_json::Value;

/// Whether the oracle would take the file, with its reason if not.
fn oracle_reads(path: &Path) -> Result<(), String> {
    container_device_interface::spec::read_spec(&path.to_owned(), 0).map(drop).map_err(|error| format!("{error:#}"))
}

/// What an empty OCI configuration becomes when a container requests these devices from a directory.
fn oracle_injects(dir: &Path, devices: Vec<String>) -> Result<Value, String> {
    let mut cache = Cache::default();
    let dirs = [dir.to_str().unwrap()];
    cache.configure(vec![with_spec_dirs(&dirs), with_auto_refresh(false)]);
    cache.refresh().map_err(|error| error.to_string())?;
    let mut oci = oci_spec::runtime::Spec::default();
    cache.inject_devices(Some(&mut oci), devices).map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(&oci).unwrap())
}

/// A folder of samples.
fn samples(folder: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
