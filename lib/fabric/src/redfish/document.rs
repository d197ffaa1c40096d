//! A document of a service, read loosely: a link may be an object, a list or a text, and any field may be missing.

use hostler_api::fabric::DeviceIdentity;
use serde_json::Value;

use crate::{ObjectPath, ObjectStatus};

/// Sizes in Redfish are in MiB.
pub(super) const MIB: u64 = 1 << 20;
/// The format of names that hold serial number and logical device.
const GCXLID: &str = "GCXLID";

/// A document, under the path by which it was asked for: what it says of its own path may be wrong.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) path: ObjectPath,
    pub(super) value: Value,
}

impl Document {
    pub(super) fn at(&self, fields: &[&str]) -> Option<&Value> {
        fields.iter().try_fold(&self.value, |value, field| value.get(field)).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.at(&[field])?.as_str()
    }

    pub(super) fn flag(&self, field: &str) -> bool {
        self.at(&[field]).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A size that is given in MiB, in bytes. Sizes beyond all numbers count as not told.
    pub(super) fn size_bytes(&self, field: &str) -> Option<u64> {
        self.at(&[field])?.as_u64()?.checked_mul(MIB)
    }

    pub(super) fn status(&self) -> ObjectStatus {
        let field = |name| self.at(&["Status", name]).and_then(Value::as_str).map(Into::into);
        ObjectStatus { health: field("Health"), state: field("State") }
    }

    /// Links of a field that is reached over several names.
    pub(super) fn links(&self, fields: &[&str]) -> Vec<ObjectPath> {
        self.at(fields).map(links_of).unwrap_or_default()
    }

    /// Identities among the `Identifiers` of a value. An identifier that claims the format without having it counts as
    /// none.
    pub(super) fn identities(&self) -> Vec<DeviceIdentity> {
        identities_of(&self.value)
    }

    pub(super) fn entities(&self) -> &[Value] {
        self.at(&["ConnectedEntities"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// The link to the agent that manages the object: extensions of any maker may have it.
    pub(super) fn managing_agent(&self) -> Option<ObjectPath> {
        let extensions = self.at(&["Oem"])?.as_object()?;
        extensions.values().find_map(|extension| links_of(extension.get("ManagingAgent")?).into_iter().next())
    }
}

pub(super) fn identities_of(value: &Value) -> Vec<DeviceIdentity> {
    let identifiers = value.get("Identifiers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut identities: Vec<DeviceIdentity> = identifiers
        .iter()
        .filter(|it| it.get("DurableNameFormat").and_then(Value::as_str) == Some(GCXLID))
        .filter_map(|it| it.get("DurableName")?.as_str()?.parse().ok())
        .collect();
    identities.sort();
    identities.dedup();
    identities
}

/// The links of a value: an object with `@odata.id`, a text, or a list of either.
pub(super) fn links_of(value: &Value) -> Vec<ObjectPath> {
    match value {
        Value::Array(items) => {
            let mut links = Vec::with_capacity(items.len());
            links.extend(items.iter().filter_map(link_of));
            links
        }
        _ => link_of(value).into_iter().collect(),
    }
}

fn link_of(value: &Value) -> Option<ObjectPath> {
    value.get("@odata.id").unwrap_or(value).as_str().and_then(path_of)
}

/// A path of the service itself; `None`: a link elsewhere, which is never followed. The place inside a document is cut
/// off.
pub(super) fn path_of(link: &str) -> Option<ObjectPath> {
    let path = link.split('#').next().unwrap_or_default();
    (path.starts_with('/') && !path.starts_with("//")).then(|| ObjectPath::new(path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(value: Value) -> Document {
        Document { path: ObjectPath::new("/x"), value }
    }

    #[test]
    fn a_link_is_an_object_a_list_or_a_text() {
        for (value, expected) in [
            (json!({"@odata.id": "/a/"}), vec!["/a"]),
            (json!([{"@odata.id": "/a"}, "/b", 3, null]), vec!["/a", "/b"]),
            (json!("/a#/Ports/0"), vec!["/a"]),
            (json!("http://elsewhere/a"), vec![]),
            (json!("//elsewhere/a"), vec![]),
            (json!("nonsense"), vec![]),
            (json!({"@odata.id": 3}), vec![]),
            (json!(null), vec![]),
        ] {
            let links: Vec<String> = links_of(&value).iter().map(ToString::to_string).collect();
            assert_eq!(links, expected, "{value}");
        }
    }

    #[test]
    fn fields_of_other_types_count_as_missing() {
        let odd = document(json!({"Status": "OK", "MemorySizeMiB": "8", "Id": 3, "Identifiers": {}, "Oem": []}));
        assert_eq!(odd.status(), ObjectStatus::default());
        assert_eq!((odd.size_bytes("MemorySizeMiB"), odd.text("Id"), odd.managing_agent()), (None, None, None));
        assert_eq!(odd.identities(), []);
        assert_eq!(document(json!({"M": u64::MAX})).size_bytes("M"), None);
    }

    #[test]
    fn an_identity_is_read_from_its_own_format_only() {
        let name = "4C-1D-96-FF-FE-DD-D8-35:0001";
        let found = document(json!({"Identifiers": [
            {"DurableName": name, "DurableNameFormat": "GCXLID"},
            {"DurableName": name, "DurableNameFormat": "UUID"},
            {"DurableName": "bad", "DurableNameFormat": "GCXLID"}]}));
        assert_eq!(found.identities(), [name.parse().unwrap()]);
    }
}
