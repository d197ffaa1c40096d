//! The backend as the daemon sees it.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use hostler_api::{Access, ClaimUid, DeviceName, Grant, Quantity, ShareId};
use hostler_backend::{
    Backend, BackendError, DevicePlan, Enumeration, Health, HeldDevice, PlanWork, PrepareWork, UnprepareWork,
    VerifyWork,
    testkit::{Effect, Samples, conformance},
};

use crate::{FakeBackend, FakeBackendConfig, KILL_EXIT_CODE};

/// A script in a folder of its own, and the backend that reads it.
struct ScriptBench {
    dir: tempfile::TempDir,
    backend: FakeBackend,
}

impl ScriptBench {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = FakeBackendConfig { script: dir.path().join("fake.toml"), state_dir: None };
        let bench = Self { dir, backend: FakeBackend::new(config) };
        bench.write(script);
        bench
    }

    fn config(&self) -> FakeBackendConfig {
        FakeBackendConfig { script: self.dir.path().join("fake.toml"), state_dir: None }
    }

    fn write(&self, script: &str) {
        fs::write(self.config().script, script).unwrap();
    }

    /// The names in the folder that stands for the hardware.
    fn state(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.config().state_dir()) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn names(&self) -> Vec<String> {
        let Enumeration { devices, .. } = self.backend.enumerate().unwrap();
        devices.iter().map(|device| device.name.to_string()).collect()
    }

    fn health(&self) -> Health {
        self.backend.enumerate().unwrap().devices.remove(0).health
    }

    fn plan(&self, claim: &HeldClaim, held: &[HeldDevice<'_>]) -> Result<DevicePlan, BackendError> {
        let devices = self.backend.enumerate().unwrap().devices;
        let device = devices.iter().find(|device| device.name == claim.grant.device).unwrap();
        self.backend.plan(&PlanWork {
            claim: &claim.uid,
            claim_name: &claim.name,
            grant: &claim.grant,
            device,
            held,
            within: None,
        })
    }

    fn prepare(&self, claim: &HeldClaim) -> Result<(), BackendError> {
        let devices = self.backend.enumerate().unwrap().devices;
        let device = devices.iter().find(|device| device.name == claim.grant.device).unwrap();
        let (claim, grant, plan) = (&claim.uid, &claim.grant, &claim.plan);
        self.backend.prepare(&PrepareWork { claim, grant, device, plan }).map(drop)
    }

    fn verify(&self, claim: &HeldClaim) -> Result<(), BackendError> {
        self.backend.verify(&VerifyWork { claim: &claim.uid, grant: &claim.grant, plan: &claim.plan })
    }

    fn unprepare(&self, claim: &HeldClaim) -> Result<(), BackendError> {
        self.backend.unprepare(&UnprepareWork { claim: &claim.uid, grant: &claim.grant, plan: &claim.plan })
    }
}

struct HeldClaim {
    uid: ClaimUid,
    name: String,
    grant: Grant,
    plan: DevicePlan,
}

fn claim(name: &str, device: &str) -> HeldClaim {
    let grant = Grant {
        request: "r".to_owned(),
        pool: "node/fake".to_owned(),
        device: DeviceName::new(device).unwrap(),
        share_id: None,
        access: Access::Use,
        consumed: BTreeMap::new(),
        config: Vec::new(),
    };
    HeldClaim { uid: ClaimUid::new(name).unwrap(), name: format!("default/{name}"), grant, plan: DevicePlan::default() }
}

fn held(claim: &HeldClaim) -> HeldDevice<'_> {
    HeldDevice { claim: &claim.uid, claim_name: &claim.name, grant: &claim.grant, plan: &claim.plan }
}

fn consuming(name: &str, device: &str, memory: u64) -> HeldClaim {
    let mut claim = claim(name, device);
    claim.grant.consumed.insert(hostler_api::QualifiedName::new("memory").unwrap(), Quantity::whole(memory));
    claim
}

