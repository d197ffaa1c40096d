//! Uses of the command line, right ones and wrong ones, with the real binary: exit codes, and what is said.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use hostler_testing::{
    binary::binary,
    host::{Host, SCRIPT},
};

/// A use: the words behind `hostler`, the exit code, and texts of the output. Words with a blank are in single quotes.
type CliUse = (&'static str, i32, &'static [&'static str]);

/// Uses that work; the texts are on standard output.
const RIGHT: &[CliUse] = &[
    ("--help", 0, &["Usage: hostler <COMMAND>", "Exit codes: 0 done"]),
    ("--version", 0, &["hostler "]),
    ("help claim create", 0, &["claim create [OPTIONS] -f <FILE>", "jsonpath="]),
    ("claim --help", 0, &["inspect", "Show everything about one claim"]),
    ("inventory --root machine", 0, &["numa0", "memory=1 GiB"]),
    ("inventory --root machine -o name", 0, &["cpu/numa0\n"]),
    ("inventory --root machine -o tree", 0, &["package 0"]),
    ("inventory --root machine -o jsonpath={.devices[?(@.backend==\"cpu\")].name}", 0, &["numa0"]),
    ("inventory --root machine -o custom-columns=NODE:.node", 0, &["NODE\ncaptured\n"]),
    ("diff machine machine", 0, &[]),
    ("config check good.toml", 0, &["good.toml is in order\n"]),
    ("config check --config good.toml", 0, &["good.toml is in order\n"]),
    ("config show good.toml", 0, &["driver = \"hostler.dev\""]),
    ("cdi list --dir cdi-good", 0, &["a.b/c=d"]),
    ("cdi list --dir cdi-good -o name", 0, &["a.b/c=d\n"]),
    ("cdi list --dir cdi-good -o jsonpath={.items[*].device}", 0, &["a.b/c=d"]),
    ("cdi validate cdi-good", 0, &["cdi-good/x.json: valid\n"]),
    ("validate claim.yaml", 0, &["1 object checked, 0 problems\n"]),
    ("completions zsh", 0, &["HOSTLER_COMPLETE"]),
    ("man pages", 0, &["wrote the manual pages to pages"]),
    ("bitstream list --config hostler.toml", 0, &["NAME"]),
    ("status --config hostler.toml", 0, &["ready    no: the kubelet has not registered the driver yet"]),
    ("status -o jsonpath={.node} SOCKET", 0, &["node"]),
    ("ready --alive SOCKET", 0, &["ok\n"]),
    ("claim list SOCKET", 0, &["NAMESPACE", "train"]),
    ("claim list -n elsewhere -o name SOCKET", 0, &[]),
    ("claim list -o custom-columns=CLAIM:.name,STATE:.state SOCKET", 0, &["CLAIM  STATE\ntrain  prepared\n"]),
    ("claim show train SOCKET", 0, &["claim    default/train", "state    prepared"]),
    ("claim show default/train -o cdi SOCKET", 0, &["hostler.dev/claim="]),
    ("claim show u1 -o 'jsonpath={range .devices[*]}{.device}{\"\\n\"}{end}' SOCKET", 0, &["card-0\n", "pool\n"]),
    (
        "claim inspect train SOCKET",
        0,
        &["claim    default/train", "files:\n", "device   fake/card-0\n", "what is known:\n"],
    ),
    ("claim inspect u1 -o jsonpath={.hardware[*].name} SOCKET", 0, &["card-0 pool"]),
    ("claim create dry -d fake/card-2 --dry-run SOCKET", 0, &["dry run: nothing was changed"]),
    ("device list SOCKET", 0, &["fake/card-7  free"]),
    ("device show card-1 -o yaml SOCKET", 0, &["kind: Device"]),
    ("device undrain fake/card-3 SOCKET", 0, &["fake/card-3 is in service"]),
    ("explain claim train SOCKET", 0, &["claim default/train, uid u1: prepared"]),
    ("events -o name SOCKET", 0, &["daemon/node\n"]),
    ("pods SOCKET", 0, &["default/train"]),
    ("top --once SOCKET", 0, &["default/train"]),
    ("top -o jsonpath={.holders[0].name} SOCKET", 0, &["train"]),
];

/// Uses that do not work. The texts say what is wrong, where, and the way on; a verdict is on standard output, and
/// everything else on standard error.
const WRONG: &[CliUse] = &[
    ("", 2, &["Usage: hostler <COMMAND>"]),
    ("fly", 2, &["unrecognized subcommand 'fly'", "--help"]),
    ("inventry", 2, &["'inventry'", "a similar subcommand exists: 'inventory'"]),
    ("inventory --colour", 2, &["unexpected argument '--colour'", "--help"]),
    ("inventory -o jsn", 2, &["'jsn' for '--output <OUTPUT>'", "jsonpath=…", "a similar value exists: 'json'"]),
    ("inventory -o jsonpath={.devices[*}", 2, &["column 12: expected ], found }"]),
    (
        "claim list -o jsonpath={range .items[*]}{.name} SOCKET",
        2,
        &["unexpected argument '.items[*]}{.name}'", "--help"],
    ),
    ("claim list -o 'jsonpath={range .items[*]}{.name}' SOCKET", 2, &["column 1: no {end} closes this {range}"]),
    ("claim list -o custom-columns=NAME SOCKET", 2, &["custom-columns=NAME", "column 5: expected :"]),
    ("top -o custom-columns=A:.a,:.b SOCKET", 2, &["column 6: expected HEADING:PATH, such as NAME:.name"]),
    ("inventory --root text.txt", 1, &["text.txt is no capture: name a .tar.zst file that `hostler capture` made"]),
    ("inventory --root /dev/null", 1, &["/dev/null is no capture: name a .tar.zst file"]),
    (
        "inventory --root absent",
        1,
        &["absent is not there: name a .tar.zst file", "a folder that holds sys/ and proc/"],
    ),
    ("inventory --root machine --backend gpu", 1, &["no backend \"gpu\" is enabled; see `hostler config show`"]),
    ("diff machine absent", 2, &["absent is not there: name a .tar.zst file"]),
    ("doctor --root text.txt", 1, &["text.txt is no capture: name a .tar.zst file"]),
    ("capture", 2, &["--output <FILE.tar.zst>"]),
    (
        "capture -o text.txt --root machine",
        1,
        &["text.txt is there already: name another file, or replace it with --force"],
    ),
    ("run --root /", 2, &["/ is this machine, and no rehearsal: run without --root"]),
    ("run --config bad.toml", 78, &["bad.toml:1: drivr: ", "did you mean \"driver\"?", "bad.toml:3: paths.state: "]),
    ("status --config bad.toml", 78, &["bad.toml:1: drivr: "]),
    ("status --config absent.toml", 78, &["absent.toml: failed to read", "create it, or leave out --config"]),
    ("config check bad.toml", 78, &["bad.toml:1: drivr: ", "did you mean \"driver\"?"]),
    ("config check absent.toml", 78, &["absent.toml: failed to read the file"]),
    ("config check good.toml --config good.toml", 2, &["'[FILE]' cannot be used with '--config <FILE>'"]),
    ("config show bad.toml", 78, &["bad.toml:3: paths.state: "]),
    ("cdi list --dir absent", 1, &["absent is no folder: name one that is there with --dir"]),
    ("cdi validate absent.json", 1, &["failed to read absent.json: "]),
    ("cdi validate text.txt", 1, &["text.txt ends in neither .json nor .yaml"]),
    ("cdi validate cdi-bad", 1, &["cdi-bad/x.json: refused: devices: there is no device; add one"]),
    ("cdi validate void", 1, &["void has no .json or .yaml file"]),
    ("validate", 2, &["<FILE>..."]),
    ("validate text.txt", 1, &["text.txt: document 1: kind: it is missing"]),
    ("man", 2, &["<DIR>"]),
    ("completions tcsh", 2, &["'tcsh' for '<SHELL>'", "[possible values: bash,"]),
    ("bitstream add absent.gbs --config hostler.toml", 1, &["failed to add absent.gbs: failed to read absent.gbs: "]),
    ("bitstream remove", 2, &["<NAME|DIGEST>..."]),
    ("status --socket text.txt", 1, &["text.txt is no socket: name that of the daemon with --socket"]),
    ("status --socket absent.sock", 1, &["no daemon listens on absent.sock: start it (systemctl start hostler)"]),
    ("ready SOCKET", 1, &["the kubelet has not registered the driver yet"]),
    ("ready --socket absent.sock", 1, &["no daemon listens on absent.sock"]),
    ("claim", 2, &["Usage: hostler claim <COMMAND>"]),
    ("claim create", 2, &["claim create [OPTIONS] <NAME> --device", "claim create [OPTIONS] -f <FILE>"]),
    ("claim create a -d numa0", 2, &["'numa0' for '--device", "write POOL/DEVICE, such as cpu/numa0"]),
    ("claim create a -d cpu/numa0,cpus", 2, &["\"cpus\" is not CAPACITY=AMOUNT, such as cpus=4"]),
    ("claim create a -d cpu/numa0,cpus=4,cpus=5", 2, &["cpus is given twice"]),
    ("claim create a -d memory/node0,memory=8gi", 2, &["did you mean 8Gi?"]),
    ("claim create a -d cpu/numa0,smt=off", 2, &["cpu/numa0.smt: \"off\" is not one of shared, isolated"]),
    ("claim create a -f claim.yaml", 2, &["'[NAME]' cannot be used with '--file <FILE>'"]),
    ("claim create -f absent.yaml SOCKET", 1, &["failed to read absent.yaml: "]),
    ("claim create -f text.txt SOCKET", 1, &["text.txt: document 1: field kind: it is missing; write ResourceClaim"]),
    ("claim create One -d fake/card-4 SOCKET", 1, &["claim name \"One\" is not valid: use a-z, 0-9, '-' and '.'"]),
    ("claim create b -d fake/card-0 SOCKET", 1, &["device card-0 is already prepared for claim u1 (default/train)"]),
    ("claim create b -d fake/pool,units=100 SOCKET", 1, &["device pool has 64 units in all, 100 wanted"]),
    ("claim create b -d fake/pool,unit=1 SOCKET", 1, &["no capacity \"unit\" that can be split; it has units"]),
    ("claim show SOCKET", 2, &["<CLAIM>", "Usage: hostler claim show"]),
    ("claim show a/b/c SOCKET", 2, &["\"a/b/c\" names no claim: write NAMESPACE/NAME, NAME or UID"]),
    ("claim show ml/train -n web SOCKET", 2, &["ml/train is in namespace ml, and --namespace says web"]),
    ("claim show train -n", 2, &["a value is required for '--namespace <NAMESPACE>'"]),
    ("claim show tran SOCKET", 1, &["there is no claim", "did you mean default/train? `hostler claim list` has all"]),
    (
        "claim show x SOCKET",
        1,
        &["there is no claim with name or uid \"x\" in namespace \"default\"; `hostler claim list`"],
    ),
    (
        "claim inspect nothing SOCKET",
        1,
        &["name or uid \"nothing\" in namespace \"default\"; `hostler claim list` has all"],
    ),
    ("claim delete train --dry SOCKET", 2, &["unexpected argument '--dry'"]),
    ("claim forget train SOCKET", 1, &["claim u1 is not quarantined: take it back instead"]),
    ("device attach fake/card-0 SOCKET", 1, &["card-0 cannot be attached: devices of its kind are always attached"]),
    (
        "device attach card-1 --timeout 5",
        2,
        &["'5' for '--timeout <TIME>'", "write a time with its unit", "such as 90s"],
    ),
    ("device drain nothing SOCKET", 1, &["there is no device \"nothing\"; `hostler device list` has all"]),
    ("device show crad-1 SOCKET", 1, &["did you mean fake/card-1 or"]),
    ("device list --watch=yes SOCKET", 2, &["unexpected value 'yes' for '--watch'"]),
    ("events --since 5m SOCKET", 2, &["unexpected argument '--since'"]),
    ("explain fit SOCKET", 2, &["--file <FILE>"]),
    ("explain fit -f text.txt SOCKET", 1, &["text.txt: document 1: field kind: it is missing"]),
    ("top --by pod SOCKET", 2, &["'pod' for '--by <BY>'", "[possible values: claim, namespace, node]"]),
];

/// A daemon with scripted devices and a claim, and a folder with files of every kind.
fn host() -> Host {
    let mut host = Host::bare(SCRIPT);
    host.start();
    let claim =
        [("a", "fake", "pool", serde_json::json!({"units": "12"})), ("b", "fake", "card-0", serde_json::Value::Null)];
    host.manifest("train", "u1", &claim);
    host.run_ok(&["claim", "prepare", "train"]);
    let write = |path: &str, text: &str| {
        let path = host.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let device = r#"{"name":"d","containerEdits":{"env":["A=b"]}}"#;
    for (folder, devices) in [("cdi-good", device), ("cdi-bad", "")] {
        write(
            &format!("{folder}/x.json"),
            &format!(r#"{{"cdiVersion":"0.3.0","kind":"a.b/c","devices":[{devices}]}}"#),
        );
    }
    fs::create_dir(host.path("void")).unwrap();
    write("text.txt", "text\n");
    write("good.toml", "driver = \"hostler.dev\"\n");
    write("bad.toml", "drivr = \"x\"\n[paths]\nstate = 3\n");
    let request = "[{name: a, exactly: {deviceClassName: cpu.hostler.dev}}]";
    let claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a, namespace: default}\n";
    write("claim.yaml", &format!("{claim}spec: {{devices: {{requests: {request}}}}}\n"));
    machine(&host.path("machine"));
    host
}

/// One node with four CPUs and 1 GiB. The daemon has no backend that looks at it.
fn machine(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for file in ["online", "present", "possible"] {
        write(&format!("sys/devices/system/cpu/{file}"), "0-3");
    }
    for cpu in 0..4 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        write(&format!("{topology}/physical_package_id"), "0");
        write(&format!("{topology}/core_id"), &cpu.to_string());
        write(&format!("{topology}/thread_siblings_list"), &cpu.to_string());
        write(&format!("{topology}/core_siblings_list"), "0-3");
    }
    write("sys/devices/system/node/online", "0");
    write("sys/devices/system/node/node0/cpulist", "0-3");
    write("sys/devices/system/node/node0/distance", "10");
    write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  1048576 kB\nNode 0 MemFree: 524288 kB");
}

/// The words of a line; blanks in single quotes part none.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in line.split('\'').enumerate() {
        let mut pieces = if index % 2 == 1 { vec![part] } else { part.split(' ').collect() }.into_iter();
        words.last_mut().unwrap().push_str(pieces.next().unwrap_or_default());
        words.extend(pieces.map(str::to_owned));
    }
    words.retain(|word| !word.is_empty());
    words
}

