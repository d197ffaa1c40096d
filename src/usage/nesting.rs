//! Nesting of the parts of the machine.
//!
//! The levels nest differently from machine to machine (a NUMA node may hold packages or be a part of one), so nothing
//! is assumed: a part that has all CPUs of another stands above it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hostler_linux::IdSet;

use super::layout::{LayoutGroup, MachineLayout};
use crate::units::bytes;

/// A part of the machine that has CPUs, with the parts within it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachinePart {
    /// Label of the part, in words; several parts with the same CPUs are one.
    pub label: String,
    /// Online CPUs of the part.
    pub cpus: IdSet,
    /// The NUMA nodes that have just these CPUs.
    pub nodes: Vec<u32>,
    /// Parts within it, by lowest CPU.
    pub children: Vec<MachinePart>,
}

/// The machine's outermost parts, with everything within them; caches from `level` up.
pub fn parts(layout: &MachineLayout, level: u32) -> Vec<MachinePart> {
    nest(objects(layout, level))
}

/// Every part, the outermost first where several have the same CPUs.
fn objects(layout: &MachineLayout, level: u32) -> Vec<MachinePart> {
    let object = |label: String, cpus: &IdSet| MachinePart { label, cpus: cpus.clone(), ..MachinePart::default() };
    let mut objects = Vec::new();
    for (kind, groups) in [("drawer", &layout.drawers), ("book", &layout.books), ("package", &layout.packages)] {
        let parts = groups.iter().enumerate();
        objects.extend(parts.map(|(index, part)| object(named(kind, index, part), &part.cpus)));
    }
    for (id, node) in &layout.nodes {
        objects.push(MachinePart { nodes: vec![*id], ..object(format!("NUMA node {id}"), &node.cpus) });
    }
    objects.extend(layout.dies.iter().map(|die| object("die".to_owned(), &die.cpus)));
    for cache in layout.caches.iter().filter(|cache| cache.level >= level) {
        let size = cache.size_bytes.map(bytes).unwrap_or_default();
        objects.push(object(format!("L{} {size}", cache.level).trim_end().to_owned(), &cache.cpus));
    }
    objects.extend(layout.clusters.iter().map(|cluster| object("cluster".to_owned(), &cluster.cpus)));
    objects.retain(|object| !object.cpus.is_empty());
    objects
}

fn named(kind: &str, index: usize, part: &LayoutGroup) -> String {
    match part.id {
        Some(id) => format!("{kind} {id}"),
        None => format!("{kind} #{index}"),
    }
}

/// Puts each object under the smallest that has all of its CPUs. Objects with the same CPUs become one.
fn nest(objects: Vec<MachinePart>) -> Vec<MachinePart> {
    nest_by(objects, IdSet::is_subset)
}

/// Does the same as [`nest`]; `is_within` is true if the first set is in the second. It is asked for the few objects
/// that share a CPU with the one to be placed, not for all: a machine may have any number of parts beside each other.
fn nest_by(mut objects: Vec<MachinePart>, is_within: impl FnMut(&IdSet, &IdSet) -> bool) -> Vec<MachinePart> {
    // Stable: of objects with as many CPUs, the outermost kind stays in front.
    objects.sort_by_key(|object| Reverse(object.cpus.len()));
    let mut nesting = Nesting { placed: Vec::new(), innermost: BTreeMap::new(), is_within };
    objects.into_iter().for_each(|object| nesting.place(object));
    nesting.finish()
}

struct Nesting<F> {
    /// Larger objects before smaller ones.
    placed: Vec<PlacedObject>,
    /// The last object with a CPU among `placed`, by CPU.
    innermost: BTreeMap<u32, usize>,
    is_within: F,
}

struct PlacedObject {
    object: MachinePart,
    /// Place in `placed` of the object above it.
    above: Option<usize>,
}

