//! The plan of the writes that make the desired slices of those that exist: a pure function.
//!
//! Readers of a pool look at the slices of its highest generation only, and only when all of them are there. So a
//! change of one slice can be made in place, and any larger one makes a new generation, with every slice written once.
//! Taints are each device's own, and a mixture of old and new ones misleads no reader: slices that change in nothing
//! else keep the generation, and the others are not written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::resource::{ResourcePool, ResourceSliceSpec, SliceContent, SliceDevice};
use hostler_cluster::{ApiObject, ObjectVersion};

use super::{DesiredPool, DesiredSlice};

/// A slice on the server.
#[derive(Clone, Debug)]
pub struct PublishedSlice {
    /// Identity and version of the object.
    pub version: ObjectVersion,
    /// Pool of the slice.
    pub pool: ResourcePool,
    /// UID of the Node that owns it, if one does.
    pub owner: Option<String>,
    /// Content of the slice.
    pub content: Arc<SliceContent>,
    /// Content that was sent, where the server made something else of it. Sending it again would change nothing.
    pub sent: Option<Arc<SliceContent>>,
}

impl PublishedSlice {
    /// The slice with its name; nothing of an object that no API server gives: one without a name.
    pub fn of(slice: ApiObject<ResourceSliceSpec>) -> Option<(String, Self)> {
        let (name, version) = (slice.name()?.to_owned(), slice.version());
        let owner = slice.controller("Node").map(str::to_owned);
        let ResourceSliceSpec { pool, node_selector, devices, shared_counters, .. } = slice.spec;
        let devices = devices.into_iter().map(SliceDevice::unwrapped).collect();
        let content = Arc::new(SliceContent { node_selector, devices, shared_counters });
        Some((name, Self { version, pool, owner, content, sent: None }))
    }

    fn says(&self, desired: &SliceContent) -> bool {
        *self.content == *desired || self.sent.as_deref() == Some(desired)
    }

    fn says_but_for_taints(&self, desired: &SliceContent) -> bool {
        self.says(desired) || is_same_but_for_taints(&self.content, desired)
    }
}

fn is_same_but_for_taints(one: &SliceContent, other: &SliceContent) -> bool {
    let untainted = |device: &SliceDevice| SliceDevice { taints: Vec::new(), ..device.clone() };
    one.node_selector == other.node_selector
        && one.shared_counters == other.shared_counters
        && one.devices.len() == other.devices.len()
        && one.devices.iter().zip(&other.devices).all(|(one, other)| untainted(one) == untainted(other))
}

/// All that has to be done; empty if all is as it should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlicePlan {
    /// To be written first, in any order; those of a pool are next to each other.
    pub writes: Vec<SliceWrite>,
    /// To be deleted when all writes have succeeded.
    pub deletes: Vec<SliceDeletion>,
}

impl SlicePlan {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.deletes.is_empty()
    }
}

/// A slice to create or to replace.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceWrite {
    /// Name of the object.
    pub name: String,
    /// Version that is replaced; `None`: the slice is new.
    pub replaces: Option<ObjectVersion>,
    /// The pool with the new generation.
    pub pool: ResourcePool,
    /// Content of the slice.
    pub content: Arc<SliceContent>,
}

/// A slice to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceDeletion {
    /// Name of the object.
    pub name: String,
    /// Identity and version of the object.
    pub version: ObjectVersion,
}

/// Makes `desired` of `existing`, which are all slices of the publisher by name. `owner` is the UID of the Node that
/// owns them, if one does.
pub fn plan<'a>(
    existing: impl IntoIterator<Item = (&'a str, &'a PublishedSlice)>,
    desired: &[DesiredPool],
    owner: Option<&str>,
) -> SlicePlan {
    let existing: Members<'a> = existing.into_iter().collect();
    let mut plan = SlicePlan::default();
    let mut kept = BTreeSet::new();
    for pool in desired {
        let members = existing.iter().filter(|(_, slice)| slice.pool.name == pool.name);
        let members: Members<'_> = members.map(|(name, slice)| (*name, *slice)).collect();
        if pool.unknown {
            kept.extend(members.into_keys());
            continue;
        }
        let names = pool.slices.iter().map(|slice| &*slice.name);
        kept.extend(names.filter_map(|name| members.get_key_value(name)).map(|(name, _)| *name));
        // A name that a slice of another pool has is free once that one is deleted; its pool cannot be changed.
        let free = |slice: &&DesiredSlice| members.contains_key(&*slice.name) || !existing.contains_key(&*slice.name);
        let writes = pool_writes(&members, pool, owner);
        let is_free = |write: &SliceWrite| pool.slices.iter().filter(free).any(|slice| slice.name == write.name);
        plan.writes.extend(writes.into_iter().filter(is_free));
    }
    let unwanted = existing.iter().filter(|(name, _)| !kept.contains(*name));
    let deletion =
        |(name, it): (&&str, &&PublishedSlice)| SliceDeletion { name: (*name).to_owned(), version: it.version.clone() };
    plan.deletes = unwanted.map(deletion).collect();
    plan
}

