//! Files below the folder that stands for `/`, and nothing outside of it: links lead where they would lead if that
//! folder were the root of all, and only regular files are read. Of this host, whose files the kernel makes, all of
//! that is true anyway.

mod walk;

use std::{
    cell::Cell,
    ffi::OsStr,
    fs::{self, File, Metadata},
    io::{self, ErrorKind},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
    sync::{Arc, OnceLock},
};

use hostler_files::{expect_file, expect_size, read_stream};
use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2},
    sys::stat::Mode,
};
use rustix::{
    fs::{FileType, RawDir, fstat, readlinkat_raw},
    io::pread,
};

use super::MOST_BYTES;

/// Limit on races: the kernel gives up where something is renamed while it resolves `..`; so often in a row is no
/// accident.
const MOST_RACES: usize = 16;

/// Size of a page: no sysfs text attribute is longer; only masks of thousands of CPUs are.
const PAGE: usize = 4096;

/// Names in a folder of which the heap is asked once.
const NAMES: usize = 64;

/// Longest target of a link, the kernel's `PATH_MAX`.
const PATH_MAX: usize = 4096;

/// Bytes of the entries of a folder that one call returns: those of a CPU or device, or a part of a bus.
const ENTRIES: usize = 8192;

/// The folder, opened when it is first needed.
#[derive(Clone, Debug)]
pub(super) struct RootFolder {
    path: PathBuf,
    opened: Arc<OnceLock<OwnedFd>>,
}

/// A folder of the tree that stays open: the way to what is below it is short, which saves a fifth of the time that it
/// takes to open an attribute of sysfs.
#[derive(Debug)]
pub(super) struct OpenFolder {
    path: PathBuf,
    folder: OwnedFd,
    /// Names in the folder, where they have been read: each between slashes.
    listing: Option<Vec<u8>>,
    /// True once a way from here led through a link, as those of buses and classes do: in a tree, such a way has to
    /// begin at the root.
    has_links: Cell<bool>,
}

impl OpenFolder {
    fn new(path: &Path, folder: OwnedFd) -> Self {
        Self { path: path.to_owned(), folder, listing: None, has_links: Cell::default() }
    }

    /// Keeps what was read of the folder.
    pub(super) fn listing(mut self, names: &[String]) -> Self {
        let mut listing = Vec::with_capacity(1 + names.iter().map(|name| name.len() + 1).sum::<usize>());
        listing.push(b'/');
        for name in names {
            listing.extend_from_slice(name.as_bytes());
            listing.push(b'/');
        }
        self.listing = Some(listing);
        self
    }

    /// True if the folder was read, and what is first on this way was not in it: nothing has to ask for it again.
    pub(super) fn lacks(&self, relative: &Path) -> bool {
        let Some((listing, way)) = self.listing.as_ref().zip(self.way_to(relative)) else { return false };
        let Some(Component::Normal(first)) = way.components().next() else { return false };
        let wanted = [b"/", first.as_bytes(), b"/"].concat();
        !listing.windows(wanted.len()).any(|name| name == wanted)
    }

