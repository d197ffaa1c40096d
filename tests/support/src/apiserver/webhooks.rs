//! Mutating webhooks for creations: each registered webhook is called over TLS, and its patch is applied. If it does
//! not answer in its time, the object is created without it, or refused, as `failurePolicy` says.
//!
//! `matchConditions` are not looked at: every object of a rule is sent.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use super::{patch, refusal::StatusError, slices::items, state::SharedServerState, verbs::ApiRequest};

/// A webhook that is to be asked.
struct Hook {
    webhook: Value,
    address: Option<SocketAddr>,
}

/// The request as the webhooks want it.
pub(crate) fn mutated(shared: &SharedServerState, mut call: ApiRequest) -> Result<ApiRequest, StatusError> {
    if call.verb != "create" || call.target.subresource.is_some() {
        return Ok(call);
    }
    let hooks = hooks(shared, &call);
    if hooks.is_empty() {
        return Ok(call);
    }
    let mut object = call.body()?;
    for hook in hooks {
        // Others of this runtime answer what the webhook asks meanwhile.
        let answer = tokio::task::block_in_place(|| hook.ask(&call, &object));
        match answer {
            Ok(review) => apply(&call, &mut object, &review)?,
            Err(_) if hook.webhook["failurePolicy"] == "Ignore" => {}
            Err(error) => return Err(StatusError::trouble_with(&format!("failed calling webhook: {error}"))),
        }
    }
    call.body = object.to_string().into_bytes();
    call.content_type = "application/json".to_owned();
    Ok(call)
}

fn hooks(shared: &SharedServerState, call: &ApiRequest) -> Vec<Hook> {
    shared.read(|state| {
        let all = state.list("mutatingwebhookconfigurations");
        let webhooks = all.iter().flat_map(|it| items(&it["webhooks"])).filter(|it| is_about(it, call));
        let hook = |webhook: &Value| {
            let service = &webhook["clientConfig"]["service"];
            let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
            let address = state.services.get(&(text("namespace"), text("name"))).copied();
            Hook { webhook: webhook.clone(), address }
        };
        webhooks.map(hook).collect()
    })
}

fn is_about(webhook: &Value, call: &ApiRequest) -> bool {
    let (api, resource) = (call.target.api, call.target.resource);
    let names = |list: &Value, name: &str| items(list).iter().any(|it| it == name || it == "*");
    items(&webhook["rules"]).iter().any(|rule| {
        names(&rule["operations"], "CREATE")
            && names(&rule["apiGroups"], api.group)
            && names(&rule["apiVersions"], api.version)
            && names(&rule["resources"], resource.plural)
    })
}

fn apply(call: &ApiRequest, object: &mut Value, review: &Value) -> Result<(), StatusError> {
    let response = &review["response"];
    if response["allowed"] != true {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let why = response["status"]["message"].as_str().unwrap_or("the webhook says no");
        return Err(StatusError::denied(call.target.resource, call.target.api.group, name, why));
    }
    let Some(encoded) = response["patch"].as_str() else { return Ok(()) };
    let decoded = BASE64_STANDARD.decode(encoded).ok().and_then(|text| serde_json::from_slice(&text).ok());
    patch::operations(object, &decoded.unwrap_or_default())
}

impl Hook {
    fn ask(&self, call: &ApiRequest, object: &Value) -> io::Result<Value> {
        let wrong = |why: &str| io::Error::other(why.to_owned());
        let address = self.address.ok_or_else(|| wrong("the Service leads nowhere"))?;
        let (seconds, config) = (self.webhook["timeoutSeconds"].as_u64().unwrap_or(10), &self.webhook["clientConfig"]);
        let bundle =
            BASE64_STANDARD.decode(config["caBundle"].as_str().unwrap_or_default()).map_err(io::Error::other)?;
        let part = |field: &str| config["service"][field].as_str().unwrap_or_default();
        let name = format!("{}.{}.svc", part("name"), part("namespace"));
        let body = self.review(call, object).to_string();
        let head = format!(
            "POST {}?timeout={seconds}s HTTP/1.1\r\nHost: {name}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            part("path"),
            body.len()
        );
        let patience = Duration::from_secs(seconds);
        let (code, answer) = ask_over_tls(address, &name, &bundle, &format!("{head}{body}"), patience)?;
        if code == 200 { serde_json::from_str(&answer).map_err(io::Error::other) } else { Err(wrong(&answer)) }
    }

    fn review(&self, call: &ApiRequest, object: &Value) -> Value {
        let (api, resource) = (call.target.api, call.target.resource);
        let names = json!({ "group": api.group, "version": api.version, "resource": resource.plural });
        let kind = json!({ "group": api.group, "version": api.version, "kind": resource.kind_name });
        let mut object = object.clone();
        if resource.namespaced {
            object["metadata"]["namespace"] = json!(call.target.namespace());
        }
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": uuid::Uuid::new_v4().to_string(), "kind": kind, "resource": names, "requestKind": kind,
                "requestResource": names, "name": object["metadata"]["name"], "namespace": call.target.namespace(),
                "operation": "CREATE", "userInfo": { "username": call.user.name }, "object": object, "oldObject": null,
                "dryRun": !call.parameter("dryRun").is_empty(), "options": { "kind": "CreateOptions" },
            },
        })
    }
}

/// Sends a request over TLS to a server that proves this name by a certificate of `bundle` (PEM). Returns HTTP status
/// and body of the answer.
///
/// # Errors
/// Fails if there is no answer.
pub fn ask_over_tls(
    address: SocketAddr,
    name: &str,
    bundle: &[u8],
    request: &str,
    patience: Duration,
) -> io::Result<(u16, String)> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle) {
        roots.add(authority.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let client = ClientConnection::new(Arc::new(tls), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(client, stream);
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    answer(&mut stream)
}

/// An answer that says how long it is.
fn answer(stream: &mut impl Read) -> io::Result<(u16, String)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let whole = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let lines = head.lines().map(str::to_ascii_lowercase);
            let mut lengths =
                lines.filter_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if body.len() >= lengths.next().unwrap_or(0) {
                let code = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
                return Ok((code.unwrap_or(0), body.to_owned()));
            }
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}
