//! The rules of docs/architecture.md that a compiler does not check: imports of crates and of modules, and the shape of
//! a source file. Each rule is a line of a table here; [`manifests`] and [`sources`] read the tree, and their own tests
//! show that they see a broken rule.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: what cannot be read fails it")]

mod manifests;
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use manifests::{Lock, Manifest};
use sources::Source;

/// Imports that a crate may have. All arrows point down this list: a crate imports only crates below it.
struct CrateRule {
    name: &'static str,
    folder: &'static str,
    /// The crates of this workspace that the crate may import.
    ours: &'static [&'static str],
    /// External crates that the crate must not reach, over any number of steps.
    never: &'static [&'static str],
    /// If not empty: the only external crates that the crate may name.
    only: &'static [&'static str],
}

const BACKEND_IMPORTS: &[&str] = &["hostler-api", "hostler-backend", "hostler-cdi", "hostler-linux"];
/// Imports of backends that keep or read files of their own.
const FILE_BACKEND_IMPORTS: &[&str] =
    &["hostler-api", "hostler-backend", "hostler-cdi", "hostler-files", "hostler-linux"];
const NO_SERVERS: &[&str] = &["tokio", "kube", "tonic"];

/// The table of docs/architecture.md; a test keeps the two equal.
const CRATES: &[CrateRule] = &[
    // Demonstrations see the programs from outside, as tests do.
    CrateRule {
        name: "hostler-demo",
        folder: "examples/",
        ours: &["hostler-proto", "hostler-testing"],
        never: &[],
        only: &[],
    },
    // A tested crate cannot lend its mistakes to its tests: the daemon and the backends are not imported. The allocator
    // is checked against upstream's answers, and schedules here.
    CrateRule {
        name: "hostler-testing",
        folder: "tests/support/",
        ours: &["hostler-allocator", "hostler-cel", "hostler-linux", "hostler-proto", "hostler-api"],
        never: &[],
        only: &[],
    },
    CrateRule {
        name: "hostler-controller",
        folder: "controller/",
        ours: &[
            "hostler-allocator",
            "hostler-api",
            "hostler-cli",
            "hostler-cluster",
            "hostler-fabric",
            "hostler-files",
            "hostler-heap",
            "hostler-process",
            "hostler-reconcile",
        ],
        never: &["kube", "k8s-openapi", "udev", "tonic"],
        only: &[],
    },
    CrateRule {
        name: "hostler",
        folder: "src/",
        ours: &[
            "hostler-allocator",
            "hostler-api",
            "hostler-backend",
            "hostler-cdi",
            "hostler-cli",
            "hostler-cluster",
            "hostler-cpu",
            "hostler-cxl",
            "hostler-fake",
            "hostler-files",
            "hostler-fpga",
            "hostler-heap",
            "hostler-linux",
            "hostler-memory",
            "hostler-process",
            "hostler-proto",
            "hostler-reconcile",
        ],
        // Clients and types that others wrote test ours: docs/decisions/0008-our-own-connection.md.
        never: &["kube", "k8s-openapi"],
        only: &[],
    },
    // The edge of every controller; the decisions are made in other crates.
    CrateRule {
        name: "hostler-reconcile",
        folder: "lib/reconcile/",
        ours: &["hostler-api", "hostler-cluster", "hostler-process"],
        never: &["kube", "k8s-openapi", "udev", "tonic", "clap"],
        only: &[],
    },
    // The life of a process of ours that stays, for every program.
    CrateRule {
        name: "hostler-process",
        folder: "lib/process/",
        ours: &["hostler-api"],
        never: &["kube", "udev", "tonic", "clap"],
        only: &[],
    },
    // Parts that both command lines share.
    CrateRule {
        name: "hostler-cli",
        folder: "lib/cli/",
        ours: &["hostler-api"],
        never: &["kube", "tokio", "udev", "tonic", "axum"],
        only: &[],
    },
    CrateRule {
        name: "hostler-cluster",
        folder: "lib/cluster/",
        ours: &["hostler-api", "hostler-files"],
        never: &["kube", "k8s-openapi", "udev", "tonic", "axum", "clap"],
        only: &[],
    },
    // The core is pure; the edge that speaks Redfish spawns nothing and knows no Kubernetes.
    CrateRule {
        name: "hostler-fabric",
        folder: "lib/fabric/",
        ours: &["hostler-api", "hostler-files"],
        never: &["kube", "k8s-openapi", "udev", "tonic", "axum", "clap"],
        only: &[],
    },
    // Pure: a caller brings the facts, and can ask again with others.
    CrateRule {
        name: "hostler-allocator",
        folder: "lib/allocator/",
        ours: &["hostler-api", "hostler-cel"],
        never: &["kube", "k8s-openapi", "tokio", "hyper", "tonic", "udev", "nix", "rustix"],
        only: &[],
    },
    CrateRule {
        name: "hostler-cel",
        folder: "lib/cel/",
        ours: &["hostler-api"],
        never: &["kube", "k8s-openapi", "tokio", "hyper", "tonic", "udev", "nix", "rustix"],
        only: &[],
    },
    CrateRule {
        name: "hostler-cpu",
        folder: "backends/cpu/",
        ours: FILE_BACKEND_IMPORTS,
        never: NO_SERVERS,
        only: &[],
    },
    CrateRule {
        name: "hostler-memory",
        folder: "backends/memory/",
        ours: BACKEND_IMPORTS,
        never: NO_SERVERS,
        only: &[],
    },
    CrateRule {
        name: "hostler-fpga",
        folder: "backends/fpga/",
        ours: FILE_BACKEND_IMPORTS,
        never: NO_SERVERS,
        only: &[],
    },
    CrateRule { name: "hostler-cxl", folder: "backends/cxl/", ours: BACKEND_IMPORTS, never: NO_SERVERS, only: &[] },
    CrateRule {
        name: "hostler-fake",
        folder: "backends/fake/",
        ours: FILE_BACKEND_IMPORTS,
        never: NO_SERVERS,
        only: &[],
    },
    CrateRule {
        name: "hostler-backend",
        folder: "backends/api/",
        ours: &["hostler-api", "hostler-cdi"],
        never: &["tokio", "kube", "tonic", "udev", "nix"],
        only: &[],
    },
    CrateRule {
        name: "hostler-linux",
        folder: "backends/linux/",
        ours: &["hostler-files"],
        never: NO_SERVERS,
        only: &[],
    },
    // No libudev: a controller's image has none.
    CrateRule { name: "hostler-heap", folder: "lib/heap/", ours: &[], never: NO_SERVERS, only: &["nix"] },
    CrateRule {
        name: "hostler-proto",
        folder: "proto/",
        ours: &[],
        never: &["kube"],
        only: &["prost", "prost-types", "tonic", "tonic-prost"],
    },
    CrateRule {
        name: "hostler-cdi",
        folder: "cdi/",
        ours: &["hostler-files"],
        never: &["tokio", "kube", "tonic", "nix"],
        only: &[],
    },
    CrateRule {
        name: "hostler-files",
        folder: "lib/files/",
        ours: &[],
        never: &["tokio", "kube", "tonic", "nix"],
        only: &[],
    },
    CrateRule {
        name: "hostler-api",
        folder: "lib/api/",
        ours: &[],
        never: &["tokio", "kube", "tonic", "nix", "udev", "k8s-openapi"],
        only: &[],
    },
];

