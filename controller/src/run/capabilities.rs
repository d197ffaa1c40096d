//! Starts the work of the one controller that leads: each part that the configuration wants.

use hostler_cluster::ApiClient;
use hostler_reconcile::ControllerParts;
use tokio::sync::watch;

use super::{namespace, wait_rules};
use crate::{
    classic::adapter::{self as classic, ClassicParts, ClassicStatus},
    conditions::SumsOutcome,
    config::ControllerConfig,
    direct,
    fabric::{self, FabricStatus},
    hardware::HardwareController,
    hold::{
        adapter::{self as hold, HoldParts, HoldStatus},
        shared,
    },
    koordinator,
    observe::Watches,
    places,
    pod_gates::{self, GateParts, GatesPhase},
    provision::adapter::{self as provision, ProvisionParts, ProvisionStatus},
    serve::ServeState,
    view::ClusterView,
    webhook_status::WebhookStatus,
};

/// Inputs of the parts.
pub(super) struct CapabilityStarts<'a> {
    pub(super) config: &'a ControllerConfig,
    /// The client for watches of kinds that only one part reads.
    pub(super) watching: ApiClient,
    pub(super) watches: Watches,
    pub(super) state: ServeState,
    /// State of the switch that has pods gated.
    pub(super) gates_rx: watch::Receiver<GatesPhase>,
    /// Status of the webhook; absent where there is none.
    pub(super) webhook_rx: Option<watch::Receiver<WebhookStatus>>,
}

impl CapabilityStarts<'_> {
    pub(super) fn start(
        self,
        outcome_tx: watch::Sender<SumsOutcome>,
        classic_tx: watch::Sender<ClassicStatus>,
        provision_tx: watch::Sender<ProvisionStatus>,
        holds_tx: watch::Sender<HoldStatus>,
    ) {
        let modes = self.config.capabilities;
        if modes.cluster_hardware.is_wanted() {
            self.hardware(outcome_tx);
        }
        if modes.classic_dra.is_wanted() {
            self.classic(classic_tx);
        }
        if modes.provisioning.is_wanted() {
            self.provision(provision_tx);
        }
        let (places_tx, places_rx) = watch::channel(None);
        let gates = GateParts {
            rules: wait_rules(self.config),
            gates_rx: self.gates_rx.clone(),
            places_rx: places_rx.clone(),
            stuck_pods: self.state.figures.stuck_pods.clone(),
        };
        pod_gates::start(gates, self.parts());
        if modes.reservations.is_wanted() {
            self.hold(holds_tx, places_rx);
            places::start(&self.config.reservations, places_tx, self.parts());
            shared::start(self.config.reservations.clone(), self.parts());
            direct::start(self.config.reservations.direct, self.parts());
            if modes.koordinator.is_wanted() {
                koordinator::start(self.parts());
            }
        }
    }

    /// Offers devices behind switches, where the configuration has managers of some.
    pub(super) fn start_fabric(&self, status_tx: watch::Sender<FabricStatus>) {
        if self.config.capabilities.fabric.is_wanted() {
            let figures_tx = self.state.figures.fabric.clone();
            fabric::start(&self.config.fabric, &self.config.driver, (status_tx, figures_tx), || self.parts());
        }
    }

    fn hardware(&self, outcome_tx: watch::Sender<SumsOutcome>) {
        HardwareController { findings_rx: self.state.findings_rx.clone(), outcome_tx }.run(self.parts());
    }

    fn classic(&self, status_tx: watch::Sender<ClassicStatus>) {
        let ServeState { leadership_rx, client, tasks, .. } = self.state.clone();
        classic::start(ClassicParts {
            watches: self.watches.clone(),
            watching: self.watching.clone(),
            calling: client,
            driver: self.config.driver.clone(),
            namespace: namespace(&self.config.lease),
            leadership_rx,
            status_tx,
            tasks,
        });
    }

    fn provision(&self, status_tx: watch::Sender<ProvisionStatus>) {
        let ServeState { view_rx, holds_rx, leadership_rx, client, tasks, .. } = self.state.clone();
        let (config, webhook_rx) = (self.config.provisioning.clone(), self.webhook_rx.clone());
        let holds_rx = self.config.capabilities.reservations.is_wanted().then_some(holds_rx);
        provision::start(ProvisionParts {
            client,
            config,
            view_rx,
            holds_rx,
            webhook_rx,
            leadership_rx,
            status_tx,
            tasks,
        });
    }

    fn parts(&self) -> ControllerParts<ClusterView> {
        let ServeState { view_rx, leadership_rx, client, tasks, .. } = self.state.clone();
        ControllerParts { client, view_rx, leadership_rx, tasks }
    }

    fn hold(&self, status_tx: watch::Sender<HoldStatus>, places_rx: watch::Receiver<Option<bool>>) {
        let ServeState { view_rx, leadership_rx, client, tasks, .. } = self.state.clone();
        hold::start(HoldParts {
            watches: self.watches.clone(),
            calling: client,
            driver: self.config.driver.clone(),
            namespace: namespace(&self.config.lease),
            attaches: self.config.capabilities.fabric.is_wanted(),
            config: self.config.reservations.clone(),
            view_rx,
            places_rx,
            leadership_rx,
            status_tx,
            tasks,
        });
    }
}
