//! Containers as their runtime tells of them, while it is connected.
//!
//! Writer: the edge to the runtime. Readers: whatever joins claims with containers. Gone with the daemon: the runtime
//! tells everything again to whoever connects.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use hostler_api::ClaimUid;
use hostler_linux::IdSet;
use tokio::sync::watch;

use super::ContainerId;

/// A container that the runtime has told of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SeenContainer {
    /// Its id.
    pub id: ContainerId,
    /// Its name within the pod.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub pod_uid: String,
    /// The claims whose devices it was made with, as the hooks and devices in its specification tell.
    pub claims: Vec<ClaimUid>,
    /// Its cgroup, as the runtime writes it (`cgroupsPath` of OCI); absent where it has not said.
    pub cgroups_path: Option<PathBuf>,
    /// Its first process; absent before it starts and after it ends.
    pub pid: Option<u32>,
    /// Why it is left as it is, where what its specification says of claims is not what their records give.
    pub quarantined: Option<String>,
    /// The CPUs of the shared pool that the runtime has bound it to; absent for those with CPUs of a claim, and while the
    /// runtime is told of others.
    pub pool: Option<IdSet>,
}

/// What the runtime says of its containers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum SeenContainers {
    /// No runtime is connected; notes are all that is known.
    #[default]
    Disconnected,
    /// All of them, by id.
    Connected(Arc<BTreeMap<String, Arc<SeenContainer>>>),
}

/// Reads the runtime's latest word. Cheap to clone.
pub type SeenReader = watch::Receiver<SeenContainers>;
