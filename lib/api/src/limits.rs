//! Limits of the Kubernetes API server for a device. One device that breaks a limit costs the whole slice that it is
//! published in.

/// Attributes and capacities of a device, counted together.
pub const MAX_ATTRIBUTES_AND_CAPACITIES: usize = 32;
/// Values of all attributes of a device, each element of a list counted.
pub const MAX_ATTRIBUTE_VALUES: usize = 48;
/// Bytes of an attribute that is a string or a version.
pub const MAX_ATTRIBUTE_BYTES: usize = 64;
/// Conditions of each kind that a device is bound on.
pub const MAX_BINDING_CONDITIONS: usize = 4;
/// Counters of a set, and counters that a device takes of a set.
pub const MAX_COUNTERS: usize = 32;
/// Counter sets that a device draws on.
pub const MAX_COUNTER_USES: usize = 2;
/// Devices in a slice.
pub const MAX_DEVICES: usize = 128;
/// Devices in a slice where one of them has taints, draws on counters or has attributes with several values.
pub const MAX_ADVANCED_DEVICES: usize = 64;
/// Counter sets in a slice.
pub const MAX_COUNTER_SETS: usize = 8;
/// Characters of the name of an object.
pub const MAX_OBJECT_NAME: usize = 253;
/// Bytes of the message of an Event.
pub const MAX_EVENT_MESSAGE_BYTES: usize = 1024;
