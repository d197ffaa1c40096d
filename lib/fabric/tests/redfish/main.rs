//! The Redfish provider against a played service, over real sockets: every result is compared with what the service
//! holds afterwards.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod isolate;
mod login;
mod memory;
mod record;
mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hostler_api::fabric::DeviceIdentity;
use hostler_fabric::{
    FabricHint, FabricOutcome, FabricProvider, Isolation,
    redfish::{RedfishProvider, RedfishSettings},
};
use hostler_testing::redfish::{FABRIC, PlayedBody, PlayedRedfish, PlayedWrite, RootPath};
use serde_json::json;
use tokio::sync::Semaphore;

use support::{attach, by_key, device, key, provider, request, settings, text};

#[tokio::test]
async fn the_inventory_has_hosts_devices_memory_and_links() {
    let service = PlayedRedfish::rack(3, 4).await;
    let inventory = provider(&service).inventory().await.unwrap();
    assert_eq!(inventory.problems, []);
    assert_eq!((inventory.domains.len(), inventory.hosts.len(), inventory.devices.len()), (1, 3, 4));
    let host = &inventory.hosts[2];
    assert_eq!(host.uuid.as_ref().unwrap().as_str(), "abc00000-0000-4000-8000-000000000002");
    assert_eq!(host.initiators[0].as_str(), format!("{FABRIC}/Endpoints/I2"));
    let found = &inventory.devices[1];
    assert_eq!((found.identity, found.size_bytes), (Some(device(1)), Some(16 << 30)));
    assert_eq!((found.endpoints.len(), found.chunks.len(), found.unusable.clone()), (1, 1, None));
    assert_eq!(found.enclosure.as_ref().unwrap().as_str(), "/redfish/v1/Chassis/Pool");
    assert_eq!(inventory.memory_domains[0].free_bytes, Some(48 << 30));
    assert!(inventory.memory_domains[0].allows_chunk_creation);
}

#[tokio::test]
async fn the_root_and_links_that_lie_are_found() {
    for root in [RootPath::Both, RootPath::WithSlash, RootPath::WithoutSlash] {
        let service = PlayedRedfish::rack(1, 2).await;
        service.set(|knobs| (knobs.root, knobs.flat_links) = (root, true));
        let provider = provider(&service);
        let inventory = provider.inventory().await.unwrap();
        assert_eq!((inventory.hosts.len(), inventory.devices.len(), inventory.problems.len()), (1, 2, 0), "{root:?}");
        assert!(attach(&provider, "a", 0, 0).await.is_done());
        assert_eq!(provider.inventory().await.unwrap().connections.len(), 1, "{root:?}");
    }
}

#[tokio::test]
async fn an_attachment_is_made_listed_repeated_and_removed() {
    let service = PlayedRedfish::rack(2, 2).await;
    let provider = provider(&service);
    assert!(matches!(provider.state(&key("a")).await.unwrap(), FabricOutcome::NotDone { .. }));
    let FabricOutcome::Done(made) = attach(&provider, "a", 1, 0).await else { panic!("it works") };
    assert_eq!((made.id.as_str(), made.devices.clone()), ("a", vec![device(0)]));
    let stored = service.document(&format!("{FABRIC}/Connections/a")).unwrap();
    assert_eq!(stored["Links"]["InitiatorEndpoints"][0]["@odata.id"], format!("{FABRIC}/Endpoints/I1"));
    assert_eq!(stored["MemoryChunkInfo"].as_array().unwrap().len(), 1);
    assert_eq!(provider.inventory().await.unwrap().connections, std::slice::from_ref(&made));
    assert_eq!(provider.state(&key("a")).await.unwrap(), FabricOutcome::Done(made));
    assert!(attach(&provider, "a", 1, 0).await.is_done());
    assert_eq!(service.count("POST"), 1, "the repeated call found the connection");

    let other = provider.attach(&request("a", 0, 1)).await.unwrap_err().to_string();
    assert!(other.contains("key a is used for"), "{other}");
    let held = provider.attach(&request("b", 0, 0)).await.unwrap_err().to_string();
    assert!(held.contains("held by connection a for host abc00000-0000-4000-8000-000000000001"), "{held}");

    assert!(provider.detach(&key("a")).await.unwrap().is_done());
    assert!(provider.detach(&key("a")).await.unwrap().is_done(), "a detachment that was made is success");
    assert_eq!((service.connections().len(), service.count("DELETE")), (0, 1));
}

