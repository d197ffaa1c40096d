//! Finds the sockets of drivers and registers them, again and again where that fails.
//!
//! ```text
//!   plugins_registry ──created, removed──► desired ──┐
//!                                                    ├── every second ──► deregister, register ──► plugins
//!                                         actual ◄───┘        (one pause per socket, doubling)
//! ```

use std::{
    collections::BTreeMap,
    fs, mem,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use hostler_proto::registration::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient};
use tokio::time::{interval, timeout};
use tonic::transport::Channel;

use super::{KubeletRun, times::Backoff, view::RegistrationAttempt};
use crate::kubelet::{KubeletComplaint, KubeletResult, authority, complain, dial, failed, request, validate};

/// Pause between two reads of the folder: as good as a file watcher.
const LOOK: Duration = Duration::from_millis(5);

/// Identity of a socket among those of the same path: inode and time of birth.
type SocketIdentity = (u64, Option<SystemTime>);

#[derive(Default)]
struct StateOfWorld {
    desired: BTreeMap<PathBuf, SocketIdentity>,
    actual: BTreeMap<PathBuf, SocketIdentity>,
    pauses: BTreeMap<PathBuf, RetryPause>,
}

struct RetryPause {
    running: bool,
    until: Instant,
    backoff: Backoff,
}

/// Does all of it until it is dropped.
pub(crate) async fn run(shared: Arc<KubeletRun>) {
    let world = Arc::new(Mutex::new(StateOfWorld::default()));
    tokio::join!(watch(Arc::clone(&shared), Arc::clone(&world)), reconcile(shared, world));
}

async fn watch(shared: Arc<KubeletRun>, world: Arc<Mutex<StateOfWorld>>) {
    let folder = shared.settings.root.join("plugins_registry");
    let mut look = interval(LOOK);
    loop {
        look.tick().await;
        world.lock().expect("nothing panics under it").desired = sockets(&folder);
    }
}

/// The sockets that a driver may have put there. The kubelet looks into folders below, too.
fn sockets(folder: &Path) -> BTreeMap<PathBuf, SocketIdentity> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // Gone in the meantime is gone.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            found.extend(sockets(&entry.path()));
        } else if metadata.file_type().is_socket() {
            found.insert(entry.path(), (metadata.ino(), metadata.created().ok()));
        }
    }
    found
}

async fn reconcile(shared: Arc<KubeletRun>, world: Arc<Mutex<StateOfWorld>>) {
    let mut period = interval(shared.settings.times.registration_period);
    loop {
        period.tick().await;
        let (gone, new) = work(&mut world.lock().expect("nothing panics under it"), &shared);
        gone.iter().for_each(|socket| shared.plugins.remove(&shared, socket));
        for (socket, identity) in new {
            let (shared, world) = (Arc::clone(&shared), Arc::clone(&world));
            let job = register_once(Arc::clone(&shared), world, socket, identity);
            shared.spawn(job);
        }
    }
}

/// Returns the sockets to deregister, and those to register now.
fn work(world: &mut StateOfWorld, shared: &KubeletRun) -> (Vec<PathBuf>, Vec<(PathBuf, SocketIdentity)>) {
    let StateOfWorld { desired, actual, pauses } = world;
    let is_gone = |socket: &PathBuf, identity: &SocketIdentity| desired.get(socket) != Some(identity);
    let gone: Vec<PathBuf> = actual
        .iter()
        .filter(|(socket, identity)| is_gone(socket, identity))
        .map(|(socket, _)| socket.clone())
        .collect();
    actual.retain(|socket, identity| !is_gone(socket, identity));
    let now = Instant::now();
    let times = &shared.settings.times;
    let mut new = Vec::new();
    for (socket, identity) in desired.iter().filter(|(socket, _)| !actual.contains_key(*socket)) {
        let pause = pauses.entry(socket.clone()).or_insert_with(|| RetryPause {
            running: false,
            until: now,
            backoff: Backoff::doubling(times.backoff_first, times.backoff_last),
        });
        if !pause.running && pause.until <= now {
            pause.running = true;
            new.push((socket.clone(), *identity));
        }
    }
    (gone, new)
}

async fn register_once(
    shared: Arc<KubeletRun>,
    world: Arc<Mutex<StateOfWorld>>,
    socket: PathBuf,
    identity: SocketIdentity,
) {
    let result = register(&shared, &socket).await;
    let outcome = result.as_ref().map(|(name, _)| name.clone()).map_err(ToString::to_string);
    {
        let mut world = world.lock().expect("nothing panics under it");
        let registered = matches!(result, Ok((_, RegistrationOutcome::Yes)));
        if registered {
            world.actual.insert(socket.clone(), identity);
        }
        // What the driver was told counts as done, and is repeated without a pause.
        if result.is_ok() {
            world.pauses.remove(&socket);
        } else if let Some(pause) = world.pauses.get_mut(&socket) {
            pause.running = false;
            pause.until = Instant::now() + pause.backoff.next();
        }
    }
    let attempt = RegistrationAttempt { socket, at: Instant::now(), outcome };
    shared.machine.show(|view| view.registrations.push(attempt));
}

/// Outcome of a registration that went through its steps: a registered driver, or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RegistrationOutcome {
    Yes,
    No,
}

async fn register(shared: &Arc<KubeletRun>, socket: &Path) -> KubeletResult<(String, RegistrationOutcome)> {
    let mut client = RegistrationClient::new(dial(socket, &authority(socket)).await?);
    let times = shared.settings.times;
    let call = client.get_info(request(InfoRequest {}, times.get_info));
    let info = match timeout(times.get_info, call).await {
        Ok(answer) => answer.map_err(failed("GetInfo"))?.into_inner(),
        Err(_) => return complain(format!("GetInfo took longer than {:?}", times.get_info)),
    };
    let mut info = info;
    if info.endpoint.is_empty() {
        info.endpoint = socket.display().to_string();
    }
    let name = info.name.clone();
    let version = match validate(&info, shared.settings.release) {
        Ok(version) => version,
        Err(KubeletComplaint(reason)) => {
            let error = format!("plugin validation failed: {reason}");
            notify(shared, &mut client, Some(error.clone())).await?;
            return complain(error);
        }
    };
    if let Err(KubeletComplaint(reason)) = shared.plugins.add(shared, socket, info, version) {
        notify(shared, &mut client, Some(format!("plugin registration failed: {reason}"))).await?;
        return Ok((name, RegistrationOutcome::No));
    }
    if let Err(complaint) = notify(shared, &mut client, None).await {
        shared.plugins.remove(shared, socket);
        return Err(complaint);
    }
    Ok((name, RegistrationOutcome::Yes))
}

async fn notify(
    shared: &KubeletRun,
    client: &mut RegistrationClient<Channel>,
    error: Option<String>,
) -> KubeletResult<()> {
    let deadline = shared.settings.times.notify;
    let status = RegistrationStatus { plugin_registered: error.is_none(), error: error.unwrap_or_default() };
    match timeout(deadline, client.notify_registration_status(request(status, deadline))).await {
        Ok(answer) => answer.map(mem::drop).map_err(failed("NotifyRegistrationStatus")),
        Err(_) => complain(format!("NotifyRegistrationStatus took longer than {deadline:?}")),
    }
}
