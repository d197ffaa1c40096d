//! Memory of each node that the kernel keeps for itself, from `/proc/zoneinfo`.

use std::collections::BTreeMap;

use hostler_linux::{ReadFailure, SysRoot};

/// Page counts per NUMA node; empty where the kernel does not show them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ZoneInfo {
    nodes: BTreeMap<u32, ZonePages>,
}

/// Sums over the zones of a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct ZonePages {
    /// Pages that the page allocator hands out; `MemTotal` of the node is the same in kB.
    managed: u64,
    /// Pages below which only the kernel's emergencies are served.
    min: u64,
    /// The part of `min` that a recent shortage has added for a while.
    boost: u64,
}

impl ZoneInfo {
    /// Reads `/proc/zoneinfo`; nothing is known where it is absent.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read(root: &SysRoot) -> Result<Self, ReadFailure> {
        Ok(root.text("proc/zoneinfo")?.map(|text| Self::parse(&text)).unwrap_or_default())
    }

    /// Reads the text of `/proc/zoneinfo`. Lines that are not understood are passed over.
    pub(crate) fn parse(text: &str) -> Self {
        let mut nodes: BTreeMap<u32, ZonePages> = BTreeMap::new();
        let mut node = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("Node ") {
                node = rest.split_once(',').and_then(|(number, _)| number.trim().parse().ok());
                continue;
            }
            let (Some(node), Some((key, value))) = (node, line.trim().split_once(char::is_whitespace)) else {
                continue;
            };
            let Ok(value) = value.trim().parse::<u64>() else { continue };
            let pages = nodes.entry(node).or_default();
            match key {
                "managed" => pages.managed = pages.managed.saturating_add(value),
                "min" => pages.min = pages.min.saturating_add(value),
                "boost" => pages.boost = pages.boost.saturating_add(value),
                _ => {}
            }
        }
        Self { nodes }
    }

    /// The bytes that the kernel keeps of a node with `memory_bytes`. Temporary boosts are left out: the amount on
    /// offer must not follow every shortage.
    pub(crate) fn kernel_bytes(&self, node: u32, memory_bytes: u64) -> u64 {
        let Some(pages) = self.nodes.get(&node).filter(|pages| pages.managed > 0) else { return 0 };
        let kept = u128::from(pages.min.saturating_sub(pages.boost)) * u128::from(memory_bytes);
        u64::try_from(kept.div_ceil(u128::from(pages.managed))).unwrap_or(u64::MAX).min(memory_bytes)
    }

    /// The size of a base page: the file counts in pages what `MemTotal` of the node counts in kB.
    pub(crate) fn page_bytes(&self, node: u32, memory_bytes: u64) -> Option<u64> {
        let managed = self.nodes.get(&node).map(|pages| pages.managed).filter(|pages| *pages > 0)?;
        let page = memory_bytes.checked_add(managed / 2)? / managed;
        // The two files are read at two moments, so the quotient is near a page size rather than equal to it.
        (12..=16).map(|shift| 1_u64 << shift).find(|size| page.abs_diff(*size) <= size / 8)
    }
}
