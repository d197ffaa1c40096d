//! What the board says of managers that come, go and come again.

use hostler_fabric::fake::FabricFault;
use hostler_process::Tasks;

use super::*;
use crate::observed::{KindStatus, ObservedKind};

const UUID: &str = "918eda4d-2b69-432f-b0d3-dc2a8d80a351";

fn config() -> FabricManagerConfig {
    let fake = FakeManagerConfig { hosts: vec![UUID.to_owned()], devices: 2, gib: 32, ..FakeManagerConfig::default() };
    FabricManagerConfig { name: "m".to_owned(), fake: Some(fake), ..FabricManagerConfig::default() }
}

fn reader(config: FabricManagerConfig, readings_tx: watch::Sender<Arc<FabricReadings>>) -> ManagerReader {
    let (pause, turns) = (Duration::from_secs(30), Arc::new(Semaphore::new(MOST_READ_AT_ONCE)));
    ManagerReader { config, pause, turns, readings_tx, figures_tx: watch::Sender::default() }
}

/// A view in which every kind was listed.
fn complete() -> Arc<ClusterView> {
    let synced = KindStatus { is_synced: true, ..KindStatus::default() };
    let kinds = ObservedKind::ALL.into_iter().map(|kind| (kind, synced.clone())).collect();
    Arc::new(ClusterView { kinds, ..ClusterView::default() })
}

fn leading() -> Leadership {
    Leadership { until: Some(std::time::Instant::now() + Duration::from_secs(3600)), ..Leadership::default() }
}

#[test]
fn a_fabric_in_memory_has_the_hosts_and_devices_of_the_configuration() {
    let Provider::Fake(fabric) = provider_of(&config()).unwrap() else { panic!("a fabric in memory") };
    fabric.change(|parts| {
        assert_eq!(parts.hosts[0].uuid.as_ref().unwrap().as_str(), UUID);
        assert_eq!((parts.devices.len(), parts.devices[1].size_bytes), (2, Some(32 << 30)));
        assert_eq!(parts.memory_domains[0].chunks[0].size_bytes, Some(32 << 30));
    });
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_goes_leaves_its_last_inventory_and_says_since_when() {
    let fabric = FakeFabric::rack(1, 2);
    let (readings_tx, mut readings_rx) = watch::channel(Arc::default());
    let reader = reader(config(), readings_tx);
    let mut provider = Some(Arc::new(Provider::Fake(fabric.clone())));
    let (tasks, _ended_rx) = Tasks::new();
    tasks.job(async move { reader.read(&mut provider).await });
    let mut until = async |what: &str, is_so: &dyn Fn(&FabricReadings) -> bool| {
        let found = tokio::time::timeout(Duration::from_secs(300), readings_rx.wait_for(|it| is_so(it))).await;
        found.expect(what).unwrap().clone()
    };
    let read = until("it is read", &|it| it.inventory("m").is_some()).await;
    assert_eq!((read.inventory("m").unwrap().identities().count(), read.error("m")), (2, None));
    fabric.inject(FabricFault::Unavailable(2));
    let gone = until("it is gone", &|it| it.error("m").is_some()).await;
    let error = gone.error("m").unwrap();
    assert!(error.contains("is unavailable") && error.contains("(since 2"), "{error}");
    assert_eq!(gone.inventory("m").unwrap().identities().count(), 2, "the last inventory stays");
    // It says the same as before: that it says something again is the news.
    until("it is back", &|it| it.error("m").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_reads_and_a_new_term_begins_with_nothing() {
    let (tasks, _ended_rx) = Tasks::new();
    let (leadership_tx, leadership_rx) = watch::channel(Leadership::default());
    let (_view_tx, view_rx) = watch::channel(complete());
    let server =
        hostler_testing::apiserver::ApiServer::of(hostler_testing::apiserver::ApiServerRelease::default()).await;
    let client = hostler_cluster::ApiClient::new(Some(&*server.kubeconfig("controller"))).unwrap();
    let parts = ControllerParts { client, view_rx, leadership_rx, tasks };
    let config = FabricConfig { managers: vec![config()], ..FabricConfig::default() };
    let mut readings_rx = start(&config, &watch::Sender::default(), &parts);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(readings_rx.borrow().managers.is_empty(), "another process leads");
    for _ in 0..2 {
        leadership_tx.send_replace(leading());
        readings_rx.wait_for(|it| it.inventory("m").is_some()).await.unwrap();
        leadership_tx.send_replace(Leadership::default());
        readings_rx.wait_for(|it| it.managers.is_empty()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_whose_certificate_is_missing_is_named_until_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    let address = "https://127.0.0.1:1".to_owned();
    let redfish =
        hostler_fabric::redfish::RedfishSettings { address, authority: Some(authority), ..Default::default() };
    let config = FabricManagerConfig { redfish: Some(redfish), fake: None, ..config() };
    let (readings_tx, mut readings_rx) = watch::channel(Arc::<FabricReadings>::default());
    let reader = reader(config, readings_tx);
    let (tasks, _ended_rx) = Tasks::new();
    tasks.job(async move { reader.read(&mut None).await });
    let named = readings_rx.wait_for(|it| it.error("m").is_some()).await.unwrap().clone();
    assert!(named.unusable["m"].contains("ca.pem"), "{}", named.unusable["m"]);
    assert!(named.managers.is_empty());
}
