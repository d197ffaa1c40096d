//! TLS towards a service: only the authority that the settings name vouches for it.

use std::{path::Path, sync::Arc};

use hostler_files::read_file;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::RedfishSetupError;

/// The certificates of all public authorities have less.
const MOST_BYTES: u64 = 4 << 20;

/// Sessions to be resumed. A configuration is for one service; the library's own number, of many servers, is a table of 28 kB.
const SESSIONS: usize = 8;

/// The TLS configuration that trusts the certificates of a file; without one, nothing is trusted.
pub(super) fn client_config(service: &str, authority: Option<&Path>) -> Result<ClientConfig, RedfishSetupError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = authority {
        let pem = read_file(file, MOST_BYTES)
            .map_err(|source| RedfishSetupError::Authority { service: service.to_owned(), source })?;
        let unusable = |reason: String| RedfishSetupError::Certificate {
            service: service.to_owned(),
            file: file.display().to_string(),
            reason,
        };
        add_roots(&mut roots, &pem).map_err(unusable)?;
    }
    let unusable = |error: rustls::Error| RedfishSetupError::Certificate {
        service: service.to_owned(),
        file: authority.map(|file| file.display().to_string()).unwrap_or_default(),
        reason: error.to_string(),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

fn add_roots(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("it is no certificate in PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("a certificate in it cannot be used: {error}"))?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(()) }
}
