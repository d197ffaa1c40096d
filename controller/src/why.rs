//! `hostler-controller why`: the one reason why a pod waits, its fix, and the claims, devices, holders and nodes behind
//! it. The command reads the API server with the rights of its user, and changes nothing.
//!
//! ```text
//!   pod ──► on a node? ──► gates, claims, classes ──► devices: matching, free, held ──► nodes ──► cause
//!            lifecycle           waiting                        shortage               placement
//! ```

mod answer;
mod cause;
mod claim;
mod claims;
mod fabric;
mod lifecycle;
mod placement;
mod pod;
mod read;
mod shortage;
mod table;
mod waiting;
mod world;

use std::{
    io::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use hostler_allocator::plan::{PlanBoxes, PlanOptions};
use hostler_api::{ObjectKey, fabric::FABRIC_ATTACHMENTS, few};
use hostler_cli::{
    output::{API_VERSION, DocumentFormat, write_document},
    parts::shape,
};
use serde::Serialize;

use self::{
    answer::{WhyAnswer, claim_rows, waited_holders},
    cause::{CauseKind, PodCause},
    claims::claims_of,
    fabric::AttachmentFacts,
    pod::ExplainedPod,
    world::WhyWorld,
};
use crate::{
    cluster_args::NamespaceArgs,
    plan::{self, ClusterReadError, QuestionError, runtime, waiting_set},
    stock::ClusterStock,
};

const EXAMPLES: &str = "\
Examples:
  why train-0 -n ml      why the pod waits, in a sentence; its claims, and who has the devices
  why -A                 all pods that wait, with the reason of each

Exit codes: 0 answered, 2 wrong usage, or no answer.";

/// Say in a sentence why a pod waits, and what helps
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhyArgs {
    /// The pod: NAME, pod/NAME or NAMESPACE/NAME; without it all pods that wait
    #[arg(value_name = "POD")]
    pod: Option<String>,
    /// Pods of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["pod", "namespace"])]
    all_namespaces: bool,
    #[command(flatten)]
    place: NamespaceArgs,
    /// How the answer looks; wide has every holder, node and Event
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
    output: DocumentFormat,
}

/// Answers about several pods.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WhyList<'a> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [WhyAnswer],
}

/// Answers on `out`.
pub(crate) fn run(args: &WhyArgs, out: &mut dyn Write) -> Result<(), QuestionError> {
    if let Some(pod) = &args.pod {
        return explain(pod, &args.place, args.output, out);
    }
    let namespace =
        if args.all_namespaces { None } else { Some(args.place.namespace().map_err(ClusterReadError::connect)?) };
    let world = read(&args.place, namespace.as_deref())?;
    let view = WhyView::new(&world, SystemTime::now());
    let waiting = world.pods.iter().filter(|(key, pod)| pod.is_pending() && is_meant(key, namespace.as_deref()));
    let answers: Vec<WhyAnswer> = waiting.filter_map(|(key, _)| view.answer(key)).collect();
    let list = WhyList { api_version: API_VERSION, kind: "WhyList", items: &answers };
    Ok(write_document(&list, args.output, out, |_| table::rows(&answers, args.all_namespaces))?)
}

fn is_meant(key: &ObjectKey, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| key.namespace == namespace)
}

/// Answers about one pod.
pub(crate) fn explain(
    pod: &str,
    place: &NamespaceArgs,
    output: DocumentFormat,
    out: &mut dyn Write,
) -> Result<(), QuestionError> {
    let name = ["pod/", "pods/", "po/"].iter().find_map(|kind| pod.strip_prefix(kind)).unwrap_or(pod);
    let key = place.key(name).map_err(ClusterReadError::connect)?;
    let world = read(place, Some(&key.namespace))?;
    let answer = WhyView::new(&world, SystemTime::now()).answer(&key);
    let answer = answer.ok_or_else(|| QuestionError::no_object_of("Pod", &key, world.pods.keys()))?;
    Ok(write_document(&answer, output, out, |width| table::text(&answer, width))?)
}

/// Explains a claim.
pub(crate) fn explain_claim(name: &str, place: &NamespaceArgs, out: &mut dyn Write) -> Result<(), QuestionError> {
    let key = place.key(name).map_err(ClusterReadError::connect)?;
    let world = read(place, Some(&key.namespace))?;
    let words = claim::explained(&WhyView::new(&world, SystemTime::now()), &key);
    let words = words.ok_or_else(|| QuestionError::no_object_of("ResourceClaim", &key, world.claims.keys()))?;
    Ok(out.write_all(words.as_bytes())?)
}

/// True if the pod waits for devices that are not free: those behind switches may be hidden.
fn is_short(cause: CauseKind) -> bool {
    use CauseKind::{Allocated, ClassEmpty, Drained, NoMatch, NodeRefuses, TooFew, Unavailable, Unhealthy};
    matches!(cause, Allocated | ClassEmpty | Drained | NoMatch | NodeRefuses | TooFew | Unavailable | Unhealthy)
}

