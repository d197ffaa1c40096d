//! Puts this binary where container runtimes find it, for a daemon that itself runs in a container.
//!
//! ```text
//!   <hook_dir>/hostler-<version>-<checksum>     one per build; CDI files name it by its full path
//! ```
//!
//! A container that is started again runs the hook that its claim's CDI file names, so a build stays as long as a file
//! names it. The folder must have the same path on the host and in the daemon's container.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use hostler_cdi::{DirError, SpecDir};
use hostler_files::{Durability, FileError, FinishedFile, PendingFile, TemporaryName, open_file, sync_folder};
use tracing::{info, warn};

const PREFIX: &str = "hostler-";
const UNFINISHED: &str = ".hostler-unfinished";
/// Bytes of a build that are in memory at once: the memory limit of a pod leaves no room for all of a large one.
const PIECE_BYTES: usize = 1 << 16;

/// Installs the program `own` into `dir`, and returns its path there. A build that is there already, byte for byte,
/// stays.
pub(super) fn install(own: &Path, dir: &Path) -> Result<PathBuf, FileError> {
    let failed = FileError::at("read", own);
    let path = dir.join(format!("{PREFIX}{}-{:08x}", env!("CARGO_PKG_VERSION"), checksum(own).map_err(failed)?));
    if is_installed(&path, own) {
        return Ok(path);
    }
    fs::create_dir_all(dir).map_err(FileError::at("create", dir))?;
    copy(own, dir).map_err(FileError::at("write", &path))?.publish(&path)?;
    sync_folder(dir)?;
    info!(path = %path.display(), "installed for the hooks of containers");
    Ok(path)
}

fn copy(own: &Path, dir: &Path) -> io::Result<FinishedFile> {
    // Another daemon cannot be at it: this one holds the lock. Rootless runtimes run it as other users.
    let mut pending = PendingFile::create(dir, TemporaryName::Fixed(UNFINISHED), 0o755)?;
    io::copy(&mut opened(own)?, &mut pending)?;
    pending.finish(Durability::Synced)
}

fn is_installed(path: &Path, own: &Path) -> bool {
    let is_runnable = |path: &Path| fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o777 == 0o755);
    is_runnable(path) && is_same(path, own).unwrap_or(false)
}

fn opened(path: &Path) -> io::Result<File> {
    open_file(path).map(|(file, _)| file).map_err(|error| error.source)
}

fn checksum(path: &Path) -> io::Result<u32> {
    let (mut file, mut hasher, mut piece) = (opened(path)?, crc32fast::Hasher::new(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finalize()),
            count => hasher.update(&piece[..count]),
        }
    }
}

/// Compares the content of two files.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (opened(one)?, opened(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut piece, mut same) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    loop {
        let count = one.read(&mut piece)?;
        if count == 0 {
            return Ok(true);
        }
        other.read_exact(&mut same[..count])?;
        if piece[..count] != same[..count] {
            return Ok(false);
        }
    }
}

/// Returns the programs that CDI files of this driver's claims run as hooks.
pub(super) fn named(cdi: &SpecDir, driver: &str) -> Result<BTreeSet<PathBuf>, DirError> {
    let specs = cdi.list(driver)?.into_iter().filter_map(|file| file.spec.ok());
    let edits = specs.flat_map(|spec| {
        let devices = spec.devices.into_iter().map(|device| device.container_edits);
        devices.chain([spec.container_edits])
    });
    Ok(edits.flat_map(|edits| edits.hooks).map(|hook| hook.path.into()).collect())
}

/// Removes the builds in `dir` that are not to be kept, and unfinished ones that a crash has left. A build that
/// cannot be removed stays until the next start.
pub(super) fn remove_others(dir: &Path, keep: &BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX) || name == UNFINISHED);
        if !is_ours || keep.contains(&path) {
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => info!(path = %path.display(), "removed a build that no claim names any more"),
            Err(error) => warn!(path = %path.display(), error = %error, "failed to remove an old build"),
        }
    }
}

#[cfg(test)]
mod tests {
    use hostler_cdi::{CdiDevice, CdiHook, CdiSpec, ContainerEdits, HookName};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn program(temp: &Path, text: &str) -> PathBuf {
        let own = temp.join("own");
        fs::write(&own, text).unwrap();
        own
    }

    #[test]
    fn a_build_is_installed_once_and_can_be_run_by_anybody() {
        let temp = tempfile::tempdir().unwrap();
        let (own, dir) = (program(temp.path(), "#!one"), temp.path().join("bin"));
        let first = install(&own, &dir).unwrap();
        assert_eq!((fs::read_to_string(&first).unwrap().as_str(), mode(&first)), ("#!one", 0o755));
        let written = fs::metadata(&first).unwrap().modified().unwrap();
        assert_eq!(install(&own, &dir).unwrap(), first);
        assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), written);
        let second = install(&program(temp.path(), "#!two"), &dir).unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    }

    #[test]
    fn a_damaged_build_is_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let (own, dir) = (program(temp.path(), "#!one"), temp.path().join("bin"));
        let path = install(&own, &dir).unwrap();
        fs::write(&path, "#!").unwrap();
        install(&own, &dir).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "#!one");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        install(&own, &dir).unwrap();
        assert_eq!(mode(&path), 0o755);
    }

    #[test]
    fn a_build_stays_as_long_as_a_cdi_file_names_it() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("bin");
        let builds = ["#!one", "#!two", "#!three"].map(|text| install(&program(temp.path(), text), &dir).unwrap());
        fs::write(dir.join(UNFINISHED), "#!f").unwrap();
        fs::write(dir.join("other"), "not ours").unwrap();
        let cdi = SpecDir::new(temp.path().join("cdi"));
        cdi.create().unwrap();
        cdi.write("hostler.dev-claim_a", &spec(&builds[0])).unwrap();
        let mut keep = named(&cdi, "hostler.dev").unwrap();
        keep.insert(builds[2].clone());
        remove_others(&dir, &keep);
        let mut left: Vec<PathBuf> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        let mut expected = vec![builds[0].clone(), builds[2].clone(), dir.join("other")];
        expected.sort();
        assert_eq!(left, expected);
    }

    fn spec(hook: &Path) -> CdiSpec {
        let hook = CdiHook {
            hook_name: HookName::CreateRuntime,
            path: hook.to_str().unwrap().to_owned(),
            args: vec!["hostler".to_owned()],
            env: Vec::new(),
            timeout: None,
        };
        let container_edits = ContainerEdits { hooks: vec![hook], ..ContainerEdits::default() };
        let device = CdiDevice { name: "d".to_owned(), container_edits, ..CdiDevice::default() };
        CdiSpec { kind: "hostler.dev/claim".to_owned(), devices: vec![device], ..CdiSpec::default() }
            .with_minimum_version()
    }
}
