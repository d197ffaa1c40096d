//! ProvisioningRequests, and the pods that name them, as the API server has them.

mod class;
mod objects;
mod shape;

pub(crate) use self::{
    class::{OFFICIAL_ATOMIC_SCALE_UP, OFFICIAL_CHECK_CAPACITY, PROCESSOR_INSTANCE, ProvisionClass, ProvisionClasses},
    objects::{CONTROLLER_TERM, ConsumerPod, ProvisionObjects, SeenRequest},
    shape::PodShape,
};
