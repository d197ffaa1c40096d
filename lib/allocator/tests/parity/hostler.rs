//! Our own answers, as cases have them.

use std::collections::BTreeMap;

use hostler_allocator::structured::{
    AllocatedState, Allocator, Budget, Fatal, Feature, GatherError, NodeFacts, Quirks, Refusal, SliceIndex,
};
use hostler_api::resource::{AllocationResult, SliceQuantity};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::case::{Case, DeviceReference, Implementation, Outcome};

/// Steps after which a search is given up; no committed case needs a tenth of them.
const STEPS: u64 = 50_000;

/// What we say in the place of one of upstream's implementations.
pub(crate) fn outcome(case: &Case, of: Implementation) -> Outcome {
    answer(case, Quirks::of(of.version, of.variant))
}

/// What we say without any of upstream's defects.
pub(crate) fn meant(case: &Case) -> Outcome {
    answer(case, Quirks::none())
}

/// Why there is no allocation.
enum Failure {
    Refused(Refusal),
    /// An object of the API is not one for us.
    Unreadable(serde_json::Error),
}

impl<E: Into<Refusal>> From<E> for Failure {
    fn from(refusal: E) -> Self {
        Self::Refused(refusal.into())
    }
}

fn answer(case: &Case, quirks: Quirks) -> Outcome {
    match allocate(case, quirks) {
        Ok(results) => Outcome::Fit(results.iter().map(|result| json!(result)).collect()).normalised(),
        Err(Failure::Refused(Refusal::NoFit(_))) => Outcome::NoFit(true),
        Err(Failure::Refused(Refusal::Fatal(fatal))) => Outcome::Fatal(class(&fatal).to_owned()),
        Err(Failure::Refused(Refusal::OutOfBudget { .. })) => Outcome::Fatal("interrupted".to_owned()),
        Err(Failure::Unreadable(error)) => Outcome::Fatal(format!("unreadable: {error}")),
    }
}

fn allocate(case: &Case, quirks: Quirks) -> Result<Vec<AllocationResult>, Failure> {
    let features: Vec<Feature> = all(&case.features.iter().map(|gate| json!(gate)).collect::<Vec<_>>())?;
    let allocator = Allocator::new(features.into_iter().collect(), quirks, all(&case.classes)?);
    let (slices, claims) = (all(&case.slices)?, all(&case.claims.iter().map(claim).collect::<Vec<_>>())?);
    let labels: BTreeMap<String, String> = typed(case.node["metadata"].get("labels").unwrap_or(&json!({})))?;
    let node = NodeFacts { name: case.node["metadata"]["name"].as_str().unwrap_or_default(), labels: &labels };
    let index = SliceIndex::new(&slices);
    let unknown = |error: GatherError| Fatal::NodeSelector { device: String::new(), reason: error.to_string() };
    let pools = allocator.gather(node, &index).map_err(unknown)?;
    let claims = allocator.compile(&claims);
    Ok(allocator.allocate(&pools, &state(case)?, &claims, &mut Budget::steps(STEPS))?)
}

/// Items of a list do not say what they are.
fn claim(item: &Value) -> Value {
    let mut claim = item.clone();
    claim["apiVersion"] = json!("resource.k8s.io/v1");
    claim["kind"] = json!("ResourceClaim");
    claim
}

fn state(case: &Case) -> Result<AllocatedState, Failure> {
    let mut state = AllocatedState::new();
    for DeviceReference { driver, pool, device } in &case.allocated.devices {
        state.hold(driver, pool, device);
    }
    for share in &case.allocated.shares {
        let DeviceReference { driver, pool, device } = &share.device;
        state.share(driver, pool, device, &share.share_id);
    }
    for consumed in &case.allocated.capacity {
        let DeviceReference { driver, pool, device } = &consumed.device;
        let capacity: BTreeMap<String, SliceQuantity> = typed(&consumed.capacity)?;
        state.consume(driver, pool, device, capacity.iter().map(|(name, quantity)| (&**name, quantity)));
    }
    Ok(state)
}

fn all<T: DeserializeOwned>(objects: &[Value]) -> Result<Vec<T>, Failure> {
    objects.iter().map(typed).collect()
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, Failure> {
    T::deserialize(object).map_err(Failure::Unreadable)
}

/// The kind of an error in a word.
fn class(fatal: &Fatal) -> &'static str {
    match fatal {
        Fatal::FeatureOff { .. } => "feature-disabled",
        Fatal::EmptySelector { .. } => "empty-selector",
        Fatal::NoClass { .. } => "no-class-name",
        Fatal::UnknownClass { .. } => "missing-class",
        Fatal::UnknownMode { .. } => "unsupported-mode",
        Fatal::EmptyConstraint { .. } => "empty-constraint",
        Fatal::TooManyDevices { .. } => "too-many-devices",
        Fatal::LimitExceeded { .. } => "limit-exceeded",
        Fatal::AllOfBadPool { problem, .. } if problem.contains("incomplete") => "all-from-incomplete-pool",
        Fatal::AllOfBadPool { .. } => "all-from-invalid-pool",
        Fatal::AllAgainstConstraint { .. } => "all-against-constraint",
        Fatal::InvalidPool { .. } => "pool-invalid",
        Fatal::Compile { .. } => "cel-compile",
        Fatal::Evaluate { .. } => "cel-runtime",
        Fatal::NodeSelector { .. } | Fatal::SelectorTerms { .. } => "node-selector",
        // Upstream looks through a null pointer or beyond the end of a list.
        Fatal::EmptyClassSelector { .. } | Fatal::EmptyRequest { .. } | Fatal::NoSuchDevice { .. } => "panic",
    }
}
