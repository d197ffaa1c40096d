//! The committed cases of the parity tests, or those of the file that `HOSTLER_CASES` names: what one allocation takes,
//! beside upstream's allocator where `HOSTLER_ORACLES` names the program that asks it, as for the parity tests.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use hostler_allocator::structured::{
    AllocatedState, Allocator, Budget, CompiledClaims, Feature, Features, NodeFacts, Quirks, SliceIndex, Variant,
};
use hostler_api::KubernetesVersion;
use hostler_api::resource::{ResourceClaim, ResourceSlice, SliceQuantity};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::measure::{fastest, median, report};

const VERSION: KubernetesVersion = KubernetesVersion::V1_36;
/// Each case is asked so often in a round, and of so many rounds the fastest counts.
const REPETITIONS: u32 = 100;
const ROUNDS: usize = 5;
/// So many cases in which upstream is nearest are named.
const NEAREST: usize = 5;
/// A few cases are there because they take millions of steps, or selectors that cost as much as they may.
const MOST_STEPS: u64 = 2_000;
const LONGEST: Duration = Duration::from_millis(1);

/// A case, read.
struct Case {
    name: String,
    line: String,
    allocator: Allocator,
    node: String,
    labels: BTreeMap<String, String>,
    slices: Vec<ResourceSlice>,
    claims: Vec<ResourceClaim>,
    state: AllocatedState,
}

/// What one allocation comprises, on both sides. Selectors have been compiled before, and what others hold has been put
/// together: upstream has a cache for the former and is given the latter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scope {
    /// One pod on one node: slices are sorted by node, claims are read, pools are gathered, devices are searched.
    Everything,
    /// One node of many for one pod: both sides keep what they can of what does not depend on the node. Upstream keeps
    /// the slices of each node and reads claims again; here claims are kept, too.
    OneNode,
}

/// Times every case, and says how much faster that is than upstream.
pub(crate) fn measure() {
    let mut cases: Vec<Case> = lines().iter().filter_map(|line| Case::read(line)).collect();
    report("cases", cases.len(), "");
    cases.retain(|case| case.everything() < MOST_STEPS && median(3, || case.everything()).0 < LONGEST);
    report("  of these not made to take long", cases.len(), "");
    for scope in [Scope::Everything, Scope::OneNode] {
        let ours: Vec<f64> = cases.iter().map(|case| case.nanoseconds(scope)).collect();
        report(&format!("{scope:?}: median of one allocation"), format!("{:.0} ns", median_of(&ours)), "");
        let programs = std::env::var("HOSTLER_ORACLES").unwrap_or_default();
        for program in programs.split(':').filter(|program| !program.is_empty()) {
            compare(program, scope, &cases, &ours);
        }
    }
}

fn compare(program: &str, scope: Scope, cases: &[Case], ours: &[f64]) {
    let theirs = ask(program, scope, cases);
    let answered = ours.iter().zip(theirs).zip(cases);
    let mut pairs: Vec<(f64, f64, &str)> =
        answered.filter_map(|((ours, theirs), case)| Some((*ours, theirs?, &*case.name))).collect();
    pairs.sort_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
    let geometric =
        (pairs.iter().map(|(ours, theirs, _)| (theirs / ours).ln()).sum::<f64>() / pairs.len() as f64).exp();
    let sum = |of: fn(&(f64, f64, &str)) -> f64| pairs.iter().map(of).sum::<f64>();
    let theirs = pairs.iter().map(|it| it.1).collect::<Vec<_>>();
    report(&format!("{program}: cases that both answer"), pairs.len(), "");
    report("  median of one allocation", format!("{:.0} ns", median_of(&theirs)), "");
    report("  so many times our time, geometric mean", format!("{geometric:.1}"), "≥ 8");
    report("  all cases together", format!("{:.1}", sum(|it| it.1) / sum(|it| it.0)), "≥ 8");
    for (ours, theirs, name) in pairs.iter().take(NEAREST) {
        report(&format!("  {name}: {theirs:.0} / {ours:.0} ns"), format!("{:.1}", theirs / ours), "> 1");
    }
}

