//! Counters for Prometheus that the owners of state increment. They depend on no reader: [`admin`](crate::admin)
//! answers scrapes, and adds gauges of the present state.

mod audit;
mod pod_resources;

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

pub use pod_resources::{PodResourcesApi, PodResourcesCall, PodResourcesMetrics};

/// Operation on a claim.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub enum CountedOperation {
    /// Preparing, successful or not.
    Prepare,
    /// Unpreparing, successful or not.
    Unprepare,
}

impl CountedOperation {
    /// The operation in one word, as in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unprepare => "unprepare",
        }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OperationLabels {
    operation: CountedOperation,
    outcome: &'static str,
}

/// Class of an operation's failure: few enough that every class can be a label.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FailureReason {
    /// The allocation cannot be read.
    Unreadable,
    /// The name of a claim, or a request of its allocation, is not valid here.
    Invalid,
    /// A device does not exist.
    NoDevice,
    /// Another claim has a device.
    Held,
    /// Too little is left of a device, or of a resource that it shares with others.
    NoCapacity,
    /// Parts that must be on one NUMA node cannot be.
    Placement,
    /// A backend could not do its step.
    Backend,
    /// A backend is not enabled.
    NoBackend,
    /// A file could not be written.
    Storage,
    /// The record cannot be understood.
    Quarantined,
    /// Another event interrupted the operation; the next try may work.
    Interrupted,
}

impl FailureReason {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Unreadable,
        Self::Invalid,
        Self::NoDevice,
        Self::Held,
        Self::NoCapacity,
        Self::Placement,
        Self::Backend,
        Self::NoBackend,
        Self::Storage,
        Self::Quarantined,
        Self::Interrupted,
    ];

    /// The reason as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Invalid => "invalid",
            Self::NoDevice => "no_device",
            Self::Held => "held",
            Self::NoCapacity => "no_capacity",
            Self::Placement => "placement",
            Self::Backend => "backend",
            Self::NoBackend => "no_backend",
            Self::Storage => "storage",
            Self::Quarantined => "quarantined",
            Self::Interrupted => "interrupted",
        }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FailureLabels {
    operation: CountedOperation,
    reason: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct KindLabels {
    kind: &'static str,
}

type Counters = Family<KindLabels, Counter<u64, AtomicU64>>;

/// Counters that state owners increment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    operations: Family<OperationLabels, Counter<u64, AtomicU64>>,
    failures: Family<FailureLabels, Counter<u64, AtomicU64>>,
    durations: Family<OperationLabels, Histogram>,
    slice_writes: Counters,
    node_hardware_writes: Counter<u64, AtomicU64>,
    api_retries: Counters,
    claim_reads: Counters,
    recoveries: Counters,
    releases: Counters,
    events: Counters,
    audit: audit::AuditMetrics,
    log_lines_dropped: Counter<u64, AtomicU64>,
    pod_resources: PodResourcesMetrics,
    nri: NriCounters,
}

/// Counters of the plugin of the container runtime.
#[derive(Clone, Debug, Default)]
struct NriCounters {
    reconnects: Counter<u64, AtomicU64>,
    updates_failed: Counter<u64, AtomicU64>,
    refused: Counter<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        // From a durable write on a fast disk (0.2 ms) to a kubelet's deadline (45 s).
        let histogram = || Histogram::new(exponential_buckets(0.0002, 2.5, 14));
        let metrics = Self {
            operations: Family::default(),
            failures: Family::default(),
            durations: Family::new_with_constructor(histogram),
            slice_writes: Family::default(),
            node_hardware_writes: Counter::default(),
            api_retries: Family::default(),
            claim_reads: Family::default(),
            recoveries: Family::default(),
            releases: Family::default(),
            events: Family::default(),
            audit: audit::AuditMetrics::default(),
            log_lines_dropped: Counter::default(),
            nri: NriCounters::default(),
            pod_resources: PodResourcesMetrics::default(),
        };
        metrics.begin_at_zero();
        metrics
    }
}

/// Reasons of Events with a counter from the start; the counter of any other reason begins with its first Event.
const EVENT_REASONS: [&str; 16] = [
    "DeviceHeld",
    "NoCapacity",
    "DeviceGone",
    "DeviceNotUsable",
    "DeviceRefused",
    "DeviceFailed",
    "InvalidConfig",
    "InvalidAllocation",
    "NotAllocated",
    "BackendDisabled",
    "StorageFailed",
    "CleanUpFailed",
    "Quarantined",
    "CpusetMended",
    "CpusetRepaired",
    "CpusetDegraded",
];

impl OperationLabels {
    fn new(operation: CountedOperation, ok: bool) -> Self {
        Self { operation, outcome: if ok { "ok" } else { "error" } }
    }
}

impl Metrics {
    /// Makes counters, beside one that the log increments.
    pub fn counting(log_lines_dropped: Counter<u64, AtomicU64>) -> Self {
        Self { log_lines_dropped, ..Self::default() }
    }

