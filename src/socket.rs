//! The daemon's unix sockets: made so that the kubelet never finds one without a listener, kept in place, and removed
//! at the end.
//!
//! ```text
//!   bind `.1c2d3e4f` ──► mode 0600 ──► listen ──► rename into place ──► accept … ──► remove, if still in place
//!                                                       ▲                  │
//!                                                       └── file is gone ◄─┘ checked every few seconds
//! ```
//!
//! The kubelet ignores names that begin with a dot and dials every other socket as soon as it appears.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hostler_api::Chain;
use hostler_files::FileError;
use tokio::{
    net::{UnixListener, UnixSocket, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Longest path of a socket: the kernel keeps 108 bytes, the last one for the closing zero.
const MAX_PATH: usize = 107;
/// Connections that may wait to be accepted; the kubelet opens two.
const BACKLOG: u32 = 64;
/// Period of checks that the file is in place. The kubelet deletes the driver's slices 30 s after it lost the socket;
/// this leaves the socket two thirds of that to come back.
const CHECK: Duration = Duration::from_secs(10);
/// Pause after a failed accept: a lack of descriptors does not pass within microseconds.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Reason why a socket could not be offered.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path is too long for the kernel.
    #[error("socket path {path} has {length} bytes, {MAX_PATH} are possible: shorten its folder or the driver's name")]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Length of the path in bytes.
        length: usize,
    },
    /// A file that is not a socket has the path.
    #[error("{path} exists and is not a socket: remove it")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Another process listens on the socket.
    #[error("socket {path} is served by another process: stop that one first")]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// A step on one file or folder failed.
    #[error(transparent)]
    File(#[from] FileError),
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let failed = FileError::at(step, path);
    move |source| failed(source).into()
}

/// A socket that is listened on, and its file. The file is removed when this is dropped.
#[derive(Debug)]
pub struct ListeningSocket {
    path: PathBuf,
    listener: UnixListener,
    // The file at the path is this socket's as long as it has these two numbers. The kernel does not give the inode's
    // number to another file while the listener lives.
    device: u64,
    inode: u64,
    access: SocketAccess,
}

/// Users who may connect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SocketAccess {
    /// The daemon's user: mode 0600.
    Owner,
    /// The daemon's user and group: mode 0660.
    Group,
}

impl SocketAccess {
    fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o660,
        }
    }
}

/// A connection, and its permit among those that there can be at once.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: UnixStream,
    pub(crate) place: OwnedSemaphorePermit,
}

impl ListeningSocket {
    /// Listens on `path`, mode 0600. Makes the folder, mode 0750, if it is absent; replaces a socket without a
    /// listener.
    ///
    /// # Errors
    /// When another process listens there, when the path is too long or not a socket's, or when the kernel refuses a
    /// step.
    pub async fn bind(path: PathBuf) -> Result<Self, SocketError> {
        Self::bind_for(path, SocketAccess::Owner).await
    }

