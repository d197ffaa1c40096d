//! What is planned, applied to a model of the API server and looked at between all writes.

use hostler_api::resource::{DeviceCounterConsumption, DeviceTaint, SliceCounterSet, SliceDevice, SortedMap};
use proptest::prelude::*;

use super::*;

const OWNER: &str = "node-uid";

fn existing(slices: &BTreeMap<String, PublishedSlice>) -> impl Iterator<Item = (&str, &PublishedSlice)> {
    slices.iter().map(|(name, slice)| (name.as_str(), slice))
}

/// A server that checks what the real one checks of a write.
#[derive(Clone, Debug, Default)]
struct Server {
    slices: BTreeMap<String, PublishedSlice>,
    clock: u64,
}

impl Server {
    fn tick(&mut self) -> String {
        self.clock += 1;
        self.clock.to_string()
    }

    fn put(&mut self, name: &str, pool: ResourcePool, content: Arc<SliceContent>, owner: Option<&str>) {
        let version = ObjectVersion { uid: format!("uid-{}", self.tick()), resource_version: self.tick() };
        let slice = PublishedSlice { version, pool, owner: owner.map(str::to_owned), content, sent: None };
        self.slices.insert(name.to_owned(), slice);
    }

    fn write(&mut self, write: &SliceWrite) {
        let Some(version) = &write.replaces else {
            assert!(!self.slices.contains_key(&write.name), "{} exists already", write.name);
            return self.put(&write.name, write.pool.clone(), write.content.clone(), Some(OWNER));
        };
        let resource_version = self.tick();
        let existing = self.slices.get_mut(&write.name).expect("it is there");
        assert_eq!(existing.version, *version, "a conflict");
        assert_eq!(existing.pool.name, write.pool.name, "the name of the pool is immutable");
        assert!(existing.pool.generation <= write.pool.generation, "generations only rise");
        existing.version.resource_version = resource_version;
        existing.pool = write.pool.clone();
        existing.owner = Some(OWNER.to_owned());
        existing.content = write.content.clone();
    }

    fn apply(&mut self, plan: &SlicePlan) {
        plan.writes.iter().for_each(|write| self.write(write));
        for delete in &plan.deletes {
            let deleted = self.slices.remove(&delete.name).expect("it is there");
            assert_eq!(deleted.version, delete.version, "a conflict");
        }
    }

    /// Plans and applies until there is nothing to do: how many slices were written, and how many deleted.
    fn converge(&mut self, desired: &[DesiredPool]) -> (usize, usize) {
        let first = plan(existing(&self.slices), desired, Some(OWNER));
        self.apply(&first);
        let second = plan(existing(&self.slices), desired, Some(OWNER));
        assert_eq!(second, SlicePlan::default(), "the second plan after {first:?}");
        self.assert_complete(desired);
        (first.writes.len(), first.deletes.len())
    }

    fn assert_complete(&self, desired: &[DesiredPool]) {
        let count: usize = desired.iter().map(|pool| pool.slices.len()).sum();
        assert_eq!(self.slices.len(), count, "{:?}", self.slices.keys());
        for pool in desired {
            let slices: Vec<&PublishedSlice> = pool.slices.iter().map(|slice| &self.slices[&slice.name]).collect();
            for (existing, wanted) in slices.iter().zip(&pool.slices) {
                assert_eq!(existing.pool.generation, slices[0].pool.generation);
                assert_eq!(existing.pool.resource_slice_count, i64::try_from(pool.slices.len()).unwrap());
                assert_eq!(existing.owner.as_deref(), Some(OWNER));
                assert!(existing.says(&wanted.content));
            }
        }
    }

    fn generation(&self) -> i64 {
        self.slices.values().next().unwrap().pool.generation
    }
}

fn device(name: &str) -> SliceDevice {
    SliceDevice { name: name.into(), ..SliceDevice::default() }
}

fn taint(effect: &str) -> DeviceTaint {
    DeviceTaint { key: "d/unhealthy".into(), value: Some("failed".into()), effect: effect.into(), time_added: None }
}

fn tainted(name: &str) -> SliceDevice {
    SliceDevice { taints: vec![taint("NoSchedule")], ..device(name) }
}

/// A pool with one slice for each list of devices.
fn pool_of(name: &str, slices: Vec<Vec<SliceDevice>>) -> DesiredPool {
    let slice = |(index, devices)| DesiredSlice {
        name: format!("{index:05x}-{name}"),
        content: Arc::new(SliceContent { devices, ..SliceContent::default() }),
    };
    let slices = slices.into_iter().enumerate().map(slice).collect();
    DesiredPool { name: name.to_owned(), slices, left_out: Vec::new(), unknown: false }
}

