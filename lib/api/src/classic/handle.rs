//! The resource handle: a controller's message to a node about a claim that it allocated.
//!
//! Until 1.30 the handle is a text, and all that a node gets to know. In 1.31 the node reads the claim, whose results
//! have no place for shares: there the handle is a configuration for the driver, beside the others.

use serde::{Deserialize, Serialize};

use super::AllocationResultV1Alpha3;
use crate::{
    resource::{
        AllocationConfigSource, AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
        DeviceRequestAllocationResult, OpaqueDeviceConfiguration, or_empty,
    },
    well_known::HOSTLER_API_VERSION,
};

/// The kind of a handle.
pub const HANDLE_KIND: &str = "ResourceHandle";
/// Bytes of one handle that the API server accepts.
pub const MAX_HANDLE_BYTES: usize = 16 * 1024;

/// All that a node needs of a claim. Nothing in it changes with a boot of the node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleData {
    /// `hostler.dev/v1alpha1`.
    pub api_version: String,
    /// `ResourceHandle`.
    pub kind: String,
    /// The node that the devices were chosen for.
    pub node: String,
    /// The devices.
    #[serde(default, deserialize_with = "or_empty")]
    pub results: Vec<DeviceRequestAllocationResult>,
    /// Configuration, that of classes first; empty where it stands beside the handle.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceAllocationConfiguration>,
    /// Requests that can do without devices, and got none.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
}

/// Error of writing or reading a handle.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    /// The handle is longer than the API server accepts.
    #[error(
        "the resource handle would have {bytes} bytes, and {MAX_HANDLE_BYTES} are allowed; make the configuration of the \
         claim's and the class's parameters smaller"
    )]
    TooLarge {
        /// Bytes that the handle would have.
        bytes: usize,
    },
    /// The text is no handle of hostler.
    #[error("failed to read the resource handle")]
    Unreadable(#[source] serde_json::Error),
    /// The handle is of an unknown version.
    #[error(
        "the resource handle is {kind} of {api_version}; this version reads {HANDLE_KIND} of {HOSTLER_API_VERSION}"
    )]
    Unknown {
        /// Version of the handle.
        api_version: String,
        /// Kind of the handle.
        kind: String,
    },
}

impl HandleData {
    /// A handle of this version.
    pub fn new(node: impl Into<String>, devices: DeviceAllocationResult, absent: Vec<String>) -> Self {
        let DeviceAllocationResult { results, config } = devices;
        let (api_version, kind) = (HOSTLER_API_VERSION.to_owned(), HANDLE_KIND.to_owned());
        Self { api_version, kind, node: node.into(), results, config, absent }
    }

    /// Returns the handle as text.
    ///
    /// # Errors
    /// When the text is too long.
    pub fn to_text(&self) -> Result<String, HandleError> {
        let text = serde_json::to_string(self).map_err(HandleError::Unreadable)?;
        if text.len() > MAX_HANDLE_BYTES { Err(HandleError::TooLarge { bytes: text.len() }) } else { Ok(text) }
    }

    /// Reads a handle from its text.
    ///
    /// # Errors
    /// When the text is no handle of hostler.
    pub fn from_text(text: &str) -> Result<Self, HandleError> {
        serde_json::from_str(text).map_err(HandleError::Unreadable).and_then(Self::checked)
    }

    fn checked(self) -> Result<Self, HandleError> {
        if self.api_version == HOSTLER_API_VERSION && self.kind == HANDLE_KIND {
            return Ok(self);
        }
        Err(HandleError::Unknown { api_version: self.api_version, kind: self.kind })
    }

    /// Returns the handle as an allocation of today.
    pub fn allocation(self) -> AllocationResult {
        AllocationResult {
            devices: DeviceAllocationResult { results: self.results, config: self.config },
            node_selector: Some(crate::core::NodeSelector::of_node(self.node)),
            allocation_timestamp: None,
        }
    }
}

impl AllocationResultV1Alpha3 {
    /// Allocation that the controller of `driver` writes. A result keeps the fields that 1.31 knows.
    ///
    /// # Errors
    /// When the part that 1.31 has no fields for is too long.
    pub fn of_controller(driver: &str, allocation: &AllocationResult, handle: HandleData) -> Result<Self, HandleError> {
        let handle = HandleData { config: Vec::new(), ..handle };
        handle.to_text()?;
        let parameters = serde_json::to_value(&handle).map_err(HandleError::Unreadable)?;
        let opaque = OpaqueDeviceConfiguration { driver: driver.to_owned(), parameters };
        let mut config = allocation.devices.config.clone();
        config.push(DeviceAllocationConfiguration {
            source: AllocationConfigSource::FromClaim,
            requests: Vec::new(),
            opaque: Some(opaque),
        });
        let results = allocation.devices.results.iter().map(known_to_1_31).collect();
        Ok(Self {
            devices: DeviceAllocationResult { results, config },
            node_selector: allocation.node_selector.clone(),
            controller: driver.to_owned(),
        })
    }

