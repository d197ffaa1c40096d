//! The Lease object. Fields that are not known here go back as they came.

use std::time::{Duration, SystemTime};

use hostler_cluster::{rfc3339_micros, written_at};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{LeaseRecord, SeenLease};

/// A Lease with the fields that are read here.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Lease {
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    lease_transitions: Option<i32>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Lease {
    /// Returns its version and record.
    pub(super) fn seen(&self) -> SeenLease {
        let version = self.metadata.get("resourceVersion").and_then(Value::as_str).unwrap_or_default();
        SeenLease {
            version: version.to_owned(),
            record: LeaseRecord {
                holder: self.spec.holder_identity.clone().unwrap_or_default(),
                duration: Duration::from_secs(
                    self.spec.lease_duration_seconds.map_or(0, |seconds| seconds.max(0).unsigned_abs()).into(),
                ),
                transitions: self.spec.lease_transitions.unwrap_or_default(),
            },
        }
    }

    /// Time of its last write by the API server's clock, since 1970.
    pub(super) fn written_at(&self) -> Option<Duration> {
        written_at(self.metadata.get("managedFields")?)
    }

    /// Returns the object with another record, over the version that was seen.
    pub(super) fn written(
        &self,
        namespace: &str,
        name: &str,
        over: Option<&str>,
        record: &LeaseRecord,
        is_new_term: bool,
    ) -> Value {
        let mut metadata = self.metadata.clone();
        metadata.extend([("name".to_owned(), json!(name)), ("namespace".to_owned(), json!(namespace))]);
        match over {
            Some(version) => metadata.insert("resourceVersion".to_owned(), json!(version)),
            None => metadata.remove("resourceVersion"),
        };
        // The times are for people; no decision here uses them.
        let now = json!(rfc3339_micros(SystemTime::now()));
        let mut spec = self.spec.rest.clone();
        spec.insert("renewTime".to_owned(), now.clone());
        if is_new_term {
            spec.insert("acquireTime".to_owned(), now);
        }
        let spec = LeaseSpec {
            holder_identity: Some(record.holder.clone()),
            lease_duration_seconds: Some(i32::try_from(record.duration.as_secs()).unwrap_or(i32::MAX)),
            lease_transitions: Some(record.transitions),
            rest: spec,
        };
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec })
    }
}