fn pool(slices: &[&[&str]]) -> Vec<DesiredPool> {
    vec![pool_of("pool", slices.iter().map(|devices| devices.iter().map(|name| device(name)).collect()).collect())]
}

fn server_with(desired: &[DesiredPool]) -> Server {
    let mut server = Server::default();
    server.converge(desired);
    server
}

#[test]
fn a_new_pool_begins_with_generation_1() {
    let mut server = Server::default();
    assert_eq!(server.converge(&pool(&[&["a"], &["b"]])), (2, 0));
    assert_eq!(server.generation(), 1);
}

#[test]
fn what_is_right_is_left_alone() {
    let desired = pool(&[&["a"], &["b"], &["c"]]);
    assert_eq!(server_with(&desired).converge(&desired), (0, 0));
}

#[test]
fn a_pool_of_which_nothing_is_known_stays_as_it_is_beside_others_that_come_change_and_go() {
    let other = |name, device_name| pool_of(name, vec![vec![device(device_name)]]);
    let mut server = server_with(&[pool(&[&["a"], &["b"]]).remove(0), other("second", "c"), other("third", "d")]);
    let unknown = DesiredPool { unknown: true, ..pool_of("pool", Vec::new()) };
    let untouched = |server: &Server| {
        let members = server.slices.iter().filter(|(_, slice)| slice.pool.name == "pool");
        members.map(|(name, slice)| (name.clone(), slice.version.clone())).collect::<Vec<_>>()
    };
    let before = untouched(&server);
    assert_eq!(before.len(), 2);
    let desired = [unknown, other("second", "e"), other("fourth", "f")];
    let planned = plan(existing(&server.slices), &desired, Some(OWNER));
    server.apply(&planned);
    assert_eq!((planned.writes.len(), planned.deletes.len()), (2, 1));
    assert_eq!(untouched(&server), before);
    assert!(plan(existing(&server.slices), &desired, Some(OWNER)).is_empty());
}

#[test]
fn one_slice_is_updated_in_place() {
    let mut server = server_with(&pool(&[&["a"]]));
    assert_eq!(server.converge(&pool(&[&["b"]])), (1, 0));
    assert_eq!(server.generation(), 1);
}

#[test]
fn one_changed_slice_of_several_keeps_the_generation() {
    let mut server = server_with(&pool(&[&["a"], &["b"], &["c"]]));
    assert_eq!(server.converge(&pool(&[&["a"], &["x"], &["c"]])), (1, 0));
    assert_eq!(server.generation(), 1);
}

#[test]
fn two_changed_slices_make_a_new_generation_of_all() {
    let mut server = server_with(&pool(&[&["a"], &["b"], &["c"]]));
    assert_eq!(server.converge(&pool(&[&["x"], &["y"], &["c"]])), (3, 0));
    assert_eq!(server.generation(), 2);
}

#[test]
fn taints_on_several_slices_are_written_where_they_are_and_nowhere_else() {
    let plain = |name: &str| vec![device(name)];
    let mut server = server_with(&[pool_of("pool", vec![plain("a"), plain("b"), plain("c")])]);
    let held = |name: &str| vec![tainted(name)];
    assert_eq!(server.converge(&[pool_of("pool", vec![held("a"), held("b"), plain("c")])]), (2, 0));
    assert_eq!(server.generation(), 1, "nobody is misled by one taint without the other");
    assert_eq!(server.converge(&[pool_of("pool", vec![plain("a"), plain("b"), held("c")])]), (3, 0));
    assert_eq!(server.generation(), 1);
    assert_eq!(server.converge(&[pool_of("pool", vec![held("a"), plain("x"), plain("y")])]), (3, 0));
    assert_eq!(server.generation(), 2, "two slices have other devices");
}

#[test]
fn a_pool_that_has_no_devices_any_more_loses_its_slices_and_begins_anew() {
    let mut server = server_with(&pool(&[&["a"], &["b"]]));
    assert_eq!(server.converge(&pool(&[])), (0, 2));
    assert_eq!(server.converge(&pool(&[])), (0, 0));
    assert_eq!(server.converge(&pool(&[&["a"], &["b"]])), (2, 0));
    assert_eq!(server.generation(), 1);
}

