//! The root of the tree that is read and written: the host's, a captured machine's or a made-up one.

use std::{
    fmt,
    fs::{File, Metadata},
    io::{self, Read as _, Write},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use hostler_files::read_stream;
use nix::fcntl::OFlag;

mod failure;
mod folder;
mod memory;
mod reading;

pub use failure::ReadFailure;
use failure::{present, present_in_tree, present_link};
use folder::{OpenFolder, RootFolder};
pub use memory::LookMemory;
pub use reading::TreeReading;

/// Limit on a file: the kernel says far less in one; a tree may hold files without an end.
const MOST_BYTES: u64 = 64 << 20;

/// Limit on interruptions: attributes whose drivers wait for a lock give up at a signal. So many in a row are no
/// accident.
const MOST_INTERRUPTIONS: usize = 32;

/// Operation on a path.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PathAccess {
    /// A file is opened and read.
    Read,
    /// A folder is listed.
    List,
    /// A symbolic link is read.
    Link,
    /// A caller asks whether something is there.
    Look,
    /// A file is opened and written.
    Write,
}

/// Stands between a [`SysRoot`] and its tree. A capture notes with it what is read, a benchmark counts, and a test
/// plays a kernel whose attributes fail or whose writes have effects. Paths are relative to the root (`sys/bus/…`).
pub trait SysRootTap: Send + Sync + fmt::Debug {
    /// Called before an access.
    ///
    /// # Errors
    /// The answer that the caller gets instead.
    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        let _ = (access, path);
        Ok(())
    }

    /// Takes a write in the place of the file; `None` lets the file take it.
    fn write(&self, path: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
        let _ = (path, bytes);
        None
    }
}

/// A folder that holds `sys`, `proc` and `dev`. Cheap to clone.
///
/// An answer is present, absent, or a [`ReadFailure`]: absent is what the kernel says is absent, and nothing else. A
/// caller that makes something of many files looks at them in one [`SysRoot::look`].
///
/// All of it lies below the folder: links lead where they would if the folder were the root of all, and of a tree that
/// is not this machine's own root only regular files are read, none of them without end.
#[derive(Clone, Debug)]
pub struct SysRoot {
    folder: RootFolder,
    /// Taps in the order in which they were put in between.
    taps: Vec<Arc<dyn SysRootTap>>,
}

