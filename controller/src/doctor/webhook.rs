//! The webhook that lets pods use kept devices: its configuration, the certificate authority, and the Service.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use hostler_cli::doctor::DoctorFinding;
use hostler_cluster::rfc3339;
use serde_json::Value;

use super::{certificate::last_end, facts::DoctorFacts};
use crate::{
    config::ListenAddress,
    deployed::{list, name_of},
};

const CHECK: &str = "webhook";

/// Kind of the configurations.
const KIND: &str = "MutatingWebhookConfiguration";
/// The command that installs the webhook.
const APPLY: &str = "kubectl apply -k deploy/holds/webhook";

/// The controller makes a certificate anew a month before its end: less is left where it cannot.
const SPARE: Duration = Duration::from_secs(14 * 24 * 3600);

/// Checks the webhook.
pub(super) fn check(facts: &DoctorFacts) -> DoctorFinding {
    let config = &facts.config.config.webhook;
    if config.listen == ListenAddress::Off {
        return DoctorFinding::ok(CHECK, "switched off by configuration");
    }
    if let Some(unread) = facts.unread(CHECK, &["mutatingwebhookconfigurations", "services"]) {
        return unread;
    }
    let names = [config.configuration.clone(), config.configuration_of_pods()];
    let all = names.iter().filter_map(|name| facts.deployed.named(KIND, name).map(|there| (name, there)));
    let clients: Vec<(&String, &Value)> =
        all.flat_map(|(name, there)| list(&there["webhooks"]).map(move |hook| (name, &hook["clientConfig"]))).collect();
    if facts.deployed.named(KIND, &config.configuration).is_none() {
        let title = format!("{KIND} {}", config.configuration);
        let found = format!("not installed: there is no {title}; pods name the taint of kept devices themselves");
        return DoctorFinding::ok(CHECK, found);
    }
    for (name, client) in &clients {
        let bundle = client["caBundle"].as_str().unwrap_or_default();
        if let Some(finding) = authority(facts, &format!("{KIND} {name}"), bundle) {
            return finding;
        }
        if let Some(finding) = service(facts, &client["service"]) {
            return finding;
        }
    }
    let (count, installed) = (clients.len(), names.iter().filter(|name| facts.deployed.named(KIND, name).is_some()));
    let titles: Vec<&str> = installed.map(String::as_str).collect();
    let found =
        format!("{KIND} {}: {count} of {count} webhooks with a certificate authority and a Service", titles.join(", "));
    DoctorFinding::ok(CHECK, found)
}

/// The API server calls nothing that no authority vouches for.
fn authority(facts: &DoctorFacts, title: &str, bundle: &str) -> Option<DoctorFinding> {
    if bundle.is_empty() {
        let found = format!("{title} has no caBundle yet: the controller that leads writes it");
        let fix = format!("{APPLY}; /readyz and the condition Webhook say why the controller cannot write it");
        return Some(DoctorFinding::fail(CHECK, found, fix));
    }
    let end = STANDARD.decode(bundle).ok().and_then(|pem| last_end(&pem));
    let Some(end) = end else {
        let found = format!("{title} has a caBundle without a certificate in PEM");
        return Some(DoctorFinding::fail(CHECK, found, "remove caBundle: the controller that leads writes it anew"));
    };
    let fix = "kubectl -n hostler-controller logs deployment/hostler-controller says why it is not renewed";
    match end.duration_since(facts.now) {
        Err(_) => {
            let found = format!("the certificate authority of {title} ended at {}", rfc3339(end));
            Some(DoctorFinding::fail(CHECK, found, fix))
        }
        Ok(left) if left < SPARE => {
            let found = format!("the certificate authority of {title} ends at {}", rfc3339(end));
            Some(DoctorFinding::warn(CHECK, found, fix))
        }
        Ok(_) => None,
    }
}

/// The API server must find a controller behind the Service.
fn service(facts: &DoctorFacts, service: &Value) -> Option<DoctorFinding> {
    let name = service["name"].as_str()?;
    let namespace = service["namespace"].as_str().unwrap_or_default();
    let is_it = |it: &&Value| name_of(it) == name && it["metadata"]["namespace"] == namespace;
    if !facts.deployed.of("Service").any(|it| is_it(&it)) {
        return Some(DoctorFinding::fail(CHECK, format!("there is no Service {namespace}/{name}"), APPLY));
    }
    let of_service = |it: &&Value| it["metadata"]["labels"]["kubernetes.io/service-name"] == name;
    let slices = facts.deployed.of("EndpointSlice").filter(of_service);
    let is_ready = slices.flat_map(|slice| list(&slice["endpoints"])).any(|it| it["conditions"]["ready"] != false);
    let may_see = facts.unread(CHECK, &["endpointslices"]).is_none();
    (may_see && !is_ready).then(|| {
        let found = format!("no pod is ready behind Service {namespace}/{name}: claims are made without the webhook");
        DoctorFinding::fail(CHECK, found, "kubectl -n hostler-controller describe pods")
    })
}
