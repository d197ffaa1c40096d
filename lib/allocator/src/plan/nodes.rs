//! Reasons why a pod cannot be on a node, devices apart: the scheduler's own checks, in its order.

use std::fmt;

use hostler_api::core::{Node, NodeSelector, PodSpec, Taint};

use super::{amounts, answer::NodeRefusalKind, node_use::NodeUse, pods::Wish, snapshot::NodePlace};

/// The taint that a node has as long as it takes no new pods.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The first reason why a pod cannot be on a node.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Reason {
    NotReady,
    Unschedulable,
    OtherNode(String),
    Taint(String),
    NodeSelector(String),
    NodeAffinity,
    Port(u16),
    Lacking {
        resource: String,
        asked: i64,
    },
    /// The other reason holds only for the sake of nominated pods.
    Nominated(Box<Reason>),
    NoSpreadTopology(String),
    Spread {
        key: String,
        max_skew: i64,
    },
    NoTopology(String),
    NotNear(String),
    TooNear(String),
    Repelled(String),
    ClaimElsewhere(String),
    Devices(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("the node is not ready"),
            Self::Unschedulable => f.write_str("the node takes no new pods (spec.unschedulable)"),
            Self::OtherNode(name) => write!(f, "the pod wants node {name}"),
            Self::Taint(taint) => write!(f, "taint {taint} of the node is not tolerated"),
            Self::NodeSelector(label) => write!(f, "the node has no label {label}, which nodeSelector wants"),
            Self::NodeAffinity => f.write_str("the node is none of those that nodeAffinity wants"),
            Self::Port(port) => write!(f, "host port {port} is taken"),
            Self::Lacking { resource, .. } if resource == amounts::PODS => f.write_str("the node has its most pods"),
            Self::Lacking { resource, asked } => {
                write!(f, "not enough {resource}: {} of it are not free", amounts::shown(resource, *asked))
            }
            Self::Nominated(reason) => {
                write!(f, "{reason} beside pods that are nominated for the node (status.nominatedNodeName)")
            }
            Self::NoSpreadTopology(key) => write!(f, "the node has no label {key}, over which the pods are spread"),
            Self::Spread { key, max_skew } => {
                write!(f, "one more pod there would exceed maxSkew {max_skew} of the topology spread over {key}")
            }
            Self::NoTopology(key) => write!(f, "the node has no label {key}, which podAffinity is about"),
            Self::NotNear(key) => write!(f, "no pod that podAffinity wants is in the same {key}"),
            Self::TooNear(key) => write!(f, "a pod that podAntiAffinity avoids is in the same {key}"),
            Self::Repelled(key) => write!(f, "a pod in the same {key} avoids it by podAntiAffinity"),
            Self::ClaimElsewhere(claim) => write!(f, "the devices of claim {claim} cannot be used on the node"),
            Self::Devices(reason) => f.write_str(reason),
        }
    }
}

impl Reason {
    /// Returns the kind of the reason.
    pub(super) fn kind(&self) -> NodeRefusalKind {
        match self {
            Self::NotReady => NodeRefusalKind::NotReady,
            Self::Unschedulable => NodeRefusalKind::Cordoned,
            Self::OtherNode(_) | Self::NodeSelector(_) | Self::NodeAffinity => NodeRefusalKind::NotWanted,
            Self::Taint(_) => NodeRefusalKind::Taint,
            Self::Port(_) => NodeRefusalKind::Port,
            Self::Lacking { .. } => NodeRefusalKind::Lacking,
            Self::Nominated(reason) => reason.kind(),
            Self::NoSpreadTopology(_) | Self::Spread { .. } => NodeRefusalKind::Spread,
            Self::NoTopology(_) | Self::NotNear(_) | Self::TooNear(_) | Self::Repelled(_) => NodeRefusalKind::OtherPods,
            Self::ClaimElsewhere(_) => NodeRefusalKind::ClaimElsewhere,
            Self::Devices(_) => NodeRefusalKind::Devices,
        }
    }
}

/// Returns the reason why no pod of the set can ever be on the node.
pub(super) fn never(place: &NodePlace, wish: &Wish) -> Option<Reason> {
    let (node, spec) = (&*place.node, &wish.spec);
    None.or_else(|| (!node.is_ready()).then_some(Reason::NotReady))
        .or_else(|| (node.spec.unschedulable && !bears_unschedulable(spec)).then_some(Reason::Unschedulable))
        .or_else(|| wanted_node(node, spec))
        .or_else(|| taint(node, spec))
        .or_else(|| labels(place, spec))
}

/// Returns the reason why no further pod of the set can be on the node for now.
pub(super) fn not_now(place: &NodePlace, taken: &NodeUse, wish: &Wish) -> Option<Reason> {
    let port = wish.holds.ports.iter().find(|port| taken.ports.iter().any(|other| other.collides(port)));
    if let Some(port) = port {
        return Some(Reason::Port(port.host_port));
    }
    let (resource, asked) = place.allocatable.lacking(&taken.amounts, &wish.holds.amounts)?;
    Some(Reason::Lacking { resource: resource.to_owned(), asked })
}

/// Number of pods of the set that the node takes, devices apart.
pub(super) fn room(place: &NodePlace, taken: &NodeUse, wish: &Wish) -> i64 {
    if not_now(place, taken, wish).is_some() {
        return 0;
    }
    let most = place.allocatable.fits(&taken.amounts, &wish.holds.amounts);
    // A port of the node is there once.
    if wish.holds.ports.is_empty() { most } else { most.min(1) }
}

fn wanted_node(node: &Node, spec: &PodSpec) -> Option<Reason> {
    let wanted = spec.node_name.as_deref().filter(|name| !name.is_empty() && *name != node.metadata.name)?;
    Some(Reason::OtherNode(wanted.to_owned()))
}

/// Returns the taint of the node that the pod does not tolerate.
pub(super) fn taint(node: &Node, spec: &PodSpec) -> Option<Reason> {
    let taint = node.spec.taints.iter().find(|taint| taint.keeps_away() && !bears(spec, taint))?;
    Some(Reason::Taint(taint.to_string()))
}

fn bears(spec: &PodSpec, taint: &Taint) -> bool {
    spec.tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

fn bears_unschedulable(spec: &PodSpec) -> bool {
    let taint = Taint { key: UNSCHEDULABLE.to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
    bears(spec, &taint)
}

/// Returns the label of the node that the pod lacks there, or its node affinity.
pub(super) fn labels(place: &NodePlace, spec: &PodSpec) -> Option<Reason> {
    let labels = &place.node.metadata.labels;
    if let Some((key, value)) = spec.node_selector.iter().find(|(key, value)| labels.get(*key) != Some(value)) {
        return Some(Reason::NodeSelector(format!("{key}={value}")));
    }
    let required = spec.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let is_wanted = |selector: &NodeSelector| place.is_of(selector);
    (!is_wanted(required)).then_some(Reason::NodeAffinity)
}
