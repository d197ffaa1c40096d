//! Calls of the implementation that attaches devices to nodes.

use crate::provision::{
    attach::{Attach, AttachCall, AttachFailure},
    event::ProvisionEvent,
};

/// Carries out a call, on a thread that may wait.
pub(in crate::provision) fn carry_out(attach: &dyn Attach, call: AttachCall) -> ProvisionEvent {
    match call {
        AttachCall::List => ProvisionEvent::Listed(attach.list()),
        AttachCall::Attach(order) => {
            let came = attach.attach(&order);
            ProvisionEvent::Called(order.token, came)
        }
        AttachCall::Detach(token) => {
            let came = attach.detach(&token);
            ProvisionEvent::Called(token, came)
        }
    }
}

/// Returns the event for a call without a known result: its thread has ended.
pub(super) fn no_answer(call: &AttachCall) -> ProvisionEvent {
    let failure = |what: &str| AttachFailure(format!("{what} has given no answer"));
    match call {
        AttachCall::List => ProvisionEvent::Listed(Err(failure("asking what is attached"))),
        AttachCall::Attach(order) => {
            ProvisionEvent::Called(order.token.clone(), Err(failure(&format!("attaching {}", order.step))))
        }
        AttachCall::Detach(token) => {
            ProvisionEvent::Called(token.clone(), Err(failure(&format!("detaching what has token {token}"))))
        }
    }
}