const ONE: &str = "[[device]]\nname = \"a\"\n";

#[test]
fn the_fake_keeps_what_every_backend_promises() {
    let bench = ScriptBench::new(
        r#"
        [[device]]
        name = "gpu"
        count = 3
        sharing = "shared"
        capacity.memory = { value = "16Gi", min = "1Gi", step = "1Gi", default = "2Gi" }
        capacity.engines = 4
        edits = { env = ["GPU={n}"], deviceNodes = [{ path = "/dev/null" }] }
        [[device]]
        name = "tape"
        numa_node = 0
        [[device]]
        name = "old"
        health = "unhealthy"
        reason = "worn out"
        "#,
    );
    let observe = || bench.state().join("\n");
    let restart = || Box::new(FakeBackend::new(bench.config())) as Box<dyn Backend>;
    let samples = Samples {
        configs: vec![Vec::new(), vec![serde_json::json!({"mode": "fast"})]],
        effect: Effect::Visible,
        observe: Some(&observe),
        restart: Some(&restart),
    };
    conformance(&bench.backend, &samples);
}

#[test]
fn devices_come_and_go_with_the_file() {
    let bench = ScriptBench::new(ONE);
    assert_eq!(bench.names(), ["a"]);
    bench.write("[[device]]\nname = \"b\"\ncount = 2");
    assert_eq!(bench.names(), ["b-0", "b-1"]);
    bench.write("");
    assert_eq!(bench.names(), [""; 0]);
}

#[test]
fn a_script_that_cannot_be_used_fails_enumerate_and_says_why() {
    let bench = ScriptBench::new("[[device]]\nnaem = \"a\"");
    let error = bench.backend.enumerate().unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(matches!(error, BackendError::Enumerate { .. }), "{error:?}");
    assert!(cause.contains("fake.toml, line 2, device[0].naem: unknown field"), "{cause}");
    fs::remove_file(bench.config().script).unwrap();
    assert!(bench.backend.enumerate().is_err());
}

#[test]
fn what_is_prepared_can_be_taken_back_without_a_script() {
    let bench = ScriptBench::new(ONE);
    let claim = claim("c1", "a");
    bench.prepare(&claim).unwrap();
    fs::remove_file(bench.config().script).unwrap();
    FakeBackend::new(bench.config())
        .unprepare(&UnprepareWork { claim: &claim.uid, grant: &claim.grant, plan: &claim.plan })
        .unwrap();
    assert_eq!(bench.state(), [""; 0]);
}

#[test]
fn the_hardware_is_one_file_per_claim_device_and_share() {
    let bench = ScriptBench::new(ONE);
    let mut claim = claim("c1", "a");
    claim.plan = bench.plan(&claim, &[]).unwrap();
    bench.prepare(&claim).unwrap();
    claim.grant.share_id = Some(ShareId("../x".to_owned()));
    bench.prepare(&claim).unwrap();
    assert_eq!(bench.state(), ["c1.a", "c1.a._2e_2e_2fx"]);
    let found: DevicePlan =
        serde_json::from_slice(&fs::read(bench.config().state_dir().join("c1.a")).unwrap()).unwrap();
    assert_eq!(found, claim.plan);
    assert_eq!(found.data["device"], "a");
}

#[test]
fn verify_notices_lost_and_changed_hardware() {
    let bench = ScriptBench::new(ONE);
    let claim = claim("c1", "a");
    bench.prepare(&claim).unwrap();
    bench.verify(&claim).unwrap();
    fs::write(bench.config().state_dir().join("c1.a"), "{}").unwrap();
    assert!(bench.verify(&claim).unwrap_err().to_string().contains("something else"));
    // A reboot, and what the daemon does after it.
    fs::remove_dir_all(bench.config().state_dir()).unwrap();
    assert!(bench.verify(&claim).unwrap_err().to_string().contains("is not there"));
    bench.prepare(&claim).unwrap();
    bench.verify(&claim).unwrap();
}

