//! Counters of calls that ask which pod holds which devices, under the names that the kubelet's own counters have.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// A version of the API.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PodResourcesApi {
    /// `v1.PodResourcesLister`.
    V1,
    /// `v1alpha1.PodResourcesLister`.
    V1Alpha1,
}

impl PodResourcesApi {
    fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Alpha1 => "v1alpha1",
        }
    }
}

/// A call of the API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PodResourcesCall {
    /// All pods.
    List,
    /// One pod.
    Get,
    /// Resources that can be handed out.
    GetAllocatable,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ApiLabels {
    server_api_version: &'static str,
}

type ApiCounters = Family<ApiLabels, Counter<u64, AtomicU64>>;

/// The calls of one kind.
#[derive(Clone, Debug, Default)]
struct CallCounters {
    requests: ApiCounters,
    errors: ApiCounters,
}

/// Counters of all calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PodResourcesMetrics {
    requests: ApiCounters,
    list: CallCounters,
    get: CallCounters,
    get_allocatable: CallCounters,
    throttled: Counter<u64, AtomicU64>,
    kubelet_stale: Gauge,
}

impl Default for PodResourcesMetrics {
    fn default() -> Self {
        let metrics = Self {
            requests: Family::default(),
            list: CallCounters::default(),
            get: CallCounters::default(),
            get_allocatable: CallCounters::default(),
            throttled: Counter::default(),
            kubelet_stale: Gauge::default(),
        };
        // The first error is an increase only where there was a zero before it.
        for call in [PodResourcesCall::List, PodResourcesCall::Get, PodResourcesCall::GetAllocatable] {
            let CallCounters { requests, errors } = metrics.of(call);
            for counters in [&metrics.requests, requests, errors] {
                drop(counters.get_or_create(&labels(PodResourcesApi::V1)));
            }
        }
        for counters in [&metrics.requests, &metrics.list.requests, &metrics.list.errors] {
            drop(counters.get_or_create(&labels(PodResourcesApi::V1Alpha1)));
        }
        metrics
    }
}

fn labels(api: PodResourcesApi) -> ApiLabels {
    ApiLabels { server_api_version: api.as_str() }
}

impl PodResourcesMetrics {
    fn of(&self, call: PodResourcesCall) -> &CallCounters {
        match call {
            PodResourcesCall::List => &self.list,
            PodResourcesCall::Get => &self.get,
            PodResourcesCall::GetAllocatable => &self.get_allocatable,
        }
    }

    /// Counts a call that is not throttled.
    pub fn asked(&self, api: PodResourcesApi, call: PodResourcesCall) {
        self.requests.get_or_create(&labels(api)).inc();
        self.of(call).requests.get_or_create(&labels(api)).inc();
    }

    /// Counts a call that is answered with an error.
    pub fn failed(&self, api: PodResourcesApi, call: PodResourcesCall) {
        self.of(call).errors.get_or_create(&labels(api)).inc();
    }

    /// Counts a call that came too soon after others.
    pub fn throttled(&self) {
        self.throttled.inc();
    }

    /// Sets whether the kubelet's part of the answers is an earlier one.
    pub fn set_kubelet_stale(&self, is_stale: bool) {
        self.kubelet_stale.set(i64::from(is_stale));
    }

    /// Registers every counter.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Calls of the PodResources API";
        registry.register("pod_resources_endpoint_requests", help, self.requests.clone());
        for (name, method, call) in [
            ("list", "List", PodResourcesCall::List),
            ("get", "Get", PodResourcesCall::Get),
            ("get_allocatable", "GetAllocatableResources", PodResourcesCall::GetAllocatable),
        ] {
            let CallCounters { requests, errors } = self.of(call);
            let (asked, failed) =
                (format!("pod_resources_endpoint_requests_{name}"), format!("pod_resources_endpoint_errors_{name}"));
            registry.register(asked, format!("Calls of {method} of the PodResources API"), requests.clone());
            registry.register(failed, format!("Calls of {method} that got an error"), errors.clone());
        }
        let help = "Calls of the PodResources API that came too soon";
        registry.register("pod_resources_endpoint_throttled", help, self.throttled.clone());
        let help = "1 while what is told of the kubelet's own pods is not its latest answer";
        registry.register("pod_resources_kubelet_stale", help, self.kubelet_stale.clone());
    }
}
