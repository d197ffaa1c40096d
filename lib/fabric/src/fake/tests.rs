//! The fabric in memory keeps the promises of the trait, under each fault.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::*;
use crate::FabricHint;

fn key(text: &str) -> AttachKey {
    AttachKey::new(text).unwrap()
}

fn by_key(text: &str) -> ExpectedConnection {
    ExpectedConnection::Key(key(text))
}

fn request(name: &str, host: u32, device: u32) -> AttachRequest {
    let device = FakeFabric::device(device);
    AttachRequest { key: key(name), host: FakeFabric::host(host).unwrap(), device, memory: None }
}

#[tokio::test]
async fn a_repeated_attachment_is_success_and_a_second_holder_is_refused() {
    let fabric = FakeFabric::rack(2, 2);
    let first = fabric.attach(&request("a", 0, 0)).await.unwrap();
    assert!(first.is_done());
    assert_eq!(fabric.attach(&request("a", 0, 0)).await.unwrap(), first);
    let other = fabric.attach(&request("a", 1, 0)).await.unwrap_err().to_string();
    let host = FakeFabric::host(0).unwrap();
    assert!(other.contains("key a is used for") && other.contains(host.as_str()), "{other}");
    let held = fabric.attach(&request("b", 1, 0)).await.unwrap_err().to_string();
    assert!(held.contains("held by connection a") && held.contains(host.as_str()), "{held}");
    assert_eq!(fabric.connections().len(), 1);
    assert!(fabric.detach(&key("a")).await.unwrap().is_done());
    assert!(fabric.detach(&key("a")).await.unwrap().is_done());
    assert!(fabric.attach(&request("b", 1, 0)).await.unwrap().is_done());
}

#[tokio::test]
async fn an_answer_that_is_lost_is_unknown_and_the_state_tells() {
    let fabric = FakeFabric::rack(1, 1);
    fabric.inject(FabricFault::AnswerLost(1));
    assert!(matches!(fabric.attach(&request("a", 0, 0)).await.unwrap(), FabricOutcome::Unknown { .. }));
    assert!(fabric.state(&key("a")).await.unwrap().is_done());
    fabric.inject(FabricFault::AnswerLost(1));
    assert!(matches!(fabric.detach(&key("a")).await.unwrap(), FabricOutcome::Unknown { .. }));
    assert!(matches!(fabric.state(&key("a")).await.unwrap(), FabricOutcome::NotDone { .. }));
}

#[tokio::test]
async fn work_under_way_holds_its_device_until_it_ends() {
    let fabric = FakeFabric::rack(1, 1);
    fabric.inject(FabricFault::Pending(1));
    assert!(matches!(fabric.attach(&request("a", 0, 0)).await.unwrap(), FabricOutcome::UnderWay(_)));
    assert!(matches!(fabric.attach(&request("a", 0, 0)).await.unwrap(), FabricOutcome::UnderWay(_)));
    assert!(fabric.attach(&request("b", 0, 0)).await.unwrap_err().to_string().contains("a (under way)"));
    assert!(matches!(fabric.state(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)));
    assert!(fabric.state(&key("a")).await.unwrap().is_done());

    let fabric = FakeFabric::rack(1, 1);
    fabric.inject(FabricFault::NeverEnds);
    fabric.attach(&request("a", 0, 0)).await.unwrap();
    for _ in 0..10 {
        assert!(matches!(fabric.state(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)));
    }
    assert!(matches!(fabric.detach(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)), "it would come back");
    let isolated = fabric.isolate(FakeFabric::device(0), &[by_key("a")]).await.unwrap();
    assert!(matches!(isolated, FabricOutcome::UnderWay(_)), "{isolated:?}");
    assert!(fabric.finish(&key("a")));
    assert!(fabric.state(&key("a")).await.unwrap().is_done());
}

