//! The API group `""` (core), as far as it is read here: what says which nodes and pods there are, and which go together.
//!
//! Types have the names of Kubernetes' own, and fields that are not known are let through.

mod metadata;
mod selector;

pub use metadata::ObjectMeta;
pub use selector::{NodeSelector, NodeSelectorError, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm};
