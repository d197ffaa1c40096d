//! Opaque configuration: what a claim or a device class may ask of this driver, `hostler.dev/v1alpha1`.
//!
//! The one place that knows kinds, fields and words. Preparing a claim, checking a manifest and the drift test of the
//! admission policy all come here; docs/claim-configuration.md is the page for people.
//!
//! Several configurations may apply to one request. They are read in order, classes before claims, and merged field by
//! field: what is said later wins, and what is not said stays as it was.

mod read;
#[cfg(test)]
mod tests;
mod words;

use hostler_api::{Grant, well_known::HOSTLER_API_VERSION};
use serde_json::{Map, Value};

use crate::{BackendError, ConfigProblem};

pub use read::{FieldSchema, Values, Word};
use read::{Fields, nearest};
pub use words::{CoreKind, CxlUse, MemoryMode, SameNumaNode, Smt, Spread};

/// Bytes of one configuration, a limit of the API server.
pub const MAX_PARAMETERS_BYTES: usize = 10 * 1024;

/// Where the configurations of a grant begin in messages.
const PARAMETERS: &str = "parameters";

/// How a claim wants its CPUs chosen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuConfig {
    /// Whether only whole physical cores will do. Default: no, as far as the device allows parts.
    pub full_cores: Option<bool>,
    /// How CPUs lie to each other. Default: packed.
    pub spread: Option<Spread>,
    /// Whether no other claim may have a CPU behind the same level 3 caches. Default: no.
    pub l3_exclusive: Option<bool>,
    /// The kind of core that will do. Default: any.
    pub core_type: Option<CoreKind>,
    /// What becomes of the other threads of a core. Default: shared.
    pub smt: Option<Smt>,
}

/// How a claim wants its memory used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemoryConfig {
    /// Default: bind.
    pub policy: Option<MemoryMode>,
}

/// What an FPGA is to be programmed with.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FpgaConfig {
    /// A bitstream of the node's store: its SHA-256 digest in hexadecimal, or its name there.
    pub bitstream: Option<String>,
    /// The accelerator function that has to be there in the end, as in the kernel's `afu_id`: 32 hexadecimal digits, with
    /// or without hyphens.
    pub afu_id: Option<String>,
}

/// How the memory of a CXL device is handed over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CxlConfig {
    /// Default: device dax.
    pub use_as: Option<CxlUse>,
    /// Whether the memory is erased when the claim ends. Default: no.
    pub sanitize: Option<bool>,
}

/// How the devices of a claim lie to each other.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PlacementConfig {
    /// Default: required, as whoever writes the object wants it.
    pub same_numa_node: Option<SameNumaNode>,
}

/// One configuration, read.
#[derive(Clone, Debug, PartialEq)]
pub enum OpaqueConfig {
    /// For CPUs.
    Cpu(CpuConfig),
    /// For memory and huge pages.
    Memory(MemoryConfig),
    /// For FPGAs.
    Fpga(FpgaConfig),
    /// For the memory of CXL devices.
    Cxl(CxlConfig),
    /// For any device.
    Placement(PlacementConfig),
    /// For the scripted devices of the fake backend: anything.
    Fake(Map<String, Value>),
}

/// A kind of configuration that one backend takes.
pub trait Kind: Default {
    /// Its name.
    const NAME: &'static str;

    /// This kind out of a configuration, if it is one.
    fn of(config: OpaqueConfig) -> Option<Self>;

    /// Takes over what `later` says.
    fn merge(&mut self, later: Self);
}

impl Kind for CpuConfig {
    const NAME: &'static str = "CpuConfig";

    fn of(config: OpaqueConfig) -> Option<Self> {
        if let OpaqueConfig::Cpu(config) = config { Some(config) } else { None }
    }

    fn merge(&mut self, later: Self) {
        self.full_cores = later.full_cores.or(self.full_cores);
        self.spread = later.spread.or(self.spread);
        self.l3_exclusive = later.l3_exclusive.or(self.l3_exclusive);
        self.core_type = later.core_type.or(self.core_type);
        self.smt = later.smt.or(self.smt);
    }
}

