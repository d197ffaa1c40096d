//! Index of a folder of manifests: finds a claim's file without reading the others.
//!
//! The index is a hint and never an answer: its caller reads the file that it names. Events of the kernel keep the index
//! true, and a sweep compares the marks of all files, for what has no event. The folder's lock guards it.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs, io,
    path::Path,
};

use hostler_api::Chain;
use hostler_files::{FileError, FolderChanges, FolderWatch};
use tracing::debug;

use super::{
    ENDINGS,
    facts::{Fact, FactTable, KnownFile},
    stamp::NamedFile,
};

/// The files that an update looks at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sweep {
    /// Files that changed by the word of the folder's watch, and those that it says nothing of; all without a watch.
    Changed,
    /// All files. Those whose marks are as before are not read.
    All,
}

/// Content of a file for the index.
pub(super) struct FileContent {
    pub(super) facts: Vec<Fact>,
    /// False if the same file may be read another time.
    pub(super) is_lasting: bool,
}

/// Index of a folder.
#[derive(Debug, Default)]
pub(super) struct ManifestIndex {
    watch: Option<FolderWatch>,
    table: FactTable,
}

impl ManifestIndex {
    /// Returns the files that a fact is about as of the last update, by name.
    pub(super) fn with(&self, fact: Fact) -> Vec<OsString> {
        self.table.with(fact).map(OsStr::to_owned).collect()
    }

    /// Brings the index up to date; `read` reads one file. Returns the files that were looked at.
    ///
    /// # Errors
    /// When the folder cannot be read. The next update looks at all files again.
    pub(super) fn update(
        &mut self,
        folder: &Path,
        sweep: Sweep,
        read: impl Fn(&Path) -> FileContent,
    ) -> Result<Sweep, FileError> {
        let changes = self.watch.as_ref().map_or(FolderChanges::Unknown, |watch| watch.changes(folder));
        if let FolderChanges::Entries(names) = &changes
            && sweep == Sweep::Changed
        {
            let unwatched = self.with(Fact::Unwatched);
            let changed = names.iter().filter(|name| is_manifest(name));
            changed.chain(&unwatched).for_each(|file| self.look(folder, file, &read));
            // No event tells of the file's name that was there before: it can be one of these.
            if self.with(Fact::Unwatched).iter().all(|file| unwatched.contains(file)) {
                return Ok(Sweep::Changed);
            }
        }
        for file in self.begin_sweep(folder, &changes)? {
            self.look(folder, &file, &read);
        }
        Ok(Sweep::All)
    }

    /// Lists the folder, and forgets all other files. Watches it before, so that no change falls between the two.
    fn begin_sweep(&mut self, folder: &Path, changes: &FolderChanges) -> Result<BTreeSet<OsString>, FileError> {
        if *changes == FolderChanges::Unknown {
            self.watch = FolderWatch::begin(folder)
                .inspect_err(|error| debug!(error = %Chain(error), "manifests are looked at one by one"))
                .ok();
        }
        // Changes that were taken and not looked at must not be lost.
        let files = list(folder).inspect_err(|_| self.watch = None)?;
        self.table.keep(&files);
        Ok(files)
    }

    fn look(&mut self, folder: &Path, file: &OsStr, read: &impl Fn(&Path) -> FileContent) {
        let path = folder.join(file);
        // Marks before content: if it changes in between, the next sweep finds other marks.
        let Some(NamedFile { stamp, has_other_names }) = NamedFile::look(&path) else { return self.table.remove(file) };
        if stamp.is_some() && self.table.stamp(file) == stamp {
            return;
        }
        let FileContent { mut facts, is_lasting } = read(&path);
        if has_other_names {
            facts.push(Fact::Unwatched);
        }
        self.table.put(file, KnownFile { stamp: stamp.filter(|_| is_lasting), facts });
    }
}

/// Lists the files that may be manifests, by name. An absent folder holds none.
///
/// # Errors
/// When the folder cannot be read.
pub(super) fn list(folder: &Path) -> Result<BTreeSet<OsString>, FileError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.map_err(FileError::at("read", folder))?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name()));
    let names = names.filter(|name| name.as_ref().map_or(true, |name| is_manifest(name)));
    names.collect::<io::Result<_>>().map_err(FileError::at("read", folder))
}

fn is_manifest(name: &OsStr) -> bool {
    let is_hidden = name.to_string_lossy().starts_with('.');
    let ending = Path::new(name).extension().and_then(OsStr::to_str);
    !is_hidden && ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, os::unix::fs::symlink};

    use super::*;

    /// Updates the index; returns the number of files that were read. All of them have this content.
    fn update(index: &mut ManifestIndex, folder: &Path, sweep: Sweep, content: (Fact, bool)) -> usize {
        let reads = Cell::new(0);
        let (fact, is_lasting) = content;
        let read = |_: &Path| {
            reads.set(reads.get() + 1);
            FileContent { facts: vec![fact.clone()], is_lasting }
        };
        index.update(folder, sweep, read).unwrap();
        reads.get()
    }

    #[test]
    fn after_the_first_time_only_changed_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        (0..100).for_each(|number| fs::write(path(&format!("{number}.yaml")), "").unwrap());
        let mut index = ManifestIndex::default();
        let lasting = || (Fact::Mistaken, true);
        assert_eq!(update(&mut index, folder.path(), Sweep::Changed, lasting()), 100);
        if index.watch.is_none() {
            return println!("skipped: temporary files are on a file system that is not watched");
        }
        assert_eq!(update(&mut index, folder.path(), Sweep::Changed, lasting()), 0);
        fs::write(path("7.yaml"), "").unwrap();
        fs::write(path("text"), "").unwrap();
        assert_eq!(update(&mut index, folder.path(), Sweep::Changed, lasting()), 1);
        symlink("8.yaml", path("link.yaml")).unwrap();
        assert_eq!(update(&mut index, folder.path(), Sweep::Changed, lasting()), 1 + 101, "a file has a second name");
        assert_eq!(index.with(Fact::Unwatched), ["link.yaml"]);
        assert_eq!(update(&mut index, folder.path(), Sweep::Changed, lasting()), 1, "no event tells of its target");
        assert_eq!(update(&mut index, folder.path(), Sweep::All, lasting()), 101, "they changed within two seconds");
    }

    #[test]
    fn a_sweep_reads_no_file_whose_marks_are_as_before_unless_reading_it_failed() {
        // Files that no test writes, and that did not change within seconds.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/manifests");
        let (mut index, files) = (ManifestIndex::default(), list(&folder).unwrap().len());
        let (lasting, failed) = ((Fact::Mistaken, true), (Fact::Unreadable, false));
        assert!(files > 0);
        assert_eq!(update(&mut index, &folder, Sweep::All, failed), files);
        assert_eq!(update(&mut index, &folder, Sweep::All, lasting.clone()), files);
        assert_eq!(update(&mut index, &folder, Sweep::All, lasting), 0);
        assert!(index.with(Fact::Unreadable).is_empty());
    }

    #[test]
    fn a_folder_that_could_not_be_listed_is_listed_anew() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("folder");
        fs::write(&folder, "").unwrap();
        let mut index = ManifestIndex::default();
        assert!(index.update(&folder, Sweep::Changed, |_| unreachable!()).is_err());
        fs::remove_file(&folder).unwrap();
        assert_eq!(update(&mut index, &folder, Sweep::Changed, (Fact::Mistaken, true)), 0, "absent");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.yaml"), "").unwrap();
        assert_eq!(update(&mut index, &folder, Sweep::Changed, (Fact::Mistaken, true)), 1);
    }
}
