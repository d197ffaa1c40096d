//! What kube-scheduler would allocate: its structured allocator with CEL selectors, and a planner that asks it for many
//! pods at once. Values in, values out: no I/O, no clock, no cluster.

pub mod cel;
pub mod plan;
pub mod structured;
