//! Slices in columns: for each attribute the numbers of its values, device by device. Slices of machines that are alike
//! share most columns, whatever serial numbers their devices have, so that comparing two slices under the requested
//! attributes is comparing a few numbers.

use std::collections::BTreeMap;

use hostler_api::resource::{
    DeviceAttribute, DeviceCapacity, ResourcePool, ResourceSlice, ResourceSliceSpec, SliceDevice, SortedMap,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{PoolKey, Store, compact::Renumbering};
use crate::plan::sequences::Texts;

/// In a column: the device has no such attribute.
pub(in crate::plan) const ABSENT: u32 = u32::MAX;

/// A slice, in numbers of texts and columns.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) struct PackedSlice {
    pub(in crate::plan) driver: u32,
    pub(in crate::plan) pool: u32,
    pub(in crate::plan) generation: i64,
    pub(in crate::plan) slice_count: i64,
    /// The node that alone can use it.
    pub(in crate::plan) node: Option<u32>,
    /// Remaining fields of the slice: other ways to choose nodes, and counters.
    pub(in crate::plan) frame: u32,
    /// True if devices stand for CPU, memory or another resource of their node.
    pub(in crate::plan) has_node_resources: bool,
    /// True if the slice has counters, or a device that draws on some.
    pub(in crate::plan) has_counters: bool,
    /// Number of devices.
    pub(in crate::plan) len: usize,
    /// Column of the names of devices.
    pub(in crate::plan) names: u32,
    pub(in crate::plan) attributes: Box<[PackedAttribute]>,
    /// Column of capacities, those of a device as one text.
    pub(in crate::plan) capacity: u32,
    /// Column of the remaining fields of devices, those of a device as one text.
    pub(in crate::plan) rest: u32,
}

/// An attribute of the devices of a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) struct PackedAttribute {
    pub(in crate::plan) name: u32,
    /// Column of its values, by device.
    pub(in crate::plan) column: u32,
    /// True if all values are of kinds that every version can read.
    pub(in crate::plan) is_plain: bool,
}

impl PackedSlice {
    /// Packs a slice of any version.
    pub(in crate::plan) fn pack(slice: ResourceSlice, store: &mut Store) -> Self {
        let mut spec = slice.unwrapped().spec;
        let devices = std::mem::take(&mut spec.devices);
        let node = spec.node_name.take().filter(|name| !name.is_empty()).map(|name| store.texts.intern(&name));
        let pool = std::mem::replace(&mut spec.pool, no_pool());
        let driver = std::mem::take(&mut spec.driver);
        let has_node_resources = devices.iter().any(stands_for_resources);
        let has_counters =
            !spec.shared_counters.is_empty() || devices.iter().any(|it| !it.consumes_counters.is_empty());
        let mut columns = Columns::new(devices.len());
        for (at, device) in devices.into_iter().enumerate() {
            columns.add(at, device, &mut store.texts);
        }
        Self {
            driver: store.texts.intern(&driver),
            pool: store.texts.intern(&pool.name),
            generation: pool.generation,
            slice_count: pool.resource_slice_count,
            node,
            frame: intern_json(&mut store.texts, &spec),
            has_node_resources,
            has_counters,
            len: columns.names.len(),
            names: store.columns.intern(&columns.names),
            attributes: columns.attributes.iter().map(|(name, column)| column.pack(*name, store)).collect(),
            capacity: store.columns.intern(&columns.capacity.numbers),
            rest: store.columns.intern(&columns.rest.numbers),
        }
    }

    /// The pool of the slice.
    pub(in crate::plan) fn pool_key(&self) -> PoolKey {
        (self.driver, self.pool)
    }

