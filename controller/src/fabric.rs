//! Devices behind switches: what their managers show, the devices that are published, and those that nodes have.

pub(crate) mod attachments;
pub(crate) mod board;
pub(crate) mod nodes;
