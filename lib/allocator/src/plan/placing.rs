//! Placing sets of pods, one after the other: nodes in order, each filled as far as it goes.

mod in_turn;
mod stage;
mod take;
mod together;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
};

use super::{
    answer::{NodeRefusal, PlacedDevice, Placement, SetPlan, Verdict},
    boxes::CutShort,
    engine::RefusalKind,
    neighbours::PlacedPods,
    node_use::NodeUse,
    nodes::{self, Reason},
    occupancy::Occupancy,
    pod_groups::{PodCensus, PodGroups},
    pods::{Unsupported, Wish},
    questions::{Answer, GivenDevice, Questions, Takes},
    sequences::NumberMap,
    shapes::{Shape, Shapes, slices_of},
    snapshot::{Cluster, NodePlace, Usage},
};

use stage::Stage;

/// Known facts while questions are answered.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) shapes: Shapes,
    pub(super) occupancy: Occupancy,
    pub(super) questions: Questions<'a>,
    pub(super) census: PodCensus<'a>,
}

impl Known<'_> {
    fn ask(&mut self, node: usize, claims: u32) -> Answer {
        self.questions.ask(node, claims, &self.shapes, &self.occupancy)
    }
}

/// Sets being placed.
#[derive(Debug)]
pub(super) struct Placing<'k, 'a> {
    known: &'k mut Known<'a>,
    pub(super) usage: Usage,
    names_devices: bool,
}

/// One set being placed.
struct Candidate<'w> {
    wish: &'w Wish,
    /// Nodes in the order in which they are filled.
    order: Vec<usize>,
    /// By index of the node: the reason why it never takes a pod of the set.
    never: Vec<Option<Reason>>,
    /// Terms of other pods about the set's, and of these about each other.
    groups: PodGroups,
    /// Resources that nodes keep for nominated pods.
    reserved: NumberMap<usize, NodeUse>,
    /// Constraints that no answer considers.
    unjudged: Vec<Unsupported>,
    /// Nodes of the pods that were placed.
    nodes: Vec<(usize, u32)>,
    /// Places of nodes in the plan, for pods that are placed one by one.
    places: NumberMap<usize, usize>,
    /// The domain in which all pods of the set are to be, if the set chose one.
    home: Option<u32>,
    plan: SetPlan,
    /// True if the allocator gave up on some node.
    gave_up: bool,
}

/// Nodes that refused a pod of the set for lack of devices; only the first of several that are alike.
#[derive(Debug, Default)]
struct Refused {
    /// Their places in the order.
    nodes: Vec<usize>,
    /// Shape and taken devices of the noted nodes.
    seen: HashSet<(u32, Box<[u32]>)>,
    /// Number of the last noted change of pools that several nodes see.
    changes: u64,
}

impl<'k, 'a> Placing<'k, 'a> {
    pub(super) fn new(known: &'k mut Known<'a>, usage: Usage, names_devices: bool) -> Self {
        known.occupancy.restart(known.cluster, &known.shapes, &usage);
        Self { known, usage, names_devices }
    }

    /// Places as many pods of the set as fit.
    pub(super) fn place(&mut self, wish: &Wish) -> SetPlan {
        let mut candidate = self.opened(wish);
        if wish.count > 1 && candidate.groups.begins_anywhere() {
            candidate = self.place_together(candidate);
        } else {
            self.fill_stages(&mut candidate);
        }
        self.note_placed(&mut candidate);
        self.explained(candidate)
    }

    /// Places the pods of the set, stage after stage.
    fn fill_stages(&mut self, candidate: &mut Candidate<'_>) {
        while candidate.plan.placed < candidate.wish.count && candidate.may_go_on() {
            match self.stage(candidate.wish) {
                Ok(stage) if self.fill(&stage, candidate) > 0 => {}
                Ok(_) => break,
                Err(problem) => candidate.plan.problem = Some(problem),
            }
        }
    }

    /// Names the nodes that would take a pod of the set, and the reasons why the others would not.
    pub(super) fn explain(&mut self, wish: &Wish) -> SetPlan {
        let candidate = self.opened(wish);
        self.explained(candidate)
    }

