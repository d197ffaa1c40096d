//! The structured allocator of kube-scheduler with CEL selectors, and a planner that asks the allocator for many pods
//! at once. Values in, values out: no I/O, no clock, no cluster.

pub mod cel;
pub mod plan;
pub mod structured;
