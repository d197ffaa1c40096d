//! Registers the plugin with the kubelet, and remembers the kubelet's answer.
//!
//! Everything is answered from memory: the kubelet gives up after one second.

use hostler_proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse, registration_server::Registration as Api,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tracing::{error, info};

use super::KubeletConnections;
use crate::config::ClassicCalls;

/// Type of the plugin.
const TYPE: &str = "DRAPlugin";

/// Services that the plugin offers, best first: kubelets take the first of this list that they know.
pub const SUPPORTED_VERSIONS: [&str; 4] =
    ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// Version that kubelets up to 1.31 look for in the same list, where later ones see a service that they do not know.
/// Old kubelets take a second instance of a driver only with a higher version, and forget both when either goes: so the
/// version is always the same.
pub const CLASSIC_VERSION: &str = "1.0.0";

/// The kubelet's last answer to the registration. Writer: [`RegistrationService`]. Readers: status and readiness.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum RegistrationState {
    /// No kubelet has called yet.
    #[default]
    Waiting,
    /// The kubelet will send claims. A kubelet that stops does not say so.
    Registered,
    /// The kubelet refused the plugin, and tries again.
    Refused {
        /// The kubelet's reason.
        error: String,
    },
}

/// Serves the registration API.
#[derive(Debug)]
pub(super) struct RegistrationService {
    info: PluginInfo,
    status_tx: watch::Sender<RegistrationState>,
    connections_tx: watch::Sender<KubeletConnections>,
}

impl RegistrationService {
    /// Makes the service for a driver whose service listens on `endpoint`, an absolute path.
    pub(super) fn new(
        driver: &str,
        endpoint: String,
        classic: ClassicCalls,
        status_tx: watch::Sender<RegistrationState>,
        connections_tx: watch::Sender<KubeletConnections>,
    ) -> Self {
        let versions = SUPPORTED_VERSIONS.into_iter().chain((classic != ClassicCalls::Off).then_some(CLASSIC_VERSION));
        let info = PluginInfo {
            r#type: TYPE.to_owned(),
            name: driver.to_owned(),
            endpoint,
            supported_versions: versions.map(str::to_owned).collect(),
        };
        Self { info, status_tx, connections_tx }
    }
}

#[tonic::async_trait]
impl Api for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let status = match status.plugin_registered {
            true => RegistrationState::Registered,
            false => RegistrationState::Refused { error: status.error },
        };
        // This kubelet may be another one than the last, with other habits.
        self.connections_tx.send_modify(|connections| connections.kept = false);
        // The kubelet repeats itself, once a second in the worst case.
        if self.status_tx.send_replace(status.clone()) != status {
            match status {
                RegistrationState::Refused { error } => error!(error, "the kubelet refused the registration"),
                _ => info!("registered with the kubelet"),
            }
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
