//! What is reported of which device, and when.

use hostler_api::BackendName;
use hostler_backend::CardSerials;

use super::*;
use crate::inventory::{Pool, UnknownPool};

fn device(name: &str, health: Health) -> Device {
    Device { health, ..Device::new(DeviceName::new(name).unwrap()) }
}

fn sick(reason: &str) -> Health {
    Health::Unhealthy { reason: reason.to_owned() }
}

fn pool(backend: &str, devices: Vec<Device>, stale: Option<&str>) -> (BackendName, Pool) {
    let pool = Pool { name: format!("node-a/{backend}"), devices, stale: stale.map(str::to_owned), ..Pool::default() };
    (BackendName::new(backend).unwrap(), pool)
}

fn inventory(pools: impl IntoIterator<Item = (BackendName, Pool)>) -> Inventory {
    Inventory { pools: pools.into_iter().map(|(name, pool)| (name, pool.into())).collect(), ..Inventory::default() }
}

/// Pool, device, health and message of each state.
fn lines(states: &[(DeviceId, ReportedHealth)]) -> Vec<(&str, &str, &str, &str)> {
    states.iter().map(|(id, state)| (&*id.pool, &*id.device, state.health.as_str_name(), &*state.message)).collect()
}

#[test]
fn every_device_is_reported_with_its_health() {
    let devices = vec![
        device("a", Health::Healthy),
        device("b", sick("link down")),
        device("c", Health::Unknown { reason: "busy".into() }),
    ];
    let states = states(&inventory([pool("fpga", devices, None)]), [].into_iter());
    assert_eq!(
        lines(&states),
        [
            ("node-a/fpga", "a", "HEALTHY", ""),
            ("node-a/fpga", "b", "UNHEALTHY", "link down"),
            ("node-a/fpga", "c", "UNKNOWN", "busy"),
        ]
    );
}

#[test]
fn what_a_failing_backend_said_before_is_not_called_healthy() {
    let devices = vec![device("a", Health::Healthy), device("b", sick("link down"))];
    let states = states(&inventory([pool("fpga", devices, Some("failed to enumerate: EIO"))]), [].into_iter());
    assert_eq!(
        lines(&states),
        [("node-a/fpga", "a", "UNKNOWN", "failed to enumerate: EIO"), ("node-a/fpga", "b", "UNHEALTHY", "link down")]
    );
}

#[test]
fn a_held_device_of_a_backend_that_has_not_answered_is_not_called_gone() {
    let unknown = UnknownPool { name: "node-a/fpga".to_owned(), reason: "it hangs".to_owned() };
    let unknown = [(BackendName::new("fpga").unwrap(), unknown)].into();
    let (name, holder) = (DeviceName::new("a").unwrap(), ClaimUid::new("u1").unwrap());
    let held = [("node-a/fpga", &name, &holder)];
    let states = states(&Inventory { unknown, ..Inventory::default() }, held.into_iter());
    assert_eq!(lines(&states), [("node-a/fpga", "a", "UNKNOWN", "it hangs")]);
}

#[test]
fn a_device_that_is_gone_is_unhealthy_for_as_long_as_claims_hold_it() {
    let names = ["here", "gone"].map(|name| DeviceName::new(name).unwrap());
    let claims = ["c1", "c2"].map(|uid| ClaimUid::new(uid).unwrap());
    let held = [
        ("node-a/fpga", &names[0], &claims[0]),
        ("node-a/fpga", &names[1], &claims[1]),
        ("node-a/fpga", &names[1], &claims[0]),
        ("node-a/cxl", &names[0], &claims[0]),
    ];
    let inventory = inventory([pool("fpga", vec![device("here", Health::Healthy)], None)]);
    assert_eq!(
        lines(&states(&inventory, held.into_iter())),
        [
            ("node-a/fpga", "here", "HEALTHY", ""),
            ("node-a/cxl", "here", "UNHEALTHY", "removed from this host while held by claim c1"),
            ("node-a/fpga", "gone", "UNHEALTHY", "removed from this host while held by claim c1, c2"),
        ]
    );
    assert_eq!(states(&inventory, [].into_iter()).len(), 1);
}

#[test]
fn long_messages_are_cut_between_characters() {
    assert_eq!(cut("short"), "short");
    assert_eq!(cut(&"x".repeat(1024)), "x".repeat(1024));
    assert_eq!(cut(&"x".repeat(1025)), format!("{}...", "x".repeat(1021)));
    // Two bytes each: 1021 would cut one in two.
    assert_eq!(cut(&"é".repeat(600)), format!("{}...", "é".repeat(510)));
}

