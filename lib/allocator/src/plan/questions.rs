//! Questions to the allocator, each asked once: which devices would one more pod's claims take on a node as it is? A
//! question consists of all that the answer can depend on: of the node's devices those that the claims could use, by
//! kind and in order, and of no kind more than the claims could take. Thousands of nodes are few questions.

mod claims;
mod question;

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
    boxes::PlanBoxes,
    engine::{DeviceKey, Engine, Held, RefusalKind},
    occupancy::{FRESH, Occupancy, Taken},
    projection::Projection,
    sequences::{NumberMap, Sequences},
    shapes::{Shape, Shapes, slices_of},
    snapshot::Cluster,
};
use claims::{ClaimList, Judging};
use question::Question;

/// The reason of a question that was cut short. It has no numbers: a time would change a status at every try.
pub const CUT_SHORT: &str = "not decided: the question takes more work than there is for one asker; ask for less at once, or with \
                         fewer constraints";
/// Number of shapes whose devices are kept unpacked; a cluster has few shapes, and one with many pays for unpacking
/// again.
const KEPT_SHAPES: usize = 256;

/// The answer to a question.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// Number of the given devices.
    Given(u32),
    /// Number of the reason why nothing is given.
    Refused(u32),
}

/// Devices that a pod gets.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) devices: Vec<GivenDevice>,
    /// Nodes on which they can be used, by claim.
    usable: Vec<Usable>,
}

/// Nodes on which devices can be used.
#[derive(Debug)]
enum Usable {
    Anywhere,
    OnItsNode,
    On(NodeSelector),
}

/// A device that a pod gets.
#[derive(Debug)]
pub(super) struct GivenDevice {
    pub(super) claim: usize,
    pub(super) request: Box<str>,
    /// Number of its group of devices in the question.
    pub(super) group: u32,
    pub(super) takes: Takes,
}

/// The part that a pod takes of a device.
#[derive(Debug)]
pub(super) enum Takes {
    All,
    Parts(BTreeMap<String, ExactQuantity>),
    /// Administrative access only.
    Nothing,
}

/// The questions that were asked, with their answers.
#[derive(Debug)]
pub(super) struct Questions<'a> {
    cluster: &'a Cluster,
    engine: Engine,
    projection: Projection,
    /// Lists of claims, each once.
    list_numbers: HashMap<Rc<[ResourceClaim]>, u32>,
    lists: Vec<ClaimList>,
    gathered: NumberMap<u32, Gathered>,
    /// See [`bad_pools`].
    bad: Vec<usize>,
    keys: Sequences<u32>,
    /// By number of the question.
    answers: Vec<Answer>,
    given: Vec<Given>,
    refusals: Vec<(RefusalKind, Rc<str>)>,
    refusal_numbers: HashMap<(RefusalKind, Rc<str>), u32>,
    question: Question,
    /// Limits of the askers.
    pub(super) boxes: PlanBoxes,
}

/// A shape's representative, as the allocator sees it.
#[derive(Debug)]
struct Gathered {
    slices: Vec<ResourceSlice>,
    /// Slots of the devices.
    slots: HashMap<DeviceKey, usize>,
}

impl<'a> Questions<'a> {
    pub(super) fn new(cluster: &'a Cluster, engine: Engine, projection: Projection, boxes: PlanBoxes) -> Self {
        Self {
            cluster,
            engine,
            projection,
            list_numbers: HashMap::new(),
            lists: Vec::new(),
            gathered: NumberMap::new(),
            bad: bad_pools(cluster),
            keys: Sequences::default(),
            answers: Vec::new(),
            given: Vec::new(),
            refusals: Vec::new(),
            refusal_numbers: HashMap::new(),
            question: Question::default(),
            boxes,
        }
    }

