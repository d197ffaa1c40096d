//! How sockets are made, kept, swept and removed, on real files.

use std::os::unix::net as std_net;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A socket file whose listener is gone, as a killed process leaves it.
fn dead_socket(path: &Path) {
    drop(std_net::UnixListener::bind(path).unwrap());
    assert!(path.exists());
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn answers(path: &Path) -> bool {
    UnixStream::connect(path).await.is_ok()
}

/// Waits for a state; the clock of these tests jumps ahead when there is nothing else to do.
async fn until(state: impl Fn() -> bool) {
    while !state() {
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn a_socket_is_private_to_its_owner_and_so_is_a_new_folder() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("plugins/x/dra@x.sock");
    let socket = ListeningSocket::bind(path.clone()).await.unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o750));
    assert_eq!(names(path.parent().unwrap()), ["dra@x.sock"], "nothing hidden is left behind");
    assert!(answers(&path).await);
    drop(socket);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_for_the_group_stays_one_when_it_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dra.sock");
    let mut socket = ListeningSocket::bind_for(path.clone(), SocketAccess::Group).await.unwrap();
    assert_eq!(mode(&path), 0o660);
    fs::remove_file(&path).unwrap();
    SocketRestorer::default().look(&mut socket).await;
    assert_eq!(mode(&path), 0o660);
}

#[tokio::test]
async fn the_mode_of_a_folder_that_is_there_is_left_alone() {
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
    let _socket = ListeningSocket::bind(dir.path().join("dra@x.sock")).await.unwrap();
    assert_eq!(mode(dir.path()), 0o711);
}

#[tokio::test]
async fn a_dead_socket_is_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("dra@x.sock");
    dead_socket(&path);
    dead_socket(&dir.path().join(hidden_name(&path)));
    let _socket = ListeningSocket::bind(path.clone()).await.unwrap();
    assert!(answers(&path).await);
    assert_eq!(names(dir.path()), ["dra@x.sock"]);
}

#[tokio::test]
async fn a_living_socket_is_not_taken_over() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("dra@x.sock");
    let other = std_net::UnixListener::bind(&path).unwrap();
    let error = ListeningSocket::bind(path.clone()).await.unwrap_err();
    assert!(error.to_string().contains("is served by another process"), "{error}");
    assert!(answers(&path).await);
    drop(other);
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_not_removed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("dra@x.sock");
    fs::write(&path, "precious").unwrap();
    let error = ListeningSocket::bind(path.clone()).await.unwrap_err();
    assert!(matches!(error, SocketError::NotASocket { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_path_may_have_107_bytes_and_no_more() {
    let dir = TempDir::new().unwrap();
    let path_of = |length: usize| {
        let fill = length - dir.path().as_os_str().len() - "/.sock".len();
        dir.path().join(format!("{}.sock", "x".repeat(fill)))
    };
    let longest = ListeningSocket::bind(path_of(107)).await.unwrap();
    assert!(answers(longest.path()).await);
    let error = ListeningSocket::bind(path_of(108)).await.unwrap_err().to_string();
    assert!(error.contains("has 108 bytes, 107 are possible: shorten"), "{error}");
}

#[tokio::test]
async fn dead_sockets_of_ours_are_swept_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    dead_socket(&path("ours-dead"));
    dead_socket(&path("foreign-dead"));
    let _living = std_net::UnixListener::bind(path("ours-living")).unwrap();
    fs::write(path("ours-file"), "").unwrap();
    remove_dead(dir.path(), |name| name.starts_with("ours")).await.unwrap();
    assert_eq!(names(dir.path()), ["foreign-dead", "ours-file", "ours-living"]);
    remove_dead(&path("absent"), |_| true).await.unwrap();
}

/// An accepting socket, its connections, and what stops it.
fn accepting(
    socket: ListeningSocket,
) -> (mpsc::Receiver<io::Result<AcceptedConnection>>, CancellationToken, impl Future<Output = ()>) {
    let (connections_tx, connections_rx) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let accepting = socket.accept(connections_tx, Arc::new(Semaphore::new(8)), stop.clone());
    (connections_rx, stop, accepting)
}

#[tokio::test]
async fn connections_are_passed_on_until_the_stop_and_then_the_file_is_gone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("dra@x.sock");
    let (mut connections_rx, stop, accepting) = accepting(ListeningSocket::bind(path.clone()).await.unwrap());
    let client = async {
        let mut client = UnixStream::connect(&path).await.unwrap();
        let mut server = connections_rx.recv().await.unwrap().unwrap().stream;
        client.write_all(b"x").await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'x');
        stop.cancel();
    };
    tokio::join!(accepting, client);
    assert!(!path.exists());
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_somebody_deleted_comes_back() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("plugins/dra@x.sock");
    let (mut connections_rx, stop, accepting) = accepting(ListeningSocket::bind(path.clone()).await.unwrap());
    let admin = async {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        until(|| path.exists()).await;
        let (client, server) = tokio::join!(UnixStream::connect(&path), connections_rx.recv());
        assert!(client.is_ok() && server.unwrap().is_ok());
        stop.cancel();
    };
    tokio::join!(accepting, admin);
    assert!(!path.exists());
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_somebody_else_took_over_stays_theirs_until_they_die() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("dra@x.sock");
    let (_connections_rx, stop, accepting) = accepting(ListeningSocket::bind(path.clone()).await.unwrap());
    let inode = || fs::metadata(&path).map_or(0, |metadata| metadata.ino());
    let other = async {
        fs::remove_file(&path).unwrap();
        let other = std_net::UnixListener::bind(&path).unwrap();
        let theirs = inode();
        sleep(3 * CHECK).await;
        assert_eq!(inode(), theirs);
        drop(other);
        while !answers(&path).await {
            sleep(CHECK).await;
        }
        stop.cancel();
    };
    tokio::join!(accepting, other);
}

#[tokio::test]
async fn the_file_of_somebody_else_outlives_our_stop() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("dra@x.sock");
    let socket = ListeningSocket::bind(path.clone()).await.unwrap();
    fs::remove_file(&path).unwrap();
    let _other = std_net::UnixListener::bind(&path).unwrap();
    drop(socket);
    assert!(answers(&path).await);
}
