//! The allocator as the planner asks it: one node, the devices taken there, and the claims of one pod.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use hostler_api::{
    ExactQuantity, KubernetesVersion,
    core::Node,
    resource::{
        AllocationResult, DeviceAllocationMode, DeviceRequest, DeviceSelector, ResourceClaim, ResourceClaimSpec,
        ResourceSlice, SliceDevice, SliceQuantity,
    },
};

use super::{boxes::PlanBoxes, facts::ClusterFacts, pods::Wish, projection::References};
use hostler_cel::{CelOptions, DeviceFacts, Property, Selector};

use crate::structured::{
    AllocatedState, Allocator, AlternativeNoFit, Budget, Feature, Features, NoFit, NodeFacts, Quirks, Refusal,
    Rejection, SliceIndex, Variant,
};

/// Steps of the allocator for one question. No sensible claim comes near them; one that does would keep the scheduler
/// busy for seconds on a node.
const MOST_STEPS: u64 = 200_000;

/// Driver, pool and name of a device.
pub(super) type DeviceKey = (Box<str>, Box<str>, Box<str>);

/// Taken devices of a node, and taken parts of shared ones.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) devices: Vec<DeviceKey>,
    pub(super) shares: Vec<(DeviceKey, BTreeMap<String, ExactQuantity>)>,
}

/// The kind of reason why nothing was allocated.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum RefusalKind {
    /// The claims do not fit.
    NoFit,
    /// The scheduler gives up on the pod, whatever other nodes are like.
    Fatal,
    /// There was no answer within the steps that a question may take.
    Undecided,
    /// There was no answer within the box of the asker.
    CutShort,
}

/// Options of a plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// The version of Kubernetes whose answers are given.
    pub version: KubernetesVersion,
    /// Features that are switched on there; `None`: the defaults of the version.
    pub features: Option<Features>,
    /// Steps that the allocator may take for one pod on one node.
    pub steps: u64,
    /// True if the answer names the devices of every pod.
    pub names_devices: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        let version = KubernetesVersion::default();
        Self { version, features: None, steps: MOST_STEPS, names_devices: false }
    }
}

/// The allocator for one cluster.
#[derive(Debug)]
pub(super) struct Engine {
    allocator: Allocator,
    cel: CelOptions,
    steps: u64,
}

impl Engine {
    pub(super) fn new(facts: &ClusterFacts, options: &PlanOptions) -> Self {
        let features = options.features.unwrap_or_else(|| Features::for_version(options.version));
        let quirks = Quirks::of(options.version, Variant::at_work(options.version, features));
        let classes = facts.classes.values().map(|class| (**class).clone());
        let cel = CelOptions::of(options.version, features.has(Feature::ListTypeAttributes));
        Self { allocator: Allocator::new(features, quirks, classes), cel, steps: options.steps }
    }

    /// Allocates devices to the claims on the node with these slices, of which `held` is taken.
    pub(super) fn allocate(
        &self,
        node: &Node,
        slices: &[ResourceSlice],
        held: &Held,
        claims: &[ResourceClaim],
        boxes: &mut PlanBoxes,
    ) -> Result<Vec<AllocationResult>, (RefusalKind, String)> {
        let fatal = |error: &dyn std::error::Error| (RefusalKind::Fatal, hostler_api::Chain(error).to_string());
        let node = NodeFacts { name: &node.metadata.name, labels: &node.metadata.labels };
        let pools = self.allocator.gather(node, &SliceIndex::new(slices)).map_err(|error| fatal(&error))?;
        let claims = self.allocator.compile(claims);
        let (looks, ends) = boxes.left();
        let mut budget = Budget::steps(self.steps).within(looks, ends);
        let answer = self.allocator.allocate(&pools, &held.state(), &claims, &mut budget);
        boxes.spend(budget.looks());
        answer.map_err(|refusal| match refusal {
            Refusal::NoFit(no_fit) => (RefusalKind::NoFit, words(&no_fit)),
            Refusal::Fatal(error) => fatal(&error),
            Refusal::OutOfBudget { .. } => (RefusalKind::Undecided, refusal.to_string()),
        })
    }

