//! Commands of the README and of docs/start.md, run as printed in a sandbox: hostler's own programs are real, on a made-up machine. Of all
//! others the sandbox notes the words, and what they name is looked for: files, targets, units, charts and flags.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use hostler_linux::testkit::{CpuLayout, MachineTree};
use hostler_testing::binary::{binary, controller_binary};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{markdown::scripts, read, root};

/// Programs that the README calls and that tests do not run.
const NOTED: [&str; 8] = ["apt", "dnf", "docker", "helm", "kubectl", "make", "podman", "systemctl"];

/// A daemon that rehearses on a machine with two NUMA nodes of 16 CPUs and 32 GiB each, and a folder of programs that
/// stand in for those of a host.
struct Sandbox {
    folder: tempfile::TempDir,
    daemon: Child,
}

impl Sandbox {
    fn start() -> Self {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let tree = MachineTree::new();
        CpuLayout { nodes: 2, cores: 8, threads: 2, blocks: 16 }.plug(&tree);
        let machine = folder.path().join("machine");
        assert!(Command::new("cp").arg("-a").arg(tree.path(".")).arg(&machine).status().unwrap().success());
        let mut daemon = Command::new(binary())
            .arg("run")
            .arg("--root")
            .arg(&machine)
            .env("TMPDIR", folder.path())
            .env_remove("JOURNAL_STREAM")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines().map(Result::unwrap);
        let socket = lines.find_map(|line| Some(line.split_once("socket=")?.1.trim().to_owned())).unwrap();
        assert!(lines.any(|line| line.contains(" ready ")), "it ended before it was ready");
        // The daemon's log is a pipe that has to be read.
        std::thread::spawn(move || lines.for_each(drop));
        let sandbox = Self { folder, daemon };
        sandbox.programs(&machine, &socket);
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// `hostler` asks the daemon of the sandbox; `inventory` and `doctor` look at its machine, and the latter ends with 1
    /// where it advises.
    fn programs(&self, machine: &Path, socket: &str) {
        fs::create_dir(self.path("bin")).unwrap();
        let (hostler, machine) = (binary(), machine.display());
        let doctor = format!("doctor) {} \"$@\" --root {machine} || test $? -eq 1;;", hostler.display());
        let inventory = format!("inventory) exec {} \"$@\" --root {machine};;", hostler.display());
        let daemon = format!("*) exec {} \"$@\" --socket {socket};;", hostler.display());
        self.program("hostler", &format!("case $1 in\n{doctor}\n{inventory}\n{daemon}\nesac"));
        self.program("sudo", "exec \"$@\"");
        symlink(controller_binary(), self.path("bin/hostler-controller")).unwrap();
        symlink(controller_binary(), self.path("bin/kubectl-hostler")).unwrap();
        for name in NOTED {
            let log = self.path("noted");
            self.program(name, &format!("{{ printf '{name}'; printf '\\t%s' \"$@\"; echo; }} >>{}", log.display()));
        }
    }

    fn run(&self, script: &str) -> Output {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-euc", script]).current_dir(root()).env("PATH", path).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a script that must succeed; returns the calls of other programs, word by word.
    fn calls_of(&self, script: &str) -> Vec<Vec<String>> {
        let output = self.run(script);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{out}{err}");
        let noted = fs::read_to_string(self.path("noted")).unwrap_or_default();
        let _ = fs::remove_file(self.path("noted"));
        noted.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.daemon.id().try_into().unwrap()), Signal::SIGTERM);
        let _ = self.daemon.wait();
    }
}

/// Returns the value behind a flag.
fn value<'a>(words: &[&'a str], flag: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1).copied())
}

