//! Names of sockets, and how serving ends.

use tempfile::TempDir;
use tokio::{net::UnixStream, time::Instant};
use tonic::codegen::http;

use super::*;

#[test]
fn sockets_have_the_names_that_the_kubelet_can_call() {
    let config = KubeletSocketPaths::new("hostler.dev", Path::new("/var/lib/kubelet"));
    assert_eq!(
        [config.registration_socket(), config.service_socket()],
        [
            Path::new("/var/lib/kubelet/plugins_registry/dra@hostler.dev-reg.sock"),
            Path::new("/var/lib/kubelet/plugins/hostler.dev/dra@service.sock"),
        ]
    );
    let other = config.clone().of_new_instance();
    assert_ne!(other.registration_socket(), config.registration_socket());
    for (of_one, of_other) in
        [(config.registration_socket(), other.registration_socket()), (config.service_socket(), other.service_socket())]
    {
        assert_eq!(of_one.as_os_str().len(), of_other.as_os_str().len(), "no instance makes a path too long");
    }
    let name = other.service_socket().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(KubeletSocketPaths::is_ours(&name, SERVICE_SUFFIX), "{name}");
}

#[test]
fn sockets_of_another_driver_are_never_ours() {
    let ours = |name| KubeletSocketPaths::is_ours(name, "@a.b-reg.sock");
    assert!(ours("dra@a.b-reg.sock") && ours("9x0@a.b-reg.sock"));
    for foreign in [
        "a.b-reg.sock",
        "dra@aa.b-reg.sock",
        "dra@a.b-x-reg.sock",
        "drab@a.b-reg.sock",
        "DRA@a.b-reg.sock",
        "dr@a.b-reg.sock",
        "dra@a.b.sock",
    ] {
        assert!(!ours(foreign), "{foreign}");
    }
}

/// A call whose request never comes to its end.
async fn half_a_call(path: &Path) -> h2::SendStream<&'static [u8]> {
    let connection = UnixStream::connect(path).await.unwrap();
    let (mut requests, connection) = h2::client::Builder::new().handshake(connection).await.unwrap();
    let (tasks, _ended_rx) = Tasks::new();
    tasks.job(connection);
    requests = requests.ready().await.unwrap();
    let request = http::Request::post("http://localhost/pluginregistration.Registration/GetInfo")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    requests.send_request(request, false).unwrap().1
}

/// How long a stop takes, on a clock of its own, while `calls` are in flight and half a request is on the socket.
async fn stop_with(calls: TaskTracker) -> Duration {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("dra@x-reg.sock");
    let socket = ListeningSocket::bind(path.clone()).await.unwrap();
    let (registration_tx, _registration_rx) = watch::channel(RegistrationState::default());
    let service = registration::RegistrationService::new(
        "x",
        "/x".into(),
        ClassicCalls::Auto,
        registration_tx,
        watch::Sender::default(),
    );
    let stop = CancellationToken::new();
    let client = async {
        let mut call = half_a_call(&path).await;
        // The server gives room for data once it has seen the call.
        call.reserve_capacity(1);
        assert!(std::future::poll_fn(|context| call.poll_capacity(context)).await.unwrap().is_ok());
        stop.cancel();
        (call, Instant::now())
    };
    let serving = serve_socket(
        (socket, ServedSocket::KubeletRegistration),
        Routes::new(RegistrationServer::new(service)),
        (calls, watch::Sender::default()),
        stop.clone(),
    );
    let (served, (_call, stopped)) = tokio::join!(serving, client);
    served.unwrap();
    assert!(!path.exists());
    stopped.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_ends_delays_the_stop_and_does_not_prevent_it() {
    let calls = TaskTracker::new();
    let _call = calls.token();
    assert!(stop_with(calls).await >= GRACE);
}

#[tokio::test(start_paused = true)]
async fn half_a_request_does_not_delay_the_stop() {
    assert!(stop_with(TaskTracker::new()).await < GRACE);
}
