//! The `[backends.memory]` section of the configuration.

use std::collections::BTreeMap;

use hostler_api::{ConfigProblem, Quantity};
use serde::{Deserialize, Serialize};

/// How memory is offered.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct MemoryBackendConfig {
    /// Memory that is never handed out, per NUMA node: for the system, the kubelet and pods without a claim. Keys are
    /// node numbers, and `default` for every node that is not named; values are quantities, for example
    /// `{ "0" = "4Gi", default = "512Mi" }`. Huge pages are not touched by it. Default: nothing.
    pub reserved: BTreeMap<String, String>,
}

/// Bytes that are never handed out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ReservedMemory {
    pub(crate) by_node: BTreeMap<u32, u64>,
    default: u64,
}

impl ReservedMemory {
    pub(crate) fn of(&self, node: u32) -> u64 {
        self.by_node.get(&node).copied().unwrap_or(self.default)
    }
}

impl MemoryBackendConfig {
    /// All mistakes; none for a good configuration.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        self.reserved().err().unwrap_or_default()
    }

    /// Parses the amounts that are never handed out.
    ///
    /// # Errors
    /// All mistakes in `reserved`.
    pub(crate) fn reserved(&self) -> Result<ReservedMemory, Vec<ConfigProblem>> {
        let mut reserved = ReservedMemory::default();
        let mut problems = Vec::new();
        for (key, value) in &self.reserved {
            let problem = |reason| ConfigProblem::new(format!("reserved.{key}"), reason);
            let node = node(key);
            let bytes = bytes(value);
            match (node, bytes) {
                (Ok(Some(node)), Ok(bytes)) => {
                    // "0" and "00" are one node; neither amount may be dropped silently.
                    if reserved.by_node.insert(node, bytes).is_some() {
                        problems.push(problem(format!("node {node} is named twice; keep one")));
                    }
                }
                (Ok(None), Ok(bytes)) => reserved.default = bytes,
                (node, bytes) => problems.extend(node.err().into_iter().chain(bytes.err()).map(problem)),
            }
        }
        if problems.is_empty() { Ok(reserved) } else { Err(problems) }
    }
}

/// The node that a key names; `None` for `default`.
fn node(key: &str) -> Result<Option<u32>, String> {
    if key == "default" {
        return Ok(None);
    }
    key.parse().map(Some).map_err(|_| format!("{key:?} is neither a NUMA node's number nor \"default\""))
}

fn bytes(value: &str) -> Result<u64, String> {
    let quantity: Quantity = value.parse().map_err(|error| format!("{error}"))?;
    quantity.as_whole().ok_or_else(|| format!("{value:?} is not a number of bytes; write one such as 512Mi or 4Gi"))
}
