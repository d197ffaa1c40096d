//! Ends of writes, in words and as outcomes.

use super::{RedfishError, service::RedfishService, transport::HttpAnswer};
use crate::{FabricConnection, FabricOutcome, ObjectPath};

/// The outcome of a write after which there is no such thing as it was to make.
pub(super) fn unmade(
    text: &str,
    written: &Result<HttpAnswer, RedfishError>,
    thing: &str,
) -> FabricOutcome<FabricConnection> {
    match written {
        Err(error) if error.was_not_sent() => FabricOutcome::not_done(text),
        // The service may still be at it: only what is there later tells.
        Err(_) => FabricOutcome::unknown(format!("{text}, and there is no {thing} yet; ask again")),
        Ok(answer) if answer.is_success() => {
            FabricOutcome::unknown(format!("{text}, but there is no {thing} yet; ask again"))
        }
        // A gateway that gave up says nothing about the service behind it.
        Ok(answer) if [408, 502, 504].contains(&answer.status) => {
            FabricOutcome::unknown(format!("{text}, and there is no {thing} yet; ask again"))
        }
        Ok(_) => FabricOutcome::not_done(format!("{text}, and there is no {thing}")),
    }
}

/// The end of a write for people.
pub(super) fn written_text(
    service: &RedfishService,
    path: &ObjectPath,
    written: &Result<HttpAnswer, RedfishError>,
) -> String {
    match written {
        Ok(answer) if answer.is_success() => format!("{} answered {}", service.name(), answer.status),
        Ok(answer) => service.refused("the write to", path.as_str(), answer).to_string(),
        Err(error) => hostler_api::Chain(error).to_string(),
    }
}

pub(super) fn unread(written: &str, path: &ObjectPath, error: &RedfishError) -> String {
    format!("{written}; then {path} could not be read: {}", hostler_api::Chain(error))
}
