//! The fabric in memory keeps the promises of the trait, under each fault.

use super::*;
use crate::{AttachTarget, FabricHint};

fn key(text: &str) -> AttachKey {
    AttachKey::new(text).unwrap()
}

fn by_key(text: &str) -> ExpectedConnection {
    ExpectedConnection::Key(key(text))
}

fn request(name: &str, host: u32, device: u32) -> AttachRequest {
    let target = AttachTarget::Device(FakeFabric::device(device));
    AttachRequest { key: key(name), host: FakeFabric::host(host).unwrap(), target }
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
    let mut watch = fabric.watch(Duration::from_secs(5));
    assert!(matches!(watch.next().await, FabricHint::Changed(_)), "the first read");
    fabric.inject(FabricFault::FlappingLink(FakeFabric::device(0)));
    let FabricHint::Changed(inventory) = watch.next().await else { panic!("the link went down") };
    assert_eq!(inventory.devices[0].status.state.as_deref(), Some("UnavailableOffline"));
    let endpoints = inventory.devices[0].endpoints.len() + inventory.endpoints.len();
    assert_eq!(endpoints, 0, "endpoints are kept in memory that nothing reads");
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
