//! The certificates: one that signs, and one for the server's address.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

/// The acceptor, and the signing certificate as PEM.
pub(crate) fn new() -> (TlsAcceptor, String) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name.push(DnType::CommonName, "test authority");
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("a certificate");
    let server_key = KeyPair::generate().expect("a key");
    // The second is this host for an emulated machine.
    let names = ["127.0.0.1", "10.0.2.2", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let server = CertificateParams::new(names).expect("names").signed_by(&server_key, &authority).expect("signed");
    let private = PrivateKeyDer::try_from(server_key.serialize_der()).expect("a private key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![server.der().clone()], private)
        .expect("key and certificate fit");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}
