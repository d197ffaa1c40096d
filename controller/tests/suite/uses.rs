//! Uses of the program, right and wrong: each with its exit code, and what a user is told. A wrong one is told what is
//! wrong, where, and what to do instead.

use std::{fs, path::Path, process::Command};

use hostler_testing::apiserver::{ApiServer, ApiServerRelease};
use serde_json::json;

use crate::rig::{install, root, slice};

/// A use: the words on the command line, the exit code, and pieces of what is written.
type Use = (&'static str, i32, &'static [&'static str]);

/// Uses that do what they say.
const RIGHT: &[Use] = &[
    ("--version", 0, &["hostler-controller "]),
    ("--help", 0, &["Usage: hostler-controller <COMMAND>", "doctor", "78 the configuration is wrong"]),
    ("help plan", 0, &["--what-if", "drain node NODE"]),
    ("plan --help", 0, &["--offline", "--namespace", "Exit codes:"]),
    ("doctor --help", 0, &["--certificate-authority", "Levels:"]),
    ("config check good.toml", 0, &["good.toml is in order"]),
    ("config check --config good.toml", 0, &["good.toml is in order"]),
    ("config show good.toml", 0, &["level = \"debug\""]),
    ("completions bash", 0, &["HOSTLER_CONTROLLER_COMPLETE"]),
    ("completions fish", 0, &["HOSTLER_CONTROLLER_COMPLETE"]),
    ("man pages", 0, &["wrote the manual pages to pages"]),
    ("availability -f cluster.yaml", 0, &["CLASS", "gpu"]),
    ("availability -f cluster.yaml --by node -o wide", 0, &["NODE", "n1"]),
    ("availability -f cluster.yaml -o json", 0, &["\"kind\": \"Availability\""]),
    ("availability -f cluster.yaml -o yaml", 0, &["kind: Availability"]),
    ("plan -f cluster.yaml", 0, &["Nothing to place (Kubernetes 1.36)."]),
    ("plan -f cluster.yaml -f pod.yaml", 0, &["n1"]),
    ("plan --offline -f cluster.yaml -f pod.yaml -n default", 0, &["n1"]),
    ("plan -f pod.yaml", 1, &["0"]),
    ("plan -f cluster.yaml -f pod.yaml -o json", 0, &["\"verdict\": \"fits\""]),
    ("check-upgrade -f TREE/deploy/crds", 0, &["nothing is in the way"]),
    ("check-upgrade -f TREE/deploy/crds/reservations.yaml", 1, &["kubectl apply -k deploy/crds"]),
    ("convert --help", 0, &["-o json | kubectl apply -f -", "Exit codes: 0 all is written"]),
    ("convert -f pod.yaml", 0, &["---\napiVersion: v1\nkind: Pod"]),
    ("holds --kubeconfig SERVER", 0, &["NAME"]),
    ("availability --kubeconfig SERVER --by node", 0, &["n1"]),
    ("node n1 --kubeconfig SERVER", 0, &["Node n1"]),
    ("top --once --kubeconfig SERVER", 0, &["TOTAL"]),
    ("why -A --kubeconfig SERVER", 0, &["No pod waits."]),
    ("plan --cluster --kubeconfig SERVER -f pod.yaml", 0, &["n1"]),
    ("doctor --kubeconfig refused", 1, &["FAIL  API server  gives no answer", "→ check the address"]),
];

/// Uses that are wrong, or have no answer.
const WRONG: &[Use] = &[
    ("walk", 2, &["unrecognized subcommand 'walk'", "--help"]),
    ("availabilty", 2, &["a similar subcommand exists: 'availability'"]),
    ("plan", 2, &["--filename <FILE|DIR>", "--cluster"]),
    ("plan -f absent.yaml", 2, &["1 problem with what was given", "absent.yaml: "]),
    ("plan -f broken.yaml", 2, &["broken.yaml: document 1, line 2", "it is not valid YAML"]),
    ("plan -f cluster.yaml --what-if drian", 2, &["'--what-if <CHANGE>'", "write one of: drain node NAME"]),
    ("plan -f cluster.yaml --kubernetes 1.20", 2, &["'--kubernetes <VERSION>'", "1.34, 1.35, 1.36 and 1.37"]),
    ("plan -f cluster.yaml --feature-gates DRADeviceTaint=true", 2, &["did you mean DRADeviceTaints?"]),
    ("plan --cluster --controller https://c:1", 2, &["'--cluster' cannot be used with '--controller <URL>'"]),
    ("plan --offline --cluster", 2, &["'--offline' cannot be used with '--cluster'"]),
    ("plan --controller http://127.0.0.1:1 -f pod.yaml -n ml", 2, &["--namespace: ", "write it into the files"]),
    ("availability --controller https://c:1", 2, &["nothing vouches for https://c:1", "--certificate-authority FILE"]),
    ("availability --controller c:9440", 2, &["c:9440: write https://HOST:PORT"]),
    ("availability --controller http://192.0.2.1:1 --token t", 2, &["a token goes nowhere without https"]),
    ("availability --controller http://127.0.0.1:1", 2, &["the controller gave no answer", "127.0.0.1:1"]),
    ("availability --controller https://c:1 --certificate-authority absent", 2, &["failed to read absent"]),
    ("availability --token-file t", 2, &["--controller <URL>"]),
    ("availability --by colour", 2, &["'--by <BY>'", "[possible values: class, node, numa, namespace]"]),
    ("availability -o xml", 2, &["'--output <OUTPUT>'", "[possible values: table, wide, json, yaml"]),
    ("availability -f cluster.yaml --watch", 2, &["cannot be used with '--watch'"]),
    ("availability -f cluster.yaml --server https://c", 2, &["cannot be used with '--server <URL>'"]),
    ("holds", 2, &["no cluster is named", "--kubeconfig or --server", "KUBECONFIG"]),
    ("holds --kubeconfig absent", 2, &["failed to read absent"]),
    ("holds --kubeconfig broken.yaml", 2, &["kubeconfig broken.yaml is not valid YAML"]),
    ("holds --kubeconfig refused", 2, &["failed to read the cluster"]),
    ("holds --kubeconfig refused --context prod", 2, &["kubeconfig refused", "\"prod\"; there are lab"]),
    ("holds --server ftp://c", 2, &["ftp://c", "write https://HOST:PORT"]),
    ("holds --server https://127.0.0.1:1", 2, &["nothing vouches for it", "--certificate-authority FILE"]),
    ("holds --as-group g", 2, &["--as <USER>"]),
    ("why a b", 2, &["unexpected argument 'b'", "Usage: hostler-controller why"]),
    ("why -A -n ml", 2, &["'--all-namespaces' cannot be used with '--namespace <NAME>'"]),
    ("explain", 2, &["Usage: hostler-controller explain <COMMAND>", "reservation"]),
    ("explain reservation", 2, &["<NAME>"]),
    ("explain reservation train --kubeconfig SERVER", 2, &["there is no Reservation train", "the command holds lists"]),
    (
        "explain provreq r --config wrong.toml --kubeconfig SERVER",
        78,
        &["wrong.toml:2: capabilities.reservation", "did you mean"],
    ),
    ("why train --kubeconfig SERVER", 2, &["there is no Pod default/train", "--namespace"]),
    ("node n2 --kubeconfig SERVER", 2, &["there is no node n2; did you mean n1?"]),
    ("top --once --class gp --kubeconfig SERVER", 2, &["there is no DeviceClass gp; did you mean gpu?"]),
    ("config check wrong.toml", 78, &["wrong.toml:2: capabilities.reservation: is no key", "did you mean"]),
    ("config check absent.toml", 78, &["absent.toml"]),
    ("config", 2, &["Usage: hostler-controller config <COMMAND>"]),
    ("run --config wrong.toml", 78, &["wrong.toml:2: capabilities.reservation"]),
    ("run", 1, &["no kubeconfig is named, and this is no pod"]),
    ("ready --config good.toml", 1, &["the controller does not answer on ", "is it running"]),
    ("completions tcsh", 2, &["[possible values: ", "bash"]),
    ("man", 2, &["<DIR>"]),
    ("convert", 2, &["--filename <FILE|DIR>"]),
    ("convert -f pod.yaml -o table", 2, &["[possible values: yaml, json]"]),
    ("check-upgrade -f broken.yaml", 2, &["broken.yaml: document 1"]),
    ("doctor --kubeconfig absent", 2, &["failed to read absent"]),
];

/// Sections of the configuration: a user of a command has no such file.
const SECTIONS: [&str; 6] = ["capabilities.", "lease.", "provisioning.", "reservations.", "webhook.", "log."];

/// Files that the uses name.
fn write_files(folder: &Path) {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: m, image: i}]\n";
    let cluster = json!({ "apiVersion": "v1", "kind": "List", "items": [node(), class(), slice("n1-a", "n1")] });
    let refused = "contexts: [{name: lab, context: {cluster: c, user: u}}]\ncurrent-context: lab\n\
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n";
    for (file, text) in [
        ("pod.yaml", pod),
        ("cluster.yaml", &cluster.to_string()),
        ("broken.yaml", "a:\n  b: {\n"),
        ("refused", refused),
        ("good.toml", "[log]\nlevel = 'debug'\n"),
        ("wrong.toml", "[capabilities]\nreservation = 'on'\n"),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
}

fn node() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" },
        "status": { "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "110" } },
    })
}