impl SysRoot {
    /// A tree in a folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { folder: RootFolder::new(root.into()), taps: Vec::new() }
    }

    /// The machine we run on.
    pub fn host() -> Self {
        Self::new("/")
    }

    /// The same tree, with `tap` in between; taps that were there before stay, and are asked first.
    #[must_use]
    pub fn tapped(mut self, tap: Arc<dyn SysRootTap>) -> Self {
        self.taps.push(tap);
        self
    }

    /// Path of `relative` (`sys/devices/…`). A caller that opens it goes past the [`SysRootTap`], and follows links
    /// out of the tree.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// The content of a file without the white space around it; `None` where there is no file.
    ///
    /// # Errors
    /// When the file is there, or may be, and cannot be read.
    pub fn text(&self, relative: impl AsRef<Path>) -> Result<Option<String>, ReadFailure> {
        Ok(self.first_bytes(relative, u64::MAX)?.map(trimmed))
    }

    /// Reads as [`SysRoot::text`] does, for sysfs alone: the kernel hands a sysfs attribute over in one read, so that
    /// a short read is its end and nothing asks for more. A scan of a machine reads thousands of them.
    ///
    /// # Errors
    /// When the file is there, or may be, and cannot be read.
    pub fn attribute(&self, relative: impl AsRef<Path>) -> Result<Option<String>, ReadFailure> {
        present(self.required_attribute(relative))
    }

    /// Reads as [`SysRoot::attribute`] does, on a short way where one is open.
    fn attribute_near(&self, near: Option<&OpenFolder>, relative: &Path) -> Result<Option<String>, ReadFailure> {
        present(self.ask(PathAccess::Read, relative, |folder, path| folder.attribute(near, path).map(trimmed)))
    }

    /// Reads as [`SysRoot::attribute`] does, where the attribute has to be there.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn required_attribute(&self, relative: impl AsRef<Path>) -> Result<String, ReadFailure> {
        self.ask(PathAccess::Read, relative.as_ref(), |folder, path| folder.attribute(None, path).map(trimmed))
    }

    /// The beginning of a file, or all of it: the size that `stat` gives for sysfs means nothing.
    ///
    /// # Errors
    /// When the file is there, or may be, and cannot be read.
    pub fn first_bytes(&self, relative: impl AsRef<Path>, most: u64) -> Result<Option<Vec<u8>>, ReadFailure> {
        present(self.required_bytes(relative, most))
    }

    /// Reads as [`SysRoot::first_bytes`] does, where the file has to be there.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn required_bytes(&self, relative: impl AsRef<Path>, most: u64) -> Result<Vec<u8>, ReadFailure> {
        self.ask(PathAccess::Read, relative.as_ref(), |folder, path| {
            read_stream(folder.read(path)?.take(most), MOST_BYTES)
        })
    }

    /// Writes an attribute that exists, in one piece. The caller has to read what the kernel made of it: a write that
    /// returns success proves nothing.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn write(&self, relative: impl AsRef<Path>, text: &str) -> io::Result<()> {
        let relative = relative.as_ref();
        self.access(PathAccess::Write, relative)?;
        if let Some(written) = self.taps.iter().find_map(|tap| tap.write(relative, text.as_bytes())) {
            return written;
        }
        self.folder.write(relative)?.write_all(text.as_bytes())
    }

    /// True if something is there.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn exists(&self, relative: impl AsRef<Path>) -> Result<bool, ReadFailure> {
        Ok(self.metadata(relative)?.is_some())
    }

    /// Metadata of a path, links followed; `None` where nothing is.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn metadata(&self, relative: impl AsRef<Path>) -> Result<Option<Metadata>, ReadFailure> {
        present_in_tree(self.ask(PathAccess::Look, relative.as_ref(), RootFolder::metadata))
    }

    /// The names in a folder, sorted; none where it is absent.
    ///
    /// # Errors
    /// When the folder is there, or may be, and cannot be read to its end.
    pub fn names(&self, relative: impl AsRef<Path>) -> Result<Vec<String>, ReadFailure> {
        Ok(self.listed(None, relative.as_ref())?.0)
    }

    /// Lists as [`SysRoot::names`] does, and leaves the folder open.
    fn listed(
        &self,
        near: Option<&OpenFolder>,
        relative: &Path,
    ) -> Result<(Vec<String>, Option<OpenFolder>), ReadFailure> {
        let listed = self.ask(PathAccess::List, relative, |folder, path| folder.names(near, path));
        let Some((mut names, folder)) = present_in_tree(listed)? else { return Ok(Default::default()) };
        names.sort_unstable();
        let folder = folder.listing(&names);
        Ok((names, Some(folder)))
    }

    /// Target of a symbolic link, unresolved; `None` where there is no link.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn link(&self, relative: impl AsRef<Path>) -> Result<Option<PathBuf>, ReadFailure> {
        self.link_near(None, relative.as_ref())
    }

    /// The last component of a symbolic link's target (`driver`, `iommu_group`).
    ///
    /// # Errors
    /// When it cannot be told whether there is a link.
    pub fn link_name(&self, relative: impl AsRef<Path>) -> Result<Option<String>, ReadFailure> {
        Ok(self.link(relative)?.as_deref().and_then(last_name))
    }

    /// The place that a symbolic link names, relative to the root, by the text of the link alone, so that nothing
    /// outside is looked at. `None` if there is no link or it leads out of `sys`. The folder that holds the link must
    /// itself be reached without links.
    ///
    /// # Errors
    /// When it cannot be told whether there is a link.
    pub fn target(&self, relative: impl AsRef<Path>) -> Result<Option<PathBuf>, ReadFailure> {
        Ok(self.link(&relative)?.and_then(|target| place_in_sys(relative.as_ref(), &target)))
    }

    fn link_near(&self, near: Option<&OpenFolder>, relative: &Path) -> Result<Option<PathBuf>, ReadFailure> {
        present_link(self.ask(PathAccess::Link, relative, |folder, path| folder.link(near, path)))
    }

    pub(crate) fn open(&self, relative: &Path) -> Result<File, ReadFailure> {
        self.ask(PathAccess::Read, relative, RootFolder::read)
    }

    /// Opens a device node, to be asked by ioctl; past the taps.
    pub(crate) fn device(&self, relative: impl AsRef<Path>, flags: OFlag) -> io::Result<File> {
        self.folder.device(relative.as_ref(), flags)
    }

    /// The only way to everything that is read: past the taps, and again where a signal came between.
    fn ask<T>(
        &self,
        access: PathAccess,
        relative: &Path,
        ask: impl Fn(&RootFolder, &Path) -> io::Result<T>,
    ) -> Result<T, ReadFailure> {
        let mut answer = Err(io::ErrorKind::Interrupted.into());
        for _ in 0..MOST_INTERRUPTIONS {
            answer = self.access(access, relative).and_then(|()| ask(&self.folder, relative));
            if answer.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::Interrupted) {
                break;
            }
        }
        answer.map_err(|error| ReadFailure::new(relative, error))
    }

    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        self.taps.iter().try_for_each(|tap| tap.access(access, path))
    }
}

