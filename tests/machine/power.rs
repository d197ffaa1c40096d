//! The power fails: a disk logs its writes while pods come and go, and is made anew as it was at every flush, and with any
//! part of what came after it. On each of these disks every claim that was promised is there and none that was taken back.
//! A daemon whose flushes do nothing is found out by the same check.

use std::{
    collections::BTreeMap,
    env, fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use hostler::claims::store::{RecordDir, RecordState};

use crate::{
    emulator::{Machine, fetched},
    guest::{Guest, cache},
    initramfs::{self, Cargo},
    storm::{MARK_BYTES, Promise, Promises, cards},
    write_log::{self, Event, Image, Write},
};

const MIB: u64 = 1 << 20;

/// A file system that state may be kept on.
struct FileSystem {
    name: &'static str,
    kind: &'static str,
    mib: u64,
    make: &'static [&'static str],
    /// Without a journal of its own: the disk is also mounted as it was left.
    unrepaired: bool,
}

const EXT4: FileSystem =
    FileSystem { name: "ext4", kind: "ext4", mib: 64, make: &["mkfs.ext4", "-q", "-F"], unrepaired: false };
const EXT4_WITHOUT_JOURNAL: FileSystem = FileSystem {
    name: "ext4 without a journal",
    make: &["mkfs.ext4", "-q", "-F", "-O", "^has_journal"],
    unrepaired: true,
    ..EXT4
};
const XFS: FileSystem = FileSystem { name: "xfs", kind: "xfs", mib: 320, make: &["mkfs.xfs", "-q", "-f"], ..EXT4 };
const BTRFS: FileSystem =
    FileSystem { name: "btrfs", kind: "btrfs", mib: 128, make: &["mkfs.btrfs", "-q", "-f"], ..EXT4 };

#[test]
#[ignore = "takes an emulated machine: make test-power"]
fn nothing_promised_is_lost_on_ext4_when_the_power_fails() {
    nothing_is_lost(&EXT4);
}

#[test]
#[ignore = "takes an emulated machine: make test-power"]
fn nothing_promised_is_lost_on_ext4_without_a_journal_when_the_power_fails() {
    nothing_is_lost(&EXT4_WITHOUT_JOURNAL);
}

#[test]
#[ignore = "takes an emulated machine: make test-power"]
fn nothing_promised_is_lost_on_xfs_when_the_power_fails() {
    nothing_is_lost(&XFS);
}

#[test]
#[ignore = "takes an emulated machine: make test-power"]
fn nothing_promised_is_lost_on_btrfs_when_the_power_fails() {
    nothing_is_lost(&BTRFS);
}

#[test]
#[ignore = "takes an emulated machine: make test-power"]
fn a_daemon_that_does_not_flush_is_found_out() {
    let tally = fail_everywhere(&EXT4, &Storm { preload: initramfs::NO_FLUSHES, steps: 40 });
    assert!(!tally.lost.is_empty(), "{tally}: the check sees nothing");
}

fn nothing_is_lost(file_system: &FileSystem) {
    let tally = fail_everywhere(file_system, &Storm { preload: "", steps: setting("HOSTLER_POWER_STEPS", 80) });
    assert!(tally.lost.is_empty(), "{tally}\n{}", tally.lost.join("\n"));
    // Five hundred on the four file systems.
    let least = setting("HOSTLER_POWER_POINTS", 125);
    assert!(tally.flushes >= least, "{tally}: too few flushes, HOSTLER_POWER_STEPS makes more");
}

/// A number that the environment may change.
fn setting(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// How pods come and go before the power fails.
struct Storm {
    /// A library that the daemon is started with.
    preload: &'static str,
    /// Calls of the kubelet.
    steps: usize,
}

/// What was seen on the disks of one storm.
struct Tally {
    name: &'static str,
    said: String,
    flushes: usize,
    disks: usize,
    /// How many had to be repaired, and for how many of them a person would have been asked.
    repaired: usize,
    asked: usize,
    /// How many were also mounted without a repair, and how many of them could not be, or not be read.
    unrepaired: usize,
    /// Why, by how many.
    refused: BTreeMap<String, usize>,
    lost: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, said, flushes, disks, repaired, asked, unrepaired, refused, lost } = self;
        write!(f, "{name}: {said}; {flushes} flushes, {disks} disks, {repaired} repaired, ")?;
        write!(f, "{asked} of them by a person, {unrepaired} mounted unrepaired, refused of them {refused:?}, ")?;
        write!(f, "{} broken promises", lost.len())
    }
}