#[test]
fn verify_fails_for_a_device_that_is_gone_or_broken() {
    let bench = ScriptBench::new(ONE);
    let claim = claim("c1", "a");
    bench.prepare(&claim).unwrap();
    bench.write("[[device]]\nname = \"a\"\nhealth = \"unhealthy\"\nreason = \"smoke\"");
    assert_eq!(bench.verify(&claim).unwrap_err().to_string(), "device is not usable: a is unhealthy: smoke");
    bench.write("");
    assert_eq!(bench.verify(&claim).unwrap_err().to_string(), "device is not usable: a is not there any more");
}

#[test]
fn health_changes_after_as_many_enumerations_as_the_script_says() {
    let script = format!("{ONE}health_change = [{{ enumerations = 2, health = \"unhealthy\", reason = \"hot\" }}]");
    let bench = ScriptBench::new(&script);
    let hot = Health::Unhealthy { reason: "hot".to_owned() };
    assert_eq!([bench.health(), bench.health(), bench.health()], [Health::Healthy, Health::Healthy, hot]);
    bench.write(&format!("# anew\n{script}"));
    assert_eq!(bench.health(), Health::Healthy);
}

#[test]
fn an_exclusive_device_is_refused_with_the_name_of_its_holder() {
    let bench = ScriptBench::new(ONE);
    let (first, mut second) = (claim("c1", "a"), claim("c2", "a"));
    let error = bench.plan(&second, &[held(&first)]).unwrap_err();
    assert_eq!(error.to_string(), "device a is held by default/c1");
    second.grant.access = Access::Admin;
    assert!(bench.plan(&second, &[held(&first)]).is_ok());
    assert!(bench.plan(&claim("c2", "a"), &[held(&second)]).is_ok(), "an administrator does not take the device");
}

#[test]
fn a_shared_device_gives_no_more_than_it_has() {
    let bench =
        ScriptBench::new("[[device]]\nname = \"a\"\nsharing = \"shared\"\ncapacity.memory = { value = 8, min = 1 }");
    let first = consuming("c1", "a", 6);
    assert!(bench.plan(&consuming("c2", "a", 2), &[held(&first)]).is_ok());
    let error = bench.plan(&consuming("c2", "a", 3), &[held(&first)]).unwrap_err();
    let expected = "device a has 2 of memory left, and 3 was asked for; the rest is held by default/c1";
    assert_eq!(error.to_string(), expected);
    assert!(bench.plan(&claim("c2", "a"), &[held(&first)]).is_err(), "no amount means the whole");
}

#[test]
fn configuration_that_is_no_object_is_refused() {
    let bench = ScriptBench::new(ONE);
    let mut claim = claim("c1", "a");
    claim.grant.config = vec![serde_json::json!({"mode": "slow"}), serde_json::json!({"mode": "fast"})];
    assert_eq!(bench.plan(&claim, &[]).unwrap().data["config"]["mode"], "fast");
    claim.grant.config.push(serde_json::json!(3));
    assert!(matches!(bench.plan(&claim, &[]), Err(BackendError::Config { .. })));
}

#[test]
fn of_this_drivers_kinds_the_fake_takes_its_own_and_leaves_placement_to_the_daemon() {
    let bench = ScriptBench::new(ONE);
    let mut claim = claim("c1", "a");
    let of_kind = |kind: &str| serde_json::json!({"apiVersion": "hostler.dev/v1alpha1", "kind": kind});
    claim.grant.config = vec![of_kind("FakeConfig"), of_kind("PlacementConfig")];
    assert_eq!(bench.plan(&claim, &[]).unwrap().data["config"]["kind"], "FakeConfig");
    claim.grant.config = vec![of_kind("CpuConfig"), of_kind("FakConfig")];
    let error = bench.plan(&claim, &[]).unwrap_err().to_string();
    assert!(error.contains("CpuConfig says nothing to the fake device a"), "{error}");
    assert!(error.contains("did you mean FakeConfig?"), "{error}");
}

