//! `hostler hook cpuset`: binds a container to the CPUs and NUMA nodes of its claims, or keeps it from starting. Its
//! companion, `hostler hook record`, is in [`record`].
//!
//! A container runtime runs this once per claimed device as an OCI `createRuntime` hook: the container's process waits
//! in its cgroup, the user's program has not begun. The claim's own sets are arguments, written by the daemon into the
//! claim's CDI file. A container may use several claims, and each brings a hook, so every run applies the union of all
//! hostler hooks in the container's `config.json`, which only the runtime writes: the last run has the same result as
//! every other. The hook does not read the container's environment: its image could have forged it.
//!
//! The hook has no async runtime, no configuration and no logger: containers wait for it.

pub mod record;

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::{Path, PathBuf},
};

use hostler_files::{open_file, read_stream};
use hostler_linux::{
    ReadFailure, SysRoot,
    cgroup::{CgroupError, CpusetCgroup, with_kernel_memory},
};
use serde::Deserialize;

use crate::{
    containers::{ContainerIdError, RecordError},
    pinning::{self, HookArgumentError, HookPins, Pins},
};

/// Largest container configuration that is read. Runtimes start none that is larger; the bound limits the cost of a
/// wrong file.
const LARGEST_BYTES: u64 = 16 << 20;

