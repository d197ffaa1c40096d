//! The root of the tree that is read and written: the host's, a captured machine's or a made-up one.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// No sysfs text attribute is longer than a page; only masks of thousands of CPUs are.
const PAGE: usize = 4096;

/// What is done to a path.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PathAccess {
    /// A file is opened and read.
    Read,
    /// A folder is listed.
    List,
    /// A symbolic link is read.
    Link,
    /// Somebody asks whether it is there.
    Look,
    /// A file is opened and written.
    Write,
}

/// Stands between a [`SysRoot`] and its tree. A capture notes with it what is read, a benchmark counts, and a test plays
/// a kernel whose attributes fail or whose writes have effects. Paths are relative to the root (`sys/bus/…`).
pub trait SysRootTap: Send + Sync + fmt::Debug {
    /// Something is about to be done.
    ///
    /// # Errors
    /// What the one who asks is told instead.
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
#[derive(Clone, Debug)]
pub struct SysRoot {
    folder: PathBuf,
    /// In the order in which they were put in between.
    taps: Vec<Arc<dyn SysRootTap>>,
}

impl SysRoot {
    /// A tree in a folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { folder: root.into(), taps: Vec::new() }
    }

    /// The machine we run on.
    pub fn host() -> Self {
        Self::new("/")
    }

    /// The same tree, with something in between; what was there before stays, and is asked first.
    #[must_use]
    pub fn tapped(mut self, tap: Arc<dyn SysRootTap>) -> Self {
        self.taps.push(tap);
        self
    }

    /// Where `relative` (`sys/devices/…`) is. Whoever opens it goes past the [`SysRootTap`].
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.folder.join(relative)
    }

    /// The content of an attribute without the white space around it. `None` if it is absent or cannot be read: sysfs
    /// files may exist and still fail with EIO, EINVAL, ENXIO or EBUSY.
    pub fn text(&self, relative: impl AsRef<Path>) -> Option<String> {
        Some(trimmed(&self.bytes(relative).ok()?))
    }

    /// As [`SysRoot::text`], for sysfs alone: the kernel hands a sysfs attribute over in one read, so that a short read
    /// is its end and nothing asks for more. A scan of a machine reads thousands of them.
    pub fn attribute(&self, relative: impl AsRef<Path>) -> Option<String> {
        self.read_attribute(relative).ok()
    }

    /// As [`SysRoot::attribute`], for those who must know why there is none.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn read_attribute(&self, relative: impl AsRef<Path>) -> io::Result<String> {
        let mut file = self.open(relative.as_ref())?;
        let mut page = [0; PAGE];
        let length = file.read(&mut page)?;
        if length < PAGE {
            return Ok(trimmed(&page[..length]));
        }
        let mut bytes = page.to_vec();
        file.read_to_end(&mut bytes)?;
        Ok(trimmed(&bytes))
    }

    /// The content of a file, whole: the size that `stat` gives for sysfs means nothing.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn bytes(&self, relative: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        self.first_bytes(relative, u64::MAX)
    }

    /// The beginning of a file.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn first_bytes(&self, relative: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(relative.as_ref())?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes an attribute that exists, in one piece. What the kernel made of it is for the caller to read: a write that
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
        // Truncating means nothing to sysfs; in a tree of plain files it takes the old value away.
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.path(relative))?;
        file.write_all(text.as_bytes())
    }

    /// Whether something is there.
    pub fn exists(&self, relative: impl AsRef<Path>) -> bool {
        self.access(PathAccess::Look, relative.as_ref()).is_ok() && self.path(relative).exists()
    }

    /// The names in a folder, sorted; empty if it is absent or cannot be read.
    pub fn names(&self, relative: impl AsRef<Path>) -> Vec<String> {
        if self.access(PathAccess::List, relative.as_ref()).is_err() {
            return Vec::new();
        }
        let Ok(entries) = fs::read_dir(self.path(relative)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Where a symbolic link points to, unresolved.
    pub fn link(&self, relative: impl AsRef<Path>) -> Option<PathBuf> {
        self.access(PathAccess::Link, relative.as_ref()).ok()?;
        fs::read_link(self.path(relative)).ok()
    }

    /// The last component of a symbolic link's target (`driver`, `iommu_group`).
    pub fn link_name(&self, relative: impl AsRef<Path>) -> Option<String> {
        self.link(relative)?.file_name()?.to_str().map(str::to_owned)
    }

    /// The place that a symbolic link names, relative to the root, by the text of the link alone, so that nothing outside
    /// is looked at. `None` if it is no link or leads out of `sys`. The folder that holds the link must itself be
    /// reached without links.
    pub fn target(&self, relative: impl AsRef<Path>) -> Option<PathBuf> {
        let relative = relative.as_ref();
        let target = self.link(relative)?;
        let path = clean(&Path::new("/").join(relative.parent()?).join(target));
        let path = path.strip_prefix("/").ok()?;
        path.starts_with("sys").then(|| path.to_path_buf())
    }

    pub(crate) fn open(&self, relative: &Path) -> io::Result<File> {
        self.access(PathAccess::Read, relative)?;
        File::open(self.path(relative))
    }

    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        self.taps.iter().try_for_each(|tap| tap.access(access, path))
    }
}