/// Crates that only some modules of the daemon may name: the others know neither Kubernetes nor any wire.
struct Edge {
    crates: &'static [&'static str],
    modules: &'static [&'static str],
}

const EDGES: &[Edge] = &[
    Edge { crates: &["tonic", "tonic_prost"], modules: &["kubelet"] },
    Edge { crates: &["hostler_proto"], modules: &["kubelet", "nri"] },
    // The API server's binary form and the container runtimes' protocol have the same notation.
    Edge { crates: &["prost"], modules: &["kubelet", "kubernetes", "nri"] },
    Edge { crates: &["hostler_cluster", "hostler_reconcile"], modules: &["kubernetes", "daemon"] },
    Edge { crates: &["axum", "hyper", "hyper_util", "http_body_util"], modules: &["admin", "cli"] },
    Edge { crates: &["clap", "clap_complete", "clap_mangen"], modules: &["cli"] },
    Edge { crates: &["crossterm", "ratatui_core", "ratatui_crossterm", "signal_hook"], modules: &["cli"] },
    Edge { crates: &["ring"], modules: &["cli", "kubernetes"] },
];

/// Modules of the daemon that a module may not name.
struct ModuleRule {
    module: &'static str,
    never: &'static [&'static str],
    why: &'static str,
}

const MODULES: &[ModuleRule] = &[
    ModuleRule {
        module: "inventory",
        never: &["claims", "kubelet", "kubernetes", "standalone", "admin", "cli", "daemon", "hook"],
        why: "the inventory knows hardware, not those who read it",
    },
    ModuleRule {
        module: "claims",
        never: &["kubelet", "kubernetes", "standalone", "admin", "cli", "daemon", "hook"],
        why: "claims answer whoever asks; an allocation comes through the ReadClaims trait",
    },
    ModuleRule {
        module: "audit",
        never: &["kubelet", "kubernetes", "standalone", "admin", "cli", "daemon", "hook", "config"],
        why: "the audit compares records with cgroups; who tells of it comes to it",
    },
    ModuleRule {
        module: "explain",
        never: &[
            "claims",
            "inventory",
            "kubelet",
            "kubernetes",
            "standalone",
            "admin",
            "cli",
            "daemon",
            "hook",
            "tasks",
        ],
        why: "an explanation is concluded from facts; whoever asks gathers them",
    },
    ModuleRule {
        module: "kubelet",
        never: &["kubernetes", "standalone", "admin", "cli", "daemon", "hook"],
        why: "the kubelet's services and the source of claims meet in the daemon only",
    },
    ModuleRule {
        module: "kubernetes",
        never: &["kubelet", "standalone", "admin", "cli", "daemon", "hook"],
        why: "the kubelet's services and the source of claims meet in the daemon only",
    },
    ModuleRule {
        module: "standalone",
        never: &["admin", "kubelet", "kubernetes", "cli", "daemon", "hook"],
        why: "a source of claims knows neither the kubelet nor another source",
    },
    ModuleRule {
        module: "metrics",
        never: &[
            "claims",
            "inventory",
            "kubelet",
            "kubernetes",
            "standalone",
            "admin",
            "cli",
            "daemon",
            "hook",
            "tasks",
        ],
        why: "owners bump counters; what is there is added by whoever shows them",
    },
    ModuleRule {
        module: "config",
        never: &[
            "claims",
            "inventory",
            "kubelet",
            "kubernetes",
            "standalone",
            "admin",
            "cli",
            "daemon",
            "hook",
            "tasks",
        ],
        why: "the configuration is read before there is any state, and by tools that have none",
    },
    ModuleRule {
        module: "descriptors",
        never: &[
            "claims",
            "inventory",
            "kubelet",
            "kubernetes",
            "standalone",
            "admin",
            "cli",
            "daemon",
            "hook",
            "tasks",
            "config",
        ],
        why: "it says how many connections there may be, whatever they are for",
    },
    ModuleRule {
        module: "containers",
        never: &[
            "claims",
            "inventory",
            "kubelet",
            "kubernetes",
            "standalone",
            "admin",
            "cli",
            "daemon",
            "hook",
            "tasks",
            "config",
        ],
        why: "hooks write it and the daemon reads it: it knows neither",
    },
    ModuleRule {
        module: "nri",
        never: &["kubelet", "kubernetes", "standalone", "admin", "cli", "daemon", "hook"],
        why: "the container runtime is told what claims hold, wherever they come from",
    },
    ModuleRule {
        module: "pinning",
        never: &[
            "claims",
            "inventory",
            "kubelet",
            "kubernetes",
            "standalone",
            "admin",
            "cli",
            "daemon",
            "hook",
            "tasks",
            "config",
            "containers",
        ],
        why: "whoever binds containers, or checks that they are bound, asks it: it knows none of them",
    },
    ModuleRule {
        module: "pods",
        never: &[
            "claims",
            "inventory",
            "kubelet",
            "kubernetes",
            "standalone",
            "admin",
            "cli",
            "daemon",
            "hook",
            "tasks",
            "config",
        ],
        why: "words alone: who joins claims with pods need not know where pods are learnt of",
    },
    ModuleRule {
        module: "validate",
        never: &[
            "claims",
            "inventory",
            "kubelet",
            "kubernetes",
            "standalone",
            "admin",
            "cli",
            "daemon",
            "hook",
            "tasks",
            "config",
        ],
        why: "manifests are checked by the vocabulary alone, on machines that have no daemon",
    },
    ModuleRule {
        module: "usage",
        never: &["kubelet", "kubernetes", "standalone", "admin", "cli", "daemon", "hook", "config"],
        why: "the view of the machine is concluded from the owners' states; whoever shows it asks for it",
    },
    ModuleRule {
        module: "hook",
        never: &["claims", "inventory", "kubelet", "kubernetes", "standalone", "admin", "daemon", "tasks", "config"],
        why: "the hook runs in front of every container: no runtime, no configuration, no state",
    },
];