/// Nanoseconds of one allocation, by case; nothing where the program has no answer.
fn ask(program: &str, scope: Scope, cases: &[Case]) -> Vec<Option<f64>> {
    let mut child = Command::new(program)
        .args(["time", "-n", &REPETITIONS.to_string(), "-rounds", &ROUNDS.to_string(), "-variant", "default"])
        .args((scope == Scope::OneNode).then_some("-reuse"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text: String = cases.iter().map(|case| format!("{}\n", case.line)).collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let times = |line: &str| {
        let reply: Value = serde_json::from_str(line).ok()?;
        // They come sorted.
        reply["answers"][0]["ns"].as_array()?.first()?.as_f64()
    };
    String::from_utf8(output.stdout).unwrap().lines().map(times).collect()
}

fn median_of(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn lines() -> Vec<String> {
    let lines = |file: &Path| std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    if let Some(file) = std::env::var_os("HOSTLER_CASES") {
        return lines(Path::new(&file));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files.iter().flat_map(|file| lines(file)).collect()
}

fn typed<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

fn list<T: DeserializeOwned>(value: &Value) -> Option<Vec<T>> {
    value.as_array().map_or(Some(Vec::new()), |items| items.iter().map(typed).collect())
}

impl Case {
    /// Cases with objects that the API server would not take are not for the clock.
    fn read(line: &str) -> Option<Self> {
        let mut case: Value = serde_json::from_str(line).ok()?;
        let features: Features = list::<Feature>(&case["features"])?.into_iter().collect();
        let quirks = Quirks::of(VERSION, Variant::at_work(VERSION, features));
        for claim in case["claims"].as_array_mut().into_iter().flatten() {
            claim["apiVersion"] = json!("resource.k8s.io/v1");
            claim["kind"] = json!("ResourceClaim");
        }
        Some(Self {
            name: case["name"].as_str()?.to_owned(),
            line: line.to_owned(),
            allocator: Allocator::new(features, quirks, list::<hostler_api::resource::DeviceClass>(&case["classes"])?),
            node: case["node"]["metadata"]["name"].as_str()?.to_owned(),
            labels: typed(&case["node"]["metadata"]["labels"]).unwrap_or_default(),
            slices: list(&case["slices"])?,
            claims: list(&case["claims"])?,
            state: state(&case["allocated"])?,
        })
    }

    /// Of the fastest round: what else the machine does takes time from the others.
    fn nanoseconds(&self, scope: Scope) -> f64 {
        let round = match scope {
            Scope::Everything => fastest(ROUNDS, || (0..REPETITIONS).map(|_| self.everything()).sum::<u64>()),
            Scope::OneNode => {
                let (index, claims) = (SliceIndex::new(&self.slices), self.allocator.compile(&self.claims));
                fastest(ROUNDS, || (0..REPETITIONS).map(|_| self.one_node(&index, &claims)).sum::<u64>())
            }
        };
        round.as_nanos() as f64 / f64::from(REPETITIONS)
    }

    fn everything(&self) -> u64 {
        self.one_node(&SliceIndex::new(&self.slices), &self.allocator.compile(&self.claims))
    }

    /// From slices to pools, and the search. The answer is its steps.
    fn one_node<'s>(&'s self, index: &SliceIndex<'s>, claims: &CompiledClaims<'_>) -> u64 {
        let node = NodeFacts { name: &self.node, labels: &self.labels };
        let mut budget = Budget::steps(2 * MOST_STEPS);
        let Ok(pools) = self.allocator.gather(node, index) else { return 0 };
        let _ = std::hint::black_box(self.allocator.find(&pools, &self.state, claims, &mut budget));
        budget.used()
    }
}

fn state(allocated: &Value) -> Option<AllocatedState> {
    let mut state = AllocatedState::new();
    let each = |name: &str| allocated[name].as_array().cloned().unwrap_or_default();
    let text = |item: &Value, name: &str| item[name].as_str().map(str::to_owned);
    let key = |item: &Value| Some([text(item, "driver")?, text(item, "pool")?, text(item, "device")?]);
    for device in each("devices") {
        let [driver, pool, device] = key(&device)?;
        state.hold(&driver, &pool, &device);
    }
    for share in each("shares") {
        let [driver, pool, device] = key(&share)?;
        state.share(&driver, &pool, &device, &text(&share, "shareID")?);
    }
    for consumed in each("capacity") {
        let [driver, pool, device] = key(&consumed)?;
        let amounts: BTreeMap<String, SliceQuantity> = typed(&consumed["capacity"])?;
        state.consume(&driver, &pool, &device, amounts.iter().map(|(name, amount)| (&**name, amount)));
    }
    Some(state)
}