impl Kind for MemoryConfig {
    const NAME: &'static str = "MemoryConfig";

    fn of(config: OpaqueConfig) -> Option<Self> {
        if let OpaqueConfig::Memory(config) = config { Some(config) } else { None }
    }

    fn merge(&mut self, later: Self) {
        self.policy = later.policy.or(self.policy);
    }
}

impl Kind for FpgaConfig {
    const NAME: &'static str = "FpgaConfig";

    fn of(config: OpaqueConfig) -> Option<Self> {
        if let OpaqueConfig::Fpga(config) = config { Some(config) } else { None }
    }

    fn merge(&mut self, later: Self) {
        self.bitstream = later.bitstream.or(self.bitstream.take());
        self.afu_id = later.afu_id.or(self.afu_id.take());
    }
}

impl Kind for CxlConfig {
    const NAME: &'static str = "CxlConfig";

    fn of(config: OpaqueConfig) -> Option<Self> {
        if let OpaqueConfig::Cxl(config) = config { Some(config) } else { None }
    }

    fn merge(&mut self, later: Self) {
        self.use_as = later.use_as.or(self.use_as);
        self.sanitize = later.sanitize.or(self.sanitize);
    }
}

impl Kind for PlacementConfig {
    const NAME: &'static str = "PlacementConfig";

    fn of(config: OpaqueConfig) -> Option<Self> {
        if let OpaqueConfig::Placement(config) = config { Some(config) } else { None }
    }

    fn merge(&mut self, later: Self) {
        self.same_numa_node = later.same_numa_node.or(self.same_numa_node);
    }
}

/// Name of the kind that only the fake backend takes.
const FAKE: &str = "FakeConfig";

/// How a kind reads its fields.
type Read = fn(&mut Fields<'_>) -> OpaqueConfig;

/// The kinds.
const KINDS: [(&str, Read); 6] = [
    (CpuConfig::NAME, read_cpu),
    (MemoryConfig::NAME, read_memory),
    (FpgaConfig::NAME, read_fpga),
    (CxlConfig::NAME, read_cxl),
    (PlacementConfig::NAME, read_placement),
    (FAKE, read_fake),
];

fn read_cpu(fields: &mut Fields<'_>) -> OpaqueConfig {
    OpaqueConfig::Cpu(CpuConfig {
        full_cores: fields.truth("fullCores"),
        spread: fields.word("spread"),
        l3_exclusive: fields.truth("l3Exclusive"),
        core_type: fields.word("coreType"),
        smt: fields.word("smt"),
    })
}

fn read_memory(fields: &mut Fields<'_>) -> OpaqueConfig {
    OpaqueConfig::Memory(MemoryConfig { policy: fields.word("policy") })
}

fn read_fpga(fields: &mut Fields<'_>) -> OpaqueConfig {
    OpaqueConfig::Fpga(FpgaConfig { bitstream: fields.text("bitstream"), afu_id: fields.text("afuID") })
}

fn read_cxl(fields: &mut Fields<'_>) -> OpaqueConfig {
    OpaqueConfig::Cxl(CxlConfig { use_as: fields.word("useAs"), sanitize: fields.truth("sanitize") })
}

fn read_placement(fields: &mut Fields<'_>) -> OpaqueConfig {
    OpaqueConfig::Placement(PlacementConfig { same_numa_node: fields.word("sameNumaNode") })
}

fn read_fake(fields: &mut Fields<'_>) -> OpaqueConfig {
    OpaqueConfig::Fake(fields.all())
}

/// A kind, for those who must say the same in another language.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KindSchema {
    /// Its name.
    pub name: &'static str,
    /// Its fields, without `apiVersion` and `kind`; `None` where any will do.
    pub fields: Option<Vec<FieldSchema>>,
}

