//! From a uevent to a changed inventory, in a storm of events, through the kernel's own socket.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_linux::testkit::MachineTree;
use hostler_testing::{
    host::wait_for,
    uevents::{UeventDatagram, UeventInjector},
};
use nix::sched::{CloneFlags, unshare};

use super::{
    cluster::cpu,
    report::{Amount, Report},
    rig::Rig,
    samples::{Millis, Samples},
    synthetic::{self, Quarters},
};

const MOST_ADD: Duration = Duration::from_millis(350);
const MOST_REMOVE: Duration = Duration::from_millis(50);
const EVENTS: usize = 10_000;
/// Cards that change in one storm, spread over it.
const CARDS: u32 = 10;
const STORMS: usize = 20;

/// Devices of every kind that the other events are about.
const NOISE: [(&str, &str); 4] = [
    ("memory", "/devices/system/memory/memory5"),
    ("cxl", "/devices/platform/ACPI0017:00/root0/port1/endpoint101"),
    ("pci", "/devices/pci0004:00/0004:00:00.0"),
    ("cpu", "/devices/system/cpu/cpu5"),
];

pub(crate) fn measure(report: &mut Report) {
    // A network namespace of our own, with everything that this thread starts in it.
    let measured = thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET).map(|()| storms())).join().unwrap();
    let how = format!(
        "made-up host as above, real netlink socket in a network namespace; {STORMS} storms of {EVENTS} events, sent as fast as the \
         kernel takes them, in each {CARDS} FPGA cards that change; from the event until the log says so"
    );
    let (adds, removes) = match measured {
        Ok(measured) => measured,
        Err(error) => {
            return report.skipped(
                "uevent to changed inventory",
                &format!("needs root, or `unshare -Urn`: {error}"),
                &how,
            );
        }
    };
    for (what, most, storm) in [("addition", MOST_ADD, adds), ("removal", MOST_REMOVE, removes)] {
        let samples = Samples::new(storm.times);
        let detail = format!("p50 {}, {}", Millis(samples.median()), samples.tail());
        let figure = format!("uevent to changed inventory, {what}, p99");
        report.at_most(&figure, Amount::Time(most), Amount::Time(samples.percentile(99)), &detail, &how);
        let how = "user and system time of the daemon, until a second after the storm";
        report.context(
            &format!("CPU time per storm of {what}s"),
            Millis(storm.cpu / u32::try_from(STORMS).unwrap()).to_string(),
            how,
        );
    }
}

#[derive(Default)]
struct Storms {
    times: Vec<Duration>,
    cpu: Duration,
}

/// Storms of additions and storms of removals, in turn.
fn storms() -> (Storms, Storms) {
    let tree = MachineTree::new();
    synthetic::plug(&tree, Quarters(4));
    let mut rig = Rig::on(&tree.path(""), "[inventory]\nuevents = \"kernel\"\nrescan = \"1h\"\n");
    rig.host.start();
    let bench = Bench { rig, tree, injector: UeventInjector::new() };
    let (mut adds, mut removes) = (Storms::default(), Storms::default());
    for _ in 0..STORMS {
        bench.storm("remove", &mut removes);
        bench.storm("add", &mut adds);
    }
    (adds, removes)
}

struct Bench {
    rig: Rig,
    tree: MachineTree,
    injector: UeventInjector,
}

impl Bench {
    fn storm(&self, action: &str, storms: &mut Storms) {
        let log_before = self.rig.host.log().len();
        let cpu_before = cpu(self.rig.host.pid());
        let noise = NOISE.map(|(subsystem, devpath)| UeventDatagram::new(action, devpath, subsystem));
        let mut sent = BTreeMap::new();
        for event in 0..EVENTS {
            let (card, rest) = (event * CARDS as usize / EVENTS, event % (EVENTS / CARDS as usize));
            if rest == EVENTS / CARDS as usize / 2 {
                sent.insert(self.change(action, u32::try_from(card).unwrap()), SystemTime::now());
            }
            self.injector.send(&noise[event % noise.len()]);
        }
        let seen = wait_for("all changes", || {
            let seen = seen(&self.rig.host.log()[log_before..], action);
            thread::sleep(Duration::from_millis(10));
            sent.keys().all(|device| seen.contains_key(device)).then_some(seen)
        });
        storms.times.extend(sent.iter().map(|(device, sent)| since_midnight(*sent).abs_diff(seen[device])));
        // What comes after the last change costs as well.
        thread::sleep(Duration::from_secs(1));
        storms.cpu += cpu(self.rig.host.pid()) - cpu_before;
    }

    /// A card comes or goes, and the kernel says so. Gives the name of its device.
    fn change(&self, action: &str, number: u32) -> String {
        let user = synthetic::xrt_card(number).user;
        let (link, folder) = (format!("sys/bus/pci/devices/{}", user.address), user.folder());
        match action {
            "add" => drop(self.tree.link(&link, &folder)),
            _ => drop(self.tree.remove(&link)),
        }
        let devpath = folder.to_str().unwrap().strip_prefix("sys").unwrap();
        self.injector.send(&UeventDatagram::new(action, devpath, "pci"));
        format!("xrt-{}", user.address.replace([':', '.'], "-"))
    }
}

/// When the log says that devices came or went, after midnight.
fn seen(log: &str, action: &str) -> BTreeMap<String, Duration> {
    let change = if action == "add" { "change=added" } else { "change=removed" };
    let lines = log.lines().filter(|line| line.ends_with(change));
    lines
        .filter_map(|line| {
            let (time, rest) = line.split_once('Z')?;
            let device = rest.split_once("device=\"")?.1.split_once('"')?.0;
            let mut parts = time.split_once('T')?.1.split(':');
            let mut part = || parts.next()?.parse::<f64>().ok();
            Some((device.to_owned(), Duration::from_secs_f64(part()? * 3600.0 + part()? * 60.0 + part()?)))
        })
        .collect()
}

fn since_midnight(time: SystemTime) -> Duration {
    let since = time.duration_since(UNIX_EPOCH).unwrap();
    Duration::new(since.as_secs() % 86_400, since.subsec_nanos())
}
