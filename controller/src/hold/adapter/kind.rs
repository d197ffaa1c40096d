//! Kinds that are watched for Reservations, and their collections.

use hostler_api::{
    Chain, hardware,
    reservation::{RESERVATION_KIND, RESERVATIONS},
    resource::ApiVersion,
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, RetryPauses};

use super::rules::RulesPlace;
use crate::observed::ObservedKind;

/// A kind that is watched.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(in crate::hold) enum HoldKind {
    Reservation,
    NodeHardware,
    Node,
    Slice,
    Rule,
    Claim,
    Attachment,
}

/// Collections of the kinds in a cluster.
#[derive(Clone, Debug)]
pub(in crate::hold) struct HoldPlaces {
    pub(in crate::hold) version: ApiVersion,
    pub(super) rules: RulesPlace,
    /// True if devices behind switches are attached here.
    pub(super) attaches: bool,
}

/// The reason why Reservations cannot be kept.
#[derive(Debug)]
pub(in crate::hold) enum PlaceError {
    NotServed(String),
    Forbidden(ApiFailure),
    Unknown(String),
}

impl HoldPlaces {
    /// Asks the server for all kinds but rules.
    pub(in crate::hold) async fn find(client: &ApiClient, attaches: bool) -> Result<Self, PlaceError> {
        let version = client.version().await.map_err(|failure| PlaceError::of("resourceslices", failure))?;
        client
            .list(&HoldKind::reservations(), &mut |_| {})
            .await
            .map_err(|failure| PlaceError::of(RESERVATIONS, failure))?;
        Ok(Self { version, rules: RulesPlace::Missing, attaches })
    }

    /// Adds the rules. A refusal of rules counts only once it lasts: a term without the existing rules would forget
    /// them.
    pub(super) async fn with_rules(
        self,
        client: &ApiClient,
        stated: &str,
        pauses: &RetryPauses,
    ) -> Result<Self, PlaceError> {
        let rules = match RulesPlace::find(client, stated).await {
            Ok(rules) => rules,
            Err(failure) if failure.code() == Some(403) && pauses.is_refused_for_long() => RulesPlace::Missing,
            Err(failure) => return Err(PlaceError::of("devicetaintrules", failure)),
        };
        Ok(Self { rules, ..self })
    }

    /// Kinds that are served; DeviceTaintRules are not in every cluster.
    pub(super) fn kinds(&self) -> impl Iterator<Item = HoldKind> {
        let (has_rules, attaches) = (self.rules.collection().is_some(), self.attaches);
        [
            HoldKind::Reservation,
            HoldKind::NodeHardware,
            HoldKind::Node,
            HoldKind::Slice,
            HoldKind::Rule,
            HoldKind::Claim,
            HoldKind::Attachment,
        ]
        .into_iter()
        .filter(move |kind| match kind {
            HoldKind::Rule => has_rules,
            HoldKind::Attachment => attaches,
            _ => true,
        })
    }
}

impl HoldKind {
    /// The kind as the reflectors name it.
    pub(super) fn observed(self) -> ObservedKind {
        match self {
            Self::Reservation => ObservedKind::Reservation,
            Self::NodeHardware => ObservedKind::NodeHardware,
            Self::Node => ObservedKind::Node,
            Self::Slice => ObservedKind::ResourceSlice,
            Self::Rule => ObservedKind::DeviceTaintRule,
            Self::Claim => ObservedKind::ResourceClaim,
            Self::Attachment => ObservedKind::FabricAttachment,
        }
    }

    /// Name of the kind in paths.
    pub(super) fn plural(self) -> &'static str {
        self.observed().plural()
    }

    pub(in crate::hold) fn reservations() -> Collection {
        Collection::custom(hardware::GROUP, hardware::VERSION, RESERVATION_KIND, RESERVATIONS)
    }

    pub(super) fn node_hardware() -> Collection {
        Collection::custom(hardware::GROUP, hardware::VERSION, hardware::NODE_HARDWARE_KIND, hardware::NODE_HARDWARE)
    }
}

impl PlaceError {
    fn of(what: &str, failure: ApiFailure) -> Self {
        match failure {
            ApiFailure::NoResourceApi => Self::NotServed(what.to_owned()),
            failure if failure.is_unknown_resource() => Self::NotServed(what.to_owned()),
            failure if failure.code() == Some(403) => Self::Forbidden(failure),
            failure => Self::Unknown(Chain(&failure).to_string()),
        }
    }
}
