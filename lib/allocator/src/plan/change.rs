//! Hypothetical changes to the facts of a cluster, as values.

mod parse;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
};

use hostler_api::{
    ObjectKey,
    core::{Node, ObjectMeta, Taint},
    resource::{DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector},
};

use super::{
    facts::{ClusterFacts, PackedClaim, PackedPod, PackedSlice},
    pod_terms::shared_labels,
    pods::PodSet,
};

pub use parse::ParseChangeError;

/// The label by which a node's pods find their own node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// One change. [`FromStr`](std::str::FromStr) reads its text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// The node takes no new pods, and those on it go elsewhere.
    DrainNode {
        /// Name of the node.
        node: String,
    },
    /// The node, its devices and its pods are gone.
    RemoveNode {
        /// Name of the node.
        node: String,
    },
    /// More nodes with the same devices, of which none are taken.
    AddNodesLike {
        /// Name of the node that they copy.
        node: String,
        /// Number of new nodes.
        count: u32,
    },
    /// A taint on a node.
    TaintNode {
        /// Name of the node.
        node: String,
        /// The taint.
        taint: Taint,
    },
    /// A taint of a node is gone.
    UntaintNode {
        /// Name of the node.
        node: String,
        /// The taint; an empty value or effect means any.
        taint: Taint,
    },
    /// A taint on devices, as a DeviceTaintRule puts it there.
    TaintDevice {
        /// Driver.
        driver: String,
        /// Pool; `None`: all.
        pool: Option<String>,
        /// Device; `None`: all.
        device: Option<String>,
        /// The taint.
        taint: Taint,
    },
    /// The devices of a claim are free again.
    FreeClaim {
        /// The claim.
        claim: ObjectKey,
    },
}

/// The reason why a change cannot be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChangeError {
    /// There is no such node.
    #[error("there is no node {node}; there are {known}")]
    NoNode {
        /// Name of the node that was looked up.
        node: String,
        /// Some of the known nodes, in words.
        known: String,
    },
    /// There is no such device.
    #[error("no slice has a device {device}; write driver/pool/device, with * for every pool or device")]
    NoDevice {
        /// The device that was looked up.
        device: String,
    },
    /// There is no such claim.
    #[error("there is no claim {claim}; write namespace/name")]
    NoClaim {
        /// The claim that was looked up.
        claim: ObjectKey,
    },
    /// The claim holds nothing.
    #[error("claim {claim} was given nothing that could be free")]
    NotAllocated {
        /// The claim.
        claim: ObjectKey,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_all = |name: &Option<String>| name.clone().unwrap_or_else(|| "*".to_owned());
        match self {
            Self::DrainNode { node } => write!(f, "drain node {node}"),
            Self::RemoveNode { node } => write!(f, "remove node {node}"),
            Self::AddNodesLike { node, count } => write!(f, "add node like {node} × {count}"),
            Self::TaintNode { node, taint } => write!(f, "taint node {node} {taint}"),
            Self::UntaintNode { node, taint } => {
                let taint = taint.to_string();
                write!(f, "taint node {node} {}-", taint.trim_end_matches(':'))
            }
            Self::TaintDevice { driver, pool, device, taint } => {
                write!(f, "taint device {driver}/{}/{} {taint}", or_all(pool), or_all(device))
            }
            Self::FreeClaim { claim } => write!(f, "free claim {claim}"),
        }
    }
}

impl ClusterFacts {
    /// Makes a change. Returns the pods that lose their node by it, as sets that look for another node.
    ///
    /// # Errors
    /// Fails when the change names something that is not there; nothing is changed then.
    pub fn apply(&mut self, change: &Change) -> Result<Vec<PodSet>, ChangeError> {
        match change {
            Change::DrainNode { node } => {
                Arc::make_mut(self.known_node(node)?).spec.unschedulable = true;
                Ok(self.evict(node))
            }
            Change::RemoveNode { node } => {
                self.known_node(node)?;
                Ok(self.remove_node_and_devices(node))
            }
            Change::AddNodesLike { node, count } => self.add_nodes_like(node, *count).map(|()| Vec::new()),
            Change::TaintNode { node, taint } => {
                let taints = &mut Arc::make_mut(self.known_node(node)?).spec.taints;
                taints.retain(|other| (&other.key, &other.effect) != (&taint.key, &taint.effect));
                taints.push(taint.clone());
                Ok(if taint.effect == "NoExecute" { self.evict_intolerant(node, taint) } else { Vec::new() })
            }
            Change::UntaintNode { node, taint } => {
                Arc::make_mut(self.known_node(node)?).spec.taints.retain(|other| !is_meant(taint, other));
                Ok(Vec::new())
            }
            Change::TaintDevice { driver, pool, device, taint } => {
                self.taint_device([Some(driver), pool.as_ref(), device.as_ref()], taint).map(|()| Vec::new())
            }
            Change::FreeClaim { claim } => self.free(claim).map(|()| Vec::new()),
        }
    }

