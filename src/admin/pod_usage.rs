//! Pods and what they hold, over the admin socket.

use axum::{Json, extract::State, http::StatusCode};
use hostler_linux::IdSet;

use super::{
    AdminFailure, AdminService,
    types::{AdminPod, AdminPodClaim, AdminPodContainer, AdminPodDevice},
};
use crate::usage::pods::{ClaimUse, ContainerUsage, PodUsage, UsedDevice};

/// Returns every pod that has not ended; last, without a name, what no pod is known to use.
pub(super) async fn list(State(admin): State<AdminService>) -> Result<Json<Vec<AdminPod>>, AdminFailure> {
    let stopping = || AdminFailure(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping".to_owned());
    let usage = admin.0.pod_usage.latest().await.ok_or_else(stopping)?;
    let mut pods: Vec<AdminPod> = usage.pods.iter().map(pod).collect();
    if !usage.unused.is_empty() {
        pods.push(AdminPod { claims: usage.unused.iter().map(claim).collect(), ..AdminPod::default() });
    }
    Ok(Json(pods))
}

fn pod(pod: &PodUsage) -> AdminPod {
    AdminPod {
        namespace: pod.name.namespace.clone(),
        name: pod.name.name.clone(),
        known_by: Some(pod.known_by.as_str().to_owned()),
        containers: pod.containers.iter().map(container).collect(),
        claims: pod.claims.iter().map(claim).collect(),
    }
}

fn container(container: &ContainerUsage) -> AdminPodContainer {
    AdminPodContainer {
        name: container.name.clone(),
        id: container.id.clone(),
        claims: container.claims.iter().map(claim).collect(),
    }
}

fn claim(used: &ClaimUse) -> AdminPodClaim {
    AdminPodClaim {
        namespace: used.claim.namespace.clone(),
        name: used.claim.name.clone(),
        uid: used.claim.uid.to_string(),
        state: used.state,
        devices: used.devices.iter().map(device).collect(),
    }
}

fn device(device: &UsedDevice) -> AdminPodDevice {
    AdminPodDevice {
        backend: device.backend.to_string(),
        pool: device.pool.clone(),
        device: device.device.clone(),
        request: device.request.clone(),
        share_id: device.share_id.clone(),
        cdi_ids: device.cdi_ids.clone(),
        cpus: IdSet::from(device.cpus.clone()).to_string(),
        memory: device.memory.iter().map(|memory| (memory.kind.clone(), memory.bytes)).collect(),
        nodes: IdSet::from(device.nodes.clone()).to_string(),
    }
}
