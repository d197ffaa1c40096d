//! How long the machine itself takes for what a figure must contain: the limit that its budget is the sum of.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use hostler_proto::dra_v1::{
    NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
    dra_plugin_client::DraPluginClient,
    dra_plugin_server::{DraPlugin, DraPluginServer},
};
use hostler_testing::kubelet;
use tokio::{net::UnixListener, runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::{
    cluster, machine,
    report::{ALLOWED_PERCENT, Report},
    samples::{Millis, Samples},
};

const RUNS: usize = 1000;
const WARM_UP: usize = 50;
const PROCESSES: usize = 200;
/// As large as a claim's record.
const SMALL: [u8; 700] = [b'x'; 700];
const ROOM: usize = 1 << 20;
/// What the machine takes for the parts of figures, taken once in a run.
static LIMITS: OnceLock<Limits> = OnceLock::new();

/// Times of the parts that figures are made of.
#[derive(Debug)]
pub(crate) struct Limits {
    call: Samples,
    flush: Samples,
    written: Samples,
    on_disk: Samples,
    in_memory: Samples,
    read: Samples,
}

impl Limits {
    pub(crate) fn of_this_machine() -> &'static Self {
        LIMITS.get_or_init(|| {
            let folder = |above: &Path| tempfile::Builder::new().prefix("figures").tempdir_in(above).unwrap();
            let (disk, memory) = (folder(&machine::disk()), folder(machine::memory()));
            Self {
                call: empty_call(memory.path()),
                flush: append_and_flush(disk.path(), 0),
                written: append_and_flush(disk.path(), ROOM),
                on_disk: replacements(disk.path(), memory.path()),
                in_memory: replacements(memory.path(), memory.path()),
                read: cluster::bare_read(),
            }
        })
    }

    /// What a prepare contains whose state is on a disk.
    pub(crate) fn prepare_on_disk(&self) -> Duration {
        self.call.median() + self.flush.median() + self.on_disk.median()
    }

    /// What a prepare contains whose state is in memory.
    pub(crate) fn prepare_in_memory(&self) -> Duration {
        self.call.median() + self.in_memory.median()
    }

    /// What reading a claim adds to either.
    pub(crate) fn read(&self) -> Duration {
        self.read.median()
    }
}

pub(crate) fn measure(report: &mut Report) {
    let limits = Limits::of_this_machine();
    let on = machine::file_system(&machine::disk());
    report.median(
        "gRPC call over a unix socket",
        &limits.call,
        "tonic on both sides, two threads; the handler does nothing",
    );
    let how = "`write` of 700 bytes behind the last ones, and `fdatasync`";
    report.median(&format!("{on}: append and flush"), &limits.flush, how);
    let how = "the same into a file that has its size and its blocks already, as the journal of records";
    report.median(&format!("{on}: write and flush"), &limits.written, how);
    let how = "a new file of 700 bytes renamed over the old one, not flushed; one on the disk and one in memory";
    report.median(&format!("two replacements of a file, {on} and memory"), &limits.on_disk, how);
    report.median("two replacements of a file, memory", &limits.in_memory, "the same, both in memory");
    report.median(
        "GET of a claim on a kept connection",
        &limits.read,
        "the tests' API server, TLS and HTTP/2, loopback",
    );
    let start = start_of_a_process();
    report.median("start and end of an empty process", &start, "`/bin/true`, from `posix_spawn` to `wait`");
    sysfs(report);
    for (figure, budget) in [
        ("prepare of one CPU claim, state on a disk", limits.prepare_on_disk()),
        ("prepare of one CPU claim without a disk", limits.prepare_in_memory()),
        ("prepare of one claim, API read included, state on a disk", limits.prepare_on_disk() + limits.read()),
    ] {
        let allowed = Millis(budget * ALLOWED_PERCENT / 100);
        let how = "sum of what it contains; met at 1.5 times of it";
        report.context(&format!("budget: {figure}"), format!("{}, so ≤ {allowed}", Millis(budget)), how);
    }
}

/// Times of something done over and over, without the first ones.
fn times(mut work: impl FnMut(usize)) -> Samples {
    let time = |number| {
        let start = Instant::now();
        work(number);
        start.elapsed()
    };
    Samples::new((0..WARM_UP + RUNS).map(time).collect::<Vec<_>>().split_off(WARM_UP))
}

/// Answers at once.
struct EmptyPlugin;

#[tonic::async_trait]
impl DraPlugin for EmptyPlugin {
    async fn node_prepare_resources(
        &self,
        _: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn node_unprepare_resources(
        &self,
        _: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

fn empty_call(folder: &Path) -> Samples {
    let socket = folder.join("empty.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    // It ends with this program.
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
            let service = DraPluginServer::new(EmptyPlugin);
            Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
    });
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let channel = runtime.block_on(kubelet::dial(&socket, "localhost")).unwrap();
    let mut client = DraPluginClient::new(channel);
    let claims = vec![kubelet::claim("default", "claim-1", "5f0c6a1e-0000-4000-8000-000000000001")];
    times(|_| {
        let request = NodePrepareResourcesRequest { claims: claims.clone() };
        drop(runtime.block_on(client.node_prepare_resources(request)).unwrap());
    })
}

fn append_and_flush(folder: &Path, room: usize) -> Samples {
    let mut file = File::create(folder.join("appended")).unwrap();
    file.write_all(&vec![b'\n'; room]).unwrap();
    file.rewind().unwrap();
    file.sync_all().unwrap();
    times(|_| {
        file.write_all(&SMALL).unwrap();
        file.sync_data().unwrap();
    })
}

fn replacements(one: &Path, other: &Path) -> Samples {
    let replace = |folder: &Path, name: &str| {
        let temporary = folder.join(".replaced");
        File::create_new(&temporary).unwrap().write_all(&SMALL).unwrap();
        fs::rename(temporary, folder.join(name)).unwrap();
    };
    times(|_| {
        replace(one, "record");
        replace(other, "cdi");
    })
}

fn start_of_a_process() -> Samples {
    let run = |_| {
        let start = Instant::now();
        assert!(Command::new("/bin/true").status().unwrap().success());
        start.elapsed()
    };
    Samples::new((0..PROCESSES).map(run).collect())
}

fn sysfs(report: &mut Report) {
    let files = files_of_cpus();
    if files.is_empty() {
        return report.skipped("reading files of sysfs", "there are none", "files of CPUs");
    }
    let read = times(|_| files.iter().for_each(|file| drop(fs::read(file))));
    let each = Millis(read.median() / u32::try_from(files.len()).unwrap());
    let micros = each.0.as_secs_f64() * 1e6;
    let how = format!("the {} readable files of this machine's `cpu0`, opened by path, read and closed", files.len());
    report.context("a file of sysfs", format!("{micros:.1} µs"), &how);
}

/// Files of a CPU that can be read: those that say how it is and where it stands.
fn files_of_cpus() -> Vec<PathBuf> {
    let folders = ["topology", "cache/index0", "cache/index1", "cache/index2", "cache/index3"];
    let folders = folders.map(|folder| Path::new("/sys/devices/system/cpu/cpu0").join(folder));
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file() && fs::read(path).is_ok()).collect()
}
