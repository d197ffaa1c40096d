//! What of this node is whose: what tables, drawings and figures are made of. Pure, but for what keeps up to date
//! which pods hold what.

pub mod counters;
pub mod holders;
pub mod layout;
pub mod nesting;
pub mod pods;
#[cfg(test)]
pub(crate) mod testing;
