//! What is offered of a rack, in every state of its devices, and what stays although it is not offered any more.

mod amounts;
mod kept;
mod outdated;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hostler_api::{
    fabric::{AttachmentPhase, DeviceIdentity, FabricAttachment, FabricAttachmentStatus, of_fabric_pool},
    resource::{ResourceClaim, ResourcePool, SliceDevice},
};
use hostler_cluster::{ObjectVersion, since_1970};
use hostler_fabric::{
    AttachKey, DeviceKind, FabricConnection, FabricInventory, InventoryParts, ObjectPath, WatchedInventory,
    fake::FakeFabric,
};
use hostler_reconcile::{
    ObjectStamp,
    slices::{DesiredPool, PublishedSlice, SliceWrite, plan},
};
use serde_json::{Value, json};

use super::{
    domains::{ManagerScene, ShownTwice},
    offer::{FabricOffer, OfferScene, offer},
};
use crate::{
    fabric::nodes::Hostnames,
    observed::{AttachmentObject, FabricObjects},
};

const POOL: &str = "fabric/row1/fabric";

/// A manager with three hosts, of which two are nodes, and devices; and what the cluster says.
struct Scene {
    managers: BTreeMap<&'static str, (InventoryParts, Hostnames)>,
    unread: Vec<&'static str>,
    objects: Arc<FabricObjects>,
    server: BTreeMap<String, PublishedSlice>,
    now: &'static str,
}

fn parts(devices: u32) -> InventoryParts {
    let mut parts = None;
    FakeFabric::rack(3, devices).change(|it| parts = Some(it.clone()));
    parts.unwrap()
}

fn name(device: u32) -> String {
    FakeFabric::device(device).device_name()
}

fn stamp() -> ObjectStamp {
    ObjectStamp::from(&ObjectVersion { uid: "u".to_owned(), resource_version: "1".to_owned() })
}

impl Scene {
    fn new(devices: u32) -> Self {
        let hostnames =
            [0, 1].map(|at| (FakeFabric::host(at).unwrap(), Ok(format!("n{at}")))).into_iter().collect::<Hostnames>();
        Self {
            managers: [("row1", (parts(devices), hostnames))].into(),
            unread: Vec::new(),
            objects: Arc::default(),
            server: BTreeMap::new(),
            now: "2026-01-01T12:00:00Z",
        }
    }

    fn parts(&mut self) -> &mut InventoryParts {
        &mut self.managers.get_mut("row1").unwrap().0
    }

    /// A FabricAttachment for a device, in attempt 3.
    fn attach(&mut self, device: u32, phase: AttachmentPhase, change: impl FnOnce(&mut FabricAttachment)) {
        let mut attachment = FabricAttachment {
            status: FabricAttachmentStatus { phase, ..FabricAttachmentStatus::default() },
            ..FabricAttachment::default()
        };
        (attachment.metadata.name, attachment.metadata.uid) = (name(device), Some("uid".to_owned()));
        (attachment.spec.manager, attachment.spec.domain) = ("row1".to_owned(), "fabric".to_owned());
        (attachment.spec.device, attachment.spec.attempt) = (FakeFabric::device(device), 3);
        change(&mut attachment);
        let object = AttachmentObject { stamp: stamp(), attachment };
        Arc::make_mut(&mut self.objects).attachments.insert(name(device), Arc::new(object));
    }

    fn claim(&mut self, device: u32) {
        self.claim_memory(device, None);
    }

    fn claim_memory(&mut self, device: u32, memory: Option<&str>) {
        self.claim_in(POOL, device, memory);
    }