impl<F: FnMut(&IdSet, &IdSet) -> bool> Nesting<F> {
    fn place(&mut self, object: MachinePart) {
        let above = self.above(&object.cpus);
        if let Some(same) = above.map(|at| &mut self.placed[at].object).filter(|above| above.cpus == object.cpus) {
            return join(same, object);
        }
        let at = self.placed.len();
        self.innermost.extend(object.cpus.iter().map(|cpu| (cpu, at)));
        self.placed.push(PlacedObject { object, above });
    }

    /// Finds the smallest object that has all these CPUs. Where masks cross each other, the innermost object of one
    /// CPU may lack another: then that of another CPU can have them all.
    fn above(&mut self, cpus: &IdSet) -> Option<usize> {
        let first = cpus.first().and_then(|cpu| self.innermost.get(&cpu).copied());
        if let Some(found) = self.holder(first, cpus) {
            return Some(found);
        }
        let others: BTreeSet<usize> = cpus.iter().filter_map(|cpu| self.innermost.get(&cpu).copied()).collect();
        others.into_iter().rev().filter(|other| Some(*other) != first).find_map(|other| self.holder(Some(other), cpus))
    }

    /// Finds the first object that has all these CPUs, from `at` upwards.
    fn holder(&mut self, mut at: Option<usize>, cpus: &IdSet) -> Option<usize> {
        while let Some(PlacedObject { object, above }) = at.and_then(|at| self.placed.get(at)) {
            if (self.is_within)(cpus, &object.cpus) {
                return at;
            }
            at = *above;
        }
        None
    }

    /// Returns the objects that stand under no other, with all others under them, by their lowest CPU.
    fn finish(mut self) -> Vec<MachinePart> {
        let mut tops = Vec::new();
        // An object comes after the one above it, and so is whole when it is moved there.
        while let Some(PlacedObject { mut object, above }) = self.placed.pop() {
            object.children.sort_by_key(|child| child.cpus.first());
            match above.and_then(|at| self.placed.get_mut(at)) {
                Some(above) => above.object.children.push(object),
                None => tops.push(object),
            }
        }
        tops.sort_by_key(|top| top.cpus.first());
        tops
    }
}

fn join(above: &mut MachinePart, same: MachinePart) {
    above.nodes.extend(same.nodes);
    // A die or cluster that is all of the part above it says nothing new.
    if !matches!(&*same.label, "die" | "cluster") {
        above.label = format!("{} · {}", above.label, same.label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(label: &str, cpus: IdSet) -> MachinePart {
        MachinePart { label: label.to_owned(), cpus, ..MachinePart::default() }
    }

    #[test]
    fn placing_an_object_asks_for_those_around_it_and_not_for_those_beside_it() {
        const PACKAGES: u32 = 20_000;
        let mut objects = Vec::new();
        for package in 0..PACKAGES {
            let first = package * 3;
            objects.push(object("package", (first..first + 3).collect()));
            objects.push(object("cluster", (first..first + 2).collect()));
            objects.push(object("cache", (first..=first).collect()));
        }
        let (count, mut asked) = (objects.len(), 0);
        let tops = nest_by(objects, |inner, outer| {
            asked += 1;
            inner.is_subset(outer)
        });
        assert_eq!(tops.len(), PACKAGES as usize);
        assert!(tops.iter().all(|package| package.children[0].children[0].label == "cache"));
        assert!(asked <= 3 * count, "{asked} questions for {count} objects");
    }

    #[test]
    fn an_object_is_found_a_place_although_others_cross_it() {
        let set = |list: &str| list.parse::<IdSet>().unwrap();
        let tops =
            nest(vec![object("outer", set("2-11")), object("crossing", set("0-5")), object("inner", set("2-3,8-9"))]);
        assert_eq!(tops.iter().map(|top| top.label.as_str()).collect::<Vec<_>>(), ["crossing", "outer"]);
        assert_eq!(tops[1].children[0].label, "inner");
    }
}
