//! What holds for every machine, however little sense its tree makes.

use std::collections::BTreeMap;

use hostler_linux::{IdSet, topology::Topology};

/// Every consumer may rely on this.
pub(crate) fn assert_sound(topology: &Topology) {
    let online = &topology.online;
    assert_eq!(topology.cpus.keys().copied().collect::<IdSet>(), *online);
    assert_partition(topology.cores.iter().map(|core| &core.cpus), Some(online));
    assert_partition(topology.packages.iter().map(|package| &package.cpus), Some(online));
    for groups in [&topology.dies, &topology.clusters, &topology.books, &topology.drawers] {
        assert_partition(groups.iter().map(|group| &group.cpus), None);
    }
    assert_caches(topology);
    for (id, cpu) in &topology.cpus {
        assert!(topology.cores[cpu.core].cpus.contains(*id));
        assert!(topology.packages[cpu.package].cpus.contains(*id));
        assert!(cpu.die.is_none_or(|die| topology.dies[die].cpus.contains(*id)));
        assert!(cpu.cluster.is_none_or(|cluster| topology.clusters[cluster].cpus.contains(*id)));
        assert!(cpu.l3.is_none_or(|l3| topology.caches[l3].level == 3 && topology.caches[l3].cpus.contains(*id)));
        assert!(topology.nodes.get(&cpu.node).is_none_or(|node| node.cpus.contains(*id)));
    }
    assert_nodes(topology);
    for cpus in [&topology.allowed_cpus, &topology.isolated, &topology.nohz_full] {
        assert!(cpus.is_subset(online));
    }
}

/// Non-empty, disjoint, by lowest member; together `whole`, if given.
fn assert_partition<'a>(sets: impl Iterator<Item = &'a IdSet>, whole: Option<&IdSet>) {
    let (mut seen, mut last) = (IdSet::new(), None);
    for set in sets {
        assert!(!set.is_empty());
        assert!(set.is_disjoint(&seen));
        assert!(set.first() > last);
        last = set.first();
        seen = seen.union(set);
    }
    assert!(whole.is_none_or(|whole| *whole == seen));
}

fn assert_caches(topology: &Topology) {
    let mut kinds: BTreeMap<_, Vec<&IdSet>> = BTreeMap::new();
    for cache in &topology.caches {
        assert!(cache.cpus.is_subset(&topology.online));
        kinds.entry((cache.level, &cache.cache_type)).or_default().push(&cache.cpus);
    }
    for sets in kinds.into_values() {
        assert_partition(sets.into_iter(), None);
    }
}

fn assert_nodes(topology: &Topology) {
    let mut seen = IdSet::new();
    for node in topology.nodes.values() {
        assert!(node.cpus.is_subset(&topology.online) && node.cpus.is_disjoint(&seen));
        seen = seen.union(&node.cpus);
        assert!(node.distances.keys().all(|other| topology.nodes.contains_key(other)));
        assert!(node.huge_pages.keys().all(|size| topology.huge_page_sizes.contains(size)));
    }
    let nodes: IdSet = topology.nodes.keys().copied().collect();
    assert!(topology.allowed_nodes.is_subset(&nodes));
}
