//! Memory that is made when a device is attached: every chunk is there once or not at all, and only hostler's own are
//! freed.

use hostler_fabric::{
    AttachRequest, FabricConnection, FabricOutcome, FabricProvider,
    redfish::{RedfishProvider, RedfishSettings},
};
use hostler_testing::redfish::{FABRIC, PlayedRedfish, PlayedWrite};
use serde_json::json;

use crate::support::{device, key, provider, request, settings, text};

const MIB: u64 = 1 << 20;
const DOMAIN: &str = "/redfish/v1/Chassis/Pool/MemoryDomains/0";
const LOGICAL: &str = "/redfish/v1/Chassis/Pool/PCIeDevices/0/CXLLogicalDevices/1";
const SOURCE: &str = "/redfish/v1/AggregationService/AggregationSources/2";
/// A key as the controller makes them.
const ATTEMPT: &str = "5f0c2f7e-0d5a-4a53-9d6c-0f6f2b8f7a11-3";

/// A request for an amount.
fn amount(name: &str, host: u32, at: u32, mib: u64) -> AttachRequest {
    AttachRequest { memory: Some(mib * MIB), ..request(name, host, at) }
}

async fn made(provider: &RedfishProvider, request: &AttachRequest) -> FabricOutcome<FabricConnection> {
    provider.attach(request).await.unwrap()
}

fn chunks(service: &PlayedRedfish) -> Vec<(String, u64)> {
    service.chunks()
}

/// The number of requests to make a chunk.
fn makings(service: &PlayedRedfish) -> usize {
    service.seen().iter().filter(|it| it.method == "POST" && it.path.contains("MemoryChunks")).count()
}

async fn problems(provider: &RedfishProvider) -> Vec<String> {
    provider.inventory().await.unwrap().problems.iter().map(ToString::to_string).collect()
}

async fn rooms(provider: &RedfishProvider) -> Vec<Option<u64>> {
    let inventory = provider.inventory().await.unwrap();
    inventory.devices.iter().map(|device| Some(device.room.as_ref()?.free_bytes / MIB)).collect()
}

