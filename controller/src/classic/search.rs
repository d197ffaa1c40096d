//! The search for nodes that have devices for the claims of a pod, or for one claim.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice::from_ref,
};

use hostler_api::{
    ObjectKey,
    classic::{ClassicConsumer, ClassicVersion, HandleData, HandleError},
};

use super::{
    context::{ClassicContext, ClassicEffect},
    event::NewAllocation,
    fit::{ClaimFit, NodeVerdict, Question, Unfit},
    model::UnsuitableNodes,
    settings::ClassicSettings,
    terms::ClaimTerms,
};

/// The claims of a pod that are ours to allocate.
#[derive(Debug, Default)]
pub(super) struct AskedClaims {
    /// The claims, with the names that the pod has for each of them.
    pub(super) waiting: Vec<(Vec<String>, ObjectKey)>,
    /// The terms of each of these claims.
    pub(super) terms: Vec<ClaimTerms>,
    /// Entries of claims that need no entry any more.
    pub(super) kept: UnsuitableNodes,
    /// True if one of the claims is being written or cleaned up.
    pub(super) is_busy: bool,
}

pub(super) type Verdicts = BTreeMap<String, NodeVerdict>;

/// Checks all of the claims together on each node. Where every node fails for the same reason, an Event on the claims
/// tells why.
pub(super) fn verdicts<'n>(
    cx: &mut ClassicContext<'_>,
    asked: &AskedClaims,
    nodes: &(impl Iterator<Item = &'n str> + Clone),
) -> Option<Verdicts> {
    if is_left_alone(cx, asked) {
        return None;
    }
    let (allocator, inventory, needs_devices) = (cx.catalogue.allocator(), cx.inventory, cx.settings.needs_devices);
    let question = |terms| Question::new(allocator, inventory, terms, needs_devices);
    let together = question(&asked.terms);
    match together.ask(nodes.clone()) {
        Ok(mut verdicts) => {
            add_refusals(cx, asked, &mut verdicts);
            let is_cut_short = together.is_cut_short();
            let searched = |(_, claim): &(_, ObjectKey)| ClassicEffect::Searched { claim: claim.clone(), is_cut_short };
            cx.effects.extend(asked.waiting.iter().map(searched));
            Some(verdicts)
        }
        Err(all) => {
            let alone: Vec<_> =
                asked.terms.iter().map(|terms| question(from_ref(terms)).ask(nodes.clone()).err()).collect();
            let is_together = alone.iter().all(Option::is_none);
            for ((_, claim), fatal) in asked.waiting.iter().zip(&alone) {
                if let Some(fatal) = fatal.as_ref().or(is_together.then_some(&all)) {
                    cx.fail(claim, fatal);
                }
            }
            None
        }
    }
}

/// True if the search for one of the claims was cut short lately: other claims have their turn first.
fn is_left_alone(cx: &ClassicContext<'_>, asked: &AskedClaims) -> bool {
    let mut pauses = asked.waiting.iter().filter_map(|(_, claim)| cx.claims.get(claim)?.cut_short);
    pauses.any(|(_, until)| until > cx.now)
}

fn add_refusals(cx: &ClassicContext<'_>, asked: &AskedClaims, verdicts: &mut Verdicts) {
    for (at, (_, claim)) in asked.waiting.iter().enumerate() {
        let Some(state) = cx.claims.get(claim) else { continue };
        for (node, reason) in state.refusals.nodes(cx.now) {
            let Some(verdict) = verdicts.get_mut(node) else { continue };
            match verdict {
                Ok(_) => *verdict = Err(Unfit { claims: BTreeSet::from([at]), reason: reason.clone() }),
                Err(unfit) => drop(unfit.claims.insert(at)),
            }
        }
    }
}

/// Returns the allocation of devices that were found.
///
/// # Errors
/// Fails if the result does not fit into the handle for the node. In 1.31 the configuration has a field of its own.
pub(super) fn new_allocation(
    settings: &ClassicSettings,
    node: &str,
    (terms, fit): (&ClaimTerms, &ClaimFit),
    consumer: Option<ClassicConsumer>,
) -> Result<NewAllocation, HandleError> {
    let mut devices = fit.result.devices.clone();
    if settings.version == ClassicVersion::V1Alpha3 {
        devices.config.clear();
    }
    HandleData::new(node, devices, fit.absent.clone()).to_text()?;
    Ok(NewAllocation {
        node: node.to_owned(),
        result: fit.result.clone(),
        absent: fit.absent.clone(),
        is_shareable: terms.is_shareable,
        consumers: consumer.into_iter().collect(),
    })
}