    /// Sets each counter of failures to zero: the first failure is an increase only where there was a zero before it.
    fn begin_at_zero(&self) {
        self.audit.begin_at_zero();
        for operation in [CountedOperation::Prepare, CountedOperation::Unprepare] {
            for ok in [true, false] {
                drop(self.operations.get_or_create(&OperationLabels::new(operation, ok)));
            }
            for reason in FailureReason::ALL {
                drop(self.failures.get_or_create(&FailureLabels { operation, reason: reason.as_str() }));
            }
        }
        for (counters, kinds) in [
            (&self.slice_writes, &["create", "update", "delete"][..]),
            (
                &self.api_retries,
                &["claim", "claim_status", "pods", "slices", "topology", "node_hardware", "fabric"][..],
            ),
            (&self.claim_reads, &["kept", "ahead", "joined", "asked"][..]),
            (&self.recoveries, &["keep", "restore", "await prepare", "roll back", "forget", "quarantine"][..]),
            (&self.releases, &["gone", "other_uid", "deallocated"][..]),
            (&self.events, &EVENT_REASONS[..]),
        ] {
            for &kind in kinds {
                drop(counters.get_or_create(&KindLabels { kind }));
            }
        }
    }

    /// Counts the answer to a call for one claim, also where the call was refused before anything was done.
    pub fn answered(&self, operation: CountedOperation, failure: Option<FailureReason>) {
        self.operations.get_or_create(&OperationLabels::new(operation, failure.is_none())).inc();
        if let Some(reason) = failure {
            self.failures.get_or_create(&FailureLabels { operation, reason: reason.as_str() }).inc();
        }
    }

    /// Observes how long work on one claim took.
    pub fn worked(&self, operation: CountedOperation, ok: bool, took: Duration) {
        self.durations.get_or_create(&OperationLabels::new(operation, ok)).observe(took.as_secs_f64());
    }

    /// Counts a ResourceSlice that was written: `create`, `update` or `delete`.
    pub fn slice_written(&self, verb: &'static str) {
        self.slice_writes.get_or_create(&KindLabels { kind: verb }).inc();
    }

    /// Counts a write of this node's NodeHardware.
    pub fn node_hardware_written(&self) {
        self.node_hardware_writes.inc();
    }

    /// Counts a call to the API server that is made again, by its purpose: `slices`, `claim_status`, `event`, ….
    pub fn api_retried(&self, what: &'static str) {
        self.api_retries.get_or_create(&KindLabels { kind: what }).inc();
    }

    /// Counts a read of a claim by its way: `kept` before the kubelet asked, and for the kubelet from such a kept claim
    /// (`ahead`), from a read that was under way (`joined`), or by a read of its own (`asked`).
    pub fn claim_read(&self, how: &'static str) {
        self.claim_reads.get_or_create(&KindLabels { kind: how }).inc();
    }

    /// Counts a claim at a start by the action on it: `keep`, `restore`, `roll back`, ….
    pub fn recovered(&self, action: &'static str) {
        self.recoveries.get_or_create(&KindLabels { kind: action }).inc();
    }

    /// Counts a claim that was taken back without the kubelet, by the reason: `gone`, `other_uid` or `deallocated`.
    pub fn released(&self, why: &'static str) {
        self.releases.get_or_create(&KindLabels { kind: why }).inc();
    }

    /// Counts an Event of a claim, by its reason.
    pub fn event_written(&self, reason: &'static str) {
        self.events.get_or_create(&KindLabels { kind: reason }).inc();
    }

    /// Counts a connection with the container runtime that had worked and has ended.
    pub fn nri_reconnected(&self) {
        self.nri.reconnects.inc();
    }

    /// Counts updates of containers that the runtime could not do, and containers that were refused.
    pub fn nri_counted(&self, updates_failed: usize, refused: usize) {
        self.nri.updates_failed.inc_by(updates_failed as u64);
        self.nri.refused.inc_by(refused as u64);
    }

    /// Counters of calls that ask which pod holds which devices.
    pub fn pod_resources(&self) -> &PodResourcesMetrics {
        &self.pod_resources
    }

    /// Registers every counter.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "claim_operations",
            "Answers to Prepare and Unprepare, one for each claim; a refusal is one too",
            self.operations.clone(),
        );
        registry.register("claim_failures", "Answers that were failures, by reason", self.failures.clone());
        registry.register_with_unit(
            "claim_operation",
            "Time that work on a claim took; a claim that is refused at once is no work",
            Unit::Seconds,
            self.durations.clone(),
        );
        for (name, help, counters) in [
            ("slice_writes", "ResourceSlices created, updated and deleted", &self.slice_writes),
            ("api_retries", "Calls to the API server that were made again, by their purpose", &self.api_retries),
            ("claim_reads", "Claims read from the API server, by way of the read", &self.claim_reads),
            ("recovered_claims", "Claims found at the start, by the action on them", &self.recoveries),
            ("released_claims", "Claims taken back without the kubelet, by reason", &self.releases),
            ("events", "Events written on claims, by their reason", &self.events),
        ] {
            registry.register(name, help, counters.clone());
        }
        for (name, help, counter) in [
            ("node_hardware_writes", "Writes of the NodeHardware of this node", &self.node_hardware_writes),
            ("nri_reconnects", "Connections with the container runtime that ended", &self.nri.reconnects),
            ("nri_updates_failed", "Updates of containers that the runtime could not do", &self.nri.updates_failed),
            ("nri_containers_refused", "Containers that were refused when the runtime made them", &self.nri.refused),
        ] {
            registry.register(name, help, counter.clone());
        }
        self.audit.register(registry);
        let help = "Lines of the log that were not read in time and are lost";
        registry.register("log_lines_dropped", help, self.log_lines_dropped.clone());
        self.pod_resources.register(registry);
    }
}
