//! A connection, played by hand: what the runtime says, and what it is told.

use hostler_proto::nri::{LinuxCpu, LinuxResources, UpdateContainersRequest};

use super::*;
use crate::nri::testing::{KIND, UID_A, UID_B, container, facts, hook, on_cpus, pod};

/// A runtime that speaks with a session.
struct Runtime {
    session: Session,
    facts: PinningFacts,
    now: Instant,
    stream: u32,
}

impl Runtime {
    /// Has welcomed the plugin, and told it of these containers.
    fn synchronized(nri: &str, facts: PinningFacts, containers: Vec<Container>) -> (Self, SynchronizeResponse) {
        let now = Instant::now();
        let (session, _registration) = Session::begin(&PluginIdentity { index: 7, kind: KIND.to_owned() }, now);
        let mut runtime = Self { session, facts, now, stream: 1 };
        let configure = ConfigureRequest {
            runtime_name: "containerd".to_owned(),
            runtime_version: "v2.3.4".to_owned(),
            nri_version: nri.to_owned(),
            ..ConfigureRequest::default()
        };
        let ConfigureResponse { events } = runtime.call("Configure", &configure).unwrap();
        assert_eq!(events, 0b110_1100_1000, "nothing that old runtimes do not know");
        let request = SynchronizeRequest { pods: vec![pod()], containers, more: false };
        let answer = runtime.call("Synchronize", &request).unwrap();
        (runtime, answer)
    }

    fn hear(&mut self, method: &str, payload: &impl prost::Message) -> Result<Option<Message>, SessionError> {
        let message = Message::request(self.stream, PLUGIN_SERVICE, method, payload);
        self.stream += 2;
        self.session.hear(Connection::Plugin, &message, &self.facts, self.now)
    }

    fn call<R: prost::Message + Default>(&mut self, method: &str, payload: &impl prost::Message) -> Result<R, Status> {
        let answer = self.hear(method, payload).unwrap().unwrap();
        assert_eq!((answer.stream, answer.kind), (self.stream - 2, MessageKind::Response));
        let payload = ttrpc::Response::decode(&*answer.data).unwrap().into_payload()?;
        Ok(R::decode(&*payload).unwrap())
    }

    fn create(&mut self, container: Container) -> Result<CreateContainerResponse, Status> {
        let request = CreateContainerRequest { pod: Some(pod()), container: Some(container) };
        self.call("CreateContainer", &request)
    }

    fn claims(&mut self, claims: &[(&str, &[&str])]) {
        self.facts = facts("0-7", claims);
        self.session.consider(&self.facts);
    }

    /// What the plugin asks for now.
    fn asked(&mut self) -> Option<(u32, UpdateContainersRequest)> {
        let call = self.session.next_call(self.now)?;
        let request = ttrpc::Request::decode(&*call.data).unwrap();
        assert_eq!((&*request.service, &*request.method), (RUNTIME_SERVICE, "UpdateContainers"));
        Some((call.stream, UpdateContainersRequest::decode(&*request.payload).unwrap()))
    }
}

const ASKED: &str = "v0.12.1";
const OLD: &str = "";

fn sets(resources: Option<LinuxResources>) -> (String, String) {
    let LinuxCpu { cpus, mems, shares, quota, .. } = resources.unwrap().cpu.unwrap();
    assert_eq!((shares, quota), (None, None), "nothing else is touched");
    (cpus, mems)
}

fn adjusted(created: CreateContainerResponse) -> (String, String) {
    sets(created.adjust.unwrap().linux.unwrap().resources)
}

fn updated(updates: &[ContainerUpdate]) -> Vec<(String, String)> {
    let cpus = |update: &ContainerUpdate| sets(update.linux.clone().unwrap().resources).0;
    updates.iter().map(|update| (update.container_id.clone(), cpus(update))).collect()
}

fn pair(id: &str, cpus: &str) -> (String, String) {
    (id.to_owned(), cpus.to_owned())
}

#[tokio::test]
async fn the_first_word_is_the_registration() {
    let (session, message) = Session::begin(&PluginIdentity { index: 7, kind: KIND.to_owned() }, Instant::now());
    let request = ttrpc::Request::decode(&*message.data).unwrap();
    let registration = RegisterPluginRequest::decode(&*request.payload).unwrap();
    assert_eq!((&*request.service, &*request.method), (RUNTIME_SERVICE, "RegisterPlugin"));
    assert_eq!((&*registration.plugin_name, &*registration.plugin_idx), ("hostler", "07"));
    assert_eq!(session.stage, SessionStage::Welcoming);
}

#[tokio::test]
async fn a_container_with_a_claim_gets_its_cpus_and_one_without_gets_what_is_left() {
    let (mut runtime, _) = Runtime::synchronized(ASKED, facts("0-7", &[(UID_A, &["2-3"])]), vec![]);
    let created = runtime.create(container("c", &[hook(UID_A, "--cpus 2-3")])).unwrap();
    assert_eq!(adjusted(created), pair("2-3", ""));
    assert_eq!(adjusted(runtime.create(container("d", &[])).unwrap()), pair("1,4-7", ""));
    assert_eq!(runtime.asked(), None, "both have it already");
    assert_eq!(runtime.session.known.len(), 2);
}