    fn claim_in(&mut self, pool: &str, device: u32, memory: Option<&str>) {
        let capacity = memory.map(|memory| json!({ "requests": { "memory": memory } }));
        let request = json!({ "name": "r", "exactly": { "deviceClassName": "c", "capacity": capacity } });
        let result = json!({ "request": "r", "driver": "hostler.dev", "pool": pool, "device": name(device) });
        let claim: ResourceClaim = serde_json::from_value(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "c", "uid": "u" },
            "spec": { "devices": { "requests": [request] } },
            "status": { "allocation": { "devices": { "results": [result] } } },
        }))
        .unwrap();
        let key = hostler_api::ObjectKey::new("default", &format!("c{device}"));
        FabricObjects::see_claim(&mut self.objects, &key, stamp(), &claim);
    }

    fn connect(&mut self, device: u32, key: Option<&str>) {
        let path = ObjectPath::new("/fabric/connections/x");
        let key = key.map(|key| AttachKey::new(key).unwrap());
        let targets = vec![ObjectPath::new(format!("/fabric/targets/{device}"))];
        let initiators = vec![ObjectPath::new("/fabric/initiators/1")];
        self.parts().connections.push(FabricConnection {
            path,
            key,
            targets,
            initiators,
            ..FabricConnection::default()
        });
    }

    fn offer(&self) -> FabricOffer {
        self.offered().0
    }

    fn pools(&self) -> BTreeMap<String, DesiredPool> {
        self.offered().1
    }

    fn inventories(&self) -> BTreeMap<&'static str, WatchedInventory> {
        let inventory = |parts: &InventoryParts| FabricInventory::conclude(parts.clone()).watched();
        self.managers.iter().map(|(name, (parts, _))| (*name, inventory(parts))).collect()
    }

    fn offered(&self) -> (FabricOffer, BTreeMap<String, DesiredPool>) {
        let inventories = self.inventories();
        let managers = || {
            self.managers.iter().map(|(name, (_, hostnames))| ManagerScene {
                name,
                inventory: &inventories[name],
                hostnames,
            })
        };
        let twice = ShownTwice::of(managers());
        let scene_of = |only: Option<&str>| OfferScene {
            driver: "hostler.dev",
            managers: managers().filter(|it| only.is_none_or(|of| of_fabric_pool(of).unwrap().0 == it.name)).collect(),
            twice: &twice,
            unread: self.unread.iter().copied().collect(),
            objects: &self.objects,
            published: self.server.values().map(|slice| &*slice.pool.name).collect(),
            now: since_1970(self.now).unwrap_or(Duration::ZERO),
        };
        let pools_of = |only| {
            let mut pools = BTreeMap::new();
            let of_pool = |pool: &str| {
                let slices = self.server.iter().filter(|(_, slice)| slice.pool.name == pool);
                slices.map(|(name, slice)| (&**name, slice.clone())).collect()
            };
            let offer = offer(&scene_of(only), only, of_pool, |pool, _| drop(pools.insert(pool.name.clone(), pool)));
            (offer, pools)
        };
        let mut all = pools_of(None);
        let whole = format!("{:?}", all.0);
        for (name, pool) in &all.1 {
            let (offer, alone) = pools_of(Some(name));
            assert_eq!((alone.get(name), alone.len()), (Some(pool), 1), "the pool by itself is another one");
            all.0.renew(name, offer);
        }
        assert_eq!(format!("{:?}", all.0), whole, "the pools by themselves say something else");
        all
    }

    /// Writes what is offered; returns the writes.
    fn publish(&mut self) -> Vec<SliceWrite> {
        let desired: Vec<_> = self.pools().into_values().collect();
        let plan = plan(self.server.iter().map(|(name, slice)| (&**name, slice)), &desired, None);
        for write in &plan.writes {
            let SliceWrite { name, pool, content, .. } = write.clone();
            let version = ObjectVersion { uid: name.clone(), resource_version: "1".to_owned() };
            self.server.insert(name, PublishedSlice { version, pool, owner: None, content, sent: None });
        }
        plan.deletes.iter().for_each(|delete| drop(self.server.remove(&delete.name)));
        plan.writes
    }

    fn devices(&self) -> BTreeMap<String, SliceDevice> {
        let devices = self.server.values().flat_map(|slice| slice.content.devices.iter());
        devices.map(|device| (device.name.to_string(), device.clone())).collect()
    }

    /// The taint of each published device, by its number.
    fn taints(&self) -> Vec<(u32, Option<String>)> {
        let devices = self.devices();
        let number = |name: &str| (0..100).find(|at| self::name(*at) == name).unwrap();
        let value = |device: &SliceDevice| device.taints.first().map(|it| it.value.clone().unwrap().to_string());
        devices.iter().map(|(name, device)| (number(name), value(device))).collect()
    }

    /// The reason why the only device that is not offered is not.
    fn left_out(&self) -> String {
        let [reason] = &self.offer().left_out()[..] else { panic!("{:?}", self.offer().left_out()) };
        reason.clone()
    }
}