    /// Opens the box of a set, and makes its candidate.
    fn opened<'w>(&mut self, wish: &'w Wish) -> Candidate<'w> {
        let boxes = &mut self.known.questions.boxes;
        boxes.open(&wish.namespace);
        self.usage.forget_nominated(&wish.nominated);
        let cut_short = (boxes.is_empty() && !wish.claims.is_empty()).then_some(CutShort::NotReached);
        let mut candidate = self.candidate(wish);
        candidate.plan.cut_short = cut_short;
        candidate
    }

    /// Notes the pods of the set for the terms of others.
    fn note_placed(&mut self, candidate: &mut Candidate<'_>) {
        if let Some(identity) = candidate.wish.identity.clone().filter(|_| !candidate.nodes.is_empty()) {
            let nodes = std::mem::take(&mut candidate.nodes);
            self.usage.pods.push(Arc::new(PlacedPods { identity, nodes }));
        }
    }

    fn candidate<'w>(&mut self, wish: &'w Wish) -> Candidate<'w> {
        let places = &self.known.cluster.nodes;
        let groups = self.known.census.groups(self.known.cluster, &self.usage, wish);
        let mut reserved: NumberMap<usize, NodeUse> = NumberMap::new();
        self.usage
            .nominated(wish.priority)
            .for_each(|(node, pod)| reserved.entry(node).or_default().add(&pod.holds, 1));
        let unjudged: Vec<Unsupported> = wish.unsupported.iter().cloned().chain(groups.unjudged()).collect();
        Candidate {
            wish,
            order: self.order(),
            never: places.iter().map(|place| nodes::never(place, wish)).collect(),
            plan: SetPlan {
                name: wish.name.clone(),
                namespace: wish.namespace.clone(),
                verdict: Verdict::DoesNotFit,
                wanted: wish.count,
                placed: 0,
                placements: Vec::new(),
                problem: wish.problem.clone(),
                room: Vec::new(),
                refusals: Vec::new(),
                cut_short: None,
                unsupported: unjudged.iter().map(|it| it.what.clone()).collect(),
                notes: wish.notes.clone(),
            },
            groups,
            reserved,
            unjudged,
            nodes: Vec::new(),
            places: NumberMap::new(),
            home: None,
            gave_up: false,
        }
    }

    /// Orders nodes by free devices, fewest first, then by name: pods fill nodes in use, and leave empty machines
    /// empty.
    fn order(&self) -> Vec<usize> {
        let Known { cluster, shapes, occupancy, .. } = &*self.known;
        let free = |node: usize| occupancy.free(node, shapes.of(node));
        let mut order: Vec<(usize, usize)> = (0..cluster.nodes.len()).map(|node| (free(node), node)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, node)| node).collect()
    }

    /// Places as many pods as the stage allows, and returns their number.
    fn fill(&mut self, stage: &Stage, candidate: &mut Candidate<'_>) -> u32 {
        let before = candidate.plan.placed;
        if let Some(problem) = self.fatal(stage, candidate) {
            candidate.plan.problem = Some(problem);
            return 0;
        }
        let most = before.saturating_add(stage.most).min(candidate.wish.count);
        if candidate.groups.is_moving() {
            self.fill_in_turn(most, stage, candidate);
        } else {
            self.fill_in_order(most, stage, candidate);
        }
        let placed = candidate.plan.placed - before;
        self.use_claims(stage, placed);
        placed
    }

    /// Fills one node after the other.
    fn fill_in_order(&mut self, most: u32, stage: &Stage, candidate: &mut Candidate<'_>) {
        let (mut at, mut refused) = (0, Refused { changes: self.known.occupancy.changes(), ..Refused::default() });
        while at < candidate.order.len() && candidate.plan.placed < most && candidate.may_go_on() {
            let node = candidate.order[at];
            let is_possible = candidate.never[node].is_none()
                && candidate.groups.allows(node)
                && stage.allows(&self.known.cluster.nodes[node]).is_none();
            let back = is_possible.then(|| self.fill_node(at, most, stage, candidate, &mut refused)).flatten();
            at = back.unwrap_or(at + 1);
        }
    }

    /// Fills a node. Returns the place of an earlier node, if that would take a pod now.
    fn fill_node(
        &mut self,
        at: usize,
        most: u32,
        stage: &Stage,
        candidate: &mut Candidate<'_>,
        refused: &mut Refused,
    ) -> Option<usize> {
        let node = candidate.order[at];
        let place = &self.known.cluster.nodes[node];
        let room = nodes::room(place, &candidate.taken(&self.usage, node), candidate.wish);
        let room = u32::try_from(room.max(0)).unwrap_or(u32::MAX).min(most - candidate.plan.placed);
        let mut placement = Placement { node: place.name().to_owned(), pods: 0, devices: Vec::new() };
        let mut back = None;
        match stage.claims {
            None => placement.pods = room,
            Some(claims) => {
                while placement.pods < room && back.is_none() && candidate.may_go_on() {
                    if !self.add_pod(node, claims, stage, candidate, &mut placement) {
                        refused.add(self.known, node, at);
                        break;
                    }
                    back = self.ask_again(claims, candidate, refused);
                }
            }
        }
        if placement.pods > 0 {
            self.usage.node_mut(node).add(&candidate.wish.holds, i64::from(placement.pods));
            candidate.plan.placed += placement.pods;
            candidate.nodes.push((node, placement.pods));
            candidate.plan.add(placement);
        }
        back
    }

    /// Adds one more pod to the node, if its devices allow.
    fn add_pod(
        &mut self,
        node: usize,
        claims: u32,
        stage: &Stage,
        candidate: &mut Candidate<'_>,
        placement: &mut Placement,
    ) -> bool {
        match self.known.ask(node, claims) {
            Answer::Given(given) => {
                let pod = candidate.plan.placed + placement.pods;
                self.take(node, given, stage, pod, candidate.wish, placement);
                placement.pods += 1;
                true
            }
            Answer::Refused(refusal) => {
                candidate.note(self.known.questions.refusal(refusal));
                false
            }
        }
    }

    /// Asks the nodes that refused again, whenever something is taken of a pool that several nodes see: the next pod
    /// comes to them first. Their answer hardly ever changes, but it can be that the scheduler gives up there.
    fn ask_again(&mut self, claims: u32, candidate: &mut Candidate<'_>, refused: &mut Refused) -> Option<usize> {
        if refused.changes == self.known.occupancy.changes() {
            return None;
        }
        refused.changes = self.known.occupancy.changes();
        for at in &refused.nodes {
            match self.known.ask(candidate.order[*at], claims) {
                Answer::Given(_) => return Some(*at),
                Answer::Refused(refusal) => candidate.note(self.known.questions.refusal(refusal)),
            }
        }
        None
    }

    /// Returns the failure for which the scheduler gives up on a pod: one node that it looks at makes the allocator
    /// fail.
    fn fatal(&mut self, stage: &Stage, candidate: &Candidate<'_>) -> Option<String> {
        let claims = stage.claims?;
        candidate.order.iter().find_map(|node| {
            let place = &self.known.cluster.nodes[*node];
            let is_looked_at = candidate.never[*node].is_none()
                && nodes::not_now(place, &candidate.taken(&self.usage, *node), candidate.wish).is_none()
                && candidate.groups.allows(*node)
                && stage.allows(place).is_none();
            let answer = is_looked_at.then(|| self.known.ask(*node, claims))?;
            let Answer::Refused(refusal) = answer else { return None };
            let (kind, reason) = self.known.questions.refusal(refusal);
            (*kind == RefusalKind::Fatal).then(|| reason.to_string())
        })
    }

    /// Completes the plan of a set with every node's answer to one more pod, and the verdict.
    fn explained(&mut self, mut candidate: Candidate<'_>) -> SetPlan {
        let mut refused: HashMap<Reason, Vec<usize>> = HashMap::new();
        if let Ok(stage) = self.stage(candidate.wish) {
            for node in 0..self.known.cluster.nodes.len() {
                match self.reason(node, &stage, &mut candidate) {
                    Some(reason) => refused.entry(reason).or_default().push(node),
                    None => candidate.plan.room.push(self.known.cluster.nodes[node].name().to_owned()),
                }
            }
        }
        let name = |node: usize| self.known.cluster.nodes[node].name().to_owned();
        let mut refused: Vec<(Reason, Vec<usize>)> = refused.into_iter().collect();
        refused.sort_by(|one, other| (other.1.len(), &one.0).cmp(&(one.1.len(), &other.0)));
        let refusal = |(reason, nodes): (Reason, Vec<usize>)| NodeRefusal {
            reason: reason.to_string(),
            kind: reason.kind(),
            nodes: nodes.into_iter().map(name).collect(),
        };
        let mut plan = candidate.plan;
        plan.refusals = refused.into_iter().map(refusal).collect();
        plan.verdict = verdict(&plan, &candidate.unjudged, candidate.gave_up);
        plan
    }

    fn reason(&mut self, node: usize, stage: &Stage, candidate: &mut Candidate<'_>) -> Option<Reason> {
        let place = &self.known.cluster.nodes[node];
        let early = (candidate.never[node].clone())
            .or_else(|| candidate.not_now(place, &self.usage, node))
            .or_else(|| candidate.groups.refuses(node))
            .or_else(|| stage.allows(place));
        if early.is_some() {
            return early;
        }
        let Answer::Refused(refusal) = self.known.ask(node, stage.claims?) else { return None };
        let (kind, reason) = self.known.questions.refusal(refusal);
        match kind {
            RefusalKind::Undecided => candidate.gave_up = true,
            RefusalKind::CutShort => candidate.cut_short(),
            RefusalKind::Fatal | RefusalKind::NoFit => {}
        }
        Some(Reason::Devices(reason.to_string()))
    }
}

