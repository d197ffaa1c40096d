//! Kinds of devices, as a batch of pods can tell them apart: devices that are equal in all that its selectors,
//! constraints and requests can ask for are one kind, whatever their serial numbers are.

use std::{collections::HashSet, sync::Arc};

use hostler_api::resource::{DeviceAttribute, SliceDevice, SortedMap};

use super::{
    facts::{ABSENT, PackedAttribute, PackedSlice, Store, value_of},
    sequences::{NumberMap, Sequences},
};
use hostler_cel::DeviceFacts;

/// Properties of devices that the answers to a batch can depend on.
#[derive(Clone, Debug, Default)]
pub(super) struct References {
    /// Domains and names of attributes.
    pub(super) names: HashSet<(String, String)>,
    /// Names of attributes that matter where they are of the driver's own domain.
    pub(super) own_names: HashSet<&'static str>,
    /// Domains of which any attribute matters.
    pub(super) domains: HashSet<String>,
    /// True if every attribute matters.
    pub(super) all: bool,
    /// True if attributes with several values can be read.
    pub(super) has_lists: bool,
    /// True if it matters for some claims which devices of a kind are taken.
    pub(super) has_places: bool,
}

impl References {
    fn has(&self, domain: &str, name: &str) -> bool {
        self.all || self.domains.contains(domain) || self.names.contains(&(domain.to_owned(), name.to_owned()))
    }
}

/// Devices one after the other that are of one kind, or one device that several claims can hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) is_shareable: bool,
    /// Number of the kind.
    pub(super) kind: u32,
}

/// Runs of devices in slices of a kind.
#[derive(Clone, Debug)]
pub(super) struct SliceKind {
    pub(super) runs: Arc<[Run]>,
    /// True if some device must become ready before a pod is bound: the allocator visits its pool last.
    pub(super) has_conditions: bool,
}

/// Kinds of slices and devices: numbers that are equal where nothing that the batch asks for differs.
#[derive(Debug)]
pub(super) struct Projection {
    references: References,
    /// By driver and attribute: true if the batch asks for the attribute.
    asked: NumberMap<(u32, u32), bool>,
    /// By column: true if some value in it keeps selectors from judging a device, whatever they ask for.
    faulty: NumberMap<u32, bool>,
    slice_keys: Sequences<u32>,
    slices: Vec<SliceKind>,
    device_keys: Sequences<u32>,
    /// One device of each kind: the slice, and the place there.
    devices: Vec<(Arc<PackedSlice>, usize)>,
    /// By the remaining fields of a device: true if several claims can hold it, and true if it has binding conditions.
    rests: NumberMap<u32, (bool, bool)>,
    scratch: Vec<u32>,
}

impl Projection {
    pub(super) fn new(references: References) -> Self {
        Self {
            references,
            asked: NumberMap::new(),
            faulty: NumberMap::new(),
            slice_keys: Sequences::default(),
            slices: Vec::new(),
            device_keys: Sequences::default(),
            devices: Vec::new(),
            rests: NumberMap::new(),
            scratch: Vec::new(),
        }
    }

    /// The kind of a slice.
    pub(super) fn kind(&mut self, slice: &Arc<PackedSlice>, store: &Store) -> u32 {
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend([slice.driver, slice.frame, slice.capacity, slice.rest]);
        for attribute in &slice.attributes {
            if self.is_asked(slice.driver, attribute.name, store) || self.is_faulty(attribute, store) {
                key.extend([attribute.name, attribute.column]);
            }
        }
        let kind = self.slice_keys.intern(&key);
        if kind as usize == self.slices.len() {
            let made = self.make(slice, &key[4..], store);
            self.slices.push(made);
        }
        self.scratch = key;
        kind
    }

    /// Returns the runs of devices in slices of this kind.
    pub(super) fn slice(&self, kind: u32) -> &SliceKind {
        &self.slices[kind as usize]
    }

    /// Number of known kinds of slices and devices.
    pub(super) fn len(&self) -> usize {
        self.slices.len() + self.devices.len()
    }

    /// Returns the driver's number and one device of this kind.
    pub(super) fn device(&self, kind: u32, store: &Store) -> (u32, SliceDevice) {
        let (slice, at) = &self.devices[kind as usize];
        (slice.driver, slice.device(*at, store))
    }

    fn is_asked(&mut self, driver: u32, attribute: u32, store: &Store) -> bool {
        let references = &self.references;
        *self.asked.entry((driver, attribute)).or_insert_with(|| {
            let name = store.texts.get(attribute);
            // A name without a domain is the driver's own.
            let driver = store.texts.get(driver);
            let (domain, name) = name.split_once('/').unwrap_or((driver, name));
            references.has(domain, name) || domain == driver && references.own_names.contains(name)
        })
    }

    fn is_faulty(&mut self, attribute: &PackedAttribute, store: &Store) -> bool {
        let has_lists = self.references.has_lists;
        !attribute.is_plain
            && *self.faulty.entry(attribute.column).or_insert_with(|| {
                let values: HashSet<u32> = store.columns.get(attribute.column).iter().copied().collect();
                values.into_iter().any(|value| value != ABSENT && is_faulty(store, value, has_lists))
            })
    }

    /// Makes the kind of a slice; `attributes` are names and columns, one after the other.
    fn make(&mut self, slice: &Arc<PackedSlice>, attributes: &[u32], store: &Store) -> SliceKind {
        let mut runs: Vec<Run> = Vec::new();
        let mut has_conditions = false;
        for at in 0..slice.len {
            let (is_shareable, is_conditioned) = self.rest(slice, at, store);
            has_conditions |= is_conditioned;
            let kind = self.device_kind(slice, at, attributes, store);
            let is_apart = is_shareable || self.references.has_places;
            match runs.last_mut().filter(|run| run.kind == kind && !is_apart) {
                Some(run) => run.len += 1,
                None => runs.push(Run { start: at, len: 1, is_shareable, kind }),
            }
        }
        SliceKind { runs: runs.into(), has_conditions }
    }

    fn device_kind(&mut self, slice: &Arc<PackedSlice>, at: usize, attributes: &[u32], store: &Store) -> u32 {
        let value = |column: u32| store.columns.get(column)[at];
        let mut key = vec![slice.driver, value(slice.capacity), value(slice.rest)];
        for attribute in attributes.chunks_exact(2).filter(|attribute| value(attribute[1]) != ABSENT) {
            key.extend([attribute[0], value(attribute[1])]);
        }
        let kind = self.device_keys.intern(&key);
        if kind as usize == self.devices.len() {
            self.devices.push((slice.clone(), at));
        }
        kind
    }

    fn rest(&mut self, slice: &PackedSlice, at: usize, store: &Store) -> (bool, bool) {
        let rest = store.columns.get(slice.rest)[at];
        *self.rests.entry(rest).or_insert_with(|| {
            let rest = slice.rest(at, store);
            (rest.allow_multiple_allocations, !rest.binding_conditions.is_empty())
        })
    }
}

fn is_faulty(store: &Store, value: u32, has_lists: bool) -> bool {
    let value = value_of(&store.texts, value);
    let attributes: SortedMap<DeviceAttribute> = value.map(|value| ("a", value)).into_iter().collect();
    let capacity = SortedMap::default();
    let facts =
        DeviceFacts { driver: "", attributes: &attributes, capacity: &capacity, allow_multiple_allocations: false };
    facts.fault(has_lists).is_some()
}