#[test]
fn a_free_device_is_offered_to_the_nodes_at_its_switch_with_the_conditions_that_the_scheduler_waits_for() {
    let mut scene = Scene::new(1);
    scene.publish();
    let [slice] = &scene.server.values().collect::<Vec<_>>()[..] else { panic!("one slice") };
    assert_eq!(slice.pool, ResourcePool { name: POOL.to_owned(), generation: 1, resource_slice_count: 1 });
    assert_eq!(
        json!(slice.content.node_selector),
        json!({ "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "kubernetes.io/hostname", "operator": "In", "values": ["n0", "n1"] },
        ] }] })
    );
    assert_eq!(
        json!(slice.content.devices[0]),
        json!({
            "name": "fab0000000000000-0001",
            "attributes": {
                "kind": { "string": "memory" }, "serial": { "string": "0xfab0000000000000" }, "cxlType": { "int": 3 },
                "switchDomain": { "string": "row1/fabric" }, "enclosure": { "string": "0" },
            },
            "capacity": { "memory": { "value": "17179869184" } },
            "bindsToNode": true,
            "bindingConditions": ["hostler.dev/attached"], "bindingFailureConditions": ["hostler.dev/attach-failed"],
        })
    );
    assert!(scene.publish().is_empty(), "what is there is written again");
}

#[test]
fn the_phase_of_an_attachment_is_the_taint_of_its_device_alone() {
    use AttachmentPhase as Phase;
    for (phase, is_released, expected) in [
        (Phase::Pending, false, Some("attaching")),
        (Phase::Attaching, false, Some("attaching")),
        (Phase::Attached, false, Some("attaching")),
        (Phase::Ready, false, Some("attached")),
        (Phase::Unknown, false, Some("attached")),
        (Phase::Ready, true, Some("releasing")),
        (Phase::Releasing, true, Some("releasing")),
        (Phase::Detaching, true, Some("releasing")),
        (Phase::Failed, false, Some("failed")),
        (Phase::Failed, true, Some("failed")),
        (Phase::Detached, false, None),
    ] {
        let mut scene = Scene::new(2);
        scene.publish();
        scene.attach(1, phase, |it| it.spec.release = is_released);
        let writes = scene.publish();
        assert_eq!(scene.taints(), [(0, None), (1, expected.map(str::to_owned))], "{phase:?}");
        assert!(writes.iter().all(|write| write.pool.generation == 1 && write.replaces.is_some()), "{writes:?}");
        assert_eq!(writes.len(), usize::from(expected.is_some()), "{phase:?}");
    }
    let mut scene = Scene::new(1);
    scene.attach(0, Phase::Ready, |it| it.metadata.deletion_timestamp = Some("2026-01-01T11:00:00Z".to_owned()));
    scene.publish();
    assert_eq!(scene.taints(), [(0, Some("releasing".to_owned()))]);
}

#[test]
fn what_cannot_be_attached_is_left_out_with_its_reason() {
    type Change = fn(&mut Scene);
    let cases: [(Change, &str); 6] = [
        (
            |it| {
                it.connect(0, None);
                it.parts().connections[0].initiators.push(ObjectPath::new("/fabric/initiators/2"));
            },
            "connection /fabric/connections/x gives it to an unknown host",
        ),
        (
            |it| {
                it.attach(0, AttachmentPhase::Ready, |_| {});
                it.connect(0, Some("uid-2"));
            },
            "hostler did not make that",
        ),
        (
            |it| {
                let device = &mut it.parts().devices[0];
                (device.kind, device.size_bytes) = (DeviceKind::Unknown, None);
                it.parts().memory_domains[0].chunks[0].size_bytes = None;
            },
            "neither its kind nor the size",
        ),
        (|it| it.parts().devices[0].status.state = Some("UnavailableOffline".into()), "is UnavailableOffline"),
        (
            |it| {
                it.attach(0, AttachmentPhase::Detached, |it| {
                    (it.status.failures, it.status.retry_at) = (2, Some("2026-01-01T12:00:01Z".to_owned()));
                });
            },
            "2 attachments failed one after the other; it is offered again at 2026-01-01T12:00:01Z",
        ),
        (
            |it| it.attach(0, AttachmentPhase::Ready, |it| it.spec.manager = "row2".to_owned()),
            "its FabricAttachment is about row2/fabric",
        ),
    ];
    for (spoil, expected) in cases {
        let mut scene = Scene::new(1);
        spoil(&mut scene);
        let reason = scene.left_out();
        assert!(reason.contains(expected) && reason.starts_with(POOL), "{expected}: {reason}");
        assert!(scene.publish().is_empty(), "{expected}: it is offered");
    }
}