/// Cuts the power at every flush of a storm.
fn fail_everywhere(file_system: &FileSystem, storm: &Storm) -> Tally {
    // In memory where that can be: the emulated disk flushes some thousand times.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = |name: &str| folder.path().join(name);
    make(file_system, &path("disk"));
    let before = Image::read(&path("disk"));
    let said = record(file_system, storm, &path("disk"), &path("log"));
    let events = write_log::read(&path("log"));
    let moments = moments(&events, file_system.mib * MIB / 512);
    let mut checker = Checker::new(file_system, folder.path(), &before);
    let (mut image, mut applied, mut disks, mut lost) = (before, 0, 0, Vec::new());
    for (index, moment) in moments.iter().enumerate() {
        for event in &events[applied..moment.at] {
            if let Event::Write(write) = event {
                image.apply(write);
            }
        }
        applied = moment.at;
        let mut torn = image.clone();
        some_of(&moment.after, index).for_each(|write| torn.apply(write));
        let flushed = [&moment.promised_before, &moment.promised_after];
        for (which, image, promises) in [("flushed", &image, &flushed[..]), ("torn", &torn, &flushed[1..])] {
            disks += 1;
            for (how, state) in checker.states_of(image) {
                let broken = promises.iter().flat_map(|promises| match &state {
                    Ok(state) => state.broken(promises),
                    // Before the first promise there may be no folder yet.
                    Err(reason) if !promises.0.is_empty() => vec![format!("{promises:?}: {reason}")],
                    Err(_) => Vec::new(),
                });
                lost.extend(broken.map(|word| format!("flush {index}, {which}, {how}: {word}")));
            }
        }
    }
    let Checker { repaired, asked, unrepaired, refused, .. } = checker;
    let (name, flushes) = (file_system.name, moments.len());
    let tally = Tally { name, said, flushes, disks, repaired, asked, unrepaired, refused, lost };
    io::stdout().write_all(format!("{tally}\n").as_bytes()).unwrap();
    tally
}

fn make(file_system: &FileSystem, disk: &Path) {
    let file = File::create(disk).unwrap();
    file.set_len(file_system.mib * MIB).unwrap();
    let root = cache().join("root");
    let program = fetched(&root, file_system.make[0]);
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(&file_system.make[1..]).arg(disk).stdout(Stdio::null());
    assert!(command.status().unwrap().success(), "{} is not made", file_system.name);
    // Behind the file system there is room for the marks.
    file.set_len((file_system.mib + 1) * MIB).unwrap();
}

/// Has pods come and go on a disk that logs its writes, and cuts the power. Returns what the storm says of itself.
fn record(file_system: &FileSystem, storm: &Storm, disk: &Path, log: &Path) -> String {
    File::create(log).unwrap();
    let drive = |words: String| ["-blockdev".to_owned(), words];
    let words = [
        drive(format!("driver=file,node-name=plain,filename={}", disk.display())),
        drive(format!("driver=file,node-name=log,filename={}", log.display())),
        drive("driver=blklogwrites,node-name=logged,file=plain,log=log,log-sector-size=512".to_owned()),
        ["-device".to_owned(), "virtio-blk-pci,drive=logged,bus=pcie.0,addr=5,write-cache=on".to_owned()],
    ];
    let mut guest = Guest::boot_machine(&Machine::Storage(words.concat()), Cargo::Storage);
    // What is not flushed comes to the disk soon, in an order of the kernel's own.
    guest.ok("echo 20 >/proc/sys/vm/dirty_writeback_centisecs; echo 30 >/proc/sys/vm/dirty_expire_centisecs");
    guest.ok(&format!("mount -t {} /dev/vda /tmp", file_system.kind));
    let Storm { preload, steps } = storm;
    guest.ok(&format!(
        "STORM_DISK=/dev/vda STORM_MARKS_AT={} STORM_STEPS={steps} STORM_PRELOAD={preload} HOSTLER_BIN=/usr/bin/hostler \
         machine --ignored --exact storm::pods_come_and_go --nocapture >/run/storm.log 2>&1 & echo $! >/run/storm.pid",
        file_system.mib * MIB
    ));
    while guest.run("kill -0 $(cat /run/storm.pid)").code == 0 {
        thread::sleep(Duration::from_millis(500));
    }
    let said = guest.ok("cat /run/storm.log");
    assert!(said.contains("test result: ok"), "{said}");
    guest.power_off();
    said.lines().find_map(|line| line.split_once("storm: ")).expect("a storm says what it was").1.to_owned()
}

