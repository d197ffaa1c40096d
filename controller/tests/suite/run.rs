//! The running controller, against an API server: what it sees, what it may do, who leads, and what it writes.

use std::{fs, process::Command, time::Duration};

use crate::rig::{USER, install, install_rules_for_devices, objects, options, root, slice};
use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease, LoggedRequest, PolicyRule},
    controller::{ControllerOptions, RunningController},
    systemd::Systemd,
    visitor::Visitor,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

#[tokio::test(flavor = "multi_thread")]
async fn it_is_ready_when_everything_is_listed_and_sees_what_changes_then() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    server.create(slice("n1-a", "n1"));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    controller.until_figure(&objects("resourceslices", 1)).await;
    server.create(slice("n2-a", "n2"));
    controller.until_figure(&objects("resourceslices", 2)).await;
    server.delete("resourceslices", "n1-a");
    controller.until_figure(&objects("resourceslices", 1)).await;
    assert_eq!(controller.get("/healthz").await.unwrap().0, 200);
    assert_eq!(controller.stop().await, Some(0));
}

/// Which rule allows what was asked.
fn allowing(rules: &[PolicyRule], call: &LoggedRequest) -> Option<(usize, String)> {
    let allows = |rule: &PolicyRule| {
        rule.verbs.iter().any(|verb| verb == call.verb)
            && rule.resources.contains(&call.resource)
            && (rule.resource_names.is_empty()
                || call.name.as_ref().is_some_and(|name| rule.resource_names.contains(name)))
    };
    let at = rules.iter().position(allows)?;
    Some((at, format!("{} {}", call.verb, call.resource)))
}

