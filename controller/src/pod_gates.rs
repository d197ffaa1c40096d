//! Pods that wait by the scheduling gate `hostler.dev/reservation`: owners for their place, pods of a ProvisioningRequest
//! for its decision.
//!
//! A scheduler that has tried an owner before its place was free tries it again seconds later. With the gate it first
//! sees the owner when the place is free. The webhook sets the gate, and the controller that leads removes it. Both ask
//! one pure function what a pod waits for, and nothing is remembered: a pod that waits for nothing loses the gate.
//!
//! ```text
//!   a pod is made ─► webhook ─► waits ─► the gate, or none
//!   a gated pod ─► waits; the pod, its Reservation and its place holder, read anew ─► decide (pure) ─► the gate goes
//! ```

mod context;
mod decide;
mod reconciler;
mod switch;
#[cfg(test)]
mod tests;
mod waits;

pub(crate) use self::{
    reconciler::{GATE_NOT_REMOVED, GATE_WAITS, GateParts, start},
    switch::{GatesPhase, watch_switch},
    waits::{PodWait, WaitRules, wait_of_newcomer},
};
