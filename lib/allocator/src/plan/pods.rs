//! Sets of pods with one spec: their claims on a node and on devices, and the parts of the spec that no answer
//! considers.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    ObjectKey,
    core::{Affinity, PodResourceClaim, PodSpec},
    resource::{DeviceClass, ResourceClaimSpec},
};

use super::{
    facts::ClusterFacts,
    node_use::NodeUse,
    pod_terms::{PodIdentity, PodTerm, has_pod_terms},
    priority::priority,
};

const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Start of the name of a resource, before the name of a class, by which pods ask for devices without a claim.
const DEVICE_CLASS_RESOURCE: &str = "deviceclass.resource.kubernetes.io/";

/// Pods that are alike, as a workload makes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSet {
    /// Name of the set in the answer.
    pub name: String,
    /// Namespace of the pods, their claims and templates.
    pub namespace: String,
    /// Number of pods.
    pub count: u32,
    /// Labels of each pod.
    pub labels: BTreeMap<String, String>,
    /// Pods of the set that are nominated for a node: the room that is left for them there is the set's.
    pub nominated: Vec<ObjectKey>,
    /// Spec of each pod.
    pub spec: PodSpec,
}

/// A set of pods, with the objects that it names looked up.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) count: u32,
    pub(super) priority: i32,
    pub(super) nominated: Vec<ObjectKey>,
    pub(super) spec: PodSpec,
    /// Resources and ports that a pod takes of its node.
    pub(super) holds: NodeUse,
    /// The pods as other pods' terms see them; none for a set without pods.
    pub(super) identity: Option<Arc<PodIdentity>>,
    /// In the order of the pod.
    pub(super) claims: Vec<ClaimWish>,
    /// Constraints on where pods run that are not looked at.
    pub(super) unsupported: Vec<Unsupported>,
    /// Other remarks on the set.
    pub(super) notes: Vec<String>,
    /// The reason why no pod of the set can run, whatever the nodes are like.
    pub(super) problem: Option<String>,
}

/// A constraint on where pods run that is not looked at.
#[derive(Clone, Debug)]
pub(super) struct Unsupported {
    pub(super) what: String,
    /// True if pods that do not fit without it might fit with it.
    pub(super) may_help: bool,
}

/// A claim of a pod.
#[derive(Clone, Debug)]
pub(super) enum ClaimWish {
    /// A claim that each pod gets for itself.
    Own(Arc<ResourceClaimSpec>),
    /// A claim that all pods share.
    Named(ObjectKey, Arc<ResourceClaimSpec>),
}

impl ClaimWish {
    pub(super) fn spec(&self) -> &Arc<ResourceClaimSpec> {
        match self {
            Self::Own(spec) | Self::Named(_, spec) => spec,
        }
    }
}

/// Returns the resources that a pod takes of its node. A set without containers has no pods, but asks for devices by
/// themselves: nodes have room for any number of these.
fn taken_of_node(spec: &PodSpec) -> NodeUse {
    if spec.containers.is_empty() { NodeUse::default() } else { NodeUse::of_pod(spec) }
}

/// Returns what terms see of the pods. A set without containers has no pods, so terms do not see any.
fn identity(set: &PodSet, namespace: &str) -> Option<PodIdentity> {
    let far = set.spec.affinity.as_ref().map_or(&[][..], Affinity::far);
    (!set.spec.containers.is_empty()).then(|| PodIdentity {
        namespace: namespace.to_owned(),
        labels: set.labels.clone(),
        far: PodTerm::of_incoming(far, namespace, &set.labels),
    })
}

impl Wish {
    pub(super) fn new(set: &PodSet, facts: &ClusterFacts) -> Self {
        let (mut claims, mut problem) = (Vec::new(), None);
        for claim in &set.spec.resource_claims {
            match look_up(claim, &set.namespace, facts) {
                Ok(claim) => claims.push(claim),
                Err(missing) => problem = problem.or(Some(missing)),
            }
        }
        let namespace = ObjectKey::new(&set.namespace, "").namespace;
        let (priority, mut notes) = priority(&set.spec);
        notes.extend(notes_of(&set.spec));
        Self {
            name: set.name.clone(),
            identity: identity(set, &namespace).map(Arc::new),
            namespace,
            count: set.count,
            priority,
            nominated: set.nominated.clone(),
            spec: set.spec.clone(),
            holds: taken_of_node(&set.spec),
            unsupported: unsupported(&set.spec, facts),
            claims,
            notes,
            problem,
        }
    }

    /// Size of a pod's requests: devices first, then CPU, then memory.
    pub(super) fn size(&self) -> (i64, i64, i64) {
        let requests = self.claims.iter().flat_map(|claim| &claim.spec().devices.requests);
        let devices = requests.map(|request| request.exactly.as_ref().and_then(|it| it.count).unwrap_or(1)).sum();
        (devices, self.holds.amounts.get("cpu"), self.holds.amounts.get("memory"))
    }
}

