//! What people are told by the commands and by the controller's API: what is kept for whom, and why something is not.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Output, Stdio},
};

use hostler_testing::{
    apiserver::{ApiFault, FaultEffect, PolicyRule},
    visitor::Visitor,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{cluster::HoldCluster, value};
use crate::rig::USER;

/// The command, with the rights of the controller.
fn command(cluster: &HoldCluster, args: &[&str]) -> Command {
    command_of(cluster, USER, args)
}

fn command_of(cluster: &HoldCluster, user: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostler-controller"));
    command.args(args).arg("--kubeconfig").arg(cluster.server.kubeconfig(user));
    command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn told(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Somebody may look at all that it takes.
fn explain(cluster: &HoldCluster, name: &str) -> String {
    let looks = ["reservations", "nodehardware", "pods", "resourceclaims"]
        .map(|resource| PolicyRule { verbs: vec!["get".to_owned(), "list".to_owned()], ..lists(resource) });
    cluster.server.allow("person", looks.into());
    told(&command_of(cluster, "person", &["explain", "reservation", name]).output().unwrap()).to_owned()
}

fn lists(resource: &str) -> PolicyRule {
    PolicyRule {
        api_groups: vec!["*".to_owned()],
        resources: vec![resource.to_owned()],
        verbs: vec!["list".to_owned()],
        ..PolicyRule::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_why_is_told_what_is_waited_for_and_who_is_in_the_way() {
    let mut cluster = HoldCluster::without_daemons().await;
    cluster.node("n1", 1);
    cluster.reserve("first", 1, "owner", &json!({ "ttl": "2h" }));
    let text = explain(&cluster, "first");
    let nobody = "nobody has said anything of it yet: is there a controller with capabilities.reservations switched on";
    assert!(text.contains(nobody), "{text}");
    let _controller = cluster.controller().await;
    let is_told = |view: &hostler_testing::apiserver::ApiServerView<'_>| {
        view.get("nodehardware", "n1")?["spec"]["holds"].is_array().then_some(())
    };
    cluster.server.until("the node is told", is_told).await;
    let text = explain(&cluster, "first");
    let silent = "being closed to others: the daemon of node n1 has not published it yet; is it running?";
    assert!(text.contains(silent), "{text}");
    cluster.run_daemons();
    let kept = cluster.until_phase("first", "Available").await;
    cluster.template("any", None);
    cluster.pod("owner", "any");
    cluster.until_refused("owner").await;
    let text = explain(&cluster, "first");
    for line in [
        "Reservation first: Available, 1 of 1 devices held, for Pod default/owner",
        "held: hostler.dev/n1/fake/card-0 on n1",
        &format!("value: {}, effect: NoSchedule", value(&kept)),
        "owner default/owner waits: its claim owner-card",
        "does not tolerate what is kept",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    cluster.reserve("second", 1, "other", &json!({}));
    let is_refused = |view: &hostler_testing::apiserver::ApiServerView<'_>| {
        let conditions = view.get("reservations", "second")?["status"]["conditions"].take();
        conditions.as_array()?.iter().any(|it| it["reason"] == "Unschedulable").then_some(())
    };
    cluster.server.until("it is said that there is none", is_refused).await;
    let text = explain(&cluster, "second");
    assert!(text.contains("it looks for devices since "), "{text}");
    assert!(text.contains("other Reservations keep devices: first (1 devices, until "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_look_or_means_nothing_that_is_there_is_told_so() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let output = command(&cluster, &["explain", "reservation", "none"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no Reservation none"), "{}", text(&output.stderr));
    cluster.server.allow("poor", Vec::new());
    let output = command_of(&cluster, "poor", &["explain", "reservation", "r"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("needs the verb list on reservations"), "{}", text(&output.stderr));
    // What else there would be to say is left out with the reason.
    let _controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({}));
    cluster.until_phase("r", "Available").await;
    cluster.server.allow("modest", vec![lists("reservations")]);
    let output = command_of(&cluster, "modest", &["explain", "reservation", "r"]).output().unwrap();
    let text = told(&output);
    assert!(text.contains("pods of owners were not looked at: ") && text.contains("verb list on pods"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn availability_says_for_whom_devices_are_held_to_those_who_may_know() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 2);
    let controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({ "ttl": "0" }));
    let kept = cluster.until_phase("r", "Available").await;
    let output = command(&cluster, &["availability", "-o", "json"]).output().unwrap();
    let answer: Value = serde_json::from_str(told(&output)).unwrap();
    let counts =
        |row: &Value| (row["capacity"].clone(), row["free"].clone(), row["held"].clone(), row["heldFor"].clone());
    let expected = (json!(2), json!(1), json!(1), json!({ "r": 1 }));
    assert_eq!((counts(&answer["rows"][0]), counts(&answer["total"])), (expected.clone(), expected));
    let reservation =
        json!({ "name": "r", "phase": "Available", "owners": ["Pod default/owner"], "lasts": "for ever" });
    assert_eq!(answer["reservations"], json!([reservation]));
    let output = command(&cluster, &["availability"]).output().unwrap();
    let table = "RESERVATION  PHASE      HELD  FOR                LASTS\n\
                 r            Available     1  Pod default/owner  for ever\n";
    assert!(told(&output).contains(table), "{}", told(&output));

    let resources = ["nodes", "deviceclasses", "resourceslices", "resourceclaims", "devicetaintrules", "nodehardware"];
    cluster.server.allow("modest", resources.map(lists).into());
    let output = command_of(&cluster, "modest", &["availability", "-o", "json"]).output().unwrap();
    let answer: Value = serde_json::from_str(told(&output)).unwrap();
    let taint = format!("hostler.dev/held={}", value(&kept));
    assert_eq!((&answer["total"]["heldFor"], &answer["reservations"]), (&json!({ &taint: 1 }), &Value::Null));
    assert!(answer["notes"][0].as_str().unwrap().contains(&taint), "{answer}");

    // The controller says the same, and of each device as well.
    let page = controller.visit(&cluster, "viewer", &["nodehardware", "reservations"]);
    let is_told = async |_: &_| {
        let answer = page.get("/v1/availability?by=node").await.json();
        (answer["rows"][0]["heldFor"] == json!({ "r": 1 })).then_some(answer)
    };
    let answer = controller.until("the controller has seen it", is_told).await;
    assert_eq!(answer["reservations"], json!([reservation]));
    let machine = page.get("/v1/nodes/n1").await.json();
    assert_eq!((&machine["devices"][0]["keptFor"], &machine["devices"][1]["keptFor"]), (&json!("r"), &Value::Null));
    assert_eq!((&machine["reservations"], &machine["reservationsShown"]), (&json!([reservation]), &json!(true)));
    let modest = controller.visit(&cluster, "modest", &["nodehardware"]).get("/v1/nodes/n1").await.json();
    assert_eq!((&modest["devices"][0]["state"], &modest["devices"][0]["keptFor"]), (&json!("held"), &Value::Null));
    assert_eq!((&modest["reservations"], &modest["reservationsShown"]), (&Value::Null, &json!(false)));
}

/// Somebody who asks a controller.
trait Visits {
    fn visit(&self, cluster: &HoldCluster, name: &str, resources: &[&str]) -> Visitor;
}

impl Visits for hostler_testing::controller::RunningController {
    fn visit(&self, cluster: &HoldCluster, name: &str, resources: &[&str]) -> Visitor {
        cluster.server.allow(name, resources.iter().map(|it| lists(it)).collect());
        Visitor::with_token(self.address(), format!("token-of-{name}"))
    }
}

/// `holds --watch`, and what it says.
struct WatchedHolds {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl WatchedHolds {
    fn start(cluster: &HoldCluster) -> Self {
        let mut command = command(cluster, &["holds", "--watch"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    /// Waits until a line begins with these words; what comes before is passed over.
    async fn until(mut self, words: &'static [&str]) -> Self {
        let reading = spawn_blocking(move || {
            let mut passed = String::new();
            loop {
                let mut line = String::new();
                if self.answers.read_line(&mut line).unwrap() == 0 {
                    panic!("it ended before {words:?} was said: {passed}");
                }
                if line.split_whitespace().zip(words).filter(|(one, other)| one == *other).count() == words.len() {
                    return self;
                }
                passed.push_str(&line);
            }
        });
        reading.await.unwrap()
    }

    async fn ended(mut self) -> ExitStatus {
        drop(self.answers);
        spawn_blocking(move || self.child.wait().unwrap()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_holds_sees_changes_also_after_the_server_was_away() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 2);
    let _controller = cluster.controller().await;
    let watched = WatchedHolds::start(&cluster);
    cluster.reserve("r", 1, "owner", &json!({}));
    let watched = watched.until(&["r", "Available", "1/1", "n1"]).await;
    cluster.server.stop_listening().await;
    cluster.reserve("s", 1, "owner", &json!({}));
    // The first list after the outage breaks as well.
    cluster.server.fail(ApiFault::new("list", "reservations", 1, FaultEffect::Status(503, None)));
    cluster.server.expire_watches();
    cluster.server.listen_again().await;
    let watched = watched.until(&["s", "Available", "1/1", "n1"]).await;
    cluster.ask_to_go("r");
    let is_gone =
        |view: &hostler_testing::apiserver::ApiServerView<'_>| view.get("reservations", "r").is_none().then_some(());
    cluster.server.until("it is gone", is_gone).await;
    let pid = Pid::from_raw(i32::try_from(watched.child.id()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let status = watched.ended().await;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_holds_and_reads_no_more_is_told_no_more() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let _controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let mut watched = WatchedHolds::start(&cluster).until(&["r", "Available", "1/1", "n1"]).await;
    let complaints = watched.child.stderr.take().unwrap();
    let ending = tokio::spawn(watched.ended());
    // What it says next finds the pipe closed.
    cluster.ask_to_go("r");
    let status = ending.await.unwrap();
    assert_eq!(status.code(), Some(0), "a reader that has seen enough is no failure: {status}");
    assert_eq!(std::io::read_to_string(complaints).unwrap(), "");
}
