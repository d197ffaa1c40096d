//! The kinds, and what their types do not say: how many there may be of what, which numbers must agree, and what
//! `kubectl get` shows.

mod fabric;

use hostler_api::{
    classic::{CLAIM_PARAMETERS_KIND, CLASS_PARAMETERS_KIND},
    hardware::{
        CLUSTER_HARDWARE, CLUSTER_HARDWARE_KIND, CLUSTER_HARDWARE_NAME, GROUP, MAX_HOLDS, MAX_MESSAGE_BYTES,
        MAX_OFFERED_SLICES, MAX_ZONES, NODE_HARDWARE, NODE_HARDWARE_KIND, VERSION,
    },
    limits::MAX_OBJECT_NAME,
    reservation::{
        MAX_DEVICE_CLAIMS, MAX_PAST_EVICTIONS, MAX_REPLICAS, MAX_RESERVED_DEVICES, RESERVATION_KIND, RESERVATIONS,
    },
};
use serde_json::{Value, json};

use crate::opaque;

/// A kind of ours.
#[derive(Clone, Debug)]
pub(crate) struct CustomKind {
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// Where its definition is, below `deploy/crds`.
    pub(crate) folder: &'static str,
    scope: &'static str,
    has_status: bool,
    short_names: &'static [&'static str],
    about: &'static str,
    columns: Vec<Column>,
    /// Fields that objects can be selected by.
    selectable: &'static [&'static str],
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

pub(crate) fn all() -> Vec<CustomKind> {
    [kinds_of_hardware(), kinds_of_parameters(), vec![reservations(), fabric::attachments()]].concat()
}

fn kinds_of_hardware() -> Vec<CustomKind> {
    vec![
        CustomKind {
            kind: NODE_HARDWARE_KIND,
            plural: NODE_HARDWARE,
            folder: "",
            scope: "Cluster",
            has_status: true,
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
            selectable: &[],
        },
        CustomKind {
            kind: CLUSTER_HARDWARE_KIND,
            plural: CLUSTER_HARDWARE,
            folder: "",
            scope: "Cluster",
            has_status: true,
            short_names: &["chw"],
            about: "What hardware the nodes of the cluster have together, as hostler-controller says.",
            columns: vec![
                column("Reporting", "integer", ".status.nodes.reporting"),
                column("Stale", "integer", ".status.nodes.stale"),
                column("Unknown", "integer", ".status.nodes.unknown"),
                column("Changed", "date", ".status.lastChangeTime"),
            ],
            selectable: &[],
        },
    ]
}

/// What claims and classes of 1.26 to 1.30 name.
fn kinds_of_parameters() -> Vec<CustomKind> {
    vec![
        CustomKind {
            kind: CLAIM_PARAMETERS_KIND,
            plural: "claimparameters",
            folder: "classic",
            scope: "Namespaced",
            has_status: false,
            short_names: &[],
            about: "What claims that name it ask for, in clusters of 1.26 to 1.30.",
            columns: vec![
                column("Classes", "string", ".spec.requests[*].deviceClassName"),
                column("Shareable", "boolean", ".spec.shareable"),
                column("Age", "date", ".metadata.creationTimestamp"),
            ],
            selectable: &[],
        },
        CustomKind {
            kind: CLASS_PARAMETERS_KIND,
            plural: "classparameters",
            folder: "classic",
            scope: "Cluster",
            has_status: false,
            short_names: &[],
            about: "What all claims of a ResourceClass that names it get, in clusters of 1.26 to 1.30.",
            columns: vec![column("Age", "date", ".metadata.creationTimestamp")],
            selectable: &[],
        },
    ]
}

fn reservations() -> CustomKind {
    CustomKind {
        kind: RESERVATION_KIND,
        plural: RESERVATIONS,
        folder: "",
        scope: "Cluster",
        has_status: true,
        short_names: &["rsv"],
        about: "Devices that hostler-controller keeps for somebody who comes later.",
        columns: vec![
            column("Phase", "string", ".status.phase"),
            column("Node", "string", ".status.nodeName"),
            column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].reason"),
            column("Held", "integer", ".status.held"),
            column("Owners", "string", ".status.currentOwners[*].name"),
            column("TTL", "string", ".spec.ttl"),
            column("Expires", "string", ".spec.expires"),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide("Allocatable", "string", ".status.allocatable"),
            wide("Value", "string", ".status.tolerationValue"),
            wide("Message", "string", ".status.conditions[?(@.type==\"Ready\")].message"),
        ],
        selectable: &[],
    }
}