#[tokio::test]
async fn a_resize_in_place_keeps_the_cpus() {
    let (mut runtime, _) = Runtime::synchronized(ASKED, facts("0-7", &[(UID_A, &["2-3"])]), vec![]);
    for (id, hooks, cpus) in [("c", vec![hook(UID_A, "--cpus 2-3")], "2-3"), ("d", vec![], "1,4-7")] {
        runtime.create(container(id, &hooks)).unwrap();
        let request = UpdateContainerRequest {
            pod: Some(pod()),
            container: Some(container(id, &hooks)),
            linux_resources: Some(LinuxResources {
                cpu: Some(LinuxCpu { cpus: "0-7".to_owned(), ..LinuxCpu::default() }),
                ..LinuxResources::default()
            }),
        };
        let answer: UpdateContainerResponse = runtime.call("UpdateContainer", &request).unwrap();
        assert_eq!(updated(&answer.update), [pair(id, cpus)]);
    }
}

#[tokio::test]
async fn an_empty_pool_refuses_and_is_never_widened() {
    let (mut runtime, answer) =
        Runtime::synchronized(ASKED, facts("0-3", &[(UID_A, &["1-3"])]), vec![container("old", &[])]);
    assert_eq!(answer.update, []);
    let refusal = runtime.create(container("c", &[])).unwrap_err();
    assert_eq!(
        (refusal.code, &*refusal.message),
        (code::FAILED_PRECONDITION, "hostler: the shared pool is empty: claims have every CPU that is not reserved")
    );
    assert_eq!((runtime.session.known.len(), runtime.session.counts.refused, runtime.asked()), (1, 1, None));
    runtime.create(container("d", &[hook(UID_A, "--cpus 1-3")])).unwrap();
}

#[tokio::test]
async fn a_container_with_what_no_record_gives_is_refused_and_a_forged_variable_gives_nothing() {
    let (mut runtime, _) = Runtime::synchronized(ASKED, facts("0-7", &[(UID_A, &["2-3"])]), vec![]);
    for (hooks, expected) in [
        (hook(UID_B, "--cpus 4"), "is not prepared on this node"),
        (hook(UID_A, "--cpus 2-4"), "whose record gives no device with them"),
        (hook(UID_A, "--cpus ?"), "is not one that hostler writes"),
    ] {
        let refusal = runtime.create(container("c", &[hooks])).unwrap_err();
        assert!(refusal.message.contains(expected), "{}", refusal.message);
    }
    assert_eq!(runtime.session.known.len(), 0);
    let mut forged = container("c", &[]);
    forged.env = vec![format!("DRA_CPUSET_{UID_A}=2-3"), format!("DRA_CPUSET_{UID_B}=junk")];
    assert_eq!(adjusted(runtime.create(forged).unwrap()), pair("1,4-7", ""));
}

#[tokio::test]
async fn who_stands_in_the_way_of_a_claim_leaves_in_the_answer_that_starts_it() {
    let others = || vec![on_cpus(container("web", &[]), "1-7"), on_cpus(container("far", &[]), "6-7")];
    for nri in [ASKED, OLD] {
        let (mut runtime, _) = Runtime::synchronized(nri, facts("0-7", &[]), others());
        runtime.claims(&[(UID_A, &["2-3"])]);
        let created = runtime.create(container("c", &[hook(UID_A, "--cpus 2-3")])).unwrap();
        let moved = updated(&created.update);
        assert!(moved.contains(&pair("web", "1,4-7")), "{nri:?}: {moved:?}");
        assert!(created.update.iter().all(|update| update.ignore_failure), "they do not fail the container");
    }
}

#[tokio::test]
async fn the_pool_is_asked_for_where_the_runtime_can_be_asked() {
    let (mut runtime, answer) = Runtime::synchronized(ASKED, facts("0-7", &[]), vec![container("web", &[])]);
    assert_eq!(updated(&answer.update), [pair("web", "1-7")]);
    for (claims, cpus) in [(&[(UID_A, &["2-3"][..])][..], "1,4-7"), (&[][..], "1-7")] {
        runtime.claims(claims);
        let (stream, request) = runtime.asked().unwrap();
        assert_eq!((updated(&request.update), stream % 2), (vec![pair("web", cpus)], 1));
        assert_eq!(runtime.asked(), None, "one at a time");
        let done = Message::response(stream, &UpdateContainersResponse::default());
        assert_eq!(runtime.session.hear(Connection::Runtime, &done, &runtime.facts, runtime.now).unwrap(), None);
        assert_eq!(runtime.asked(), None);
    }
}