#[tokio::test]
async fn answers_with_a_location_and_ids_of_the_service_are_understood() {
    let service = PlayedRedfish::rack(1, 1).await;
    service.set(|knobs| (knobs.location, knobs.own_ids) = (true, true));
    let provider = provider(&service);
    let FabricOutcome::Done(made) = attach(&provider, "a", 0, 0).await else { panic!("it works") };
    assert_ne!(made.id, "a");
    assert_eq!(made.key, Some(key("a")));
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    assert_eq!(service.count("POST"), 1);
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
    assert_eq!(service.connections().len(), 0);
}

#[tokio::test]
async fn a_write_is_judged_by_what_the_service_holds_afterwards() {
    for (fate, is_made, expected) in [
        (PlayedWrite::EndAfter, true, "Done"),
        (PlayedWrite::StatusAfter(500), true, "Done"),
        (PlayedWrite::StatusAfter(409), true, "Done"),
        (PlayedWrite::StatusAfter(504), true, "Done"),
        (PlayedWrite::EndBefore, false, "Unknown"),
        (PlayedWrite::StatusBefore(504), false, "Unknown"),
        (PlayedWrite::StatusBefore(204), false, "Unknown"),
        (PlayedWrite::StatusBefore(500), false, "NotDone"),
        (PlayedWrite::StatusBefore(400), false, "NotDone"),
        (PlayedWrite::StatusBefore(403), false, "NotDone"),
        (PlayedWrite::Hang, false, "Unknown"),
    ] {
        let service = PlayedRedfish::rack(1, 1).await;
        service.set(|knobs| knobs.writes.push_back(fate));
        let provider = provider(&service);
        let outcome = text(&attach(&provider, "a", 0, 0).await);
        assert!(outcome.starts_with(expected), "{fate:?}: {outcome}");
        assert_eq!(service.connections().len(), usize::from(is_made), "{fate:?}");
        assert!(attach(&provider, "a", 0, 0).await.is_done(), "{fate:?}: repeated");
        assert_eq!(service.connections().len(), 1, "{fate:?}: never two");
    }
}

#[tokio::test]
async fn a_removal_is_judged_by_what_the_service_holds_afterwards() {
    for (fate, zombies, expected) in [
        (PlayedWrite::EndAfter, false, "Done"),
        (PlayedWrite::StatusAfter(500), false, "Done"),
        (PlayedWrite::EndBefore, false, "Unknown"),
        (PlayedWrite::StatusBefore(500), false, "Unknown"),
        (PlayedWrite::StatusBefore(403), false, "NotDone"),
        (PlayedWrite::EndAfter, true, "Unknown"),
        (PlayedWrite::StatusAfter(204), true, "Unknown"),
    ] {
        let service = PlayedRedfish::rack(1, 1).await;
        let provider = provider(&service);
        assert!(attach(&provider, "a", 0, 0).await.is_done());
        service.set(|knobs| {
            knobs.writes.push_back(fate);
            knobs.zombies = zombies;
        });
        let outcome = text(&provider.detach(&key("a")).await.unwrap());
        assert!(outcome.starts_with(expected), "{fate:?}, zombies {zombies}: {outcome}");
        assert_eq!(outcome == "Done", service.connections().is_empty(), "{fate:?}");
    }
}

#[tokio::test]
async fn an_object_that_changed_is_read_again_before_it_is_removed() {
    let service = PlayedRedfish::rack(1, 1).await;
    service.set(|knobs| knobs.etags = true);
    let provider = provider(&service);
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    service.set(|knobs| knobs.writes.push_back(PlayedWrite::StatusBefore(412)));
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
    let removals = service.seen().into_iter().filter(|it| it.method == "DELETE");
    assert_eq!(removals.map(|it| it.if_match.is_some()).collect::<Vec<_>>(), [true, true]);
}