/// Returns true if what a call of another program names is there.
fn names_what_is_there(sandbox: &Sandbox, words: &[&str]) -> bool {
    let file = |path: &str| root().join(path).is_file();
    match words {
        ["make", targets @ ..] => {
            let makefile = read("Makefile");
            targets.iter().all(|target| target.contains('=') || makefile.contains(&format!("\n{target}: ")))
        }
        ["kubectl", "hostler", command @ ..] => {
            let words: Vec<&str> = command.iter().copied().take_while(|word| !word.starts_with('-')).collect();
            let help = sandbox.run(&format!("kubectl-hostler {} --help", words[..1].join(" ")));
            let text = String::from_utf8_lossy(&help.stdout).into_owned();
            let flags = command.iter().filter(|word| word.starts_with("--"));
            help.status.success() && flags.into_iter().all(|flag| text.contains(flag))
        }
        ["kubectl", "apply", ..] => {
            let folder = value(words, "-k").is_none_or(|folder| file(&format!("{folder}/kustomization.yaml")));
            folder && value(words, "-f").is_none_or(file)
        }
        ["kubectl", verb, ..] => ["get", "create", "describe", "wait"].contains(verb),
        ["helm", "install" | "upgrade", _, chart, ..] => {
            let values = read(format!("{chart}/values.yaml"));
            let set = value(words, "--set").and_then(|set| set.split(['.', '=']).next());
            file(&format!("{chart}/Chart.yaml"))
                && set.is_none_or(|key| values.lines().any(|line| line.starts_with(&format!("{key}:"))))
        }
        ["systemctl", "enable", "--now", unit] => file(&format!("systemd/{unit}.service")),
        ["podman", "run", rest @ ..] => rest.iter().any(|word| word.starts_with("hostler.dev/claim=")),
        ["apt" | "dnf", "install", package] => package.starts_with("./hostler"),
        _ => false,
    }
}

#[test]
fn the_commands_of_the_first_pages_run_as_printed() {
    let sandbox = Sandbox::start();
    let pages = ["README.md", "docs/start.md"].map(read);
    let mut called: BTreeMap<String, usize> = BTreeMap::new();
    for script in pages.iter().flat_map(|page| scripts(page)) {
        for call in sandbox.calls_of(script) {
            let words: Vec<&str> = call.iter().map(String::as_str).collect();
            assert!(names_what_is_there(&sandbox, &words), "{words:?} names what is not there");
            *called.entry(words[..2].join(" ")).or_default() += 1;
        }
    }
    for way in ["apt install", "helm install", "kubectl apply", "kubectl hostler", "make demo", "make demo-cluster"] {
        assert!(called.contains_key(way), "no block has `{way}`: {called:?}");
    }
}

#[test]
fn a_command_that_names_what_is_not_there_is_found() {
    let sandbox = Sandbox::start();
    for script in [
        "make no-such-target",
        "kubectl apply -k deploy/no-such-bundle",
        "kubectl hostler no-such-command",
        "systemctl enable --now no-such-unit",
        "podman run debian:12",
    ] {
        let calls = sandbox.calls_of(script);
        let words: Vec<&str> = calls[0].iter().map(String::as_str).collect();
        assert!(!names_what_is_there(&sandbox, &words), "{script}");
    }
    assert!(!sandbox.run("hostler claim create train --no-such-flag").status.success());
}

#[test]
fn the_answers_on_the_start_page_are_those_of_the_programs() {
    let sandbox = Sandbox::start();
    let page = read("docs/start.md");
    let begin = scripts(&page).into_iter().find(|script| script.contains("claim create")).unwrap();
    let created = String::from_utf8(sandbox.run(begin).stdout).unwrap();
    let refused = sandbox.run("hostler claim create second --device cpu/numa0,cpus=16");
    let refused = String::from_utf8(refused.stderr).unwrap();
    for (answer, words) in [
        (&created, "state    prepared"),
        (&created, "cpus=4      0-1,16-17"),
        (&refused, "device numa0 has 12 of cpus left, 16 wanted; held by "),
    ] {
        assert!(answer.contains(words) && page.contains(words), "{words}: {answer}");
    }
}

#[test]
fn the_tree_that_the_documentation_shows_is_what_the_command_above_it_prints() {
    let page = read("docs/inventory.md");
    let (above, shown) = page.split_once("-o tree\n```\n").expect("a command that prints a tree");
    let command = above.lines().last().unwrap();
    let shown = shown.split("```\n").nth(1).unwrap();
    let script = format!("{command} -o tree");
    let output = Command::new(binary()).args(script.split_whitespace().skip(1)).current_dir(root()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{script}");
}
