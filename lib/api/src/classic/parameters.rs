//! Parameters of claims and classes until 1.30, when neither could select devices itself: hostler's own kinds
//! ClaimParameters and ClassParameters. They select as claims and classes do today.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ClassicMeta;
use crate::{
    opaque::OpaqueConfig,
    resource::{
        DeviceClaimConfiguration, DeviceClassConfiguration, DeviceConstraint, DeviceSelector, ExactDeviceRequest,
        OpaqueDeviceConfiguration, or_empty,
    },
};

/// The kind of parameters of a claim.
pub const CLAIM_PARAMETERS_KIND: &str = "ClaimParameters";
/// The kind of parameters of a class.
pub const CLASS_PARAMETERS_KIND: &str = "ClassParameters";
/// Most requests, constraints and configurations: as many as a claim has today.
const MOST: usize = 32;

/// Parameters of the claims that name this object.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClaimParameters {
    /// Name; claims of the same namespace can name it.
    pub metadata: ClassicMeta,
    /// Requests of the claims.
    pub spec: ClaimParametersSpec,
}

/// Requests, constraints and configuration of a claim.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimParametersSpec {
    /// True if several pods can use a claim at the same time.
    pub shareable: bool,
    /// Requests, served one after the other; each gets devices of its own.
    #[serde(deserialize_with = "or_empty")]
    pub requests: Vec<ParameterRequest>,
    /// Attributes that the devices of several requests must have in common.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<DeviceConstraint>,
    /// Configuration for the driver.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceClaimConfiguration>,
}

impl Default for ClaimParametersSpec {
    fn default() -> Self {
        Self { shareable: true, requests: Vec::new(), constraints: Vec::new(), config: Vec::new() }
    }
}

/// One request. Its class is one of hostler's device classes; without one, the devices of the ResourceClass are meant.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ParameterRequest {
    /// Unique in the object.
    pub name: String,
    /// True if fewer devices than the count will do, or none at all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Class, selectors and number of the devices.
    #[serde(flatten)]
    pub devices: ExactDeviceRequest,
}

/// Parameters of all claims whose class names this object.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClassParameters {
    /// Name.
    pub metadata: ClassicMeta,
    /// Selectors and configuration.
    pub spec: ClassParametersSpec,
}

/// Selectors and configuration of a class, as in a DeviceClass of today.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClassParametersSpec {
    /// Conditions that a device must meet.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Configuration for the driver.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceClassConfiguration>,
}

/// A mistake in parameters: the field, and the fix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("field {field}: {problem}")]
pub struct ParametersMistake {
    /// The field.
    pub field: String,
    /// Description of the mistake, and the fix.
    pub problem: String,
}

impl ParametersMistake {
    /// A mistake in `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Checks that the configurations for `driver` in a list can be understood. `list` is the path of the list.
///
/// # Errors
/// The mistake in the first configuration that cannot be understood.
pub fn check_configs<'c>(
    driver: &str,
    list: &str,
    configs: impl IntoIterator<Item = Option<&'c OpaqueDeviceConfiguration>>,
) -> Result<(), ParametersMistake> {
    for (at, opaque) in configs.into_iter().enumerate() {
        if let Some(opaque) = opaque.filter(|opaque| opaque.driver == driver) {
            check_config(&opaque.parameters, &format!("{list}[{at}].opaque.parameters"))?;
        }
    }
    Ok(())
}

/// Checks that one configuration, which stands at `path`, can be understood.
///
/// # Errors
/// All mistakes: the first with its field, the others behind it.
pub fn check_config(parameters: &Value, path: &str) -> Result<(), ParametersMistake> {
    let Err(problems) = OpaqueConfig::parse(parameters, path) else { return Ok(()) };
    let field = problems.first().map_or(path, |first| &first.field).to_owned();
    let also = problems.iter().skip(1).map(|problem| format!("; {problem}"));
    let first = problems.first().map(|first| first.reason.clone());
    Err(ParametersMistake { field, problem: first.into_iter().chain(also).collect() })
}