#[tokio::test]
async fn a_failure_to_read_is_never_an_empty_fabric() {
    let service = PlayedRedfish::rack(1, 1).await;
    let first = provider(&service);
    assert!(attach(&first, "a", 0, 0).await.is_done());
    service.set(|knobs| knobs.read_failures.extend([500, 503, 429]));
    assert_eq!(first.inventory().await.unwrap().connections.len(), 1, "short failures are passed over");
    service.set(|knobs| knobs.read_failures.extend([503; 400]));
    let error = first.inventory().await.unwrap_err().to_string();
    assert!(error.contains("answered GET /redfish/v1/ with 503 (<html>status 503</html>)"), "{error}");
    assert!(first.state(&key("a")).await.is_err());
    assert!(first.detach(&key("b")).await.is_err(), "an unread key is not called detached");
    service.set(|knobs| knobs.read_failures.clear());
    service.set(|knobs| knobs.writes.push_back(PlayedWrite::EndAfter));
    assert!(first.detach(&key("a")).await.unwrap().is_done());
}

#[tokio::test]
async fn work_that_was_accepted_is_under_way_until_its_task_ends() {
    for fate in [PlayedWrite::Task, PlayedWrite::TaskInBody] {
        let service = PlayedRedfish::rack(1, 2).await;
        service.set(|knobs| knobs.writes.push_back(fate));
        let first = provider(&service);
        let FabricOutcome::UnderWay(operation) = attach(&first, "a", 0, 0).await else { panic!("{fate:?}") };
        assert!(operation.monitor.is_some(), "{fate:?}");
        assert!(matches!(attach(&first, "a", 0, 0).await, FabricOutcome::UnderWay(_)));
        let held = first.attach(&request("b", 0, 0)).await.unwrap_err().to_string();
        assert!(held.contains("held by connection a (under way)"), "{held}");
        let FabricOutcome::UnderWay(operation) = first.state(&key("a")).await.unwrap() else { panic!("{fate:?}") };
        assert_eq!((operation.state.as_deref(), operation.percent), (Some("Running"), Some(40)));
        assert!(matches!(first.detach(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)));
        assert!(matches!(first.isolate(device(0), &[by_key("a")]).await.unwrap(), FabricOutcome::UnderWay(_)));

        let restarted = provider(&service);
        assert!(matches!(restarted.state(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)), "found by its task");
        assert!(matches!(attach(&restarted, "a", 0, 0).await, FabricOutcome::UnderWay(_)));
        assert_eq!(service.count("POST"), 1);
        service.finish_tasks("Completed");
        assert!(first.state(&key("a")).await.unwrap().is_done());
        assert!(restarted.state(&key("a")).await.unwrap().is_done());
        assert!(attach(&first, "a", 0, 0).await.is_done());
    }
}

#[tokio::test]
async fn a_task_that_failed_is_not_done_and_its_words_are_told() {
    let service = PlayedRedfish::rack(1, 1).await;
    service.set(|knobs| knobs.writes.push_back(PlayedWrite::Task));
    let provider = provider(&service);
    assert!(matches!(attach(&provider, "a", 0, 0).await, FabricOutcome::UnderWay(_)));
    service.finish_tasks("Exception");
    let outcome = text(&provider.state(&key("a")).await.unwrap());
    assert!(outcome.starts_with("NotDone") && outcome.contains("Exception: the link did not train"), "{outcome}");
    assert!(attach(&provider, "a", 0, 0).await.is_done());
}

#[tokio::test]
async fn a_removal_may_be_a_task_too() {
    let service = PlayedRedfish::rack(1, 1).await;
    let provider = provider(&service);
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    service.set(|knobs| knobs.writes.push_back(PlayedWrite::Task));
    assert!(matches!(provider.detach(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)));
    assert!(matches!(provider.state(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)));
    service.finish_tasks("Completed");
    assert!(matches!(provider.state(&key("a")).await.unwrap(), FabricOutcome::NotDone { .. }));
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
}

