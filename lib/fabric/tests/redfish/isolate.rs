//! An isolation takes away the connections that its caller has seen, and none that was made since.

use hostler_fabric::{ExpectedConnection, FabricOutcome, FabricProvider, Isolation};
use hostler_testing::redfish::{FABRIC, PlayedRedfish, PlayedWrite, host_uuid};

use crate::support::{attach, by_key, device, key, provider, text};

fn removed(connections: &[&str]) -> FabricOutcome<Isolation> {
    let connections = connections.iter().map(|id| (*id).to_owned()).collect();
    FabricOutcome::Done(Isolation::Removed { connections })
}

/// The connection that another program has made, as it was seen.
fn shown(id: &str, host: u32) -> ExpectedConnection {
    let path = format!("{FABRIC}/Connections/{id}").as_str().into();
    ExpectedConnection::Shown { path, host: host_uuid(host).parse().unwrap() }
}

#[tokio::test]
async fn an_isolation_that_is_late_leaves_the_next_connection_of_the_device() {
    let service = PlayedRedfish::rack(2, 1).await;
    let provider = provider(&service);
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
    assert!(attach(&provider, "b", 1, 0).await.is_done());
    assert_eq!(provider.isolate(device(0), &[by_key("a")]).await.unwrap(), removed(&[]));
    assert_eq!(provider.isolate(device(0), &[]).await.unwrap(), removed(&[]));
    assert_eq!(service.connections(), ["b"]);
    assert_eq!(provider.isolate(device(0), &[by_key("b")]).await.unwrap(), removed(&["b"]));
}

#[tokio::test]
async fn a_connection_of_another_program_is_removed_as_long_as_it_leads_to_the_same_host() {
    let service = PlayedRedfish::rack(2, 1).await;
    service.set(|knobs| knobs.etags = true);
    let provider = provider(&service);
    service.connect_by_hand("7", 0, 0);
    service.disconnect_by_hand("7");
    service.connect_by_hand("7", 1, 0);
    assert_eq!(provider.isolate(device(0), &[shown("7", 0)]).await.unwrap(), removed(&[]));
    assert_eq!(service.connections(), ["7"], "the same place, and another host");
    assert_eq!(provider.isolate(device(0), &[shown("7", 1)]).await.unwrap(), removed(&["7"]));
    let removals = service.seen().into_iter().filter(|it| it.method == "DELETE");
    assert!(removals.map(|it| it.if_match).all(|it| it.is_some()), "the service compares as well");
}

#[tokio::test]
async fn a_port_is_not_disabled_under_a_connection_that_is_not_expected() {
    let service = PlayedRedfish::rack(2, 1).await;
    let provider = provider(&service);
    service.connect_by_hand("7", 0, 0);
    service.connect_by_hand("8", 1, 0);
    service.set(|knobs| knobs.writes.push_back(PlayedWrite::StatusBefore(405)));
    let kept = text(&provider.isolate(device(0), &[shown("7", 0)]).await.unwrap());
    assert!(kept.starts_with("NotDone") && kept.contains("with 405"), "{kept}");
    assert_eq!((service.connections().len(), service.count("PATCH")), (2, 0));
}
