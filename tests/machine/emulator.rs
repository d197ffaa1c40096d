//! The emulator as a process: its command line, its console, its control socket, and its end.
//!
//! There are three machines. The one with hardware has four NUMA nodes (0 to 2 with two CPUs each, 3 without, only near to node 1), two CXL host bridges, a
//! switch below the second, memory devices that are volatile, persistent and of dynamic capacity, and a network card
//! with virtual functions behind an IOMMU. Nodes 4 and 5 stand for the host bridges in tables of the firmware. Another has
//! one disk, and boots quickly. The third is one of several hosts of a rack: it has empty slots for the cards of an enclosure,
//! and a network in which it reaches this host.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// Longer than the slowest step takes under emulation on a busy machine; only a machine that hangs waits this long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The kernel's own command line. Memory that is plugged in is onlined movable, or it could never be taken back.
const KERNEL: &str = "console=ttyS0 loglevel=5 isolcpus=5 nohz_full=5 hugepages=8 intel_iommu=on panic=-1 \
                      memhp_default_state=online_movable";

/// The same for the machine with one disk.
const PLAIN_KERNEL: &str = "console=ttyS0 loglevel=5 panic=-1 mitigations=off";

/// The same for a host of a rack.
const RACK_KERNEL: &str = "console=ttyS0 loglevel=5 panic=-1 mitigations=off memhp_default_state=online_movable";

/// Words of the command line that every machine needs, and that do not depend on this host.
const EVERY_MACHINE: &str = "\
-nodefaults -nographic -no-reboot -monitor none \
-device virtio-serial-pci,bus=pcie.0,addr=3 -device virtserialport,chardev=agent,name=agent";

/// The machine with one disk. What the test says of the disk comes behind this.
const STORAGE: &str = "-accel tcg -cpu max -machine q35,usb=off -m 1G";

/// The machine with hardware.
const MACHINE: &str = "\
-accel tcg,thread=single -cpu max,-hypervisor \
-machine q35,cxl=on,hmat=on,usb=off \
-m 2560M,slots=4,maxmem=8G -smp 6,maxcpus=8,sockets=4,cores=1,threads=2 \
-object memory-backend-ram,id=m0,size=768M -object memory-backend-ram,id=m1,size=768M \
-object memory-backend-ram,id=m2,size=512M -object memory-backend-ram,id=m3,size=512M \
-numa node,nodeid=0,memdev=m0,cpus=0-1 -numa node,nodeid=1,memdev=m1,cpus=2-3 -numa node,nodeid=2,memdev=m2,cpus=4-7 \
-numa node,nodeid=3,memdev=m3,initiator=1 -numa node,nodeid=4 -numa node,nodeid=5 \
-device pxb-cxl,bus_nr=64,bus=pcie.0,id=cxl.1,numa_node=0 \
-device cxl-rp,port=0,bus=cxl.1,id=rp0,chassis=0,slot=2 \
-device cxl-rp,port=1,bus=cxl.1,id=rp1,chassis=0,slot=3 \
-device cxl-rp,port=2,bus=cxl.1,id=rp2,chassis=0,slot=4 \
-device pxb-cxl,bus_nr=192,bus=pcie.0,id=cxl.2,numa_node=2 \
-device cxl-rp,port=0,bus=cxl.2,id=rp3,chassis=1,slot=5 \
-device cxl-rp,port=1,bus=cxl.2,id=rp4,chassis=1,slot=9 \
-device cxl-upstream,bus=rp3,id=us0,addr=0.0,multifunction=on \
-device cxl-downstream,port=0,bus=us0,id=ds0,chassis=1,slot=6 \
-device cxl-downstream,port=1,bus=us0,id=ds1,chassis=1,slot=7 \
-object memory-backend-ram,id=v0,size=512M -object memory-backend-ram,id=v1,size=512M \
-object memory-backend-ram,id=v2,size=256M -object memory-backend-ram,id=v3,size=256M \
-object memory-backend-ram,id=dc0,size=512M \
-object memory-backend-ram,id=p0,size=256M -object memory-backend-ram,id=l0,size=128K \
-device cxl-type3,bus=rp0,volatile-memdev=v0,id=cxl-v0,sn=0x1001 \
-device cxl-type3,bus=ds0,persistent-memdev=p0,lsa=l0,id=cxl-p0,sn=0x2001 \
-device cxl-type3,bus=ds1,volatile-memdev=v2,id=cxl-v2,sn=0x2002 \
-device cxl-type3,bus=rp2,volatile-memdev=v3,num-dc-regions=2,volatile-dc-memdev=dc0,id=cxl-dcd,sn=0x3001 \
-machine cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G,cxl-fmw.1.targets.0=cxl.2,cxl-fmw.1.size=4G \
-object acpi-generic-port,id=gp0,pci-bus=cxl.1,node=4 -object acpi-generic-port,id=gp1,pci-bus=cxl.2,node=5 \
-device intel-iommu,intremap=off \
-device pcie-root-port,id=prp0,bus=pcie.0,chassis=9,slot=1,addr=5 -device igb,bus=prp0,id=igb0";