fn last_name(target: &Path) -> Option<String> {
    target.file_name()?.to_str().map(str::to_owned)
}

/// The place that a link at `relative` with this target names, where that is in `sys`.
fn place_in_sys(relative: &Path, target: &Path) -> Option<PathBuf> {
    let parent = relative.parent()?;
    let mut path = PathBuf::with_capacity(relative.as_os_str().len() + target.as_os_str().len() + 2);
    path.extend([Path::new("/"), parent, target]);
    let path = clean(&path);
    path.starts_with("sys").then_some(path)
}

/// A place in a folder. [`Path::join`] asks the heap twice, and a scan names thousands of places.
pub fn place(folder: impl AsRef<Path>, name: impl AsRef<Path>) -> PathBuf {
    let (folder, name) = (folder.as_ref(), name.as_ref());
    let mut place = PathBuf::with_capacity(folder.as_os_str().len() + 1 + name.as_os_str().len());
    place.extend([folder, name]);
    place
}

/// An absolute path without `.` and `..`, by its text alone, and without the slash before it.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::with_capacity(path.as_os_str().len());
    for component in path.components() {
        match component {
            Component::CurDir | Component::Prefix(_) | Component::RootDir => {}
            Component::ParentDir => drop(cleaned.pop()),
            Component::Normal(name) => cleaned.push(name),
        }
    }
    cleaned
}

