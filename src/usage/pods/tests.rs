//! The join, from made-up pods, containers, notes and records.

use std::{path::Path, sync::Arc};

use hostler_api::{
    Access, BackendName, DeviceName, Grant, QualifiedName, Quantity, resource::ResourceClaimConsumerReference,
};
use hostler_backend::{AttributeValue, Capacity, Device, DevicePlan, NodeAllocatable, Pinning};
use hostler_fake::FakeBackend;
use hostler_linux::SysRoot;

use super::*;
use crate::{
    claims::{
        ClaimView,
        store::{ClaimRecord, RecordDevice, RecordState},
    },
    containers::{ContainerDir, ContainerId, ContainerOwner, ContainerUse, NotedPod, record, seen::SeenContainer},
    inventory::Pool,
    pods::{NodePod, PodClaim, PodContainer, PodContainerClaim},
};

/// Everything that can be known, empty at first.
struct World {
    pods: PodsOfNode,
    seen: SeenContainers,
    notes: ContainerNotes,
    claims: ClaimTable,
    inventory: Inventory,
    backends: BackendRegistry,
    naming: CdiNaming,
}

impl World {
    fn new() -> Self {
        let fake = BackendName::new("fake").unwrap();
        let mut card = Device::new(DeviceName::new("card").unwrap());
        card.attributes.insert(QualifiedName::new("resource.kubernetes.io/numaNode").unwrap(), AttributeValue::Int(1));
        let mut memory = Device::new(DeviceName::new("mem").unwrap());
        let bytes = QualifiedName::new("memory").unwrap();
        memory.capacity.insert(bytes.clone(), Capacity { value: Quantity::whole(64), policy: None });
        let per_byte = NodeAllocatable::PerCapacity { capacity: bytes, factor: Quantity::whole(1) };
        memory.node_allocatable.insert("hugepages-2Mi".to_owned(), per_byte);
        let plain = Device::new(DeviceName::new("plain").unwrap());
        let pool = Pool { name: "n1/fake".to_owned(), devices: vec![card, memory, plain], ..Pool::default() };
        let inventory = Inventory { pools: [(fake, Arc::new(pool))].into(), ..Inventory::default() };
        let backend: Arc<dyn hostler_backend::Backend> = Arc::new(FakeBackend::new(Default::default()));
        Self {
            pods: PodsOfNode::default(),
            seen: SeenContainers::default(),
            notes: ContainerNotes::new(),
            claims: ClaimTable::default(),
            inventory,
            backends: BackendRegistry::new([backend]),
            naming: CdiNaming {
                driver: "hostler.dev".to_owned(),
                hook: "/usr/bin/hostler".into(),
                containers: "/c".into(),
                metadata: "/m".into(),
            },
        }
    }

    /// A prepared claim `ml/<name>` with the same UID as name.
    fn claim(&mut self, name: &str, devices: &[(&str, &str)], reserved: &[(&str, &str)]) {
        let device = |(request, device): &(&str, &str)| {
            let pinning = Pinning { cpus: [8, 9].into(), ..Pinning::default() };
            RecordDevice {
                local: None,
                backend: BackendName::new("fake").unwrap(),
                grant: Grant {
                    request: (*request).to_owned(),
                    pool: "n1/fake".to_owned(),
                    device: DeviceName::new(*device).unwrap(),
                    share_id: None,
                    access: Access::Use,
                    consumed: Default::default(),
                    config: Vec::new(),
                },
                plan: DevicePlan {
                    pinning: if *device == "card" { pinning } else { Pinning::default() },
                    ..Default::default()
                },
                counters: Vec::new(),
                capacity: Default::default(),
                edits: Default::default(),
                unmet: Vec::new(),
            }
        };
        let user = |(name, uid): &(&str, &str)| ResourceClaimConsumerReference {
            resource: "pods".to_owned(),
            name: (*name).to_owned(),
            uid: (*uid).to_owned(),
            ..ResourceClaimConsumerReference::default()
        };
        let uid = ClaimUid::new(name).unwrap();
        let record = ClaimRecord {
            claim: ClaimRef { namespace: "ml".to_owned(), name: name.to_owned(), uid: uid.clone() },
            state: RecordState::Prepared,
            boot_id: "b".to_owned(),
            devices: devices.iter().map(device).collect(),
            metadata: None,
            since: None,
            reserved_for: reserved.iter().map(user).collect(),
        };
        self.claims.claims.insert(uid, ClaimView::Recorded { record: Arc::new(record), problem: None, busy: None });
    }