    /// Returns the slice with other numbers of texts and columns.
    pub(super) fn renumbered(&self, to: &mut impl Renumbering) -> Self {
        Self {
            driver: to.text(self.driver),
            pool: to.text(self.pool),
            node: self.node.map(|node| to.text(node)),
            frame: to.text(self.frame),
            names: to.column(self.names),
            attributes: self.attributes.iter().map(|attribute| attribute.renumbered(to)).collect(),
            capacity: to.column(self.capacity),
            rest: to.column(self.rest),
            ..self.clone()
        }
    }

    /// The slice as it came, under this name.
    pub(in crate::plan) fn unpack(&self, name: &str, store: &Store) -> ResourceSlice {
        let mut spec = self.frame(store);
        spec.driver = store.texts.get(self.driver).to_owned();
        spec.node_name = self.node.map(|node| store.texts.get(node).to_owned());
        spec.pool = ResourcePool {
            name: store.texts.get(self.pool).to_owned(),
            generation: self.generation,
            resource_slice_count: self.slice_count,
        };
        spec.devices = (0..self.len).map(|at| self.device(at, store)).collect();
        let mut slice = ResourceSlice { metadata: Default::default(), spec };
        slice.metadata.name = name.to_owned();
        slice
    }

    /// Returns the slice's spec without its devices, driver, pool and node.
    pub(in crate::plan) fn frame(&self, store: &Store) -> ResourceSliceSpec {
        from_json(&store.texts, self.frame).unwrap_or_else(no_spec)
    }

    /// Unpacks a device of the slice.
    pub(in crate::plan) fn device(&self, at: usize, store: &Store) -> SliceDevice {
        let text_of = |column: u32| store.columns.get(column)[at];
        let attribute = |attribute: &PackedAttribute| {
            let value = text_of(attribute.column);
            Some((store.texts.get(attribute.name), value_of(&store.texts, value)?))
        };
        SliceDevice {
            name: store.texts.get(text_of(self.names)).into(),
            attributes: self.attributes.iter().filter_map(attribute).collect(),
            capacity: from_json(&store.texts, text_of(self.capacity)).unwrap_or_default(),
            ..self.rest(at, store)
        }
    }

    /// Unpacks a device without its name, attributes and capacities.
    pub(in crate::plan) fn rest(&self, at: usize, store: &Store) -> SliceDevice {
        from_json(&store.texts, store.columns.get(self.rest)[at]).unwrap_or_default()
    }

    /// Finds the place of the device with this name.
    pub(in crate::plan) fn position(&self, device: u32, store: &Store) -> Option<usize> {
        store.columns.get(self.names).iter().position(|name| *name == device)
    }

    /// Returns the slice with other remaining fields of its devices: those of `rest`, by device.
    pub(in crate::plan) fn with_rest(&self, rest: &[SliceDevice], store: &mut Store) -> Self {
        let numbers: Vec<u32> = rest.iter().map(|rest| intern_json(&mut store.texts, rest)).collect();
        Self { rest: store.columns.intern(&numbers), ..self.clone() }
    }

    /// Returns the slice as one of another node and its pool.
    pub(in crate::plan) fn of_node(&self, node: &str, pool: &str, store: &mut Store) -> Self {
        Self { node: Some(store.texts.intern(node)), pool: store.texts.intern(pool), ..self.clone() }
    }
}

impl PackedAttribute {
    fn renumbered(&self, to: &mut impl Renumbering) -> Self {
        Self { name: to.text(self.name), column: to.column(self.column), ..*self }
    }
}

fn stands_for_resources(device: &SliceDevice) -> bool {
    !device.node_allocatable_resource_mappings.is_empty() || !device.node_allocatable_resources.is_empty()
}

/// Columns while they grow.
#[derive(Default)]
struct Columns {
    len: usize,
    names: Vec<u32>,
    attributes: BTreeMap<u32, AttributeColumn>,
    capacity: JsonColumn<SortedMap<DeviceCapacity>>,
    rest: JsonColumn<SliceDevice>,
}

/// A column of values that are kept as JSON. Most are equal to the one before, and are not written once more.
#[derive(Default)]
struct JsonColumn<T> {
    numbers: Vec<u32>,
    latest: T,
}

