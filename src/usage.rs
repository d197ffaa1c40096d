//! What of this node is whose: what tables, drawings and figures are made of. Pure.

pub mod counters;
pub mod holders;
pub mod layout;
pub mod nesting;
#[cfg(test)]
pub(crate) mod testing;
