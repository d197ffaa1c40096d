//! The folder of manifests.
//!
//! Every answer about a claim is read from its file at that time. The file is found by its name, or by an index of what
//! the others are, so that their number costs nothing.

mod facts;
mod index;
mod stamp;

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hostler_api::{
    Allocation, ClaimRef, ObjectName,
    resource::{AllocationError, ResourceClaim},
};
use hostler_files::{Durability, FileError, FileReplacement, TemporaryName, read_text, replace};
use tokio::sync::{Semaphore, SemaphorePermit};

use self::{
    facts::Fact,
    index::{FileContent, ManifestIndex, Sweep},
};
use super::manifest::{self, ManifestError};
use crate::{
    claims::{ReadClaims, ReadContinuation},
    tasks::Tasks,
};

const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// Largest manifest, larger than any claim the API server would store; a bound for the cost of a wrong file.
const LARGEST_BYTES: u64 = 3 << 20;

/// A folder of manifests, read for one driver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ManifestFolder {
    folder: Arc<Path>,
    driver: Arc<str>,
    tasks: Tasks,
    /// Held while a manifest is added: the check that the name is free and the write are one step.
    adding: Arc<Mutex<()>>,
    /// Taken after `adding` where both are held.
    index: Arc<Mutex<ManifestIndex>>,
    /// Permit for choosing a claim's devices, held until the manifest shows the choice to the next one.
    choosing: Arc<Semaphore>,
}

/// Reason why a manifest could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// A step on a file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is not a manifest.
    #[error("manifest {path} is not valid")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: ManifestError,
    },
    /// No file is the manifest of the claim.
    #[error("no manifest of claim {name} in {folder}: add {folder}/{file}")]
    Missing {
        /// `namespace/name`.
        name: String,
        /// The folder.
        folder: PathBuf,
        /// The file to add.
        file: String,
    },
    /// The manifest is of another claim of the same name.
    #[error("manifest {path} is of claim uid {found}, asked for is {wanted}: the claim was made anew")]
    OtherUid {
        /// The file.
        path: PathBuf,
        /// UID in the file.
        found: String,
        /// UID of the request.
        wanted: String,
    },
    /// A claim of that name exists already.
    #[error("claim {name} exists already: {path}")]
    Exists {
        /// `namespace/name`.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// A name cannot be part of a file's name.
    #[error("claim name {0:?} is not valid: use a-z, 0-9, '-' and '.'")]
    Name(String),
}

/// A manifest and its file.
#[derive(Clone, Debug)]
pub struct ManifestFile {
    /// The file.
    pub path: PathBuf,
    /// Content of the file.
    pub manifest: ResourceClaim,
}

impl ManifestFile {
    fn is_called(&self, namespace: &str, name: &str) -> bool {
        self.manifest.metadata.namespace == namespace && self.manifest.metadata.name == name
    }
}

impl ManifestFolder {
    /// Makes the folder of manifests for `driver`; `folder` need not exist yet.
    pub fn new(folder: &Path, driver: &str, tasks: &Tasks) -> Self {
        Self {
            folder: folder.into(),
            driver: driver.into(),
            tasks: tasks.clone(),
            adding: Arc::default(),
            index: Arc::default(),
            choosing: Arc::new(Semaphore::new(1)),
        }
    }

    /// Tasks for blocking work on the folder.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Waits for the permit to choose devices for a claim and to add its manifest.
    pub async fn turn_to_choose(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed, which is the only error.
        self.choosing.acquire().await.ok()
    }

    /// Finds the manifest of the claim called `namespace/name`.
    ///
    /// # Errors
    /// When there is none, or it is not valid. For files of other names: when none of them has the claim and one of
    /// them cannot be read, since that one may be meant.
    pub fn find(&self, namespace: &str, name: &str) -> Result<ManifestFile, ManifestsError> {
        let stem = stem(namespace, name)?;
        if let Some(found) = self.read_named(&stem)? {
            return Ok(found);
        }
        let is_it = |found: &ManifestFile| found.is_called(namespace, name);
        let mut index = self.index();
        let mut unreadable = None;
        // No claim is refused by the word of the watch alone.
        for sweep in [Sweep::Changed, Sweep::All] {
            let swept = self.update(&mut index, sweep)?;
            let files = [Fact::name(namespace, name), Fact::Unreadable].map(|fact| index.with(fact)).concat();
            for found in files.iter().filter_map(|file| self.read_file(file)) {
                match found {
                    Ok(found) if is_it(&found) => return Ok(found),
                    Ok(_) => {}
                    Err(error) => unreadable = unreadable.or(Some(error)),
                }
            }
            if swept == Sweep::All {
                break;
            }
            unreadable = None;
        }
        Err(unreadable.unwrap_or_else(|| ManifestsError::Missing {
            name: format!("{namespace}/{name}"),
            folder: self.folder.to_path_buf(),
            file: format!("{stem}.yaml"),
        }))
    }