#[tokio::test]
async fn another_device_than_was_asked_for_is_an_error_that_names_both() {
    let service = PlayedRedfish::rack(1, 2).await;
    service.set(|knobs| knobs.wrong_target = Some(format!("{FABRIC}/Endpoints/T1")));
    let provider = provider(&service);
    let error = provider.attach(&request("a", 0, 0)).await.unwrap_err().to_string();
    assert!(error.contains(&device(0).to_string()) && error.contains(&device(1).to_string()), "{error}");
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
}

#[tokio::test]
async fn a_device_that_was_swapped_a_moment_ago_is_not_attached_for_the_old_one() {
    let service = PlayedRedfish::rack(1, 2).await;
    let provider = provider(&service);
    provider.inventory().await.unwrap();
    service.change(|documents| {
        let swapped = documents.get_mut("/redfish/v1/Chassis/Pool/PCIeDevices/0/CXLLogicalDevices/1").unwrap();
        swapped["Identifiers"][0]["DurableName"] = json!("4C-1D-96-00-00-00-00-77:0001");
        let endpoint = documents.get_mut(&format!("{FABRIC}/Endpoints/T0")).unwrap();
        endpoint["ConnectedEntities"][0]["Identifiers"] = json!([]);
    });
    let refused = provider.attach(&request("a", 0, 0)).await.unwrap_err().to_string();
    assert!(refused.contains("has no device 4C-1D-96-00-00-00-00-00:0001"), "{refused}");
    assert_eq!(service.count("POST"), 0);
}

#[tokio::test]
async fn isolation_removes_connections_or_disables_the_port() {
    let service = PlayedRedfish::rack(2, 2).await;
    let provider = provider(&service);
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    let removed = FabricOutcome::Done(Isolation::Removed { connections: vec!["a".to_owned()] });
    assert_eq!(provider.isolate(device(0), &[by_key("a")]).await.unwrap(), removed);
    assert_eq!(service.connections().len(), 0);

    assert!(attach(&provider, "b", 0, 1).await.is_done());
    service.set(|knobs| knobs.writes.push_back(PlayedWrite::StatusBefore(405)));
    let isolated = provider.isolate(device(1), &[by_key("b")]).await.unwrap();
    let port = "/redfish/v1/Chassis/Pool/FabricAdapters/1/Ports/1";
    assert_eq!(isolated, FabricOutcome::Done(Isolation::PortDisabled { port: port.into() }));
    assert_eq!(service.document(port).unwrap()["InterfaceEnabled"], json!(false));

    service.change(|documents| documents.get_mut(port).unwrap()["InterfaceEnabled"] = json!(true));
    service.set(|knobs| knobs.writes.extend([PlayedWrite::StatusBefore(405); 2]));
    let error = provider.isolate(device(1), &[by_key("b")]).await.unwrap_err().to_string();
    assert!(error.contains("offers no way to isolate the device"), "{error}");
    assert!(provider.isolate(DeviceIdentity { serial: 1, logical_device: 1 }, &[]).await.is_err());
}

#[tokio::test]
async fn answers_that_are_too_large_or_never_end_are_clear_errors() {
    for (body, expected) in [
        (PlayedBody::Large(100 << 20), "is larger than 16777216 bytes"),
        (PlayedBody::Endless, "is larger than 16777216 bytes"),
        (PlayedBody::Trickle, "did not answer GET /redfish/v1/Fabrics within 1 s"),
        (PlayedBody::Pages, "has more than 10 pages without a member"),
        (PlayedBody::Half, "failed to read the whole answer"),
        (PlayedBody::Text, "is no JSON"),
    ] {
        let service = PlayedRedfish::rack(1, 1).await;
        service.set(|knobs| knobs.fabrics = body);
        let settings = RedfishSettings { read_seconds: 1, ..settings(&service) };
        let begin = Instant::now();
        let error = RedfishProvider::new(&settings).unwrap().inventory().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{body:?}: {error}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{body:?}");
    }
}

#[tokio::test]
async fn a_slow_write_that_is_done_after_its_time_is_unknown_and_found_later() {
    let service = PlayedRedfish::rack(1, 1).await;
    service.set(|knobs| knobs.slow_writes = Duration::from_millis(1500));
    let settings = RedfishSettings { write_seconds: 1, ..settings(&service) };
    let provider = RedfishProvider::new(&settings).unwrap();
    let outcome = text(&attach(&provider, "a", 0, 0).await);
    assert!(outcome.starts_with("Unknown") && outcome.contains("within 1 s"), "{outcome}");
    support::until(async || provider.state(&key("a")).await.unwrap().is_done()).await;
    assert_eq!(service.connections(), ["a"]);
}

