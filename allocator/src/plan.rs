//! What fits where: sets of pods on nodes, each decided once by the allocator.
