//! The kinds, and what their types do not say: how many there may be of what, which numbers must agree, and what
//! `kubectl get` shows.

use hostler_api::{
    hardware::{
        CLUSTER_HARDWARE, CLUSTER_HARDWARE_KIND, CLUSTER_HARDWARE_NAME, GROUP, MAX_MESSAGE_BYTES, MAX_ZONES,
        NODE_HARDWARE, NODE_HARDWARE_KIND, VERSION,
    },
    limits::MAX_OBJECT_NAME,
};
use serde_json::{Value, json};

/// A kind of ours.
#[derive(Debug)]
pub(crate) struct CustomKind {
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    short_names: &'static [&'static str],
    about: &'static str,
    columns: Vec<Column>,
}

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
struct Column {
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    /// Whether it is only shown with `-o wide`.
    is_wide: bool,
}

fn column(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, is_wide: false }
}

fn wide(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, is_wide: true }
}

pub(crate) fn all() -> [CustomKind; 2] {
    [
        CustomKind {
            kind: NODE_HARDWARE_KIND,
            plural: NODE_HARDWARE,
            short_names: &["nhw"],
            about: "What hardware a node has, who has it, and how it is, as hostler on that node says.",
            columns: vec![
                column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
                column("Devices", "integer", ".status.devices.capacity"),
                column("Free", "integer", ".status.devices.free"),
                column("Allocated", "integer", ".status.devices.allocated"),
                column("Held", "integer", ".status.devices.held"),
                column("Unhealthy", "integer", ".status.devices.unhealthy"),
                column("Drained", "integer", ".status.devices.drained"),
                column("Reported", "date", ".status.lastReportTime"),
                wide("Unknown", "integer", ".status.devices.unknown"),
                wide("Blocked", "integer", ".status.devices.blocked"),
                wide("Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason"),
                wide("Changed", "date", ".status.lastChangeTime"),
                wide("Version", "string", ".status.hostlerVersion"),
                wide("Kernel", "string", ".status.kernelVersion"),
                wide("Boot", "string", ".status.bootID"),
            ],
        },
        CustomKind {
            kind: CLUSTER_HARDWARE_KIND,
            plural: CLUSTER_HARDWARE,
            short_names: &["chw"],
            about: "What hardware the nodes of the cluster have together, as hostler-controller says.",
            columns: vec![
                column("Reporting", "integer", ".status.nodes.reporting"),
                column("Stale", "integer", ".status.nodes.stale"),
                column("Unknown", "integer", ".status.nodes.unknown"),
                column("Changed", "date", ".status.lastChangeTime"),
            ],
        },
    ]
}

