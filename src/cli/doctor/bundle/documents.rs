//! Answers of the daemon, and its files on disk.

use std::{fs, path::Path};

use hostler_api::Chain;
use hostler_cdi::SpecDir;
use hostler_files::read_file;
use serde_json::{Value, json};

use crate::{
    claims::store::MOST_RECORD_BYTES,
    cli::client::{DaemonClient, segment},
    config::DaemonConfig,
};

/// A cluster's daemon asks the API server for each; this many take seconds, not minutes.
const MOST_EXPLAINED: usize = 64;

/// A document and its name in the bundle.
type BundleDocument = (String, Value);

/// The daemon's answers. One that does not answer is told from the first failure.
pub(super) fn of_daemon(client: &DaemonClient) -> Vec<BundleDocument> {
    let ask = |path: &str| client.get::<Value>(path).map_err(|error| json!({ "error": Chain(&error).to_string() }));
    let status = match ask("/v1/status") {
        Ok(status) => status,
        Err(error) => return vec![("daemon/unreachable.json".to_owned(), error)],
    };
    let answer = |path: &str| ask(path).unwrap_or_else(|error| error);
    let claims = answer("/v1/claims");
    let uids = claims.as_array().into_iter().flatten().filter_map(|claim| claim["uid"].as_str());
    let explain = |uid: &str| {
        (format!("daemon/explain/{}.json", segment(uid)), answer(&format!("/v1/claims/{}/explain", segment(uid))))
    };
    let explained: Vec<BundleDocument> = uids.take(MOST_EXPLAINED).map(explain).collect();
    let mut documents = vec![
        ("daemon/status.json".to_owned(), status),
        ("daemon/devices.json".to_owned(), answer("/v1/devices")),
        ("daemon/inventory.json".to_owned(), answer("/v1/inventory")),
        ("daemon/claims.json".to_owned(), claims),
    ];
    documents.extend(explained);
    documents
}

/// Records and CDI files; without `full` only what says whose devices they hold.
pub(super) fn of_disk(config: &DaemonConfig, full: bool) -> Vec<BundleDocument> {
    let mut documents = records(&config.paths.state.join("claims"), full);
    documents.extend(cdi_files(&SpecDir::new(&config.paths.cdi), &config.driver, full));
    documents
}

fn records(folder: &Path, full: bool) -> Vec<BundleDocument> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return vec![("claims/unreadable.json".to_owned(), json!({ "error": error.to_string() }))],
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".json") && !name.starts_with('.')).collect();
    names.sort_unstable();
    let record = |name: String| {
        let bytes = read_file(&folder.join(&name), MOST_RECORD_BYTES);
        let document = match bytes.map(|bytes| serde_json::from_slice::<Value>(&bytes)) {
            Ok(Ok(record)) if full => record,
            Ok(Ok(record)) => outline(&record["record"]),
            Ok(Err(error)) => json!({ "error": error.to_string() }),
            Err(error) => json!({ "error": Chain(&error).to_string() }),
        };
        (format!("claims/{name}"), document)
    };
    names.into_iter().map(record).collect()
}

/// A record without what was chosen and configured.
fn outline(record: &Value) -> Value {
    let device = |device: &Value| json!({ "backend": device["backend"], "grant": device["grant"] });
    let devices: Vec<Value> = record["devices"].as_array().into_iter().flatten().map(device).collect();
    json!({ "claim": record["claim"], "state": record["state"], "boot_id": record["boot_id"], "devices": without_config(devices) })
}

/// A grant holds what the claim asked for; opaque configuration may hold anything.
fn without_config(mut devices: Vec<Value>) -> Vec<Value> {
    const KNOWN: [&str; 4] = ["request", "pool", "device", "consumed"];
    for device in &mut devices {
        if let Some(grant) = device["grant"].as_object_mut() {
            grant.retain(|name, _| KNOWN.contains(&name.as_str()));
        }
    }
    devices
}

fn cdi_files(dir: &SpecDir, driver: &str, full: bool) -> Vec<BundleDocument> {
    let files = match dir.list(driver) {
        Ok(files) => files,
        Err(error) => return vec![("cdi/unreadable.json".to_owned(), json!({ "error": Chain(&error).to_string() }))],
    };
    let document = |file: hostler_cdi::SpecFile| {
        let name = file.path.file_name().and_then(|name| name.to_str()).unwrap_or("unnamed.json").to_owned();
        let document = match &file.spec {
            Ok(spec) if full => json!(spec),
            Ok(spec) => {
                let devices: Vec<&String> = spec.devices.iter().map(|device| &device.name).collect();
                json!({ "cdiVersion": spec.cdi_version, "kind": spec.kind, "devices": devices })
            }
            Err(error) => json!({ "error": Chain(error).to_string() }),
        };
        (format!("cdi/{name}"), document)
    };
    files.into_iter().map(document).collect()
}
