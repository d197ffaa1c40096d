//! The structured allocator: claims of one pod, the devices that one node can use, and what of them would be allocated.
