//! Source of claims: manifests on disk, or the API server.

use std::sync::Arc;

use hostler_cluster::{ApiClient, ConnectError};
use hostler_linux::SysRoot;
use tokio::sync::watch;

use crate::{
    audit::AuditHandle,
    claims::{ClaimsHandle, ReadClaims, janitor::ObserveClaims},
    config::{ClusterMode, DaemonConfig},
    inventory::InventoryReader,
    kubernetes::{
        ClusterNode, claim_access,
        claim_reader::ClaimReader,
        claim_status::{self, ClaimChanges},
        events,
        fabric::{self, FabricParts},
        hardware::{self, HardwareReportParts, HardwareReporting, ReportingDaemon},
        holds,
        observe::ClaimObserver,
        pods,
        publisher::{self, Publication, PublisherParts},
        read_ahead::ReadAhead,
        readers::FigureReaders,
        slices::SliceSettings,
        topology::{self, TopologyExport, TopologyExportParts},
    },
    metrics::Metrics,
    pods::{PodsOfNode, PodsReader},
    standalone::{InService, ManifestFolder},
    tasks::Tasks,
};

/// The one source of claims that is configured.
pub(super) enum ClaimSource {
    /// Manifests on disk.
    Standalone(ManifestFolder),
    /// The API server.
    Kubernetes(ClusterNode),
}

/// Publications about this node in the cluster; nothing without one.
#[derive(Default)]
pub(super) struct PublishedNode {
    /// State of the slices.
    pub(super) publication_rx: Option<watch::Receiver<Publication>>,
    /// State of the reports.
    pub(super) hardware_rx: Option<watch::Receiver<HardwareReporting>>,
}

impl ClaimSource {
    /// Opens the source. No answer is needed yet: the API server may come up after its nodes.
    pub(super) fn open(config: &DaemonConfig, tasks: &Tasks) -> Result<Self, ConnectError> {
        match config.cluster.mode {
            ClusterMode::Standalone => {
                Ok(Self::Standalone(ManifestFolder::new(&config.cluster.manifests, &config.driver, tasks)))
            }
            ClusterMode::Kubernetes => {
                let client = ApiClient::new(config.cluster.kubeconfig.as_deref())?;
                Ok(Self::Kubernetes(ClusterNode::new(client, &config.driver, &config.node_name)))
            }
        }
    }

    /// Reader for the owner of the claims.
    pub(super) fn reader(
        &self,
        pods_rx: PodsReader,
        metrics: &Metrics,
        inventory: &InventoryReader,
        tasks: &Tasks,
    ) -> Arc<dyn ReadClaims> {
        match self {
            Self::Standalone(manifests) => Arc::new(InService::new(manifests.clone(), inventory.clone())),
            Self::Kubernetes(cluster) => {
                let reader = ClaimReader::new(cluster.clone(), metrics.clone(), tasks);
                Arc::new(ReadAhead::start(reader, pods_rx, metrics.clone(), tasks))
            }
        }
    }