    /// The way from here to a place below; none climbs out again.
    fn way_to<'p>(&self, relative: &'p Path) -> Option<&'p Path> {
        let rest = relative.as_os_str().as_bytes().strip_prefix(self.path.as_os_str().as_bytes())?;
        let rest = rest.strip_prefix(b"/").filter(|rest| !rest.is_empty() && !rest.starts_with(b"/"))?;
        (!rest.windows(2).any(|two| two == b"..")).then(|| Path::new(OsStr::from_bytes(rest)))
    }

    /// The name of a place that is right here.
    fn entry<'p>(&self, relative: &'p Path) -> Option<&'p Path> {
        self.way_to(relative).filter(|way| !way.as_os_str().as_bytes().contains(&b'/'))
    }
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

    /// Reads an attribute, which the kernel hands over in one piece: a read that is shorter than a page is all of it.
    pub(super) fn attribute(&self, near: Option<&OpenFolder>, relative: &Path) -> io::Result<Vec<u8>> {
        let flags = if self.is_host() { OFlag::empty() } else { OFlag::O_NONBLOCK | OFlag::O_NOCTTY };
        let file = self.open_near(near, relative, OFlag::O_RDONLY | flags)?;
        // `fstat` takes half the time of the `statx` behind `metadata`.
        if !self.is_host() && !FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
            expect_file(&file.metadata()?)?;
        }
        let mut page = [const { MaybeUninit::uninit() }; PAGE];
        let (bytes, room) = pread(&file, &mut page, 0)?;
        if !room.is_empty() {
            return Ok(bytes.to_vec());
        }
        if !self.is_host() {
            expect_size(&file.metadata()?, MOST_BYTES)?;
        }
        // From its beginning: what was read is a part of it.
        read_stream(file, MOST_BYTES)
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

    /// The names in a folder, in no order; those that are no UTF-8 are not the kernel's. The folder stays open.
    pub(super) fn names(&self, near: Option<&OpenFolder>, relative: &Path) -> io::Result<(Vec<String>, OpenFolder)> {
        let folder = OwnedFd::from(self.open_near(near, relative, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?);
        let mut names = Vec::with_capacity(NAMES);
        let mut entries = [const { MaybeUninit::uninit() }; ENTRIES];
        let mut listing = RawDir::new(&folder, &mut entries);
        while let Some(entry) = listing.next() {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        names.retain(|name| name != "." && name != "..");
        Ok((names, OpenFolder::new(relative, folder)))
    }

    /// Opens a folder, to be near to what is below it.
    pub(super) fn folder(&self, relative: &Path) -> io::Result<OpenFolder> {
        Ok(OpenFolder::new(relative, self.open(relative, OFlag::O_PATH | OFlag::O_DIRECTORY)?.into()))
    }

    /// Target of a symbolic link, unresolved.
    pub(super) fn link(&self, near: Option<&OpenFolder>, relative: &Path) -> io::Result<PathBuf> {
        if let Some((folder, name)) = near.and_then(|near| Some((&near.folder, near.entry(relative)?))) {
            return target(folder, name);
        }
        if self.is_host() {
            return target(self.opened()?, relative);
        }
        target(self.inside(relative, OFlag::O_PATH | OFlag::O_NOFOLLOW)?, "")
    }

    /// True for this machine's own root: the paths of its files are what they seem, and it costs nothing to follow
    /// them.
    fn is_host(&self) -> bool {
        self.path == Path::new("/")
    }

    fn open(&self, relative: &Path, flags: OFlag) -> io::Result<File> {
        if self.is_host() {
            let relative = some_path(relative);
            return Ok(openat(self.opened()?, relative, flags | OFlag::O_CLOEXEC, Mode::empty())?.into());
        }
        self.inside(relative, flags)
    }

    /// Opens as [`open`](Self::open) does, from an open folder where the place is below it.
    fn open_near(&self, near: Option<&OpenFolder>, relative: &Path, flags: OFlag) -> io::Result<File> {
        let Some((near, way)) = near.and_then(|near| Some((near, near.way_to(relative)?))) else {
            return self.open(relative, flags);
        };
        if self.is_host() {
            return Ok(openat(&near.folder, way, flags | OFlag::O_CLOEXEC, Mode::empty())?.into());
        }
        if near.has_links.get() {
            return self.open(relative, flags);
        }
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        match openat2(&near.folder, way, how) {
            // A link on the way, or a kernel without the call.
            Err(Errno::ELOOP | Errno::ENOSYS | Errno::EPERM) => {
                near.has_links.set(true);
                self.open(relative, flags)
            }
            opened => Ok(opened?.into()),
        }
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
        let relative = some_path(relative);
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

/// The path of the root itself has a name for the kernel.
fn some_path(relative: &Path) -> &Path {
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}

/// Target of a link. The library's call asks the heap for room for the longest.
fn target(folder: impl AsFd, name: impl rustix::path::Arg) -> io::Result<PathBuf> {
    let mut room = [const { MaybeUninit::uninit() }; PATH_MAX];
    let (target, _) = readlinkat_raw(folder, name, &mut room)?;
    Ok(Path::new(OsStr::from_bytes(target)).into())
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
        assert_eq!(folder.link(None, Path::new("sys/beside")).unwrap(), Path::new("../../secret"));
        assert!(folder.link(None, Path::new("sys/a/value")).is_err());
        let mut names = folder.names(None, Path::new("sys/folder")).unwrap().0;
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
        assert!(folder.names(None, Path::new("sys/fifo")).is_err());
        for (path, kind) in
            [("sys/fifo", "FIFO"), ("sys/a", "folder"), ("sys/sparse", "smaller one"), ("sys/loop", "links")]
        {
            let error = folder.attribute(None, Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(kind), "{path}: {error}");
        }
    }

    #[test]
    fn a_device_in_a_tree_is_not_read() {
        let error = RootFolder::new("/dev".into()).attribute(None, Path::new("null")).unwrap_err();
        assert!(error.to_string().contains("it is a device"), "{error}");
    }

    #[test]
    fn an_attribute_may_be_longer_than_a_page() {
        let (_temp, folder) = tree();
        for length in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE] {
            let bytes: Vec<u8> = (0..length).map(|at| b'a' + u8::try_from(at % 23).unwrap()).collect();
            fs::write(folder.path().join("sys/a/value"), &bytes).unwrap();
            assert!(folder.attribute(None, Path::new("sys/a/value")).unwrap() == bytes, "{length}");
        }
    }

    #[test]
    fn a_folder_of_thousands_of_entries_is_listed_to_its_end() {
        let (_temp, folder) = tree();
        let mut expected: Vec<String> = (0..3_000).map(|number| format!("memory{number}")).collect();
        expected.iter().for_each(|name| drop(File::create(folder.path().join("sys/a/b").join(name)).unwrap()));
        let (mut names, _) = folder.names(None, Path::new("sys/a/b")).unwrap();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
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

        /// The short way leads where the long one does, whatever links are on it.
        #[test]
        fn from_an_open_folder_the_same_is_found(
            links in proptest::collection::vec((link(), target()), 0..8),
            near in proptest::sample::select(vec!["a", "a/b", "c", "a/x", "sys"]),
            paths in proptest::collection::vec(target(), 1..8),
        ) {
            let (temp, folder) = tree();
            for parts in ["a/b/c", "b/a", "c"] {
                let mut at = folder.path().to_owned();
                for part in parts.split('/') {
                    at.push(part);
                    fs::create_dir_all(&at).unwrap();
                    fs::write(at.join("value"), at.as_os_str().as_bytes()).unwrap();
                }
            }
            for (at, target) in &links {
                // One that is there already stays.
                let _ = symlink(target, folder.path().join(at));
            }
            fs::write(temp.path().join("value"), SECRET).unwrap();
            let Ok(open) = folder.folder(Path::new(near)) else { return Ok(()) };
            let code = |error: io::Error| error.raw_os_error();
            for path in paths {
                let path = format!("{near}/{path}");
                // What is no link is called invalid or absent, by its place or by its descriptor.
                let link = |near| folder.link(near, Path::new(&path)).map_err(|error| match code(error) {
                    Some(code) if code == Errno::EINVAL as i32 => Some(Errno::ENOENT as i32),
                    code => code,
                });
                prop_assert_eq!(link(Some(&open)), link(None), "{}", path);
                let file = format!("{path}/value");
                prop_assert_eq!(
                    folder.attribute(Some(&open), Path::new(&file)).map_err(code),
                    folder.attribute(None, Path::new(&file)).map_err(code),
                    "{}", file
                );
                let names = |near| {
                    folder.names(near, Path::new(&path)).map_err(code).map(|(mut names, _)| {
                        names.sort_unstable();
                        names
                    })
                };
                prop_assert_eq!(names(Some(&open)), names(None), "{}", path);
            }
        }
    }
}