/// A host of a rack. Its cards and slots come behind this.
const RACK: &str = "\
-accel tcg,thread=single -cpu max,-hypervisor -machine q35,cxl=on,usb=off -m 1536M,slots=4,maxmem=8G -smp 2 \
-object memory-backend-ram,id=m0,size=1536M -numa node,nodeid=0,memdev=m0,cpus=0-1 \
-device pxb-cxl,bus_nr=64,bus=pcie.0,id=cxl.1,numa_node=0 \
-machine cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G \
-netdev user,id=net0 -device virtio-net-pci,bus=pcie.0,addr=6,netdev=net0,romfile=";

/// Distances between nodes, in both directions. All are less than 20, which Linux takes as the distance of CXL memory, so that
/// such memory is the last that a process gets: QEMU 10.0 crashes when a processor saves its state there, as it does on a
/// stack when a signal comes.
pub const DISTANCES: &[(u32, u32, u32)] = &[
    (0, 1, 13),
    (0, 2, 17),
    (1, 2, 13),
    (0, 3, 16),
    (1, 3, 12),
    (2, 3, 16),
    (0, 4, 20),
    (1, 4, 20),
    (2, 4, 20),
    (3, 4, 20),
    (0, 5, 20),
    (1, 5, 20),
    (2, 5, 20),
    (3, 5, 20),
    (4, 5, 30),
];

/// What the firmware says of the way from nodes 0, 1 and 2 to each node: nanoseconds, then MB/s.
const WAYS: &[(u32, [u32; 3], [u32; 3])] = &[
    (0, [100, 170, 220], [20_000, 10_000, 6_000]),
    (1, [170, 100, 170], [10_000, 20_000, 10_000]),
    (2, [220, 170, 100], [6_000, 10_000, 20_000]),
    (3, [260, 130, 260], [30_000, 60_000, 30_000]),
    (4, [50, 90, 120], [32_000, 16_000, 12_000]),
    (5, [120, 90, 50], [12_000, 16_000, 32_000]),
];

/// What a machine is made of.
#[derive(Clone, Debug)]
pub enum Machine {
    /// NUMA nodes, CXL memory and a network card.
    Hardware,
    /// One disk, as these words describe it.
    Storage(Vec<String>),
    /// A host of a rack.
    Rack(RackHost),
}

/// A host of a rack: a card of its enclosure is a file, which has what is in the card's memory.
#[derive(Clone, Debug)]
pub struct RackHost {
    /// UUID of the board.
    pub uuid: String,
    /// Files of the cards, each with its size. Card N has the memory `cardN`, persistent memory `lastingN` with `labelsN` where
    /// it is to have any, and the slot `slotN`, which is empty at first.
    pub cards: Vec<(PathBuf, u64)>,
}

/// The right to run emulators: each takes a processor and up to 4 GiB of this host.
pub type Turn = Arc<nix::fcntl::Flock<File>>;

/// Waits for the right to run emulators.
pub fn turn(cache: &Path) -> Turn {
    let turn = File::create(cache.join("turn")).unwrap();
    Arc::new(nix::fcntl::Flock::lock(turn, nix::fcntl::FlockArg::LockExclusive).expect("a lock can be waited for"))
}

/// An emulator that runs. It is killed when this is dropped.
pub struct Emulator {
    child: Child,
    folder: tempfile::TempDir,
    control: BufReader<UnixStream>,
    _turn: Turn,
}

impl Emulator {
    /// Starts a machine with what tools/machine.sh has put into `cache`.
    pub fn start(turn: Turn, cache: &Path, initramfs: &[u8], machine: &Machine) -> Self {
        // Short: paths of sockets hold 107 bytes.
        let folder = tempfile::Builder::new().prefix("m").tempdir_in("/tmp").unwrap();
        fs::write(folder.path().join("initramfs"), initramfs).unwrap();
        let console = File::create(folder.path().join("console")).unwrap();
        let mut command = command(&cache.join("root"), folder.path(), machine);
        let child = command.stdin(Stdio::null()).stdout(console.try_clone().unwrap()).stderr(console).spawn().unwrap();
        let control = connect(&folder.path().join("control"));
        let mut emulator = Self { child, folder, control: BufReader::new(control), _turn: turn };
        emulator.receive();
        emulator.order("qmp_capabilities", &json!({}));
        emulator
    }

    /// The near end of the agent's wire.
    pub fn wire(&self) -> UnixStream {
        connect(&self.folder.path().join("agent"))
    }

