//! The pods of this node, with the claims that their containers are to run with.
//!
//! Writer: the watch of the node's pods, in a cluster with the role for it. Readers: the tasks that join claims with
//! pods. Plain data, so that no reader has to know the API server.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

/// A pod's namespace and name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PodName {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
}

/// A pod that is bound to this node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodePod {
    /// Namespace and name of the pod.
    pub name: PodName,
    /// UID of the pod: a pod that is made anew under the same name has another one.
    pub uid: String,
    /// True if all its containers have ended for good (phase `Succeeded` or `Failed`).
    pub ended: bool,
    /// True if it is being deleted; its containers may still run.
    pub deleting: bool,
    /// Containers of the pod: init containers first, each kind in the order of the specification.
    pub containers: Vec<PodContainer>,
    /// The claims that its specification names, by the name that its containers use for them. A claim that the
    /// scheduler made for its extended resources stands here under its object's name.
    pub claims: BTreeMap<String, PodClaim>,
}

/// A container of a pod's specification.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodContainer {
    /// Name of the container, unique within the pod.
    pub name: String,
    /// Kind of the container.
    pub kind: PodContainerKind,
    /// Claims of the pod that it uses.
    pub claims: Vec<PodContainerClaim>,
    /// The id that the runtime gave to its latest start, without the runtime's prefix; absent before the first.
    pub runtime_id: Option<String>,
}

/// The kind of a container: the time at which it runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PodContainerKind {
    /// Runs before the others, to its end.
    Init,
    /// Starts before the others, and runs as long as they do: an init container with `restartPolicy: Always`.
    Sidecar,
    /// Runs with the others.
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
    /// Made for this pod from a template; its object's name, as soon as the pod's status has it.
    Generated(Option<String>),
    /// Made from a template that gives nothing: the status says that there is no object.
    Nothing,
}

/// The known pods of this node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PodsOfNode {
    /// Pods are not watched: there is no cluster, or the watch is switched off.
    #[default]
    Unwatched,
    /// Not known, with the reason: no answer yet, no role for it, a watch that is lost.
    Unknown(String),
    /// All pods, as of the latest answer of the API server.
    Known(PodMap),
    /// All pods as they were before the watch was lost, too long ago to be trusted, and the reason of the loss.
    Stale(PodMap, String),
}

/// Pods by namespace and name.
pub type PodMap = Arc<BTreeMap<PodName, Arc<NodePod>>>;

/// Reads the latest state of this node's pods. Cheap to clone.
pub type PodsReader = watch::Receiver<PodsOfNode>;