#[test]
fn a_fault_skips_strikes_and_stops() {
    let bench =
        ScriptBench::new(&format!("{ONE}[[fault]]\nstep = \"prepare\"\nskip = 1\ntimes = 2\nerror = \"no power\""));
    let claim = claim("c1", "a");
    let results: Vec<bool> = (0..5).map(|_| bench.prepare(&claim).is_ok()).collect();
    assert_eq!(results, [true, false, false, true, true]);
}

#[test]
fn a_new_script_counts_anew() {
    let script = format!("{ONE}[[fault]]\nstep = \"verify\"\ntimes = 1\nerror = \"no light\"");
    let bench = ScriptBench::new(&script);
    let claim = claim("c1", "a");
    bench.prepare(&claim).unwrap();
    assert!(bench.verify(&claim).is_err() && bench.verify(&claim).is_ok());
    bench.write(&format!("# anew\n{script}"));
    assert!(bench.verify(&claim).is_err() && bench.verify(&claim).is_ok());
}

#[test]
fn a_fault_strikes_its_device_and_step_alone() {
    let bench = ScriptBench::new(
        "[[device]]\nname = \"a\"\ncount = 2\n[[fault]]\nstep = \"unprepare\"\ndevice = \"a-1\"\nerror = \"stuck\"",
    );
    assert!(bench.unprepare(&claim("c1", "a-0")).is_ok());
    let error = bench.unprepare(&claim("c1", "a-1")).unwrap_err();
    assert_eq!(error.to_string(), "failed to unprepare a scripted device");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "stuck");
    assert!(bench.prepare(&claim("c1", "a-1")).is_ok());
}

#[test]
fn a_fault_before_the_step_leaves_no_effect_and_one_after_it_does() {
    for (at, state) in [("before", vec![]), ("after", vec!["c1.a"])] {
        let bench =
            ScriptBench::new(&format!("{ONE}[[fault]]\nstep = \"prepare\"\nat = \"{at}\"\nerror = \"no power\""));
        assert!(bench.prepare(&claim("c1", "a")).is_err());
        assert_eq!(bench.state(), state, "{at}");
    }
}

#[test]
fn every_step_can_fail_with_the_error_of_its_kind() {
    let fault = |step| format!("{ONE}[[fault]]\nstep = \"{step}\"\nerror = \"scripted\"");
    let claim = claim("c1", "a");
    let enumerate = ScriptBench::new(&fault("enumerate")).backend.enumerate();
    assert!(matches!(enumerate, Err(BackendError::Enumerate { reason, .. }) if reason == "scripted"));
    let plan = ScriptBench::new(&fault("plan")).plan(&claim, &[]);
    assert!(matches!(plan, Err(BackendError::Refused { reason }) if reason == "scripted"));
    assert!(matches!(ScriptBench::new(&fault("prepare")).prepare(&claim), Err(BackendError::Step { .. })));
    assert!(matches!(ScriptBench::new(&fault("verify")).verify(&claim), Err(BackendError::NotUsable { .. })));
    assert!(matches!(ScriptBench::new(&fault("unprepare")).unprepare(&claim), Err(BackendError::Step { .. })));
}

#[test]
fn chance_follows_the_seed() {
    let strikes = |seed: u32| {
        let bench = ScriptBench::new(&format!(
            "seed = {seed}\n{ONE}[[fault]]\nstep = \"unprepare\"\nprobability = 0.3\nerror = \"bad luck\""
        ));
        (0..200).map(|_| bench.unprepare(&claim("c1", "a")).is_err()).collect::<Vec<bool>>()
    };
    assert_eq!(strikes(1), strikes(1));
    assert_ne!(strikes(1), strikes(2));
    let count = strikes(1).into_iter().filter(|struck| *struck).count();
    assert!((40..80).contains(&count), "3 in 10 of 200 calls, roughly: {count}");
}

