//! The structured allocator of kube-scheduler, and a planner that asks the allocator for many pods
//! at once. Values in, values out: no I/O, no clock, no cluster.

pub mod plan;
pub mod structured;