#[test]
fn a_device_that_a_connection_of_others_holds_is_shown_with_its_host_and_offered_to_no_claim() {
    let host = FakeFabric::host(1).unwrap();
    for key in [None, Some("uid-3")] {
        let mut scene = Scene::new(1);
        scene.connect(0, key);
        scene.publish();
        assert_eq!(scene.taints(), [(0, Some(format!("in-use.{host}")))]);
        assert!(scene.left_out().contains("kubectl hostler fabric adopt"), "{}", scene.left_out());
    }
    // A claim has the device, and its FabricAttachment is lost: the entry says so, and changes in nothing else.
    let mut scene = Scene::new(1);
    scene.publish();
    let before = scene.devices()[&name(0)].clone();
    scene.claim(0);
    scene.connect(0, Some("uid-3"));
    scene.publish();
    let after = scene.devices()[&name(0)].clone();
    assert_eq!(after.taints[0].value.as_deref(), Some(&*format!("in-use.{host}")));
    assert_eq!(SliceDevice { taints: Vec::new(), ..after }, before);
    // Once it is taken over, it is an attachment as any other.
    scene.attach(0, AttachmentPhase::Ready, |it| it.spec.adopted = true);
    scene.publish();
    assert_eq!(scene.taints(), [(0, Some("attached".to_owned()))]);
    scene.attach(0, AttachmentPhase::Releasing, |it| it.spec.adopted = true);
    FabricObjects::forget_claim(&mut scene.objects, &hostler_api::ObjectKey::new("default", "c0"));
    scene.publish();
    assert_eq!(scene.taints(), [(0, Some("releasing".to_owned()))]);
}

#[test]
fn two_devices_with_one_serial_number_are_both_left_out() {
    let mut scene = Scene::new(2);
    scene.parts().devices[0].identity = Some(FakeFabric::device(1));
    assert!(scene.left_out().contains("give each device its own serial number"), "{}", scene.left_out());
    assert!(scene.publish().is_empty());
}

#[test]
fn a_connection_under_the_key_of_the_attempt_is_our_own() {
    let mut scene = Scene::new(1);
    scene.attach(0, AttachmentPhase::Ready, |_| {});
    scene.connect(0, Some("uid-3"));
    scene.publish();
    assert_eq!(scene.taints(), [(0, Some("attached".to_owned()))]);
}

#[test]
fn a_device_that_failed_is_offered_again_when_its_time_has_come() {
    let mut scene = Scene::new(1);
    scene.attach(0, AttachmentPhase::Detached, |it| it.status.retry_at = Some("2026-01-01T12:00:01Z".to_owned()));
    assert!(scene.publish().is_empty());
    scene.now = "2026-01-01T12:00:01Z";
    scene.publish();
    assert_eq!(scene.taints(), [(0, None)]);
}

#[test]
fn a_device_of_unknown_kind_with_memory_is_offered_as_memory_of_no_known_type() {
    let mut scene = Scene::new(1);
    scene.parts().devices[0].kind = DeviceKind::Unknown;
    scene.publish();
    let device: Value = json!(scene.devices()[&name(0)]);
    assert_eq!(device["attributes"]["kind"]["string"], "memory");
    assert_eq!(device["attributes"]["cxlType"], Value::Null);
}

#[test]
fn a_device_that_a_claim_has_keeps_its_entry_whatever_its_manager_says() {
    type Change = fn(&mut Scene);
    let cases: [Change; 5] = [
        |it| it.parts().devices[0].size_bytes = Some(1 << 30),
        |it| it.parts().devices[0].status.state = Some("Absent".into()),
        |it| drop(it.parts().devices.remove(0)),
        |it| it.parts().domains.clear(),
        |it| it.managers.clear(),
    ];
    for (at, change) in cases.into_iter().enumerate() {
        let mut scene = Scene::new(2);
        scene.publish();
        let before = scene.devices()[&name(0)].clone();
        scene.claim(0);
        change(&mut scene);
        scene.publish();
        assert_eq!(scene.devices().get(&name(0)), Some(&before), "case {at}");
        scene.attach(0, AttachmentPhase::Failed, |_| {});
        scene.publish();
        let after = scene.devices()[&name(0)].clone();
        assert_eq!(
            SliceDevice { taints: Vec::new(), ..after.clone() },
            before,
            "case {at}: more than the taint changed"
        );
        assert_eq!(after.taints[0].value.as_deref(), Some("failed"), "case {at}");
    }
}

#[test]
fn slices_of_a_manager_that_was_not_read_stay_and_those_of_one_that_is_no_more_go() {
    let mut scene = Scene::new(2);
    scene.publish();
    let before = scene.devices();
    scene.managers.clear();
    scene.unread = vec!["row1"];
    assert!(scene.publish().is_empty());
    assert_eq!(scene.devices(), before);
    scene.unread = vec![];
    scene.publish();
    assert!(scene.server.is_empty());
}