impl Candidate<'_> {
    fn note(&mut self, (kind, reason): &(RefusalKind, Rc<str>)) {
        match kind {
            RefusalKind::Fatal => self.plan.problem = Some(reason.to_string()),
            RefusalKind::Undecided => self.gave_up = true,
            RefusalKind::CutShort => self.cut_short(),
            RefusalKind::NoFit => {}
        }
    }

    fn cut_short(&mut self) {
        self.plan.cut_short.get_or_insert(CutShort::Begun);
    }

    /// Returns what the set finds taken of a node.
    fn taken<'u>(&self, usage: &'u Usage, node: usize) -> Cow<'u, NodeUse> {
        let mut taken = Cow::Borrowed(usage.node(node));
        if let Some(reserved) = self.reserved.get(&node) {
            taken.to_mut().add(reserved, 1);
        }
        taken
    }

    /// Returns the reason why no further pod of the set can be on the node for now.
    fn not_now(&self, place: &NodePlace, usage: &Usage, node: usize) -> Option<Reason> {
        let reason = nodes::not_now(place, &self.taken(usage, node), self.wish)?;
        let is_alone = nodes::not_now(place, usage.node(node), self.wish).is_some();
        Some(if is_alone { reason } else { Reason::Nominated(Box::new(reason)) })
    }

    /// Returns true while placing may go on.
    fn may_go_on(&self) -> bool {
        self.plan.problem.is_none() && self.plan.cut_short.is_none()
    }
}

