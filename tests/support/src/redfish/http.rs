//! The wire: one request to a connection, and bytes that no library would send.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
    time::sleep,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

use super::{
    PlayedState,
    knobs::PlayedBody,
    verbs::{PlayedAnswer, PlayedRequest},
};

const MOST_BODY: usize = 1 << 20;

/// The acceptor, and the signing certificate as PEM.
pub(crate) fn certificates() -> (TlsAcceptor, String) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name.push(DnType::CommonName, "fabric authority");
    let authority =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("a certificate");
    let key = KeyPair::generate().expect("a key");
    let names = vec!["127.0.0.1".to_owned()];
    let server = CertificateParams::new(names).expect("names").signed_by(&key, &authority).expect("signed");
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a private key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![server.der().clone()], private)
        .expect("key and certificate fit");
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}

/// Serves connections until it is dropped.
pub(crate) async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, state: Arc<Mutex<PlayedState>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            // A client that goes, or does not trust the certificate, is its own affair.
            let _ = match acceptor {
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => talk(stream, &state).await,
                    Err(error) => Err(error),
                },
                None => talk(stream, &state).await,
            };
        });
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(stream: S, state: &Mutex<PlayedState>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let request = read_request(&mut stream).await?;
    let is_write = request.method != "GET";
    let time = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.note(&request);
        state.writing += u32::from(is_write);
        state.most_writing = state.most_writing.max(state.writing);
        state.reading += u32::from(!is_write);
        state.most_reading = state.most_reading.max(state.reading);
        if is_write { state.knobs.slow_writes } else { state.knobs.slow_reads }
    };
    if !time.is_zero() {
        sleep(time).await;
    }
    let answer = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.writing -= u32::from(is_write);
        state.reading -= u32::from(!is_write);
        state.carry_out(&request)
    };
    send(&mut stream, answer).await?;
    stream.shutdown().await
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> io::Result<PlayedRequest> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = words.next().zip(words.next()).ok_or(io::ErrorKind::InvalidData)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let length: usize = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or_default();
    let mut body = vec![0; length.min(MOST_BODY)];
    stream.read_exact(&mut body).await?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(PlayedRequest { method, path, headers, body })
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, answer: PlayedAnswer) -> io::Result<()> {
    match answer {
        PlayedAnswer::End => Ok(()),
        PlayedAnswer::Hang => std::future::pending().await,
        PlayedAnswer::Status { status, headers, body } => {
            let mut head =
                format!("HTTP/1.1 {status} Played\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
            headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
            stream.write_all(format!("{head}\r\n{body}").as_bytes()).await
        }
        PlayedAnswer::Body(body, document) => send_body(stream, body, &document).await,
    }
}

async fn send_body<S: AsyncWrite + Unpin>(stream: &mut S, body: PlayedBody, document: &str) -> io::Result<()> {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
    let with_length = |length: usize, text: &str| format!("{HEAD}Content-Length: {length}\r\n\r\n{text}");
    match body {
        PlayedBody::Document => stream.write_all(with_length(document.len(), document).as_bytes()).await,
        PlayedBody::Half => {
            stream.write_all(with_length(document.len(), &document[..document.len() / 2]).as_bytes()).await
        }
        PlayedBody::Text => stream.write_all(with_length(5, "hello").as_bytes()).await,
        PlayedBody::Pages => {
            let next = format!("/redfish/v1/Fabrics?skip={}", page_number(document));
            let page = serde_json::json!({"Members": [], "Members@odata.nextLink": next}).to_string();
            stream.write_all(with_length(page.len(), &page).as_bytes()).await
        }
        PlayedBody::Large(bytes) => {
            stream.write_all(with_length(bytes, "[").as_bytes()).await?;
            repeat(stream, bytes / BLOCK.len()).await
        }
        PlayedBody::Endless => {
            stream.write_all(format!("{HEAD}\r\n[").as_bytes()).await?;
            repeat(stream, usize::MAX).await
        }
        PlayedBody::Trickle => {
            stream.write_all(format!("{HEAD}\r\n[").as_bytes()).await?;
            loop {
                stream.write_all(b" ").await?;
                stream.flush().await?;
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// A number that makes pages differ, so that no client notices the circle by their addresses.
fn page_number(document: &str) -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map(|it| it.as_nanos());
    since.unwrap_or_default() + document.len() as u128
}

static BLOCK: [u8; 64 << 10] = [b' '; 64 << 10];

async fn repeat<S: AsyncWrite + Unpin>(stream: &mut S, blocks: usize) -> io::Result<()> {
    for _ in 0..blocks {
        stream.write_all(&BLOCK).await?;
    }
    Ok(())
}