type Members<'a> = BTreeMap<&'a str, &'a PublishedSlice>;

fn pool_writes(members: &Members<'_>, pool: &DesiredPool, owner: Option<&str>) -> Vec<SliceWrite> {
    let target = ResourcePool {
        name: pool.name.clone(),
        generation: generation(members, pool),
        resource_slice_count: count(pool),
    };
    let times = taint_times(members);
    let write = |slice: &DesiredSlice| {
        let existing = members.get(&*slice.name);
        let is_right = |existing: &&&PublishedSlice| {
            existing.pool == target && existing.says(&slice.content) && existing.owner.as_deref() == owner
        };
        (existing.filter(is_right).is_none()).then(|| SliceWrite {
            name: slice.name.clone(),
            replaces: existing.map(|existing| existing.version.clone()),
            pool: target.clone(),
            content: with_times(&slice.content, &times),
        })
    };
    pool.slices.iter().filter_map(write).collect()
}

fn count(pool: &DesiredPool) -> i64 {
    i64::try_from(pool.slices.len()).unwrap_or(i64::MAX)
}

/// The generation that the pool's slices shall have. The current one stays where a mixture misleads no reader: when one
/// slice of a complete pool changes, when slices are missing and all others are right, and when nothing but taints
/// changes.
fn generation(members: &Members<'_>, pool: &DesiredPool) -> i64 {
    let Some(latest) = members.values().map(|slice| slice.pool.generation).max() else { return 1 };
    let current = |name: &str| members.get(name).filter(|slice| slice.pool.generation == latest);
    let in_latest = members.values().filter(|slice| slice.pool.generation == latest);
    let wanted = pool.slices.iter().filter_map(|slice| Some((slice, current(&slice.name)?)));
    let (found, changed) = wanted.fold((0, 0), |(found, changed), (slice, existing)| {
        (found + 1, changed + usize::from(!existing.says_but_for_taints(&slice.content)))
    });
    let none_unwanted = in_latest.clone().count() == found;
    let same_count = in_latest.clone().all(|slice| slice.pool.resource_slice_count == count(pool));
    let none_missing = found == pool.slices.len();
    let unmixed = changed == 0 || (changed == 1 && none_missing);
    if none_unwanted && same_count && unmixed { latest } else { latest.saturating_add(1) }
}

/// When taints were added, by device, key, value and effect.
type TaintTimes<'a> = BTreeMap<(&'a str, &'a str, Option<&'a str>, &'a str), &'a str>;

fn taint_times<'a>(members: &Members<'a>) -> TaintTimes<'a> {
    let devices = members.values().flat_map(|slice| &slice.content.devices);
    let taints = devices.flat_map(|device| device.taints.iter().map(move |taint| (&*device.name, taint)));
    taints
        .filter_map(|(device, taint)| {
            Some(((device, &*taint.key, taint.value.as_deref(), &*taint.effect), taint.time_added.as_deref()?))
        })
        .collect()
}

/// A taint that stays keeps its time: pods are evicted so and so long after it.
fn with_times(content: &Arc<SliceContent>, times: &TaintTimes<'_>) -> Arc<SliceContent> {
    let mut content = content.clone();
    if times.is_empty() || content.devices.iter().all(|device| device.taints.is_empty()) {
        return content;
    }
    for device in &mut Arc::make_mut(&mut content).devices {
        for taint in &mut device.taints {
            let time = times.get(&(&*device.name, &*taint.key, taint.value.as_deref(), &*taint.effect));
            taint.time_added = time.map(|time| (*time).into());
        }
    }
    content
}

#[cfg(test)]
mod tests;