/// Reason why a container was not bound.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The hook was not called as the daemon wrote it.
    #[error(transparent)]
    Argument(#[from] HookArgumentError),
    /// The container's state did not come on standard input.
    #[error("failed to read the container's state from standard input")]
    State(#[source] io::Error),
    /// The container has no process yet.
    #[error("the container's state names no process: the hook has to run as createRuntime")]
    NoProcess,
    /// The container has no usable id.
    #[error("the container's state names no usable id")]
    ContainerId(#[source] ContainerIdError),
    /// The container's use of the claim could not be recorded.
    #[error("failed to note that the container uses claim {claim}")]
    Record {
        /// The claim.
        claim: hostler_api::ClaimUid,
        /// The failed step.
        #[source]
        source: Box<RecordError>,
    },
    /// The container's configuration cannot be read.
    #[error("failed to read {path}")]
    Config {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The memory that the container needs beside its claims' memory cannot be determined.
    #[error("failed to find the memory that the kernel needs for the container")]
    Memory(#[from] ReadFailure),
    /// The container's cgroup cannot be found.
    #[error("failed to find the container's cgroup")]
    Find(#[source] CgroupError),
    /// The container's cgroup is also that of other processes.
    #[error(
        "the container has no cgroup of its own: {} is also its runtime's; let the runtime make one \
         (`--cgroups=enabled` of podman)",
        cgroup.display()
    )]
    Shared {
        /// The cgroup.
        cgroup: PathBuf,
    },
    /// The container could not be bound.
    #[error("failed to bind the container to {sets}")]
    Pin {
        /// CPUs and NUMA nodes of all its claims.
        sets: String,
        /// Error of the kernel.
        #[source]
        source: Box<CgroupError>,
    },
}

/// The needed part of an OCI state.
#[derive(Debug, Deserialize)]
struct OciState {
    #[serde(default)]
    id: String,
    #[serde(default)]
    pid: u32,
    bundle: PathBuf,
}

/// The needed part of an OCI configuration.
#[derive(Debug, Default, Deserialize)]
struct OciConfig {
    #[serde(default)]
    hooks: OciHooks,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
struct OciHooks {
    #[serde(default, rename = "createRuntime")]
    create_runtime: Vec<OciHook>,
}

#[derive(Debug, Deserialize)]
struct OciHook {
    #[serde(default)]
    args: Vec<String>,
}

fn bad(argument: &str, reason: impl Into<String>) -> HookError {
    HookArgumentError::new(argument, reason).into()
}

/// Runs the hook: `args` is what follows `hook cpuset`, `state` is standard input.
///
/// # Errors
/// When the container is not bound exactly as its claims say. It must not start then.
pub fn run(root: &SysRoot, args: &[String], state: impl Read) -> Result<(), HookError> {
    let own = HookPins::parse(args)?;
    let state: OciState = bounded(state).map_err(HookError::State)?;
    if state.pid == 0 {
        return Err(HookError::NoProcess);
    }
    let mut pins = together(&own, &read_config(&state.bundle)?)?;
    // Claims of CXL memory name only the memory's own nodes; the nodes that a process needs besides follow from all
    // claims together.
    pins.mems = with_kernel_memory(root, &pins.mems)?;
    let cgroup = CpusetCgroup::of_process(root, state.pid).map_err(HookError::Find)?;
    // Binding a shared cgroup would bind the runtime, or a whole session of a user.
    if cgroup.holds(std::process::id()).map_err(HookError::Find)? {
        return Err(HookError::Shared { cgroup: cgroup.path() });
    }
    let pinned = cgroup.pin(&pins.cpus, &pins.mems);
    pinned.map_err(|source| HookError::Pin { sets: pins.in_words(), source: source.into() })
}

fn read_config(bundle: &Path) -> Result<OciConfig, HookError> {
    let path = bundle.join("config.json");
    let read = open_file(&path).map_err(|error| error.source).and_then(|(file, _)| bounded(file));
    read.map_err(|source| HookError::Config { path, source })
}

fn bounded<T: serde::de::DeserializeOwned>(from: impl Read) -> io::Result<T> {
    Ok(serde_json::from_slice(&read_stream(from, LARGEST_BYTES)?)?)
}

/// Union of the CPUs and NUMA nodes of all hostler hooks of a container.
fn together(own: &HookPins, config: &OciConfig) -> Result<Pins, HookError> {
    let all = pinning::pins_of_hooks(config.hooks.create_runtime.iter().map(|hook| hook.args.as_slice()))?;
    Ok(pinning::union(all.iter().chain([own]).map(|hook| &hook.pins)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn config(text: &str) -> OciConfig {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_union_of_all_hostler_hooks_is_applied_whichever_runs() {
        let config = config(
            r#"{"ociVersion": "1.0.2", "hooks": {"createRuntime": [
                {"path": "/usr/bin/hostler", "args": ["hostler", "hook", "cpuset", "--claim", "a", "--cpus", "0-1"]},
                {"path": "/usr/bin/other", "args": ["other", "hook", "cpuset", "--everything"]},
                {"path": "/usr/bin/bare"},
                {"path": "/usr/bin/hostler", "args": ["hostler", "hook", "cpuset", "--claim", "b", "--cpus", "4", "--mems", "1"]}
            ]}}"#,
        );
        for own in ["--claim a --cpus 0-1", "--claim b --cpus 4 --mems 1"] {
            let all = together(&HookPins::parse(&args(own)).unwrap(), &config).unwrap();
            assert_eq!((all.cpus.to_string().as_str(), all.mems.to_string().as_str()), ("0-1,4", "1"), "{own}");
        }
    }

    #[test]
    fn a_configuration_without_hooks_leaves_the_own_sets() {
        let own = HookPins::parse(&args("--claim a --cpus 3")).unwrap();
        assert_eq!(together(&own, &config("{}")).unwrap(), own.pins);
    }

    #[test]
    fn a_container_without_a_process_or_a_configuration_does_not_start() {
        let root = SysRoot::new("/nonexistent");
        let run = |state: &str| run(&root, &args("--claim a --cpus 0"), state.as_bytes()).unwrap_err();
        assert!(matches!(run(r#"{"bundle": "/b"}"#), HookError::NoProcess));
        assert!(matches!(run(r#"{"bundle": "/nonexistent", "pid": 7}"#), HookError::Config { .. }));
        assert!(matches!(run("not json"), HookError::State(_)));
    }
}
