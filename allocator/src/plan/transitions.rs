//! Steps from state to state: what one more pod's claims would take on a node in a state. The allocator is asked once for each
//! pair of a state and a list of claims; all nodes that are ever in that state share the answer.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use hostler_api::{
    ExactQuantity,
    core::NodeSelector,
    resource::{AllocationResult, ResourceClaim, ResourceSlice},
};

use super::{
    engine::{DeviceKey, Engine, Held, RefusalKind},
    shapes::{Shape, Shapes, slices_of},
    snapshot::Cluster,
    states::{States, Taken},
};

/// As many nodes' devices are kept unpacked; a cluster has few shapes, and one with many pays for unpacking again.
const KEPT_SHAPES: usize = 256;

/// What one more pod would get.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// These devices, after which the node is in this state.
    To { state: u32, given: u32 },
    /// Nothing, for this reason.
    Refused(u32),
}

/// What a pod gets.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) devices: Vec<GivenDevice>,
    /// Where they can be used, by claim.
    usable: Vec<Usable>,
}

/// Where devices can be used.
#[derive(Debug)]
enum Usable {
    Anywhere,
    OnItsNode,
    On(NodeSelector),
}

/// A device that a pod gets: one of a run.
#[derive(Debug)]
pub(super) struct GivenDevice {
    pub(super) claim: usize,
    pub(super) request: Box<str>,
    pub(super) slot: usize,
    pub(super) takes: Takes,
}

/// What a pod takes of a device.
#[derive(Debug)]
pub(super) enum Takes {
    All,
    Parts(BTreeMap<String, ExactQuantity>),
    /// It only looks after it.
    Nothing,
}

/// The steps that are known.
#[derive(Debug)]
pub(super) struct Transitions<'a> {
    cluster: &'a Cluster,
    engine: Engine,
    /// Lists of claims, each once.
    lists: HashMap<String, u32>,
    claims: Vec<Vec<ResourceClaim>>,
    gathered: HashMap<u32, Gathered>,
    steps: HashMap<(u32, u32), Step>,
    given: Vec<Given>,
    refusals: Vec<(RefusalKind, Rc<str>)>,
    refusal_numbers: HashMap<(RefusalKind, Rc<str>), u32>,
}

/// A shape's representative, as the allocator sees it.
#[derive(Debug)]
struct Gathered {
    devices: Vec<ResourceSlice>,
    /// In which run a device is.
    slots: HashMap<DeviceKey, usize>,
    slices: Vec<usize>,
}

impl<'a> Transitions<'a> {
    pub(super) fn new(cluster: &'a Cluster, engine: Engine) -> Self {
        Self {
            cluster,
            engine,
            lists: HashMap::new(),
            claims: Vec::new(),
            gathered: HashMap::new(),
            steps: HashMap::new(),
            given: Vec::new(),
            refusals: Vec::new(),
            refusal_numbers: HashMap::new(),
        }
    }

