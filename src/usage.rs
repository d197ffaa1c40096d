//! Usage of this node: devices, holders and pods, the input of tables, drawings and figures. Pure, but for the task
//! that keeps the usage of pods up to date.

pub mod counters;
pub mod holders;
pub mod layout;
pub mod nesting;
pub mod pods;
#[cfg(test)]
pub(crate) mod testing;
