//! What a container runtime waits for that has the daemon as its plugin, and how soon containers leave the CPUs of a claim.

use std::{
    slice, thread,
    time::{Duration, Instant},
};

use hostler_testing::nri::{ContainerSpec, NriRuntime};

use super::{
    machine,
    report::{Amount, Report},
    rig::Rig,
    samples::Samples,
};

/// Containers without a claim, which run the whole time.
const SHARED: usize = 200;
const CREATIONS: usize = 1000;
const UPDATES: usize = 25;
const MOST_CREATION: Duration = Duration::from_millis(1);
const MOST_UPDATE: Duration = Duration::from_millis(50);

pub(crate) fn measure(report: &mut Report) {
    let creation = "CreateContainer, as the runtime waits for it, p99";
    let update = "200 containers leave the CPUs of a new claim, median";
    let how = "a runtime that speaks NRI and does nothing, a captured machine with 128 CPUs, 200 containers in the shared pool";
    let Some(mut rig) = Rig::large(&machine::disk()) else {
        return [creation, update].iter().for_each(|figure| report.skipped(figure, "the captures are not here", how));
    };
    let socket = rig.host.path("nri.sock");
    let socket_text = socket.display().to_string();
    rig.configure(&format!("[nri]\nenabled = true\nsocket = {socket_text:?}\nshared_pool = \"exclude-exclusive\"\n"));
    let runtime = NriRuntime::listen(&socket);
    rig.host.start();
    runtime.wait_for_plugin();
    let run = |number: usize| runtime.run(&ContainerSpec::new("pod", &format!("c{number}"))).unwrap();
    let shared: Vec<String> = (0..SHARED).map(run).collect();

    let samples = Samples::new((0..CREATIONS).map(|_| creation_time(&runtime)).collect());
    let p99 = Amount::Time(samples.percentile(99));
    report.at_most(creation, Amount::Time(MOST_CREATION), p99, &samples.tail(), how);

    let mut plugin = rig.register();
    let times = (0..UPDATES).flat_map(|number| {
        let claim = rig.cpu_claim(number);
        let shrinks = change_time(&runtime, &shared, || _ = rig.prepare(&mut plugin, slice::from_ref(&claim)));
        let grows = change_time(&runtime, &shared, || _ = rig.unprepare(&mut plugin, slice::from_ref(&claim)));
        [shrinks, grows]
    });
    let samples = Samples::new(times.collect());
    let how = format!("{how}; from the kubelet's call to the last container, preparing and taking back in turn");
    report.median_at_most(update, MOST_UPDATE, &samples, &how);
}

fn creation_time(runtime: &NriRuntime) -> Duration {
    let asked = ContainerSpec::new("pod", "new");
    let start = Instant::now();
    let id = runtime.create(&asked).unwrap();
    let took = start.elapsed();
    runtime.remove_container(&id).unwrap();
    took
}

/// Until no container has the CPUs any more that it had before the change.
fn change_time(runtime: &NriRuntime, ids: &[String], change: impl FnOnce()) -> Duration {
    let before = runtime.cpus(&ids[0]);
    let start = Instant::now();
    change();
    while ids.iter().any(|id| runtime.cpus(id) == before) {
        thread::sleep(Duration::from_micros(200));
    }
    start.elapsed()
}
