//! A scraper on another host: over TLS, from a server whose certificate it does not verify.

use std::{net::SocketAddr, sync::Arc};

use http_body_util::{BodyExt, Empty};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1,
    header::{AUTHORIZATION, HOST, HeaderMap},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};

/// The answer of a server.
#[derive(Debug)]
pub struct ScrapeAnswer {
    /// The HTTP status.
    pub code: u16,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The figures, or why there are none.
    pub body: String,
    /// The certificate that the server has shown, DER.
    pub certificate: Vec<u8>,
}

/// Asks for a path, with a token if there is one.
///
/// # Errors
/// When the server does not speak TLS, or hangs up.
pub async fn scrape(address: SocketAddr, path: &str, token: Option<&str>) -> Result<ScrapeAnswer, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
    let name = ServerName::from(address.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| failed(&error))?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
    let certificate = shown.map(|certificate| certificate.to_vec()).unwrap_or_default();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let mut request = Request::get(path).header(HOST, address.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(&error))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await?.to_bytes();
        Ok(ScrapeAnswer { code, headers, body: String::from_utf8_lossy(&body).into_owned(), certificate })
    };
    // The connection ends with the exchange.
    tokio::select! {
        answer = exchange => answer.map_err(|error: hyper::Error| failed(&error)),
        ended = connection => Err(format!("the server hung up: {ended:?}")),
    }
}

/// Takes every certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