/// A moment at which the power may fail: after a flush, or before the next one.
struct Moment<'a> {
    /// The place of the flush among the events.
    at: usize,
    promised_before: Promises,
    /// What was written before the next flush.
    after: Vec<&'a Write>,
    promised_after: Promises,
}

fn moments(events: &[Event], marks_at: u64) -> Vec<Moment<'_>> {
    let mut moments: Vec<Moment<'_>> = Vec::new();
    let mut promised: Option<Promises> = None;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Write(write) if write.sector == marks_at => {
                let mark = Promises::parse(&write.bytes[..MARK_BYTES]);
                promised = Some(mark.clone());
                if let Some(last) = moments.last_mut() {
                    last.promised_after = mark;
                }
            }
            Event::Write(write) => {
                if let Some(last) = moments.last_mut() {
                    last.after.push(write);
                }
            }
            Event::Flush => {
                if let Some(promised) = &promised {
                    let (promised_before, promised_after) = (promised.clone(), promised.clone());
                    moments.push(Moment { at, promised_before, after: Vec::new(), promised_after });
                }
            }
        }
    }
    moments
}

/// Any of these writes, other ones for every seed.
fn some_of<'a>(writes: &'a [&'a Write], seed: usize) -> impl Iterator<Item = &'a Write> {
    let mut random = seed as u64 + 1;
    writes.iter().copied().filter(move |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 63 == 0
    })
}

/// Mounts one disk after the other.
struct Checker<'a> {
    file_system: &'a FileSystem,
    folder: PathBuf,
    disk: PathBuf,
    file: File,
    /// A machine that mounts them, where this user may not.
    guest: Option<Guest>,
    repaired: usize,
    asked: usize,
    unrepaired: usize,
    refused: BTreeMap<String, usize>,
}