fn run(host: &Host, line: &str) -> Output {
    let words = words(&line.replace("SOCKET", "--socket run/admin.sock"));
    Command::new(binary()).args(words).current_dir(host.path("")).stdin(Stdio::null()).output().unwrap()
}

/// What is not as the table says.
fn differences(host: &Host, uses: &[CliUse]) -> Vec<String> {
    let check = |(line, code, texts): &CliUse| {
        let output = run(host, line);
        let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let said = if *code == 0 { out.clone() } else { format!("{out}{err}") };
        let is_misplaced = (*code == 0 && !err.is_empty()) || (*code > 1 && !out.is_empty());
        let missing: Vec<&&str> = texts.iter().filter(|text| !said.contains(**text)).collect();
        let is_right = output.status.code() == Some(*code) && missing.is_empty() && !is_misplaced;
        (!is_right).then(|| format!("hostler {line}: {:?} for {code}, lacks {missing:?}\n{out}\n{err}", output.status))
    };
    uses.iter().filter_map(check).collect()
}

#[test]
fn every_use_ends_with_its_exit_code_and_says_what_where_and_the_way_on() {
    assert!(RIGHT.len() + WRONG.len() >= 60 && WRONG.len() >= 30, "{} and {}", RIGHT.len(), WRONG.len());
    let host = host();
    let different = [differences(&host, RIGHT), differences(&host, WRONG)].concat();
    assert!(different.is_empty(), "{}", different.join("\n---\n"));
}
