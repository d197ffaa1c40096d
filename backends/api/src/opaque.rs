//! Merges the configurations of a grant: what a claim and its class ask of the backend of a device.
//!
//! Several configurations may apply to one request. They are read in order, classes before claims, and merged field by
//! field: a later value wins, and a field that is left out stays as it was.

#[cfg(test)]
mod tests;

use hostler_api::{
    ConfigProblem, Grant,
    opaque::{ConfigKind, OpaqueConfig, PlacementConfig, SameNumaNode, is_placement},
};
use serde_json::{Map, Value};

use crate::BackendError;

/// Path that stands for the configurations of a grant in messages.
const PARAMETERS: &str = "parameters";

/// Merges what the configurations of a grant say of kind `K`, for the backend that takes `K`. Placement is the
/// daemon's business and passes; any other kind is refused, since a wish that no backend reads would look granted.
///
/// # Errors
/// [`BackendError::Config`] with every mistake.
pub fn config_of<K: ConfigKind>(grant: &Grant) -> Result<K, BackendError> {
    merged(grant, &grant.config)
}

/// Refuses a grant that brings configuration, for backends that define none. Placement passes.
///
/// # Errors
/// [`BackendError::Config`] with every mistake.
pub fn refuse_opaque_config(grant: &Grant) -> Result<(), BackendError> {
    config_of::<PlacementConfig>(grant).map(drop)
}

/// Placement of a grant that is to lie on one NUMA node with the others of its claim that say so. Other kinds are not
/// looked at.
///
/// # Errors
/// [`BackendError::Config`] with every mistake in the placement.
pub fn placement_of(grant: &Grant) -> Result<Option<SameNumaNode>, BackendError> {
    let placements: Vec<&Value> = grant.config.iter().filter(|config| is_placement(config)).collect();
    let said = !placements.is_empty();
    let merged: PlacementConfig = merged(grant, placements)?;
    Ok(said.then(|| merged.same_numa_node.unwrap_or_default()))
}

/// Merges configurations: later fields replace earlier ones in the JSON objects themselves, so that all kinds merge
/// alike.
fn merged<'a, K: ConfigKind>(grant: &Grant, configs: impl IntoIterator<Item = &'a Value>) -> Result<K, BackendError> {
    let mut merged = Map::new();
    let mut problems = Vec::new();
    for parameters in configs {
        match OpaqueConfig::parse(parameters, PARAMETERS) {
            Ok(config) if config.kind() == K::NAME => {
                merged.extend(parameters.as_object().cloned().unwrap_or_default())
            }
            Ok(OpaqueConfig::Placement(_)) => {}
            Ok(config) => problems.push(wrong_kind(grant, config.kind(), K::NAME)),
            Err(found) => problems.extend(found),
        }
    }
    let config = K::deserialize(Value::Object(merged));
    problems.extend(config.as_ref().err().map(|error| ConfigProblem::new(PARAMETERS, error.to_string())));
    config.ok().filter(|_| problems.is_empty()).ok_or(BackendError::Config { problems })
}

fn wrong_kind(grant: &Grant, kind: &str, taken: &str) -> ConfigProblem {
    let Grant { device, pool, request, .. } = grant;
    let placement = PlacementConfig::NAME;
    let takes = if taken == placement { format!("only {placement}") } else { format!("{taken} and {placement}") };
    ConfigProblem::new(
        format!("{PARAMETERS}.kind"),
        format!(
            "{kind} says nothing to device {device} of pool {pool}, which takes {takes}; \
             list the requests that it is for, and not {request}, in its `requests`"
        ),
    )
}
