//! Containers as their runtime tells of them, while it is connected.
//!
//! Writer: the edge to the runtime. Readers: all code that joins claims with containers. Gone with the daemon: the
//! runtime tells everything again to a plugin that connects.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use hostler_api::ClaimUid;
use hostler_linux::IdSet;
use tokio::sync::watch;

use super::ContainerId;

/// A container that the runtime has told of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SeenContainer {
    /// Id of the container.
    pub id: ContainerId,
    /// Name of the container within the pod.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub pod_uid: String,
    /// The claims with whose devices the container was made, as the hooks and devices in its specification tell.
    pub claims: Vec<ClaimUid>,
    /// Cgroup of the container, as the runtime writes it (`cgroupsPath` of OCI); absent where it has not said.
    pub cgroups_path: Option<PathBuf>,
    /// First process of the container; absent before it starts and after it ends.
    pub pid: Option<u32>,
    /// Why the container is left as it is, where its specification does not agree with the records of its claims.
    pub quarantined: Option<String>,
    /// The CPUs of the shared pool that the runtime has bound the container to; absent for those with CPUs of a
    /// claim, and while the runtime is told of others.
    pub pool: Option<IdSet>,
}

/// Containers as the runtime tells of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum SeenContainers {
    /// No runtime is connected; notes are all that is known.
    #[default]
    Disconnected,
    /// All containers, by id.
    Connected(Arc<BTreeMap<String, Arc<SeenContainer>>>),
}

/// Reader of the runtime's latest word. Cheap to clone.
pub type SeenReader = watch::Receiver<SeenContainers>;