#[test]
fn reports_are_split_below_what_the_kubelet_accepts() {
    let name = "d".repeat(63);
    let devices = (0..2500).map(|_| device(&name, sick(&"x".repeat(2000)))).collect();
    let (backend, mut longest) = pool("fpga", devices, None);
    longest.name = "p".repeat(253);
    let states = states(&inventory([(backend, longest)]), [].into_iter());
    let parts: Vec<_> = parts(&states).collect();
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [1000, 1000, 500]);
    let (id, state) = &states[0];
    let health = message(id, state, i64::MAX);
    // Names, message, and 32 bytes for tags, lengths and numbers.
    assert!(1000 * (253 + 63 + health.message.len() + 32) < 4 << 20);
}

#[test]
fn nothing_to_report_is_said_too() {
    assert_eq!(parts(&[]).map(<[_]>::len).collect::<Vec<_>>(), [0]);
}

/// A stream under test: what it reads, and what it sends.
struct HealthStream {
    inventory_tx: watch::Sender<Arc<Inventory>>,
    table_tx: watch::Sender<Arc<ClaimTable>>,
    reports_rx: mpsc::Receiver<Result<v1::NodeWatchResourcesResponse, Status>>,
}

impl HealthStream {
    fn start(tasks: &Tasks) -> Self {
        let (inventory_tx, inventory_rx) = watch::channel(Arc::new(fpga(Health::Healthy)));
        let (table_tx, table_rx) = watch::channel(Arc::default());
        let (reports_tx, reports_rx) = mpsc::channel(1);
        tasks.job(async move { HealthWatch { inventory_rx, table_rx }.report_to(&reports_tx).await.is_ok() });
        Self { inventory_tx, table_tx, reports_rx }
    }

    /// The health in the next report, and when it came.
    async fn next(&mut self) -> (Vec<i32>, Instant) {
        let report = self.reports_rx.recv().await.unwrap().unwrap();
        (report.devices.iter().map(|device| device.health).collect(), Instant::now())
    }
}

fn fpga(health: Health) -> Inventory {
    inventory([pool("fpga", vec![device("a", health)], None)])
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_report_is_repeated_before_the_kubelet_stops_to_believe_it() {
    let (tasks, _ended_rx) = Tasks::new();
    let start = Instant::now();
    let mut streaming = HealthStream::start(&tasks);
    for round in 0..3 {
        assert_eq!(streaming.next().await, (vec![1], start + round * Duration::from_secs(10)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_told_at_once_and_other_news_are_not() {
    let (tasks, _ended_rx) = Tasks::new();
    let mut streaming = HealthStream::start(&tasks);
    let start = streaming.next().await.1;
    streaming.inventory_tx.send_replace(Arc::new(fpga(sick("link down"))));
    assert_eq!(streaming.next().await, (vec![2], start));
    // A claim that came or went, a scan that found the same.
    streaming.table_tx.send_replace(Arc::default());
    streaming.inventory_tx.send_replace(Arc::new(fpga(sick("link down"))));
    assert_eq!(streaming.next().await, (vec![2], start + Duration::from_secs(10)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_latest_state_and_not_every_state() {
    let (tasks, _ended_rx) = Tasks::new();
    let mut streaming = HealthStream::start(&tasks);
    for flap in 0..100 {
        let health = if flap % 2 == 0 { sick("flapping") } else { Health::Healthy };
        streaming.inventory_tx.send_replace(Arc::new(fpga(health)));
        tokio::task::yield_now().await;
    }
    streaming.inventory_tx.send_replace(Arc::new(fpga(sick("dead"))));
    streaming.next().await;
    let report = streaming.reports_rx.recv().await.unwrap().unwrap();
    assert_eq!(report.devices[0].message, "dead");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_reader() {
    let (tasks, _ended_rx) = Tasks::new();
    let mut streaming = HealthStream::start(&tasks);
    streaming.next().await;
    drop(streaming.reports_rx);
    tasks.drain().await;
}

#[test]
fn a_device_behind_a_switch_is_reported_as_its_claim_names_it_and_by_its_own_name() {
    let card = Device { cards: CardSerials::Whole(0x1001), ..device("memory-1001", sick("hot")) };
    let (behind, gone) =
        (DeviceName::new("0000000000001001-0001").unwrap(), DeviceName::new("0000000000002002-0001").unwrap());
    let (one, other) = (ClaimUid::new("u1").unwrap(), ClaimUid::new("u2").unwrap());
    let pool_name = "fabric/row1/cxl";
    let held = [(pool_name, &behind, &one), (pool_name, &behind, &other), (pool_name, &gone, &one)];
    let states = states(&inventory([pool("cxl", vec![card], None)]), held.into_iter());
    assert_eq!(
        lines(&states),
        [
            ("node-a/cxl", "memory-1001", "UNHEALTHY", "hot"),
            (pool_name, "0000000000001001-0001", "UNHEALTHY", "hot"),
            (pool_name, "0000000000002002-0001", "UNHEALTHY", "removed from this host while held by claim u1"),
        ]
    );
}