fn class() -> serde_json::Value {
    json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_use_ends_with_its_code_and_says_what_is_wrong_where_and_what_to_do() {
    assert!(RIGHT.len() + WRONG.len() >= 40 && WRONG.len() >= 20);
    let server = ApiServer::of(ApiServerRelease::default()).await;
    install(&server);
    server.create_yaml(&fs::read_to_string(root().join("deploy/crds/reservations.yaml")).unwrap());
    let made = server.create(node());
    server.set_status("nodes", "n1", made.get("status").cloned().unwrap_or_else(|| node()["status"].clone()));
    server.create(class());
    server.create(slice("n1-a", "n1"));
    let kubeconfig = server.kubeconfig("operator").display().to_string();
    let temp = tempfile::tempdir().unwrap();
    write_files(temp.path());
    let asked = tokio::task::spawn_blocking(move || {
        let folder = temp.path();
        let all = RIGHT.iter().map(|it| (true, it)).chain(WRONG.iter().map(|it| (false, it)));
        all.filter_map(|(is_right, (line, code, pieces))| {
            let tree = root().display().to_string();
            let words = line.split(' ').map(|word| word.replace("SERVER", &kubeconfig).replace("TREE", &tree));
            let mut command = Command::new(env!("CARGO_BIN_EXE_hostler-controller"));
            command.args(words).current_dir(folder).env("HOME", folder);
            let output = command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
            let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
            fault((is_right, line, *code, pieces), output.status.code(), &out, &err)
        })
        .collect::<Vec<String>>()
    });
    let faults = asked.await.unwrap();
    assert!(faults.is_empty(), "{} uses:\n{}", faults.len(), faults.join("\n"));
}

/// Says what is wrong with the end of a use.
fn fault(
    (is_right, line, code, pieces): (bool, &str, i32, &[&str]),
    ended: Option<i32>,
    out: &str,
    err: &str,
) -> Option<String> {
    let told = format!("{out}{err}");
    let missing: Vec<&&str> = pieces.iter().filter(|piece| !told.contains(**piece)).collect();
    let may_name_keys = code == 78 || is_right || ["run", "ready", "config"].iter().any(|it| line.starts_with(it));
    let named: Vec<&&str> = SECTIONS.iter().filter(|section| !may_name_keys && err.contains(**section)).collect();
    let is_silent = !is_right && err.trim().is_empty();
    let is_well = ended == Some(code) && missing.is_empty() && named.is_empty() && !is_silent;
    (!is_well)
        .then(|| format!("$ {line}: ended with {ended:?}, not {code}; lacks {missing:?}; names {named:?}\n{told}"))
}
