//! All devices that a container on this host can request, by the runtimes' rules of precedence.
//!
//! Of two files with the same device the one in the later directory counts. In one directory there is no order: the
//! device is in conflict and cannot be requested, whatever other directories say.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::dir::{DirError, SpecDir, SpecFile};

/// The devices of some directories.
#[derive(Debug, Default)]
pub struct DeviceCatalog {
    /// By qualified name.
    pub devices: Vec<CatalogDevice>,
    /// Devices that cannot be requested because two files of one directory define them, by qualified name.
    pub conflicts: Vec<DeviceConflict>,
    /// Every file, in the order of the directories; a file that is not [`SpecFile::usable`] contributes no device.
    pub files: Vec<SpecFile>,
    /// Directories that could not be listed. Missing ones are no error.
    pub unreadable: Vec<DirError>,
}

/// A device that can be requested.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CatalogDevice {
    /// `vendor/class=name`.
    pub name: String,
    /// The file that counts.
    pub file: PathBuf,
    /// Files of earlier directories with a device of the same name.
    pub shadowed: Vec<PathBuf>,
}

/// A device that several files of one directory define.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceConflict {
    /// `vendor/class=name`.
    pub name: String,
    /// All files with the device.
    pub files: Vec<PathBuf>,
}

/// A file with a device, and the position of its directory.
type Definition<'a> = (usize, &'a Path);

impl DeviceCatalog {
    /// Reads the directories, the one that counts least first (`/etc/cdi`, then `/var/run/cdi`).
    pub fn read(dirs: &[SpecDir]) -> Self {
        let mut catalog = Self::default();
        let mut priorities = Vec::new();
        for (priority, dir) in dirs.iter().enumerate() {
            match dir.scan() {
                Ok(files) => {
                    priorities.extend(files.iter().map(|_| priority));
                    catalog.files.extend(files);
                }
                Err(error) => catalog.unreadable.push(error),
            }
        }
        catalog.resolve_all(&priorities);
        catalog
    }

    fn resolve_all(&mut self, priorities: &[usize]) {
        let mut definitions: BTreeMap<String, Vec<Definition<'_>>> = BTreeMap::new();
        for (file, priority) in self.files.iter().zip(priorities) {
            let Some(spec) = file.usable() else { continue };
            for device in &spec.devices {
                let name = format!("{}={}", spec.kind, device.name);
                definitions.entry(name).or_default().push((*priority, &file.path));
            }
        }
        for (name, found) in definitions {
            let mut files: Vec<_> = found.iter().map(|(_, path)| path.to_path_buf()).collect();
            if found.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                self.conflicts.push(DeviceConflict { name, files });
            } else if let Some(file) = files.pop() {
                self.devices.push(CatalogDevice { name, file, shadowed: files });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::spec::{CdiDevice, CdiSpec, ContainerEdits};

    fn dirs(root: &TempDir) -> [SpecDir; 2] {
        ["etc", "run"].map(|name| SpecDir::new(root.path().join(name)))
    }

    fn write(dir: &SpecDir, stem: &str, devices: &[&str]) -> PathBuf {
        let device = |name: &&str| {
            let edits = ContainerEdits { env: vec![format!("FROM={stem}")], ..ContainerEdits::default() };
            CdiDevice { name: (*name).to_owned(), container_edits: edits, ..CdiDevice::default() }
        };
        let devices = devices.iter().map(device).collect();
        let spec = CdiSpec { kind: "vendor.com/gpu".to_owned(), devices, ..CdiSpec::default() };
        dir.write(stem, &spec.with_minimum_version()).unwrap();
        dir.file(stem).unwrap()
    }

    fn device<'a>(catalog: &'a DeviceCatalog, name: &str) -> Option<&'a CatalogDevice> {
        catalog.devices.iter().find(|device| device.name == name)
    }

    #[test]
    fn the_later_directory_counts() {
        let root = TempDir::new().unwrap();
        let dirs = dirs(&root);
        let etc = write(&dirs[0], "a", &["x", "y"]);
        let run = write(&dirs[1], "a", &["x"]);
        let catalog = DeviceCatalog::read(&dirs);
        let x = device(&catalog, "vendor.com/gpu=x").unwrap();
        assert_eq!((&x.file, &x.shadowed), (&run, &vec![etc.clone()]));
        assert_eq!(device(&catalog, "vendor.com/gpu=y").unwrap().file, etc);
        assert_eq!(catalog.devices.len(), 2);
        assert!(catalog.conflicts.is_empty());
    }

    #[test]
    fn two_files_of_one_directory_conflict_and_hide_the_device_everywhere() {
        let root = TempDir::new().unwrap();
        let dirs = dirs(&root);
        let files = vec![write(&dirs[0], "a", &["x"]), write(&dirs[0], "b", &["x"]), write(&dirs[1], "c", &["x", "y"])];
        let catalog = DeviceCatalog::read(&dirs);
        let conflict = DeviceConflict { name: "vendor.com/gpu=x".to_owned(), files };
        assert_eq!((catalog.conflicts.as_slice(), device(&catalog, "vendor.com/gpu=x")), (&[conflict][..], None));
        assert!(device(&catalog, "vendor.com/gpu=y").is_some());
    }

    #[test]
    fn files_that_runtimes_refuse_contribute_nothing_but_are_shown() {
        let root = TempDir::new().unwrap();
        let dirs = dirs(&root);
        write(&dirs[0], "a", &["x"]);
        fs::create_dir(dirs[1].path()).unwrap();
        let refused = r#"{"cdiVersion": "0.3.0", "kind": "vendor.com/gpu", "devices": [
            {"name": "x", "containerEdits": {"additionalGids": [5]}}]}"#;
        fs::write(dirs[1].path().join("refused.json"), refused).unwrap();
        fs::write(dirs[1].path().join("cut.yaml"), "kind: [").unwrap();
        let catalog = DeviceCatalog::read(&dirs);
        assert!(device(&catalog, "vendor.com/gpu=x").unwrap().shadowed.is_empty());
        assert_eq!(catalog.files.iter().filter(|file| file.usable().is_none()).count(), 2);
    }

    #[test]
    fn an_unreadable_directory_is_reported_and_a_missing_one_is_empty() {
        let root = TempDir::new().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let catalog = DeviceCatalog::read(&[SpecDir::new(file), SpecDir::new(root.path().join("nowhere"))]);
        assert_eq!(catalog.unreadable.len(), 1);
        assert_eq!(catalog.devices, []);
    }
}