#[test]
fn an_added_and_a_removed_slice_make_a_new_generation() {
    let mut server = server_with(&pool(&[&["a"], &["b"]]));
    assert_eq!(server.converge(&pool(&[&["a"], &["b"], &["c"]])), (3, 0));
    assert_eq!(server.generation(), 2);
    assert_eq!(server.converge(&pool(&[&["a"], &["b"]])), (2, 1));
    assert_eq!(server.generation(), 3);
}

#[test]
fn a_pool_that_is_no_more_is_deleted() {
    let mut server = server_with(&pool(&[&["a"], &["b"]]));
    assert_eq!(server.converge(&[]), (0, 2));
}

#[test]
fn a_slice_that_somebody_deleted_comes_back_with_its_generation() {
    let desired = pool(&[&["a"], &["b"], &["c"]]);
    let mut server = server_with(&desired);
    server.slices.remove("00001-pool");
    assert_eq!(server.converge(&desired), (1, 0));
    assert_eq!(server.generation(), 1);
}

#[test]
fn an_interrupted_generation_is_finished() {
    let mut server = server_with(&pool(&[&["a"], &["b"], &["c"]]));
    let desired = pool(&[&["x"], &["y"], &["z"]]);
    let interrupted = plan(existing(&server.slices), &desired, Some(OWNER));
    server.write(&interrupted.writes[1]);
    assert_eq!(server.converge(&desired), (2, 0));
    assert_eq!(server.generation(), 2);
}

#[test]
fn slices_of_another_generation_are_raised_above_all() {
    let desired = pool(&[&["a"], &["b"]]);
    let mut server = server_with(&desired);
    server.slices.get_mut("00000-pool").unwrap().pool.generation = 7;
    server.slices.get_mut("00000-pool").unwrap().pool.resource_slice_count = 1;
    assert_eq!(server.converge(&desired), (2, 0));
    assert_eq!(server.generation(), 8);
}

#[test]
fn slices_under_names_of_an_earlier_kind_are_replaced_by_a_newer_generation_first() {
    let desired = pool(&[&["a"], &["b"]]);
    let mut server = server_with(&desired);
    // All of them, then some of them.
    for renamed in [vec!["00000-pool", "00001-pool"], vec!["00001-pool"]] {
        let before = server.generation();
        for name in renamed.iter().copied() {
            let slice = server.slices.remove(name).unwrap();
            server.slices.insert(format!("random-{name}"), slice);
        }
        let first = plan(existing(&server.slices), &desired, Some(OWNER));
        assert!(first.writes.iter().all(|write| write.pool.generation > before), "{first:?}");
        assert_eq!(server.converge(&desired), (2, renamed.len()));
    }
}

#[test]
fn a_redundant_slice_of_the_same_generation_is_deleted() {
    let desired = pool(&[&["a"]]);
    let mut server = server_with(&desired);
    let pool = server.slices["00000-pool"].pool.clone();
    server.put("extra", pool, desired[0].slices[0].content.clone(), Some(OWNER));
    assert_eq!(server.converge(&desired), (1, 1));
    assert_eq!(server.generation(), 2);
}

#[test]
fn an_obsolete_slice_of_a_lower_generation_is_deleted_and_nothing_written() {
    let mut server = server_with(&pool(&[&["a"], &["b"]]));
    let obsolete = server.slices["00000-pool"].clone();
    let desired = pool(&[&["x"], &["y"]]);
    server.converge(&desired);
    server.slices.insert("obsolete".to_owned(), obsolete);
    assert_eq!(server.converge(&desired), (0, 1));
}

#[test]
fn a_name_that_another_pool_has_taken_is_freed_first() {
    let desired = pool(&[&["a"]]);
    let mut server = Server::default();
    let other = ResourcePool { name: "other".to_owned(), generation: 1, resource_slice_count: 1 };
    server.put("00000-pool", other, Arc::default(), Some(OWNER));
    let first = plan(existing(&server.slices), &desired, Some(OWNER));
    assert_eq!((first.writes.len(), first.deletes.len()), (0, 1));
    server.apply(&first);
    assert_eq!(server.converge(&desired), (1, 0));
}

#[test]
fn a_slice_without_the_owner_or_of_another_node_gets_the_owner() {
    let desired = pool(&[&["a"], &["b"]]);
    let mut server = server_with(&desired);
    for owner in [None, Some("a node that was made anew".to_owned())] {
        server.slices.get_mut("00001-pool").unwrap().owner = owner;
        assert_eq!(server.converge(&desired), (1, 0));
        assert_eq!(server.generation(), 1);
    }
}

