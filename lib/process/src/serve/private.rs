//! A unix socket that only the process's own user can connect to: for probes, whose places no other user can take.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream as BlockingStream,
    },
    path::Path,
    sync::Arc,
};

use tokio::{
    net::{UnixListener, UnixSocket},
    sync::Semaphore,
};

use super::ConnectionServer;
use crate::Tasks;

/// Probes at once: those of liveness and readiness, and the operator's.
const CONNECTIONS: usize = 8;
/// Connections that may wait.
const BACKLOG: u32 = 16;

/// Listens on `path`, mode 0600; a socket without a listener is replaced.
///
/// # Errors
/// When a process listens there, when something else than a socket is there, or when the kernel refuses a step.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) if BlockingStream::connect(path).is_ok() => return Err(io::ErrorKind::AddrInUse.into()),
        Ok(_) => fs::remove_file(path)?,
        Err(_) => {}
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    // No connection comes before it listens.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)
}

/// Serves connections as they come until the program stops.
pub async fn accept_private(listener: UnixListener, server: ConnectionServer, tasks: &Tasks) {
    let (places, stop) = (Arc::new(Semaphore::new(CONNECTIONS)), tasks.stop_token());
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await.ok()?;
            Some((listener.accept().await, place))
        };
        tokio::select! {
            // Cancel safe: a connection that was not taken stays in the backlog, and a place that was is given back.
            accepted = accepted => match accepted {
                Some((Ok((connection, _)), place)) => server.serve(connection, place),
                Some((Err(_), _)) => tokio::time::sleep(super::tcp::ACCEPT_PAUSE).await,
                None => return,
            },
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_nobody_listens_on_is_replaced_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("probe.sock");
        let first = bind_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind_private(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        drop(bind_private(&path).unwrap());
        let file = dir.path().join("file");
        fs::write(&file, "kept").unwrap();
        assert_eq!(bind_private(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }
}
