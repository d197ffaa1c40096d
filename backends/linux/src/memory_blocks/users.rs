//! Users of the memory of a node.

use std::time::{Duration, Instant};

use crate::{ReadFailure, SysRoot, TreeReading};

/// Time for the whole search: the kernel walks the page tables of a process for this file, and a machine of thousands
/// of processes must not hold up an order for longer than an operator waits.
const LOOKING: Duration = Duration::from_secs(2);

/// The mappings of the largest processes that are worth reading.
const LONGEST_MAPS_BYTES: u64 = 8 << 20;

/// A process with pages on a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryUser {
    /// Process id.
    pub pid: u32,
    /// Name that the process gives itself.
    pub command: String,
    /// Memory of the process on the node.
    pub bytes: u64,
}

/// The huge pages of one size on a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HugePagePool {
    /// Size of a page, kB.
    pub page_kb: u64,
    /// Pages in the pool: their memory cannot be taken back while they are there.
    pub pages: u64,
    /// Pages in the pool that are unused.
    pub free: u64,
}

/// Users of the memory of a node, as far as they can be told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeUsers {
    /// Processes, the largest first.
    pub processes: Vec<MemoryUser>,
    /// Pools of huge pages that are not empty.
    pub huge_pages: Vec<HugePagePool>,
    /// True if not all processes and pools were looked at.
    pub incomplete: bool,
}

impl NodeUsers {
    /// Unwraps an answer, and remembers if there was none. Users are asked for to tell people what is in the way, and
    /// a part of them is worth telling.
    fn known<T>(&mut self, answer: Result<T, ReadFailure>) -> Option<T> {
        self.incomplete |= answer.is_err();
        answer.ok()
    }
}

/// Looks for users of the memory of `node`. Takes no longer than a few seconds, whatever the machine runs.
pub fn users(root: &SysRoot, node: u32) -> NodeUsers {
    let began = Instant::now();
    let mut found = NodeUsers::default();
    found.huge_pages = found.known(huge_pages(root, node)).unwrap_or_default();
    let processes = found.known(root.names("proc")).unwrap_or_default();
    for pid in processes.iter().filter_map(|name| name.parse::<u32>().ok()) {
        if began.elapsed() > LOOKING {
            found.incomplete = true;
            break;
        }
        let maps = found.known(root.first_bytes(format!("proc/{pid}/numa_maps"), LONGEST_MAPS_BYTES)).flatten();
        let bytes = bytes_on(&String::from_utf8_lossy(&maps.unwrap_or_default()), node);
        if bytes > 0 {
            let command = found.known(root.text(format!("proc/{pid}/comm"))).flatten().unwrap_or_default();
            found.processes.push(MemoryUser { pid, command, bytes });
        }
    }
    found.processes.sort_by_key(|user| (std::cmp::Reverse(user.bytes), user.pid));
    found
}

/// Sums the bytes of `node` in a text of `numa_maps`: pages of a mapping stand as `N5=12`, their size beside them.
fn bytes_on(maps: &str, node: u32) -> u64 {
    let key = format!("N{node}=");
    let of_line = |line: &str| {
        let value = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
        let pages = value(&key)?;
        Some(pages.saturating_mul(value("kernelpagesize_kB=").unwrap_or(4)).saturating_mul(1024))
    };
    maps.lines().filter_map(of_line).fold(0, u64::saturating_add)
}

fn huge_pages(root: &SysRoot, node: u32) -> Result<Vec<HugePagePool>, ReadFailure> {
    let folder = format!("sys/devices/system/node/node{node}/hugepages");
    let pool = |tree: &TreeReading<'_>, name: &String| {
        let page_kb = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let number = |file| tree.attribute(format!("{folder}/{name}/{file}"))?.parse::<u64>().ok();
        let pages = number("nr_hugepages").filter(|pages| *pages > 0)?;
        Some(HugePagePool { page_kb, pages, free: number("free_hugepages").unwrap_or(0) })
    };
    root.look(|tree| tree.names(&folder).iter().filter_map(|name| pool(tree, name)).collect())
}