#[test]
fn crates_depend_only_on_what_their_rule_allows() {
    let root = root();
    let manifests = manifests::workspace(&root);
    let lock = Lock::parse(&read(&root.join("Cargo.lock")));
    let mut broken = Vec::new();
    for manifest in &manifests {
        match CRATES.iter().find(|rule| rule.name == manifest.name) {
            Some(rule) => broken.extend(broken_dependencies(rule, manifest, &manifests, &lock)),
            None => broken.push(format!("{} has no rule: add one to CRATES", manifest.name)),
        }
    }
    assert!(manifests.len() >= CRATES.len(), "found only {} manifests", manifests.len());
    assert_none(&broken);
}

/// Checks lines of the form `| `crate` | `folder` | owns | may import |`.
#[test]
fn the_document_has_the_same_arrows() {
    let document = read(&root().join("docs/architecture.md"));
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|line| line.starts_with("| `hostler"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut broken = Vec::new();
    for rule in CRATES {
        let own = format!("`{}`", rule.name);
        let Some(row) = rows.iter().find(|row| row[0] == own) else {
            broken.push(format!("{own} is not in the table of crates"));
            continue;
        };
        let named: BTreeSet<&str> = row[3].split('`').skip(1).step_by(2).collect();
        if named != rule.ours.iter().copied().collect() || row[1] != format!("`{}`", rule.folder) {
            broken.push(format!("{own}: the document says {row:?}, the rule {:?} in {}", rule.ours, rule.folder));
        }
    }
    assert_eq!(rows.len(), CRATES.len(), "rows of crates that are not there");
    assert_none(&broken);
}

#[test]
fn modules_of_the_daemon_name_only_what_their_rule_allows() {
    let sources = sources();
    let broken: Vec<String> = sources.iter().flat_map(broken_imports).collect();
    assert!(sources.iter().any(|source| source.module() == Some("claims")), "the daemon was not read");
    assert_none(&broken);
}

#[test]
fn no_modules_of_a_folder_need_each_other_in_a_circle() {
    let arrows = module_arrows(&sources());
    let circles: Vec<String> = arrows
        .iter()
        .flat_map(|(folder, arrows)| cycles(arrows).into_iter().map(move |cycle| format!("{folder}: {cycle:?}")))
        .collect();
    assert!(arrows.len() > 20, "found only {} folders", arrows.len());
    assert_none(&circles);
}

/// Who reads a name in a crate knows which type it is. Files that are made of upstream's definitions have upstream's
/// names.
#[test]
fn no_crate_has_two_types_of_one_name() {
    let sources = sources();
    let mut files: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_generated()) {
        let Some((folder, _)) = &source.place else { continue };
        source.types().into_iter().for_each(|name| files.entry((folder, name)).or_default().push(&source.file));
    }
    let several = files.iter().filter(|(_, files)| files.len() > 1);
    let broken: Vec<String> = several.map(|((_, name), files)| format!("{name}: {}", files.join(", "))).collect();
    assert!(files.len() > 1000, "found only {} types", files.len());
    assert_none(&broken);
}