#[tokio::test]
async fn writes_are_sent_one_at_a_time() {
    let service = PlayedRedfish::rack(8, 8).await;
    service.set(|knobs| knobs.slow_writes = Duration::from_millis(5));
    let provider = provider(&service);
    let mut calls = tokio::task::JoinSet::new();
    for at in 0..8 {
        let provider = provider.clone();
        calls.spawn(async move { attach(&provider, &format!("k{at}"), at, at).await });
    }
    assert!(calls.join_all().await.iter().all(FabricOutcome::is_done));
    assert_eq!((service.connections().len(), service.most_writing()), (8, 1));
}

#[tokio::test]
async fn broken_documents_are_problems_and_not_silence() {
    let service = PlayedRedfish::rack(2, 2).await;
    service.change(|documents| {
        documents.remove("/redfish/v1/Chassis/Pool/PCIeDevices/1/CXLLogicalDevices/1");
        documents.remove("/redfish/v1/Systems/host-1/Processors/CPU");
        let system = documents.get_mut("/redfish/v1/Systems/host-0").unwrap();
        system["UUID"] = json!("00000000-0000-0000-0000-000000000000");
        system["Status"] = json!("fine");
        documents.get_mut(&format!("{FABRIC}/Endpoints/T0")).unwrap()["ConnectedEntities"][0]["EntityRole"] =
            json!("New");
    });
    let inventory = provider(&service).inventory().await.unwrap();
    let problems: Vec<String> = inventory.problems.iter().map(ToString::to_string).collect();
    for expected in [
        "CXLLogicalDevices: Members: lists /redfish/v1/Chassis/Pool/PCIeDevices/1/CXLLogicalDevices/1, which does not exist",
        "host-0: UUID: \"00000000-0000-0000-0000-000000000000\" is no UUID of a system",
        "Endpoints/I1: ConnectedEntities: links to nothing that exists (/redfish/v1/Systems/host-1/Processors/CPU)",
    ] {
        assert!(problems.iter().any(|it| it.contains(expected)), "{problems:#?} have no {expected}");
    }
    assert_eq!(inventory.hosts.iter().filter(|host| host.unusable.is_some()).count(), 1);
}

#[tokio::test]
async fn a_watch_hints_at_a_new_connection() {
    let service = PlayedRedfish::rack(1, 1).await;
    let provider = provider(&service);
    let mut watch = provider.watch(Duration::from_millis(1), Arc::new(Semaphore::new(1)));
    assert!(matches!(watch.next().await, FabricHint::Changed(_)));
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    let FabricHint::Changed(inventory) = watch.next().await else { panic!("it can be read") };
    assert_eq!(inventory.connections.len(), 1);
}

#[tokio::test]
async fn no_more_is_read_at_once_than_the_settings_say_however_deep_collections_lie() {
    for most in [1, 3] {
        let service = PlayedRedfish::rack(2, 8).await;
        service.set(|knobs| knobs.slow_reads = Duration::from_millis(1));
        service.change(|documents| {
            for at in 0..8 {
                let logical = format!("/redfish/v1/Chassis/Pool/PCIeDevices/{at}/CXLLogicalDevices");
                let more: Vec<String> = (2..5).map(|more| format!("{logical}/{more}")).collect();
                let members = documents.get_mut(&logical).unwrap()["Members"].as_array_mut().unwrap();
                members.extend(more.iter().map(|path| json!({ "@odata.id": path })));
                documents.extend(more.into_iter().map(|path| (path, json!({}))));
            }
        });
        let settings = RedfishSettings { parallel_reads: most, ..settings(&service) };
        let inventory = RedfishProvider::new(&settings).unwrap().inventory().await.unwrap();
        assert_eq!(inventory.devices.len(), 8 * 4);
        assert_eq!(service.most_reading(), u32::from(most));
    }
}