    /// Looks after the cards that a fabric manager attaches, where there is a cluster; returns the hardware that is the
    /// node's own.
    pub(super) fn own_hardware(
        &self,
        config: &DaemonConfig,
        claims: &ClaimsHandle,
        inventory: &InventoryReader,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> InventoryReader {
        match self {
            Self::Kubernetes(cluster) if config.cluster.fabric => {
                let (claims, inventory) = (claims.clone(), inventory.clone());
                let parts = FabricParts { cluster: cluster.clone(), claims, inventory, metrics: metrics.clone() };
                fabric::start(parts, tasks)
            }
            _ => inventory.clone(),
        }
    }

    /// Publishes the devices, where there is a cluster to publish them to, and reports the hardware to it. Does not
    /// wait for it. Publishing takes longest, so it begins before the admin socket opens; not before recovery, after
    /// which prepares can be answered.
    pub(super) fn publish(
        &self,
        config: &DaemonConfig,
        daemon: ReportingDaemon,
        claims: &ClaimsHandle,
        own: &InventoryReader,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> PublishedNode {
        let Self::Kubernetes(cluster) = self else { return PublishedNode::default() };
        let is_reported = config.cluster.node_hardware;
        let holds = if is_reported { holds::start(cluster.clone(), metrics.clone(), tasks) } else { holds::none() };
        let parts = PublisherParts {
            cluster: cluster.clone(),
            settings: SliceSettings::of(config),
            inventory: own.clone(),
            holds_rx: holds.word_rx.clone(),
            metrics: metrics.clone(),
        };
        let publication_rx = publisher::start(parts, tasks);
        claim_access::start(ClaimReader::new(cluster.clone(), metrics.clone(), tasks), cluster, tasks);
        let parts = HardwareReportParts {
            cluster: cluster.clone(),
            daemon,
            inventory: own.clone(),
            table_rx: claims.table(),
            holds,
            publication_rx: publication_rx.clone(),
            metrics: metrics.clone(),
        };
        let hardware_rx = is_reported.then(|| hardware::start(parts, tasks));
        PublishedNode { publication_rx: Some(publication_rx), hardware_rx }
    }

    /// Watches the pods of this node, where there is a cluster that has any.
    pub(super) fn pods(&self, config: &DaemonConfig, metrics: &Metrics, tasks: &Tasks) -> PodsReader {
        match self {
            Self::Kubernetes(cluster) if config.cluster.watch_pods => pods::start(cluster, metrics.clone(), tasks),
            _ => watch::channel(PodsOfNode::Unwatched).1,
        }
    }

    /// Exports what is free on each NUMA node, where that is asked for. Does not wait for the API server.
    pub(super) fn export_topology(
        &self,
        config: &DaemonConfig,
        root: &SysRoot,
        claims: &ClaimsHandle,
        own: &InventoryReader,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Option<watch::Receiver<TopologyExport>> {
        let Self::Kubernetes(cluster) = self else { return None };
        let parts = TopologyExportParts {
            cluster: cluster.clone(),
            root: root.clone(),
            inventory: own.clone(),
            table_rx: claims.table(),
            settings: config.topology_export,
            metrics: metrics.clone(),
        };
        config.topology_export.enabled.then(|| topology::start(parts, tasks))
    }

    /// Observer for the janitor. Manifests are an operator's, who decides what is to be taken back.
    pub(super) fn observer(
        &self,
        config: &DaemonConfig,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Option<Arc<dyn ObserveClaims>> {
        match self {
            Self::Standalone(_) => None,
            Self::Kubernetes(cluster) => {
                let reader = ClaimReader::new(cluster.clone(), metrics.clone(), tasks);
                Some(Arc::new(ClaimObserver::new(reader, &config.driver)))
            }
        }
    }

    /// Returns the manifests, where they are the source.
    pub(super) fn manifests(&self) -> Option<&ManifestFolder> {
        match self {
            Self::Standalone(manifests) => Some(manifests),
            Self::Kubernetes(_) => None,
        }
    }

    /// Reader for people who ask about a claim.
    pub(super) fn claim_reader(&self, metrics: &Metrics, tasks: &Tasks) -> Option<ClaimReader> {
        match self {
            Self::Standalone(_) => None,
            Self::Kubernetes(cluster) => Some(ClaimReader::new(cluster.clone(), metrics.clone(), tasks)),
        }
    }

    /// Judge of the readers on other hosts that may have metrics; there is none without an API server.
    pub(super) fn readers(&self) -> Option<FigureReaders> {
        match self {
            Self::Standalone(_) => None,
            Self::Kubernetes(cluster) => Some(FigureReaders::new(cluster.client().clone())),
        }
    }

    /// Starts the tasks that tell the API server of claims.
    pub(super) fn tell(
        &self,
        config: &DaemonConfig,
        claims: &ClaimsHandle,
        audit: &AuditHandle,
        inventory: &InventoryReader,
        metrics: &Metrics,
        tasks: &Tasks,
    ) {
        let Self::Kubernetes(cluster) = self else { return };
        if config.cluster.claim_status {
            let changes =
                ClaimChanges { table_rx: claims.table(), audit_rx: audit.table(), inventory_rx: inventory.subscribe() };
            claim_status::start(cluster.clone(), changes, metrics.clone(), tasks);
        }
        if config.cluster.events {
            events::start(cluster.clone(), claims.failures(), audit.news(), metrics.clone(), tasks);
        }
    }
}
