//! Counters for Prometheus that the owners of state bump. They know nobody: what is there at the moment is added by
//! [`admin`](crate::admin), which answers whoever asks for figures.

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

/// What was done with a claim.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub enum CountedOperation {
    /// Prepared, or tried to.
    Prepare,
    /// Taken back, or tried to.
    Unprepare,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OperationLabels {
    operation: CountedOperation,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct KindLabels {
    kind: &'static str,
}

type Counters = Family<KindLabels, Counter<u64, AtomicU64>>;

/// Counters that state owners bump. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    operations: Family<OperationLabels, Counter<u64, AtomicU64>>,
    durations: Family<OperationLabels, Histogram>,
    slice_writes: Counters,
    api_retries: Counters,
    recoveries: Counters,
    releases: Counters,
    events: Counters,
    log_lines_dropped: Counter<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        // From a durable write on a fast disk (0.2 ms) to a kubelet's deadline (45 s).
        let histogram = || Histogram::new(exponential_buckets(0.0002, 2.5, 14));
        Self {
            operations: Family::default(),
            durations: Family::new_with_constructor(histogram),
            slice_writes: Family::default(),
            api_retries: Family::default(),
            recoveries: Family::default(),
            releases: Family::default(),
            events: Family::default(),
            log_lines_dropped: Counter::default(),
        }
    }
}

impl Metrics {
    /// Counters beside one that the log bumps.
    pub fn counting(log_lines_dropped: Counter<u64, AtomicU64>) -> Self {
        Self { log_lines_dropped, ..Self::default() }
    }

    /// Counts an operation on one claim.
    pub fn observe(&self, operation: CountedOperation, ok: bool, took: Duration) {
        let labels = OperationLabels { operation, outcome: if ok { "ok" } else { "error" } };
        self.operations.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts a ResourceSlice that was written: `create`, `update` or `delete`.
    pub fn slice_written(&self, verb: &'static str) {
        self.slice_writes.get_or_create(&KindLabels { kind: verb }).inc();
    }

    /// Counts a call to the API server that is made again, by what it is for: `slices`, `claim_status`, `event`, ….
    pub fn api_retried(&self, what: &'static str) {
        self.api_retries.get_or_create(&KindLabels { kind: what }).inc();
    }

    /// Counts what a start did with a claim: `keep`, `restore`, `roll back`, ….
    pub fn recovered(&self, action: &'static str) {
        self.recoveries.get_or_create(&KindLabels { kind: action }).inc();
    }

    /// Counts a claim that was taken back without the kubelet, by why: `gone`, `other_uid` or `deallocated`.
    pub fn released(&self, why: &'static str) {
        self.releases.get_or_create(&KindLabels { kind: why }).inc();
    }

    /// Counts an Event of a claim, by its reason.
    pub fn event_written(&self, reason: &'static str) {
        self.events.get_or_create(&KindLabels { kind: reason }).inc();
    }

    /// Adds every counter to what is told.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("claim_operations", "Operations on claims", self.operations.clone());
        registry.register_with_unit(
            "claim_operation",
            "Time per operation on a claim",
            Unit::Seconds,
            self.durations.clone(),
        );
        for (name, help, counters) in [
            ("slice_writes", "ResourceSlices written", &self.slice_writes),
            ("api_retries", "Calls to the API server that were made again", &self.api_retries),
            ("recovered_claims", "Claims found at the start, by what was done with them", &self.recoveries),
            ("released_claims", "Claims taken back without the kubelet", &self.releases),
            ("events", "Events written about claims", &self.events),
        ] {
            registry.register(name, help, counters.clone());
        }
        let help = "Lines of the log that were dropped since nobody read it in time";
        registry.register("log_lines_dropped", help, self.log_lines_dropped.clone());
    }
}
