//! Follows a path below a folder, one part after the other, where the kernel has no call for it.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat, readlinkat},
    sys::stat::Mode,
};

/// Most links on one path, as the kernel counts them.
const MOST_LINKS: usize = 40;

/// Opens what `path` leads to if `root` is the root of all. A part that is replaced meanwhile cannot lead out: each is
/// opened by its name alone, in a folder that is open already, and no link is followed by the kernel.
pub(super) fn open(root: &OwnedFd, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let mut parts: VecDeque<OsString> = parts(path);
    let mut folders = vec![root.try_clone()?];
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        let Some(folder) = folders.last() else { return Err(Errno::ENOENT.into()) };
        if part == ".." {
            folders.truncate(folders.len().saturating_sub(1).max(1));
            continue;
        }
        let looked =
            openat(folder, part.as_os_str(), OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty());
        let found = File::from(looked?);
        let is_link = found.metadata()?.is_symlink();
        if is_link && !(parts.is_empty() && flags.contains(OFlag::O_NOFOLLOW)) {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::ELOOP.into());
            }
            let target = PathBuf::from(readlinkat(&found, "")?);
            if target.is_absolute() {
                folders.truncate(1);
            }
            self::parts(&target).into_iter().rev().for_each(|part| parts.push_front(part));
        } else if parts.is_empty() {
            return Ok(openat(folder, part.as_os_str(), flags | OFlag::O_NOFOLLOW, Mode::empty())?);
        } else {
            folders.push(found.into());
        }
    }
    let Some(folder) = folders.last() else { return Err(Errno::ENOENT.into()) };
    Ok(openat(folder, ".", flags, Mode::empty())?)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}