#[test]
fn taints_come_go_and_change_with_one_write() {
    let with = |devices| vec![pool_of("pool", vec![devices])];
    let mut server = server_with(&with(vec![device("a")]));
    assert_eq!(server.converge(&with(vec![tainted("a")])), (1, 0));
    let evicting = SliceDevice { taints: vec![taint("NoExecute")], ..device("a") };
    assert_eq!(server.converge(&with(vec![evicting])), (1, 0));
    assert_eq!(server.converge(&with(vec![device("a")])), (1, 0));
}

fn set_time(server: &mut Server, name: &str, time: &str) {
    let content = Arc::make_mut(&mut server.slices.get_mut(name).unwrap().content);
    for taint in content.devices.iter_mut().flat_map(|device| &mut device.taints) {
        taint.time_added = Some(time.into());
    }
}

#[test]
fn a_taint_that_stays_keeps_its_time_even_in_another_slice() {
    let desired = |slices| vec![pool_of("pool", slices)];
    let mut server = server_with(&desired(vec![vec![device("a"), tainted("b")], vec![device("c")]]));
    set_time(&mut server, "00000-pool", "2026-01-01T00:00:00Z");
    assert_eq!(server.converge(&desired(vec![vec![device("a"), tainted("b")], vec![device("c")]])), (0, 0));
    server.converge(&desired(vec![vec![device("a")], vec![tainted("b"), tainted("c")]]));
    let times: Vec<Option<&str>> =
        server.slices["00001-pool"].content.devices.iter().map(|it| it.taints[0].time_added.as_deref()).collect();
    assert_eq!(times, [Some("2026-01-01T00:00:00Z"), None]);
}

#[test]
fn partitions_and_binding_conditions_come_and_go() {
    let counters = || {
        SortedMap::from_iter([(
            "slots",
            hostler_api::resource::Counter { value: hostler_api::Quantity::whole(1).into() },
        )])
    };
    let mut advanced = device("a");
    advanced.consumes_counters = vec![DeviceCounterConsumption { counter_set: "card".into(), counters: counters() }];
    advanced.binding_conditions = vec!["attached".to_owned()];
    let mut desired = vec![pool_of("pool", vec![vec![], vec![advanced]])];
    let sets = SliceContent {
        shared_counters: vec![SliceCounterSet { name: "card".into(), counters: counters() }],
        ..SliceContent::default()
    };
    desired[0].slices[0].content = Arc::new(sets);
    let plain = pool(&[&["a"]]);
    let mut server = server_with(&plain);
    assert_eq!(server.converge(&desired), (2, 0));
    assert_eq!(server.converge(&plain), (1, 1));
}

