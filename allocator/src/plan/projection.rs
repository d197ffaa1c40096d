//! What a batch of pods can tell of devices: those that are equal in all that its selectors, constraints and requests can
//! ask for are one kind, whatever their serial numbers are.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use hostler_api::resource::{DeviceAttribute, SortedMap};

use super::{
    facts::{ABSENT, PackedAttribute, PackedSlice, Store, from_json},
    sequences::Sequences,
};
use crate::cel::DeviceFacts;

/// What the answers to a batch can depend on.
#[derive(Clone, Debug, Default)]
pub(super) struct References {
    /// Domains and names of attributes.
    pub(super) names: HashSet<(String, String)>,
    /// Domains of which any attribute matters.
    pub(super) domains: HashSet<String>,
    /// Whether every attribute matters.
    pub(super) all: bool,
    /// Whether attributes with several values can be read.
    pub(super) has_lists: bool,
    /// Whether it matters which devices of a kind are taken. A request for all devices comes to the taken ones, too, and
    /// ends in another way there than at one that breaks a constraint; one with administrative access takes the first,
    /// taken or not, and so from the pod's other requests.
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
}

/// Kinds of slices: numbers that are equal where nothing that the batch asks for differs.
#[derive(Debug)]
pub(super) struct Projection {
    references: References,
    /// By driver and attribute: whether anybody asks for it.
    asked: HashMap<(u32, u32), bool>,
    /// By column: whether some value in it keeps selectors from judging a device, whatever they ask for.
    faulty: HashMap<u32, bool>,
    kinds: Sequences<u32>,
    runs: Vec<Rc<[Run]>>,
    /// By what a device says beside attributes and capacities.
    shareable: HashMap<u32, bool>,
    scratch: Vec<u32>,
}

impl Projection {
    pub(super) fn new(references: References) -> Self {
        Self {
            references,
            asked: HashMap::new(),
            faulty: HashMap::new(),
            kinds: Sequences::default(),
            runs: Vec::new(),
            shareable: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    /// The kind of a slice.
    pub(super) fn kind(&mut self, slice: &PackedSlice, store: &Store) -> u32 {
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend([slice.driver, slice.frame, slice.capacity, slice.rest]);
        for attribute in &slice.attributes {
            if self.is_asked(slice.driver, attribute.name, store) || self.is_faulty(attribute, store) {
                key.extend([attribute.name, attribute.column]);
            }
        }
        let kind = self.kinds.intern(&key);
        if kind as usize == self.runs.len() {
            let runs = self.runs_of(slice, &key, store);
            self.runs.push(runs);
        }
        self.scratch = key;
        kind
    }

    /// The devices of slices of this kind.
    pub(super) fn runs(&self, kind: u32) -> &Rc<[Run]> {
        &self.runs[kind as usize]
    }

    fn is_asked(&mut self, driver: u32, attribute: u32, store: &Store) -> bool {
        let references = &self.references;
        *self.asked.entry((driver, attribute)).or_insert_with(|| {
            let name = store.texts.get(attribute);
            // A name without a domain is the driver's own.
            let (domain, name) = name.split_once('/').unwrap_or((store.texts.get(driver), name));
            references.has(domain, name)
        })
    }

    fn is_faulty(&mut self, attribute: &PackedAttribute, store: &Store) -> bool {
        let has_lists = self.references.has_lists;
        !attribute.is_plain
            && *self.faulty.entry(attribute.column).or_insert_with(|| {
                let values: HashSet<u32> = store.columns.get(attribute.column).iter().copied().collect();
                let is_faulty = |value| {
                    let value: Option<DeviceAttribute> = from_json(&store.texts, value);
                    let attributes: SortedMap<DeviceAttribute> = value.map(|value| ("a", value)).into_iter().collect();
                    let facts = DeviceFacts {
                        driver: "",
                        attributes: &attributes,
                        capacity: &SortedMap::default(),
                        allow_multiple_allocations: false,
                    };
                    facts.fault(has_lists).is_some()
                };
                values.into_iter().filter(|value| *value != ABSENT).any(is_faulty)
            })
    }

    fn runs_of(&mut self, slice: &PackedSlice, key: &[u32], store: &Store) -> Rc<[Run]> {
        let attributes = key[4..].iter().skip(1).step_by(2).copied();
        let columns: Vec<&[u32]> =
            attributes.chain([slice.capacity, slice.rest]).map(|column| store.columns.get(column)).collect();
        let mut runs: Vec<Run> = Vec::new();
        for at in 0..slice.len {
            let is_shareable = self.is_shareable(slice, at, store);
            let is_like_before = at > 0
                && !is_shareable
                && !self.references.has_places
                && columns.iter().all(|column| column[at] == column[at - 1]);
            match runs.last_mut().filter(|_| is_like_before) {
                Some(run) => run.len += 1,
                None => runs.push(Run { start: at, len: 1, is_shareable }),
            }
        }
        runs.into()
    }

    fn is_shareable(&mut self, slice: &PackedSlice, at: usize, store: &Store) -> bool {
        let rest = store.columns.get(slice.rest)[at];
        *self.shareable.entry(rest).or_insert_with(|| slice.rest(at, store).allow_multiple_allocations)
    }
}