#[test]
fn latencies_and_delays_take_their_time() {
    let bench =
        ScriptBench::new(&format!("[latency_ms]\nverify = 20\n{ONE}[[fault]]\nstep = \"verify\"\ndelay_ms = 30"));
    let claim = claim("c1", "a");
    bench.prepare(&claim).unwrap();
    let start = Instant::now();
    bench.verify(&claim).unwrap();
    assert!(start.elapsed().as_millis() >= 50);
}

#[test]
fn a_call_hangs_until_there_is_the_file_that_it_waits_for() {
    let bench = ScriptBench::new("");
    let file = bench.dir.path().join("go-on");
    bench.write(&format!("{ONE}[[fault]]\nstep = \"enumerate\"\nuntil = \"{}\"", file.display()));
    let enumerated = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let names = bench.names();
            enumerated.store(true, Ordering::Release);
            names
        });
        assert!(!enumerated.load(Ordering::Acquire));
        fs::write(&file, "").unwrap();
        assert_eq!(call.join().unwrap(), ["a"]);
    });
    assert_eq!(bench.names(), ["a"], "where the file stays, nothing hangs");
}

#[test]
fn warnings_are_passed_on() {
    let bench = ScriptBench::new("[[warning]]\npath = \"/sys/x\"\nreason = \"makes no sense\"");
    assert_eq!(bench.backend.enumerate().unwrap().warnings[0].reason, "makes no sense");
}

/// Runs in a process of its own, which ends in the middle of a step.
#[test]
#[ignore = "needs a script in HOSTLER_FAKE_KILLED; run by a_kill_ends_the_process_before_or_after_the_effect"]
fn killed() {
    let Some(script) = std::env::var_os("HOSTLER_FAKE_KILLED").map(PathBuf::from) else {
        return println!("skipped: HOSTLER_FAKE_KILLED is not set");
    };
    let backend = FakeBackend::new(FakeBackendConfig { script, state_dir: None });
    let device = backend.enumerate().unwrap().devices.remove(0);
    let HeldClaim { uid, grant, plan, .. } = claim("c1", "a");
    let _ = backend.prepare(&PrepareWork { claim: &uid, grant: &grant, device: &device, plan: &plan });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a process must end for this test; it is this test's own program")]
fn a_kill_ends_the_process_before_or_after_the_effect() {
    for (at, state) in [("before", vec![]), ("after", vec!["c1.a"])] {
        let bench = ScriptBench::new(&format!("{ONE}[[fault]]\nstep = \"prepare\"\nat = \"{at}\"\nkill = true"));
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::killed", "--ignored"])
            .env("HOSTLER_FAKE_KILLED", bench.config().script)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(KILL_EXIT_CODE), "{at}: {output:?}");
        assert_eq!(bench.state(), state, "{at}");
    }
}

#[test]
fn a_configuration_without_absolute_paths_is_refused() {
    let problems = |script: &str, state_dir: Option<&str>| {
        let config = FakeBackendConfig { script: script.into(), state_dir: state_dir.map(Into::into) };
        config.validate().iter().map(|problem| problem.field.clone()).collect::<Vec<_>>()
    };
    assert_eq!(problems("", None), ["script"]);
    assert_eq!(problems("fake.toml", Some("state")), ["script", "state_dir"]);
    assert_eq!(problems("/fake.toml", Some("/state")), [""; 0]);
}

#[test]
fn the_state_folder_stands_beside_the_script_unless_it_is_named() {
    let config: FakeBackendConfig = toml::from_str("script = \"/a/fake.toml\"").unwrap();
    assert_eq!(config.state_dir(), PathBuf::from("/a/fake.toml.state"));
    let config: FakeBackendConfig = toml::from_str("script = \"/a/fake.toml\"\nstate_dir = \"/b\"").unwrap();
    assert_eq!(config.state_dir(), PathBuf::from("/b"));
    assert!(toml::from_str::<FakeBackendConfig>("scirpt = \"/a\"").is_err());
}
