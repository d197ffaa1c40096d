//! The words that fields of the opaque configuration take.

use serde::{Deserialize, Serialize};

use super::Word;

/// How the CPUs of a claim lie to each other.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Spread {
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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CoreKind {
    /// The strongest cores; on a machine with one kind, all.
    Performance,
    /// The cores that need least power; only where there are several kinds.
    Efficient,
}

/// What becomes of the other threads of a claim's cores.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Smt {
    /// They are CPUs as all others.
    #[default]
    Shared,
    /// One thread of each core is used; the others belong to the claim, stay idle, and are given to nobody.
    Isolated,
}

/// How a program should allocate memory from the nodes that it may use.
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

/// How the memory of a CXL device is handed over.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CxlUse {
    /// As a character device that a program maps.
    #[default]
    DevDax,
    /// As a NUMA node of its own, to which the containers are bound.
    SystemRam,
}

/// Whether devices lie on one NUMA node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SameNumaNode {
    /// Or the claim is not prepared.
    #[default]
    Required,
    /// If it can be.
    Preferred,
}

impl Word for Spread {
    const WORDS: &'static [(&'static str, Self)] =
        &[("packed", Self::Packed), ("cores", Self::Cores), ("l3", Self::L3), ("numa", Self::Numa)];
}

impl Word for CoreKind {
    const WORDS: &'static [(&'static str, Self)] =
        &[("performance", Self::Performance), ("efficient", Self::Efficient)];
}

impl Word for Smt {
    const WORDS: &'static [(&'static str, Self)] = &[("shared", Self::Shared), ("isolated", Self::Isolated)];
}

impl Word for MemoryMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("bind", Self::Bind), ("preferred", Self::Preferred), ("interleave", Self::Interleave)];
}

impl Word for CxlUse {
    const WORDS: &'static [(&'static str, Self)] = &[("devDax", Self::DevDax), ("systemRam", Self::SystemRam)];
}

impl Word for SameNumaNode {
    const WORDS: &'static [(&'static str, Self)] = &[("required", Self::Required), ("preferred", Self::Preferred)];
}
