//! Switches that are on, off, or follow the controller's rights: a bundle that brings a role needs no configuration
//! beside it.

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

/// A verb on Reservations that no API server acts on. A role gives the verb to state the purpose of its bundle: other
/// bundles have some of the same rights for another purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MeantVerb {
    /// Placing gated pods: `deploy/holds/direct`.
    Place,
    /// Keeping CPU, memory and ports of nodes: `deploy/holds/places`.
    Keep,
    /// Having pods wait by a scheduling gate: `deploy/holds/gates`.
    Gate,
    /// Deleting pods that were passed by: `deploy/holds/repair`.
    Repair,
}

impl MeantVerb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Keep => "keep",
            Self::Gate => "gate",
            Self::Repair => "repair",
        }
    }
}

impl SwitchMode {
    /// Resolves the switch: `Auto` asks the API server. Returns `None` where a server that has just started may not
    /// have read its roles yet: the caller asks again soon.
    ///
    /// # Errors
    /// Fails if the API server does not answer.
    pub(crate) async fn is_on(self, verb: MeantVerb, client: &ApiClient) -> Result<Option<bool>, ApiFailure> {
        let (verb, resource) = (verb.as_str(), hostler_api::reservation::RESERVATIONS);
        match self {
            Self::Off => Ok(Some(false)),
            Self::On => Ok(Some(true)),
            Self::Auto if client.is_allowed(verb, GROUP, resource).await? => {
                client.refusals().allowed(verb);
                Ok(Some(true))
            }
            Self::Auto => Ok(client.refusals().refused(verb).then_some(false)),
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

#[cfg(test)]
mod tests {
    use hostler_testing::apiserver::{ApiServer, ApiServerRelease, PolicyRule};

    use super::*;

    #[tokio::test]
    async fn a_first_no_to_the_question_for_the_role_is_no_answer_yet() {
        let server = ApiServer::of(ApiServerRelease::default()).await;
        let client = ApiClient::new(Some(&*server.kubeconfig("controller"))).unwrap();
        server.allow("controller", Vec::new());
        for _ in 0..3 {
            assert_eq!(SwitchMode::Auto.is_on(MeantVerb::Place, &client).await.unwrap(), None);
        }
        assert_eq!(SwitchMode::Off.is_on(MeantVerb::Place, &client).await.unwrap(), Some(false));
        assert_eq!(SwitchMode::On.is_on(MeantVerb::Place, &client).await.unwrap(), Some(true));
        let role =
            "kind: ClusterRole\nrules: [{apiGroups: [hostler.dev], resources: [reservations], verbs: [place]}]\n";
        server.allow("controller", PolicyRule::from_yaml(role));
        assert_eq!(SwitchMode::Auto.is_on(MeantVerb::Place, &client).await.unwrap(), Some(true));
        assert_eq!(SwitchMode::Auto.is_on(MeantVerb::Repair, &client).await.unwrap(), None, "each has its own time");
    }
}
