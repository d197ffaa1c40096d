//! Injected trouble: the next requests of a kind fail, hang, or lose their answer.

use std::time::Duration;

use super::resources::RequestTarget;

/// A fault of some requests: the requests, and its effect.
#[derive(Clone, Debug)]
pub struct ApiFault {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `*`.
    pub verb: &'static str,
    /// Plural, `resourceclaims/status` for a subresource, or `*`.
    pub resource: &'static str,
    /// Name of the only object that the fault is for.
    pub name: Option<String>,
    /// Number of requests that the fault is for.
    pub times: u32,
    /// The effect on the request.
    pub how: FaultEffect,
}

/// The effect of a fault on a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FaultEffect {
    /// Refused with this code; seconds for `Retry-After`.
    Status(u16, Option<u64>),
    /// The connection is reset before anything is done.
    Reset,
    /// The request is carried out, and the connection is reset before the answer.
    LoseAnswer,
    /// The request is carried out after this time.
    Latency(Duration),
    /// Never answered, and not done.
    Hang,
    /// The request is carried out, and the connection ends in the middle of the answer.
    CutBody,
}

impl ApiFault {
    /// Returns a fault of the next `times` requests of this kind.
    pub fn new(verb: &'static str, resource: &'static str, times: u32, how: FaultEffect) -> Self {
        Self { verb, resource, name: None, times, how }
    }

    fn concerns(&self, verb: &str, target: &RequestTarget) -> bool {
        let resource = match &target.subresource {
            Some(sub) => format!("{}/{sub}", target.resource.plural),
            None => target.resource.plural.to_owned(),
        };
        (self.verb == "*" || self.verb == verb)
            && (self.resource == "*" || self.resource == resource)
            && self.name.as_ref().is_none_or(|name| target.name.as_ref() == Some(name))
    }
}

/// Takes the first that concerns this request.
pub(crate) fn take(faults: &mut Vec<ApiFault>, verb: &str, target: &RequestTarget) -> Option<FaultEffect> {
    let at = faults.iter().position(|fault| fault.concerns(verb, target))?;
    let how = faults[at].how;
    faults[at].times = faults[at].times.saturating_sub(1);
    if faults[at].times == 0 {
        faults.remove(at);
    }
    Some(how)
}
