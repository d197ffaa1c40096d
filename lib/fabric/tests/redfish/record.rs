//! Agents as managers of record: the service shows what it has remembered, and the agent what is true.

use hostler_fabric::{
    FabricOutcome, FabricProvider,
    redfish::{RedfishProvider, RedfishSettings},
};
use hostler_testing::redfish::{FABRIC, PlayedRedfish, PlayedWrite};
use serde_json::json;

use crate::support::{attach, device, key, settings, text};

const SOURCE: &str = "/redfish/v1/AggregationService/AggregationSources/1";

/// A service whose fabric an agent manages.
async fn aggregated() -> (PlayedRedfish, PlayedRedfish) {
    let (service, agent) = (PlayedRedfish::rack(2, 2).await, PlayedRedfish::rack(2, 2).await);
    let host = agent.url();
    service.change(|documents| {
        documents.insert(SOURCE.to_owned(), json!({"HostName": host}));
        let extension = json!({"Maker": {"ManagingAgent": {"@odata.id": SOURCE}}});
        documents.get_mut(FABRIC).unwrap()["Oem"] = extension;
    });
    (service, agent)
}

#[tokio::test]
async fn connections_are_those_of_an_agent_that_the_settings_name() {
    let (service, agent) = aggregated().await;
    let settings = RedfishSettings { agents: vec![agent.url()], ..settings(&service) };
    let provider = RedfishProvider::new(&settings).unwrap();
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    assert_eq!((service.connections().len(), agent.connections().len()), (0, 1));

    let zombie = json!({"Id": "z", "Links": {
        "InitiatorEndpoints": [{"@odata.id": format!("{FABRIC}/Endpoints/I0")}],
        "TargetEndpoints": [{"@odata.id": format!("{FABRIC}/Endpoints/T1")}]}});
    service.change(|documents| {
        let zombies = format!("{FABRIC}/Connections");
        documents.insert(format!("{zombies}/z"), zombie);
        documents.insert(zombies.clone(), json!({"Members": [{"@odata.id": format!("{zombies}/z")}]}));
    });
    let inventory = provider.inventory().await.unwrap();
    assert_eq!((inventory.connections.len(), inventory.problems.len()), (1, 0), "the service's memory does not count");
    assert!(attach(&provider, "b", 1, 1).await.is_done());
    agent.set(|knobs| knobs.writes.push_back(PlayedWrite::EndAfter));
    assert!(provider.detach(&key("a")).await.unwrap().is_done());
    assert_eq!(agent.connections(), ["b"]);
}

#[tokio::test]
async fn an_agent_that_the_settings_do_not_name_is_never_asked() {
    let (service, agent) = aggregated().await;
    let other = PlayedRedfish::rack(2, 2).await;
    let listed = RedfishSettings { agents: vec![other.url()], ..settings(&service) };
    let provider = RedfishProvider::new(&listed).unwrap();
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    assert_eq!((service.connections().len(), agent.seen().len()), (1, 0));
    assert_eq!(other.connections().len(), 0, "an agent of another fabric");
    let inventory = provider.inventory().await.unwrap();
    let problems: Vec<String> = inventory.problems.iter().map(ToString::to_string).collect();
    assert!(problems[0].contains("Oem.ManagingAgent: names http://127.0.0.1:"), "{problems:?}");
    for outcome in [provider.state(&key("b")).await.unwrap().map(drop), provider.detach(&key("b")).await.unwrap()] {
        let outcome = text(&outcome);
        assert!(
            outcome.starts_with("Unknown") && outcome.contains("; but /redfish/v1/Fabrics/Rack names"),
            "{outcome}"
        );
    }
    let isolated = text(&provider.isolate(device(1), &[]).await.unwrap());
    assert!(isolated.starts_with("Unknown") && isolated.contains("no connection is shown; but"), "{isolated}");
    let trusting = RedfishSettings { trust_service: true, ..settings(&service) };
    let trusting = RedfishProvider::new(&trusting).unwrap();
    assert!(matches!(trusting.state(&key("b")).await.unwrap(), FabricOutcome::NotDone { .. }));
    assert!(trusting.detach(&key("b")).await.unwrap().is_done());
    assert_eq!(trusting.inventory().await.unwrap().problems, []);

    service.set(|knobs| (knobs.zombies, knobs.writes) = (true, [PlayedWrite::EndAfter].into()));
    let outcome = text(&provider.detach(&key("a")).await.unwrap());
    assert!(outcome.starts_with("Unknown") && outcome.contains("add it to agents"), "{outcome}");
}

#[tokio::test]
async fn an_agent_that_does_not_answer_leaves_everything_unknown() {
    let (service, agent) = aggregated().await;
    let settings = RedfishSettings { agents: vec![agent.url()], ..settings(&service) };
    let provider = RedfishProvider::new(&settings).unwrap();
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    agent.set(|knobs| knobs.read_failures.extend([500; 400]));
    assert!(provider.inventory().await.is_err());
    assert!(provider.detach(&key("a")).await.is_err());
    agent.set(|knobs| knobs.read_failures.clear());
    agent.change(|documents| drop(documents.remove(FABRIC)));
    let error = provider.inventory().await.unwrap_err().to_string();
    assert!(error.contains("with 404; without it the connections are unknown"), "{error}");
    agent.change(|documents| drop(documents.insert(FABRIC.to_owned(), json!({}))));
    assert!(matches!(provider.state(&key("a")).await.unwrap(), FabricOutcome::Done(_)));
}
