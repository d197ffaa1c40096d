//! Negotiations about the node of a pod (PodSchedulingContext): which nodes are unsuitable, and allocation where a node
//! was selected.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::{
    ObjectKey,
    classic::{ClassicConsumer, MAX_SCHEDULING_NODES},
    few,
};

use super::{
    context::{ClassicContext, ClassicEffect},
    event::ClassicWrite,
    fit::{ClaimFit, Unfit, prefer_extras},
    model::{NodeAccess, PodFacts, SchedulingContext, UnsuitableNodes},
    search::{AskedClaims, Verdicts, new_allocation, verdicts},
    state::{NegotiationState, PendingAllocation, PodKnowledge},
    topic::Topic,
};

/// Time for which nodes with fewer optional devices are reported as unsuitable. The scheduler tries a pod again after
/// 10 s at most; it cannot use a node that it has not selected by then.
const PREFERRED_FOR: Duration = Duration::from_secs(30);

/// A negotiation whose pod is known.
#[derive(Clone, Copy)]
struct Negotiation<'a> {
    key: &'a ObjectKey,
    state: &'a NegotiationState,
    pod: &'a PodFacts,
    is_pod_fresh: bool,
}

/// Decides the answer to a negotiation.
pub(super) fn decide_negotiation(cx: &mut ClassicContext<'_>, key: &ObjectKey) -> Option<ClassicWrite> {
    let state = cx.negotiations.get(key)?;
    let context = &state.context;
    if context.is_deleting || (context.selected.is_none() && context.potential.is_empty()) {
        return None;
    }
    let (pod, is_pod_fresh) = match &state.pod {
        PodKnowledge::Asked => return None,
        PodKnowledge::Known { facts, is_fresh } => (facts.as_ref()?, *is_fresh),
        PodKnowledge::Unknown => {
            cx.push(ClassicEffect::ReadPod(key.clone()));
            return None;
        }
    };
    if pod.is_deleting || context.owner.as_deref() != Some(&*pod.uid) {
        return None;
    }
    let of = Negotiation { key, state, pod, is_pod_fresh };
    let asked = asked_claims(cx, of)?;
    if asked.is_busy || asked.waiting.is_empty() { None } else { answer(cx, of, &asked) }
}

/// Returns the claims of the pod that are ours; `None` if one of them has a mistake.
fn asked_claims(cx: &mut ClassicContext<'_>, of: Negotiation<'_>) -> Option<AskedClaims> {
    let mut asked = AskedClaims::default();
    let mut has_mistakes = false;
    for (pod_claim, name) in of.pod.claims.iter().filter_map(|it| Some((it, it.claim.as_ref()?))) {
        let claim = ObjectKey::new(&of.key.namespace, name);
        let Some(state) = cx.claims.get(&claim) else { continue };
        let is_of_pod = !pod_claim.is_made || state.claim.owner.as_deref() == Some(&*of.pod.uid);
        if !is_of_pod || !cx.catalogue.is_ours(&state.claim) {
            continue;
        }
        if !state.is_waiting() {
            let entry = of.state.context.entries.get_key_value(&pod_claim.name);
            asked.kept.extend(entry.map(|(name, nodes)| (name.clone(), nodes.clone())));
            continue;
        }
        if let Some((names, _)) = asked.waiting.iter_mut().find(|(_, known)| *known == claim) {
            names.push(pod_claim.name.clone());
            continue;
        }
        asked.is_busy |= state.is_busy();
        match cx.catalogue.terms(&state.claim) {
            Ok(terms) => {
                asked.waiting.push((vec![pod_claim.name.clone()], claim));
                asked.terms.push(terms);
            }
            Err(mistake) => {
                has_mistakes = true;
                cx.fail(&claim, &mistake);
            }
        }
    }
    (!has_mistakes).then_some(asked)
}

fn answer(cx: &mut ClassicContext<'_>, of: Negotiation<'_>, asked: &AskedClaims) -> Option<ClassicWrite> {
    let context = &of.state.context;
    let nodes = nodes_to_check(cx, context, asked);
    let mut verdicts = verdicts(cx, asked, &nodes.iter().map(String::as_str))?;
    prefer_more(cx, of, &mut verdicts);
    let selected = context.selected.as_ref().and_then(|node| Some((node, verdicts.get(node)?.as_ref().ok()?)));
    if let Some((node, fits)) = selected {
        if of.is_pod_fresh {
            allocate(cx, of, asked, (node, fits));
        } else {
            cx.push(ClassicEffect::ReadPod(of.key.clone()));
        }
        return None;
    }
    record_waiting(cx, context, asked, &verdicts);
    let mut entries = unsuitable(context, asked, &verdicts);
    entries.extend(asked.kept.clone());
    cx.push(ClassicEffect::Answer(of.key.clone(), entries.clone()));
    let is_written = context.has_entries(&entries);
    (!is_written).then(|| ClassicWrite::Unsuitable { key: of.key.clone(), uid: context.uid.clone(), entries })
}