    /// What the kernel and the first program have said.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join("console")).unwrap()).into_owned()
    }

    /// Gives an order and returns its result. Events that come in between are of no use here: the machine's own state is.
    pub fn order(&mut self, command: &str, arguments: &Value) -> Value {
        let order = json!({"execute": command, "arguments": arguments});
        writeln!(self.control.get_mut(), "{order}").unwrap();
        loop {
            let mut answer = self.receive();
            assert!(answer.get("error").is_none(), "{order}: {answer}");
            if let Some(result) = answer.get_mut("return") {
                return result.take();
            }
        }
    }

    /// Waits for the end of an emulator that was told to quit.
    pub fn wait(&mut self) {
        self.child.wait().unwrap();
    }

    /// Ends the test with all that is known of a machine that does not answer.
    pub fn lost(&mut self, what: &str) -> ! {
        let start = Instant::now();
        // An emulator that dies closes its wire first.
        let end = loop {
            match self.child.try_wait() {
                Ok(Some(end)) => break end.to_string(),
                _ if start.elapsed() > Duration::from_secs(2) => break "it runs".to_owned(),
                _ => thread::sleep(Duration::from_millis(10)),
            }
        };
        panic!("the machine {what} ({end})\n{}", self.console());
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        let read = self.control.read_line(&mut line);
        if !read.as_ref().is_ok_and(|read| *read > 0) {
            self.lost(&format!("gives no answer to an order: {read:?}"));
        }
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}\n{}", self.console()))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(path: &Path) -> UnixStream {
    let start = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert!(start.elapsed() < PATIENCE, "{}: {error}", path.display()),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A program that was fetched, with its own dynamic linker and libraries: those of this host may be of another release.
pub fn fetched(root: &Path, program: &str) -> Vec<PathBuf> {
    let libraries: Vec<PathBuf> =
        ["lib", "usr/lib"].iter().map(|lib| root.join(lib).join("x86_64-linux-gnu")).collect();
    let linker = libraries.iter().map(|folder| folder.join("ld-linux-x86-64.so.2")).find(|path| path.exists());
    let path: Vec<String> = libraries.iter().map(|folder| folder.display().to_string()).collect();
    let mut places = ["usr/bin", "usr/sbin", "bin", "sbin"].iter().map(|folder| root.join(folder).join(program));
    let program = places.find(|path| path.exists()).unwrap_or_else(|| panic!("{program} is not unpacked"));
    vec![linker.expect("the dynamic linker is unpacked"), "--library-path".into(), path.join(":").into(), program]
}

/// The emulator; others on the host go first.
fn command(root: &Path, folder: &Path, machine: &Machine) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).args(fetched(root, "qemu-system-x86_64"));
    for data in ["qemu", "seabios"] {
        command.arg("-L").arg(root.join("usr/share").join(data));
    }
    let socket = |name: &str| format!("{},server=on,wait=off", folder.join(name).display());
    command.args(["-chardev", &format!("socket,id=agent,path={}", socket("agent"))]);
    command.args(["-qmp", &format!("unix:{}", socket("control")), "-serial", "stdio"]);
    command.args(EVERY_MACHINE.split_whitespace());
    match machine {
        Machine::Hardware => add_hardware(&mut command),
        Machine::Storage(disk) => {
            command.args(STORAGE.split_whitespace()).args(disk);
        }
        Machine::Rack(host) => add_rack_host(&mut command, host),
    }
    command.arg("-kernel").arg(kernel(root)).arg("-initrd").arg(folder.join("initramfs"));
    let kernel = match machine {
        Machine::Hardware => KERNEL,
        Machine::Storage(_) => PLAIN_KERNEL,
        Machine::Rack(_) => RACK_KERNEL,
    };
    command.args(["-append", kernel]);
    command
}

fn add_rack_host(command: &mut Command, host: &RackHost) {
    command.args(RACK.split_whitespace()).args(["-uuid", &host.uuid]);
    for (at, (file, bytes)) in host.cards.iter().enumerate() {
        let file = file.display();
        command.args(["-object", &format!("memory-backend-file,id=card{at},mem-path={file},size={bytes},share=on")]);
        command.args(["-object", &format!("memory-backend-ram,id=lasting{at},size=256M")]);
        command.args(["-object", &format!("memory-backend-ram,id=labels{at},size=128K")]);
        command.args(["-device", &format!("cxl-rp,port={at},bus=cxl.1,id=slot{at},chassis=0,slot={}", at + 2)]);
    }
}

fn add_hardware(command: &mut Command) {
    command.args(MACHINE.split_whitespace());
    for (from, to, distance) in DISTANCES {
        command.args(["-numa", &format!("dist,src={from},dst={to},val={distance}")]);
        command.args(["-numa", &format!("dist,src={to},dst={from},val={distance}")]);
    }
    for (quantity, unit, at) in [("latency", "", 0), ("bandwidth", "M", 1)] {
        for (target, latencies, bandwidths) in WAYS {
            for (from, value) in [latencies, bandwidths][at].iter().enumerate() {
                let way = format!("hmat-lb,initiator={from},target={target},hierarchy=memory");
                command.args(["-numa", &format!("{way},data-type=access-{quantity},{quantity}={value}{unit}")]);
            }
        }
    }
    // A cache in front of a node's memory comes after the ways to it.
    command.args(["-numa", "hmat-cache,node-id=2,size=64M,level=1,associativity=direct,policy=write-back,line=64"]);
}

fn kernel(root: &Path) -> PathBuf {
    let files = fs::read_dir(root.join("boot")).expect("a kernel is unpacked").map(|entry| entry.unwrap().path());
    let is_kernel = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    files.into_iter().find(is_kernel).expect("a kernel is unpacked")
}
