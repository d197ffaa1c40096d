//! The folder of manifests.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use hostler_api::{
    Allocation, ClaimRef, ObjectName,
    resource::{AllocationError, ResourceClaim},
};
use hostler_files::{Durability, FileError, FileReplacement, TemporaryName, read_text, replace};
use tokio::sync::{Semaphore, SemaphorePermit};

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

impl ManifestFolder {
    /// Makes the folder of manifests for `driver`; `folder` need not exist yet.
    pub fn new(folder: &Path, driver: &str, tasks: &Tasks) -> Self {
        Self {
            folder: folder.into(),
            driver: driver.into(),
            tasks: tasks.clone(),
            adding: Arc::default(),
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
        for ending in ENDINGS {
            if let Some(found) = read(&self.folder.join(format!("{stem}.{ending}")))? {
                return Ok(found);
            }
        }
        let is_it = |found: &ManifestFile| {
            found.manifest.metadata.namespace == namespace && found.manifest.metadata.name == name
        };
        let mut unreadable = None;
        for found in self.all()? {
            match found {
                Ok(found) if is_it(&found) => return Ok(found),
                Ok(_) => {}
                Err(error) => unreadable = unreadable.or(Some(error)),
            }
        }
        Err(unreadable.unwrap_or_else(|| ManifestsError::Missing {
            name: format!("{namespace}/{name}"),
            folder: self.folder.to_path_buf(),
            file: format!("{stem}.yaml"),
        }))
    }

    /// Every manifest of the folder, by file name; a file that is not valid is an error in the list.
    ///
    /// # Errors
    /// When the folder cannot be read. An absent folder holds no manifest.
    pub fn all(&self) -> Result<Vec<Result<ManifestFile, ManifestsError>>, ManifestsError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(FileError::at("read", &self.folder))?,
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(FileError::at("read", &self.folder))?.path();
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            let ending = path.extension().and_then(|ending| ending.to_str());
            if !hidden && ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
                paths.push(path);
            }
        }
        paths.sort_unstable();
        Ok(paths.iter().filter_map(|path| read(path).transpose()).collect())
    }

    /// Problems with the manifests of the folder: files that are no manifests, and manifests whose allocation this
    /// driver cannot read.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn mistakes(&self) -> Result<Vec<ManifestsError>, ManifestsError> {
        Ok(self.all()?.into_iter().filter_map(|found| found.and_then(|found| self.check(found)).err()).collect())
    }

    fn check(&self, ManifestFile { path, manifest }: ManifestFile) -> Result<(), ManifestsError> {
        match manifest.claim().and_then(|_| manifest.allocation(&self.driver)) {
            // A manifest for other drivers only is in order.
            Ok(_) | Err(AllocationError::NotOurs { .. }) => Ok(()),
            Err(error) => Err(ManifestsError::Invalid { path, source: error.into() }),
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
        match self.find(namespace, name) {
            Ok(found) => Err(ManifestsError::Exists { name: format!("{namespace}/{name}"), path: found.path }),
            Err(ManifestsError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
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