    /// Returns the same as an allocation of today: for devices of `driver` the results in its handle count, and the
    /// handle is left out of the configuration.
    ///
    /// # Errors
    /// When there is a handle, of a version that is not known.
    pub fn modern(&self, driver: &str) -> Result<AllocationResult, HandleError> {
        let mut config = self.devices.config.clone();
        // Users can write such a configuration too: only the last one counts, and only where the controller allocated.
        let last = config.pop_if(|config| self.controller == driver && is_handle(config, driver));
        let mut results = self.devices.results.clone();
        if let Some(opaque) = last.and_then(|config| config.opaque) {
            let handle: HandleData = serde_json::from_value(opaque.parameters).map_err(HandleError::Unreadable)?;
            results.retain(|result| result.driver != driver);
            results.extend(handle.checked()?.results);
        }
        let devices = DeviceAllocationResult { results, config };
        Ok(AllocationResult { devices, node_selector: self.node_selector.clone(), allocation_timestamp: None })
    }
}

fn known_to_1_31(result: &DeviceRequestAllocationResult) -> DeviceRequestAllocationResult {
    let DeviceRequestAllocationResult { request, driver, pool, device, .. } = result.clone();
    DeviceRequestAllocationResult { request, driver, pool, device, ..DeviceRequestAllocationResult::default() }
}

fn is_handle(config: &DeviceAllocationConfiguration, driver: &str) -> bool {
    let opaque = config.opaque.as_ref().filter(|opaque| opaque.driver == driver);
    opaque.is_some_and(|opaque| opaque.parameters["kind"] == HANDLE_KIND)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allocation() -> AllocationResult {
        serde_json::from_value(json!({
            "devices": {
                "results": [{"request": "r", "driver": "d", "pool": "p", "device": "a", "shareID": "s",
                    "consumedCapacity": {"cpus": "2"}}],
                "config": [{"source": "FromClass", "opaque": {"driver": "d", "parameters": {"kind": "CpuConfig"}}}],
            },
            "nodeSelector": crate::core::NodeSelector::of_node("n"),
        }))
        .unwrap()
    }

    #[test]
    fn a_handle_is_read_as_it_was_written() {
        let handle = HandleData::new("n", allocation().devices, vec!["extra".to_owned()]);
        let read = HandleData::from_text(&handle.to_text().unwrap()).unwrap();
        assert_eq!(read, handle);
        assert_eq!(read.allocation(), allocation());
    }

    #[test]
    fn a_handle_that_the_api_server_would_refuse_is_not_made() {
        let mut devices = allocation().devices;
        devices.config[0].opaque.as_mut().unwrap().parameters = json!("x".repeat(MAX_HANDLE_BYTES));
        let error = HandleData::new("n", devices, Vec::new()).to_text().unwrap_err();
        assert!(error.to_string().contains("16384 are allowed"), "{error}");
    }

    #[test]
    fn what_is_no_handle_of_ours_says_so() {
        assert!(matches!(HandleData::from_text("numa0,numa1"), Err(HandleError::Unreadable(_))));
        let newer = r#"{"apiVersion": "hostler.dev/v9", "kind": "ResourceHandle", "node": "n"}"#;
        assert!(HandleData::from_text(newer).unwrap_err().to_string().contains("hostler.dev/v9"));
    }

    #[test]
    fn in_1_31_shares_are_in_a_configuration_of_the_driver() {
        let handle = HandleData::new("n", allocation().devices, Vec::new());
        let written = AllocationResultV1Alpha3::of_controller("d", &allocation(), handle).unwrap();
        let result = serde_json::to_value(&written.devices.results[0]).unwrap();
        assert_eq!(result, json!({"request": "r", "driver": "d", "pool": "p", "device": "a"}));
        assert_eq!(written.devices.config.len(), 2);
        assert_eq!(written.modern("d").unwrap(), allocation());
        assert_eq!(written.modern("other").unwrap().devices.config.len(), 2);
    }

    #[test]
    fn a_handle_that_a_user_wrote_gives_nothing() {
        let stolen =
            HandleData::new("n", DeviceAllocationResult { config: Vec::new(), ..allocation().devices }, Vec::new());
        let of_user = DeviceAllocationConfiguration {
            source: AllocationConfigSource::FromClaim,
            requests: Vec::new(),
            opaque: Some(OpaqueDeviceConfiguration {
                driver: "d".to_owned(),
                parameters: serde_json::to_value(&stolen).unwrap(),
            }),
        };
        let devices = DeviceAllocationResult { results: Vec::new(), config: vec![of_user] };
        let given = AllocationResult { devices: devices.clone(), ..AllocationResult::default() };
        let handle = HandleData::new("n", devices.clone(), Vec::new());
        let written = AllocationResultV1Alpha3::of_controller("d", &given, handle).unwrap();
        assert!(written.modern("d").unwrap().devices.results.is_empty());
        let by_scheduler = AllocationResultV1Alpha3 { devices, ..AllocationResultV1Alpha3::default() };
        assert!(by_scheduler.modern("d").unwrap().devices.results.is_empty());
    }
}