/// An absolute path without `.` and `..`, by its text alone.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(cleaned.pop()),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => cleaned.push(component),
        }
    }
    cleaned
}

/// White space and NUL bytes (of captures that pad, of kernels that print a terminator) are not part of a value.
fn trimmed(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Notes everything, and fails where it is told to.
    #[derive(Debug, Default)]
    struct AccessNotes(Mutex<Vec<(PathAccess, PathBuf)>>);

    impl SysRootTap for AccessNotes {
        fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
            self.0.lock().unwrap().push((access, path.to_owned()));
            if path.ends_with("busy") { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(()) }
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
    fn a_tap_sees_every_access_and_its_errors_are_what_the_reader_gets() {
        let (_folder, root, notes) = tree();
        assert_eq!(root.attribute("sys/class/state").as_deref(), Some("offline"));
        assert_eq!(root.attribute("sys/class/busy"), None);
        let error = root.read_attribute("sys/class/busy").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(root.names("sys/class").len(), 5);
        assert!(root.exists("sys/class"));
        assert!(root.write("sys/class/busy", "0").is_err());
        let seen: Vec<PathAccess> = notes.0.lock().unwrap().iter().map(|(access, _)| *access).collect();
        use PathAccess::{List, Look, Read, Write};
        assert_eq!(seen, [Read, Read, Read, List, Look, Write]);
    }

    #[test]
    fn taps_are_asked_in_their_order_until_one_refuses() {
        let (_folder, root, first) = tree();
        let second = Arc::new(AccessNotes::default());
        let root = root.tapped(second.clone());
        assert_eq!(root.attribute("sys/class/state").as_deref(), Some("offline"));
        assert_eq!(root.attribute("sys/class/busy"), None);
        assert_eq!(first.0.lock().unwrap().len(), 2);
        assert_eq!(second.0.lock().unwrap().len(), 1, "what the first refuses does not reach the second");
    }

    #[test]
    fn a_write_replaces_the_value_unless_a_tap_takes_it() {
        let (_folder, root, _) = tree();
        root.write("sys/class/state", "on").unwrap();
        assert_eq!(root.attribute("sys/class/state").as_deref(), Some("on"));
        root.write("sys/class/taken", "new").unwrap();
        assert_eq!(root.attribute("sys/class/taken").as_deref(), Some("old"));
        assert_eq!(root.write("sys/class/absent", "1").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!root.exists("sys/class/absent"));
    }

    #[test]
    fn the_target_of_a_link_is_told_by_its_text_and_stays_in_sys() {
        let (_folder, root, _) = tree();
        assert_eq!(root.target("sys/class/b"), Some("sys/devices/a/b".into()));
        assert_eq!(root.target("sys/class/out"), None);
        assert_eq!(root.target("sys/class/state"), None);
    }
}
