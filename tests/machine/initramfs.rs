//! What the emulated machine finds when it boots: busybox, the kernel's modules, and `hostler` with its libraries.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::cpio::Archive;

/// In the order in which they are inserted; what a kernel has built in, or has not, is left out.
const MODULES: &[&str] = &[
    "libnvdimm",
    "nd_btt",
    "nd_pmem",
    "dax_pmem",
    "cxl_pmem",
    "cxl_acpi",
    "cxl_mem",
    "cxl_pci",
    "dax_hmem",
    "dax_cxl",
    "device_dax",
    "kmem",
    "irqbypass",
    "vfio",
    "vfio_iommu_type1",
    "vfio-pci-core",
    "vfio-pci",
    "i2c-algo-bit",
    "dca",
    "igb",
    "igbvf",
    "failover",
    "net_failover",
    "virtio_net",
];

/// The same for the machine with a disk: every file system that state is kept on.
const STORAGE_MODULES: &[&str] = &[
    "virtio_blk",
    "crc32c_generic",
    "libcrc32c",
    "crc16",
    "mbcache",
    "jbd2",
    "ext4",
    "xfs",
    "xor",
    "raid6_pq",
    "btrfs",
];

/// A library in the machine with a disk: in a program that loads it first, flushes do nothing.
pub const NO_FLUSHES: &str = "/usr/lib/libeatmydata.so";

/// What a machine is booted with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cargo {
    /// Drivers of the hardware.
    Hardware,
    /// Drivers of the disk and file systems, [`NO_FLUSHES`], and this very program, as `/usr/bin/machine`.
    Storage,
    /// Drivers of the hardware, and this very program.
    Rack,
}

/// Those without which the machine has nothing to show.
const NEEDED: &[&str] = &["cxl_acpi", "cxl_mem", "cxl_pci", "dax_cxl", "kmem", "vfio-pci", "igb"];

/// First program: mounts what a host has, inserts the modules, and serves the test.
const INIT: &str = "\
#!/bin/busybox sh
export PATH=/usr/bin:/bin HOME=/root
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing
echo '+cpuset +memory' > /sys/fs/cgroup/cgroup.subtree_control
hostname emulated
ip link set lo up
for module in $(cat /modules/order); do insmod /modules/$module; done
exec sh /agent
";

/// Takes commands from the test, one line of base64 each, and answers with exit code, output and errors. When the test
/// is gone, so is its machine.
const AGENT: &str = "\
mkdir /run/agent
until [ -c /dev/vport0p1 ]; do usleep 10000; done
exec 3<>/dev/vport0p1
echo hello >&3
while IFS= read -r line <&3; do
    echo \"$line\" | base64 -d >/run/agent/command
    sh /run/agent/command </dev/null >/run/agent/output 2>/run/agent/errors 3<&-
    code=$?
    printf '%s %s %s\\n' $code \"$(base64 -w 0 /run/agent/output)\" \"$(base64 -w 0 /run/agent/errors)\" >&3
done
poweroff -f
";

/// The archive, for the programs below `root` and the binary under test.
pub fn build(root: &Path, cargo: Cargo) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.folder("/dev");
    archive.character_device("/dev/console", 5, 1);
    for folder in ["/proc", "/sys", "/run", "/tmp", "/root", "/etc/hostler/claims", "/var/lib/hostler"] {
        archive.folder(folder);
    }
    archive.link("/var/run", "/run");
    archive.program("/init", INIT.as_bytes());
    archive.file("/agent", AGENT.as_bytes());
    archive.program("/bin/busybox", &read(&busybox(root)));
    let binary = Path::new(env!("CARGO_BIN_EXE_hostler"));
    let own = env::current_exe().unwrap();
    let programs: &[(&Path, &str)] = match cargo {
        Cargo::Hardware => &[(binary, "/usr/bin/hostler")],
        Cargo::Storage | Cargo::Rack => &[(binary, "/usr/bin/hostler"), (&own, "/usr/bin/machine")],
    };
    let needed: BTreeSet<PathBuf> = programs.iter().flat_map(|(program, _)| libraries(program)).collect();
    for library in needed {
        archive.program(library.to_str().unwrap(), &read(&library));
    }
    for (program, name) in programs {
        archive.program(name, &stripped(program));
    }
    match cargo {
        Cargo::Hardware | Cargo::Rack => add_modules(&mut archive, root, MODULES, NEEDED),
        Cargo::Storage => {
            archive.program(NO_FLUSHES, &read(&root.join("usr/lib/x86_64-linux-gnu/libeatmydata.so")));
            add_modules(&mut archive, root, STORAGE_MODULES, &["virtio_blk", "ext4", "xfs", "btrfs"]);
        }
    }
    archive.finish()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn busybox(root: &Path) -> PathBuf {
    let places = [root.join("bin/busybox"), root.join("usr/bin/busybox")];
    places.into_iter().find(|path| path.exists()).expect("busybox is unpacked")
}

/// The dynamic linker and the libraries that it would load here, under the names by which they are found.
fn libraries(binary: &Path) -> Vec<PathBuf> {
    let said = Command::new("ldd").arg(binary).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let paths = said.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    let found: Vec<PathBuf> = paths.map(PathBuf::from).collect();
    assert!(!found.is_empty(), "ldd says of {}: {said}", binary.display());
    found
}

/// The binary without what a debugger needs, two thirds of it, where `strip` is installed.
fn stripped(binary: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("hostler");
    match Command::new("strip").arg("-o").arg(&small).arg(binary).status() {
        Ok(status) if status.success() => read(&small),
        _ => read(binary),
    }
}

fn add_modules(archive: &mut Archive, root: &Path, names: &[&str], needed: &[&str]) {
    let mut found = Vec::new();
    modules_below(root, &mut found);
    let mut order = String::new();
    for name in names {
        let module = found.iter().find(|path| module_name(path) == Some(*name));
        assert!(module.is_some() || !needed.contains(name), "the kernel has no module {name}");
        let Some(module) = module else { continue };
        archive.file(&format!("/modules/{name}.ko"), &unpacked(module, root));
        order.push_str(&format!("{name}.ko "));
    }
    archive.file("/modules/order", order.as_bytes());
}

fn modules_below(root: &Path, found: &mut Vec<PathBuf>) {
    let mut folders: Vec<PathBuf> = [root.join("lib/modules"), root.join("usr/lib/modules")].into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().map(Result::unwrap) {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() && module_name(&entry.path()).is_some() => found.push(entry.path()),
                _ => {}
            }
        }
    }
}

/// `cxl_mem` of `cxl_mem.ko.xz`.
fn module_name(path: &Path) -> Option<&str> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    name.split_once(".ko").map(|(name, _)| name)
}

fn unpacked(module: &Path, root: &Path) -> Vec<u8> {
    if module.extension() == Some(OsStr::new("ko")) {
        return read(module);
    }
    let unpacked = Command::new(busybox(root)).arg("xzcat").arg(module).output().unwrap();
    assert!(unpacked.status.success(), "{} cannot be unpacked", module.display());
    unpacked.stdout
}