    /// Reads the manifest in a file of the claim's own name.
    fn read_named(&self, stem: &str) -> Result<Option<ManifestFile>, ManifestsError> {
        for ending in ENDINGS {
            if let Some(found) = read(&self.folder.join(format!("{stem}.{ending}")))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn read_file(&self, file: &OsString) -> Option<Result<ManifestFile, ManifestsError>> {
        read(&self.folder.join(file)).transpose()
    }

    /// Returns the manifests of the claim with this UID and of the claim `namespace/name`, by file name. Of manifests
    /// with one UID only the first counts.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn named(&self, namespace: &str, uid_or_name: &str) -> Result<Vec<ManifestFile>, ManifestsError> {
        let mut index = self.index();
        self.update(&mut index, Sweep::Changed)?;
        let facts = [Fact::name(namespace, uid_or_name), Fact::Uid(uid_or_name.to_owned())];
        let mut files = facts.map(|fact| index.with(fact)).concat();
        files.sort_unstable();
        files.dedup();
        let is_meant = |found: &ManifestFile| {
            let uid = found.manifest.metadata.uid.as_deref();
            let first = uid.and_then(|uid| index.with(Fact::Uid(uid.to_owned())).into_iter().next());
            let is_first = first.is_none_or(|first| found.path.ends_with(first));
            is_first && (uid == Some(uid_or_name) || found.is_called(namespace, uid_or_name))
        };
        let found = files.iter().filter_map(|file| self.read_file(file)?.ok());
        Ok(found.filter(is_meant).collect())
    }

    /// Every manifest of the folder, by file name; a file that is not valid is an error in the list.
    ///
    /// # Errors
    /// When the folder cannot be read. An absent folder holds no manifest.
    pub fn all(&self) -> Result<Vec<Result<ManifestFile, ManifestsError>>, ManifestsError> {
        Ok(index::list(&self.folder)?.iter().filter_map(|file| self.read_file(file)).collect())
    }

    /// Problems with the manifests of the folder: files that are no manifests, and manifests whose allocation this
    /// driver cannot read. Reads files that changed since the last look, and those with problems.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn mistakes(&self) -> Result<Vec<ManifestsError>, ManifestsError> {
        let mut index = self.index();
        self.update(&mut index, Sweep::All)?;
        let mistaken = index.with(Fact::Mistaken);
        drop(index);
        let found = mistaken.iter().filter_map(|file| self.read_file(file));
        Ok(found.filter_map(|found| found.and_then(|found| self.check(&found)).err()).collect())
    }