#[test]
fn the_shape_of_every_source_file_is_as_agreed() {
    let sources = sources();
    let broken: Vec<String> = sources.iter().flat_map(broken_shape).collect();
    assert!(sources.len() > 30, "found only {} files", sources.len());
    assert_none(&broken);
}

/// A file of an outside name can be a FIFO, a device or without end.
#[test]
fn files_are_opened_to_be_read_in_two_crates_only() {
    let sources = sources();
    let broken: Vec<String> = sources.iter().flat_map(broken_reads).collect();
    assert!(sources.iter().any(|source| source.file == "src/config.rs"), "the daemon was not read");
    assert_none(&broken);
}

/// Concepts, each with a word that reveals a second copy of it, and the places that may have the word.
const CONCEPTS: &[(&str, &str, &[&str])] = &[
    // Commands follow kinds until their reader goes.
    (
        "a kind is listed and watched by a Reflector, or by an ObjectWatch where it has one reader",
        "Follower",
        &["lib/cluster/", "lib/reconcile/src/reflector.rs", "lib/reconcile/src/watch.rs", "controller/src/followed.rs"],
    ),
    ("pauses double by hostler_api::Doubling", "saturating_pow", &["lib/api/src/doubling.rs"]),
    (
        "the state of writes in flight is InFlightWrites",
        "WriteState",
        &["lib/reconcile/", "controller/src/provision/turn.rs"],
    ),
    ("answers are put into JSON by hostler_cli::output", "to_writer_pretty", &["lib/cli/src/output.rs"]),
    ("answers are put into YAML by hostler_cli::output", "DoubleQuoted", &["lib/cli/src/yaml.rs"]),
    ("the screen of standard output is hostler_cli::screen", "terminal_size_of", &["lib/cli/src/screen.rs"]),
];

#[test]
fn each_concept_has_one_place() {
    let sources = sources();
    for (concept, word, _) in CONCEPTS {
        assert!(sources.iter().any(|source| source.has_word(word)), "nothing has the word {word} any more: {concept}");
    }
    assert_none(&sources.iter().flat_map(second_copies).collect::<Vec<_>>());
}