    /// Returns the number of a list of claims; equal lists have one number.
    pub(super) fn claims(&mut self, claims: Vec<ResourceClaim>) -> u32 {
        let (engine, facts) = (&self.engine, &self.cluster.facts);
        *self.list_numbers.entry(claims.into()).or_insert_with_key(|claims| {
            self.lists.push(ClaimList::new(claims.clone(), engine, facts));
            u32::try_from(self.lists.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Answers which devices one more pod with these claims gets on a node.
    pub(super) fn ask(&mut self, node: usize, claims: u32, shapes: &Shapes, occupancy: &Occupancy) -> Answer {
        if self.boxes.is_empty() {
            return self.cut_short();
        }
        self.put(node, claims, shapes, occupancy);
        self.boxes.spend(self.question.key.len() as u64);
        if let Some(number) = self.keys.find(&self.question.key) {
            return self.answers[number as usize];
        }
        if self.boxes.is_empty() {
            return self.cut_short();
        }
        let answer = match self.allocate(node, claims, shapes, occupancy) {
            // Not kept: other askers have boxes of their own.
            Err(_) if self.boxes.is_empty() => return self.cut_short(),
            Ok(given) => {
                self.given.push(given);
                Answer::Given(u32::try_from(self.given.len() - 1).unwrap_or(u32::MAX))
            }
            Err(refusal) => Answer::Refused(self.refusal_number(refusal)),
        };
        self.keys.intern(&self.question.key);
        self.answers.push(answer);
        answer
    }

    fn cut_short(&mut self) -> Answer {
        Answer::Refused(self.refusal_number((RefusalKind::CutShort, CUT_SHORT.to_owned())))
    }

    /// Returns the devices of an answer.
    pub(super) fn given(&self, number: u32) -> &Given {
        &self.given[number as usize]
    }

    /// Lists the slots of a group of devices, on the node that the last question was about.
    pub(super) fn slots(&self, group: u32) -> impl Iterator<Item = usize> {
        self.question.slots(group)
    }

    /// Returns the reason of an answer without devices.
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

    /// Puts the question together.
    fn put(&mut self, node: usize, claims: u32, shapes: &Shapes, occupancy: &Occupancy) {
        let (question, list, boxes) = (&mut self.question, &mut self.lists[claims as usize], &self.boxes);
        let (judging, shape) =
            (Judging { projection: &self.projection, facts: &self.cluster.facts, boxes }, shapes.of(node));
        question.start(claims);
        for pool in &shape.pools {
            let parts = shape.parts[pool.parts.clone()].iter().map(|part| (part, occupancy.part(node, part)));
            let (start, header) = question.begin(pool);
            if pool.has_counters || list.has_places {
                parts.for_each(|(part, taken)| question.add_all(part, taken));
            } else {
                parts.for_each(|(part, taken)| question.add_useful(part, taken, header, list, &judging));
            }
            if question.key.len() == header && pool.is_plain {
                question.key.truncate(start);
            }
        }
        question.end();
    }

    fn allocate(
        &mut self,
        node: usize,
        claims: u32,
        shapes: &Shapes,
        occupancy: &Occupancy,
    ) -> Result<Given, (RefusalKind, String)> {
        let number = shapes.of_nodes[node];
        if self.gathered.len() >= KEPT_SHAPES && !self.gathered.contains_key(&number) {
            self.gathered.clear();
        }
        let (cluster, shape) = (self.cluster, shapes.of(node));
        let gathered = self.gathered.entry(number).or_insert_with(|| gather(cluster, shape, &self.bad));
        let held = held(shape, gathered, node, occupancy);
        let representative = &cluster.nodes[shape.representative].node;
        let claims = &self.lists[claims as usize].claims;
        let results = self.engine.allocate(representative, &gathered.slices, &held, claims, &mut self.boxes)?;
        Ok(given(results, &self.question, gathered, &representative.metadata.name))
    }
}

impl Given {
    /// Returns the nodes on which a claim can be used, once `node` has the devices; `None`: all.
    pub(super) fn selector(&self, claim: usize, node: &str) -> Option<NodeSelector> {
        match self.usable.get(claim)? {
            Usable::Anywhere => None,
            Usable::OnItsNode => Some(NodeSelector::of_node(node)),
            Usable::On(selector) => Some(selector.clone()),
        }
    }
}

/// Unpacks all slices of the representative's pools, also those that only matter for a pool's completeness.
fn gather(cluster: &Cluster, shape: &Shape, bad: &[usize]) -> Gathered {
    let unpacked = |at: usize| cluster.slices[at].1.unpack(&cluster.slices[at].0, &cluster.facts.store);
    let own = |pool: &usize| cluster.nodes[shape.representative].pools.iter().any(|seen| seen.pool == *pool);
    let elsewhere = bad.iter().filter(|pool| !own(pool)).flat_map(|pool| cluster.pools[*pool].slices.iter().copied());
    // Slices of other nodes come last: they have no places in the shape.
    let slices: Vec<ResourceSlice> = slices_of(cluster, shape.representative).chain(elsewhere).map(unpacked).collect();
    let mut slots = HashMap::new();
    for (part, slice) in shape.parts.iter().zip(&slices) {
        for (run, slot) in part.runs.iter().zip(part.slots()) {
            for at in run.start..run.start + run.len {
                slots.insert(device_key(slice, at), slot);
            }
        }
    }
    Gathered { slices, slots }
}

/// Lists pools of one node that have counters and cannot be used. Until 1.36 the allocator counts them on every node,
/// and fails a request for all devices, as all devices are not known. They are the same for each node, so that
/// answers still depend on the shape alone.
fn bad_pools(cluster: &Cluster) -> Vec<usize> {
    let has_counters = |slice: &usize| cluster.slices[*slice].1.has_counters;
    let bad = cluster.pools.iter().enumerate().filter(|(_, pool)| {
        pool.node.is_some() && !(pool.is_complete && pool.is_clear) && pool.slices.iter().any(has_counters)
    });
    bad.map(|(at, _)| at).collect()
}

fn device_key(slice: &ResourceSlice, at: usize) -> DeviceKey {
    let spec = &slice.spec;
    (spec.driver.as_str().into(), spec.pool.name.as_str().into(), spec.devices[at].name.clone())
}

/// Returns the taken devices of the representative, were it in the state of `node`: of each run the first ones.
fn held(shape: &Shape, gathered: &Gathered, node: usize, occupancy: &Occupancy) -> Held {
    let mut held = Held::default();
    for (part, slice) in shape.parts.iter().zip(&gathered.slices) {
        let Some(numbers) = occupancy.part(node, part) else { continue };
        for (run, number) in part.runs.iter().zip(numbers).filter(|(_, number)| **number != FRESH) {
            match occupancy.taken(*number, *run) {
                Taken::Devices(count) => {
                    held.devices.extend((run.start..run.start + count).map(|at| device_key(slice, at)));
                }
                Taken::Share(consumed) => held.shares.push((device_key(slice, run.start), consumed)),
            }
        }
    }
    held
}

/// Translates devices of the representative to groups of the question.
fn given(results: Vec<AllocationResult>, question: &Question, gathered: &Gathered, node: &str) -> Given {
    let mut given = Given::default();
    for (claim, result) in results.into_iter().enumerate() {
        for device in result.devices.results {
            let key = (device.driver.into(), device.pool.into(), device.device.into());
            let Some(group) = gathered.slots.get(&key).and_then(|slot| question.group(*slot)) else { continue };
            let takes = match (device.admin_access, device.share_id) {
                (Some(true), _) => Takes::Nothing,
                (_, Some(_)) => Takes::Parts(amounts(device.consumed_capacity)),
                _ => Takes::All,
            };
            given.devices.push(GivenDevice { claim, request: device.request.into(), group, takes });
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
