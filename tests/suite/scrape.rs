//! Figures for readers on other hosts: the real daemon asks an API server in this process for their identity.

use std::{fs, io::Read, net::SocketAddr};

use hostler_testing::{
    apiserver::{ApiFault, ApiServer, ApiServerRelease, FaultEffect, LoggedRequest, PolicyRule},
    host::{Host, wait_for},
    scraper::{ScrapeAnswer, scrape},
};
use serde_json::json;

const USER: &str = "system:serviceaccount:hostler-system:hostler";
pub(crate) const READER: &str = "system:serviceaccount:hostler-system:hostler-scraper";

/// A daemon that may do what the shipped role allows, and a reader who may do what the shipped role of readers allows.
pub(crate) struct ScrapeRig {
    pub(crate) server: ApiServer,
    pub(crate) host: Host,
    pub(crate) address: SocketAddr,
    reader: String,
}

/// Returns the rules of a shipped role.
pub(crate) fn shipped_role(file: &str) -> Vec<PolicyRule> {
    let path = format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"));
    PolicyRule::from_yaml(&fs::read_to_string(path).unwrap())
}

impl ScrapeRig {
    async fn started() -> Self {
        Self::started_in("[[device]]\nname = \"card\"\n", |_| ()).await
    }

    /// Starts a daemon with these devices in a cluster that was prepared, and waits until it serves figures.
    pub(crate) async fn started_in(script: &str, prepare: impl FnOnce(&ApiServer)) -> Self {
        let mut rig = Self::listening_on("127.0.0.1:0", script, prepare).await;
        rig.address = wait_for("figures over the network", || served_at(&rig.host.log()));
        rig
    }

    /// Waits until the daemon is ready, whether or not it serves figures.
    async fn listening_on(listen: &str, script: &str, prepare: impl FnOnce(&ApiServer)) -> Self {
        let server = ApiServer::of(ApiServerRelease::V1_36).await;
        prepare(&server);
        server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
        server.allow(USER, shipped_role("cluster/rbac.yaml"));
        server.user(USER, Some("node"));
        server.allow(READER, shipped_role("components/prometheus/scraper.yaml"));
        let metrics = format!("[metrics]\nscrape = \"{listen}\"\n");
        let mut host = Host::bare_with(script, &metrics);
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = {:?}\n", server.kubeconfig(USER));
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap().replace("[cluster]\n", &cluster);
        fs::write(host.path("hostler.toml"), config).unwrap();
        host.start();
        let (address, reader) = (([127, 0, 0, 1], 0).into(), server.user(READER, None));
        Self { server, host, address, reader }
    }

    async fn get(&self, path: &str, token: Option<&str>) -> ScrapeAnswer {
        scrape(self.address, path, token).await.unwrap()
    }

    async fn code(&self, token: Option<&str>) -> u16 {
        self.get("/metrics", token).await.code
    }

    fn reviews(&self, plural: &str) -> usize {
        self.server.writes(plural)
    }
}

/// Returns the address in the log line about figures.
fn served_at(log: &str) -> Option<SocketAddr> {
    let line = log.lines().find(|line| line.contains("figures are served over the network"))?;
    let plain: String = line.chars().filter(|letter| !letter.is_control()).collect();
    let mut words = plain.split(|letter: char| !(letter.is_ascii_digit() || ".:[]".contains(letter)));
    words.find_map(|word| word.parse::<SocketAddr>().ok().filter(|address| address.ip().is_loopback()))
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_go_over_the_network_to_readers_whom_the_api_server_lets_read_them_and_to_nobody_else() {
    let rig = ScrapeRig::started().await;
    let nosy = "system:serviceaccount:default:nosy";
    rig.server.allow(nosy, Vec::new());
    let allowed = rig.get("/metrics", Some(&rig.reader)).await;
    assert_eq!(allowed.code, 200, "{}", allowed.body);
    assert!(allowed.body.contains("\nhostler_ready "), "{}", allowed.body);
    assert_eq!(allowed.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(rig.code(Some(&rig.server.user(nosy, None))).await, 403);
    for stranger in [None, Some("garbage"), Some("a b"), Some("")] {
        let refused = rig.get("/metrics", stranger).await;
        assert_eq!(
            (refused.code, &refused.headers["www-authenticate"]),
            (401, &"Bearer".parse().unwrap()),
            "{stranger:?}"
        );
        assert!(!refused.body.contains("hostler_"), "{}", refused.body);
    }
    // Figures only, for every reader.
    for path in ["/healthz", "/readyz", "/v1/status", "/"] {
        assert_eq!(rig.get(path, Some(&rig.reader)).await.code, 404, "{path}");
    }
    // The shipped role grants what the daemon needs; to see pods it needs one more, and does without.
    let is_refused = |call: &LoggedRequest| call.status == 403 && call.resource != "pods";
    let refused: Vec<_> = rig.server.log().into_iter().filter(is_refused).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_comes_again_is_not_asked_about_again() {
    let rig = ScrapeRig::started().await;
    for _ in 0..3 {
        assert_eq!(rig.code(Some(&rig.reader)).await, 200);
        assert_eq!(rig.code(Some("garbage")).await, 401);
    }
    assert_eq!((rig.reviews("tokenreviews"), rig.reviews("subjectaccessreviews")), (2, 1));
    // A missing header, or one that cannot be a token, causes no review.
    assert_eq!((rig.code(None).await, rig.code(Some("a b")).await), (401, 401));
    assert_eq!(rig.reviews("tokenreviews"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_figures_while_the_api_server_cannot_say_who_he_is() {
    let rig = ScrapeRig::started().await;
    for resource in ["tokenreviews", "subjectaccessreviews"] {
        let how = FaultEffect::Status(500, None);
        rig.server.fail(ApiFault { verb: "create", resource, name: None, times: 1, how });
        let refused = rig.get("/metrics", Some(&rig.reader)).await;
        assert_eq!((refused.code, refused.body.as_str()), (503, "tokens cannot be reviewed now\n"), "{resource}");
        rig.server.heal();
    }
    rig.server.stop_listening().await;
    assert_eq!(rig.code(Some(&rig.reader)).await, 503);
    assert!(rig.host.log().contains("nobody new is answered: tokens cannot be reviewed"), "{}", rig.host.log());
    rig.server.listen_again().await;
    assert_eq!(rig.code(Some(&rig.reader)).await, 200);
    // A review counts for a while, so that a short outage leaves no hole in the figures.
    rig.server.stop_listening().await;
    assert_eq!(rig.code(Some(&rig.reader)).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_never_read_from_a_connection_without_tls() {
    let rig = ScrapeRig::started().await;
    let (address, token) = (rig.address, rig.reader.clone());
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // An alert, or the end of the connection.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    });
    let answer = answer.await.unwrap();
    assert!(!answer.contains("HTTP/1.1"), "{answer}");
    assert_eq!(rig.reviews("tokenreviews"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_somebody_else_has_keeps_no_daemon_from_its_work() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut rig = ScrapeRig::listening_on(&taken.local_addr().unwrap().to_string(), "", |_| ()).await;
    // The daemon is ready all the same, reports the missing listener, and serves as soon as it can.
    rig.address = taken.local_addr().unwrap();
    wait_for("the reason", || rig.host.log().contains("no figures over the network yet").then_some(()));
    drop(taken);
    wait_for("figures over the network", || served_at(&rig.host.log()));
    assert_eq!(rig.code(Some(&rig.reader)).await, 200);
}