    fn known_node(&mut self, name: &str) -> Result<&mut Arc<Node>, ChangeError> {
        if !self.nodes.contains_key(name) {
            let names: Vec<&str> = self.node_names().collect();
            let known = hostler_api::few(&names);
            return Err(ChangeError::NoNode { node: name.to_owned(), known: known.to_string() });
        }
        let name: Arc<str> = name.into();
        self.changes.node(&name);
        Ok(self.nodes.get_or_default(name))
    }

    fn slices_of(&self, node: u32) -> Vec<(Arc<str>, Arc<PackedSlice>)> {
        let of_node = self.slices.iter().filter(|(_, slice)| slice.node == Some(node));
        of_node.map(|(name, slice)| (name.clone(), slice.clone())).collect()
    }

    fn remove_node_and_devices(&mut self, name: &str) -> Vec<PodSet> {
        let evicted = self.evict(name);
        let number = self.text_number(name);
        let pods: Vec<_> = self.pods.iter().filter(|(_, pod)| pod.node == number).map(|(key, _)| key.clone()).collect();
        pods.iter().for_each(|key| self.remove_pod(key));
        for (name, _) in self.slices_of(number) {
            self.remove_slice(&name);
        }
        self.remove_node(name);
        evicted
    }

    fn add_nodes_like(&mut self, name: &str, count: u32) -> Result<(), ChangeError> {
        let model = self.known_node(name)?.clone();
        let number = self.text_number(name);
        let slices = self.slices_of(number);
        let stay: Vec<(Arc<ObjectKey>, PackedPod)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.node == number && pod.is_of_node)
            .map(|(key, pod)| (key.clone(), *pod))
            .collect();
        let mut next = 1;
        for _ in 0..count {
            while self.nodes.contains_key(&*copy_name(name, next)) {
                next += 1;
            }
            self.add_copy(&model, &copy_name(name, next), &slices, &stay);
        }
        Ok(())
    }

    /// Adds a copy of a node, with devices of its own and the pods that every such node has.
    fn add_copy(
        &mut self,
        model: &Node,
        name: &str,
        slices: &[(Arc<str>, Arc<PackedSlice>)],
        pods: &[(Arc<ObjectKey>, PackedPod)],
    ) {
        let like = &model.metadata.name;
        let mut node = model.clone();
        node.metadata = ObjectMeta { name: name.to_owned(), uid: None, ..node.metadata };
        node.metadata.labels.entry(HOSTNAME.to_owned()).and_modify(|hostname| name.clone_into(hostname));
        node.spec.unschedulable = false;
        self.add_node(node);
        for (slice_name, slice) in slices {
            let pool = renamed(self.text(slice.pool), like, name);
            let copy = slice.of_node(name, &pool, &mut self.store);
            self.put_slice(renamed(slice_name, like, name).into(), Arc::new(copy));
        }
        let node = self.text_number(name);
        for (key, pod) in pods {
            let key = ObjectKey { name: renamed(&key.name, like, name), namespace: key.namespace.clone() };
            self.changes.pods();
            self.pods.insert(Arc::new(key), PackedPod { node, ..*pod });
        }
    }

    fn taint_device(&mut self, [driver, pool, device]: [Option<&String>; 3], taint: &Taint) -> Result<(), ChangeError> {
        let selector = DeviceTaintSelector {
            driver: driver.cloned(),
            pool: pool.cloned(),
            device: device.cloned(),
            ..Default::default()
        };
        let value = (!taint.value.is_empty()).then(|| taint.value.as_str().into());
        let (key, effect) = (taint.key.as_str().into(), taint.effect.as_str().into());
        let mut rule = DeviceTaintRule {
            metadata: ObjectMeta::default(),
            spec: DeviceTaintRuleSpec {
                device_selector: Some(selector),
                taint: DeviceTaint { key, value, effect, time_added: None },
            },
        };
        if !self.has_device(&rule) {
            let or_all = |name: Option<&String>| name.map_or("*", String::as_str).to_owned();
            return Err(ChangeError::NoDevice { device: [driver, pool, device].map(or_all).join("/") });
        }
        // No name of the API has a space, so this rule replaces no other.
        rule.metadata.name = format!("what if {}", self.rules.len());
        self.add_rule(rule);
        Ok(())
    }

    fn has_device(&self, rule: &DeviceTaintRule) -> bool {
        let store = &self.store;
        self.slices.values().any(|slice| {
            let (driver, pool) = (store.texts.get(slice.driver), store.texts.get(slice.pool));
            let names = store.columns.get(slice.names);
            names.iter().any(|name| rule.is_about(driver, pool, store.texts.get(*name)))
        })
    }

    fn free(&mut self, key: &ObjectKey) -> Result<(), ChangeError> {
        let claim = self.claims.get(key).ok_or_else(|| ChangeError::NoClaim { claim: key.clone() })?;
        if claim.allocation.is_none() {
            return Err(ChangeError::NotAllocated { claim: key.clone() });
        }
        let freed = Arc::new(claim.freed());
        self.put_claim(&Arc::new(key.clone()), &freed);
        Ok(())
    }

    fn evict_intolerant(&mut self, node: &str, taint: &Taint) -> Vec<PodSet> {
        let node = self.text_number(node);
        let store = self.store.clone();
        self.evict_where(|pod| {
            pod.node == node && !pod.spec(&store.texts).tolerations.iter().any(|it| it.tolerates(taint))
        })
    }

    fn evict(&mut self, node: &str) -> Vec<PodSet> {
        let node = self.text_number(node);
        self.evict_where(|pod| pod.node == node && !pod.is_of_node)
    }

    /// Takes pods from their node, and frees the devices of claims that no other pod uses.
    fn evict_where(&mut self, is_meant: impl Fn(&PackedPod) -> bool) -> Vec<PodSet> {
        let mut going: Vec<(Arc<ObjectKey>, PackedPod)> =
            self.pods.iter().filter(|(_, pod)| is_meant(pod)).map(|(key, pod)| (key.clone(), *pod)).collect();
        going.sort_by(|one, other| one.0.cmp(&other.0));
        let names: HashSet<(&str, u32)> =
            going.iter().map(|(key, _)| (&*key.namespace, self.text_number(&key.name))).collect();
        let is_free = |(key, claim): &(&Arc<ObjectKey>, &Arc<PackedClaim>)| {
            claim.is_only_of(|pod| names.contains(&(&*key.namespace, pod)))
        };
        let freed: Vec<(Arc<ObjectKey>, Arc<PackedClaim>)> =
            self.claims.iter().filter(is_free).map(|(key, claim)| (key.clone(), Arc::new(claim.freed()))).collect();
        freed.into_iter().for_each(|(key, claim)| self.put_claim(&key, &claim));
        going.iter().for_each(|(key, _)| self.remove_pod(key));
        self.looking_for_a_node(going)
    }

    /// Groups evicted pods into sets: pods of one owner with the same spec and labels are one set.
    fn looking_for_a_node(&self, going: Vec<(Arc<ObjectKey>, PackedPod)>) -> Vec<PodSet> {
        let mut sets: BTreeMap<(String, String, u32, BTreeMap<String, String>), PodSet> = BTreeMap::new();
        for (key, pod) in going.into_iter().filter(|(_, pod)| !pod.is_of_node) {
            let name = pod.owner.map_or_else(|| format!("Pod {}", key.name), |owner| self.text(owner).to_owned());
            let labels = shared_labels(&self.label_map(pod.labels));
            let alike = (key.namespace.clone(), name.clone(), pod.spec, labels.clone());
            let set = sets.entry(alike).or_insert_with(|| PodSet {
                name,
                namespace: key.namespace.clone(),
                labels,
                spec: pod.spec(&self.store.texts),
                ..PodSet::default()
            });
            set.count += 1;
        }
        sets.into_values().collect()
    }
}

fn is_meant(wanted: &Taint, taint: &Taint) -> bool {
    let allows = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
    wanted.key == taint.key && allows(&wanted.value, &taint.value) && allows(&wanted.effect, &taint.effect)
}

fn copy_name(like: &str, number: u32) -> String {
    format!("{like}-like-{number}")
}

/// Returns a name for the copy of a node: `text` with `name` in the place of `like`, or behind.
fn renamed(text: &str, like: &str, name: &str) -> String {
    if text.contains(like) { text.replacen(like, name, 1) } else { format!("{text}-{name}") }
}

#[cfg(test)]
mod tests;