/// Directs the scheduler to nodes with more optional devices, for a while: only the scheduler knows whether it can use
/// them.
fn prefer_more(cx: &mut ClassicContext<'_>, of: Negotiation<'_>, verdicts: &mut Verdicts) {
    let context = &of.state.context;
    let since = of.state.preferred_since.unwrap_or(cx.now);
    let left = (since + PREFERRED_FOR).saturating_sub(cx.now);
    let takes_pods = |node: &&String| cx.inventory.node(node).is_some_and(|it| it.access != NodeAccess::Closed);
    let candidates = context.potential.iter().chain(&context.selected).filter(takes_pods);
    if !left.is_zero() && prefer_extras(verdicts, candidates) {
        cx.push(ClassicEffect::Prefer(of.key.clone(), since));
        cx.push(ClassicEffect::DecideAfter(left, Topic::Context(of.key.clone())));
    }
}

/// Returns the nodes that the scheduler asks about, and those that were reported as unsuitable before.
fn nodes_to_check(cx: &ClassicContext<'_>, context: &SchedulingContext, asked: &AskedClaims) -> BTreeSet<String> {
    let names = asked.waiting.iter().flat_map(|(names, _)| names);
    let earlier = names.filter_map(|name| context.entries.get(name)).flatten();
    let earlier = earlier.filter(|node| cx.inventory.node(node).is_some());
    context.potential.iter().chain(&context.selected).chain(earlier).cloned().collect()
}

/// Allocates all claims on the node that the scheduler selected.
fn allocate(cx: &mut ClassicContext<'_>, of: Negotiation<'_>, asked: &AskedClaims, (node, fits): (&str, &[ClaimFit])) {
    cx.push(ClassicEffect::UsePod(of.key.clone()));
    let consumer = cx.settings.reserves_for_pods.then(|| ClassicConsumer::of_pod(&*of.key.name, &of.pod.uid));
    let mut allocations = Vec::new();
    for (((_, claim), terms), fit) in asked.waiting.iter().zip(&asked.terms).zip(fits) {
        match new_allocation(cx.settings, node, (terms, fit), consumer.clone()) {
            Ok(new) => {
                let negotiation = Some(of.key.clone());
                allocations.push(ClassicEffect::Allocate(claim.clone(), PendingAllocation { new, negotiation }));
            }
            Err(error) => {
                let (claim, node, message) = (claim.clone(), node.to_owned(), error.to_string());
                return cx.push(ClassicEffect::Refuse { claim, node, message });
            }
        }
    }
    cx.effects.extend(allocations);
}

/// Records an Event that says why a pod fits on no node.
fn record_waiting(cx: &mut ClassicContext<'_>, context: &SchedulingContext, asked: &AskedClaims, verdicts: &Verdicts) {
    let nodes: BTreeSet<&String> = context.potential.iter().chain(&context.selected).collect();
    let unfit: Vec<&Unfit> = nodes.iter().filter_map(|node| verdicts.get(*node)?.as_ref().err()).collect();
    let Some(first) = unfit.first().filter(|_| unfit.len() == nodes.len()) else { return };
    let message = format!("no node will do, not {}: {}", few(&nodes), first.reason);
    first.claims.iter().for_each(|at| cx.wait(&asked.waiting[*at].1, &message));
}

/// Returns the unsuitable nodes of each waiting claim. A list that is too long loses the nodes that matter least.
fn unsuitable(context: &SchedulingContext, asked: &AskedClaims, verdicts: &Verdicts) -> UnsuitableNodes {
    let is_unsuitable = |at: usize, node: &String| {
        verdicts.get(node).and_then(|verdict| verdict.as_ref().err()).is_some_and(|unfit| unfit.claims.contains(&at))
    };
    let entries = |(at, (names, _)): (usize, &(Vec<String>, ObjectKey))| {
        let asked_about = context.selected.iter().chain(&context.potential);
        let mut nodes = BTreeSet::new();
        for node in asked_about.chain(verdicts.keys()).filter(|node| is_unsuitable(at, node)) {
            if nodes.len() < MAX_SCHEDULING_NODES {
                nodes.insert(node.clone());
            }
        }
        names.iter().map(|name| (name.clone(), nodes.clone())).collect::<Vec<_>>()
    };
    asked.waiting.iter().enumerate().flat_map(entries).collect()
}
