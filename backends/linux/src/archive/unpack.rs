//! Entries of a tar archive to files, folders and harmless links.

use std::{
    collections::HashSet,
    fs::{DirBuilder, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use tar::{Archive, Entry, EntryType};

use super::ArchiveError;
use crate::TreeWarning;

/// Result of unpacking.
pub(super) struct UnpackedEntries {
    pub(super) entries: usize,
    /// Links that were left out.
    pub(super) warnings: Vec<TreeWarning>,
    /// Files whose content the archive does not have: empty and of mode 0.
    pub(super) unknown: Vec<PathBuf>,
}

/// Unpacks everything into the empty folder `into`.
pub(super) fn unpack<R: Read>(
    archive: &mut Archive<R>,
    into: &Path,
    most: usize,
) -> Result<UnpackedEntries, ArchiveError> {
    let folders = HashSet::from([PathBuf::new()]);
    let mut tree = UnpackTree { into, folders, warnings: Vec::new(), unknown: Vec::new() };
    let mut entries = 0;
    let failed = |entries| move |source| ArchiveError::Read { entries, source };
    for entry in archive.entries().map_err(failed(0))? {
        let mut entry = entry.map_err(failed(entries))?;
        entries += 1;
        if entries > most {
            return Err(ArchiveError::TooManyEntries { limit: most });
        }
        tree.add(&mut entry).map_err(|error| match error {
            UnpackFailure::Read(source) => ArchiveError::Read { entries, source },
            UnpackFailure::Archive(error) => error,
        })?;
    }
    Ok(UnpackedEntries { entries, warnings: tree.warnings, unknown: tree.unknown })
}

/// The tree so far. Only folders in `folders` are ever written to: each is a real folder, never a link to one.
struct UnpackTree<'a> {
    into: &'a Path,
    folders: HashSet<PathBuf>,
    warnings: Vec<TreeWarning>,
    unknown: Vec<PathBuf>,
}

enum UnpackFailure {
    Read(io::Error),
    Archive(ArchiveError),
}

impl From<ArchiveError> for UnpackFailure {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl UnpackTree<'_> {
    fn add<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), UnpackFailure> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let name = inside(&entry.path().map_err(UnpackFailure::Read)?)?;
        match kind {
            EntryType::Directory => Ok(self.folder(&name)?),
            EntryType::Regular | EntryType::Continuous => self.file(&name, entry),
            EntryType::Symlink => {
                let target = entry.link_name().map_err(UnpackFailure::Read)?.unwrap_or_default();
                Ok(self.link(&name, &target)?)
            }
            _ => Err(ArchiveError::Kind { entry: name, kind: kind_name(kind) }.into()),
        }
    }

    fn folder(&mut self, name: &Path) -> Result<(), ArchiveError> {
        if self.folders.contains(name) {
            return Ok(());
        }
        self.parent(name)?;
        let made = DirBuilder::new().mode(0o700).create(self.into.join(name));
        made.map_err(|source| failed(name, source))?;
        self.folders.insert(name.to_owned());
        Ok(())
    }

    /// Makes the folder of an entry: archives need not name the folders that their entries lie in.
    fn parent(&mut self, name: &Path) -> Result<(), ArchiveError> {
        name.parent().map_or(Ok(()), |parent| self.folder(parent))
    }

    fn file<R: Read>(&mut self, name: &Path, content: &mut Entry<'_, R>) -> Result<(), UnpackFailure> {
        self.parent(name)?;
        // A new file only: an existing name may be a link.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.into.join(name));
        let mut file = file.map_err(|source| failed(name, source))?;
        let header = content.header();
        if header.mode().is_ok_and(|mode| mode == 0) && header.size().is_ok_and(|size| size == 0) {
            self.unknown.push(name.to_owned());
        }
        let mut buffer = [0; 16 * 1024];
        loop {
            let read = content.read(&mut buffer).map_err(UnpackFailure::Read)?;
            let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else { return Ok(()) };
            io::Write::write_all(&mut file, chunk).map_err(|source| failed(name, source))?;
        }
    }

    fn link(&mut self, name: &Path, target: &Path) -> Result<(), ArchiveError> {
        self.parent(name)?;
        let depth = name.components().count().saturating_sub(1);
        let Some(target) = harmless(target, depth) else {
            let path = Path::new("/").join(name).display().to_string();
            let reason = format!("the link to {} may lead out of the captured tree; it is left out", target.display());
            self.warnings.push(TreeWarning { path, reason });
            return Ok(());
        };
        symlink(target, self.into.join(name)).map_err(|source| failed(name, source))
    }
}

fn failed(name: &Path, source: io::Error) -> ArchiveError {
    match source.kind() {
        io::ErrorKind::AlreadyExists => ArchiveError::Conflict(name.to_owned()),
        _ => ArchiveError::Write { entry: name.to_owned(), source },
    }
}

/// An entry's name relative to the tree, without `.` components; the tree itself is the empty path.
fn inside(name: &Path) -> Result<PathBuf, ArchiveError> {
    let mut relative = PathBuf::new();
    for component in name.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => relative.push(part),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(ArchiveError::Escapes(name.to_owned()));
            }
        }
    }
    Ok(relative)
}

/// A link's target as it would be with the tree as the root of the file system, seen from a folder `depth` levels
/// below its top: an absolute target becomes relative, and `..` does not lead above the top. `None` for a `..` after a
/// name: the name may be a link, and then `..` is not where the text says.
pub(super) fn harmless(target: &Path, depth: usize) -> Option<PathBuf> {
    let (mut ups, mut names) = (0, PathBuf::new());
    for component in target.components() {
        match component {
            Component::CurDir => {}
            Component::RootDir => ups = depth,
            Component::ParentDir if names.as_os_str().is_empty() => ups = depth.min(ups + 1),
            Component::ParentDir | Component::Prefix(_) => return None,
            Component::Normal(name) => names.push(name),
        }
    }
    let mut rewritten: PathBuf = std::iter::repeat_n("..", ups).collect();
    rewritten.extend(&names);
    // A link to its own folder; an empty target is none.
    if rewritten.as_os_str().is_empty() {
        rewritten.push(".");
    }
    Some(rewritten)
}

fn kind_name(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Link => "hard link",
        EntryType::Char => "character device",
        EntryType::Block => "block device",
        EntryType::Fifo => "named pipe",
        EntryType::GNUSparse => "sparse file",
        _ => "special entry",
    }
}
