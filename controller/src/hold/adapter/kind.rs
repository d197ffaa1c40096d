//! Kinds that are watched for Reservations, and where they are.

use hostler_api::{
    Chain, hardware,
    reservation::{RESERVATION_KIND, RESERVATIONS},
    resource::{ApiVersion, GROUP},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::de::IgnoredAny;

/// Versions in which DeviceTaintRules were served, the best first.
const RULE_VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];
/// No rule of ours is called so.
const NO_RULE: &str = "hold";

/// A kind that is watched.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(in crate::hold) enum HoldKind {
    Reservation,
    NodeHardware,
    Node,
    Slice,
    Rule,
    Claim,
}

/// Where the kinds are in a cluster.
#[derive(Clone, Debug)]
pub(in crate::hold) struct HoldPlaces {
    pub(in crate::hold) version: ApiVersion,
    /// Where rules are, if they are served and may be written.
    pub(super) rules: Option<Collection>,
}

/// Why there is nothing to do.
#[derive(Debug)]
pub(in crate::hold) enum PlaceError {
    NotServed(String),
    Forbidden(String),
    Unknown(String),
}

impl HoldPlaces {
    /// Asks the server.
    pub(in crate::hold) async fn find(client: &ApiClient) -> Result<Self, PlaceError> {
        let version = client.version().await.map_err(|failure| PlaceError::of("resourceslices", &failure))?;
        client
            .list(&HoldKind::reservations(), &mut |_| {})
            .await
            .map_err(|failure| PlaceError::of(RESERVATIONS, &failure))?;
        Ok(Self { version, rules: Self::rules(client).await? })
    }

    /// Whether there are rules by now; what nobody knows is none yet.
    pub(super) async fn has_rules(client: &ApiClient) -> bool {
        Self::rules(client).await.is_ok_and(|rules| rules.is_some())
    }

    /// A role that does not allow rules is as a server without them: both leave devices of other drivers open. What is not known is
    /// neither: rules that there are would be forgotten for as long as this process leads.
    async fn rules(client: &ApiClient) -> Result<Option<Collection>, PlaceError> {
        let release = client.full_release().await.map_err(|failure| PlaceError::of("version", &failure))?;
        if !heeds_rules(&release) {
            return Ok(None);
        }
        for version in RULE_VERSIONS {
            let all = Collection::custom(GROUP, version, "DeviceTaintRule", "devicetaintrules");
            match client.get::<IgnoredAny>(&all, NO_RULE).await {
                Ok(_) => return Ok(Some(all)),
                Err(failure) if failure.is_unknown_resource() || failure.code() == Some(403) => {}
                Err(failure) if failure.code() == Some(404) => return Ok(Some(all)),
                Err(failure) => return Err(PlaceError::of(all.plural(), &failure)),
            }
        }
        Ok(None)
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = (HoldKind, Collection)> {
        [
            HoldKind::Reservation,
            HoldKind::NodeHardware,
            HoldKind::Node,
            HoldKind::Slice,
            HoldKind::Rule,
            HoldKind::Claim,
        ]
        .into_iter()
        .filter_map(|kind| Some((kind, self.collection(kind)?)))
    }

    /// All objects of a kind, where there is such a kind.
    pub(super) fn collection(&self, kind: HoldKind) -> Option<Collection> {
        let resource = |kind, plural| Some(Collection::resource(self.version, kind, plural));
        match kind {
            HoldKind::Reservation => Some(HoldKind::reservations()),
            HoldKind::NodeHardware => Some(HoldKind::node_hardware()),
            HoldKind::Node => Some(Collection::core("Node", "nodes")),
            HoldKind::Slice => resource("ResourceSlice", "resourceslices"),
            HoldKind::Claim => resource("ResourceClaim", "resourceclaims"),
            HoldKind::Rule => self.rules.clone(),
        }
    }
}

/// True if schedulers of the release that a server says of itself act on a DeviceTaintRule that comes. Those of 1.36.0 to 1.36.2 ignore
/// it, and panic when a slice changes afterwards (kubernetes#139651, mended by #139681).
fn heeds_rules(release: &str) -> bool {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    let mut parts = release.trim_start_matches('v').split('.');
    let [major, minor, patch] = [(); 3].map(|()| parts.next().and_then(number));
    !(major == Some(1) && minor == Some(36) && patch.unwrap_or_default() < 3)
}

impl HoldKind {
    /// As paths say it.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Reservation => RESERVATIONS,
            Self::NodeHardware => hardware::NODE_HARDWARE,
            Self::Node => "nodes",
            Self::Slice => "resourceslices",
            Self::Rule => "devicetaintrules",
            Self::Claim => "resourceclaims",
        }
    }

    pub(in crate::hold) fn reservations() -> Collection {
        Collection::custom(hardware::GROUP, hardware::VERSION, RESERVATION_KIND, RESERVATIONS)
    }

    pub(super) fn node_hardware() -> Collection {
        Collection::custom(hardware::GROUP, hardware::VERSION, hardware::NODE_HARDWARE_KIND, hardware::NODE_HARDWARE)
    }
}

impl PlaceError {
    fn of(what: &str, failure: &ApiFailure) -> Self {
        let said = Chain(failure).to_string();
        match failure {
            ApiFailure::NoResourceApi => Self::NotServed(what.to_owned()),
            failure if failure.is_unknown_resource() => Self::NotServed(what.to_owned()),
            failure if failure.code() == Some(403) => Self::Forbidden(said),
            _ => Self::Unknown(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_schedulers_of_a_release_ignore_close_nothing() {
        for release in ["v1.36.0", "v1.36.2", "v1.36.2+k3s1", "1.36.1-gke.100", "v1.36.0-rc.1", "v1.36"] {
            assert!(!heeds_rules(release), "{release}");
        }
        for release in ["v1.36.3", "v1.36.10", "v1.35.6", "v1.33.0", "v1.37.0-alpha.2", "v2.36.0", ""] {
            assert!(heeds_rules(release), "{release}");
        }
    }
}
