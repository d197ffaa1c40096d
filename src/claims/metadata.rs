//! Files with the attributes of devices for programs in containers: one per request, in the format of KEP-5304.
//!
//! ```text
//! <kubelet>/plugins/<driver>/dra-device-metadata/<claim uid>_<request>.json
//! ```
//!
//! One folder for all: a new folder costs ten times what a new file does, and a pod waits for it. The content follows
//! from the record alone, so that it is the same after a restart and after a reboot. Containers see the file through
//! a bind mount, which a rename would leave behind: a file that is in use changes in place.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use hostler_api::{Chain, ClaimRef, ClaimUid, ObjectName};
use hostler_backend::{AttributeValue, Device};
use hostler_cdi::CdiMount;
use hostler_files::FileError;
use serde::Serialize;
use serde_json::json;
use tracing::{info, warn};

use super::{
    naming::CdiNaming,
    store::{Attributes, ClaimRecord, DeviceMetadata, RecordDevice},
};
use crate::inventory::Inventory;

/// The versions of the format, the newest first: a reader takes the first that it knows.
const VERSIONS: [&str; 2] = ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"];

/// Bytes of which the heap is asked once for a file.
const ROOM: usize = 2048;

/// Folder in which containers find the files.
const IN_CONTAINERS: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// Reason why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// A name is not one of the API server's.
    #[error("{0:?} is no name of a claim, a request or a namespace")]
    Name(String),
    /// A step on one file or folder failed.
    #[error(transparent)]
    Write(#[from] FileError),
}

/// Describes devices that are given to a claim.
pub fn describe(pod_claim_name: Option<String>, devices: &[RecordDevice], inventory: &Inventory) -> DeviceMetadata {
    let attributes = |device: &RecordDevice| found(device, inventory).map(attributes).unwrap_or_default();
    DeviceMetadata { generation: 1, pod_claim_name, attributes: devices.iter().map(attributes).collect() }
}

/// The next generation, if the attributes of a device are others now. A device that has gone keeps its last ones.
pub fn described_anew(record: &ClaimRecord, inventory: &Inventory) -> Option<DeviceMetadata> {
    let before = record.metadata.as_ref()?;
    let mut now = before.clone();
    for (device, known) in record.devices.iter().zip(&mut now.attributes) {
        if let Some(device) = found(device, inventory) {
            *known = attributes(device);
        }
    }
    now.generation += 1;
    (now.attributes != before.attributes).then_some(now)
}

fn found<'a>(device: &RecordDevice, inventory: &'a Inventory) -> Option<&'a Device> {
    inventory.find(&device.grant.pool, device.grant.device.as_str()).map(|(_, found)| found)
}

fn attributes(device: &Device) -> Attributes {
    let typed = |value: &AttributeValue| match value {
        AttributeValue::Int(value) => json!({ "int": value }),
        AttributeValue::Bool(value) => json!({ "bool": value }),
        AttributeValue::String(value) => json!({ "string": value.as_str() }),
        AttributeValue::Version(value) => json!({ "version": value.as_str() }),
        AttributeValue::Ints(values) => json!({ "ints": values }),
        AttributeValue::Strings(values) => json!({ "strings": values }),
    };
    device.attributes.iter().map(|(name, value)| (name.to_string(), typed(value))).collect()
}

/// The mount with which containers of a request see its file; `None` if the claim has no such files.
pub fn mount(record: &ClaimRecord, request: &str, naming: &CdiNaming) -> Option<CdiMount> {
    let metadata = record.metadata.as_ref()?;
    let claim = match &metadata.pod_claim_name {
        Some(name) => format!("resourceclaimtemplates/{name}"),
        None => format!("resourceclaims/{}", record.claim.name),
    };
    Some(CdiMount {
        host_path: host_file(&record.claim, request, naming).to_string_lossy().into_owned(),
        container_path: format!("{IN_CONTAINERS}/{claim}/{request}/{}-metadata.json", naming.driver),
        options: vec!["ro".to_owned(), "bind".to_owned()],
        fs_type: None,
    })
}

/// Path of a request's file. A claim of the same name with another UID has files of its own.
fn host_file(claim: &ClaimRef, request: &str, naming: &CdiNaming) -> PathBuf {
    naming.metadata.join(format!("{}_{request}.json", claim.uid))
}

/// The top-level requests of a claim, each once.
fn requests(record: &ClaimRecord) -> Vec<&str> {
    let mut requests: Vec<&str> = Vec::new();
    for device in &record.devices {
        let request = device.grant.top_level_request();
        if !requests.contains(&request) {
            requests.push(request);
        }
    }
    requests
}

/// The file of one request: the same object once per version.
fn content(record: &ClaimRecord, metadata: &DeviceMetadata, request: &str, driver: &str) -> Vec<u8> {
    let mut requests: Vec<RequestDevices<'_>> = Vec::new();
    for (device, attributes) in record.devices.iter().zip(&metadata.attributes) {
        let grant = &device.grant;
        if grant.top_level_request() != request {
            continue;
        }
        let shown = ShownDevice { attributes, driver, name: grant.device.as_str(), pool: &grant.pool };
        match requests.iter_mut().find(|request| request.name == grant.request) {
            Some(request) => request.devices.push(shown),
            None => requests.push(RequestDevices { devices: vec![shown], name: &grant.request }),
        }
    }
    let ClaimRef { namespace, name, uid } = &record.claim;
    let mut object = MetadataFile {
        api_version: "",
        kind: "DeviceMetadata",
        metadata: ClaimMetadata { generation: metadata.generation, name, namespace, uid: uid.as_str() },
        pod_claim_name: metadata.pod_claim_name.as_deref(),
        requests,
    };
    let mut text = Vec::with_capacity(ROOM);
    for version in VERSIONS {
        object.api_version = version;
        // Writing texts and numbers to memory does not fail.
        let _ = serde_json::to_writer(&mut text, &object);
        text.push(b'\n');
    }
    text
}

