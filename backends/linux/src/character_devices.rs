//! Character devices of the kernel, and the drivers that made them.

use std::path::{Path, PathBuf};

use crate::TreeReading;

/// One link per character device, by its number.
const CHARACTER_DEVICES: &str = "sys/dev/char";

/// The folders of all character devices of a machine.
#[derive(Clone, Debug, Default)]
pub struct CharacterDevices(Vec<PathBuf>);

impl CharacterDevices {
    /// Reads where the kernel shows them.
    pub fn read(tree: &TreeReading<'_>) -> Self {
        let numbers = tree.names(CHARACTER_DEVICES);
        Self(numbers.iter().filter_map(|number| tree.target(Path::new(CHARACTER_DEVICES).join(number))).collect())
    }

    /// The names below `/dev` of the nodes that were made for the device in `folder`, or for anything beneath it.
    pub fn beneath(&self, tree: &TreeReading<'_>, folder: &Path) -> Vec<String> {
        let name = |device: &PathBuf| {
            let event = tree.attribute(device.join("uevent"))?;
            event.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned)
        };
        let names = self.0.iter().filter(|device| device.starts_with(folder)).filter_map(name);
        let mut names: Vec<String> = names.filter(|name| is_plain(name)).collect();
        names.sort();
        names
    }
}

/// True for a name that leads to a node below `/dev`. A name from the kernel becomes a path: only names that the kernel
/// makes may pass.
fn is_plain(name: &str) -> bool {
    name.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}