/// Of two slices with different nodes a reader would take the one and miss the other.
#[test]
fn other_nodes_of_several_slices_are_a_new_generation_and_of_one_slice_a_change_in_place() {
    let desired = |slices: &[&[&str]], node: &str| {
        let mut desired = pool(slices);
        for slice in &mut desired[0].slices {
            let selector = serde_json::json!({"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]}]});
            Arc::make_mut(&mut slice.content).node_selector = serde_json::from_value(selector).unwrap();
        }
        desired
    };
    for (slices, writes, generation) in [(&[&["a"][..]][..], 1, 1), (&[&["a"], &["b"]], 2, 2)] {
        let mut server = server_with(&desired(slices, "n1"));
        assert_eq!(server.converge(&desired(slices, "n2")), (writes, 0));
        assert_eq!(server.generation(), generation);
    }
}

#[test]
fn slices_of_no_node_have_no_owner_and_are_not_written_for_its_sake() {
    let (mut server, desired) = (Server::default(), pool(&[&["a"]]));
    let slice = &desired[0].slices[0];
    let pool = ResourcePool { name: "pool".to_owned(), generation: 1, resource_slice_count: 1 };
    server.put(&slice.name, pool, slice.content.clone(), None);
    assert!(plan(existing(&server.slices), &desired, None).is_empty());
    assert_eq!(plan(existing(&server.slices), &desired, Some(OWNER)).writes.len(), 1);
}

#[test]
fn what_the_server_made_of_a_slice_is_not_written_again() {
    let desired = pool(&[&["a"]]);
    let mut server = server_with(&desired);
    let slice = server.slices.get_mut("00000-pool").unwrap();
    slice.sent = Some(std::mem::take(&mut slice.content));
    assert_eq!(server.converge(&desired), (0, 0));
    assert_eq!(server.converge(&pool(&[&["b"]])), (1, 0));
}

/// Slices of up to three pools as a test wishes for them or finds them; a device is a number.
fn any_pools() -> impl Strategy<Value = Vec<DesiredPool>> {
    let slices = proptest::collection::vec(proptest::collection::vec(0_u8..6, 0..3), 0..5);
    proptest::collection::btree_map(0_u8..3, slices, 0..3).prop_map(|pools| {
        let devices = |slice: Vec<u8>| slice.into_iter().map(|it| device(&it.to_string())).collect();
        let make = |(name, slices): (u8, Vec<Vec<u8>>)| {
            pool_of(&format!("pool{name}"), slices.into_iter().map(devices).collect())
        };
        pools.into_iter().map(make).collect()
    })
}

/// What may stand on a server for whatever reason.
fn any_server() -> impl Strategy<Value = Server> {
    let slice = (0_u8..4, any::<bool>(), 1_i64..5, 1_i64..5, any::<bool>());
    (any_pools(), proptest::collection::vec(slice, 0..4), any::<u8>()).prop_map(|(pools, strangers, lost)| {
        let mut server = Server::default();
        server.apply(&plan([], &pools, Some(OWNER)));
        let names: Vec<String> = server.slices.keys().cloned().collect();
        for (at, name) in names.iter().enumerate() {
            if lost & (1 << (at % 8)) != 0 {
                server.slices.remove(name);
            }
        }
        for (index, known, generation, resource_slice_count, owned) in strangers {
            let name = if known { format!("{index:05x}-pool0") } else { format!("stranger-{index}") };
            let pool = ResourcePool { name: "pool0".to_owned(), generation, resource_slice_count };
            server.put(&name, pool, Arc::default(), owned.then_some(OWNER));
        }
        server
    })
}

proptest! {
    #[test]
    fn any_server_converges_with_one_write_per_slice(mut server in any_server(), desired in any_pools()) {
        let before = server.clone();
        let first = plan(existing(&server.slices), &desired, Some(OWNER));
        let mut names: Vec<&String> = first.writes.iter().map(|write| &write.name).collect();
        names.sort();
        prop_assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        server.converge(&desired);
        for pool in &desired {
            let highest = |server: &Server| {
                let members = server.slices.values().filter(|slice| slice.pool.name == pool.name);
                members.map(|slice| slice.pool.generation).max()
            };
            // A pool without slices is gone, and begins anew.
            prop_assert!(pool.slices.is_empty() || highest(&before) <= highest(&server));
        }
    }

    #[test]
    fn whoever_looks_between_two_writes_sees_the_old_pool_or_the_new_one_or_an_incomplete_one(
        old in any_pools(), new in any_pools(), order in any::<prop::sample::Index>(),
    ) {
        let mut server = server_with(&old);
        let mut plan = plan(existing(&server.slices), &new, Some(OWNER));
        if !plan.writes.is_empty() {
            let at = order.index(plan.writes.len());
            plan.writes.rotate_left(at);
        }
        for write in &plan.writes {
            server.write(write);
            for pool in &new {
                let seen = seen(&server, &pool.name);
                let is = |pools: &[DesiredPool]| {
                    let devices = |pool: &DesiredPool| pool.slices.iter().flat_map(|slice| names(&slice.content)).collect::<Vec<_>>();
                    pools.iter().find(|it| it.name == pool.name).map(devices)
                };
                prop_assert!(seen.is_none() || seen == is(&new) || seen == is(&old), "{:?}", seen);
            }
        }
    }
}

fn names(content: &SliceContent) -> Vec<String> {
    content.devices.iter().map(|device| device.name.to_string()).collect()
}

/// The devices of a pool as a scheduler sees them; none while the pool is incomplete.
fn seen(server: &Server, pool: &str) -> Option<Vec<String>> {
    let members = || server.slices.values().filter(|slice| slice.pool.name == pool);
    let latest = members().map(|slice| slice.pool.generation).max()?;
    let current: Vec<&PublishedSlice> = members().filter(|slice| slice.pool.generation == latest).collect();
    let complete = current.iter().all(|slice| usize::try_from(slice.pool.resource_slice_count) == Ok(current.len()));
    complete.then(|| current.iter().flat_map(|slice| names(&slice.content)).collect())
}
