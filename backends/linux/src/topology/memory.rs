//! Amounts of memory: meminfo, huge pages, memory blocks.

use std::collections::BTreeMap;

use super::{HugePages, MemoryBlockCounts, reader::TreeReader};

/// The machine's huge page pools.
pub(super) const HUGE_PAGES: &str = "sys/kernel/mm/hugepages";
const BLOCKS: &str = "sys/devices/system/memory";

/// Amounts of memory, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeminfoBytes {
    pub(super) total: Option<u64>,
    pub(super) free: Option<u64>,
}

/// Reads the text of a meminfo, whose lines are as `MemTotal: 16 kB` or `Node 0 MemTotal: 16 kB`. Every kernel has
/// `MemTotal`.
pub(super) fn meminfo(reader: &mut TreeReader<'_>, path: &str, text: &str) -> MeminfoBytes {
    let line_of = |key: &str| text.lines().find(|line| line.split_whitespace().any(|word| word == key));
    let bytes =
        |key: &str| reader.tree().understood(path, line_of(key)?, "an amount in kB", |line| bytes_of(line, key));
    let found = MeminfoBytes { total: bytes("MemTotal:"), free: bytes("MemFree:") };
    if !text.is_empty() && line_of("MemTotal:").is_none() {
        reader.warn(path, "has no line MemTotal; taken as absent");
    }
    found
}

/// The bytes of a line; `key` ends in a colon.
fn bytes_of(line: &str, key: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == key)?;
    words.next()?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// The sizes that the kernel has pools for, bytes, in no order.
pub(super) fn huge_page_sizes(reader: &TreeReader<'_>) -> Vec<u64> {
    reader.names(HUGE_PAGES).iter().filter_map(|name| page_bytes(name)).collect()
}

/// The pools in a folder, by page size in bytes. A pool whose size cannot be read is absent.
pub(super) fn huge_pages(reader: &mut TreeReader<'_>, folder: &str) -> BTreeMap<u64, HugePages> {
    let names = reader.names(folder);
    let mut pools = BTreeMap::new();
    for (bytes, name) in names.iter().filter_map(|name| Some((page_bytes(name)?, name))) {
        let mut count = |file: &str| reader.number::<u64>(&path!("{folder}/{name}/{file}_hugepages"));
        let Some(total) = count("nr") else { continue };
        let (free, surplus) = (count("free").unwrap_or_default(), count("surplus").unwrap_or_default());
        pools.insert(bytes, HugePages { total, free, surplus });
    }
    pools
}

/// The size that a folder's name (`hugepages-2048kB`) says: sizes differ between architectures and base page sizes.
fn page_bytes(name: &str) -> Option<u64> {
    let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    kilobytes.checked_mul(1 << 10).filter(|bytes| *bytes > 0)
}

/// The memory blocks; the nodes' folders have told which node each belongs to.
pub(super) fn blocks(reader: &mut TreeReader<'_>, by_node: BTreeMap<u32, usize>) -> Option<MemoryBlockCounts> {
    let path = format!("{BLOCKS}/block_size_bytes");
    let text = reader.text(&path)?;
    // Hexadecimal without saying so.
    let block_bytes = u64::from_str_radix(text.trim_start_matches("0x"), 16).ok().filter(|bytes| *bytes > 0);
    let Some(block_bytes) = block_bytes else {
        reader.warn(&path, format!("{text:?} is not a hexadecimal size; memory blocks are left out"));
        return None;
    };
    let mut blocks = MemoryBlockCounts { block_bytes, by_node, ..MemoryBlockCounts::default() };
    let linked = blocks.by_node.is_empty();
    for block in reader.numbered(BLOCKS, "memory") {
        let folder = format!("{BLOCKS}/memory{block}");
        match reader.text(&path!("{folder}/state")).as_deref() {
            Some("online") => blocks.online += 1,
            Some(_) => blocks.offline += 1,
            None => reader.warn(&path!("{folder}/state"), "is absent; counted neither as online nor as offline"),
        }
        if linked {
            reader.numbered(&folder, "node").into_iter().for_each(|node| *blocks.by_node.entry(node).or_default() += 1);
        }
    }
    Some(blocks)
}
