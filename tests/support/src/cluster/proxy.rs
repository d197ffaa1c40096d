//! The wire between a daemon and the API server, which a test can cut: it works with any server.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// The state of connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireState {
    /// Connections reach the server.
    Whole,
    /// Connections are closed, old ones and new ones.
    Cut,
    /// Connections are accepted, and no answer comes back.
    Silent,
}

/// A relay on a port of the loopback interface.
pub(crate) struct TcpProxy {
    address: SocketAddr,
    wire_tx: watch::Sender<WireState>,
    task: JoinHandle<()>,
}

impl TcpProxy {
    /// A relay to a server.
    pub(crate) fn start(server: String, handle: &Handle) -> Self {
        let listener = handle.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (wire_tx, wire_rx) = watch::channel(WireState::Whole);
        let task = handle.spawn(accept(listener, server, wire_rx));
        Self { address, wire_tx, task }
    }

    /// Returns the address of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the state from now on, for old connections as well.
    pub(crate) fn set(&self, wire: WireState) {
        self.wire_tx.send_replace(wire);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.wire_tx.send_replace(WireState::Cut);
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: String, wire_rx: watch::Receiver<WireState>) {
    // Dropped with this task, and all connections with it.
    let mut relays = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        relays.spawn(relay(client, server.clone(), wire_rx.clone()));
        while relays.try_join_next().is_some() {}
    }
}

/// Relays bytes until one side ends the connection, or the state changes.
async fn relay(mut client: TcpStream, server: String, mut wire_rx: watch::Receiver<WireState>) {
    let wire = *wire_rx.borrow_and_update();
    let carry = async {
        match wire {
            WireState::Whole => {
                if let Ok(mut server) = TcpStream::connect(server).await {
                    // If one side broke the connection off, the other side learns it.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            }
            WireState::Cut => {}
            WireState::Silent => {
                let mut ignored = [0; 4096];
                while matches!(client.read(&mut ignored).await, Ok(1..)) {}
            }
        }
    };
    tokio::select! {
        () = carry => {}
        _ = wire_rx.changed() => {}
    }
}
