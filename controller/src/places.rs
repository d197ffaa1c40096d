//! Places: parts of nodes (CPU, memory, host ports and what else pods set aside) that are kept for a Reservation.
//!
//! kube-scheduler has no room for promises, but it counts pods. So a pod of the controller's, the place holder, stands
//! in each place with the amounts of the Reservation's template. An owner gets the place by nomination: the controller
//! writes the node into `status.nominatedNodeName` of the owner, and then deletes the place holder. Schedulers count a
//! nominated pod as being on its node when they look at pods of the same or a lower priority, so no such pod can come
//! between. Each other change of a place holder is the same protocol: the new one is nominated with the owners before
//! the old one is deleted. The order of all writes: docs/reservations.md.
//!
//! ```text
//!   ClusterView ─► assign: which waiting pod gets which place ┐
//!   Reservation, place holders, owners, read anew ────────────┴─► decide (pure) ─► writes
//! ```

mod assign;
mod context;
mod decide;
mod gate;
mod gate_owner;
mod handing_over;
mod holder;
mod pods;
mod reconciler;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::{
    assign::{ExpectedPlaces, OwnerOnTheWay, expected_places, owners_on_the_way},
    context::PlacePod,
    holder::former_holder,
    reconciler::start,
};