fn look_up(claim: &PodResourceClaim, namespace: &str, facts: &ClusterFacts) -> Result<ClaimWish, String> {
    let key = |name: &str| ObjectKey::new(namespace, name);
    match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
        (Some(name), _) => {
            let key = key(name);
            let found = facts.claims.get(&key).ok_or_else(|| format!("there is no ResourceClaim {key}"))?;
            if found.is_going {
                return Err(format!("ResourceClaim {key} is being deleted"));
            }
            Ok(ClaimWish::Named(key, Arc::new(found.spec(&facts.store.texts))))
        }
        (None, Some(name)) => {
            let key = key(name);
            let found = facts.templates.get(&key).ok_or_else(|| format!("there is no ResourceClaimTemplate {key}"))?;
            Ok(ClaimWish::Own(found.clone()))
        }
        (None, None) => Err(format!("resource claim {} of the pod names neither a claim nor a template", claim.name)),
    }
}

fn notes_of(spec: &PodSpec) -> Vec<String> {
    let gates: Vec<&str> = spec.scheduling_gates.iter().map(|gate| &*gate.name).collect();
    let preferred = spec.affinity.iter().flat_map(|it| &it.node_affinity).any(|it| !it.preferred.is_empty());
    let gated = (!gates.is_empty()).then(|| format!("its pods wait until {} let them go", hostler_api::few(gates)));
    let liked =
        preferred.then(|| "preferred node affinity does not change what fits, and was not looked at".to_owned());
    gated.into_iter().chain(liked).collect()
}

/// Lists constraints on where pods run that are not looked at here, one sentence each.
fn unsupported(spec: &PodSpec, facts: &ClusterFacts) -> Vec<Unsupported> {
    let resources = !spec.resource_claims.is_empty() && facts.slices.values().any(|slice| slice.has_node_resources);
    let resources = resources.then(|| "devices that stand for CPU or memory of their node".to_owned());
    let helps = extended(spec, facts).into_iter().chain(resources);
    let helps = helps.map(|what| Unsupported { what, may_help: true });
    let of_spec = not_judged(spec).into_iter().map(|NotJudged { what, may_help, .. }| Unsupported { what, may_help });
    of_spec.chain(helps).collect()
}

/// A field of a pod that decides where it runs, and that plans do not look at, or Reservations cannot keep.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NotJudged {
    /// The path below the pod's spec.
    pub field: String,
    /// One sentence about it.
    pub what: String,
    /// True if pods may fit on more nodes because of it.
    may_help: bool,
}

impl NotJudged {
    fn limit(field: String, what: String) -> Self {
        Self { field, what, may_help: false }
    }
}

/// Lists all fields of a pod that decide where it runs, and that plans do not look at.
pub fn not_judged(spec: &PodSpec) -> Vec<NotJudged> {
    let volumes = spec.volumes.iter().enumerate().filter(|(_, volume)| volume.is_claimed());
    let volumes = volumes
        .map(|(at, it)| NotJudged::limit(format!("volumes[{at}]"), format!("volume {} claims storage", it.name)));
    let other = spec.scheduler_name.as_deref().filter(|name| !["", DEFAULT_SCHEDULER].contains(name));
    let other = other.map(|name| NotJudged {
        field: "schedulerName".to_owned(),
        what: format!("schedulerName {name}: another scheduler places its pods"),
        may_help: true,
    });
    volumes.chain(other).collect()
}

/// Lists all fields of a pod that decide where it runs, and by which devices that are kept for it may come to lie where
/// it cannot run: those about other pods, which come and go meanwhile, and those that plans do not look at.
pub fn not_kept(spec: &PodSpec) -> Vec<NotJudged> {
    let affinity = spec.affinity.as_ref();
    let terms = [
        ("podAffinity", affinity.map_or(&[][..], Affinity::near)),
        ("podAntiAffinity", affinity.map_or(&[][..], Affinity::far)),
    ];
    let required = terms.into_iter().filter(|(_, terms)| !terms.is_empty()).map(|(kind, _)| {
        let field = format!("affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution");
        NotJudged::limit(field, format!("required {kind}"))
    });
    let spread = spec.topology_spread_constraints.iter().enumerate().filter(|(_, spread)| spread.is_required());
    let spread = spread.map(|(at, it)| {
        let what = format!("topologySpreadConstraints over {} with DoNotSchedule", it.topology_key);
        NotJudged::limit(format!("topologySpreadConstraints[{at}]"), what)
    });
    spread.chain(required).chain(not_judged(spec)).collect()
}

impl PodSet {
    /// Returns true if the pods must run near or far from others, or be spread: no booking of devices or of room holds
    /// that for them.
    pub fn has_pod_terms(&self) -> bool {
        has_pod_terms(&self.spec)
    }
}

/// Lists resources of the pod, requested like CPU and memory, that are devices.
fn extended(spec: &PodSpec, facts: &ClusterFacts) -> Vec<String> {
    let is_of_class = |name: &str| {
        let named = |class: &Arc<DeviceClass>| class.spec.extended_resource_name.as_deref() == Some(name);
        name.starts_with(DEVICE_CLASS_RESOURCE) || facts.classes.values().any(named)
    };
    let names = spec.requests().into_keys().filter(|name| is_of_class(name));
    names.map(|name| format!("resource {name}, which a DeviceClass can satisfy")).collect()
}
