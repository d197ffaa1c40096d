//! The handle in a call: the allocation of a claim. Pure.

use hostler_api::{
    Allocation,
    classic::{HandleData, HandleError, MAX_HANDLE_BYTES},
    resource::AllocationError,
};

/// The allocation in a call.
#[derive(Debug)]
pub(super) enum CallHandle {
    /// No allocation.
    Missing,
    /// Structured parameters: the scheduler allocated the claim.
    Structured,
    /// The text that a controller wrote.
    Written(String),
}

/// Reason why a handle yields no allocation. The field is `status.allocation.resourceHandle` in 1.26.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandleRefusal {
    /// The claim has no handle for this driver.
    #[error(
        "field status.allocation.resourceHandles: the claim has no handle for driver {driver}; its ResourceClass must have \
         driverName: {driver}, and hostler's controller must have allocated the claim"
    )]
    Missing {
        /// This driver.
        driver: String,
    },
    /// Another kind of allocation.
    #[error(
        "field status.allocation.resourceHandles[].structuredData: the scheduler allocated the claim by structured \
         parameters, which hostler does not have in 1.30; leave structuredParameters out of the ResourceClass"
    )]
    Structured,
    /// The handle is too large: hostler's controller never writes such a handle, nor would an API server take it.
    #[error(
        "field status.allocation.resourceHandles[].data: it has {bytes} bytes, and {MAX_HANDLE_BYTES} are allowed; delete the \
         pods of the claim to have it allocated anew"
    )]
    TooLarge {
        /// Size of the handle.
        bytes: usize,
    },
    /// The handle is not hostler's, or is damaged.
    #[error(
        "field status.allocation.resourceHandles[].data: it is damaged, or another controller's; delete the pods of the claim \
         to have it allocated anew by hostler's controller"
    )]
    Damaged(#[source] HandleError),
    /// The handle's version is not known.
    #[error(
        "field status.allocation.resourceHandles[].data: it is of another version than this daemon's; update hostler on the \
         node to the version of its controller"
    )]
    OtherVersion(#[source] HandleError),
    /// The handle is for another node, whose kubelet should have called.
    #[error(
        "field status.allocation.resourceHandles[].data: it is for node {found}, and this is node {node}; let node_name in \
         hostler.toml be the name of the Node object"
    )]
    OtherNode {
        /// Node of the handle.
        found: String,
        /// Node of this daemon.
        node: String,
    },
    /// The handle allocates nothing of this driver, or a value in it is not valid.
    #[error("field status.allocation.resourceHandles[].data: what it allocates cannot be used")]
    Allocation(#[source] AllocationError),
    /// Several handles are for this driver; nothing tells which of them counts.
    #[error(
        "field status.allocation.resourceHandles: several handles are for this driver, and hostler's controller writes one; \
         delete the pods of the claim to have it allocated anew"
    )]
    SeveralHandles,
}

impl CallHandle {
    /// Reads the two fields of a call.
    pub(super) fn new(text: String, structured: &[Vec<u8>]) -> Self {
        match (text.is_empty(), structured.is_empty()) {
            (_, false) => Self::Structured,
            (true, true) => Self::Missing,
            (false, true) => Self::Written(text),
        }
    }

    /// The allocation of the claim by `driver` on `node`. It has no devices if the claim's requests can do without, and
    /// got none.
    pub(super) fn allocation(self, driver: &str, node: &str) -> Result<Allocation, HandleRefusal> {
        let text = match self {
            Self::Written(text) if text.len() > MAX_HANDLE_BYTES => {
                return Err(HandleRefusal::TooLarge { bytes: text.len() });
            }
            Self::Written(text) => text,
            Self::Structured => return Err(HandleRefusal::Structured),
            Self::Missing => return Err(HandleRefusal::Missing { driver: driver.to_owned() }),
        };
        let handle = HandleData::from_text(&text).map_err(unusable)?;
        if handle.node != node {
            return Err(HandleRefusal::OtherNode { found: handle.node, node: node.to_owned() });
        }
        if handle.results.is_empty() && !handle.absent.is_empty() {
            return Ok(Allocation::default());
        }
        let grants = handle.allocation().grants(driver).map_err(HandleRefusal::Allocation)?;
        Ok(Allocation { grants, ..Allocation::default() })
    }
}

fn unusable(error: HandleError) -> HandleRefusal {
    match error {
        HandleError::Unknown { .. } => HandleRefusal::OtherVersion(error),
        HandleError::Unreadable(_) | HandleError::TooLarge { .. } => HandleRefusal::Damaged(error),
    }
}

#[cfg(test)]
mod tests {
    use hostler_api::Chain;
    use serde_json::{Value, json};

    use super::*;

    fn handle(node: &str, driver: &str) -> Value {
        json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ResourceHandle", "node": node, "results": [
            {"request": "cpus", "driver": driver, "pool": "n1/cpu", "device": "numa-0", "shareID": "s",
                "consumedCapacity": {"cpus": "2"}}]})
    }

    fn read(text: &impl ToString) -> Result<Allocation, String> {
        let handle = CallHandle::new(text.to_string(), &[]);
        handle.allocation("hostler.dev", "n1").map_err(|error| Chain(&error).to_string())
    }

    #[test]
    fn a_handle_says_all_that_a_node_needs() {
        let allocation = read(&handle("n1", "hostler.dev")).unwrap();
        let [grant] = &*allocation.grants else { panic!("{allocation:?}") };
        assert_eq!((grant.pool.as_str(), grant.device.as_str(), grant.consumed.len()), ("n1/cpu", "numa-0", 1));
    }

    #[test]
    fn a_claim_that_can_do_without_devices_has_none() {
        let empty = |absent: Value| {
            json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ResourceHandle", "node": "n1", "results": [],
                "absent": absent})
        };
        assert_eq!(read(&empty(json!(["fpga"]))).unwrap(), Allocation::default());
        assert!(read(&empty(json!([]))).unwrap_err().contains("none of them has driver"));
    }

    #[test]
    fn what_cannot_be_used_says_which_field_and_what_to_do() {
        let newer = json!({"apiVersion": "hostler.dev/v9", "kind": "ResourceHandle", "node": "n1"});
        let whole = handle("n1", "hostler.dev").to_string();
        for (text, field, words) in [
            (String::new(), ":", "hostler's controller must have allocated"),
            ("x".repeat(MAX_HANDLE_BYTES + 1), "[].data:", "16385 bytes, and 16384 are allowed; delete the pods"),
            ("numa0,numa1".to_owned(), "[].data:", "it is damaged, or another controller's"),
            (whole[..whole.len() / 2].to_owned(), "[].data:", "EOF"),
            (r#"{"gpus": ["gpu-0"]}"#.to_owned(), "[].data:", "missing field"),
            (newer.to_string(), "[].data:", "hostler.dev/v9"),
            (handle("n2", "hostler.dev").to_string(), "[].data:", "for node n2, and this is node n1"),
            (handle("n1", "gpu.example.com").to_string(), "[].data:", "none of them has driver \"hostler.dev\""),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(&format!("field status.allocation.resourceHandles{field}")), "{error}");
            assert!(error.contains(words), "{error}");
        }
        let structured = CallHandle::new(String::new(), &[vec![1]]).allocation("hostler.dev", "n1");
        assert!(matches!(structured, Err(HandleRefusal::Structured)));
    }
}