/// What the tests of controllers share, the text that gives a second one away, and the file that may have it.
const MODELS: &[(&str, &str, &str)] = &[
    ("chances come from testkit::Dice", "struct Dice", "controller/src/testkit/dice.rs"),
    ("chances come from testkit::Dice", "6_364_136_223_846_793_005", "controller/src/testkit/dice.rs"),
    ("the fate of a write is a testkit::Fate", "enum Fate ", "controller/src/testkit/fate.rs"),
    (
        "versions and preconditions are those of testkit::ModelServer",
        "struct ModelServer",
        "controller/src/testkit/server.rs",
    ),
    (
        "versions and preconditions are those of testkit::ModelServer",
        "self.last += 1;",
        "controller/src/testkit/server.rs",
    ),
    ("a controller in a world is a testkit::Controller", "struct Controller<", "controller/src/testkit/world.rs"),
    ("the steps of a random life are those of testkit::live", "for step in 1", "controller/src/testkit/dice.rs"),
];

#[test]
fn tests_of_controllers_have_one_model() {
    let sources = sources();
    let of_controller: Vec<&Source> =
        sources.iter().filter(|source| source.file.starts_with("controller/src/")).collect();
    for (concept, text, place) in MODELS {
        let has_text = of_controller.iter().filter(|source| source.text.contains(text));
        let files: Vec<&str> = has_text.map(|source| source.file.as_str()).collect();
        assert_eq!(files, [*place], "{concept}: who has `{text}`");
    }
    let lines = of_controller.iter().flat_map(|source| source.text.lines().map(move |line| (&source.file, line)));
    let own_seeds = lines.filter(|(_, line)| line.contains("for seed in ") && !line.contains("seeds("));
    let own_seeds: Vec<String> = own_seeds.map(|(file, _)| format!("{file}: seeds are testkit::seeds")).collect();
    assert_none(&own_seeds);
}

fn second_copies(source: &Source) -> Vec<String> {
    let is_product = source.place.is_some() && !source.file.starts_with("tests/");
    let copies = CONCEPTS.iter().filter(|(_, word, places)| {
        is_product && source.has_word(word) && !places.iter().any(|place| source.file.starts_with(place))
    });
    copies.map(|(concept, word, _)| format!("{}: names {word}, but {concept}", source.file)).collect()
}

/// Messages are for people: state that a program needs is in fields.
#[test]
fn no_message_is_read_back() {
    let broken: Vec<String> = sources().iter().filter(|source| !source.is_test).flat_map(read_messages).collect();
    assert_none(&broken);
    let source = |text: &str| Source::new("src/a.rs", text);
    for read in ["it.message.contains(\"x\")", "message.trim_end_matches('.')", "known.message == text"] {
        assert_eq!(read_messages(&source(&format!("fn f() {{ if {read} {{}} }}"))).len(), 1, "{read}");
    }
}

fn read_messages(source: &Source) -> Vec<String> {
    const CUTS: [&str; 9] = [
        "split",
        "split_once",
        "trim_end_matches",
        "trim_start_matches",
        "strip_prefix",
        "strip_suffix",
        "starts_with",
        "ends_with",
        "contains",
    ];
    let reads = |after: &[&str]| match after {
        [".", cut, ..] => CUTS.contains(cut),
        ["=" | "!", "=", ..] => true,
        _ => false,
    };
    let lines = source.uses_of("message").into_iter().filter(|after| reads(after));
    lines.map(|after| format!("{}: message{}, but messages are for people only", source.file, after.concat())).collect()
}

fn broken_reads(source: &Source) -> Vec<String> {
    const READERS: [&str; 2] = ["lib/files/", "backends/linux/"];
    const READS: [&str; 4] = ["fs::read", "fs::read_to_string", "File::open", "File::options"];
    if source.is_test || READERS.iter().any(|folder| source.file.starts_with(folder)) {
        return Vec::new();
    }
    let reads = |path: &String| {
        sources::starts_with(path, "tokio::fs") || READS.iter().any(|read| sources::ends_with(path, read))
    };
    let paths = source.paths().into_iter().filter(reads);
    paths.map(|path| format!("{}: {path}, but files are read by hostler-files or a SysRoot", source.file)).collect()
}

fn broken_dependencies(rule: &CrateRule, manifest: &Manifest, all: &[Manifest], lock: &Lock) -> Vec<String> {
    let name = rule.name;
    let (ours, external): (Vec<&String>, Vec<&String>) =
        manifest.dependencies.iter().partition(|dependency| all.iter().any(|other| other.name == **dependency));
    let mut broken = Vec::new();
    for dependency in ours.iter().filter(|dependency| !rule.ours.contains(&dependency.as_str())) {
        broken.push(format!("{name} must not import {dependency}"));
    }
    for dependency in external.iter().filter(|dep| !rule.only.is_empty() && !rule.only.contains(&dep.as_str())) {
        broken.push(format!("{name} may name {:?} only, not {dependency}", rule.only));
    }
    for never in rule.never {
        if let Some(chain) = lock.chain(manifest, all, never) {
            broken.push(format!("{name} must not reach {never}: {}", chain.join(" -> ")));
        }
    }
    broken
}

