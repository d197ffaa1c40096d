//! The life of an attachment: a device that the scheduler gave to a claim is attached to the claim's node, and detached
//! when the claim has let go of it. For a Reservation devices are attached before claims have them. The table of all steps:
//! docs/architecture.md.
//!
//! ```text
//!   FabricAttachment, claims, nodes, read anew ┐                   ┌─► one write ──► again, on its answer (round, pure)
//!   inventory of the manager, slices ──────────┴─► decide (pure) ──┤
//!                                                                  └─► one call ──► after_call (pure) ──► one write
//! ```

mod adopted;
mod after_call;
mod claim;
mod context;
mod decide;
mod detached;
mod freed;
mod kept;
mod notes;
mod read;
mod reconciler;
mod round;
mod status;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use self::{
    claim::ClaimOfDevice,
    context::FABRIC_FINALIZER,
    reconciler::{AttachmentParts, start},
};