impl CustomKind {
    pub(crate) fn crd(&self, mut schema: Value) -> Value {
        schema["description"] = json!(self.about);
        let columns: Vec<Value> = self.columns.iter().map(Column::of_crd).collect();
        let mut version = json!({
            "name": VERSION, "served": true, "storage": true, "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": schema},
        });
        if !self.selectable.is_empty() {
            let fields: Vec<Value> = self.selectable.iter().map(|path| json!({"jsonPath": path})).collect();
            version["selectableFields"] = json!(fields);
        }
        if self.has_status {
            version["subresources"] = json!({"status": {}});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{GROUP}", self.plural),
                "labels": {"app.kubernetes.io/name": "hostler"},
            },
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": {
                    "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": self.plural,
                    "singular": self.kind.to_lowercase(), "shortNames": self.short_names, "categories": ["hostler"],
                },
                "versions": [version],
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
    [
        of_objects(),
        of_counts(),
        of_fields(),
        of_grants(),
        of_requests(),
        of_parameters(),
        of_reservation_rules(),
        of_reservation_specs(),
        of_reservation_statuses(),
        fabric::limits(),
    ]
    .concat()
}

fn of_objects() -> Vec<(&'static str, Value)> {
    let is_single = format!("self.metadata.name == '{CLUSTER_HARDWARE_NAME}'");
    let backends =
        "!has(self.backends) || self.backends.all(one, self.backends.exists_one(other, other.name == one.name))";
    let zones = "self.zones.all(one, self.zones.exists_one(other, has(one.numaNode) == has(other.numaNode) \
                 && (!has(one.numaNode) || one.numaNode == other.numaNode)))";
    let is_of_node = "!has(self.spec.nodeName) || self.metadata.name == self.spec.nodeName";
    vec![
        ("NodeHardware", rules([(is_of_node, "the object has the name of its node")])),
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
        (
            "NodeHardwareSpec.holds",
            json!({"maxItems": MAX_HOLDS, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["pool", "device"]}),
        ),
        ("NodeHold.pool", name.clone()),
        ("NodeHold.device", json!({"maxLength": 63, "minLength": 1})),
        ("NodeHold.value", json!({"maxLength": 16, "pattern": "^[0-9a-f]{16}$"})),
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
        ("NodeHardwareStatus.slices", json!({"maxItems": MAX_OFFERED_SLICES})),
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

/// What the API takes of a list of a claim.
const MOST: usize = 32;
/// What the API takes of an expression, and of all parameters of one configuration.
const MOST_BYTES_OF_AN_EXPRESSION: usize = 10 * 1024;

/// What was given of a node is as in the status of a claim, where more may be in it than this version knows.
fn of_grants() -> Vec<(&'static str, Value)> {
    let result = "DeviceRequestAllocationResult";
    let amounts = json!({"maxProperties": MOST, "additionalProperties": {"type": "string", "maxLength": 64}});
    let names = json!({"maxItems": 8, "items": {"type": "string", "maxLength": 316}});
    vec![
        ("NodeHardwareSpec.claims", json!({"maxProperties": 4096})),
        ("NodeGrant.namespace", json!({"maxLength": 63})),
        ("NodeGrant.name", json!({"maxLength": MAX_OBJECT_NAME})),
        ("NodeGrant.claimVersion", json!({"maxLength": 64})),
        ("NodeGrant.devices", json!({"maxItems": 128})),
        (result, json!({"x-kubernetes-preserve-unknown-fields": true})),
        ("DeviceRequestAllocationResult.request", json!({"maxLength": 127})),
        ("DeviceRequestAllocationResult.driver", json!({"maxLength": 63})),
        ("DeviceRequestAllocationResult.pool", json!({"maxLength": MAX_OBJECT_NAME})),
        ("DeviceRequestAllocationResult.device", json!({"maxLength": 63})),
        ("DeviceRequestAllocationResult.shareID", json!({"maxLength": 36})),
        ("DeviceRequestAllocationResult.consumedCapacity", amounts),
        ("DeviceRequestAllocationResult.tolerations", json!({"maxItems": 16})),
        ("DeviceRequestAllocationResult.bindingConditions", names.clone()),
        ("DeviceRequestAllocationResult.bindingFailureConditions", names),
        ("DeviceToleration.key", json!({"maxLength": 316})),
        ("DeviceToleration.operator", json!({"maxLength": 16})),
        ("DeviceToleration.value", json!({"maxLength": 63})),
        ("DeviceToleration.effect", json!({"maxLength": 16})),
    ]
}

fn of_requests() -> Vec<(&'static str, Value)> {
    let names = json!({"maxItems": MOST, "items": {"type": "string", "maxLength": 63}});
    let capacities =
        json!({"maxProperties": MOST, "additionalProperties": {"type": "string", "maxLength": 32, "minLength": 1}});
    let attribute = json!({"maxLength": 96});
    let count = rules([(
        "!has(self.count) || self.allocationMode == 'ExactCount'",
        "count is for allocationMode ExactCount; leave one of both out",
    )]);
    vec![
        ("ExactDeviceRequest", count),
        ("ExactDeviceRequest.deviceClassName", json!({"maxLength": MAX_OBJECT_NAME, "default": ""})),
        ("ExactDeviceRequest.allocationMode", json!({"default": "ExactCount"})),
        ("ExactDeviceRequest.count", json!({"minimum": 1})),
        ("ExactDeviceRequest.selectors", json!({"maxItems": MOST})),
        ("ExactDeviceRequest.tolerations", json!({"maxItems": 16})),
        ("CelDeviceSelector.expression", json!({"maxLength": MOST_BYTES_OF_AN_EXPRESSION, "minLength": 1})),
        ("CapacityRequirements.requests", capacities),
        ("DeviceConstraint.requests", names.clone()),
        ("DeviceConstraint.matchAttribute", attribute.clone()),
        ("DeviceConstraint.distinctAttribute", attribute),
        ("DeviceClaimConfiguration.requests", names),
        ("OpaqueDeviceConfiguration", opaque::rules()),
        ("OpaqueDeviceConfiguration.driver", json!({"maxLength": 63, "minLength": 1})),
        ("OpaqueDeviceConfiguration.parameters", json!({"properties": opaque::properties()})),
    ]
}

fn of_parameters() -> Vec<(&'static str, Value)> {
    let known = |of: &str| {
        format!(
            "!has(self.{of}) || self.{of}.all(one, !has(one.requests) || one.requests.all(name, \
                 self.requests.exists(request, request.name == name)))"
        )
    };
    let (constraints, config) = (known("constraints"), known("config"));
    let references = rules([
        (&constraints, "a constraint is about a request that there is not; write the name of one, or none for all"),
        (&config, "a configuration is for a request that there is not; write the name of one, or none for all"),
    ]);
    let by_name = json!({
        "minItems": 1, "maxItems": MOST, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
    });
    let name = json!({"maxLength": 63, "minLength": 1, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"});
    vec![
        ("ClaimParametersSpec", references),
        ("ClaimParametersSpec.shareable", json!({"default": true})),
        ("ClaimParametersSpec.requests", by_name),
        ("ClaimParametersSpec.constraints", json!({"maxItems": MOST})),
        ("ClaimParametersSpec.config", json!({"maxItems": MOST})),
        ("ParameterRequest.name", name),
        ("ClassParametersSpec.selectors", json!({"maxItems": MOST})),
        ("ClassParametersSpec.config", json!({"maxItems": MOST})),
    ]
}

/// What is asked for is planned anew where it changes: that is done before anybody relies on it, and not after.
fn of_reservation_rules() -> Vec<(&'static str, Value)> {
    // Claims, of the other mode, never change what they ask for.
    let is_open = "((!has(oldSelf.spec.mode) || oldSelf.spec.mode != 'SharedClaim') && (!has(oldSelf.status) || \
                   !has(oldSelf.status.phase) || oldSelf.status.phase in ['Pending', 'Waiting']))";
    let fixed = |field: &str| {
        format!(
            "{is_open} || (has(self.spec.{field}) == has(oldSelf.spec.{field}) && (!has(self.spec.{field}) || \
             self.spec.{field} == oldSelf.spec.{field}))"
        )
    };
    let (template, claims) = (fixed("template"), fixed("deviceClaims"));
    // A pod that was evicted for it stays evicted.
    let replaces = "has(self.spec.replaces) == has(oldSelf.spec.replaces) && (!has(self.spec.replaces) || \
                    self.spec.replaces == oldSelf.spec.replaces)";
    let mode = "(has(self.spec.mode) ? self.spec.mode : 'Fence') == \
                (has(oldSelf.spec.mode) ? oldSelf.spec.mode : 'Fence')";
    let fixed_for =
        "cannot change once the Reservation is Available, nor with mode SharedClaim; make another Reservation";
    let (template_is_fixed, claims_are_fixed) =
        (format!("spec.template {fixed_for}"), format!("spec.deviceClaims {fixed_for}"));
    let changes = rules([
        (replaces, "spec.replaces cannot change; make another Reservation"),
        (&template, &template_is_fixed),
        (&claims, &claims_are_fixed),
        (mode, "spec.mode cannot change; make another Reservation"),
    ]);
    let spec = of_specs_of_reservations();
    let owner = rules([(
        "has(self.object) || has(self.controller) || has(self.labelSelector) || has(self.provisioningRequest)",
        "it is about nobody; write object, controller, labelSelector or provisioningRequest",
    )]);
    // What is not written does not matter: whoever leaves all out would mean every pod there is. `namespace` is a word of CEL.
    let says = |fields: &[&str]| {
        fields.iter().map(|field| format!("(has(self.{field}) && self.{field} != '')")).collect::<Vec<_>>().join(" || ")
    };
    let (object, controller) =
        (says(&["__namespace__", "name", "uid"]), says(&["kind", "__namespace__", "name", "uid"]));
    let object = rules([(&*object, "it is about every pod; write namespace, name or uid of the one that is meant")]);
    let controller = rules([(
        &*controller,
        "it is about every pod that anything made; write kind, namespace, name or uid of what made those that are meant",
    )]);
    let selector = rules([(
        "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
        "values are for In and NotIn, which need one at least",
    )]);
    vec![
        ("Reservation", changes),
        ("ReservationSpec", spec),
        ("ReservationOwner", owner),
        ("OwnerObject", object),
        ("OwnerController", controller),
        ("LabelSelectorRequirement", selector),
    ]
}

/// What does not go together.
fn of_specs_of_reservations() -> Value {
    let with_shared = |must: &str| format!("!has(self.mode) || self.mode != 'SharedClaim' || {must}");
    let (one, no_victims, nobody, not_once, template) = (
        with_shared("!has(self.replicas) || self.replicas == 1"),
        with_shared("!has(self.preAllocation) || !self.preAllocation"),
        with_shared("((!has(self.preemptionPolicy) || self.preemptionPolicy == 'Never') && !has(self.replaces))"),
        with_shared("(has(self.allocateOnce) && !self.allocateOnce)"),
        with_shared("has(self.template)"),
    );
    rules([
        (&one, "with mode SharedClaim all pods have the same devices; write replicas: 1, or mode: Fence"),
        (&no_victims, "mode SharedClaim takes what is free; leave preAllocation out, or write mode: Fence"),
        (&nobody, "mode SharedClaim evicts nobody; leave preemptionPolicy and replaces out, or write mode: Fence"),
        (&not_once, "mode SharedClaim is for one owner after the other; write allocateOnce: false, or mode: Fence"),
        (
            &template,
            "mode SharedClaim makes claims for pods; write the pods' namespace into template.metadata.namespace",
        ),
        (
            // The default is there beside every `expires`.
            "!has(self.expires) || !has(self.ttl) || self.ttl in ['0', '0s', '24h']",
            "ttl and expires contradict each other; leave one of both out",
        ),
        (
            "!has(self.restrictedResources) || self.restrictedResources.size() == 0 || (has(self.allocatePolicy) && \
             self.allocatePolicy == 'Restricted')",
            "restrictedResources says what is Restricted; write allocatePolicy: Restricted, or leave it out",
        ),
        (
            "has(self.template) || (has(self.deviceClaims) && self.deviceClaims.size() > 0)",
            "no device is asked for; write template or deviceClaims",
        ),
        (
            "!(has(self.preemptionPolicy) && self.preemptionPolicy != 'Never') || !(has(self.preAllocation) && self.preAllocation)",
            "preAllocation waits for pods of the owners and preemptionPolicy evicts others; leave one of both out",
        ),
        (
            "!has(self.preAllocationPolicy) || (has(self.preAllocation) && self.preAllocation)",
            "preAllocationPolicy says which pods preAllocation waits for; write preAllocation: true, or leave it out",
        ),
        (
            "!has(self.replaces) || !has(self.replicas) || self.replicas == 1",
            "replaces is about one pod; leave replicas out",
        ),
    ])
}

fn of_reservation_specs() -> Vec<(&'static str, Value)> {
    let name = json!({"maxLength": 63, "minLength": 1, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"});
    let short = json!({"maxLength": 63});
    let long = json!({"maxLength": MAX_OBJECT_NAME});
    vec![
        ("ReservationSpec.owners", json!({"minItems": 1, "maxItems": MOST})),
        (
            "ReservationSpec.deviceClaims",
            json!({"maxItems": MAX_DEVICE_CLAIMS, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
        ),
        ("ReservationSpec.mode", json!({"default": "Fence"})),
        ("ReservationSpec.replicas", json!({"minimum": 1, "maximum": MAX_REPLICAS, "default": 1})),
        (
            "ReservationSpec.restrictedResources",
            json!({"maxItems": MOST, "items": {"type": "string", "maxLength": 316, "minLength": 1}}),
        ),
        (
            "ReservationSpec.ttl",
            json!({"default": "24h", "maxLength": 32, "pattern": "^(0|([0-9]+([.][0-9]+)?(h|m|s|ms|us))+)$"}),
        ),
        ("ReservationSpec.expires", json!({"format": "date-time", "maxLength": 64})),
        ("ReservationSpec.preAllocation", json!({"default": false})),
        ("ReservationSpec.plannedDevices", json!({"maxItems": MAX_RESERVED_DEVICES})),
        ("ReservationSpec.preemptionPolicy", json!({"default": "Never"})),
        ("ReplacedPod.namespace", json!({"maxLength": 63, "minLength": 1})),
        ("ReplacedPod.name", json!({"maxLength": MAX_OBJECT_NAME, "minLength": 1})),
        ("ReplacedPod.uid", json!({"maxLength": 63, "minLength": 1})),
        ("ReservationSpec.allocateOnce", json!({"default": true})),
        ("ReservationSpec.allocatePolicy", json!({"default": "Aligned"})),
        ("ReservationSpec.unschedulable", json!({"default": false})),
        ("ReservationSpec.taints", json!({"maxItems": 16})),
        ("NamedDeviceClaim.name", name),
        ("DeviceClaim.requests", json!({"maxItems": MOST})),
        ("DeviceClaim.constraints", json!({"maxItems": MOST})),
        ("DeviceClaim.config", json!({"maxItems": MOST})),
        ("DeviceRequest.name", short.clone()),
        ("DeviceRequest.firstAvailable", json!({"maxItems": 8})),
        ("DeviceSubRequest.name", short.clone()),
        ("DeviceSubRequest.deviceClassName", long.clone()),
        ("DeviceSubRequest.allocationMode", json!({"default": "ExactCount"})),
        ("DeviceSubRequest.count", json!({"minimum": 1})),
        ("DeviceSubRequest.selectors", json!({"maxItems": MOST})),
        ("DeviceSubRequest.tolerations", json!({"maxItems": 16})),
        ("Taint.key", json!({"maxLength": 316})),
        ("Taint.value", short.clone()),
        ("Taint.effect", json!({"maxLength": 16})),
        (
            "LabelSelector.matchLabels",
            json!({"maxProperties": MOST, "additionalProperties": {"type": "string", "maxLength": 63}}),
        ),
        ("LabelSelector.matchExpressions", json!({"maxItems": MOST})),
        ("LabelSelectorRequirement.key", json!({"maxLength": 316})),
        ("LabelSelectorRequirement.values", json!({"maxItems": MOST, "items": {"type": "string", "maxLength": 63}})),
        ("OwnerRequest.namespace", short.clone()),
        ("OwnerRequest.name", long.clone()),
    ]
}

fn of_reservation_statuses() -> Vec<(&'static str, Value)> {
    let short = json!({"maxLength": 63});
    let long = json!({"maxLength": MAX_OBJECT_NAME});
    let quotas = json!({"maxProperties": MOST});
    let mut all = vec![
        ("ReservationStatus.phase", json!({"default": "Pending"})),
        ("ReservationStatus.nodeName", long.clone()),
        ("ReservationStatus.tolerationValue", json!({"maxLength": 16})),
        ("ReservationStatus.devices", json!({"maxItems": MAX_RESERVED_DEVICES})),
        ("ReservationStatus.places", json!({"maxItems": MAX_REPLICAS})),
        ("ReservedPlace.nodeName", long.clone()),
        ("ReservedPlace.message", json!({"maxLength": 1024})),
        ("ReservedPlace.requests", quotas.clone()),
        ("ReservedPlace.owners", json!({"maxItems": 256})),
        ("PlaceOwner.namespace", short.clone()),
        ("PlaceOwner.name", long.clone()),
        ("PlaceOwner.uid", json!({"maxLength": 36})),
        ("PlaceOwner.requests", quotas.clone()),
        ("ReservationStatus.allocatable", quotas.clone()),
        ("ReservationStatus.allocated", quotas),
        ("ReservationStatus.currentOwners", json!({"maxItems": MAX_RESERVED_DEVICES})),
        ("ReservationStatus.evictions", json!({"maxItems": MAX_RESERVED_DEVICES + MAX_PAST_EVICTIONS})),
        ("PodEviction.message", json!({"maxLength": 1024})),
        ("ReservationStatus.conditions", json!({"maxItems": 8})),
        ("ReservationStatus.claims", json!({"maxItems": 32})),
        ("ReservedClaim.name", short.clone()),
        ("ReservedClaim.namespace", short.clone()),
        ("ReservedClaim.resourceClaimName", long.clone()),
        ("PlannedDevice.nodeName", long.clone()),
        ("PlannedDevice.driver", short.clone()),
        ("PlannedDevice.pool", long.clone()),
        ("PlannedDevice.device", short.clone()),
        ("ReservedDevice.claim", short.clone()),
        ("ReservedDevice.request", json!({"maxLength": 127})),
        ("ReservedDevice.deviceClassName", long.clone()),
        ("ReservedDevice.driver", short.clone()),
        ("ReservedDevice.pool", long.clone()),
        ("ReservedDevice.device", short.clone()),
        ("ReservedDevice.nodeName", long.clone()),
        ("ReservedDevice.consumedCapacity", json!({"maxProperties": 32})),
        ("ReservedDevice.shareID", json!({"maxLength": 36})),
        ("DeviceOwner.namespace", short.clone()),
        ("DeviceOwner.pod", long.clone()),
        ("DeviceOwner.claim", long.clone()),
        ("DeviceOwner.uid", short.clone()),
    ];
    for reference in REFERENCES {
        let limits = if reference.ends_with("name") { &long } else { &short };
        all.push((reference, limits.clone()));
    }
    all
}

/// Fields that name an object.
const REFERENCES: [&str; 18] = [
    "OwnerObject.apiVersion",
    "OwnerObject.kind",
    "OwnerObject.namespace",
    "OwnerObject.name",
    "OwnerObject.uid",
    "OwnerController.apiVersion",
    "OwnerController.kind",
    "OwnerController.namespace",
    "OwnerController.name",
    "OwnerController.uid",
    "ObjectReference.apiVersion",
    "ObjectReference.kind",
    "ObjectReference.namespace",
    "ObjectReference.name",
    "ObjectReference.uid",
    "PodEviction.namespace",
    "PodEviction.name",
    "PodEviction.uid",
];