impl ClaimParametersSpec {
    /// Checks that the parameters can be understood.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), ParametersMistake> {
        for (field, count) in [
            ("spec.requests", self.requests.len()),
            ("spec.constraints", self.constraints.len()),
            ("spec.config", self.config.len()),
        ] {
            if count > MOST {
                let problem = format!("{count} entries, and {MOST} are allowed; use several claims");
                return Err(ParametersMistake::new(field, problem));
            }
        }
        if self.requests.is_empty() {
            let problem = "nothing is asked for; write at least one request";
            return Err(ParametersMistake::new("spec.requests", problem));
        }
        (0..self.requests.len()).try_for_each(|at| self.check_request(at))?;
        self.check_references()
    }

    fn check_request(&self, at: usize) -> Result<(), ParametersMistake> {
        let request = &self.requests[at];
        let wrong =
            |field: &str, problem: &str| Err(ParametersMistake::new(format!("spec.requests[{at}].{field}"), problem));
        if crate::DeviceName::new(&*request.name).is_err() {
            return wrong("name", "it is no name; write 1 to 63 of a-z, 0-9 and '-'");
        }
        if self.requests[..at].iter().any(|other| other.name == request.name) {
            return wrong("name", "another request has this name; give each a name of its own");
        }
        if request.devices.count.is_some_and(|count| count < 1) {
            return wrong("count", "it must be at least 1; for devices that are not necessary write optional: true");
        }
        Ok(())
    }

    fn check_references(&self) -> Result<(), ParametersMistake> {
        let constraints = self.constraints.iter().enumerate();
        let constraints = constraints.map(|(at, it)| (format!("spec.constraints[{at}].requests"), &it.requests));
        let config = self.config.iter().enumerate();
        let config = config.map(|(at, it)| (format!("spec.config[{at}].requests"), &it.requests));
        for (field, names) in constraints.chain(config) {
            for name in names {
                if !self.requests.iter().any(|request| request.name == *name) {
                    let problem = format!("there is no request {name:?}; write the name of one, or none for all");
                    return Err(ParametersMistake::new(field, problem));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(spec: serde_json::Value) -> Result<(), String> {
        let spec: ClaimParametersSpec = serde_json::from_value(spec).unwrap();
        spec.check().map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn a_request_is_written_as_in_a_claim_of_today() {
        let spec: ClaimParametersSpec = serde_json::from_value(json!({"requests": [{"name": "cpus", "optional": true,
            "deviceClassName": "cpu.hostler.dev", "capacity": {"requests": {"cpus": "4"}}}]}))
        .unwrap();
        assert!(spec.shareable && spec.requests[0].optional);
        assert_eq!(spec.requests[0].devices.device_class_name, "cpu.hostler.dev");
        assert!(spec.requests[0].devices.capacity.is_some());
        spec.check().unwrap();
    }

    #[test]
    fn of_configurations_for_the_driver_all_mistakes_are_told_and_those_of_others_are_left_alone() {
        let opaque = |driver: &str, parameters| OpaqueDeviceConfiguration { driver: driver.to_owned(), parameters };
        let other = opaque("other.example", json!({"kind": "Whatever"}));
        let check = |it: &OpaqueDeviceConfiguration| check_configs("d", "spec.config", [None, Some(&other), Some(it)]);
        let header = |mut it: serde_json::Value| {
            it["apiVersion"] = "hostler.dev/v1alpha1".into();
            it["kind"] = "CpuConfig".into();
            opaque("d", it)
        };
        check(&header(json!({"spread": "l3"}))).unwrap();
        let error = check(&header(json!({"spread": "wide", "smt": 3}))).unwrap_err().to_string();
        let expected = "field spec.config[2].opaque.parameters.spread: \"wide\" is not one of packed, cores, l3, numa; \
            spec.config[2].opaque.parameters.smt: 3 is not one of shared, isolated";
        assert_eq!(error, expected);
    }

    #[test]
    fn what_is_wrong_is_told_with_field_and_fix() {
        for (spec, expected) in [
            (json!({}), "field spec.requests: nothing is asked for; write at least one request"),
            (json!({"requests": [{"name": "A"}]}), "field spec.requests[0].name: it is no name"),
            (json!({"requests": [{"name": "a"}, {"name": "a"}]}), "field spec.requests[1].name: another request"),
            (json!({"requests": [{"name": "a", "count": 0}]}), "field spec.requests[0].count: it must be at least 1"),
            (
                json!({"requests": [{"name": "a"}], "constraints": [{"requests": ["b"]}]}),
                "field spec.constraints[0].requests: there is no request \"b\"",
            ),
        ] {
            let error = check(spec).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