/// Every kind with its fields and words.
pub fn schema() -> Vec<KindSchema> {
    let empty = Map::new();
    let of = |(name, read): (&'static str, Read)| {
        let mut fields = Fields::new(&empty, PARAMETERS);
        read(&mut fields);
        KindSchema { name, fields: fields.schema() }
    };
    KINDS.into_iter().map(of).collect()
}

impl OpaqueConfig {
    /// Reads one configuration. `path` is where it stands, for messages.
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
        let read = match kind_of(object) {
            Ok(read) => read,
            Err(reason) => {
                problems.push(problem(".kind", reason));
                return Err(problems);
            }
        };
        let mut fields = Fields::new(object, path);
        let config = read(&mut fields);
        problems.extend(fields.problems());
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// Name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cpu(_) => CpuConfig::NAME,
            Self::Memory(_) => MemoryConfig::NAME,
            Self::Fpga(_) => FpgaConfig::NAME,
            Self::Cxl(_) => CxlConfig::NAME,
            Self::Placement(_) => PlacementConfig::NAME,
            Self::Fake(_) => FAKE,
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

/// How the fields of an object's kind are read; else what is wrong with the kind.
fn kind_of(object: &Map<String, Value>) -> Result<Read, String> {
    let names = || KINDS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let kind = object.get("kind").ok_or_else(|| format!("it is missing; write one of {}", names().join(", ")))?;
    let known = KINDS.iter().find(|(name, _)| kind.as_str() == Some(name));
    known.map(|(_, read)| *read).ok_or_else(|| {
        let near = kind.as_str().and_then(|kind| nearest(kind, &names()));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        format!("{kind} is not one of {}{near}", names().join(", "))
    })
}

/// What the configurations of a grant say of kind `K` together, for the backend that takes `K`. Placement is the
/// daemon's business and passes; any other kind is refused, as a wish that nobody reads would look granted.
///
/// # Errors
/// [`BackendError::Config`] with every mistake.
pub fn config_of<K: Kind>(grant: &Grant) -> Result<K, BackendError> {
    merged(grant, K::NAME)
}

/// Refuses a grant that brings configuration, for backends that define none. Placement passes.
///
/// # Errors
/// [`BackendError::Config`] with every mistake.
pub fn refuse_opaque_config(grant: &Grant) -> Result<(), BackendError> {
    merged::<PlacementConfig>(grant, PlacementConfig::NAME).map(drop)
}

/// Whether a grant is to lie on one NUMA node with the others of its claim that say so. Other kinds are not looked at.
///
/// # Errors
/// [`BackendError::Config`] with every mistake in the placement.
pub fn placement_of(grant: &Grant) -> Result<Option<SameNumaNode>, BackendError> {
    let mut said = None::<PlacementConfig>;
    let mut problems = Vec::new();
    for parameters in grant.config.iter().filter(|config| is_placement(config)) {
        match OpaqueConfig::parse(parameters, PARAMETERS).map(PlacementConfig::of) {
            Ok(later) => said.get_or_insert_default().merge(later.unwrap_or_default()),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() {
        Ok(said.map(|said| said.same_numa_node.unwrap_or_default()))
    } else {
        Err(BackendError::Config { problems })
    }
}

/// Whether a configuration says of itself that it is about placement.
pub fn is_placement(parameters: &Value) -> bool {
    parameters.get("kind").and_then(Value::as_str) == Some(PlacementConfig::NAME)
}

fn merged<K: Kind>(grant: &Grant, taken: &str) -> Result<K, BackendError> {
    let mut merged = K::default();
    let mut problems = Vec::new();
    for parameters in &grant.config {
        match OpaqueConfig::parse(parameters, PARAMETERS) {
            Ok(config) if config.kind() == taken => merged.merge(K::of(config).unwrap_or_default()),
            Ok(OpaqueConfig::Placement(_)) => {}
            Ok(config) => problems.push(wrong_kind(grant, config.kind(), taken)),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(merged) } else { Err(BackendError::Config { problems }) }
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
