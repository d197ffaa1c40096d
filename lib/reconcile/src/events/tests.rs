//! Events are written although the server refuses or is away when they are told.

use hostler_testing::apiserver::{ApiFault, ApiServer, ApiServerRelease, FaultEffect};

use super::*;

fn waiting(name: &str, from: Instant) -> WaitingEvent {
    let subject = EventSubject {
        api_version: "v1".to_owned(),
        kind: "Pod",
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
    };
    WaitingEvent { subject, note: EventNote::new("Told", "a word".to_owned()), at: SystemTime::now(), from }
}

fn writer(server: &ApiServer) -> EventWriter {
    let client = ApiClient::new(Some(&*server.kubeconfig("controller"))).unwrap();
    EventWriter::new(EventRecorder::new(client, "hostler-controller", "host"))
}

fn refusal(times: u32, code: u16) -> ApiFault {
    ApiFault::new("create", "events", times, FaultEffect::Status(code, None))
}

#[tokio::test]
async fn an_event_that_a_server_that_has_just_started_refuses_is_written_all_the_same() {
    for code in [403, 503] {
        let server = ApiServer::of(ApiServerRelease::default()).await;
        let mut writer = writer(&server);
        server.fail(refusal(2, code));
        writer.write(&waiting("p", Instant::now())).await.unwrap();
        assert_eq!((server.faults_left(), server.writes("events")), (0, 3), "{code}: two tries and the write");
    }
}

#[tokio::test]
async fn an_event_that_cannot_be_written_in_its_time_is_lost_and_told_once() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    let mut writer = writer(&server);
    server.fail(refusal(2, 403));
    let long_ago = Instant::now() - KEEP_TRYING;
    for is_told in [false, true] {
        assert_eq!(writer.is_told, is_told);
        let failure = writer.write(&waiting("p", long_ago)).await.unwrap_err();
        writer.lost(&failure);
    }
    assert_eq!(server.faults_left(), 0, "each is tried once");
    server.fail(refusal(1, 422));
    assert!(writer.write(&waiting("q", Instant::now())).await.is_err(), "trying again does not help");
    writer.write(&waiting("q", Instant::now())).await.unwrap();
}