fn broken_imports(source: &Source) -> Vec<String> {
    let Some(module) = source.module() else { return Vec::new() };
    let top = module.split("::").next().unwrap_or_default();
    let mut broken = Vec::new();
    for path in source.paths() {
        let mut names = path.split("::");
        let first = names.next().unwrap_or_default();
        if let Some(edge) = EDGES.iter().find(|edge| edge.crates.contains(&first) && !edge.modules.contains(&top)) {
            broken.push(format!("{}: names {path}, but only {:?} may", source.file, edge.modules));
        }
        let below = names.next().filter(|_| first == "crate").unwrap_or_default();
        if let Some(rule) = MODULES.iter().find(|rule| rule.module == top && rule.never.contains(&below)) {
            broken.push(format!("{}: names {path}, but {}", source.file, rule.why));
        }
    }
    broken
}

/// Modules of one folder of one crate, each with the modules of that folder that it names.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The arrows of each folder, `controller/src/hold`, that has modules.
fn module_arrows(sources: &[Source]) -> BTreeMap<String, Arrows> {
    let mut folders: BTreeMap<String, Arrows> = BTreeMap::new();
    for source in sources {
        let Some((folder, module)) = &source.place else { continue };
        let own: Vec<&str> = module.split("::").collect();
        for depth in 0..own.len() {
            let mut path = Path::new(folder).join("src");
            path.extend(&own[..depth]);
            let arrows = folders.entry(path.to_str().unwrap().to_owned()).or_default();
            let named = source.paths().into_iter().filter_map(|path| Some(path.strip_prefix("crate::")?.to_owned()));
            let beside = named.filter_map(|path| {
                let path: Vec<&str> = path.split("::").collect();
                (path.starts_with(&own[..depth])).then(|| path.get(depth).map(|&name| name.to_owned()))?
            });
            let others = beside.filter(|named| named != own[depth]);
            arrows.entry(own[depth].to_owned()).or_default().extend(others);
        }
    }
    for arrows in folders.values_mut() {
        // A name that is no module is an item of the folder itself.
        let modules: BTreeSet<String> = arrows.keys().filter(|name| !name.is_empty()).cloned().collect();
        arrows.retain(|name, _| !name.is_empty());
        arrows.values_mut().for_each(|named| named.retain(|name| modules.contains(name)));
    }
    folders
}

/// The modules that need each other, over any number of steps.
fn cycles(arrows: &Arrows) -> Vec<BTreeSet<&str>> {
    let reached = |from| {
        let (mut found, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            left.extend(arrows[module].iter().map(String::as_str).filter(|&named| found.insert(named)));
        }
        found
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|name| (name.as_str(), reached(name))).collect();
    let group = |name: &&str| reach[name].iter().copied().filter(|other| reach[other].contains(name)).collect();
    let groups: BTreeSet<BTreeSet<&str>> =
        reach.keys().map(group).filter(|group: &BTreeSet<&str>| group.len() > 1).collect();
    groups.into_iter().collect()
}

/// The one file that starts a program, in the name of a user who calls a command: the login that a kubeconfig names.
const LOGIN: &str = "controller/src/cluster_args/exec.rs";

/// Places of `unsafe`: the kernel's interfaces, and the allocator's, which a program without libudev calls as well.
const UNSAFE: &[&str] = &["backends/linux/", "lib/heap/src/lib.rs"];

fn broken_shape(source: &Source) -> Vec<String> {
    const MOST_LINES: usize = 500;
    let file = &source.file;
    let mut broken = Vec::new();
    if file.ends_with("/mod.rs") {
        broken.push(format!("{file}: a module `foo` is foo.rs, its parts are in foo/"));
    }
    if source.has_unsafe() && !UNSAFE.iter().any(|place| file.starts_with(place)) {
        broken.push(format!("{file}: `unsafe` belongs into backends/linux"));
    }
    if source.is_generated() {
        return broken;
    }
    if !source.text.starts_with("//!") {
        broken.push(format!("{file}: the first line says with //! what the file owns"));
    }
    let lines = source.lines();
    if !source.is_test && lines > MOST_LINES {
        broken.push(format!("{file}: {lines} lines without tests, {MOST_LINES} are the most"));
    }
    let starts = || source.paths().iter().any(|path| sources::names_command(path));
    if !source.is_test && file != LOGIN && starts() {
        broken.push(format!("{file}: privileged code starts no program"));
    }
    broken
}

fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "{} broken rules:\n  {}", broken.len(), broken.join("\n  "));
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust file of the tree, build products and hidden folders left out.
fn sources() -> Vec<Source> {
    let root = root();
    let mut found = BTreeSet::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                let built =
                    name == "target" && entry.path().parent().is_some_and(|parent| parent.join("Cargo.toml").exists());
                if !built && !name.starts_with('.') {
                    folders.push(entry.path());
                }
            } else if name.ends_with(".rs") {
                found.insert(entry.path());
            }
        }
    }
    found.iter().map(|path| Source::new(path.strip_prefix(&root).unwrap().to_str().unwrap(), &read(path))).collect()
}

mod self_test {
    //! The rules, given trees that break them.

    use super::*;

    fn manifest(text: &str) -> Manifest {
        Manifest::parse(text).unwrap()
    }

    /// A manifest as the table allows it: every arrow of the crate is there.
    fn allowed(rule: &CrateRule) -> Manifest {
        let dependencies = rule.ours.iter().map(|&name| name.to_owned()).collect();
        Manifest { name: rule.name.to_owned(), dependencies }
    }

    fn all_broken(manifests: &[Manifest]) -> Vec<String> {
        let lock = Lock::parse("");
        let rule = |manifest: &Manifest| CRATES.iter().find(|rule| rule.name == manifest.name).unwrap();
        manifests.iter().flat_map(|it| broken_dependencies(rule(it), it, manifests, &lock)).collect()
    }

    #[test]
    fn a_second_copy_of_a_concept_is_seen() {
        let text = "fn pause(n: u32) -> u32 { 2_u32.saturating_pow(n) }";
        assert_eq!(second_copies(&Source::new("controller/src/turn.rs", text)).len(), 1);
        assert!(second_copies(&Source::new("lib/api/src/doubling.rs", text)).is_empty());
        assert!(second_copies(&Source::new("controller/src/tests.rs", text)).is_empty());
    }

    #[test]
    fn every_arrow_that_is_turned_round_is_found() {
        let all: Vec<Manifest> = CRATES.iter().map(allowed).collect();
        assert_eq!(all_broken(&all), Vec::<String>::new());
        let mut turned = 0;
        for rule in CRATES {
            for &below in rule.ours {
                let mut all: Vec<Manifest> = CRATES.iter().map(allowed).collect();
                let lower = all.iter_mut().find(|manifest| manifest.name == below).unwrap();
                lower.dependencies.insert(rule.name.to_owned());
                let expected = format!("{below} must not import {}", rule.name);
                assert!(all_broken(&all).contains(&expected), "{expected}: {:?}", all_broken(&all));
                turned += 1;
            }
        }
        assert!(turned > 30, "only {turned} arrows");
    }

    #[test]
    fn all_arrows_point_down_the_list() {
        let place = |name: &str| CRATES.iter().position(|rule| rule.name == name).unwrap();
        for rule in CRATES {
            assert!(rule.ours.iter().all(|below| place(below) > place(rule.name)), "{}", rule.name);
        }
    }

    #[test]
    fn a_forbidden_crate_is_found_at_the_end_of_a_chain() {
        let rule = CrateRule { name: "hostler-cdi", folder: "", ours: &[], never: &["tokio"], only: &[] };
        let cdi =
            manifest("[package]\nname = 'hostler-cdi'\n[dependencies]\nharmless = '1'\nhostler-linux.workspace = true");
        let linux = manifest("[package]\nname = 'hostler-linux'");
        let lock = Lock::parse(
            "[[package]]\nname = 'harmless'\nversion = '1.0.0'\ndependencies = ['middle 2.0.0']\n\
             [[package]]\nname = 'middle'\nversion = '2.0.0'\ndependencies = ['tokio']\n\
             [[package]]\nname = 'tokio'\nversion = '1.0.0'",
        );
        let all = [cdi, linux];
        assert_eq!(
            broken_dependencies(&rule, &all[0], &all, &lock),
            [
                "hostler-cdi must not import hostler-linux",
                "hostler-cdi must not reach tokio: harmless -> middle -> tokio"
            ]
        );
    }

