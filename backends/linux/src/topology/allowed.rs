//! The CPUs and nodes that the host's cpuset lets us hand out, on cgroup v1 and v2, wherever they are mounted.

use super::reader::TreeReader;
use crate::IdSet;

/// The most that containers may get.
pub(super) struct AllowedCpuset {
    pub(super) cpus: IdSet,
    pub(super) nodes: IdSet,
    /// CPUs in isolated partitions.
    pub(super) isolated: IdSet,
}

/// A cpuset hierarchy: where it is mounted, and what its files are called, best first.
struct CpusetHierarchy {
    mount: String,
    files: &'static CpusetFiles,
}

struct CpusetFiles {
    cpus: &'static [&'static str],
    mems: &'static [&'static str],
    isolated: Option<&'static str>,
}

const V2: CpusetFiles = CpusetFiles {
    cpus: &["cpuset.cpus.effective"],
    mems: &["cpuset.mems.effective"],
    isolated: Some("cpuset.cpus.isolated"),
};
const V1: CpusetFiles = CpusetFiles {
    cpus: &["cpuset.effective_cpus", "cpuset.cpus"],
    mems: &["cpuset.effective_mems", "cpuset.mems"],
    isolated: None,
};
/// The file system that was there before cgroups, and cgroup v1 mounted with `noprefix`.
const V1_BARE: CpusetFiles =
    CpusetFiles { cpus: &["effective_cpus", "cpus"], mems: &["effective_mems", "mems"], isolated: None };

/// Folders where kubelets put pods, by cgroup driver; then the root, which on a host without pods is what they would
/// get.
const GROUPS: [&str; 3] = ["/kubepods.slice", "/kubepods", ""];

/// Reads the limits. `boot_isolated` CPUs stay allowed: whether to hand those out is the operator's choice.
pub(super) fn read(reader: &mut TreeReader<'_>, online: &IdSet, nodes: &IdSet, boot_isolated: &IdSet) -> AllowedCpuset {
    let mounts = reader.tree().text("proc/mounts").unwrap_or_default();
    warn_of_fakes(reader, &mounts);
    let hierarchies = hierarchies(&mounts);
    let isolated = hierarchies.iter().find_map(|hierarchy| {
        let file = hierarchy.files.isolated?;
        reader.list(&join(&hierarchy.mount, file)).filter(|cpus| !cpus.is_empty())
    });
    let isolated = isolated.unwrap_or_default();
    let cpus = limit(reader, &hierarchies, |files| files.cpus, online);
    AllowedCpuset {
        cpus: cpus.difference(&isolated.difference(boot_isolated)),
        nodes: limit(reader, &hierarchies, |files| files.mems, nodes),
        isolated: isolated.intersection(online),
    }
}

/// The first set that says something, cut to the online ones; all of those where nothing narrows it. An empty set in
/// cgroup v1 means that the group was never configured.
fn limit(
    reader: &mut TreeReader<'_>,
    all: &[CpusetHierarchy],
    names: fn(&CpusetFiles) -> &[&str],
    online: &IdSet,
) -> IdSet {
    let own = own_group(reader);
    for CpusetHierarchy { mount, files } in all {
        for group in GROUPS.iter().copied().chain(own.as_deref()) {
            for name in names(files) {
                let path = join(&format!("{mount}{group}"), name);
                let Some(set) = reader.list(&path).filter(|set| !set.is_empty()) else { continue };
                let allowed = set.intersection(online);
                if allowed.is_empty() && !online.is_empty() {
                    reader.warn(&path, format!("allows {set}, of which nothing is online; nothing can be handed out"));
                }
                return allowed;
            }
        }
    }
    online.clone()
}

/// Our own cgroup: the only limit that can be seen where neither pods' nor the root's is (batch jobs).
fn own_group(reader: &TreeReader<'_>) -> Option<String> {
    let group = reader.tree().text("proc/self/cpuset")?;
    // Above the root of our cgroup namespace the path climbs with `..`, and leads nowhere in this tree.
    (group.starts_with('/') && group.len() > 1 && !climbs(&group)).then_some(group)
}

/// The hierarchies with a cpuset controller, which a machine has in v1 or in v2, never in both; then the usual places,
/// for trees whose mount table is another's (a container's, beside the host's root) or absent.
fn hierarchies(mounts: &str) -> Vec<CpusetHierarchy> {
    let mut found: Vec<(u8, CpusetHierarchy)> = mounts.lines().filter_map(hierarchy).collect();
    found.sort_by_key(|(order, _)| *order);
    let usual = [("sys/fs/cgroup/cpuset", &V1), ("sys/fs/cgroup", &V2)];
    let usual = usual.map(|(mount, files)| CpusetHierarchy { mount: mount.to_owned(), files });
    found.into_iter().map(|(_, hierarchy)| hierarchy).chain(usual).collect()
}

fn hierarchy(line: &str) -> Option<(u8, CpusetHierarchy)> {
    let mut fields = line.split(' ').skip(1);
    let (mount, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    let option = |name: &str| options.split(',').any(|option| option == name);
    let (order, files) = match kind {
        "cgroup" if option("cpuset") && option("noprefix") => (0, &V1_BARE),
        "cgroup" if option("cpuset") => (0, &V1),
        "cpuset" => (0, &V1_BARE),
        "cgroup2" => (1, &V2),
        _ => return None,
    };
    let mount = mount.strip_prefix('/')?.trim_end_matches('/').replace("\\040", " ");
    (!climbs(&mount)).then_some((order, CpusetHierarchy { mount, files }))
}

fn climbs(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

fn join(folder: &str, file: &str) -> String {
    path!("{folder}/{file}")
}

/// Warns of lxcfs, which shows a container's share of the machine where the machine should be.
fn warn_of_fakes(reader: &mut TreeReader<'_>, mounts: &str) {
    const FACTS: [&str; 4] = ["/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu"];
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(mount), Some(kind)) = (fields.next(), fields.next()) else { continue };
        if kind.starts_with("fuse") && FACTS.iter().any(|fact| mount.starts_with(fact)) {
            let reason =
                format!("a {kind} mount stands in for the kernel's file; the machine may be larger than it looks");
            reader.warn(mount.trim_start_matches('/'), reason);
        }
    }
}
