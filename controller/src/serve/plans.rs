//! Answers `plan --controller`: like `plan` over a live cluster, from the controller's view.

use hostler_allocator::plan::{Change, PlanBoxes, PlanOptions};

use super::{fits::told, problem::ApiProblem};
use crate::{
    askers::ASKER_BOX,
    plan::{
        FeatureGate, InputLayer, InputText, Manifests, PlanAnswer, PlanFile, PlanQuestion, PlanRequest, asked_or_alone,
        features, version,
    },
    view::ClusterView,
};

/// The most workloads and pods of one question. Others ask as well; a client with more reads the cluster itself.
const MOST_SETS: usize = 32;

/// Answers which pods fit where.
pub(crate) fn plans(view: &ClusterView, request: &str) -> Result<PlanAnswer, ApiProblem> {
    let request: PlanRequest = serde_json::from_str(request)
        .map_err(|error| ApiProblem::BadQuestion(format!("it is no question: {error}")))?;
    let (changes, options) = (changes(&request)?, options(&request, view)?);
    let (mut manifests, mut problems) = (Manifests::over(&view.planner), Vec::new());
    for PlanFile { name, text } in request.files {
        manifests.read(&InputText { name, text }, InputLayer::Files, &mut problems);
    }
    let sets = asked_or_alone(&manifests).len();
    if sets > MOST_SETS {
        let words =
            format!("{sets} workloads and pods; send up to {MOST_SETS} of them, or use --cluster without --controller");
        return Err(ApiProblem::Unusable(vec![words]));
    }
    let question = PlanQuestion { manifests, changes: &changes };
    let mut asker = PlanBoxes::for_all(ASKER_BOX);
    question.answer(&options, &mut asker, problems).map_err(|problems| ApiProblem::Unusable(told(&problems)))
}

fn changes(request: &PlanRequest) -> Result<Vec<Change>, ApiProblem> {
    let change = |text: &String| {
        text.parse()
            .map_err(|error| ApiProblem::BadQuestion(format!("whatIf {text:?}: {}", hostler_api::Chain(&error))))
    };
    request.what_if.iter().map(change).collect()
}

fn options(request: &PlanRequest, view: &ClusterView) -> Result<PlanOptions, ApiProblem> {
    let gate = |(name, is_on): (&String, &bool)| format!("{name}={is_on}").parse::<FeatureGate>();
    let gates: Result<Vec<FeatureGate>, String> = request.feature_gates.iter().map(gate).collect();
    let gates = gates.map_err(ApiProblem::BadQuestion)?;
    let asked = request.kubernetes.as_deref().map(version).transpose().map_err(ApiProblem::BadQuestion)?;
    if asked.is_none() && gates.is_empty() {
        return Ok(view.options.clone());
    }
    let version = asked.unwrap_or(view.options.version);
    Ok(PlanOptions { version, features: Some(features(version, &gates)), ..view.options.clone() })
}
