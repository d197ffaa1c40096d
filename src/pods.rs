//! The pods of this node, as far as anything here cares: which of their containers are to run with which claims.
//!
//! Writer: the watch of the node's pods, in a cluster with the role for it. Readers: whatever joins claims with pods.
//! Plain data, so that no reader has to know the API server.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

/// A pod's namespace and name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A pod that is bound to this node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodePod {
    /// Its namespace and name.
    pub name: PodName,
    /// Its UID: a pod that is made anew under the same name has another one.
    pub uid: String,
    /// Whether all its containers have ended for good (phase `Succeeded` or `Failed`).
    pub ended: bool,
    /// Whether it is being deleted; its containers may still run.
    pub deleting: bool,
    /// Its containers: init containers first, each kind in the order of the specification.
    pub containers: Vec<PodContainer>,
    /// The claims that its specification names, by the name that its containers use for them. A claim that the scheduler
    /// made for its extended resources stands here under its object's name.
    pub claims: BTreeMap<String, PodClaim>,
}

/// A container of a pod's specification.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodContainer {
    /// Its name, unique within the pod.
    pub name: String,
    /// When it runs.
    pub kind: PodContainerKind,
    /// What it uses of the pod's claims.
    pub claims: Vec<PodContainerClaim>,
    /// The id that the runtime gave to its latest start, without the runtime's prefix; absent before the first.
    pub runtime_id: Option<String>,
}

/// When a container of a pod runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PodContainerKind {
    /// Before the others, to its end.
    Init,
    /// From before the others on, as long as they run: an init container with `restartPolicy: Always`.
    Sidecar,
    /// With the others.
    Regular,
}

/// A claim as a container uses it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodContainerClaim {
    /// The name of the claim within the pod.
    pub name: String,
    /// The only request of the claim whose devices the container gets; all requests if absent.
    pub request: Option<String>,
}

/// A claim as a pod names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PodClaim {
    /// An object that exists by itself, by its name.
    Named(String),
    /// Made for this pod from a template; its object's name, as soon as the pod's status tells it.
    Generated(Option<String>),
    /// Made from a template that gives nothing: the status says that there is no object.
    Nothing,
}

/// What is known of this node's pods.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PodsOfNode {
    /// Nobody looks: there is no cluster, or it is switched off.
    #[default]
    Unwatched,
    /// Not known, and why: no answer yet, no role for it, a watch that is lost.
    Unknown(String),
    /// All of them, as of the latest word of the API server.
    Known(PodMap),
    /// All of them as they were before the watch was lost, too long ago to be believed; and how it was lost.
    Stale(PodMap, String),
}

/// Pods by namespace and name.
pub type PodMap = Arc<BTreeMap<PodName, Arc<NodePod>>>;

/// Reads the latest word on this node's pods. Cheap to clone.
pub type PodsReader = watch::Receiver<PodsOfNode>;
