//! Finds the cgroup of a process, and the place where it can be seen.

use std::{
    io::{BufRead, BufReader},
    path::{Component, Path, PathBuf},
};

use super::{CgroupError, CgroupVersion};
use crate::{ReadFailure, SysRoot};

/// Entry of `/proc/<pid>/cgroup` about cpusets.
pub(super) struct CgroupMembership {
    pub(super) version: CgroupVersion,
    /// Path as seen from our cgroup namespace; begins with `/..` for a cgroup outside of it.
    pub(super) path: String,
}

/// Reads the cgroup of a process. Cpusets are a v1 controller where a v1 hierarchy has them, even if v2 is mounted
/// too.
pub(super) fn membership(root: &SysRoot, pid: u32) -> Result<CgroupMembership, CgroupError> {
    let file = format!("proc/{pid}/cgroup");
    let bytes = root.required_bytes(file, u64::MAX)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut unified = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if controllers.split(',').any(|controller| controller == "cpuset") {
            return Ok(CgroupMembership { version: CgroupVersion::V1, path: path.to_owned() });
        }
        if id == "0" && controllers.is_empty() {
            unified = Some(CgroupMembership { version: CgroupVersion::V2, path: path.to_owned() });
        }
    }
    unified.ok_or(CgroupError::NoCpuset { pid })
}

/// The mount point and the path below it at which the cgroup is visible. Stops at the first fitting mount: a host full
/// of containers has thousands of others, and the cgroup ones are among the first.
pub(super) fn mounted(root: &SysRoot, pid: u32, member: &CgroupMembership) -> Result<(PathBuf, PathBuf), CgroupError> {
    const MOUNTS: &str = "proc/self/mountinfo";
    let failed = |source| CgroupError::Read(ReadFailure::new(MOUNTS, source));
    let mut some = false;
    for line in BufReader::new(root.open(MOUNTS.as_ref())?).split(b'\n') {
        let line = line.map_err(failed)?;
        let Some(mount) = CgroupMount::parse(&String::from_utf8_lossy(&line), member.version) else { continue };
        some = true;
        if let Some(below) = mount.below(&member.path) {
            return Ok((mount.point, below));
        }
    }
    let hierarchy = match member.version {
        CgroupVersion::V1 => "cpuset",
        CgroupVersion::V2 => "unified",
    };
    let cgroup = || CgroupError::Outside { pid, cgroup: member.path.clone() };
    Err(if some { cgroup() } else { CgroupError::NotMounted { pid, hierarchy } })
}

/// A mount of the hierarchy.
struct CgroupMount {
    /// The cgroup that is seen at the mount point.
    root: String,
    point: PathBuf,
}

impl CgroupMount {
    /// Reads a line of mountinfo; `None` if it is about something else.
    fn parse(line: &str, version: CgroupVersion) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut filesystem = filesystem.split(' ');
        let (kind, options) = (filesystem.next()?, filesystem.nth(1)?);
        let fits = match version {
            CgroupVersion::V1 => kind == "cgroup" && options.split(',').any(|option| option == "cpuset"),
            CgroupVersion::V2 => kind == "cgroup2",
        };
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let point = PathBuf::from(unescape(point));
        let plain = point.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
        (fits && point.is_absolute() && plain).then(|| Self { root: unescape(root), point })
    }

    /// Path of `cgroup` below the mount point; `None` if it is elsewhere.
    fn below(&self, cgroup: &str) -> Option<PathBuf> {
        let below = Path::new(cgroup).strip_prefix(&self.root).ok()?;
        below.components().all(|part| matches!(part, Component::Normal(_))).then(|| below.to_owned())
    }
}

/// Decodes a field of mountinfo, which writes space, tab, line end and backslash as a backslash and three octal
/// digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        match (code, part.get(3..)) {
            (Some(code), Some(rest)) => {
                text.push(char::from(code));
                text.push_str(rest);
            }
            _ => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mount_line_is_understood_whatever_surrounds_it() {
        let line =
            r"35 31 0:32 /docker/a\040b /mnt/cg\134x rw shared:9 master:1 - cgroup cgroup rw,cpuset,clone_children";
        let mount = CgroupMount::parse(line, CgroupVersion::V1).unwrap();
        assert_eq!((mount.root.as_str(), mount.point.as_path()), ("/docker/a b", Path::new(r"/mnt/cg\x")));
        assert!(CgroupMount::parse(line, CgroupVersion::V2).is_none());
        assert!(
            CgroupMount::parse("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", CgroupVersion::V1)
                .is_none()
        );
        assert!(CgroupMount::parse("41 31 0:38 / /x rw - cgroup2 cgroup2 rw", CgroupVersion::V2).is_some());
        assert!(CgroupMount::parse("41 31 0:38 / /x/../y rw - cgroup2 cgroup2 rw", CgroupVersion::V2).is_none());
    }

    #[test]
    fn the_mounted_part_is_taken_off_the_cgroup() {
        let mount = |root: &str| CgroupMount { root: root.to_owned(), point: PathBuf::from("/m") };
        assert_eq!(mount("/").below("/"), Some(PathBuf::new()));
        assert_eq!(mount("/").below("/a/b"), Some(PathBuf::from("a/b")));
        assert_eq!(mount("/a").below("/a/b"), Some(PathBuf::from("b")));
        assert_eq!(mount("/a").below("/ab"), None);
        assert_eq!(mount("/").below("/../other"), None);
        assert_eq!(mount("/../..").below("/../../pods/x"), Some(PathBuf::from("pods/x")));
        assert_eq!(mount("/").below("relative"), None);
    }

    proptest! {
        #[test]
        fn no_line_upsets_the_reader(line in r"[ -~\\]{0,80}") {
            let line = format!("1 2 0:3 {line}");
            for version in [CgroupVersion::V1, CgroupVersion::V2] {
                if let Some(mount) = CgroupMount::parse(&line, version) {
                    prop_assert!(mount.point.is_absolute());
                }
            }
        }

        #[test]
        fn escapes_read_back(text in r"[ -~\n\t]{0,20}") {
            let escape = |c: char| match c {
                ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", u32::from(c)),
                c => c.to_string(),
            };
            let escaped: String = text.chars().map(escape).collect();
            prop_assert_eq!(unescape(&escaped), text);
        }
    }
}
