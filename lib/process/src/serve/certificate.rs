//! The certificate with which other hosts are served: made here, unknown to every client, and replaced in time.
//!
//! The certificate keeps tokens from eavesdroppers. A client that must know which server really answers has the
//! connection made by something that has a certificate of the cluster.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use rcgen::{CertificateParams, DnType, KeyPair};
use tokio_rustls::rustls::{
    self, ServerConfig, crypto,
    pki_types::PrivateKeyDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tracing::warn;

/// Time for which a certificate is valid.
const VALID: Duration = Duration::from_secs(90 * 24 * 3600);
/// Time for which a certificate is used: no client is ever shown one that is about to expire.
const USED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time by which a certificate is backdated: clocks differ.
pub const BACKDATED: Duration = Duration::from_secs(3600);

/// Reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The certificate could not be made.
    #[error("failed to make a certificate")]
    Make(#[from] rcgen::Error),
    /// The certificate cannot be used.
    #[error("failed to use the certificate that was made")]
    Use(#[from] rustls::Error),
    /// A given certificate or key cannot be read.
    #[error("the {0} is no PEM that can be read: {1}")]
    Read(&'static str, String),
    /// The certificate's key cannot be used.
    #[error("the key that was made is none: {0}")]
    Key(&'static str),
}

/// TLS configuration of a server that shows this certificate.
///
/// # Errors
/// When it cannot be made.
pub fn own_tls(certificate: Arc<OwnCertificate>) -> Result<ServerConfig, CertificateError> {
    // The first one is made now: a failure should be known before the first reader comes.
    certificate.latest(Instant::now())?;
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    Ok(config)
}

/// The latest certificate. A connection that comes when it is old makes a new one, which takes less than a millisecond.
#[derive(Debug)]
pub struct OwnCertificate {
    name: String,
    latest: Mutex<Option<(Instant, Arc<CertifiedKey>)>>,
}

impl OwnCertificate {
    /// A certificate for a server of this name.
    pub fn new(name: String) -> Self {
        Self { name, latest: Mutex::default() }
    }

    fn latest(&self, now: Instant) -> Result<Arc<CertifiedKey>, CertificateError> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, certificate)) = latest.as_ref().filter(|(since, _)| now.duration_since(*since) < USED) {
            return Ok(certificate.clone());
        }
        let certificate = Arc::new(make(&self.name)?);
        *latest = Some((now, certificate.clone()));
        Ok(certificate)
    }
}

impl ResolvesServerCert for OwnCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let latest = self.latest(Instant::now());
        latest.inspect_err(|error| warn!(error = %hostler_api::Chain(error), "somebody was sent away")).ok()
    }
}

fn make(name: &str) -> Result<CertifiedKey, CertificateError> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + VALID).into();
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(CertificateError::Key)?;
    let key = crypto::ring::sign::any_supported_type(&key)?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_long_before_it_expires() {
        let (own, now) = (OwnCertificate::new("n1".to_owned()), Instant::now());
        let shown = |after| own.latest(now + after).unwrap().cert[0].to_vec();
        let first = shown(Duration::ZERO);
        assert_eq!(shown(USED - Duration::from_secs(1)), first);
        assert_ne!(shown(USED), first);
        assert!(USED * 2 < VALID);
    }
}
