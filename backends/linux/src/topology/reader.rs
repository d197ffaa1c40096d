//! Reads attributes of the tree, and warns of faults in them.

use std::str::FromStr;

use crate::{IdSet, TreeReading};

/// Folder of CPUs.
pub(super) const CPU: &str = "sys/devices/system/cpu";
/// Folder of NUMA nodes.
pub(super) const NODE: &str = "sys/devices/system/node";

/// Interprets a tree. Paths are relative to the tree: `sys/devices/…`.
pub(super) struct TreeReader<'a> {
    tree: &'a TreeReading<'a>,
}

impl<'a> TreeReader<'a> {
    pub(super) fn new(tree: &'a TreeReading<'a>) -> Self {
        Self { tree }
    }

    pub(super) fn warn(&mut self, path: &str, reason: impl Into<String>) {
        self.tree.warn(path, reason);
    }

    pub(super) fn tree(&self) -> &'a TreeReading<'a> {
        self.tree
    }

    /// A sysfs attribute's text.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        self.tree.attribute(path)
    }

    /// A number. An empty attribute is an absent one; anything else that is no number gets a warning.
    pub(super) fn number<T: FromStr>(&mut self, path: &str) -> Option<T> {
        let text = self.text(path);
        self.number_of(path, text)
    }

    /// A number that a driver may have to ask the hardware for.
    pub(super) fn detail<T: FromStr>(&mut self, path: &str) -> Option<T> {
        let text = self.tree.detail(path);
        self.number_of(path, text)
    }

    fn number_of<T: FromStr>(&mut self, path: &str, text: Option<String>) -> Option<T> {
        let text = text.filter(|text| !text.is_empty())?;
        self.tree.understood(path, &text, "a number in range", |text| text.parse().ok())
    }

    /// A list such as `0-3,8`.
    pub(super) fn list(&mut self, path: &str) -> Option<IdSet> {
        let text = self.text(path)?;
        self.parsed(path, text.parse())
    }

    /// A list or a mask, as the name of the file says.
    pub(super) fn set(&mut self, path: &str) -> Option<IdSet> {
        if path.ends_with("list") {
            return self.list(path);
        }
        let text = self.text(path)?;
        self.parsed(path, IdSet::from_mask(&text))
    }

    fn parsed(&mut self, path: &str, set: Result<IdSet, crate::ParseIdSetError>) -> Option<IdSet> {
        set.map_err(|error| self.warn(path, format!("{error}; taken as absent"))).ok()
    }

    /// The names in a folder, sorted.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        self.tree.names(path)
    }

    /// The numbers of the entries `prefixN` of a folder, ascending.
    pub(super) fn numbered(&self, path: &str, prefix: &str) -> Vec<u32> {
        numbers(&self.names(path), prefix)
    }
}

/// The numbers of the names `prefixN`, ascending. Names that only look alike (`cpufreq`, `memory_side_cache`) have
/// none.
pub(super) fn numbers(names: &[String], prefix: &str) -> Vec<u32> {
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = names.iter().filter_map(|name| name.strip_prefix(prefix).filter(digits)?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Reads `32768K`, `30M` or plain bytes.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
