//! `[webhook]`: settings of the webhook that lets pods use kept devices.

use std::path::PathBuf;

use hostler_process::config::ConfigMistake;
use serde::{Deserialize, Serialize};

use super::{ListenAddress, SwitchMode, is_driver_name, is_object_name};

/// `[webhook]`: settings of the webhook that lets pods use kept devices.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct WebhookConfig {
    /// Address of the webhook's server, always over TLS.
    pub(crate) listen: ListenAddress,
    /// A certificate for `<service>.<namespace>.svc`, as PEM. Default: one that the controller makes, and keeps in a
    /// Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<PathBuf>,
    /// Key of the certificate, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    /// Name of the Service in front of the webhook, and of the Secret.
    pub(crate) service: String,
    /// Name of the MutatingWebhookConfiguration.
    pub(crate) configuration: String,
    /// Switch of repair: pods whose claims were made without the webhook are deleted, so that their owners make them
    /// anew.
    pub(crate) repair: SwitchMode,
    /// Switch of gates: owners of places, and pods of ProvisioningRequests that are not decided, wait by the scheduling
    /// gate `hostler.dev/reservation`.
    pub(crate) gates: SwitchMode,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        let name = "hostler-webhook";
        Self {
            listen: ListenAddress::Off,
            certificate: None,
            key: None,
            service: name.to_owned(),
            configuration: name.to_owned(),
            repair: SwitchMode::Off,
            gates: SwitchMode::Off,
        }
    }
}

impl WebhookConfig {
    /// Returns the certificate and key that come from outside.
    pub(crate) fn files(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.certificate.as_ref().zip(self.key.as_ref())
    }

    /// Returns the name of the MutatingWebhookConfiguration that has pods asked about.
    pub(crate) fn configuration_of_pods(&self) -> String {
        format!("{}-pods", self.configuration)
    }

    /// True if any of the work is the leader's alone.
    pub(crate) fn leads(&self) -> bool {
        self.listen != ListenAddress::Off
    }

    /// Returns mistakes of values that their types do not exclude.
    pub(super) fn mistakes(&self) -> Vec<ConfigMistake> {
        let mut mistakes = Vec::new();
        let paths = [("webhook.certificate", &self.certificate), ("webhook.key", &self.key)];
        for (key, path) in paths {
            if let Some(path) = path.as_ref().filter(|path| path.is_relative()) {
                let what = format!("is {}, which is relative", path.display());
                mistakes.push(ConfigMistake::new(key, what, "write an absolute path"));
            }
        }
        if let [(_, Some(_)), (other, None)] | [(other, None), (_, Some(_))] = paths {
            let fix = "write both, or none for a certificate that is made here";
            mistakes.push(ConfigMistake::new(other, "is missing".to_owned(), fix));
        }
        if !is_object_name(&self.service) {
            let fix = "write the name of the Service: lower-case letters, digits, and hyphens inside";
            let what = format!("is {:?}, which no object can be called", self.service);
            mistakes.push(ConfigMistake::new("webhook.service", what, fix));
        }
        if self.configuration_of_pods().len() > 253 || !self.configuration.split('.').all(is_driver_name) {
            let fix = "write the name of the MutatingWebhookConfiguration: lower-case letters, digits, '-' and '.'";
            let what = format!("is {:?}, which no object can be called", self.configuration);
            mistakes.push(ConfigMistake::new("webhook.configuration", what, fix));
        }
        mistakes
    }
}