    fn index(&self) -> MutexGuard<'_, ManifestIndex> {
        self.index.lock().unwrap_or_else(|poisoned| {
            // What the last holder left half done is made anew.
            let mut index = poisoned.into_inner();
            *index = ManifestIndex::default();
            index
        })
    }

    fn update(&self, index: &mut ManifestIndex, sweep: Sweep) -> Result<Sweep, ManifestsError> {
        Ok(index.update(&self.folder, sweep, |path| self.content(path))?)
    }

    fn content(&self, path: &Path) -> FileContent {
        match read(path) {
            Ok(Some(found)) => FileContent { facts: self.facts(&found), is_lasting: true },
            // A link that leads nowhere.
            Ok(None) => FileContent { facts: Vec::new(), is_lasting: false },
            Err(error) => {
                // A step that failed may succeed the next time; a text stays what it is.
                let is_lasting = matches!(error, ManifestsError::Invalid { .. });
                FileContent { facts: vec![Fact::Unreadable, Fact::Mistaken], is_lasting }
            }
        }
    }

    fn facts(&self, found: &ManifestFile) -> Vec<Fact> {
        let metadata = &found.manifest.metadata;
        let mut facts = vec![Fact::name(&metadata.namespace, &metadata.name)];
        facts.extend(metadata.uid.clone().map(Fact::Uid));
        facts.extend(self.check(found).err().map(|_| Fact::Mistaken));
        facts
    }

    fn check(&self, ManifestFile { path, manifest }: &ManifestFile) -> Result<(), ManifestsError> {
        match manifest.claim().and_then(|_| manifest.allocation(&self.driver)) {
            // A manifest for other drivers only is in order.
            Ok(_) | Err(AllocationError::NotOurs { .. }) => Ok(()),
            Err(error) => Err(ManifestsError::Invalid { path: path.clone(), source: error.into() }),
        }
    }

    /// Adds a manifest, mode 0600, atomically.
    ///
    /// # Errors
    /// When the claim exists already or the file cannot be written.
    pub fn add(&self, manifest: &ResourceClaim) -> Result<PathBuf, ManifestsError> {
        let (namespace, name) = (&manifest.metadata.namespace, &manifest.metadata.name);
        let stem = stem(namespace, name)?;
        // The lock guards a folder on disk, which is whole even if the last holder panicked.
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        self.refuse_taken(namespace, name)?;
        let path = self.folder.join(format!("{stem}.json"));
        let temporary = format!(".{stem}.tmp");
        let folder = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        let content = folder.and_then(|()| Ok(serde_json::to_string_pretty(manifest)? + "\n"));
        let content = content.map_err(FileError::at("write", &path))?;
        let file = FileReplacement {
            path: &path,
            temporary: TemporaryName::Fixed(&temporary),
            mode: 0o600,
            content: content.as_bytes(),
        };
        replace(&file, Durability::Synced).map_err(|error| error.as_part_of("write", &path))?;
        Ok(path)
    }

    /// Refuses a name that a claim has already.
    ///
    /// # Errors
    /// When such a claim exists, when the name is not valid, or when a file that may be the claim's cannot be read.
    pub fn refuse_taken(&self, namespace: &str, name: &str) -> Result<(), ManifestsError> {
        if self.is_free(namespace, name)? {
            return Ok(());
        }
        match self.find(namespace, name) {
            Ok(found) => Err(ManifestsError::Exists { name: format!("{namespace}/{name}"), path: found.path }),
            Err(ManifestsError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns true if every file is known to be the manifest of another claim. The manifest to come bears the claim's
    /// own name, which goes before all others: here the word of the watch is enough.
    fn is_free(&self, namespace: &str, name: &str) -> Result<bool, ManifestsError> {
        if self.read_named(&stem(namespace, name)?)?.is_some() {
            return Ok(false);
        }
        let mut index = self.index();
        self.update(&mut index, Sweep::Changed)?;
        Ok([Fact::name(namespace, name), Fact::Unreadable].into_iter().all(|fact| index.with(fact).is_empty()))
    }

    /// Removes a manifest. A manifest that is gone is no error.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(&self, path: &Path) -> Result<(), ManifestsError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::at("remove", path)(error).into()),
            _ => Ok(()),
        }
    }

    fn allocation(&self, claim: &ClaimRef) -> Result<Allocation, ManifestsError> {
        let ManifestFile { path, manifest } = self.find(&claim.namespace, &claim.name)?;
        let invalid = |error: AllocationError| ManifestsError::Invalid { path: path.clone(), source: error.into() };
        let found = manifest.claim().map_err(invalid)?.uid;
        if found != claim.uid {
            let (found, wanted) = (found.to_string(), claim.uid.to_string());
            return Err(ManifestsError::OtherUid { path, found, wanted });
        }
        manifest.allocation(&self.driver).map_err(invalid)
    }
}

impl ReadClaims for ManifestFolder {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let folder = self.clone();
        self.tasks.blocking(move || then(claims.iter().map(|claim| Ok(folder.allocation(claim)?)).collect()));
    }
}

/// Returns `namespace_name`, which cannot lead out of the folder.
fn stem(namespace: &str, name: &str) -> Result<String, ManifestsError> {
    for part in [namespace, name] {
        ObjectName::new(part).map_err(|_| ManifestsError::Name(part.to_owned()))?;
    }
    Ok(format!("{namespace}_{name}"))
}

/// Reads the manifest in a file; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<ManifestFile>, ManifestsError> {
    let text = match read_text(path, LARGEST_BYTES) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let manifest =
        manifest::parse(&text).map_err(|source| ManifestsError::Invalid { path: path.to_owned(), source })?;
    Ok(Some(ManifestFile { path: path.to_owned(), manifest }))
}

#[cfg(test)]
mod tests;
