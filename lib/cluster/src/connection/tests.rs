//! A server that is somewhere else after its kubeconfig was replaced.

use std::{fs, net::TcpListener, path::Path, thread};

use super::*;

/// A server that answers one request with `code`; gives its address.
fn server(code: u16) -> String {
    use std::io::{Read, Write};

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).unwrap();
        write!(stream, "HTTP/1.1 {code} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    });
    format!("http://{address}")
}

fn write(path: &Path, server: &str, token: &str) {
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\n"
    );
    fs::write(path, text).unwrap();
}

async fn status(connector: &ApiConnector) -> u16 {
    let request = Request::get("/version").body(Vec::new()).unwrap();
    connector.send(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn credentials_that_were_replaced_are_used_for_the_next_request() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("kubeconfig");
    write(&path, &server(201), "one");
    let connector = ApiConnector::new(Some(&*path).into(), ApiPatience::PROMPT, Duration::ZERO).unwrap();
    assert_eq!(status(&connector).await, 201);
    write(&path, &server(202), "another");
    assert_eq!(status(&connector).await, 202);
}

#[tokio::test]
async fn the_last_credentials_serve_while_the_new_ones_cannot_be_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("kubeconfig");
    write(&path, &server(203), "one");
    let connector = ApiConnector::new(Some(&*path).into(), ApiPatience::PROMPT, Duration::ZERO).unwrap();
    fs::write(&path, "clusters: [").unwrap();
    assert_eq!(status(&connector).await, 203);
    write(&path, &server(204), "two");
    assert_eq!(status(&connector).await, 204);
}

#[test]
fn a_server_may_lie_under_a_path() {
    let address = |server: &'static str| {
        super::address(&Uri::from_static(server), &Uri::from_static("/api/v1/pods?limit=1")).unwrap().to_string()
    };
    assert_eq!(address("https://cluster:6443"), "https://cluster:6443/api/v1/pods?limit=1");
    assert_eq!(address("https://cluster:6443/"), "https://cluster:6443/api/v1/pods?limit=1");
    assert_eq!(address("http://proxy/k8s/c1/"), "http://proxy/k8s/c1/api/v1/pods?limit=1");
}