    /// Listens as [`bind`](Self::bind) does, with a mode for `access`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_for(path: PathBuf, access: SocketAccess) -> Result<Self, SocketError> {
        let length = path.as_os_str().len();
        if length > MAX_PATH {
            return Err(SocketError::TooLong { path, length });
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        create_folder(folder)?;
        remove_if_dead(&path).await?;
        let hidden = folder.join(hidden_name(&path));
        // The file is left from a crash between two lines of this function; only one daemon for this path runs at a
        // time.
        remove(&hidden)?;
        let listener = listen(&hidden, access).inspect_err(|_| {
            // The error that is being reported matters more.
            let _ = fs::remove_file(&hidden);
        })?;
        let metadata = fs::symlink_metadata(&hidden).map_err(failed("inspect", &hidden))?;
        fs::rename(&hidden, &path).map_err(failed("rename", &hidden))?;
        Ok(Self { path, listener, device: metadata.dev(), inode: metadata.ino(), access })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Passes connections on until `stop` fires, as many at once as `places` has permits, and keeps the file in place
    /// meanwhile. Then the file is removed. A client without a permit waits in the kernel's queue, where it costs the
    /// daemon nothing.
    pub(crate) async fn accept(
        mut self,
        connections_tx: mpsc::Sender<io::Result<AcceptedConnection>>,
        places: Arc<Semaphore>,
        stop: CancellationToken,
    ) {
        let mut told = false;
        let mut check = interval(CHECK);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut keep = SocketRestorer::default();
        loop {
            tokio::select! {
                // Cancel safe: a connection that was not taken stays in the backlog, and a place that was is given
                // back.
                accepted = self.accept_one(&places) => match accepted {
                    Ok(connection) => {
                        told = false;
                        if connections_tx.send(Ok(connection)).await.is_err() {
                            // The server has ended, and says why.
                            return;
                        }
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut told, true) {
                            warn!(path = %self.path.display(), error = %Chain(&error), "failed to accept a connection");
                        }
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                // Cancel safe: a tick that was not taken is still due.
                _ = check.tick() => keep.look(&mut self).await,
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => return,
            }
        }
    }

    async fn accept_one(&self, places: &Arc<Semaphore>) -> io::Result<AcceptedConnection> {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = self.listener.accept().await?;
        Ok(AcceptedConnection { stream, place })
    }

    /// True if the file at the path still leads to this listener.
    fn in_place(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| metadata.dev() == self.device && metadata.ino() == self.inode)
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        if self.in_place() {
            // The next start finds that a file that stays is dead, and removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Restores a socket whose file was removed, and logs it once.
#[derive(Debug, Default)]
struct SocketRestorer {
    /// The last failure, so that it is not logged every few seconds.
    told: Option<String>,
}

impl SocketRestorer {
    async fn look(&mut self, socket: &mut ListeningSocket) {
        if socket.in_place() {
            self.told = None;
            return;
        }
        match ListeningSocket::bind_for(socket.path.clone(), socket.access).await {
            Ok(new) => {
                *socket = new;
                self.told = None;
                info!(path = %socket.path.display(), "socket was deleted by somebody, made it anew");
            }
            Err(error) => {
                let error = Chain(&error).to_string();
                if self.told.as_ref() != Some(&error) {
                    warn!(path = %socket.path.display(), error, "socket was deleted by somebody and cannot be made anew");
                    self.told = Some(error);
                }
            }
        }
    }
}

/// Removes the sockets in `folder` whose names `ours` knows and that have no listener: a crashed instance leaves such
/// sockets, and the kubelet would dial them for ever.
///
/// # Errors
/// When the folder cannot be read or a dead socket cannot be removed. An absent folder holds nothing.
pub(crate) async fn remove_dead(folder: &Path, ours: impl Fn(&str) -> bool) -> Result<(), SocketError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("list", folder))?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
    for name in names.map_err(failed("list", folder))? {
        if !name.to_str().is_some_and(&ours) {
            continue;
        }
        match remove_if_dead(&folder.join(&name)).await {
            // Another instance of the driver is at work; only a socket that this daemon needs itself has to be free.
            Err(SocketError::InUse { .. } | SocketError::NotASocket { .. }) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Name of a socket until it listens. Shorter than any final name (`dra@x.sock` at least), so that the final path alone
/// meets the kernel's limit; the same at each start, so that leftovers are found.
fn hidden_name(path: &Path) -> String {
    format!(".{:08x}", crc32fast::hash(path.as_os_str().as_encoded_bytes()))
}

/// Binds, sets the mode and listens, in this order: no client can connect before the mode is right.
fn listen(path: &Path, access: SocketAccess) -> Result<UnixListener, SocketError> {
    let socket = UnixSocket::new_stream().map_err(failed("open a socket for", path))?;
    socket.bind(path).map_err(failed("bind", path))?;
    fs::set_permissions(path, Permissions::from_mode(access.mode())).map_err(failed("set the mode of", path))?;
    socket.listen(BACKLOG).map_err(failed("listen on", path))
}

fn create_folder(folder: &Path) -> Result<(), SocketError> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(failed("create", folder))?;
    // The umask may have taken bits from the mode.
    fs::set_permissions(folder, Permissions::from_mode(0o750)).map_err(failed("set the mode of", folder))
}

async fn remove_if_dead(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => {
            if !metadata.map_err(failed("inspect", path))?.file_type().is_socket() {
                return Err(SocketError::NotASocket { path: path.to_owned() });
            }
        }
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => remove(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog belongs to a living listener.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(failed("connect to", path)(error)),
        _ => Err(SocketError::InUse { path: path.to_owned() }),
    }
}

fn remove(path: &Path) -> Result<(), SocketError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