#[tokio::test]
async fn runtimes_that_can_lock_up_are_never_asked_and_told_in_answers_or_by_connecting_anew() {
    for nri in [OLD, "v0.12.0"] {
        let (mut runtime, _) = Runtime::synchronized(nri, facts("0-7", &[]), vec![container("web", &[])]);
        runtime.claims(&[(UID_A, &["2-3"])]);
        assert_eq!(runtime.asked(), None);
        let deadline = runtime.session.deadline(runtime.now).unwrap();
        assert!(runtime.session.check(runtime.now).is_ok(), "changes are collected first");
        assert!(matches!(runtime.session.check(deadline), Err(SessionError::Renew)));
        let stop = StopContainerRequest { pod: None, container: Some(container("other", &[])) };
        let answer: StopContainerResponse = runtime.call("StopContainer", &stop).unwrap();
        assert_eq!(updated(&answer.update), [pair("web", "1,4-7")]);
        assert!(runtime.session.check(deadline).is_ok(), "nothing waits any more");
    }
}

#[tokio::test]
async fn everything_is_told_in_pieces_to_newer_plugins() {
    let (mut runtime, _) = Runtime::synchronized(ASKED, facts("0-7", &[]), vec![]);
    let piece = |pods, ids: &[&str], more| SynchronizeRequest {
        pods,
        containers: ids.iter().map(|id| container(id, &[])).collect(),
        more,
    };
    let first: SynchronizeResponse = runtime.call("Synchronize", &piece(vec![pod()], &["a", "b"], true)).unwrap();
    assert_eq!(first, SynchronizeResponse { update: vec![], more: true });
    assert_eq!(runtime.session.known.len(), 0, "half of it is worth nothing");
    let last: SynchronizeResponse = runtime.call("Synchronize", &piece(vec![], &["c"], false)).unwrap();
    assert_eq!((updated(&last.update).len(), last.more, runtime.session.known.len()), (3, false, 3));
}

#[tokio::test]
async fn a_container_that_was_made_unseen_is_met_when_it_starts() {
    let (mut runtime, _) = Runtime::synchronized(ASKED, facts("0-7", &[]), vec![]);
    let unseen = Container { pid: 42, ..container("unseen", &[]) };
    let change =
        StateChangeEvent { event: Event::PostStartContainer.into(), pod: Some(pod()), container: Some(unseen) };
    let _: Empty = runtime.call("StateChange", &change).unwrap();
    assert_eq!(updated(&runtime.asked().unwrap().1.update), [pair("unseen", "1-7")]);
    let gone = StateChangeEvent { event: Event::RemoveContainer.into(), ..change };
    let _: Empty = runtime.call("StateChange", &gone).unwrap();
    assert_eq!(runtime.session.known.len(), 0);
}

#[tokio::test]
async fn what_makes_no_sense_ends_the_connection_and_what_is_unknown_is_refused() {
    let (mut runtime, _) = Runtime::synchronized(ASKED, facts("0-7", &[]), vec![]);
    let refusal = runtime.call::<Empty>("Dance", &Empty {}).unwrap_err();
    assert_eq!(refusal.code, code::UNIMPLEMENTED);
    let mut garbage = Message::request(9, PLUGIN_SERVICE, "Configure", &Empty {});
    garbage.data = vec![0xff; 40];
    let hear =
        |session: &mut Session, connection, message| session.hear(connection, message, &runtime.facts, runtime.now);
    let error = hear(&mut runtime.session, Connection::Plugin, &garbage).unwrap_err();
    assert!(matches!(error, SessionError::Garbage { what: "request", .. }));
    let turned = Message::response(9, &Empty {});
    let error = hear(&mut runtime.session, Connection::Plugin, &turned).unwrap_err();
    assert!(matches!(error, SessionError::WrongKind));
    let stray = Message::response(99, &Empty {});
    assert_eq!(hear(&mut runtime.session, Connection::Runtime, &stray).unwrap(), None, "an answer that came too late");
}

#[tokio::test]
async fn a_runtime_that_says_no_or_nothing_is_left() {
    let now = Instant::now();
    let (mut session, registration) = Session::begin(&PluginIdentity { index: 7, kind: KIND.to_owned() }, now);
    assert!(session.check(now).is_ok());
    assert!(matches!(session.check(now + WELCOME), Err(SessionError::Silent(_))));
    let refusal = Message::refusal(registration.stream, code::UNKNOWN, "invalid plugin index");
    let error = session.hear(Connection::Runtime, &refusal, &facts("0-7", &[]), now).unwrap_err();
    assert_eq!(error.to_string(), "the runtime refuses the plugin: invalid plugin index");
}

#[tokio::test]
async fn an_update_that_is_never_answered_ends_the_connection() {
    let (mut runtime, _) = Runtime::synchronized(ASKED, facts("0-7", &[]), vec![container("web", &[])]);
    runtime.claims(&[(UID_A, &["2-3"])]);
    runtime.asked().unwrap();
    let deadline = runtime.session.deadline(runtime.now).unwrap();
    assert!(runtime.session.check(runtime.now).is_ok());
    assert!(matches!(runtime.session.check(deadline), Err(SessionError::Silent(_))));
}
