//! Which part of the machine stands above which.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hostler_linux::IdSet;

use super::TopologyObject;

/// Puts each object under the smallest that has all of its CPUs. Objects with the same CPUs become one.
pub(super) fn nest(objects: Vec<TopologyObject>) -> Vec<TopologyObject> {
    nest_by(objects, IdSet::is_subset)
}

/// As [`nest`]; `is_within` says whether the first set is in the second. It is asked for the few objects that share a CPU
/// with the one to be placed, not for all: a machine may have any number of parts beside each other.
pub(super) fn nest_by(
    mut objects: Vec<TopologyObject>,
    is_within: impl FnMut(&IdSet, &IdSet) -> bool,
) -> Vec<TopologyObject> {
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
    object: TopologyObject,
    /// Where in `placed` the one is that it stands under.
    above: Option<usize>,
}

impl<F: FnMut(&IdSet, &IdSet) -> bool> Nesting<F> {
    fn place(&mut self, object: TopologyObject) {
        let above = self.above(&object.cpus);
        if let Some(same) = above.map(|at| &mut self.placed[at].object).filter(|above| above.cpus == object.cpus) {
            return join(same, object);
        }
        let at = self.placed.len();
        self.innermost.extend(object.cpus.iter().map(|cpu| (cpu, at)));
        self.placed.push(PlacedObject { object, above });
    }

    /// The smallest object that has all these CPUs. Where masks cross each other, the innermost object of one CPU may lack
    /// another: then that of another CPU can have them all.
    fn above(&mut self, cpus: &IdSet) -> Option<usize> {
        let first = cpus.first().and_then(|cpu| self.innermost.get(&cpu).copied());
        if let Some(found) = self.holder(first, cpus) {
            return Some(found);
        }
        let others: BTreeSet<usize> = cpus.iter().filter_map(|cpu| self.innermost.get(&cpu).copied()).collect();
        others.into_iter().rev().filter(|other| Some(*other) != first).find_map(|other| self.holder(Some(other), cpus))
    }

    /// The first that has all these CPUs, from `at` upwards.
    fn holder(&mut self, mut at: Option<usize>, cpus: &IdSet) -> Option<usize> {
        while let Some(PlacedObject { object, above }) = at.and_then(|at| self.placed.get(at)) {
            if (self.is_within)(cpus, &object.cpus) {
                return at;
            }
            at = *above;
        }
        None
    }

    /// The objects that stand under no other, with all the others under them, by their lowest CPU.
    fn finish(mut self) -> Vec<TopologyObject> {
        let mut tops = Vec::new();
        // An object comes after the one that it stands under, and so is whole when it is moved there.
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

fn join(above: &mut TopologyObject, same: TopologyObject) {
    above.nodes.extend(same.nodes);
    // A die or cluster that is all of the part above it says nothing new.
    if !matches!(&*same.label, "die" | "cluster") {
        above.label = format!("{} · {}", above.label, same.label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(label: &str, cpus: IdSet) -> TopologyObject {
        TopologyObject { label: label.to_owned(), cpus, nodes: Vec::new(), children: Vec::new() }
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