#[test]
fn a_domain_that_no_node_reaches_offers_nothing_and_says_so() {
    let mut scene = Scene::new(1);
    scene.publish();
    scene.managers.get_mut("row1").unwrap().1.clear();
    scene.publish();
    assert!(scene.server.is_empty());
    assert!(scene.left_out().contains("row1: /fabric reaches no node of this cluster"), "{}", scene.left_out());
}

#[test]
fn two_nodes_with_one_uuid_are_a_contradiction_and_get_nothing() {
    let mut scene = Scene::new(1);
    let hostnames = &mut scene.managers.get_mut("row1").unwrap().1;
    hostnames.insert(FakeFabric::host(1).unwrap(), Err("the nodes n1, n7 all have".to_owned()));
    scene.publish();
    assert_eq!(scene.offer().contradictions, ["row1: the nodes n1, n7 all have"]);
    let selector = scene.server.values().next().unwrap().content.node_selector.clone().unwrap();
    assert_eq!(selector.node_selector_terms[0].match_expressions[0].values, ["n0"]);
}

#[test]
fn domains_that_cannot_be_pools_are_named() {
    let renamed = |to: &str| {
        let mut scene = Scene::new(1);
        let to = ObjectPath::new(to);
        let parts = scene.parts();
        parts.domains[0].path = to.clone();
        parts.endpoints.iter_mut().for_each(|endpoint| endpoint.domain = to.clone());
        scene
    };
    assert!(renamed("/f/Rack-1").pools().contains_key("fabric/row1/rack-1"), "names are in lower case");
    for (path, expected) in [
        ("/f/Rack_1", "row1: /f/Rack_1 has a name that no pool can have"),
        ("/f/-", "row1: /f/- has a name that no pool can have"),
        (&format!("/f/{}", "x".repeat(60)), "more than 64 characters together"),
    ] {
        let scene = renamed(path);
        assert!(scene.pools().is_empty(), "{path}");
        assert!(scene.left_out().contains(expected), "{path}: {}", scene.left_out());
    }
    let mut scene = renamed("/f/Rack");
    let mut twin = scene.parts().domains[0].clone();
    twin.path = ObjectPath::new("/g/rack");
    scene.parts().domains.push(twin);
    assert!(scene.pools().is_empty());
    assert!(
        scene.left_out().contains("the domains /f/Rack, /g/rack would both be the pool rack"),
        "{}",
        scene.left_out()
    );
}

#[test]
fn a_device_that_two_managers_show_is_offered_by_none_of_them() {
    let mut scene = Scene::new(1);
    let other = scene.managers["row1"].clone();
    scene.managers.insert("row2", other);
    let (offer, pools) = scene.offered();
    assert_eq!(offer.left_out().len(), 2);
    assert!(
        offer.left_out()[0].contains("fabric/row2/fabric has a device of the same identity"),
        "{:?}",
        offer.left_out()
    );
    assert!(pools.values().all(|pool| pool.slices.is_empty()));
}

#[test]
fn many_devices_are_spread_over_slices_whose_names_sort_and_a_taint_writes_one_of_them() {
    let mut scene = Scene::new(70);
    assert_eq!(scene.publish().len(), 2);
    let sizes: Vec<usize> = scene.server.values().map(|slice| slice.content.devices.len()).collect();
    assert_eq!(sizes, [64, 6]);
    let names: Vec<DeviceIdentity> = scene
        .server
        .values()
        .flat_map(|slice| slice.content.devices.iter().filter_map(|it| DeviceIdentity::of_device_name(&it.name)))
        .collect();
    assert!(names.is_sorted());
    scene.attach(69, AttachmentPhase::Ready, |_| {});
    let writes = scene.publish();
    assert_eq!((writes.len(), writes[0].pool.generation), (1, 1));
}

#[test]
fn devices_are_counted_by_pool_and_state() {
    let mut scene = Scene::new(4);
    scene.attach(1, AttachmentPhase::Ready, |_| {});
    scene.attach(2, AttachmentPhase::Failed, |_| {});
    scene.connect(3, None);
    let count = |state| ((POOL.to_owned(), state), 1);
    let expected: BTreeMap<_, _> = ["free", "attached", "failed", "left_out"].map(count).into();
    assert_eq!(scene.offer().devices, expected);
}
