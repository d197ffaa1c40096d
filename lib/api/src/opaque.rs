//! Opaque configuration of `hostler.dev/v1alpha1`: the settings that a claim or a device class may ask of this driver.
//!
//! The one place that knows kinds, fields and words. Preparing a claim, checking a manifest, allocating in old clusters
//! and the drift test of the admission policy all come here; docs/claim-configuration.md is the page for people. Pure.

mod schema;
#[cfg(test)]
mod tests;
mod words;

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value, json};

use crate::{ConfigProblem, well_known::HOSTLER_API_VERSION};

pub use schema::{FieldSchema, FieldValues, KindSchema, schema};
pub use words::{CoreKind, CpuIsolation, CpuSpread, CxlUse, IrqMode, MemoryMode, SameNumaNode, SmtMode};

/// Bytes of one configuration, a limit of the API server.
pub const MAX_PARAMETERS_BYTES: usize = 10 * 1024;

/// Choice of CPUs for a claim.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CpuConfig {
    /// True if only whole physical cores will do. Default: no, as far as the device allows parts.
    pub full_cores: Option<bool>,
    /// Distribution of the CPUs. Default: packed.
    pub spread: Option<CpuSpread>,
    /// True if no other claim may have a CPU behind the same level 3 caches. Default: no.
    pub l3_exclusive: Option<bool>,
    /// Kind of core that will do. Default: any.
    pub core_type: Option<CoreKind>,
    /// Use of the other threads of a core. Default: shared.
    pub smt: Option<SmtMode>,
    /// Hardware that is not shared with claims of other namespaces. Default: none.
    pub isolation: Option<CpuIsolation>,
    /// Routing of device interrupts, which can stay away from the CPUs. Default: they do not.
    pub irqs: Option<IrqMode>,
}

/// Use of a claim's memory.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MemoryConfig {
    /// Policy of allocation. Default: bind.
    pub policy: Option<MemoryMode>,
}

/// Program for an FPGA.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FpgaConfig {
    /// A bitstream of the node's store: its SHA-256 digest in hexadecimal, or its name there.
    pub bitstream: Option<String>,
    /// The accelerator function that has to be there in the end, as in the kernel's `afu_id`: 32 hexadecimal digits,
    /// with or without hyphens.
    #[serde(rename = "afuID")]
    pub afu_id: Option<String>,
}

/// Form in which the memory of a CXL device is handed over.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CxlConfig {
    /// Form of the memory. Default: device dax.
    pub use_as: Option<CxlUse>,
    /// True if the memory is erased when the claim ends. Default: no.
    pub sanitize: Option<bool>,
}

/// Placement of the devices of a claim relative to each other.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementConfig {
    /// Placement on one NUMA node. Default: required, since the object is written for that purpose.
    pub same_numa_node: Option<SameNumaNode>,
}

/// One configuration, parsed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub enum OpaqueConfig {
    /// For CPUs.
    #[serde(rename = "CpuConfig")]
    Cpu(CpuConfig),
    /// For memory and huge pages.
    #[serde(rename = "MemoryConfig")]
    Memory(MemoryConfig),
    /// For FPGAs.
    #[serde(rename = "FpgaConfig")]
    Fpga(FpgaConfig),
    /// For the memory of CXL devices.
    #[serde(rename = "CxlConfig")]
    Cxl(CxlConfig),
    /// For any device.
    #[serde(rename = "PlacementConfig")]
    Placement(PlacementConfig),
    /// For the scripted devices of the fake backend: anything, which only the fake reads.
    #[serde(rename = "FakeConfig")]
    Fake(IgnoredAny),
}

/// A kind of configuration with fields of its own.
pub trait ConfigKind: Default + DeserializeOwned {
    /// Name of the kind.
    const NAME: &'static str;
}

impl ConfigKind for CpuConfig {
    const NAME: &'static str = "CpuConfig";
}

impl ConfigKind for MemoryConfig {
    const NAME: &'static str = "MemoryConfig";
}

impl ConfigKind for FpgaConfig {
    const NAME: &'static str = "FpgaConfig";
}

impl ConfigKind for CxlConfig {
    const NAME: &'static str = "CxlConfig";
}

impl ConfigKind for PlacementConfig {
    const NAME: &'static str = "PlacementConfig";
}

impl OpaqueConfig {
    /// Reads one configuration. `path` is its place, for messages.
    ///
    /// # Errors
    /// Every mistake in it, each with the path of its field.
    pub fn parse(parameters: &Value, path: &str) -> Result<Self, Vec<ConfigProblem>> {
        let problem = |field: &str, reason: String| ConfigProblem::new(format!("{path}{field}"), reason);
        let Some(object) = parameters.as_object() else {
            let fix = format!("write an object with apiVersion {HOSTLER_API_VERSION} and a kind");
            return Err(vec![problem("", format!("{parameters} is not an object; {fix}"))]);
        };
        let mut problems = Vec::new();
        let bytes = parameters.to_string().len();
        if bytes > MAX_PARAMETERS_BYTES {
            problems.push(problem("", format!("it has {bytes} bytes; {MAX_PARAMETERS_BYTES} are the most")));
        }
        problems.extend(version_problem(object).map(|reason| problem(".apiVersion", reason)));
        let kinds = schema();
        let kind = match kind_of(object, &kinds) {
            Ok(kind) => kind,
            Err(reason) => {
                problems.push(problem(".kind", reason));
                return Err(problems);
            }
        };
        problems.extend(kind.problems(object, path));
        if !problems.is_empty() {
            return Err(problems);
        }
        serde_json::from_value(json!({ kind.name: object })).map_err(|error| vec![problem("", error.to_string())])
    }

    /// Name of the configuration's kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cpu(_) => CpuConfig::NAME,
            Self::Memory(_) => MemoryConfig::NAME,
            Self::Fpga(_) => FpgaConfig::NAME,
            Self::Cxl(_) => CxlConfig::NAME,
            Self::Placement(_) => PlacementConfig::NAME,
            Self::Fake(_) => "FakeConfig",
        }
    }
}

fn version_problem(object: &Map<String, Value>) -> Option<String> {
    match object.get("apiVersion") {
        Some(Value::String(version)) if version == HOSTLER_API_VERSION => None,
        Some(version) => Some(format!("{version} is not known; write {HOSTLER_API_VERSION}")),
        None => Some(format!("it is missing; write {HOSTLER_API_VERSION}")),
    }
}

/// Kind that an object declares, or a description of the mistake in the declaration.
fn kind_of<'a>(object: &Map<String, Value>, kinds: &'a [KindSchema]) -> Result<&'a KindSchema, String> {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    let said = object.get("kind").ok_or_else(|| format!("it is missing; write one of {}", names.join(", ")))?;
    kinds.iter().find(|kind| said.as_str() == Some(kind.name)).ok_or_else(|| {
        let near = said.as_str().and_then(|said| schema::nearest(said, &names));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        format!("{said} is not one of {}{near}", names.join(", "))
    })
}

/// True if a configuration declares itself to be about placement.
pub fn is_placement(parameters: &Value) -> bool {
    parameters.get("kind").and_then(Value::as_str) == Some(PlacementConfig::NAME)
}