    /// Attributes that the answers to these wishes can depend on.
    pub(super) fn references(&self, wishes: &[Wish], facts: &ClusterFacts) -> References {
        let mut found = References { has_lists: self.cel.list_attributes, ..References::default() };
        let mut texts: HashSet<&str> = HashSet::new();
        for spec in wishes.iter().flat_map(|wish| &wish.claims).map(|claim| claim.spec()) {
            let classes = classes_of(spec).filter_map(|class| facts.classes.get(class));
            texts.extend(classes.flat_map(|class| &class.spec.selectors).filter_map(text));
            texts.extend(selectors_of(spec).filter_map(text));
            found.has_places |= wants_places(spec);
            found.names.extend(spec.devices.constraints.iter().flat_map(|constraint| {
                {
                    let names = [&constraint.match_attribute, &constraint.distinct_attribute];
                    names.into_iter().flatten().filter_map(|name| name.split_once('/'))
                }
                .map(|(domain, name)| (domain.to_owned(), name.to_owned()))
            }));
        }
        self.add_references(texts, &mut found);
        found
    }

    /// Attributes that the answers of selectors can depend on.
    pub(super) fn references_of<'s>(&self, selectors: impl Iterator<Item = &'s DeviceSelector>) -> References {
        let mut found = References { has_lists: self.cel.list_attributes, ..References::default() };
        self.add_references(selectors.filter_map(text), &mut found);
        found
    }

    /// Returns the ways to satisfy a request; `None` if a class is unknown or a selector does not compile.
    pub(super) fn ways(&self, request: &DeviceRequest, facts: &ClusterFacts) -> Option<Vec<Way>> {
        let alternatives = request.first_available.iter().map(|it| (&it.device_class_name, &it.selectors));
        let exactly = request.exactly.iter().map(|it| (&it.device_class_name, &it.selectors));
        let way = |(class, selectors): (&String, &Vec<DeviceSelector>)| {
            let class = facts.classes.get(class)?;
            self.way(class.spec.selectors.iter().chain(selectors))
        };
        exactly.chain(alternatives).map(way).collect()
    }

    /// Compiles selectors; `None` if one does not compile.
    pub(super) fn way<'s>(&self, selectors: impl IntoIterator<Item = &'s DeviceSelector>) -> Option<Way> {
        let compiled = |selector| Selector::compile(text(selector)?, &self.cel).ok();
        Some(Way(selectors.into_iter().map(compiled).collect::<Option<_>>()?))
    }

    fn add_references<'s>(&self, texts: impl IntoIterator<Item = &'s str>, found: &mut References) {
        // A selector that does not compile has no answer on any device: the allocator fails before it looks.
        let compiled = texts.into_iter().filter_map(|text| Selector::compile(text, &self.cel).ok());
        compiled.for_each(|selector| found.add(selector.references()));
    }
}

impl References {
    fn add(&mut self, selector: hostler_cel::References) {
        let is_attribute = |property: &Property| *property == Property::Attribute;
        let names = selector.names.into_iter().filter(|(property, ..)| is_attribute(property));
        self.names.extend(names.map(|(_, domain, name)| (domain.into(), name.into())));
        let domains = selector.domains.into_iter().filter(|(property, _)| is_attribute(property));
        self.domains.extend(domains.map(|(_, domain)| domain.into()));
        self.all |= selector.all;
    }
}

impl Held {
    fn state(&self) -> AllocatedState {
        let mut state = AllocatedState::new();
        for (driver, pool, device) in &self.devices {
            state.hold(driver, pool, device);
        }
        for ((driver, pool, device), consumed) in &self.shares {
            state.share(driver, pool, device, "held");
            let amounts: Vec<(&str, SliceQuantity)> =
                consumed.iter().map(|(name, amount)| (&**name, SliceQuantity::Exact(*amount))).collect();
            if !amounts.is_empty() {
                state.consume(driver, pool, device, amounts.iter().map(|(name, amount)| (*name, amount)));
            }
        }
        state
    }
}

fn text(selector: &DeviceSelector) -> Option<&str> {
    selector.cel.as_ref().map(|cel| &*cel.expression)
}

fn classes_of(spec: &ResourceClaimSpec) -> impl Iterator<Item = &String> {
    spec.devices.requests.iter().flat_map(|request| {
        let alternatives = request.first_available.iter().map(|it| &it.device_class_name);
        request.exactly.iter().map(|it| &it.device_class_name).chain(alternatives)
    })
}

fn modes_of(spec: &ResourceClaimSpec) -> impl Iterator<Item = &DeviceAllocationMode> {
    spec.devices.requests.iter().flat_map(|request| {
        let alternatives = request.first_available.iter().map(|it| &it.allocation_mode);
        request.exactly.iter().map(|it| &it.allocation_mode).chain(alternatives)
    })
}

/// Returns true if it matters which devices of a kind are taken. A request for all devices visits the taken ones,
/// too, and ends in another way there than at one that breaks a constraint; a request with administrative access
/// takes the first device, taken or not, and so from the pod's other requests.
pub(super) fn wants_places(spec: &ResourceClaimSpec) -> bool {
    modes_of(spec).any(|mode| *mode != DeviceAllocationMode::ExactCount) || has_admin(spec)
}