fn read(place: &NamespaceArgs, namespace: Option<&str>) -> Result<WhyWorld, QuestionError> {
    runtime()?.block_on(read::read(&place.cluster, namespace))
}

/// A world, prepared for questions about its pods.
struct WhyView<'w> {
    world: &'w WhyWorld,
    now: SystemTime,
    options: PlanOptions,
    stock: ClusterStock,
    /// The planner's snapshot; `None` where too little may be read for plans.
    snapshot: Option<hostler_allocator::plan::Snapshot>,
}

impl<'w> WhyView<'w> {
    fn new(world: &'w WhyWorld, now: SystemTime) -> Self {
        let version = world.minor.and_then(|minor| plan::version(&format!("1.{minor}")).ok()).unwrap_or_default();
        let features = Some(plan::features(version, &[]));
        let can_plan = ["nodes", "deviceclasses", "resourceslices", "resourceclaims"];
        let can_plan = can_plan.iter().all(|plural| world.may_read(plural));
        Self {
            world,
            now,
            options: PlanOptions { version, features, ..PlanOptions::default() },
            stock: world.manifests.stock(now),
            snapshot: can_plan.then(|| world.manifests.snapshot()),
        }
    }

    /// Answers about a pod; `None` where there is none.
    fn answer(&self, key: &ObjectKey) -> Option<WhyAnswer> {
        let world = self.world;
        let (seen, pod) = (world.pods.get(key)?, world.manifests.pods.get(key)?);
        let claims = claims_of(world, key, pod, &self.options, &self.stock);
        let placed = lifecycle::of_placed(world, seen, &claims);
        let is_placed = placed.is_some();
        let set = waiting_set(&world.manifests, key);
        let fit = self.snapshot.as_ref().zip(set).filter(|_| !is_placed);
        let fit = fit.map(|(snapshot, set)| snapshot.fit(&set, &self.options, &mut PlanBoxes::default()));
        let has_room = fit.as_ref().is_some_and(|fit| !fit.room.is_empty());
        let cause = placed
            .or_else(|| waiting::before_devices(world, seen, pod, &claims))
            .or_else(|| self.attachments().waited_for(&claims))
            .or_else(|| if has_room { None } else { shortage::shortage(world, seen, &claims) })
            .or_else(|| placement::of_nodes(seen, &claims, fit.as_ref()?))
            .unwrap_or_else(|| self.in_words_of_the_scheduler(seen));
        let mut answer = WhyAnswer::new(key, cause);
        answer.claims = claim_rows(world, seen, &claims);
        if !is_placed {
            answer.holders = waited_holders(&claims);
        }
        fit.iter().for_each(|fit| answer.take_fit(fit));
        let about = world.events.iter().filter(|event| event.is_about("Pod", key));
        answer.events = about.map(|event| format!("{}: {}", event.reason, event.message.trim())).collect();
        if is_short(answer.cause.cause) {
            answer.notes.extend(self.attachments().hidden());
        }
        answer.notes.extend(self.notes());
        Some(answer)
    }

    /// Returns how far attachments of devices behind switches are.
    fn attachments(&self) -> AttachmentFacts<'w> {
        AttachmentFacts {
            attachments: &self.world.attachments,
            is_readable: self.world.may_read(FABRIC_ATTACHMENTS),
            now: self.now.duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    /// Returns all that is known where nothing else explains the pod.
    fn in_words_of_the_scheduler(&self, pod: &ExplainedPod) -> PodCause {
        let said = pod.status.condition("PodScheduled").map(|it| it.message.trim()).filter(|it| !it.is_empty());
        let reason = match said {
            Some(said) => format!("the scheduler says: {said}"),
            None => "the scheduler has said nothing of it yet".to_owned(),
        };
        let cause = PodCause::new(CauseKind::NotReadable, reason);
        match &self.world.forbidden[..] {
            [] => cause,
            lacking => cause.with_fix(format!("get the right to list {} for a better answer", lacking.join(", "))),
        }
    }

    fn notes(&self) -> Vec<String> {
        let world = self.world;
        let lacking = (!world.forbidden.is_empty())
            .then(|| format!("you may not list {}; what they tell is not in the answer", world.forbidden.join(", ")));
        let unread =
            (!world.problems.is_empty()).then(|| format!("objects that cannot be read: {}", few(&world.problems)));
        let release = world.minor.filter(|minor| plan::version(&format!("1.{minor}")).is_err());
        let release = release.map(|minor| {
            format!("nodes are judged as by the scheduler of {}; the cluster has 1.{minor}", self.options.version)
        });
        lacking.into_iter().chain(unread).chain(release).collect()
    }
}