    #[test]
    fn a_crate_with_a_closed_list_may_name_nothing_else() {
        let rule = CrateRule { name: "hostler-proto", folder: "", ours: &[], never: &[], only: &["prost", "tonic"] };
        let all = [manifest("[package]\nname = 'hostler-proto'\n[dependencies]\nprost = '1'\nserde = '1'")];
        let broken = broken_dependencies(&rule, &all[0], &all, &Lock::parse(""));
        assert_eq!(broken, [r#"hostler-proto may name ["prost", "tonic"] only, not serde"#]);
    }

    #[test]
    fn modules_that_need_each_other_are_found_over_any_number_of_steps() {
        let tree = |claims: &str| {
            [
                ("src/claims/task.rs", claims),
                ("src/metrics.rs", "use crate::{units::x, admin::y};"),
                ("src/admin.rs", "use super::claims::Z;"),
                ("src/lib.rs", "use crate::cli::main;"),
            ]
            .map(|(file, text)| Source::new(file, text))
        };
        let found = |claims| {
            let arrows = module_arrows(&tree(claims));
            cycles(&arrows["src"])
                .into_iter()
                .map(|cycle| cycle.into_iter().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(found("use crate::metrics::Metrics;"), ["admin claims metrics"]);
        assert_eq!(found("use crate::units::bytes;"), Vec::<String>::new());
        let deep = [("api/src/a/b.rs", "use super::c::X;"), ("api/src/a/c.rs", "use crate::a::b::{self, Y};")];
        let arrows = module_arrows(&deep.map(|(file, text)| Source::new(file, text)));
        assert_eq!(cycles(&arrows["api/src/a"]), [BTreeSet::from(["b", "c"])]);
    }

    #[test]
    fn a_forbidden_import_is_found_however_it_is_written() {
        for text in [
            "use crate::kubelet::Dra;",
            "use crate::{claims, kubelet::{dra, health}};",
            "use super::super::kubelet as k;",
            "fn f() { crate::kubelet::serve(); }",
            "use tonic::Status;",
            "fn f() -> Result<(), tonic::Status> { Ok(()) }",
            "use ::tonic as rpc;",
            "use axum::{Json, Router};",
        ] {
            let source = Source::new("src/claims/task.rs", text);
            assert!(!broken_imports(&source).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_read_past_the_reader_is_found_however_it_is_written() {
        for text in [
            "use std::fs; fn f() { fs::read(p); }",
            "fn f() { std::fs::read_to_string(p); }",
            "use std::fs::{read_to_string, write};",
            "use std::fs::File; fn f() { File::open(p); }",
            "fn f() { tokio::fs::read(p); }",
        ] {
            assert_eq!(broken_reads(&Source::new("src/claims/task.rs", text)).len(), 1, "{text}");
            assert_eq!(broken_reads(&Source::new("lib/files/src/bounded.rs", text)), Vec::<String>::new(), "{text}");
        }
        let listing = "use std::fs; fn f() { fs::read_dir(p); fs::read_link(p); File::create(p); MyFile::open(p); }";
        assert_eq!(broken_reads(&Source::new("src/claims/task.rs", listing)), Vec::<String>::new());
    }

    #[test]
    fn words_that_only_look_like_imports_are_let_pass() {
        for text in [
            "// use crate::kubelet;",
            "/* crate::kubelet::x */ fn f() {}",
            "const S: &str = \"crate::kubelet::x\"; const R: &str = r#\"use tonic::\"x\";\"#;",
            "use crate::kubelet_free::X; use tonic_free::Y;",
            "fn f(tonic: u32) -> u32 { tonic }",
            "#[cfg(test)]\nmod tests { use crate::kubelet::X; }",
        ] {
            let source = Source::new("src/claims/task.rs", text);
            assert_eq!(broken_imports(&source), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn every_defect_of_a_file_is_named() {
        let broken = broken_shape(&Source::new("src/kubelet/mod.rs", "use std::process::Command;\nunsafe fn f() {}"));
        assert_eq!(broken.len(), 4, "{broken:#?}");
        let long = format!("//! Long.\n{}", "fn f() {}\n".repeat(500));
        assert_eq!(broken_shape(&Source::new("src/long.rs", &long)).len(), 1);
    }

    #[test]
    fn what_is_allowed_is_let_pass() {
        for (file, text) in [
            ("backends/linux/src/ioctl.rs", "//! Owns ioctls.\nunsafe fn f() {}"),
            ("lib/heap/src/lib.rs", "//! The allocator.\nunsafe fn f() {}"),
            ("tests/daemon.rs", "//! Tests.\nuse std::process::Command;"),
            ("src/a.rs", "//! A.\n#[cfg(test)]\nmod tests { use std::process::Command; }"),
            ("src/b.rs", "//! B: never unsafe.\nconst U: &str = \"unsafe\";"),
            ("proto/src/gen/dra.rs", "// This file is @generated by prost-build."),
        ] {
            assert_eq!(broken_shape(&Source::new(file, text)), Vec::<String>::new(), "{file}");
        }
        let tested = format!("//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(600));
        assert_eq!(broken_shape(&Source::new("src/a.rs", &tested)), Vec::<String>::new());
    }
}