    /// The number of a list of claims; equal lists have one.
    pub(super) fn claims(&mut self, claims: Vec<ResourceClaim>) -> u32 {
        let key = serde_json::to_string(&claims).unwrap_or_default();
        *self.lists.entry(key).or_insert_with(|| {
            self.claims.push(claims);
            u32::try_from(self.claims.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// What one more pod with these claims gets on a node in this state.
    pub(super) fn step(&mut self, state: u32, claims: u32, states: &mut States, shapes: &Shapes) -> Step {
        if let Some(step) = self.steps.get(&(state, claims)) {
            return *step;
        }
        let step = match self.ask(state, claims, states, shapes) {
            Ok(given) => {
                let number = u32::try_from(self.given.len()).unwrap_or(u32::MAX);
                let next = states.with(state, &given.taken());
                self.given.push(given);
                Step::To { state: next, given: number }
            }
            Err(refusal) => Step::Refused(self.refusal_number(refusal)),
        };
        self.steps.insert((state, claims), step);
        step
    }

    /// What was given in a step.
    pub(super) fn given(&self, number: u32) -> &Given {
        &self.given[number as usize]
    }

    /// Why a step was refused.
    pub(super) fn refusal(&self, number: u32) -> &(RefusalKind, Rc<str>) {
        &self.refusals[number as usize]
    }

    fn refusal_number(&mut self, (kind, text): (RefusalKind, String)) -> u32 {
        let refusal = (kind, Rc::from(text));
        *self.refusal_numbers.entry(refusal).or_insert_with_key(|refusal| {
            self.refusals.push(refusal.clone());
            u32::try_from(self.refusals.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn ask(
        &mut self,
        state: u32,
        claims: u32,
        states: &States,
        shapes: &Shapes,
    ) -> Result<Given, (RefusalKind, String)> {
        let number = states.shape(state);
        if self.gathered.len() >= KEPT_SHAPES && !self.gathered.contains_key(&number) {
            self.gathered.clear();
        }
        let shape = &shapes.all[number as usize];
        let (cluster, engine) = (self.cluster, &self.engine);
        let gathered = self.gathered.entry(number).or_insert_with(|| gather(cluster, shape));
        let held = held(cluster, shape, gathered, state, states);
        let node = &cluster.nodes[shape.representative].node;
        let results = engine.allocate(node, &gathered.devices, &held, &self.claims[claims as usize])?;
        Ok(given(results, gathered, &node.metadata.name))
    }
}

impl Given {
    fn taken(&self) -> Vec<(usize, Option<&BTreeMap<String, ExactQuantity>>)> {
        self.devices
            .iter()
            .filter_map(|device| match &device.takes {
                Takes::All => Some((device.slot, None)),
                Takes::Parts(consumed) => Some((device.slot, Some(consumed))),
                Takes::Nothing => None,
            })
            .collect()
    }

    /// Where a claim can be used, once `node` has the devices.
    pub(super) fn selector(&self, claim: usize, node: &str) -> Option<NodeSelector> {
        match self.usable.get(claim)? {
            Usable::Anywhere => None,
            Usable::OnItsNode => Some(NodeSelector::of_node(node)),
            Usable::On(selector) => Some(selector.clone()),
        }
    }
}

/// Unpacks what the representative sees: all slices of its pools, also those that only tell whether a pool is complete.
fn gather(cluster: &Cluster, shape: &Shape) -> Gathered {
    let slices: Vec<usize> = slices_of(cluster, shape.representative).collect();
    let unpacked = |at: &usize| cluster.slices[*at].1.unpack(&cluster.slices[*at].0, &cluster.facts.store);
    let unpacked: Vec<_> = slices.iter().map(unpacked).collect();
    let mut slots = HashMap::new();
    for (part, slice) in shape.parts.iter().zip(&unpacked) {
        for (run_at, run) in part.runs.iter().enumerate() {
            for at in run.start..run.start + run.len {
                let spec = &slice.spec;
                let key = (spec.driver.as_str().into(), spec.pool.name.as_str().into(), spec.devices[at].name.clone());
                slots.insert(key, part.first + run_at);
            }
        }
    }
    Gathered { devices: unpacked, slots, slices }
}

/// What is taken on the representative in a state: of each run the first devices.
fn held(cluster: &Cluster, shape: &Shape, gathered: &Gathered, state: u32, states: &States) -> Held {
    let mut held = Held::default();
    for (part, slice) in shape.parts.iter().zip(&gathered.slices) {
        let slice = &cluster.slices[*slice].1;
        let store = &cluster.facts.store;
        let names = store.columns.get(slice.names);
        let text = |number: u32| Box::<str>::from(store.texts.get(number));
        let key = |at: usize| (text(slice.driver), text(slice.pool), text(names[at]));
        for (at, run) in part.runs.iter().enumerate() {
            match states.taken(state, part.first + at, *run) {
                Taken::Devices(count) => held.devices.extend((run.start..run.start + count).map(key)),
                Taken::Share(consumed) => held.shares.push((key(run.start), consumed)),
            }
        }
    }
    held
}

/// From devices of the representative to runs of its shape.
fn given(results: Vec<AllocationResult>, gathered: &Gathered, node: &str) -> Given {
    let mut given = Given::default();
    for (claim, result) in results.into_iter().enumerate() {
        for device in result.devices.results {
            let key = (device.driver.into(), device.pool.into(), device.device.into());
            let Some(slot) = gathered.slots.get(&key) else { continue };
            let takes = match (device.admin_access, device.share_id) {
                (Some(true), _) => Takes::Nothing,
                (_, Some(_)) => Takes::Parts(amounts(device.consumed_capacity)),
                _ => Takes::All,
            };
            given.devices.push(GivenDevice { claim, request: device.request.into(), slot: *slot, takes });
        }
        given.usable.push(match result.node_selector {
            None => Usable::Anywhere,
            Some(selector) if selector == NodeSelector::of_node(node) => Usable::OnItsNode,
            Some(selector) => Usable::On(selector),
        });
    }
    given
}

fn amounts(consumed: BTreeMap<String, serde_json::Value>) -> BTreeMap<String, ExactQuantity> {
    let amount = |(name, amount)| Some((name, serde_json::from_value(amount).ok()?));
    consumed.into_iter().filter_map(amount).collect()
}