#[tokio::test]
async fn a_wrong_device_is_an_error_that_names_both() {
    let fabric = FakeFabric::rack(1, 2);
    fabric.inject(FabricFault::WrongDevice);
    let error = fabric.attach(&request("a", 0, 0)).await.unwrap_err().to_string();
    assert!(error.contains(&FakeFabric::device(1).to_string()) && error.contains(&FakeFabric::device(0).to_string()));
    assert!(fabric.attach(&request("a", 0, 0)).await.is_err(), "the key is used for the wrong device now");
}

#[tokio::test]
async fn a_wrong_device_is_none_that_another_host_is_being_given() {
    let fabric = FakeFabric::rack(2, 2);
    fabric.inject(FabricFault::NeverEnds);
    fabric.attach(&request("a", 0, 0)).await.unwrap();
    fabric.heal();
    fabric.inject(FabricFault::WrongDevice);
    assert!(fabric.attach(&request("b", 1, 1)).await.unwrap().is_done(), "no other device is free");
    assert!(fabric.finish(&key("a")));
    assert_eq!(
        fabric.connections().iter().map(|it| it.devices.clone()).collect::<Vec<_>>(),
        [[FakeFabric::device(0)], [FakeFabric::device(1)]]
    );
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_or_slow_manager_changes_nothing_by_that() {
    let fabric = FakeFabric::rack(1, 1);
    fabric.inject(FabricFault::Unavailable(2));
    assert!(fabric.inventory().await.is_err());
    assert!(fabric.attach(&request("a", 0, 0)).await.is_err());
    assert!(fabric.connections().is_empty());
    fabric.inject(FabricFault::Slow(Duration::from_secs(60)));
    let before = tokio::time::Instant::now();
    assert!(fabric.attach(&request("a", 0, 0)).await.unwrap().is_done());
    assert_eq!(before.elapsed(), Duration::from_secs(60));
}

#[tokio::test]
async fn a_contradiction_makes_every_device_unusable() {
    let fabric = FakeFabric::rack(1, 2);
    fabric.inject(FabricFault::Contradiction);
    let inventory = fabric.inventory().await.unwrap();
    assert_eq!(inventory.devices.len(), 4);
    assert!(inventory.devices.iter().all(|device| device.unusable.is_some()));
    let refused = fabric.attach(&request("a", 0, 0)).await.unwrap_err().to_string();
    assert!(refused.contains("is not attached"), "{refused}");
    fabric.heal();
    assert!(fabric.attach(&request("a", 0, 0)).await.unwrap().is_done());
}

#[tokio::test(start_paused = true)]
async fn a_watch_hints_at_changes_and_at_failures() {
    let fabric = FakeFabric::rack(1, 1);
    let mut watch = fabric.watch(Duration::from_secs(5), Arc::new(Semaphore::new(1)));
    assert!(matches!(watch.next().await, FabricHint::Changed(_)), "the first read");
    fabric.inject(FabricFault::FlappingLink(FakeFabric::device(0)));
    let FabricHint::Changed(inventory) = watch.next().await else { panic!("the link went down") };
    let device = inventory.device(FakeFabric::device(0)).unwrap();
    assert_eq!(device.status.state.as_deref(), Some("UnavailableOffline"));
    assert!(matches!(watch.next().await, FabricHint::Changed(_)), "and up");
    fabric.heal();
    fabric.inject(FabricFault::Unavailable(1));
    assert!(matches!(watch.next().await, FabricHint::Unread(_)));
    assert!(fabric.attach(&request("a", 0, 0)).await.unwrap().is_done());
    assert!(matches!(watch.next().await, FabricHint::Changed(_)), "the connection");
    fabric.inject(FabricFault::Unavailable(1));
    assert!(matches!(watch.next().await, FabricHint::Unread(_)));
    assert!(matches!(watch.next().await, FabricHint::Changed(_)), "the manager answers again, and says the same");
}

#[tokio::test(start_paused = true)]
async fn watches_read_in_turn_and_wait_only_so_long_for_a_manager_that_is_slow() {
    let turns = Arc::new(Semaphore::new(1));
    for (slow, read_after) in [(1, 2), (60, 11)] {
        let fabrics = [slow, 1].map(|seconds| {
            let fabric = FakeFabric::rack(1, 1);
            fabric.inject(FabricFault::Slow(Duration::from_secs(seconds)));
            fabric
        });
        let mut watches = fabrics.each_ref().map(|fabric| fabric.watch(Duration::from_secs(5), Arc::clone(&turns)));
        let start = tokio::time::Instant::now();
        let [first, second] = &mut watches;
        let second = async { (second.next().await, start.elapsed().as_secs()) };
        let (_, (hint, elapsed)) = tokio::join!(first.next(), second);
        assert!(matches!(hint, FabricHint::Changed(_)));
        assert_eq!(elapsed, read_after, "the first manager takes {slow} s");
    }
}

#[tokio::test]
async fn isolation_removes_the_expected_connections_of_the_device_and_no_other_ones() {
    let fabric = FakeFabric::rack(2, 2);
    fabric.attach(&request("a", 0, 0)).await.unwrap();
    fabric.attach(&request("b", 1, 1)).await.unwrap();
    let late = fabric.isolate(FakeFabric::device(0), &[by_key("b"), by_key("z")]).await.unwrap();
    assert_eq!(late, FabricOutcome::Done(Isolation::Removed { connections: Vec::new() }));
    assert_eq!(fabric.connections().len(), 2, "an isolation that is late hits nothing newer");
    let isolated = fabric.isolate(FakeFabric::device(0), &[by_key("a")]).await.unwrap();
    assert_eq!(isolated, FabricOutcome::Done(Isolation::Removed { connections: vec!["a".to_owned()] }));
    assert_eq!(fabric.connections().len(), 1);
    let unknown = DeviceIdentity { serial: 5, logical_device: 5 };
    assert!(fabric.isolate(unknown, &[]).await.is_err());
}

const GIB: u64 = 1 << 30;

fn amount(name: &str, host: u32, device: u32, gib: u64) -> AttachRequest {
    AttachRequest { memory: Some(gib * GIB), ..request(name, host, device) }
}

/// The free memory of a shared rack, and the number of chunks.
async fn free_gib(fabric: &FakeFabric) -> (u64, usize) {
    let domain = fabric.inventory().await.unwrap().memory_domains.remove(0);
    (domain.free_bytes.unwrap() / GIB, domain.chunks.len())
}

#[tokio::test]
async fn memory_is_made_attached_kept_and_freed() {
    let fabric = FakeFabric::shared(2, 3, 8 * GIB);
    let before = fabric.inventory().await.unwrap();
    let room = before.devices[1].room.clone().unwrap();
    assert_eq!((room.free_bytes, room.least_bytes, room.step_bytes), (8 * GIB, 256 << 20, 256 << 20));
    assert_eq!(before.devices[1].memory.made_for, None);
    let FabricOutcome::Done(made) = fabric.attach(&amount("a", 0, 1, 3)).await.unwrap() else { panic!("it works") };
    assert_eq!((made.devices, made.chunks.len()), (vec![FakeFabric::device(1)], 1));
    assert!(fabric.attach(&amount("a", 0, 1, 3)).await.unwrap().is_done());
    let inventory = fabric.inventory().await.unwrap();
    assert_eq!((inventory.problems.len(), free_gib(&fabric).await), (0, (5, 1)));
    assert_eq!(inventory.devices[1].memory.made_for, Some(key("a")));
    assert_eq!(inventory.devices[1].room, None);
    assert_eq!(inventory.devices[0].room.as_ref().unwrap().free_bytes, 5 * GIB);
    let held = fabric.free(FakeFabric::device(1), &key("a")).await.unwrap_err().to_string();
    assert!(held.contains("is held by connection a"), "{held}");
    assert!(fabric.detach(&key("a")).await.unwrap().is_done());
    assert_eq!(free_gib(&fabric).await, (5, 1), "the memory stays until it is freed");
    for _ in 0..2 {
        assert!(fabric.free(FakeFabric::device(1), &key("a")).await.unwrap().is_done());
        assert_eq!(free_gib(&fabric).await, (8, 0));
    }
}

#[tokio::test]
async fn memory_for_which_the_answer_is_lost_is_found_by_the_next_attempt() {
    let fabric = FakeFabric::shared(1, 1, 8 * GIB);
    fabric.inject(FabricFault::MemoryAnswerLost(1));
    assert!(matches!(fabric.attach(&amount("a", 0, 0, 2)).await.unwrap(), FabricOutcome::Unknown { .. }));
    assert!(fabric.connections().is_empty());
    assert!(matches!(fabric.state(&key("a")).await.unwrap(), FabricOutcome::NotDone { .. }));
    let small = fabric.attach(&amount("b", 0, 0, 3)).await.unwrap_err().to_string();
    assert!(small.contains("has 2147483648 bytes of memory that was made for another request"), "{small}");
    assert!(fabric.attach(&amount("c", 0, 0, 1)).await.unwrap().is_done(), "more than enough");
    assert_eq!(free_gib(&fabric).await, (6, 1));
    assert!(fabric.detach(&key("c")).await.unwrap().is_done());
    fabric.inject(FabricFault::AnswerLost(1));
    assert!(matches!(fabric.free(FakeFabric::device(0), &key("a")).await.unwrap(), FabricOutcome::Unknown { .. }));
    assert!(fabric.free(FakeFabric::device(0), &key("a")).await.unwrap().is_done());
}

#[tokio::test]
async fn less_memory_than_was_asked_for_is_an_error_and_nothing_is_attached() {
    let fabric = FakeFabric::shared(1, 1, 8 * GIB);
    fabric.inject(FabricFault::SmallMemory(GIB));
    let error = fabric.attach(&amount("a", 0, 0, 2)).await.unwrap_err().to_string();
    assert!(error.contains("made 1073741824 bytes of memory") && error.contains("but 2147483648 bytes"), "{error}");
    assert!(fabric.connections().is_empty());
    fabric.heal();
    assert!(fabric.attach(&amount("b", 0, 0, 2)).await.is_err(), "the device has too little memory until it is freed");
    assert!(fabric.free(FakeFabric::device(0), &key("a")).await.unwrap().is_done());
    assert!(fabric.attach(&amount("b", 0, 0, 2)).await.unwrap().is_done());
}

#[tokio::test]
async fn the_last_memory_is_given_once_and_work_under_way_has_its_own() {
    let fabric = FakeFabric::shared(2, 2, 4 * GIB);
    fabric.inject(FabricFault::NeverEnds);
    assert!(matches!(fabric.attach(&amount("a", 0, 0, 3)).await.unwrap(), FabricOutcome::UnderWay(_)));
    fabric.heal();
    let refused = fabric.attach(&amount("b", 1, 1, 2)).await.unwrap_err().to_string();
    let first = FakeFabric::device(0);
    assert!(
        refused.contains("2147483648 bytes cannot be made") && refused.contains("1073741824 bytes of"),
        "{refused}"
    );
    assert!(refused.contains(&format!("has 3221225472 bytes for device {first} on no host")), "{refused}");
    let busy = fabric.free(first, &key("a")).await.unwrap_err().to_string();
    assert!(busy.contains("a (under way)"), "{busy}");
    assert!(fabric.finish(&key("a")));
    let refused = fabric.attach(&amount("b", 1, 1, 2)).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("on {}", FakeFabric::host(0).unwrap())), "{refused}");
    assert!(fabric.attach(&request("b", 1, 1)).await.unwrap().is_done(), "all that is free");
    assert_eq!(free_gib(&fabric).await, (0, 2));
}