/// White space and NUL bytes (of captures that pad, of kernels that print a terminator) are not part of a value.
fn trimmed(bytes: Vec<u8>) -> String {
    let outside = |c: char| c.is_whitespace() || c == '\0';
    let mut text =
        String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    text.truncate(text.trim_end_matches(outside).len());
    let inner = text.trim_start_matches(outside);
    if inner.len() == text.len() { text } else { inner.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Mutex};

    use super::*;

    /// Notes everything, and fails where it is told to.
    #[derive(Debug, Default)]
    struct AccessNotes(Mutex<Vec<(PathAccess, PathBuf)>>);

    impl SysRootTap for AccessNotes {
        fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
            self.0.lock().unwrap().push((access, path.to_owned()));
            match path.file_name().and_then(|name| name.to_str()) {
                Some("busy") => Err(io::ErrorKind::ResourceBusy.into()),
                Some("gone") => Err(io::Error::from_raw_os_error(nix::libc::ENODEV)),
                _ => Ok(()),
            }
        }

        fn write(&self, path: &Path, _: &[u8]) -> Option<io::Result<()>> {
            path.ends_with("taken").then_some(Ok(()))
        }
    }

    fn tree() -> (tempfile::TempDir, SysRoot, Arc<AccessNotes>) {
        let folder = tempfile::tempdir().unwrap();
        let notes = Arc::new(AccessNotes::default());
        let root = SysRoot::new(folder.path()).tapped(notes.clone());
        fs::create_dir_all(root.path("sys/class")).unwrap();
        fs::create_dir_all(root.path("sys/devices/a/b")).unwrap();
        std::os::unix::fs::symlink("../devices/a/./c/../b", root.path("sys/class/b")).unwrap();
        std::os::unix::fs::symlink("../../etc", root.path("sys/class/out")).unwrap();
        for (name, text) in [("state", "offline\n"), ("busy", "1\n"), ("taken", "old\n")] {
            fs::write(root.path("sys/class").join(name), text).unwrap();
        }
        (folder, root, notes)
    }

    #[test]
    fn a_listed_folder_is_asked_for_nothing_that_it_lacks() {
        let (_folder, root, notes) = tree();
        let found = root.look(|tree| {
            tree.names("sys/class");
            notes.0.lock().unwrap().clear();
            let absent =
                ["absent", "stat", "tate", "state2"].map(|name| tree.attribute(Path::new("sys/class").join(name)));
            assert!(absent.iter().all(Option::is_none) && tree.link("sys/class/driver").is_none());
            assert!(tree.attribute("sys/class/absent/value").is_none() && notes.0.lock().unwrap().is_empty());
            let there = (tree.attribute("sys/class/state"), tree.link_name("sys/class/b"));
            // Another folder, and one whose name begins alike.
            let elsewhere = tree.attribute("sys/classes/state").or(tree.attribute("sys/devices/a/absent"));
            (there, elsewhere, notes.0.lock().unwrap().len())
        });
        let there = (Some("offline".to_owned()), Some("b".to_owned()));
        assert_eq!(found.unwrap(), (there, None, 4));
    }

    #[test]
    fn a_tap_sees_every_access_and_its_errors_are_what_the_reader_gets() {
        let (_folder, root, notes) = tree();
        assert_eq!(root.attribute("sys/class/state").unwrap().as_deref(), Some("offline"));
        let failure = root.attribute("sys/class/busy").unwrap_err();
        assert_eq!(failure.error().kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(failure.to_string(), "failed to read /sys/class/busy");
        assert_eq!(root.names("sys/class").unwrap().len(), 5);
        assert!(root.exists("sys/class").unwrap());
        assert!(root.write("sys/class/busy", "0").is_err());
        let seen: Vec<PathAccess> = notes.0.lock().unwrap().iter().map(|(access, _)| *access).collect();
        use PathAccess::{List, Look, Read, Write};
        assert_eq!(seen, [Read, Read, List, Look, Write]);
    }

    #[test]
    fn an_attribute_whose_device_went_is_absent_and_a_folder_or_link_that_says_so_is_a_failure() {
        let (_folder, root, _) = tree();
        assert_eq!(root.attribute("sys/devices/gone").unwrap(), None);
        assert_eq!(root.names("sys/devices/gone").unwrap_err().to_string(), "failed to read /sys/devices/gone");
        assert_eq!(root.exists("sys/devices/gone").unwrap_err().to_string(), "failed to read /sys/devices/gone");
        assert_eq!(root.target("sys/devices/gone").unwrap_err().to_string(), "failed to read /sys/devices/gone");
    }

    #[test]
    fn taps_are_asked_in_their_order_until_one_refuses() {
        let (_folder, root, first) = tree();
        let second = Arc::new(AccessNotes::default());
        let root = root.tapped(second.clone());
        assert_eq!(root.attribute("sys/class/state").unwrap().as_deref(), Some("offline"));
        assert!(root.attribute("sys/class/busy").is_err());
        assert_eq!(first.0.lock().unwrap().len(), 2);
        assert_eq!(second.0.lock().unwrap().len(), 1, "what the first refuses does not reach the second");
    }

    #[test]
    fn a_write_replaces_the_value_unless_a_tap_takes_it() {
        let (_folder, root, _) = tree();
        root.write("sys/class/state", "on").unwrap();
        assert_eq!(root.attribute("sys/class/state").unwrap().as_deref(), Some("on"));
        root.write("sys/class/taken", "new").unwrap();
        assert_eq!(root.attribute("sys/class/taken").unwrap().as_deref(), Some("old"));
        assert_eq!(root.write("sys/class/absent", "1").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!root.exists("sys/class/absent").unwrap());
    }

    #[test]
    fn the_target_of_a_link_is_told_by_its_text_and_stays_in_sys() {
        let (_folder, root, _) = tree();
        assert_eq!(root.target("sys/class/b").unwrap(), Some("sys/devices/a/b".into()));
        assert_eq!(root.target("sys/class/out").unwrap(), None);
        assert_eq!(root.target("sys/class/state").unwrap(), None);
    }
}
