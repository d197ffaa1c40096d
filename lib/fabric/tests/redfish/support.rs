//! What the tests share: settings, requests, and waiting for a state with an end.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use hostler_api::fabric::DeviceIdentity;
use hostler_fabric::{
    AttachKey, AttachRequest, ExpectedConnection, FabricConnection, FabricOutcome, FabricProvider,
    redfish::{RedfishProvider, RedfishSettings},
};
use hostler_testing::redfish::{PlayedRedfish, device_text, host_uuid};

/// The longest wait. A machine with other work on it is slow, and a test that passes does not wait for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings that allow plain HTTP, and give up early.
pub(crate) fn settings(service: &PlayedRedfish) -> RedfishSettings {
    RedfishSettings { address: service.url(), allow_plain_http: true, write_seconds: 2, ..RedfishSettings::default() }
}

pub(crate) fn provider(service: &PlayedRedfish) -> RedfishProvider {
    RedfishProvider::new(&settings(service)).unwrap()
}

pub(crate) fn key(text: &str) -> AttachKey {
    AttachKey::new(text).unwrap()
}

/// The connection of a key, as the caller of an isolation expects it.
pub(crate) fn by_key(text: &str) -> ExpectedConnection {
    ExpectedConnection::Key(key(text))
}

pub(crate) fn device(at: u32) -> DeviceIdentity {
    device_text(at).parse().unwrap()
}

pub(crate) fn request(name: &str, host: u32, at: u32) -> AttachRequest {
    AttachRequest { key: key(name), host: host_uuid(host).parse().unwrap(), device: device(at), memory: None }
}

pub(crate) async fn attach(
    provider: &RedfishProvider,
    name: &str,
    host: u32,
    at: u32,
) -> FabricOutcome<FabricConnection> {
    provider.attach(&request(name, host, at)).await.unwrap()
}

/// An outcome as its kind and reason.
pub(crate) fn text<T>(outcome: &FabricOutcome<T>) -> String {
    match outcome {
        FabricOutcome::Done(_) => "Done".to_owned(),
        FabricOutcome::UnderWay(_) => "UnderWay".to_owned(),
        FabricOutcome::NotDone { reason } => format!("NotDone: {reason}"),
        FabricOutcome::Unknown { reason } => format!("Unknown: {reason}"),
    }
}

/// Asks until the answer is yes.
pub(crate) async fn until(mut asks: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !asks().await {
        assert!(begin.elapsed() < PATIENCE, "it never came");
    }
}

/// Writes a folder with credentials.
pub(crate) fn write_login(folder: &Path, user: &str, password: &str) {
    fs::write(folder.join("username"), user).unwrap();
    fs::write(folder.join("password"), password).unwrap();
}
