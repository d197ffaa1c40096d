//! "Would it fit": the pasted pods are planned in the cluster as it is known now, and every node answers. Nothing is
//! created.

use hostler_allocator::plan::{CutShort, NodeRefusal, PlanBoxes, PodSet, SetPlan, Verdict};
use hostler_cli::output::API_VERSION;
use serde::Serialize;

use super::problem::ApiProblem;
use crate::{
    askers::ASKER_BOX,
    plan::{InputLayer, InputProblem, InputText, Manifests, asked_or_alone},
    view::ClusterView,
};

/// The most kinds of pods of one question. Each names every node in its answer.
const MOST_SETS: usize = 8;
/// The most mistakes of one answer.
const MOST_PROBLEMS: usize = 20;
/// The name of the pasted text, in messages.
const SOURCE: &str = "pasted";

/// Answer to a question about what would fit, and where.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FitsAnswer {
    api_version: &'static str,
    kind: &'static str,
    /// The version of Kubernetes whose scheduler decides.
    kubernetes: String,
    /// Kinds of pods, each planned by itself: one pod of it, in the cluster as it is.
    pod_sets: Vec<FitOfPods>,
    /// Facts that make the answer less certain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Places where one pod would fit.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FitOfPods {
    /// Namespace of the pod.
    namespace: String,
    /// `Pod train`, `ResourceClaim gpus`.
    name: String,
    /// Verdict about a place for the pod.
    verdict: Verdict,
    /// The reason why the pod fits nowhere, where it is not a reason of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Nodes that would take the pod, by name.
    room: Vec<String>,
    /// Reasons of the other nodes, the reason of most nodes first.
    refusals: Vec<NodeRefusal>,
    /// The point at which planning was cut short: the question took more work or time than one visitor has.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_short: Option<CutShort>,
    /// Fields of the pod that are not judged here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unsupported: Vec<String>,
    /// Facts to know about the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Plans the pods of `text`, one of each kind.
pub(crate) fn fits(view: &ClusterView, text: String) -> Result<FitsAnswer, ApiProblem> {
    let (mut manifests, mut problems) = (Manifests::over(&view.planner), Vec::new());
    manifests.read(&InputText { name: SOURCE.to_owned(), text }, InputLayer::Files, &mut problems);
    if !problems.is_empty() {
        return Err(ApiProblem::Unusable(told(&problems)));
    }
    let (sets, options) = (sets(&manifests)?, &view.options);
    let (snapshot, mut asker) = (manifests.snapshot(), PlanBoxes::for_all(ASKER_BOX));
    Ok(FitsAnswer {
        api_version: API_VERSION,
        kind: "Fits",
        kubernetes: options.version.to_string(),
        pod_sets: sets.iter().map(|set| FitOfPods::new(snapshot.fit(set, options, &mut asker))).collect(),
        notes: snapshot.unseen().to_vec(),
    })
}

/// Returns pods and workloads; where there are none, claims and templates, each as a pod would name it.
fn sets(manifests: &Manifests) -> Result<Vec<PodSet>, ApiProblem> {
    let sets: Vec<PodSet> = asked_or_alone(manifests).into_iter().map(|asked| asked.set).collect();
    match sets.len() {
        0 => Err(ApiProblem::Unusable(vec![nothing(manifests)])),
        1..=MOST_SETS => Ok(sets),
        more => {
            let words = format!("{more} kinds of pods are asked for; paste {MOST_SETS} at most");
            Err(ApiProblem::Unusable(vec![words]))
        }
    }
}

fn nothing(manifests: &Manifests) -> String {
    let kinds: Vec<&str> = manifests.unread.keys().map(String::as_str).collect();
    let unread = if kinds.is_empty() { String::new() } else { format!("; {} is none of them", kinds.join(", ")) };
    format!("nothing here wants a place: paste a ResourceClaim, a ResourceClaimTemplate, a Pod or a workload{unread}")
}

/// Writes each mistake on a line.
pub(crate) fn told(problems: &[InputProblem]) -> Vec<String> {
    let lines = problems.iter().take(MOST_PROBLEMS).map(ToString::to_string);
    let more = problems.len().saturating_sub(MOST_PROBLEMS);
    lines.chain((more > 0).then(|| format!("and {more} more"))).collect()
}

impl FitOfPods {
    fn new(set: SetPlan) -> Self {
        // No pod was to be placed, so none can be missing either: the verdict follows from the room alone.
        let is_full = set.room.is_empty() && set.verdict == Verdict::Fits;
        Self {
            namespace: set.namespace,
            name: set.name,
            verdict: match set.cut_short {
                _ if !is_full => set.verdict,
                Some(_) => Verdict::Undecided,
                None => Verdict::DoesNotFit,
            },
            problem: set.problem,
            room: set.room,
            refusals: set.refusals,
            cut_short: set.cut_short,
            unsupported: set.unsupported,
            notes: set.notes,
        }
    }
}