/// The content of a file, once per version. Keys are in the order of their letters, here and below: a file that is there
/// already is compared byte for byte.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataFile<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ClaimMetadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_claim_name: Option<&'a str>,
    requests: Vec<RequestDevices<'a>>,
}

#[derive(Serialize)]
struct ClaimMetadata<'a> {
    generation: u64,
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
}

#[derive(Serialize)]
struct RequestDevices<'a> {
    devices: Vec<ShownDevice<'a>>,
    name: &'a str,
}

#[derive(Serialize)]
struct ShownDevice<'a> {
    attributes: &'a Attributes,
    driver: &'a str,
    name: &'a str,
    pool: &'a str,
}

/// Writes the files of a claim that has any. Those that are there already, byte for byte, become new again. Nothing is
/// made durable: a start makes them anew from the record.
///
/// # Errors
/// When a name of the claim cannot be part of a path, or a file cannot be written.
pub fn write(record: &ClaimRecord, naming: &CdiNaming) -> Result<(), MetadataError> {
    let Some(metadata) = &record.metadata else { return Ok(()) };
    let names = [&record.claim.namespace, &record.claim.name].into_iter().chain(&metadata.pod_claim_name);
    for name in names.map(String::as_str).chain(requests(record)) {
        // Nothing that leads elsewhere.
        ObjectName::new(name).map_err(|_| MetadataError::Name(name.to_owned()))?;
    }
    for request in requests(record) {
        let path = host_file(&record.claim, request, naming);
        let bytes = content(record, metadata, request, &naming.driver);
        write_file(&path, &bytes, naming).map_err(FileError::at("write", &path))?;
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8], naming: &CdiNaming) -> io::Result<()> {
    let file = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(naming)?;
            open(path)?
        }
        opened => opened?,
    };
    let length = file.metadata()?.len();
    let mut found = vec![0; bytes.len()];
    if length == bytes.len() as u64 && file.read_exact_at(&mut found, 0).is_ok() && found == bytes {
        // A sweep takes an old file for one of a claim that is gone, and a claim under way is not in the table yet.
        return file.set_modified(SystemTime::now());
    }
    if length == 0 {
        // Programs in containers are not root; the daemon's umask would take this away.
        file.set_permissions(Permissions::from_mode(0o644))?;
    }
    // One write, so that a reader sees the old content or the new one, and at most the end of a longer old one behind
    // it.
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

fn open(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(path)
}

/// Open to programs that are not root, like the files in it.
fn create_folder(naming: &CdiNaming) -> io::Result<()> {
    if let Some(plugin) = naming.metadata.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(plugin)?;
    }
    // Several claims may come first at once.
    DirBuilder::new().recursive(true).mode(0o755).create(&naming.metadata)?;
    fs::set_permissions(&naming.metadata, Permissions::from_mode(0o755))
}

/// Removes the files of a claim.
///
/// # Errors
/// When a file is there and cannot be removed.
pub fn remove(record: &ClaimRecord, naming: &CdiNaming) -> io::Result<()> {
    if record.metadata.is_none() {
        return Ok(());
    }
    for request in requests(record) {
        match fs::remove_file(host_file(&record.claim, request, naming)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Removes the files of claims that are not on record, if they were written `older_than` ago; returns how many. A
/// crash between the end of a record and that of its files leaves them, and nothing else would ever look at them.
///
/// # Errors
/// When the folder is there and cannot be read, or a file cannot be removed.
pub fn sweep(
    naming: &CdiNaming,
    older_than: Duration,
    is_recorded: impl Fn(&ClaimUid) -> bool,
) -> Result<usize, FileError> {
    let failed = |source| FileError::at("list", &naming.metadata)(source);
    let entries = match fs::read_dir(&naming.metadata) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(failed)?,
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if uid_of(&entry.file_name()).is_none_or(|uid| is_recorded(&uid)) {
            continue;
        }
        let modified = entry.metadata().and_then(|file| file.modified());
        // A clock that was set back makes a file of the future, which is left for later.
        let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= older_than));
        if is_old {
            fs::remove_file(entry.path()).map_err(FileError::at("remove", &entry.path()))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Sweeps as [`sweep`] does, and logs the outcome.
pub fn sweep_and_tell(naming: &CdiNaming, older_than: Duration, is_recorded: impl Fn(&ClaimUid) -> bool) {
    match sweep(naming, older_than, is_recorded) {
        Ok(0) => {}
        Ok(files) => info!(files, "removed metadata of claims that are not there any more"),
        Err(error) => warn!(error = %Chain(&error), "metadata of claims that are not there any more stays"),
    }
}

/// The claim of a file, if it is one of ours. A UID has no underscore.
fn uid_of(name: &OsStr) -> Option<ClaimUid> {
    let (uid, _) = name.to_str()?.strip_suffix(".json")?.split_once('_')?;
    ClaimUid::new(uid).ok()
}

#[cfg(test)]
mod tests;
