//! Keeps the webhook's certificate, and writes into the webhook's configuration which authority signed it. Every
//! controller reads, the leader writes; [`keys`](super::keys) decides the writes.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hostler_api::{Chain, well_known::CONTROLLER_FIELD_MANAGER};
use hostler_cluster::{ApiClient, ApiFailure, Collection, ObjectVersion, RetryPauses};
use hostler_files::{FileError, read_text};
use hostler_process::{
    Tasks,
    serve::{CertificateError, GivenCertificate, MadeCertificate},
};
use hostler_reconcile::Leadership;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep};
use tracing::{debug, info, warn};

use super::keys::{KeyStep, ServingPair, VALID, WebhookKeys, next_step};
use crate::{
    config::WebhookConfig,
    pod_gates::GatesPhase,
    webhook_status::{WebhookPhase, WebhookStatus},
};

/// The field of the Secret that holds the keys.
const FIELD: &str = "keys.json";
/// A certificate with its chain has a few kilobytes.
const MOST_BYTES: u64 = 1 << 20;
/// Pause between two reads of the Secret: a new certificate is in use long before the old one expires.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Pause between two reads as long as there is no certificate, or a step fails.
const LOOK_SOON: Duration = Duration::from_secs(3);
/// The longest pause before the role is tried again: each try is a refusal in the server's log.
const LOOK_FOR_ROLE: Duration = Duration::from_secs(10);
/// The most writes in a row: more than any protocol has.
const MOST_STEPS: usize = 6;