    fn pods(&mut self, pods: Vec<NodePod>) {
        let by_name = pods.into_iter().map(|pod| (pod.name.clone(), Arc::new(pod)));
        self.pods = PodsOfNode::Known(Arc::new(by_name.collect()));
    }

    fn seen(&mut self, containers: Vec<SeenContainer>) {
        let by_id = containers.into_iter().map(|seen| (seen.id.as_str().to_owned(), Arc::new(seen)));
        self.seen = SeenContainers::Connected(Arc::new(by_id.collect()));
    }

    /// Notes, as the hook writes them, that a container of this process uses a claim.
    fn note(&mut self, folder: &Path, claim: &str, id: &str, owner: ContainerOwner) {
        let uid = ClaimUid::new(claim).unwrap();
        let (container, pid) = (ContainerId::new(id).unwrap(), std::process::id());
        let used = ContainerUse { claim: &uid, container: &container, pid, sets: None, owner };
        record(&SysRoot::host(), folder, used).unwrap();
        let boot_id = hostler_linux::boot::boot_id(&SysRoot::host()).unwrap();
        let found = ContainerDir::new(folder, SysRoot::host(), boot_id).of(&uid).unwrap();
        self.notes.insert(uid, found);
    }

    fn usage(&self) -> NodePodUsage {
        NodePodUsage::of(&PodUsageFacts {
            pods: &self.pods,
            seen: &self.seen,
            notes: &self.notes,
            claims: &self.claims,
            inventory: &self.inventory,
            backends: &self.backends,
            naming: &self.naming,
        })
    }
}

fn pod_name(name: &str) -> PodName {
    PodName { namespace: "ml".to_owned(), name: name.to_owned() }
}

fn container(name: &str, kind: PodContainerKind, claims: &[(&str, Option<&str>)]) -> PodContainer {
    let claim = |(name, request): &(&str, Option<&str>)| PodContainerClaim {
        name: (*name).to_owned(),
        request: request.map(str::to_owned),
    };
    PodContainer { name: name.to_owned(), kind, claims: claims.iter().map(claim).collect(), runtime_id: None }
}

fn pod(name: &str, containers: Vec<PodContainer>, claims: &[(&str, PodClaim)]) -> NodePod {
    NodePod {
        name: pod_name(name),
        uid: format!("{name}-uid"),
        ended: false,
        deleting: false,
        containers,
        claims: claims.iter().map(|(name, claim)| ((*name).to_owned(), claim.clone())).collect(),
    }
}

fn named(name: &str) -> PodClaim {
    PodClaim::Named(name.to_owned())
}

fn owner(pod: Option<&str>, name: Option<&str>) -> ContainerOwner {
    let noted = |name: &str| NotedPod { namespace: "ml".to_owned(), name: name.to_owned(), uid: None };
    ContainerOwner { name: name.map(str::to_owned), pod: pod.map(noted) }
}

/// Pod, container and `claim:device,…` of everything that is held; the pod alone where it holds nothing.
fn told(usage: &NodePodUsage) -> Vec<String> {
    let claim = |used: &ClaimUse| {
        let devices: Vec<&str> = used.devices.iter().map(|device| device.device.as_str()).collect();
        format!("{}:{}", used.claim.name, devices.join(","))
    };
    let mut told = Vec::new();
    for pod in &usage.pods {
        for container in &pod.containers {
            let claims: Vec<String> = container.claims.iter().map(claim).collect();
            told.push(format!("{} {} {}", pod.name.name, container.name, claims.join(" ")).trim_end().to_owned());
        }
        told.extend(pod.claims.iter().map(|used| format!("{} ? {}", pod.name.name, claim(used))));
    }
    told.extend(usage.unused.iter().map(|used| format!("nobody {}", claim(used))));
    told
}

