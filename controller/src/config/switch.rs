//! Switches that are on, off, or follow the controller's rights: a bundle that brings a role needs no configuration beside it.

use std::fmt;

use hostler_api::hardware::GROUP;
use hostler_cluster::{ApiClient, ApiFailure};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A switch for work that takes a role of its own: `true`, `false`, or `"auto"`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum SwitchMode {
    /// The work is not done.
    #[default]
    Off,
    /// The work is done, and fails where the role is missing.
    On,
    /// The work is done while a role gives its [`MeantVerb`].
    Auto,
}

/// A verb on Reservations that no API server acts on. A role gives it to say what its bundle is for: other bundles have some of the same
/// rights for something else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MeantVerb {
    /// Placing gated pods: `deploy/holds/direct`.
    Place,
    /// Deleting pods that were passed by: `deploy/holds/repair`.
    Repair,
}

impl MeantVerb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Repair => "repair",
        }
    }
}

impl SwitchMode {
    /// Resolves the switch: `Auto` asks the API server.
    ///
    /// # Errors
    /// When the API server does not say.
    pub(crate) async fn is_on(self, verb: MeantVerb, client: &ApiClient) -> Result<bool, ApiFailure> {
        match self {
            Self::Off => Ok(false),
            Self::On => Ok(true),
            Self::Auto => client.is_allowed(verb.as_str(), GROUP, hostler_api::reservation::RESERVATIONS).await,
        }
    }
}

impl<'de> Deserialize<'de> for SwitchMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;

        impl de::Visitor<'_> for Written {
            type Value = SwitchMode;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"auto\"")
            }

            fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<SwitchMode, E> {
                Ok(if is_on { SwitchMode::On } else { SwitchMode::Off })
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<SwitchMode, E> {
                let unknown = || de::Error::invalid_value(de::Unexpected::Str(word), &self);
                (word == "auto").then_some(SwitchMode::Auto).ok_or_else(unknown)
            }
        }

        deserializer.deserialize_any(Written)
    }
}

impl Serialize for SwitchMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::On => serializer.serialize_bool(true),
            Self::Auto => serializer.serialize_str("auto"),
        }
    }
}
