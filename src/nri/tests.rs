//! The task against a socket: it connects, is lost, and comes back.

use std::os::unix::net::UnixListener as BlockingListener;

use hostler_linux::testkit::MachineTree;
use hostler_proto::nri::{
    ConfigureRequest, PLUGIN_SERVICE, SynchronizeRequest,
    mux::{self, Demultiplexer},
    ttrpc::{Message, MessageKind},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

use super::*;

/// A plugin, and the socket on which somebody may listen for it.
struct Fixture {
    folder: TempDir,
    _machine: MachineTree,
    _inventory_tx: watch::Sender<Arc<Inventory>>,
    _table_tx: watch::Sender<Arc<ClaimTable>>,
    side: NriSide,
    tasks: Tasks,
}

impl Fixture {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = MachineTree::new();
        machine.files("sys/devices/system/cpu", &[("online", "0-7")]);
        let (inventory_tx, inventory_rx) = watch::channel(Arc::default());
        let (table_tx, table_rx) = watch::channel(Arc::default());
        let (tasks, _ended_rx) = Tasks::new();
        let parts = NriParts {
            config: NriConfig { enabled: NriMode::On, ..NriConfig::default() },
            socket: folder.path().join("nri.sock"),
            kind: "hostler.dev/claim".to_owned(),
            reserved: IdSet::new(),
            root: machine.root(),
            table_rx,
            inventory: InventoryReader::new(inventory_rx),
            metrics: Metrics::default(),
        };
        let side = start(parts, &tasks);
        Self { folder, _machine: machine, _inventory_tx: inventory_tx, _table_tx: table_tx, side, tasks }
    }

    fn listen(&self) -> UnixListener {
        let path = self.folder.path().join("nri.sock");
        let _ = std::fs::remove_file(&path);
        let listener = BlockingListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        UnixListener::from_std(listener).unwrap()
    }

    async fn wait_for(&self, wanted: impl Fn(&NriLink) -> bool) -> NriStatus {
        self.side.status_rx.clone().wait_for(|status| wanted(&status.link)).await.unwrap().clone()
    }
}

/// The next message of the plugin.
async fn read(stream: &mut UnixStream, demultiplexer: &mut Demultiplexer) -> (Connection, Message) {
    loop {
        if let Some(next) = demultiplexer.next_message().unwrap() {
            return next;
        }
        let mut piece = [0; 4096];
        let bytes = stream.read(&mut piece).await.unwrap();
        assert_ne!(bytes, 0, "the plugin hung up");
        demultiplexer.push(&piece[..bytes]);
    }
}

/// Welcomes a plugin, until it is synchronized.
async fn welcome(listener: &UnixListener) -> UnixStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut demultiplexer = Demultiplexer::default();
    let (connection, registration) = read(&mut stream, &mut demultiplexer).await;
    assert_eq!((connection, registration.kind), (Connection::Runtime, MessageKind::Request));
    let configure = ConfigureRequest { runtime_name: "containerd".to_owned(), ..ConfigureRequest::default() };
    // The real ones do not wait for anything in between either.
    for (connection, message) in [
        (Connection::Plugin, Message::request(1, PLUGIN_SERVICE, "Configure", &configure)),
        (Connection::Runtime, Message::response(registration.stream, &hostler_proto::nri::Empty {})),
        (Connection::Plugin, Message::request(3, PLUGIN_SERVICE, "Synchronize", &SynchronizeRequest::default())),
    ] {
        stream.write_all(&mux::encode(connection, &message).unwrap()).await.unwrap();
    }
    for expected in [1, 3] {
        let (_, answer) = read(&mut stream, &mut demultiplexer).await;
        assert_eq!((answer.stream, answer.kind), (expected, MessageKind::Response));
    }
    stream
}

fn connected(link: &NriLink) -> bool {
    matches!(link, NriLink::Connected { .. })
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_runtime_and_comes_back_as_often_as_that_does() {
    let fixture = Fixture::start();
    fixture.wait_for(|link| *link == NriLink::Absent).await;
    assert_eq!(*fixture.side.seen_rx.borrow(), SeenContainers::Disconnected);
    for _ in 0..8 {
        let listener = fixture.listen();
        let stream = welcome(&listener).await;
        fixture.wait_for(connected).await;
        assert!(matches!(*fixture.side.seen_rx.borrow(), SeenContainers::Connected(_)));
        drop((stream, listener));
        fixture.wait_for(|link| matches!(link, NriLink::Lost { .. })).await;
        assert_eq!(*fixture.side.seen_rx.borrow(), SeenContainers::Disconnected);
    }
    fixture.tasks.stop_token().cancel();
    fixture.tasks.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_says_what_makes_no_sense_is_left_and_tried_again() {
    let fixture = Fixture::start();
    let listener = fixture.listen();
    for garbage in [&[0xff; 64][..], &[0, 0, 0, 1, 0, 0, 0, 10, 0xff, 0, 0, 0, 0, 0, 0, 1, 1, 0], &[]] {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(garbage).await.unwrap();
        // Ends, with or without what the plugin has said first.
        if garbage.is_empty() {
            drop(stream);
        } else {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    }
    let _stream = welcome(&listener).await;
    fixture.wait_for(connected).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_required_and_not_there_is_missed() {
    let fixture = Fixture::start();
    fixture.wait_for(|link| *link == NriLink::Absent).await;
    let missing = fixture.side.missing().unwrap();
    assert!(missing.starts_with("no container runtime serves NRI on /"), "{missing}");
    let optional = NriSide { is_required: false, ..fixture.side.clone() };
    assert_eq!(optional.missing(), None);
}

#[test]
fn pauses_double_up_to_the_longest_and_are_never_the_same() {
    for (failures, most) in [(0, 200), (1, 400), (5, 6400), (6, 10_000), (60, 10_000)] {
        let pauses = [(); 20].map(|()| pause(failures).as_millis());
        assert!(pauses.iter().all(|pause| (most / 2..=most).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
