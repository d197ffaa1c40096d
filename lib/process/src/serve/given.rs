//! A certificate that comes from outside, and is replaced while it is served with; and one that is made with an
//! authority of its own, for clients that must be told which authority to trust.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::rustls::{
    ServerConfig, crypto,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::certificate::{BACKDATED, CertificateError};

/// The certificate that was given last; no client is served before the first one.
#[derive(Debug, Default)]
pub struct GivenCertificate(Mutex<Option<Arc<CertifiedKey>>>);

impl GivenCertificate {
    /// Shows this certificate to new connections from now on. Both arguments are PEM.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together. The earlier certificate then stays.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| CertificateError::Read("certificate", error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(key);
        let key = key.map_err(|error| CertificateError::Read("key", error.to_string()))?;
        let given = CertifiedKey::from_der(chain, key, &crypto::ring::default_provider())?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(given));
        Ok(())
    }
}

impl ResolvesServerCert for GivenCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// TLS configuration of a server that shows the certificate that is given to it.
///
/// # Errors
/// When TLS cannot be had.
pub fn given_tls(certificate: Arc<GivenCertificate>) -> Result<ServerConfig, CertificateError> {
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    Ok(config)
}

/// A certificate with its key, and the authority that signed it, all as PEM. The authority's key is gone: not even a
/// reader of all of this can sign another certificate with it.
#[derive(Clone, Debug)]
pub struct MadeCertificate {
    /// The certificate.
    pub certificate: String,
    /// Key of the certificate.
    pub key: String,
    /// Authority to trust.
    pub authority: String,
}

impl MadeCertificate {
    /// Makes a certificate for a server of these names, which is valid for so long.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(names: &[String], valid: Duration) -> Result<Self, CertificateError> {
        let now = SystemTime::now();
        let dated = |mut params: CertificateParams| {
            params.not_before = (now - BACKDATED).into();
            params.not_after = (now + valid).into();
            params
        };
        let first = names.first().map(String::as_str).unwrap_or_default();
        let mut authority = dated(CertificateParams::new(Vec::<String>::new())?);
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, format!("authority of {first}"));
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut server = dated(CertificateParams::new(names.to_vec())?);
        server.distinguished_name.push(DnType::CommonName, first);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem(), authority: authority.pem() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_by_a_good_one_only() {
        let made = |name: &str| MadeCertificate::new(&[name.to_owned()], Duration::from_secs(3600)).unwrap();
        let (one, other) = (made("one.example"), made("other.example"));
        let given = GivenCertificate::default();
        let shown = || given.0.lock().unwrap().as_ref().map(|it| it.cert[0].to_vec());
        assert_eq!(shown(), None);
        given.replace(one.certificate.as_bytes(), one.key.as_bytes()).unwrap();
        let first = shown();
        assert!(first.is_some());
        assert!(given.replace(other.certificate.as_bytes(), one.key.as_bytes()).is_err(), "they do not fit");
        assert!(given.replace(b"", other.key.as_bytes()).is_err());
        assert!(given.replace(other.certificate.as_bytes(), b"-----BEGIN").is_err());
        assert_eq!(shown(), first);
        given.replace(other.certificate.as_bytes(), other.key.as_bytes()).unwrap();
        assert_ne!(shown(), first);
    }
}