impl Refused {
    /// Notes a node that sees a pool that others see as well; the refusals of other nodes do not change.
    fn add(&mut self, known: &Known<'_>, node: usize, at: usize) {
        let own = || (known.shapes.of_nodes[node], known.occupancy.own(node).into());
        if known.shapes.of(node).is_wide && self.seen.insert(own()) {
            self.nodes.push(at);
        }
    }
}

impl SetPlan {
    /// Adds pods on a node. Pods of a later stage can come to a node that has some of the set already.
    fn add(&mut self, placement: Placement) {
        match self.placements.last_mut().filter(|last| last.node == placement.node) {
            Some(last) => {
                last.pods += placement.pods;
                last.devices.extend(placement.devices);
            }
            None => self.placements.push(placement),
        }
    }
}

fn verdict(plan: &SetPlan, unjudged: &[Unsupported], gave_up: bool) -> Verdict {
    let is_placed = plan.placed == plan.wanted && plan.problem.is_none();
    let is_open = if is_placed {
        !unjudged.is_empty()
    } else {
        gave_up || plan.cut_short.is_some() || unjudged.iter().any(|it| it.may_help)
    };
    match (is_open, is_placed) {
        (true, _) => Verdict::Undecided,
        (false, true) => Verdict::Fits,
        (false, false) => Verdict::DoesNotFit,
    }
}
