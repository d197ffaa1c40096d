//! Files below the folder that stands for `/`, and nothing outside of it: links lead where they would lead if that
//! folder were the root of all, and only regular files are read. Of this host, whose files the kernel makes, all of
//! that is true anyway.

mod walk;

use std::{
    fs::{self, File, Metadata},
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use hostler_files::{expect_file, expect_size};
use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2, readlinkat},
    sys::stat::Mode,
};

use super::MOST_BYTES;

/// Limit on races: the kernel gives up where something is renamed while it resolves `..`; so often in a row is no
/// accident.
const MOST_RACES: usize = 16;

/// The folder, opened when it is first needed.
#[derive(Clone, Debug)]
pub(super) struct RootFolder {
    path: PathBuf,
    opened: Arc<OnceLock<OwnedFd>>,
}

impl RootFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, opened: Arc::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file to read.
    pub(super) fn read(&self, relative: &Path) -> io::Result<File> {
        if self.is_host() {
            return self.open(relative, OFlag::O_RDONLY);
        }
        let (file, found) = self.file(relative, OFlag::O_RDONLY)?;
        expect_size(&found, MOST_BYTES)?;
        Ok(file)
    }

    /// Opens a file to replace its content. Truncating means nothing to sysfs; in a tree of plain files it takes the
    /// old value away.
    pub(super) fn write(&self, relative: &Path) -> io::Result<File> {
        if self.is_host() {
            return self.open(relative, OFlag::O_WRONLY | OFlag::O_TRUNC);
        }
        let (file, _) = self.file(relative, OFlag::O_WRONLY)?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Opens a device node, to be asked by ioctl.
    pub(super) fn device(&self, relative: &Path, flags: OFlag) -> io::Result<File> {
        self.open(relative, OFlag::O_RDWR | flags)
    }

    pub(super) fn metadata(&self, relative: &Path) -> io::Result<Metadata> {
        if self.is_host() {
            return fs::metadata(self.path.join(relative));
        }
        match self.inside(relative, OFlag::O_PATH) {
            // A link of a running kernel (`proc/…/fd/3`), which only the machine itself has, mounted here: it leads to
            // what is open, wherever that is.
            Err(error) if error.raw_os_error() == Some(Errno::EXDEV as i32) => fs::metadata(self.path.join(relative)),
            found => found?.metadata(),
        }
    }

    /// The names in a folder, in no order; those that are no UTF-8 are not the kernel's.
    pub(super) fn names(&self, relative: &Path) -> io::Result<Vec<String>> {
        let folder = self.open(relative, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::from_fd(folder.into())? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// Target of a symbolic link, unresolved.
    pub(super) fn link(&self, relative: &Path) -> io::Result<PathBuf> {
        if self.is_host() {
            return fs::read_link(self.path.join(relative));
        }
        let link = self.inside(relative, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
        Ok(readlinkat(&link, "")?.into())
    }

    /// True for this machine's own root: the paths of its files are what they seem, and it costs nothing to follow
    /// them.
    fn is_host(&self) -> bool {
        self.path == Path::new("/")
    }

    fn open(&self, relative: &Path, flags: OFlag) -> io::Result<File> {
        if self.is_host() {
            let path = self.path.join(relative);
            return Ok(open(&path, flags | OFlag::O_CLOEXEC, Mode::empty())?.into());
        }
        self.inside(relative, flags)
    }

    /// Opens a regular file of a tree. A FIFO is not waited for, and no terminal becomes ours.
    fn file(&self, relative: &Path, flags: OFlag) -> io::Result<(File, Metadata)> {
        let file = self.inside(relative, flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?;
        let found = file.metadata()?;
        expect_file(&found)?;
        Ok((file, found))
    }

    fn inside(&self, relative: &Path, flags: OFlag) -> io::Result<File> {
        let (root, flags) = (self.opened()?, flags | OFlag::O_CLOEXEC);
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
        for _ in 0..MOST_RACES {
            match openat2(root, relative, how) {
                Err(Errno::EAGAIN) => {}
                // Before Linux 5.6, and under filters of system calls that are older than it.
                Err(Errno::ENOSYS | Errno::EPERM) => return Ok(walk::open(root, relative, flags)?.into()),
                opened => return Ok(opened?.into()),
            }
        }
        Err(ErrorKind::ResourceBusy.into())
    }

    fn opened(&self) -> io::Result<&OwnedFd> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let folder = open(&self.path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(self.opened.get_or_init(|| folder))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::unistd::mkfifo;
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "of the host";

    /// A tree beside a file of the host's.
    fn tree() -> (tempfile::TempDir, RootFolder) {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("secret"), SECRET).unwrap();
        fs::create_dir_all(temp.path().join("root/sys/a/b")).unwrap();
        fs::write(temp.path().join("root/sys/a/value"), "own").unwrap();
        let folder = RootFolder::new(temp.path().join("root"));
        (temp, folder)
    }

    fn text(folder: &RootFolder, path: &str) -> Result<String, ErrorKind> {
        folder.read(Path::new(path)).and_then(io::read_to_string).map_err(|error| error.kind())
    }

    #[test]
    fn links_lead_nowhere_but_into_the_tree() {
        let (temp, folder) = tree();
        let link = |name: &str, target: &Path| symlink(target, folder.path().join("sys").join(name)).unwrap();
        link("secret", &temp.path().join("secret"));
        link("climbing", Path::new("../../../../../../../../secret"));
        link("beside", Path::new("../../secret"));
        link("absolute", Path::new("/sys/a/value"));
        link("folder", Path::new("/sys/a"));
        for name in ["secret", "climbing", "beside"] {
            assert_eq!(text(&folder, &format!("sys/{name}")), Err(ErrorKind::NotFound), "{name}");
            let path = PathBuf::from("sys").join(name);
            assert!(folder.metadata(&path).is_err() && folder.write(&path).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(temp.path().join("secret")).unwrap(), SECRET);
        for path in ["sys/absolute", "/sys/a/value", "sys/folder/value", "sys/folder/../a/value", "../sys/a/value"] {
            assert_eq!(text(&folder, path).as_deref(), Ok("own"), "{path}");
        }
        assert_eq!(folder.link(Path::new("sys/beside")).unwrap(), Path::new("../../secret"));
        assert!(folder.link(Path::new("sys/a/value")).is_err());
        let mut names = folder.names(Path::new("sys/folder")).unwrap();
        names.sort_unstable();
        assert_eq!(names, ["b", "value"]);
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_read() {
        let (_temp, folder) = tree();
        mkfifo(&folder.path().join("sys/fifo"), Mode::S_IRWXU).unwrap();
        symlink("loop", folder.path().join("sys/loop")).unwrap();
        File::create(folder.path().join("sys/sparse")).unwrap().set_len(3 << 30).unwrap();
        assert_eq!(text(&folder, "sys/sparse"), Err(ErrorKind::FileTooLarge));
        for path in ["sys/fifo", "sys/a", "sys/loop", ""] {
            assert!(text(&folder, path).is_err(), "{path}");
            assert!(folder.write(Path::new(path)).is_err(), "{path}");
        }
        assert!(folder.names(Path::new("sys/fifo")).is_err());
    }

    #[test]
    fn a_written_file_has_the_new_content_alone() {
        let (_temp, folder) = tree();
        io::Write::write_all(&mut folder.write(Path::new("sys/a/value")).unwrap(), b"ne").unwrap();
        assert_eq!(text(&folder, "sys/a/value").as_deref(), Ok("ne"));
        assert!(folder.write(Path::new("sys/absent")).is_err());
    }

    /// Links lie in real folders: making one must follow no other.
    fn link() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(vec!["x", "y", "a/x", "a/b/x", "a/b/y", "c/x"])
    }

    fn target() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop_oneof!["[a-cxy]", Just("..".to_owned()), Just(".".to_owned())], 0..5)
            .prop_flat_map(|parts| (any::<bool>(), Just(parts.join("/"))))
            .prop_map(|(absolute, path)| if absolute { format!("/{path}") } else { path })
    }

    proptest! {
        /// The kernel is the reference for those that lack its call.
        #[test]
        fn the_walk_finds_what_the_kernel_finds(
            links in proptest::collection::vec((link(), target()), 0..8),
            paths in proptest::collection::vec(target(), 1..8),
        ) {
            let (_temp, folder) = tree();
            for parts in ["a/b/c", "b/a", "c"] {
                fs::create_dir_all(folder.path().join(parts)).unwrap();
            }
            for (at, target) in &links {
                // One that is there already stays.
                let _ = symlink(target, folder.path().join(at));
            }
            for path in paths {
                use std::os::unix::fs::MetadataExt;
                let known = folder.metadata(Path::new(&path)).map(|found| found.ino()).map_err(|error| error.raw_os_error());
                let walked = walk::open(folder.opened().unwrap(), Path::new(&path), OFlag::O_PATH | OFlag::O_CLOEXEC);
                let walked = walked.map(|found| File::from(found).metadata().unwrap().ino());
                prop_assert_eq!(walked.map_err(|error| error.raw_os_error()), known, "{}", path);
            }
        }
    }
}