impl<T: Serialize + PartialEq> JsonColumn<T> {
    fn add(&mut self, value: T, texts: &mut Texts) {
        let number = match self.numbers.last() {
            Some(number) if self.latest == value => *number,
            _ => intern_json(texts, &value),
        };
        self.numbers.push(number);
        self.latest = value;
    }
}

struct AttributeColumn {
    values: Vec<u32>,
    is_plain: bool,
}

impl AttributeColumn {
    fn new(len: usize) -> Self {
        Self { values: vec![ABSENT; len], is_plain: true }
    }

    fn pack(&self, name: u32, store: &mut Store) -> PackedAttribute {
        PackedAttribute { name, column: store.columns.intern(&self.values), is_plain: self.is_plain }
    }
}

impl Columns {
    fn new(len: usize) -> Self {
        Self { len, names: Vec::with_capacity(len), ..Self::default() }
    }

    fn add(&mut self, at: usize, mut device: SliceDevice, texts: &mut Texts) {
        self.names.push(texts.intern(&std::mem::take(&mut device.name)));
        let attributes = std::mem::take(&mut device.attributes);
        for (key, value) in attributes.iter() {
            let column = self.attributes.entry(texts.intern(key)).or_insert_with(|| AttributeColumn::new(self.len));
            column.values[at] = intern_value(texts, value);
            column.is_plain &=
                matches!(value, DeviceAttribute::Int(_) | DeviceAttribute::Bool(_) | DeviceAttribute::String(_));
        }
        // The time at which a taint was added changes nothing, and would make every device a kind of its own.
        device.taints.iter_mut().for_each(|taint| taint.time_added = None);
        self.capacity.add(std::mem::take(&mut device.capacity), texts);
        self.rest.add(device, texts);
    }
}

fn no_pool() -> ResourcePool {
    ResourcePool { name: String::new(), generation: 0, resource_slice_count: 0 }
}

fn no_spec() -> ResourceSliceSpec {
    ResourceSliceSpec {
        driver: String::new(),
        pool: no_pool(),
        node_name: None,
        node_selector: None,
        all_nodes: None,
        per_device_node_selection: None,
        devices: Vec::new(),
        shared_counters: Vec::new(),
    }
}

/// Marks of values that are kept as they are. No JSON begins with one.
const STRING: char = 's';
const VERSION: char = 'v';

/// The number of an attribute's value. Most values that no other device has are texts, and JSON around each of a million
/// would be a quarter of what is kept of them.
fn intern_value(texts: &mut Texts, value: &DeviceAttribute) -> u32 {
    match value {
        DeviceAttribute::String(text) => texts.intern(&format!("{STRING}{text}")),
        DeviceAttribute::Version(text) => texts.intern(&format!("{VERSION}{text}")),
        other => intern_json(texts, other),
    }
}

/// The attribute's value with this number. `None`: the device has no such attribute.
pub(in crate::plan) fn value_of(texts: &Texts, number: u32) -> Option<DeviceAttribute> {
    if number == ABSENT {
        return None;
    }
    let text = texts.get(number);
    if let Some(text) = text.strip_prefix(STRING) {
        return Some(DeviceAttribute::String(text.into()));
    }
    if let Some(text) = text.strip_prefix(VERSION) {
        return Some(DeviceAttribute::Version(text.into()));
    }
    from_json(texts, number)
}

/// The number of a value, written as JSON: the one notation that every type of the API has, and that loses nothing.
pub(in crate::plan) fn intern_json<T: Serialize>(texts: &mut Texts, value: &T) -> u32 {
    texts.intern(&serde_json::to_string(value).unwrap_or_default())
}

/// The value with this number.
pub(in crate::plan) fn from_json<T: DeserializeOwned>(texts: &Texts, number: u32) -> Option<T> {
    serde_json::from_str(texts.get(number)).ok()
}