#[test]
fn a_pod_tells_which_container_has_which_request_of_a_claim() {
    use PodContainerKind::{Init, Regular, Sidecar};
    let mut world = World::new();
    world.claim("train", &[("a", "card"), ("b", "mem")], &[]);
    world.claim("log-x7", &[("r", "plain")], &[]);
    world.claim("early", &[("r", "plain")], &[]);
    let containers = vec![
        container("first", Init, &[("early", None)]),
        container("proxy", Sidecar, &[("logs", None)]),
        container("main", Regular, &[("gpu", Some("a")), ("logs", None)]),
        container("both", Regular, &[("gpu", Some("a")), ("gpu", Some("b"))]),
        container("idle", Regular, &[]),
    ];
    let claims = [
        ("gpu", named("train")),
        ("logs", PodClaim::Generated(Some("log-x7".to_owned()))),
        ("soon", PodClaim::Generated(None)),
        ("none", PodClaim::Nothing),
        ("early", named("early")),
    ];
    world.pods(vec![pod("train-0", containers, &claims), pod("bare", vec![container("c", Regular, &[])], &[])]);
    assert_eq!(
        told(&world.usage()),
        [
            "bare c",
            "train-0 first early:plain",
            "train-0 proxy log-x7:plain",
            "train-0 main train:card log-x7:plain",
            "train-0 both train:card,mem",
            "train-0 idle",
        ]
    );
}

#[test]
fn a_device_is_told_as_cpus_as_memory_or_as_itself_with_its_node() {
    let mut world = World::new();
    world.claim("train", &[("a", "card"), ("b", "mem"), ("c", "plain")], &[]);
    let usage = world.usage();
    let [card, mem, plain] = &usage.unused[0].devices[..] else { panic!("{usage:?}") };
    assert_eq!((&card.nodes, &card.cpus, card.is_of_node), (&[1].into(), &[8, 9].into(), false));
    assert_eq!(card.cdi_ids, ["hostler.dev/claim=train-0-card"]);
    let huge = UsedMemory { kind: "hugepages-2Mi".to_owned(), nodes: BTreeSet::new(), bytes: 64 };
    assert_eq!((&mem.memory[..], mem.is_of_node), (&[huge][..], true));
    assert!(plain.nodes.is_empty() && plain.memory.is_empty() && !plain.is_of_node);
}

#[test]
fn a_pod_that_has_ended_holds_nothing_and_one_that_is_deleted_still_does() {
    let mut world = World::new();
    world.claim("train", &[("a", "card")], &[("done", "done-uid"), ("going", "going-uid")]);
    let with_claim = |name: &str| {
        pod(name, vec![container("main", PodContainerKind::Regular, &[("c", None)])], &[("c", named("train"))])
    };
    let done = NodePod { ended: true, ..with_claim("done") };
    let going = NodePod { deleting: true, ..with_claim("going") };
    world.pods(vec![done.clone(), going]);
    let usage = world.usage();
    assert_eq!(told(&usage), ["going main train:card"]);
    assert_eq!(usage.ended, [pod_name("done")].into());
    world.pods(vec![done]);
    assert_eq!(told(&world.usage()), ["nobody train:card"]);
}

#[test]
fn a_claim_that_was_reserved_for_an_earlier_pod_of_the_same_name_is_not_the_new_ones() {
    let mut world = World::new();
    world.claim("train", &[("a", "card")], &[("train-0", "another-uid")]);
    let main = container("main", PodContainerKind::Regular, &[("c", None)]);
    world.pods(vec![pod("train-0", vec![main.clone()], &[("c", named("train"))])]);
    assert_eq!(told(&world.usage())[0], "train-0 main");
    world.claim("train", &[("a", "card")], &[("train-0", "train-0-uid")]);
    assert_eq!(told(&world.usage()), ["train-0 main train:card"]);
}