impl<'a> Checker<'a> {
    fn new(file_system: &'a FileSystem, folder: &Path, image: &Image) -> Self {
        let disk = folder.join("found");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&disk).unwrap();
        let folder = folder.join("mounted");
        fs::create_dir(&folder).unwrap();
        let (repaired, asked, unrepaired, refused) = (0, 0, 0, BTreeMap::new());
        let mut checker = Self { file_system, folder, disk, file, guest: None, repaired, asked, unrepaired, refused };
        image.write(&checker.file);
        if checker.mount().is_err() {
            checker.guest = Some(checker.boot());
        } else {
            checker.unmount();
        }
        checker
    }

    fn boot(&self) -> Guest {
        let words = [
            "-blockdev".to_owned(),
            format!("driver=file,node-name=found,locking=off,filename={}", self.disk.display()),
            "-device".to_owned(),
            "virtio-blk-pci,drive=found,bus=pcie.0,addr=5".to_owned(),
        ];
        let mut guest = Guest::boot_machine(&Machine::Storage(words.into()), Cargo::Storage);
        guest.ok("mkdir /disk");
        guest
    }

    fn mount(&self) -> Result<(), String> {
        let mut command = Command::new("mount");
        command.args(["-o", "loop", "-t", self.file_system.kind]).arg(&self.disk).arg(&self.folder);
        let said = command.output().unwrap();
        if said.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said.stderr).into_owned()) }
    }

    fn unmount(&self) {
        assert!(Command::new("umount").arg(&self.folder).status().unwrap().success());
    }

    /// What starts find on such a disk: as every boot mounts it and, where no journal makes it whole, also as it was left.
    fn states_of(&mut self, image: &Image) -> Vec<(&'static str, Result<FoundState, String>)> {
        let mut states = Vec::new();
        if self.file_system.unrepaired {
            image.write(&self.file);
            self.unrepaired += 1;
            match self.state() {
                Ok(state) => states.push(("unrepaired", Ok(state))),
                Err(reason) => *self.refused.entry(reason).or_default() += 1,
            }
        }
        image.write(&self.file);
        self.check_file_system();
        states.push(("as at every boot", self.state()));
        states
    }

    /// What a start finds: the machine boots, and the daemon opens its records.
    fn state(&mut self) -> Result<FoundState, String> {
        let kind = self.file_system.kind;
        const PACK: &str =
            "cd h*/state && tar -c -f $ARCHIVE claims claims.journal && gzip -1 -c $ARCHIVE | base64 -w 0";
        let packed = match &mut self.guest {
            Some(guest) => {
                let mounted = guest.run(&format!("mount -t {kind} /dev/vda /disk"));
                if mounted.code != 0 {
                    return Err(mounted.errors);
                }
                let said = guest.run(&format!("cd /disk && ARCHIVE=/run/state.tar && {PACK}"));
                guest.ok("umount /disk");
                if said.code != 0 {
                    return Err(said.errors);
                }
                said.output.into_bytes()
            }
            None => {
                self.mount()?;
                let archive = self.folder.with_file_name("state.tar");
                let mut pack = Command::new("sh");
                let said = pack.args(["-c", PACK]).env("ARCHIVE", archive).current_dir(&self.folder).output().unwrap();
                self.unmount();
                if !said.status.success() {
                    return Err(String::from_utf8_lossy(&said.stderr).into_owned());
                }
                said.stdout
            }
        };
        Ok(FoundState::open(&BASE64_STANDARD.decode(packed.trim_ascii()).unwrap()))
    }

    /// What every boot does before it mounts a file system that was not unmounted and has no journal.
    fn check_file_system(&mut self) {
        if self.file_system.kind != "ext4" {
            return;
        }
        let program = fetched(&cache().join("root"), "e2fsck");
        let run = |how: &str| {
            let mut command = Command::new(&program[0]);
            command.args(&program[1..]).arg(how).arg(&self.disk).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().unwrap().code()
        };
        match run("-p") {
            Some(0) => return,
            Some(1 | 2) => {}
            // What it does not dare by itself, a person at the console would be asked for.
            Some(4) => {
                self.asked += 1;
                assert!(run("-y").is_some_and(|code| code < 4), "{} cannot be repaired", self.file_system.name);
            }
            code => panic!("{}: e2fsck ends with {code:?}", self.file_system.name),
        }
        self.repaired += 1;
    }
}

/// What is known of each claim.
struct FoundState(BTreeMap<String, Result<(RecordState, Vec<String>), String>>);

impl FoundState {
    fn open(archive: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("state.tar.gz"), archive).unwrap();
        let unpacked = Command::new("tar").args(["-xzf", "state.tar.gz"]).current_dir(folder.path()).status().unwrap();
        assert!(unpacked.success());
        let records = RecordDir::open(folder.path().join("claims"), "the next boot").unwrap();
        let claim = |loaded: hostler::claims::store::LoadedRecord| {
            let devices = |record: &hostler::claims::store::ClaimRecord| {
                record.devices.iter().map(|device| device.grant.device.to_string()).collect()
            };
            (loaded.uid.to_string(), loaded.record.map(|record| (record.state, devices(&record))))
        };
        Self(records.load().unwrap().into_iter().map(claim).collect())
    }

    /// The promises that are not kept.
    fn broken(&self, promises: &Promises) -> Vec<String> {
        let promises = promises.by_uid();
        let mut broken = Vec::new();
        for (uid, (promise, slot)) in &promises {
            let expected = Some(Ok((RecordState::Prepared, cards(*slot))));
            let found = self.0.get(uid).cloned();
            if *promise == Promise::Whole && found != expected {
                broken.push(format!("{uid} was promised, and is {found:?}"));
            }
        }
        let returned = self.0.iter().filter(|(uid, _)| !promises.contains_key(*uid));
        broken.extend(returned.map(|(uid, found)| format!("{uid} is gone, and is there as {found:?}")));
        broken
    }
}