#[tokio::test(flavor = "multi_thread")]
async fn its_role_allows_all_that_it_asks_and_nothing_that_it_never_asks() {
    let role = std::fs::read_to_string(root().join("deploy/controller/base/rbac.yaml")).unwrap();
    let rules = PolicyRule::from_yaml(&role);
    // One release tells lists as watches, and the other page by page.
    let mut asked: Vec<LoggedRequest> = Vec::new();
    for release in [ApiServerRelease::V1_36, ApiServerRelease::V1_33] {
        let server = ApiServer::of(release).await;
        install(&server);
        install_rules_for_devices(&server);
        server.allow(USER, rules.clone());
        let controller = RunningController::start(&options(&server)).await;
        controller.until_answers("/readyz", 200).await;
        let written = |view: &hostler_testing::apiserver::ApiServerView<'_>| {
            let sums = view.get("clusterhardware", "cluster")?;
            sums["status"]["lastChangeTime"].as_str().map(str::to_owned)
        };
        server.until("the sums are written", written).await;
        // Who asks it something is looked up.
        let token = server.user("viewer", None);
        Visitor::with_token(controller.address(), token).get("/v1/nodes").await;
        assert_eq!(controller.stop().await, Some(0));
        let holder =
            server.get("leases", "hostler-controller/hostler-controller").unwrap()["spec"]["holderIdentity"].clone();
        assert_eq!(holder, "", "it is given back");
        asked.extend(server.log().into_iter().filter(|call| call.user == USER && !call.resource.is_empty()));
    }
    let refused: Vec<&LoggedRequest> = asked.iter().filter(|call| call.status == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let used: Vec<(usize, String)> = asked.iter().filter_map(|call| allowing(&rules, call)).collect();
    assert_eq!(used.len(), asked.len(), "something was allowed that no rule allows");
    for (at, rule) in rules.iter().enumerate() {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let wanted = (at, format!("{verb} {resource}"));
                assert!(used.contains(&wanted), "nothing needs the verb {verb} on {resource}: {used:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_leads_and_the_other_begins_as_soon_as_it_is_told_to_stop() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    install(&server);
    let first = RunningController::start(&options(&server)).await;
    first.until_figure("hostler_controller_leads 1").await;
    let second = RunningController::start(&options(&server)).await;
    let said = second.until_answers("/readyz", 200).await;
    second.until("it knows who leads", async |it| it.get("/readyz").await?.1.contains(" leads\n").then_some(())).await;
    assert!(second.get("/metrics").await.unwrap().1.contains("hostler_controller_leads 0\n"), "{said}");
    assert_eq!(first.stop().await, Some(0));
    second.until_figure("hostler_controller_leads 1").await;
    let lease = server.get("leases", "hostler-controller/hostler-controller").unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stands_still_is_replaced_and_writes_nothing_when_it_goes_on() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    install(&server);
    let first = RunningController::start(&options(&server)).await;
    first.until_figure("hostler_controller_leads 1").await;
    let second = RunningController::start(&options(&server)).await;
    second.until_answers("/readyz", 200).await;
    first.signal(Signal::SIGSTOP);
    second.until_figure("hostler_controller_leads 1").await;
    let before = server.log().len();
    first.signal(Signal::SIGCONT);
    first.until_figure("hostler_controller_leads 0").await;
    let refused = server.log()[before..].iter().filter(|call| call.status == 409).count();
    let holder = |server: &ApiServer| {
        server.get("leases", "hostler-controller/hostler-controller").unwrap()["spec"]["holderIdentity"].clone()
    };
    let kept = holder(&server);
    first
        .until("it says that it does not lead", async |it| {
            let (_, said) = it.get("/readyz").await?;
            said.contains(&format!("{} leads", kept.as_str()?)).then_some(())
        })
        .await;
    assert_eq!(holder(&server), kept);
    assert!(refused <= 1, "at most the renewal that was under way comes late, and is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_the_kinds_gets_the_rest_and_a_condition_says_what_is_missing() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    let mut options = options(&server);
    let controller = RunningController::start(&options).await;
    let said = controller.until_answers("/readyz", 200).await;
    assert!(
        said.contains("NodeReports=False (NotServed): ") && said.contains("kubectl apply -k deploy/crds"),
        "{said}"
    );
    // It has nothing to write, and so does not lead in the other's place.
    let nothing =
        ["cluster_hardware", "classic_dra", "reservations", "provisioning"].map(|it| format!("{it} = 'off'\n"));
    options.config = format!("[capabilities]\nnode_reports = 'on'\n{}", nothing.concat());
    let needy = RunningController::start(&options).await;
    needy
        .until("it says what is missing", async |it| {
            let (code, said) = it.get("/readyz").await?;
            (code == 503 && said.contains("NodeReports=False (NotServed): ")).then_some(())
        })
        .await;
    assert!(needy.get("/readyz").await.unwrap().1.contains("ClusterHardware=False (Off): "));
    install(&server);
    needy.until_answers("/readyz", 200).await;
    controller.until_figure("hostler_controller_condition{type=\"NodeReports\",status=\"True\"} 1").await;
    controller.until_figure("hostler_controller_condition{type=\"ClusterHardware\",status=\"True\"} 1").await;
    let sums: Value = server.get("clusterhardware", "cluster").unwrap();
    let conditions = sums["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|condition| condition["type"] == "Synced" && condition["status"] == "True"),
        "{sums}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_hears_when_it_is_ready_alive_and_stopping_and_nothing_while_it_stands_still() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    let (systemd, environment) = Systemd::listen(&server.folder().join("notify"));
    let controller = RunningController::start(&ControllerOptions { environment, ..options(&server) }).await;
    assert!(systemd.next().starts_with("READY=1\nSTATUS=0 nodes; "), "the first word is that it is ready");
    for _ in 0..3 {
        systemd.wait_for("WATCHDOG=1");
    }
    controller.signal(Signal::SIGSTOP);
    // Several times what systemd allows; what was on its way is read first.
    systemd.0.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    while systemd.0.recv(&mut [0; 4096]).is_ok() {}
    controller.signal(Signal::SIGCONT);
    systemd.wait_for("WATCHDOG=1");
    assert_eq!(controller.stop().await, Some(0));
    systemd.wait_for("STOPPING=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_although_strangers_have_taken_every_place() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    let probes = format!("probe_socket = {:?}\n", server.folder().join("probe.sock"));
    let file = server.folder().join("probes.toml");
    fs::write(&file, &probes).unwrap();
    let options = options(&server);
    let options = ControllerOptions { config: format!("{probes}{}", options.config), ..options };
    let controller = RunningController::start(&options).await;
    controller.until_answers("/readyz", 200).await;
    let mut strangers = Vec::new();
    for _ in 0..300 {
        strangers.push(TcpStream::connect(controller.address()).await.unwrap());
    }
    let is_full = async |it: &RunningController| {
        timeout(Duration::from_millis(200), it.get("/healthz")).await.is_err().then_some(())
    };
    controller.until("every place is taken", is_full).await;
    for asked in [&["ready"][..], &["ready", "--alive"]] {
        let probe = Command::new(&options.binary).args(asked).arg("--config").arg(&file).output().unwrap();
        assert!(probe.status.success(), "{asked:?}: {}", String::from_utf8_lossy(&probe.stderr));
    }
    drop(strangers);
    assert_eq!(controller.stop().await, Some(0));
    let probe = Command::new(&options.binary).args(["ready", "--config"]).arg(&file).output().unwrap();
    assert_eq!(probe.status.code(), Some(1), "nobody answers");
}