/// A way to satisfy a request: selectors, all of which a device must match.
#[derive(Clone, Debug)]
pub(super) struct Way(Arc<[Selector]>);

impl Way {
    /// Returns the index of the first selector that does not match; `None` where all match, or one fails before.
    pub(super) fn refuses(&self, driver: &str, device: &SliceDevice) -> Option<usize> {
        let facts = facts_of(driver, device);
        let first = self.0.iter().map(|selector| selector.matches(&facts)).position(|answer| answer != Ok(true))?;
        (self.0[first].matches(&facts) == Ok(false)).then_some(first)
    }

    /// Returns true if all selectors match.
    pub(super) fn selects(&self, driver: &str, device: &SliceDevice) -> bool {
        let facts = facts_of(driver, device);
        self.0.iter().all(|selector| selector.matches(&facts) == Ok(true))
    }
}

fn facts_of<'a>(driver: &'a str, device: &'a SliceDevice) -> DeviceFacts<'a> {
    DeviceFacts {
        driver,
        attributes: &device.attributes,
        capacity: &device.capacity,
        allow_multiple_allocations: device.allow_multiple_allocations,
    }
}

fn has_admin(spec: &ResourceClaimSpec) -> bool {
    let requests = spec.devices.requests.iter().filter_map(|request| request.exactly.as_ref());
    requests.filter_map(|exactly| exactly.admin_access).any(|is_admin| is_admin)
}

fn selectors_of(spec: &ResourceClaimSpec) -> impl Iterator<Item = &DeviceSelector> {
    spec.devices.requests.iter().flat_map(|request| {
        let alternatives = request.first_available.iter().flat_map(|it| &it.selectors);
        request.exactly.iter().flat_map(|it| &it.selectors).chain(alternatives)
    })
}

/// Returns the reason without numbers and names of one node: nodes that refuse for the same reason are counted
/// together.
fn words(no_fit: &NoFit) -> String {
    let alternatives: Vec<String> = no_fit.alternatives.iter().map(alternative).collect();
    let pools = if no_fit.pools.is_empty() { "" } else { "; some of its pools are incomplete or invalid" };
    format!("claim {}, {}{pools}", no_fit.claim, alternatives.join("; "))
}

fn alternative(no_fit: &AlternativeNoFit) -> String {
    let request = format!("request {}", no_fit.request);
    if no_fit.devices == 0 {
        return format!("{request}: the node has no devices");
    }
    if no_fit.rejections.is_empty() {
        return format!("{request}: not enough devices");
    }
    if let Some(shortage) = no_fit.only_shortage() {
        return format!("{request}: every matching device has {shortage}");
    }
    let near: Vec<&Rejection> = no_fit.rejections.keys().filter(|rejection| !rejection.is_unselected()).collect();
    match &near[..] {
        [] if let Some(property) = only_property(no_fit) => format!("{request}: every device has {property}"),
        [] => format!("{request}: no device matches: {}", general(no_fit.rejections.keys())),
        near => format!("{request}: not enough devices; {}", of_matching(near)),
    }
}

/// Returns the property for which every device is refused, where one simple selector says so.
fn only_property(no_fit: &AlternativeNoFit) -> Option<String> {
    match &no_fit.rejections.keys().collect::<Vec<_>>()[..] {
        [Rejection::Property { has, owner }] => Some(format!("{has} ({owner})")),
        _ => None,
    }
}

/// Sentences on the shortages of matching devices.
fn of_matching(near: &[&Rejection]) -> String {
    let (short, others): (Vec<&Rejection>, Vec<&Rejection>) =
        near.iter().copied().partition(|rejection| matches!(rejection, Rejection::Capacity(_)));
    let shortages = short.iter().filter_map(|rejection| match rejection {
        Rejection::Capacity(shortage) => Some(shortage.to_string()),
        _ => None,
    });
    let has = shortages.collect::<Vec<_>>().join(", or ");
    match (&others[..], &short[..]) {
        ([], _) => format!("those that match have {has}"),
        (others, []) => format!("those that match are {}", general(others.iter().copied())),
        (others, _) => format!("those that match are {}, or have {has}", general(others.iter().copied())),
    }
}

fn general<'r>(rejections: impl Iterator<Item = &'r Rejection>) -> String {
    let mut words: Vec<String> = rejections.map(Rejection::in_general).collect();
    words.dedup();
    words.join(", ")
}