#[tokio::test]
async fn memory_is_made_for_the_device_connected_kept_and_freed() {
    for (no_back_links, location, own_ids, etags) in
        [(false, false, false, false), (true, true, false, true), (true, false, true, false), (false, true, true, true)]
    {
        let service = PlayedRedfish::shared(2, 2, 8192).await;
        service.set(|knobs| {
            (knobs.no_back_links, knobs.location) = (no_back_links, location);
            (knobs.own_ids, knobs.etags) = (own_ids, etags);
        });
        let provider = provider(&service);
        assert_eq!(rooms(&provider).await, [Some(8192), Some(8192)]);
        for at in [0, 1] {
            let name = format!("k{at}");
            let request = amount(&name, at, at, 3000);
            let FabricOutcome::Done(connection) = made(&provider, &request).await else { panic!("it works") };
            assert_eq!((connection.devices.clone(), connection.chunks.len()), (vec![device(at)], 1));
            assert_eq!(made(&provider, &request).await, FabricOutcome::Done(connection.clone()));
            let chunk = service.document(connection.chunks[0].as_str()).unwrap();
            assert_eq!(
                (&chunk["MemoryChunkSizeMiB"], &chunk["Name"]),
                (&json!(3072), &json!(format!("hostler {name}")))
            );
            assert_eq!(chunk["AddressRangeType"], "Volatile");
            assert_eq!(chunk["MediaLocation"], "Local");
            assert_eq!(chunk["RequestedOperationalState"], "Online");
            assert_eq!(chunk["Links"]["Endpoints"], json!([{"@odata.id": format!("{FABRIC}/Endpoints/T{at}")}]));
        }
        let inventory = provider.inventory().await.unwrap();
        assert_eq!((inventory.problems.clone(), inventory.memory_domains[0].free_bytes), (vec![], Some(2048 * MIB)));
        assert!(
            inventory.devices.iter().all(|it| it.room.is_none())
                && inventory.device(device(1)).unwrap().memory.made_for.is_some()
        );
        assert_eq!(makings(&service), 2);

        let held = provider.free(device(1), &key("k1")).await.unwrap_err().to_string();
        assert!(held.contains("for host abc00000-0000-4000-8000-000000000001; detach that one first"), "{held}");
        assert!(provider.detach(&key("k1")).await.unwrap().is_done());
        assert_eq!(chunks(&service).len(), 2, "the memory stays until it is freed");
        assert!(provider.free(device(1), &key("k1")).await.unwrap().is_done());
        assert!(provider.free(device(1), &key("k1")).await.unwrap().is_done());
        assert_eq!((chunks(&service).len(), rooms(&provider).await), (1, vec![None, Some(5120)]));
        assert!(made(&provider, &amount("again", 1, 1, 5120)).await.is_done(), "what was read before is forgotten");
        assert_eq!(problems(&provider).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_chunk_is_judged_by_what_the_service_holds_afterwards() {
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
        (PlayedWrite::Hang, false, "Unknown"),
    ] {
        let service = PlayedRedfish::shared(1, 1, 8192).await;
        service.set(|knobs| knobs.writes.push_back(fate));
        let provider = provider(&service);
        let outcome = text(&made(&provider, &amount("a", 0, 0, 3072)).await);
        assert!(outcome.starts_with(expected), "{fate:?}: {outcome}");
        let counts = (chunks(&service).len(), service.connections().len());
        assert_eq!(counts, (usize::from(is_made), usize::from(is_made)), "{fate:?}");
        assert!(made(&provider, &amount("a", 0, 0, 3072)).await.is_done(), "{fate:?}: repeated");
        assert_eq!(chunks(&service), [("a".to_owned(), 3072)], "{fate:?}: never two");
    }
}

#[tokio::test]
async fn a_client_that_ended_between_chunk_and_connection_goes_on_with_the_same_call() {
    for (own_ids, no_back_links) in [(false, false), (true, false), (false, true), (true, true)] {
        let service = PlayedRedfish::shared(1, 1, 8192).await;
        service.set(|knobs| {
            (knobs.own_ids, knobs.no_back_links) = (own_ids, no_back_links);
            knobs.writes.extend([PlayedWrite::StatusAfter(201), PlayedWrite::EndBefore]);
        });
        let first = provider(&service);
        let outcome = text(&made(&first, &amount("a", 0, 0, 3072)).await);
        assert!(outcome.starts_with("Unknown") && outcome.contains("there is no connection yet"), "{outcome}");
        assert_eq!((chunks(&service).len(), service.connections().len()), (1, 0));
        let restarted = provider(&service);
        assert!(matches!(restarted.state(&key("a")).await.unwrap(), FabricOutcome::NotDone { .. }));
        assert!(made(&restarted, &amount("a", 0, 0, 3072)).await.is_done());
        assert!(made(&first, &amount("a", 0, 0, 3072)).await.is_done());
        assert_eq!((makings(&service), chunks(&service).len(), service.connections().len()), (1, 1, 1));
    }
}

#[tokio::test]
async fn memory_of_an_earlier_attempt_is_used_if_it_is_enough_and_freed_otherwise() {
    let service = PlayedRedfish::shared(1, 1, 8192).await;
    service.set(|knobs| knobs.writes.extend([PlayedWrite::StatusAfter(201), PlayedWrite::StatusBefore(500)]));
    let provider = provider(&service);
    assert!(text(&made(&provider, &amount("a", 0, 0, 2048)).await).starts_with("NotDone"));
    let small = provider.attach(&amount("b", 0, 0, 4096)).await.unwrap_err().to_string();
    assert!(small.contains("has 2147483648 bytes of memory that was made for another request"), "{small}");
    assert!(small.contains("4294967296 bytes are asked for; free the memory of the device first"), "{small}");
    assert!(made(&provider, &amount("c", 0, 0, 1024)).await.is_done());
    assert!(provider.detach(&key("c")).await.unwrap().is_done());
    assert!(provider.free(device(0), &key("a")).await.unwrap().is_done());
    assert!(made(&provider, &amount("d", 0, 0, 4096)).await.is_done());
    assert_eq!(chunks(&service), [("d".to_owned(), 4096)]);
}

#[tokio::test]
async fn memory_that_another_client_has_freed_a_moment_ago_is_made_again() {
    let service = PlayedRedfish::shared(1, 1, 8192).await;
    let (first, second) = (provider(&service), provider(&service));
    assert!(made(&first, &amount("a", 0, 0, 2048)).await.is_done());
    assert!(first.detach(&key("a")).await.unwrap().is_done());
    assert!(second.free(device(0), &key("a")).await.unwrap().is_done());
    assert!(made(&first, &amount("b", 0, 0, 1024)).await.is_done());
    assert_eq!(chunks(&service), [("b".to_owned(), 1024)]);
    let connection = service.document(&format!("{FABRIC}/Connections/b")).unwrap();
    assert_eq!(connection["MemoryChunkInfo"][0]["MemoryChunk"]["@odata.id"], format!("{DOMAIN}/MemoryChunks/b"));
}

#[tokio::test]
async fn another_size_than_was_asked_for_is_an_error_and_nothing_is_connected() {
    let service = PlayedRedfish::shared(1, 2, 8192).await;
    service.set(|knobs| knobs.chunk_mib = Some(1024));
    let provider = provider(&service);
    for request in [amount("a", 0, 0, 3072), request("b", 0, 1)] {
        let error = provider.attach(&request).await.unwrap_err().to_string();
        assert!(
            error.contains("made 1073741824 bytes of memory (chunk ") && error.contains("was asked for"),
            "{error}"
        );
    }
    assert_eq!((chunks(&service).len(), service.connections().len()), (2, 0));
    assert!(provider.free(device(0), &key("a")).await.unwrap().is_done());
    service.set(|knobs| knobs.chunk_mib = Some(4096));
    assert!(made(&provider, &amount("c", 0, 0, 3072)).await.is_done(), "more than enough");
}

#[tokio::test]
async fn the_last_memory_is_given_once() {
    let service = PlayedRedfish::shared(2, 2, 4096).await;
    let (first, second) = (provider(&service), provider(&service));
    first.inventory().await.unwrap();
    second.inventory().await.unwrap();
    let requests = [amount("a", 0, 0, 3072), amount("b", 1, 1, 3072)];
    let (a, b) = tokio::join!(first.attach(&requests[0]), first.attach(&requests[1]));
    let refusals: Vec<String> = [a, b].into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    let [refused] = &refusals[..] else { panic!("{refusals:?}") };
    assert!(refused.contains("3221225472 bytes cannot be made for it: 1073741824 bytes of memory domain"), "{refused}");
    assert!(refused.contains("has 3221225472 bytes for device 4C-1D-96"), "{refused}");
    let late = second.attach(&requests[1]).await;
    let late = late.map(|outcome| text(&outcome)).unwrap_or_else(|error| error.to_string());
    assert!(late == "Done" || late.contains("cannot be made for it"), "what was read before is read again: {late}");
    assert_eq!((chunks(&service).len(), service.connections().len()), (1, 1));
    let other = u32::from(service.connections() == ["a"]);
    assert!(made(&first, &request("c", other, other)).await.is_done(), "all that is free");
    assert_eq!(rooms(&first).await, [None, None]);
    assert_eq!(chunks(&service).iter().map(|(_, mib)| mib).sum::<u64>(), 4096);
}

#[tokio::test]
async fn a_chunk_that_cannot_be_recognised_is_never_connected_and_not_made_again() {
    let service = PlayedRedfish::shared(1, 2, 8192).await;
    service.set(|knobs| knobs.drops_names = true);
    let first = provider(&service);
    assert!(made(&first, &amount(ATTEMPT, 0, 0, 1024)).await.is_done(), "its Id tells");
    let error = first.attach(&amount("a", 0, 1, 1024)).await.unwrap_err().to_string();
    assert!(error.contains("made") && error.contains("MemoryChunks/a without name and Id under key a"), "{error}");
    assert_eq!(service.connections().len(), 1);

    let service = PlayedRedfish::shared(1, 2, 8192).await;
    service.set(|knobs| knobs.drops_devices = true);
    let first = provider(&service);
    let outcome = text(&made(&first, &amount("a", 0, 0, 1024)).await);
    assert!(outcome.starts_with("NotDone") && outcome.contains("see the problems"), "{outcome}");
    assert!(first.attach(&amount("b", 0, 1, 1024)).await.is_err());
    assert_eq!((makings(&service), service.connections().len()), (1, 0));
    assert!(problems(&first).await[0].contains("was made for a device and names none"));
}

#[tokio::test]
async fn a_release_of_memory_is_judged_by_what_the_service_holds_afterwards() {
    for (fate, zombies, expected) in [
        (PlayedWrite::EndAfter, false, "Done"),
        (PlayedWrite::StatusAfter(500), false, "Done"),
        (PlayedWrite::StatusBefore(412), false, "Done"),
        (PlayedWrite::EndBefore, false, "Unknown"),
        (PlayedWrite::StatusBefore(500), false, "Unknown"),
        (PlayedWrite::StatusBefore(409), false, "NotDone"),
        (PlayedWrite::StatusAfter(200), true, "Unknown"),
        (PlayedWrite::EndAfter, true, "Unknown"),
    ] {
        let service = PlayedRedfish::shared(1, 1, 8192).await;
        let provider = provider(&service);
        assert!(made(&provider, &amount("a", 0, 0, 1024)).await.is_done());
        assert!(provider.detach(&key("a")).await.unwrap().is_done());
        service.set(|knobs| {
            knobs.writes.push_back(fate);
            (knobs.zombies, knobs.etags) = (zombies, true);
        });
        let outcome = text(&provider.free(device(0), &key("a")).await.unwrap());
        assert!(outcome.starts_with(expected), "{fate:?}, zombies {zombies}: {outcome}");
        assert_eq!(outcome == "Done", chunks(&service).is_empty(), "{fate:?}");
    }
}

#[tokio::test]
async fn to_free_memory_its_domain_is_read_and_no_other_hardware() {
    let service = PlayedRedfish::shared(2, 3, 8192).await;
    let provider = provider(&service);
    for at in [0, 1] {
        assert!(made(&provider, &amount(&format!("k{at}"), 0, at, 1024)).await.is_done());
    }
    assert!(provider.detach(&key("k0")).await.unwrap().is_done());
    let before = service.seen().len();
    let read_since = |before: usize| -> Vec<String> {
        service.seen()[before..].iter().filter(|it| it.method == "GET").map(|it| it.path.clone()).collect()
    };
    assert!(provider.free(device(0), &key("k0")).await.unwrap().is_done());
    let is_of_others =
        |path: &String| path.contains("/Systems") || path.contains("/Endpoints") || path.contains("/PCIeDevices/1");
    let read = read_since(before);
    assert!(read.contains(&LOGICAL.to_owned()) && !read.iter().any(is_of_others), "{read:#?}");

    // Once it is gone, not even connections are read.
    let before = service.seen().len();
    assert!(provider.free(device(0), &key("k0")).await.unwrap().is_done());
    let chunks = format!("{DOMAIN}/MemoryChunks");
    let expected = [DOMAIN.to_owned(), chunks.clone(), format!("{chunks}/k1"), LOGICAL.to_owned()];
    assert_eq!(read_since(before), expected);
}

#[tokio::test]
async fn memory_that_has_gone_to_another_device_is_looked_for_everywhere_before_it_is_called_gone() {
    let service = PlayedRedfish::shared(1, 2, 8192).await;
    let provider = provider(&service);
    assert!(made(&provider, &amount("a", 0, 0, 1024)).await.is_done());
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
    // The cards were swapped: the chunk is the same card's at its new place.
    let other = LOGICAL.replace("/0/", "/1/");
    service.change(|documents| {
        let names = [LOGICAL, &*other].map(|path| documents[path]["Identifiers"].clone());
        let links = documents[LOGICAL]["Links"]["MemoryChunks"].clone();
        for (path, name) in [&*other, LOGICAL].into_iter().zip(names) {
            documents.get_mut(path).unwrap()["Identifiers"] = name;
        }
        documents.get_mut(LOGICAL).unwrap()["Links"]["MemoryChunks"] = json!([]);
        documents.get_mut(&other).unwrap()["Links"]["MemoryChunks"] = links;
        let chunk = documents.get_mut(&format!("{DOMAIN}/MemoryChunks/a")).unwrap();
        chunk["Links"]["CXLLogicalDevices"] = json!([{ "@odata.id": other }]);
        for at in [0, 1] {
            let path = format!("{FABRIC}/Endpoints/T{at}");
            let name = documents[[LOGICAL, &*other][at]]["Identifiers"].clone();
            documents.get_mut(&path).unwrap()["ConnectedEntities"][0]["Identifiers"] = name;
        }
    });
    assert!(provider.free(device(0), &key("a")).await.unwrap().is_done());
    assert_eq!(chunks(&service), []);
}

#[tokio::test]
async fn memory_that_a_person_has_made_is_attached_as_it_is_and_never_freed() {
    let service = PlayedRedfish::rack(1, 1).await;
    let provider = provider(&service);
    assert!(made(&provider, &amount("a", 0, 0, 1 << 20)).await.is_done(), "the amount is that of the device");
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
    assert!(provider.free(device(0), &key("a")).await.unwrap().is_done());
    assert_eq!(chunks(&service).len(), 1);
    let removals = service.seen().into_iter().filter(|it| it.method == "DELETE" && it.path.contains("MemoryChunks"));
    assert_eq!((removals.count(), makings(&service)), (0, 0));
}

#[tokio::test]
async fn memory_may_be_made_and_freed_by_tasks() {
    for fate in [PlayedWrite::Task, PlayedWrite::TaskInBody] {
        let service = PlayedRedfish::shared(1, 1, 8192).await;
        service.set(|knobs| knobs.writes.push_back(fate));
        let (first, asked) = (provider(&service), amount("a", 0, 0, 1024));
        for client in [&first, &first, &provider(&service)] {
            let outcome = text(&made(client, &asked).await);
            assert!(outcome.starts_with("Unknown") && outcome.contains("still makes the memory for a"), "{outcome}");
        }
        assert!(matches!(first.state(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)));
        let other = first.attach(&amount("b", 0, 0, 1024)).await.unwrap_err().to_string();
        assert!(other.contains("held by connection a (under way)"), "{other}");
        assert_eq!(makings(&service), 1);
        service.finish_tasks("Completed");
        assert!(made(&first, &asked).await.is_done());
        assert_eq!((makings(&service), chunks(&service).len()), (1, 1));

        assert!(first.detach(&key("a")).await.unwrap().is_done());
        service.set(|knobs| knobs.writes.push_back(fate));
        assert!(matches!(first.free(device(0), &key("a")).await.unwrap(), FabricOutcome::UnderWay(_)));
        service.finish_tasks("Completed");
        assert!(first.free(device(0), &key("a")).await.unwrap().is_done());
        assert_eq!(chunks(&service), []);
    }
}

#[tokio::test]
async fn work_on_memory_without_a_monitor_ends_when_the_memory_is_there() {
    let service = PlayedRedfish::shared(1, 1, 8192).await;
    service.set(|knobs| knobs.writes.push_back(PlayedWrite::StatusBefore(202)));
    let provider = provider(&service);
    for _ in 0..2 {
        assert!(text(&made(&provider, &amount("a", 0, 0, 1024)).await).contains("still makes the memory for a"));
    }
    assert!(matches!(provider.state(&key("a")).await.unwrap(), FabricOutcome::UnderWay(_)));
    service.change(|documents| {
        let chunk = format!("{DOMAIN}/MemoryChunks/1");
        documents.get_mut(&format!("{DOMAIN}/MemoryChunks")).unwrap()["Members"] = json!([{"@odata.id": chunk}]);
        let links = json!({"CXLLogicalDevices": [{"@odata.id": LOGICAL}]});
        documents.insert(chunk, json!({"Id": "1", "Name": "hostler a", "MemoryChunkSizeMiB": 1024, "Links": links}));
    });
    assert!(made(&provider, &amount("a", 0, 0, 1024)).await.is_done());
    assert_eq!((makings(&service), service.connections().len()), (1, 1));
}

#[tokio::test]
async fn a_task_that_made_no_memory_is_not_done_and_may_be_repeated() {
    let service = PlayedRedfish::shared(1, 1, 8192).await;
    service.set(|knobs| knobs.writes.push_back(PlayedWrite::Task));
    let provider = provider(&service);
    assert!(matches!(made(&provider, &amount("a", 0, 0, 1024)).await, FabricOutcome::Unknown { .. }));
    service.finish_tasks("Exception");
    let outcome = text(&provider.state(&key("a")).await.unwrap());
    assert!(outcome.starts_with("NotDone") && outcome.contains("Exception: the link did not train"), "{outcome}");
    assert!(made(&provider, &amount("a", 0, 0, 1024)).await.is_done());
}

#[tokio::test]
async fn memory_is_not_freed_where_a_manager_that_is_not_asked_may_have_connected_it() {
    let service = PlayedRedfish::shared(1, 1, 8192).await;
    service.change(|documents| {
        documents.insert(SOURCE.to_owned(), json!({"HostName": "http://127.0.0.1:9"}));
        let extension = json!({"Maker": {"ManagingAgent": {"@odata.id": SOURCE}}});
        documents.get_mut(FABRIC).unwrap()["Oem"] = extension;
    });
    let trusting = RedfishSettings { trust_service: true, ..settings(&service) };
    let trusting = RedfishProvider::new(&trusting).unwrap();
    assert!(made(&trusting, &amount("a", 0, 0, 1024)).await.is_done());
    assert!(trusting.detach(&key("a")).await.unwrap().is_done());
    let outcome = text(&provider(&service).free(device(0), &key("a")).await.unwrap());
    assert!(outcome.starts_with("Unknown") && outcome.contains("which is not among the agents"), "{outcome}");
    assert_eq!(chunks(&service).len(), 1);
    assert!(trusting.free(device(0), &key("a")).await.unwrap().is_done());
}

#[tokio::test]
async fn chunks_are_those_of_an_agent_that_the_settings_name() {
    let (service, agent) = (PlayedRedfish::shared(1, 1, 8192).await, PlayedRedfish::shared(1, 1, 8192).await);
    let host = agent.url();
    service.change(|documents| {
        documents.insert(SOURCE.to_owned(), json!({"HostName": host}));
        let extension = json!({"Maker": {"ManagingAgent": {"@odata.id": SOURCE}}});
        documents.get_mut(DOMAIN).unwrap()["Oem"] = extension;
    });
    let unnamed = provider(&service);
    assert_eq!(rooms(&unnamed).await, [None]);
    let told = problems(&unnamed).await;
    assert!(
        told[0].contains("so chunks are read at http://127.0.0.1:") && told[0].contains("add it to agents"),
        "{told:?}"
    );
    let refused = unnamed.attach(&amount("a", 0, 0, 1024)).await.unwrap_err().to_string();
    assert!(refused.contains("can be made for it") && refused.contains("see the problems"), "{refused}");
    let trusting = RedfishSettings { trust_service: true, ..settings(&service) };
    assert_eq!(rooms(&RedfishProvider::new(&trusting).unwrap()).await, [Some(8192)]);

    let settings = RedfishSettings { agents: vec![agent.url()], ..settings(&service) };
    let provider = RedfishProvider::new(&settings).unwrap();
    assert!(made(&provider, &amount("a", 0, 0, 1024)).await.is_done());
    assert_eq!((chunks(&service).len(), chunks(&agent).len(), service.connections().len()), (0, 1, 1));
    assert_eq!(provider.inventory().await.unwrap().memory_domains[0].free_bytes, Some(7168 * MIB));
    // The service remembers the chunk for ever.
    service.change(|documents| {
        let device = documents.get_mut(LOGICAL).unwrap();
        device["Links"]["MemoryChunks"] = json!([{"@odata.id": format!("{DOMAIN}/MemoryChunks/a")}]);
    });
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
    assert!(provider.free(device(0), &key("a")).await.unwrap().is_done());
    assert_eq!((chunks(&agent).len(), problems(&provider).await), (0, Vec::new()));
    assert_eq!(rooms(&provider).await, [Some(8192)]);
    service.change(|documents| documents.get_mut(LOGICAL).unwrap()["Links"]["MemoryChunks"] = json!([]));
    agent.change(|documents| drop(documents.remove(DOMAIN)));
    assert!(problems(&provider).await[0].contains("is not known to its agent http://127.0.0.1:"));
    assert!(provider.attach(&request("b", 0, 0)).await.is_err());
}

#[tokio::test]
async fn memory_is_made_in_steps_that_hosts_can_map() {
    const GIB: u64 = 1 << 30;
    for (fields, expected) in [
        (json!({}), (GIB / 4, GIB / 4)),
        (json!({"MinMemoryChunkSizeMiB": 64, "MemoryChunkIncrementMiB": 64}), (GIB / 4, GIB / 4)),
        (json!({"MinMemoryChunkSizeMiB": 600, "MemoryChunkIncrementMiB": 0}), (GIB * 3 / 4, GIB / 4)),
        (json!({"MinMemoryChunkSizeMiB": 0, "MemoryChunkIncrementMiB": 1024}), (GIB, GIB)),
        (json!({"MinMemoryChunkSizeMiB": 1500, "MemoryChunkIncrementMiB": 1024}), (2 * GIB, GIB)),
    ] {
        let service = PlayedRedfish::shared(1, 1, 8192).await;
        service.change(|documents| {
            let domain = documents.get_mut(DOMAIN).unwrap().as_object_mut().unwrap();
            domain.retain(|name, _| !["MinMemoryChunkSizeMiB", "MemoryChunkIncrementMiB"].contains(&name.as_str()));
            domain.extend(fields.as_object().unwrap().clone());
        });
        let room = provider(&service).inventory().await.unwrap().devices[0].room.clone().unwrap();
        assert_eq!((room.least_bytes, room.step_bytes), expected, "{fields}");
    }
}