impl CustomKind {
    pub(crate) fn crd(&self, mut schema: Value) -> Value {
        schema["description"] = json!(self.about);
        let columns: Vec<Value> = self.columns.iter().map(Column::of_crd).collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{GROUP}", self.plural),
                "labels": {"app.kubernetes.io/name": "hostler"},
            },
            "spec": {
                "group": GROUP,
                "scope": "Cluster",
                "names": {
                    "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": self.plural,
                    "singular": self.plural, "shortNames": self.short_names, "categories": ["hostler"],
                },
                "versions": [{
                    "name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
                    "additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    }
}

impl Column {
    fn of_crd(&self) -> Value {
        let mut column = json!({"name": self.name, "type": self.kind, "jsonPath": self.path});
        if self.is_wide {
            column["priority"] = json!(1);
        }
        column
    }
}

/// States that are left out where there is nothing in them.
const OPTIONAL_STATES: [&str; 6] = ["allocated", "held", "unhealthy", "drained", "unknown", "blocked"];

fn rules<const N: usize>(rules: [(&str, &str); N]) -> Value {
    let rules = rules.map(|(rule, message)| json!({"rule": rule, "message": message}));
    json!({"x-kubernetes-validations": rules.to_vec()})
}

/// What is said of fields (`Type.field`) and of types, beside what Rust says.
pub(crate) fn limits() -> Vec<(&'static str, Value)> {
    [of_objects(), of_counts(), of_fields()].concat()
}

fn of_objects() -> Vec<(&'static str, Value)> {
    let is_single = format!("self.metadata.name == '{CLUSTER_HARDWARE_NAME}'");
    let backends =
        "!has(self.backends) || self.backends.all(one, self.backends.exists_one(other, other.name == one.name))";
    let zones = "self.zones.all(one, self.zones.exists_one(other, has(one.numaNode) == has(other.numaNode) \
                 && (!has(one.numaNode) || one.numaNode == other.numaNode)))";
    vec![
        ("NodeHardware", rules([("self.metadata.name == self.spec.nodeName", "the object has the name of its node")])),
        ("ClusterHardware", rules([(&is_single, "there is one object, called cluster")])),
        ("NodeHardwareStatus", rules([(backends, "two backends have one name")])),
        ("ClassHardware", rules([(zones, "two zones are of one NUMA node")])),
    ]
}

fn of_counts() -> Vec<(&'static str, Value)> {
    let most = "more devices are allocatable than there are";
    let some = OPTIONAL_STATES.map(|it| format!("(has(self.{it}) ? self.{it} : 0)")).join(" + ");
    let some = format!("{some} <= self.capacity");
    let all = OPTIONAL_STATES.map(|it| format!("self.{it}")).join(" + ");
    let all = format!("{all} + self.free == self.capacity");
    let counts = rules([
        ("!has(self.allocatable) || self.allocatable <= self.capacity", most),
        (&some, "more devices are in some state than there are"),
    ]);
    let mut totals =
        rules([("self.allocatable <= self.capacity", most), (&all, "the devices of all states are not all devices")]);
    totals["x-kubernetes-map-type"] = json!("atomic");
    vec![("DeviceCounts", counts), ("DeviceTotals", totals)]
}

fn of_fields() -> Vec<(&'static str, Value)> {
    let name = json!({"maxLength": MAX_OBJECT_NAME, "minLength": 1});
    let time = json!({"format": "date-time", "maxLength": 64});
    let reason = json!({"maxLength": 256, "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"});
    vec![
        ("NodeHardwareSpec.nodeName", name.clone()),
        ("NodeHardwareStatus.driver", json!({"maxLength": 63})),
        ("NodeHardwareStatus.hostlerVersion", json!({"maxLength": 64})),
        ("NodeHardwareStatus.kernelVersion", json!({"maxLength": 64})),
        ("NodeHardwareStatus.bootID", json!({"maxLength": 64})),
        ("NodeHardwareStatus.backends", json!({"maxItems": 16})),
        ("NodeHardwareStatus.conditions", json!({"maxItems": 8})),
        ("NodeHardwareStatus.lastChangeTime", time.clone()),
        ("NodeHardwareStatus.lastReportTime", time.clone()),
        ("BackendHardware.name", json!({"maxLength": 63, "minLength": 1})),
        ("BackendHardware.message", json!({"maxLength": MAX_MESSAGE_BYTES})),
        ("BackendHardware.classes", json!({"maxItems": 8})),
        ("ClassHardware.name", name.clone()),
        ("ClassHardware.zones", json!({"maxItems": MAX_ZONES})),
        ("ZoneHardware.amounts", json!({"maxProperties": 32})),
        ("Condition.type", json!({"maxLength": 316, "minLength": 1})),
        ("Condition.reason", reason),
        ("Condition.message", json!({"maxLength": 1024})),
        ("Condition.lastTransitionTime", time.clone()),
        ("ClusterHardwareStatus.conditions", json!({"maxItems": 32})),
        ("ClusterHardwareStatus.classes", json!({"maxItems": 256})),
        ("ClusterHardwareStatus.lastChangeTime", time),
        ("ClusterClassCounts.name", name),
    ]
}
