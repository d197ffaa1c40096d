//! `hostler hook record`: records that a container uses a claim, so that the daemon does not take the claim back
//! meanwhile.
//!
//! A runtime runs this once per claim and container. A runtime of an ordinary user may start containers with a claim
//! and may not write into the daemon's folder; its containers start all the same, without a record.

use std::{io::Read, path::PathBuf};

use hostler_api::ClaimUid;
use hostler_linux::SysRoot;

use super::{HookError, OciConfig, OciState, bad, bounded, read_config};
use crate::{
    containers::{self, ContainerId, ContainerOwner, ContainerSets, ContainerUse, RecordError},
    pinning,
};

/// Outcome of recording.
#[derive(Debug)]
pub enum RecordOutcome {
    /// The record is written; the daemon can see it.
    Yes,
    /// The hook lacks the rights; the container may start.
    NotAllowed(RecordError),
}

/// Arguments of the hook: the claim, and the folder of the records.
#[derive(Debug)]
struct RecordArguments {
    claim: ClaimUid,
    folder: PathBuf,
}

impl RecordArguments {
    fn parse(args: &[String]) -> Result<Self, HookError> {
        let (mut claim, mut folder) = (None, None);
        for pair in args.chunks(2) {
            let [name, value] = pair else { return Err(bad(&pair[0], "it has no value")) };
            match name.as_str() {
                "--claim" => claim = Some(ClaimUid::new(&**value).map_err(|error| bad(value, error.to_string()))?),
                "--containers" => folder = Some(PathBuf::from(value)),
                _ => return Err(bad(name, "known are --claim and --containers")),
            }
        }
        let claim = claim.ok_or_else(|| bad("--claim", "it is missing"))?;
        let folder = folder.ok_or_else(|| bad("--containers", "it is missing"))?;
        if !folder.is_absolute() {
            return Err(bad(&folder.to_string_lossy(), "it is not absolute"));
        }
        Ok(Self { claim, folder })
    }
}

/// Runs the hook: `args` is what follows `hook record`, `state` is standard input.
///
/// # Errors
/// When root cannot write the note. The container must not start then: the daemon could take its claim back.
pub fn run(root: &SysRoot, args: &[String], state: impl Read) -> Result<RecordOutcome, HookError> {
    let recording = RecordArguments::parse(args)?;
    let state: OciState = bounded(state).map_err(HookError::State)?;
    if state.pid == 0 {
        return Err(HookError::NoProcess);
    }
    let id = ContainerId::new(&*state.id).map_err(HookError::ContainerId)?;
    // Without the container's configuration the record still keeps the claim.
    let config = read_config(&state.bundle).ok();
    let sets = config.as_ref().and_then(|config| share_of(&recording.claim, config));
    let owner = config.map(|config| ContainerOwner::of(&config.annotations)).unwrap_or_default();
    let used = ContainerUse { claim: &recording.claim, container: &id, pid: state.pid, sets, owner };
    let recorded = containers::record(root, &recording.folder, used);
    // A kernel without user namespaces has no such file, and no other root.
    let uid_map = root.text("proc/self/uid_map");
    // A hook that cannot tell whether it is root of the host counts as such, and keeps the container from starting.
    let is_of_host = uid_map.map_or(true, |uid_map| uid_map.is_none_or(|uid_map| is_of_host(&uid_map)));
    concluded(recording.claim, recorded, nix::unistd::geteuid().is_root() && is_of_host)
}

/// Union of the sets that the container's other hooks bind it to for this claim: the container may have only some of
/// the claim's requests. `None` if the hooks cannot be read here; the hook that binds then refuses the container.
fn share_of(claim: &ClaimUid, config: &OciConfig) -> Option<ContainerSets> {
    let hooks = pinning::pins_of_hooks(config.hooks.create_runtime.iter().map(|hook| hook.args.as_slice())).ok()?;
    let own: Vec<&pinning::Pins> =
        hooks.iter().filter(|hook| hook.claim == claim.as_str()).map(|hook| &hook.pins).collect();
    let pinning::Pins { cpus, mems } = pinning::union(own);
    Some(ContainerSets { cpus, mems })
}

/// Lets the container of an unprivileged user start without a record; an error that root meets keeps the container from
/// starting.
fn concluded(
    claim: ClaimUid,
    recorded: Result<(), RecordError>,
    is_host_root: bool,
) -> Result<RecordOutcome, HookError> {
    match recorded {
        Ok(()) => Ok(RecordOutcome::Yes),
        Err(error) if error.is_denied() && !is_host_root => Ok(RecordOutcome::NotAllowed(error)),
        Err(source) => Err(HookError::Record { claim, source: Box::new(source) }),
    }
}

/// True if users are those of the host. Root of a user namespace of its own, as rootless runtimes have it, is an
/// ordinary user outside of it.
fn is_of_host(uid_map: &str) -> bool {
    let mut words = uid_map.split_whitespace();
    [words.next(), words.next(), words.next(), words.next()] == [Some("0"), Some("0"), Some("4294967295"), None]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_that_the_daemon_would_not_write_are_refused() {
        for (text, expected) in [
            ("", "\"--claim\" is not valid: it is missing"),
            ("--claim a", "\"--containers\" is not valid: it is missing"),
            ("--claim ../a --containers /c", "\"../a\" is not valid"),
            ("--claim a --containers c", "\"c\" is not valid: it is not absolute"),
            ("--claim a --containers", "\"--containers\" is not valid: it has no value"),
            ("--claim a --cpus 1", "known are --claim and --containers"),
        ] {
            let error = RecordArguments::parse(&args(text)).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_error_that_root_meets_keeps_the_container_from_starting_and_the_same_of_a_user_does_not() {
        let recorded = |kind: std::io::ErrorKind| {
            let path = PathBuf::from("/state/containers/a");
            Err(hostler_files::FileError { step: "write", path, source: kind.into() }.into())
        };
        let claim = || ClaimUid::new("a").unwrap();
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};
        for kind in [PermissionDenied, ReadOnlyFilesystem] {
            assert!(concluded(claim(), recorded(kind), true).is_err(), "{kind:?}");
            assert!(matches!(concluded(claim(), recorded(kind), false), Ok(RecordOutcome::NotAllowed(_))), "{kind:?}");
        }
        assert!(concluded(claim(), recorded(StorageFull), false).is_err());
    }

    #[test]
    fn root_of_a_user_namespace_is_not_root_of_the_host() {
        assert!(is_of_host("         0          0 4294967295\n"));
        assert!(!is_of_host("         0       1000          1\n         1     100000      65536\n"));
    }

    #[test]
    fn a_container_whose_id_could_lead_elsewhere_does_not_start() {
        let run = |state: &str| {
            run(&SysRoot::host(), &args("--claim a --containers /nonexistent"), state.as_bytes()).unwrap_err()
        };
        assert!(matches!(run(r#"{"bundle": "/b", "pid": 1, "id": "../x"}"#), HookError::ContainerId(_)));
        assert!(matches!(run(r#"{"bundle": "/b", "pid": 1}"#), HookError::ContainerId(_)));
        assert!(matches!(run(r#"{"bundle": "/b", "id": "x"}"#), HookError::NoProcess));
    }
}
