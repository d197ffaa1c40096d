//! The words that fields of the opaque configuration take.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Distribution of a claim's CPUs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum CpuSpread {
    /// As close as can be: one L3 cache, whole cores, the least left over.
    #[default]
    Packed,
    /// Each on a physical core of its own, as long as there are any.
    Cores,
    /// Evenly over the L3 caches of the device.
    L3,
    /// Evenly over the NUMA nodes of the device.
    Numa,
}

/// A kind of core, on machines with several.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CoreKind {
    /// The strongest cores; on a machine with one kind, all.
    Performance,
    /// The cores that need least power; only where there are several kinds.
    Efficient,
}

/// Use of the other threads of a claim's cores.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum SmtMode {
    /// Other threads are ordinary CPUs.
    #[default]
    Shared,
    /// One thread of each core is used; the others belong to the claim, stay idle, and are given to no other claim.
    Isolated,
}

/// Hardware that the CPUs of a claim do not share with those of another namespace's claims.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuIsolation {
    /// Nothing is kept apart.
    #[default]
    None,
    /// Physical cores.
    Smt,
    /// Level 3 caches, and so cores.
    L3,
}

/// Routing of the interrupts of devices.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum IrqMode {
    /// To any CPU, those of the claim too.
    #[default]
    Shared,
    /// To other CPUs, as far as the kernel allows a choice.
    Avoid,
}

/// Policy by which a program allocates memory from the nodes that it may use.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryMode {
    /// Only from the claim's nodes; enforced.
    #[default]
    Bind,
    /// From the claim's nodes first, then from anywhere; advised.
    Preferred,
    /// In turn from all of the claim's nodes, which is advised, and from no other, which is enforced.
    Interleave,
}

/// Form in which the memory of a CXL device is handed over.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CxlUse {
    /// As a character device that a program maps.
    #[default]
    DevDax,
    /// As a NUMA node of its own, to which the containers are bound.
    SystemRam,
}

/// Placement of devices on one NUMA node.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum SameNumaNode {
    /// Required: otherwise the claim is not prepared.
    #[default]
    Required,
    /// Preferred: on one node if possible.
    Preferred,
}

/// Formats the kind as a configuration has it.
impl fmt::Display for CoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Formats the isolation as a configuration has it.
impl fmt::Display for CpuIsolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Formats the policy as a configuration has it.
impl fmt::Display for MemoryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
