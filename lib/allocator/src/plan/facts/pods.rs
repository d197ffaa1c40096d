//! Pods that hold something of their node. Replicas have one specification, which is held once.

use std::collections::BTreeMap;

use hostler_api::core::{Pod, PodSpec, Volume};

use super::{
    ClusterFacts, Store,
    compact::Renumbering,
    slices::{from_json, intern_json},
};
use crate::plan::sequences::Texts;

/// A pod on a node, in numbers of texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) struct PackedPod {
    pub(in crate::plan) node: u32,
    /// Spec of the pod without its node.
    pub(in crate::plan) spec: u32,
    /// Column of the pod's labels: the texts of each key and its value.
    pub(in crate::plan) labels: u32,
    /// True if the pod belongs to its node, as the pods of a DaemonSet and those of files on the node do.
    pub(in crate::plan) is_of_node: bool,
    /// True if the pod is being deleted.
    pub(in crate::plan) is_going: bool,
    /// Kind and name of the pod's first owner, if any.
    pub(in crate::plan) owner: Option<u32>,
}

impl PackedPod {
    /// Packs a pod that has a node and has not ended.
    pub(in crate::plan) fn pack(pod: &Pod, store: &mut Store) -> Option<Self> {
        if !pod.is_on_a_node() {
            return None;
        }
        let owner = pod.metadata.owner_references.first();
        let mut spec = PodSpec { node_name: None, ..pod.spec.clone() };
        // Every pod has a volume of a name of its own, for its token: replicas would have nothing in common.
        spec.volumes.retain(Volume::is_claimed);
        let labels = intern_labels(store, &pod.metadata.labels);
        let texts = &mut store.texts;
        Some(Self {
            labels,
            node: texts.intern(pod.node()?),
            spec: intern_json(texts, &spec),
            is_of_node: owner.is_some_and(|owner| matches!(&*owner.kind, "DaemonSet" | "Node")),
            is_going: pod.metadata.deletion_timestamp.is_some(),
            owner: owner.map(|owner| texts.intern(&format!("{} {}", owner.kind, owner.name))),
        })
    }

    /// Returns the pod with other numbers of texts.
    pub(super) fn renumbered(&self, to: &mut impl Renumbering) -> Self {
        Self {
            node: to.text(self.node),
            spec: to.text(self.spec),
            labels: to.column(self.labels),
            is_of_node: self.is_of_node,
            is_going: self.is_going,
            owner: self.owner.map(|owner| to.text(owner)),
        }
    }

    /// Unpacks the spec of the pod.
    pub(in crate::plan) fn spec(&self, texts: &Texts) -> PodSpec {
        from_json(texts, self.spec).unwrap_or_default()
    }
}

/// The labels of a pod, packed.
#[derive(Clone, Copy, Debug)]
pub(in crate::plan) struct PodLabels<'f> {
    texts: &'f Texts,
    column: &'f [u32],
}

impl<'f> PodLabels<'f> {
    /// Returns the value of a label.
    pub(in crate::plan) fn get(&self, key: &str) -> Option<&'f str> {
        self.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    fn iter(&self) -> impl Iterator<Item = (&'f str, &'f str)> + use<'f> {
        let Self { texts, column } = *self;
        column.chunks_exact(2).map(|pair| (texts.get(pair[0]), texts.get(pair[1])))
    }
}

impl ClusterFacts {
    /// Labels of pods, by the number of their column.
    pub(in crate::plan) fn labels_of_pods(&self, column: u32) -> PodLabels<'_> {
        PodLabels { texts: &self.store.texts, column: self.store.columns.get(column) }
    }

    /// Returns the labels of pods as a map.
    pub(in crate::plan) fn label_map(&self, column: u32) -> BTreeMap<String, String> {
        self.labels_of_pods(column).iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Unpacks the spec of pods, by the number of its text.
    pub(in crate::plan) fn spec_of_pods(&self, spec: u32) -> PodSpec {
        from_json(&self.store.texts, spec).unwrap_or_default()
    }
}

/// Workloads give few different labels to many pods; a column holds equal ones once.
fn intern_labels(store: &mut Store, labels: &BTreeMap<String, String>) -> u32 {
    let texts = &mut store.texts;
    let column: Vec<u32> = labels.iter().flat_map(|(key, value)| [key, value]).map(|text| texts.intern(text)).collect();
    store.columns.intern(&column)
}