#[test]
fn a_runtime_tells_of_pods_that_nobody_may_watch() {
    let mut world = World::new();
    world.claim("train", &[("a", "card")], &[]);
    let seen = |id: &str, name: &str, claims: &[&str]| SeenContainer {
        id: ContainerId::new(id).unwrap(),
        name: name.to_owned(),
        namespace: "ml".to_owned(),
        pod: "train-0".to_owned(),
        pod_uid: "train-0-uid".to_owned(),
        claims: claims.iter().map(|uid| ClaimUid::new(*uid).unwrap()).collect(),
        cgroups_path: None,
        pool: None,
        pid: None,
        quarantined: None,
    };
    world.seen(vec![seen("c1", "main", &["train", "unknown"]), seen("c2", "log", &[])]);
    let usage = world.usage();
    assert_eq!(told(&usage), ["train-0 main train:card", "train-0 log"]);
    assert_eq!(usage.pods[0].known_by, PodEvidence::Runtime);
    assert_eq!(usage.pods[0].containers[0].id.as_deref(), Some("c1"));
    // What the pod says of requests is narrower, and counts.
    world.claim("train", &[("a", "card"), ("b", "mem")], &[]);
    let main = container("main", PodContainerKind::Regular, &[("c", Some("b"))]);
    world.pods(vec![pod("train-0", vec![main], &[("c", named("train"))])]);
    assert_eq!(told(&world.usage()), ["train-0 main train:mem", "train-0 log"]);
}

#[test]
fn notes_tell_of_pods_where_nobody_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new();
    for (claim, reserved) in [("one", &[][..]), ("two", &[]), ("three", &[("job-1", "u")]), ("four", &[])] {
        world.claim(claim, &[("a", "card")], reserved);
    }
    world.note(folder.path(), "one", "c1", owner(Some("train-0"), Some("main")));
    world.note(folder.path(), "two", "c1", owner(Some("train-0"), Some("main")));
    // Of an earlier version, or of a runtime that tells nothing.
    world.note(folder.path(), "three", "c3", owner(None, None));
    world.note(folder.path(), "four", "c4", owner(None, None));
    let usage = world.usage();
    assert_eq!(told(&usage), ["c4 c4 four:card", "job-1  three:card", "train-0 main one:card two:card"]);
    assert!(usage.pods.iter().all(|pod| pod.known_by == PodEvidence::Note));
    // A pod that has ended is believed to have ended.
    world.pods(vec![NodePod { ended: true, ..pod("train-0", Vec::new(), &[]) }]);
    assert!(told(&world.usage()).iter().all(|line| !line.starts_with("train-0")));
}

#[test]
fn a_note_of_a_container_that_the_pod_has_named_tells_nothing_new() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new();
    world.claim("train", &[("a", "card")], &[]);
    world.note(folder.path(), "train", "c1", owner(None, None));
    let main = container("main", PodContainerKind::Regular, &[("c", None)]);
    let main = PodContainer { runtime_id: Some("c1".to_owned()), ..main };
    world.pods(vec![pod("train-0", vec![main], &[("c", named("train"))])]);
    assert_eq!(told(&world.usage()), ["train-0 main train:card"]);
}

#[test]
fn where_no_container_is_known_the_reservation_tells_the_pod() {
    let mut world = World::new();
    world.claim("train", &[("a", "card")], &[("train-0", "u0"), ("train-1", "u1")]);
    world.claim("spare", &[("a", "plain")], &[]);
    let usage = world.usage();
    assert_eq!(told(&usage), ["train-0 ? train:card", "train-1 ? train:card", "nobody spare:plain"]);
    assert_eq!(usage.pods[0].known_by, PodEvidence::Reservation);
    // Where pods are known, one that is not among them is gone.
    world.pods(vec![pod("train-1", Vec::new(), &[])]);
    assert_eq!(told(&world.usage()), ["train-1 ? train:card", "nobody spare:plain"]);
}