/// A failure to have a certificate, or to make the API server trust it.
#[derive(Debug, thiserror::Error)]
enum KeeperError {
    #[error("failed to read the webhook's certificate")]
    File(#[source] FileError),
    #[error("the thread that read the webhook's certificate has ended")]
    Thread,
    #[error("failed to use the webhook's certificate")]
    Certificate(#[from] CertificateError),
    #[error("failed to read Secret {}{}", .0, advice(.1))]
    ReadSecret(String, #[source] Box<ApiFailure>),
    #[error("failed to write Secret {}{}", .0, advice(.1))]
    WriteSecret(String, #[source] Box<ApiFailure>),
    #[error("failed to put the webhook's keys into JSON")]
    Encode(#[source] serde_json::Error),
    #[error("failed to read MutatingWebhookConfiguration {}{}", .0, advice(.1))]
    ReadConfiguration(String, #[source] Box<ApiFailure>),
    #[error("failed to write caBundle of MutatingWebhookConfiguration {}{}", .0, advice(.1))]
    WriteConfiguration(String, #[source] Box<ApiFailure>),
    #[error("failed to read or write MutatingWebhookConfiguration {}{}", .0, advice_on_gates(.1))]
    ConfigurationOfPods(String, #[source] Box<ApiFailure>),
}

/// Advice on a failure that the webhook's bundle repairs: the bundle brings the role and the configuration.
fn advice(failure: &ApiFailure) -> &'static str {
    match failure.code() {
        Some(403) => "; apply deploy/holds/webhook, whose role allows it",
        Some(404) => "; apply deploy/holds/webhook, which brings it",
        _ => "",
    }
}

/// Advice on a failure that the bundle of gates repairs.
fn advice_on_gates(failure: &ApiFailure) -> &'static str {
    match failure.code() {
        Some(403) => "; apply deploy/holds/gates, whose role allows it",
        Some(404) => "; apply deploy/holds/gates, which brings it",
        _ => "",
    }
}

impl KeeperError {
    /// Returns the refusal for lack of a role, if the error is one.
    fn refusal(&self) -> Option<&ApiFailure> {
        match self {
            Self::ReadSecret(_, failure)
            | Self::WriteSecret(_, failure)
            | Self::ReadConfiguration(_, failure)
            | Self::WriteConfiguration(_, failure)
            | Self::ConfigurationOfPods(_, failure) => Some(&**failure).filter(|it| it.code() == Some(403)),
            Self::File(_) | Self::Thread | Self::Certificate(_) | Self::Encode(_) => None,
        }
    }

    /// Returns the phase that follows from this error, and the pause before the next read. An API server that has just
    /// started may refuse without reason: then the phase is `None`, the pause is short, and the last phase stands.
    fn judged(&self, pauses: &mut RetryPauses) -> (Option<WebhookPhase>, Duration) {
        let Some(refusal) = self.refusal() else {
            pauses.reset();
            return (Some(WebhookPhase::Trouble(Chain(self).to_string())), LOOK_SOON);
        };
        let pause = pauses.after_refusal(refusal);
        // A controller that may not read the Secret has no part of the role.
        let phase = match self {
            Self::ReadSecret(..) => WebhookPhase::NotInstalled,
            _ => WebhookPhase::Trouble,
        };
        (pauses.is_refused_for_long().then(|| phase(Chain(self).to_string())), pause)
    }
}

/// Keeps the certificate, as a task.
#[derive(Debug)]
pub(super) struct CertificateKeeper {
    pub(super) client: ApiClient,
    pub(super) config: WebhookConfig,
    /// The namespace of Service and Secret.
    pub(super) namespace: String,
    pub(super) certificate: Arc<GivenCertificate>,
    pub(super) leadership_rx: watch::Receiver<Leadership>,
    /// State of the switch that has pods gated: while it is on, the API server has to trust the certificate for pods as well.
    pub(super) gates_rx: watch::Receiver<GatesPhase>,
    pub(super) status_tx: watch::Sender<WebhookStatus>,
    /// The tasks that read files.
    pub(super) tasks: Tasks,
    /// The certificate in use, as PEM.
    pub(super) shown: Option<String>,
}

#[derive(Deserialize)]
struct SeenSecret {
    metadata: ConfigurationMeta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationMeta {
    uid: String,
    resource_version: String,
}

impl CertificateKeeper {
    /// Runs until the process stops.
    pub(super) async fn run(mut self) {
        let mut pauses = RetryPauses::new(LOOK_SOON, LOOK_SOON, LOOK_FOR_ROLE);
        loop {
            let (phase, pause) = match self.look().await {
                Ok(()) => {
                    pauses.reset();
                    match self.shown.is_some() {
                        true => (Some(WebhookPhase::Answering), LOOK_AGAIN),
                        false => (Some(WebhookPhase::NoCertificate), LOOK_SOON),
                    }
                }
                Err(error) => error.judged(&mut pauses),
            };
            match phase {
                Some(phase) => self.tell(phase),
                None => {
                    debug!("the API server may not have read its roles yet: the webhook's Secret is asked for again");
                }
            }
            // A renewal of the lease is no news.
            let led = self.leads();
            let other = async { self.leadership_rx.wait_for(|it| it.is_ours(Instant::now()) != led).await.map(drop) };
            tokio::select! {
                // All are cancel safe: they only wait, and the next turn of the loop reads the change.
                () = sleep(pause) => {}
                Ok(()) = other => {}
                Ok(()) = self.gates_rx.changed() => {}
            }
        }
    }

    fn tell(&self, phase: WebhookPhase) {
        self.status_tx.send_if_modified(|last| {
            let is_other = last.phase != phase;
            if let (true, WebhookPhase::Trouble(error)) = (is_other, &phase) {
                warn!(error, "the webhook cannot do its work");
            }
            last.phase = phase;
            is_other
        });
    }

    fn leads(&self) -> bool {
        self.leadership_rx.borrow().is_ours(Instant::now())
    }

    async fn look(&mut self) -> Result<(), KeeperError> {
        if let Some((certificate, key)) = self.config.files() {
            let (certificate, key) = (certificate.clone(), key.clone());
            let reading = self.tasks.looking(move || [certificate, key].map(|path| read(&path)));
            let [certificate, key] = reading.await.map_err(|_| KeeperError::Thread)?;
            let (certificate, key) = (certificate?, key?);
            return self.show(&certificate, &key);
        }
        for _ in 0..MOST_STEPS {
            let (keys, secret) = self.keys().await?;
            if let Some(keys) = &keys {
                self.show(&keys.in_use.certificate, &keys.in_use.key)?;
            }
            if !self.leads() || !self.step(keys, secret).await? {
                break;
            }
        }
        Ok(())
    }

    fn show(&mut self, certificate: &str, key: &str) -> Result<(), KeeperError> {
        if self.shown.as_deref() != Some(certificate) {
            self.certificate.replace(certificate.as_bytes(), key.as_bytes())?;
            self.shown = Some(certificate.to_owned());
            info!("the webhook has a certificate");
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let Self { config: WebhookConfig { service, .. }, namespace, .. } = self;
        // The API server asks for the first name.
        vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}"), service.clone()]
    }

    fn secrets(&self) -> Collection {
        Collection::core("Secret", "secrets").of(&self.namespace)
    }

    /// Reads the keys of the Secret, if there is one; keys that cannot be understood count as missing.
    async fn keys(&self) -> Result<(Option<WebhookKeys>, Option<ObjectVersion>), KeeperError> {
        let name = &self.config.service;
        let found = self.client.find::<SeenSecret>(&self.secrets(), name).await;
        let found = found.map_err(|failure| KeeperError::ReadSecret(self.secret_name(), Box::new(failure)))?;
        let Some(secret) = found else { return Ok((None, None)) };
        let ConfigurationMeta { uid, resource_version } = secret.metadata;
        let text = secret.data.get(FIELD).and_then(|text| STANDARD.decode(text).ok());
        let keys = text.and_then(|text| serde_json::from_slice(&text).ok());
        Ok((keys, Some(ObjectVersion { uid, resource_version })))
    }

    fn secret_name(&self) -> String {
        format!("{}/{}", self.namespace, self.config.service)
    }

    /// Makes the next write, if there is one; returns true if it did.
    async fn step(&self, keys: Option<WebhookKeys>, secret: Option<ObjectVersion>) -> Result<bool, KeeperError> {
        let configurations = if keys.is_some() { self.configurations().await? } else { Vec::new() };
        let bundle = bundle_of_all(&configurations);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let Some(step) = next_step(keys.as_ref(), &bundle, &self.names(), now) else { return Ok(false) };
        match (step, keys) {
            (KeyStep::Make, _) => self.write_keys(&WebhookKeys::new(self.make(now)?), secret).await?,
            (KeyStep::Prepare, Some(keys)) => self.write_keys(&keys.with_next(self.make(now)?), secret).await?,
            (KeyStep::Keep(keys), _) => self.write_keys(&keys, secret).await?,
            (KeyStep::Bundle(bundle), _) => self.write_bundles(configurations, &bundle).await?,
            (KeyStep::Prepare, None) => {}
        }
        Ok(true)
    }

    fn make(&self, now: u64) -> Result<ServingPair, KeeperError> {
        let names = self.names();
        let MadeCertificate { certificate, key, authority } = MadeCertificate::new(&names, VALID)?;
        Ok(ServingPair { made: now, names, certificate, key, authority })
    }

    async fn write_keys(&self, keys: &WebhookKeys, secret: Option<ObjectVersion>) -> Result<(), KeeperError> {
        let (all, name) = (self.secrets(), &self.config.service);
        let text = serde_json::to_vec(keys).map_err(KeeperError::Encode)?;
        let data = json!({ FIELD: STANDARD.encode(text) });
        let written = match secret {
            Some(ObjectVersion { uid, resource_version }) => {
                let metadata = json!({ "uid": uid, "resourceVersion": resource_version });
                let patch = json!({ "metadata": metadata, "data": data });
                self.client.change::<Value>(&all, name, CONTROLLER_FIELD_MANAGER, &patch).await
            }
            None => {
                let labels = json!({ "app.kubernetes.io/managed-by": CONTROLLER_FIELD_MANAGER });
                let metadata = json!({ "name": name, "namespace": self.namespace, "labels": labels });
                let object = json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data,
                });
                self.client.create::<Value>(&all, name, &object).await
            }
        };
        but_for_others(written).map_err(|failure| KeeperError::WriteSecret(self.secret_name(), Box::new(failure)))
    }

    /// Reads the configuration for claims, and the one for pods where pods are gated.
    async fn configurations(&self) -> Result<Vec<Value>, KeeperError> {
        let mut found = Vec::new();
        for name in self.names_of_configurations() {
            let read = self.client.get(&configurations(), &name).await;
            found.push(read.map_err(|failure| self.failed_to_read(name, failure))?);
        }
        Ok(found)
    }

    fn names_of_configurations(&self) -> Vec<String> {
        let is_gating = *self.gates_rx.borrow() == GatesPhase::On;
        let of_pods = is_gating.then(|| self.config.configuration_of_pods());
        std::iter::once(self.config.configuration.clone()).chain(of_pods).collect()
    }

    fn failed_to_read(&self, name: String, failure: ApiFailure) -> KeeperError {
        match name == self.config.configuration {
            true => KeeperError::ReadConfiguration(name, Box::new(failure)),
            false => KeeperError::ConfigurationOfPods(name, Box::new(failure)),
        }
    }

    /// Writes the bundle where it is another one. Lists are written as a whole: the version makes sure that no other
    /// writer has changed them.
    async fn write_bundles(&self, all: Vec<Value>, bundle: &str) -> Result<(), KeeperError> {
        let encoded = json!(STANDARD.encode(bundle));
        for mut configuration in all.into_iter().filter(|it| bundle_of(it) != bundle) {
            for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["clientConfig"]["caBundle"] = encoded.clone();
            }
            let metadata = &configuration["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default().to_owned();
            let metadata = json!({ "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] });
            let patch = json!({ "metadata": metadata, "webhooks": configuration["webhooks"] });
            let written = self.client.change::<Value>(&configurations(), &name, CONTROLLER_FIELD_MANAGER, &patch).await;
            but_for_others(written).map_err(|failure| match name == self.config.configuration {
                true => KeeperError::WriteConfiguration(name, Box::new(failure)),
                false => KeeperError::ConfigurationOfPods(name, Box::new(failure)),
            })?;
        }
        Ok(())
    }
}

/// Accepts a conflict with another writer: the object is read again.
fn but_for_others(written: Result<Value, ApiFailure>) -> Result<(), ApiFailure> {
    match written {
        Err(failure) if failure.code() != Some(409) => Err(failure),
        _ => Ok(()),
    }
}

fn configurations() -> Collection {
    let (group, kind) = ("admissionregistration.k8s.io", "MutatingWebhookConfiguration");
    Collection::custom(group, "v1", kind, "mutatingwebhookconfigurations")
}

/// Returns the `caBundle` of all configurations; empty unless they have one and the same.
fn bundle_of_all(all: &[Value]) -> String {
    let mut bundles = all.iter().map(bundle_of);
    let first = bundles.next().unwrap_or_default();
    if bundles.all(|it| it == first) { first } else { String::new() }
}

/// Returns the `caBundle` of all webhooks of a configuration; empty unless they have one and the same.
fn bundle_of(configuration: &Value) -> String {
    let webhooks = configuration["webhooks"].as_array();
    let mut bundles = webhooks.into_iter().flatten().map(|it| it["clientConfig"]["caBundle"].as_str());
    let first = bundles.next().flatten().unwrap_or_default();
    let is_one = bundles.all(|it| it == Some(first));
    let decoded = STANDARD.decode(first).ok().filter(|_| is_one);
    decoded.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String, KeeperError> {
    read_text(path, MOST_BYTES).map_err(KeeperError::File)
}

#[cfg(test)]
mod tests {
    use hostler_cluster::{CallError, StatusError};

    use super::*;

    fn failure(code: u16) -> Box<ApiFailure> {
        let source = CallError::Status(StatusError { code, message: "no".to_owned(), ..StatusError::default() });
        Box::new(ApiFailure::Call { step: "call".to_owned(), source })
    }

    #[test]
    fn a_first_refusal_names_no_role_and_is_asked_again_soon() {
        let mut pauses = RetryPauses::new(LOOK_SOON, LOOK_SOON, LOOK_FOR_ROLE);
        let name = || "n".to_owned();
        for error in [
            KeeperError::ReadSecret(name(), failure(403)),
            KeeperError::WriteSecret(name(), failure(403)),
            KeeperError::ReadConfiguration(name(), failure(403)),
            KeeperError::WriteConfiguration(name(), failure(403)),
        ] {
            let (phase, pause) = error.judged(&mut pauses);
            assert_eq!(phase, None, "{error}");
            assert!(pause <= LOOK_FOR_ROLE, "{pause:?}");
            pauses.reset();
            assert!(error.judged(&mut pauses).1 <= Duration::from_secs(1));
        }
    }

    #[test]
    fn a_role_or_a_bundle_is_named_only_where_that_is_what_lacks() {
        let said = |code| Chain(&KeeperError::ReadConfiguration("n".to_owned(), failure(code))).to_string();
        assert!(said(403).contains("apply deploy/holds/webhook, whose role allows it"), "{}", said(403));
        assert!(said(404).contains("apply deploy/holds/webhook, which brings it"), "{}", said(404));
        assert!(!said(503).contains("apply"), "{}", said(503));
        let mut pauses = RetryPauses::new(LOOK_SOON, LOOK_SOON, LOOK_FOR_ROLE);
        let (phase, _) = KeeperError::ReadSecret("n".to_owned(), failure(503)).judged(&mut pauses);
        assert!(matches!(phase, Some(WebhookPhase::Trouble(_))), "{phase:?}");
    }
}
