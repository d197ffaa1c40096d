//! Address of the API server and credentials of this process: from a kubeconfig, or from the pod that it runs in.
//!
//! Certificates and tokens only. A kubeconfig may also name a program that gives credentials; a privileged daemon
//! starts no programs because a file says so.

use std::{
    env, fs, io,
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hostler_files::{FileError, read_file, read_text};
use hyper::{Uri, header::HeaderValue};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::{Deserialize, de::IgnoredAny};
use tracing::warn;

/// The folder that Kubernetes puts the credentials of a pod into.
const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Tokens of pods live for an hour and are replaced when a fifth of that is left.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// A kubeconfig with many clusters, or the certificates of all public authorities, have less.
const MOST_BYTES: u64 = 4 << 20;

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// A kubeconfig is not YAML.
    #[error("kubeconfig {path} is not valid YAML: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The mistake.
        reason: String,
    },
    /// A field of a kubeconfig cannot be used.
    #[error("kubeconfig {path}: field {field}: {reason}")]
    Field {
        /// The file.
        path: PathBuf,
        /// Path of the field.
        field: String,
        /// The mistake, and the fix.
        reason: String,
    },
    /// An address cannot be used.
    #[error("{address}: {reason}")]
    Address {
        /// The address.
        address: String,
        /// The mistake, and the fix.
        reason: String,
    },
    /// There is neither a kubeconfig nor a pod.
    #[error("no kubeconfig is named, and this is no pod with a service account: name a kubeconfig")]
    NoPod,
    /// Certificate and key do not work together.
    #[error("failed to use the certificate for the API server")]
    Tls(#[source] rustls::Error),
}

/// The source of credentials.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CredentialsSource {
    /// A kubeconfig; `None`: the pod that this process runs in.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; `None`: the current one.
    pub context: Option<String>,
}

impl From<Option<&Path>> for CredentialsSource {
    fn from(kubeconfig: Option<&Path>) -> Self {
        Self { kubeconfig: kubeconfig.map(Path::to_owned), context: None }
    }
}

/// Address and credentials of a connection.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) server: Uri,
    pub(crate) tls: ClientConfig,
    /// The name to check the server's certificate against, if not the one in its address.
    pub(crate) server_name: Option<String>,
    pub(crate) token: Option<BearerToken>,
    /// Files that all of this was read from, but for the token, which is read again by itself.
    files: Vec<(PathBuf, FileStamp)>,
}

/// Mark of a file that changes when the file is replaced. Certificates are replaced long before they expire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileStamp {
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { inode: file.ino(), size_bytes: file.size(), modified: (file.mtime(), file.mtime_nsec()) })
    }

    /// Taken before the file is read: what is replaced meanwhile is read once more.
    fn of_all(paths: impl IntoIterator<Item = PathBuf>) -> Result<Vec<(PathBuf, Self)>, CredentialsError> {
        let stamped = |path: PathBuf| match Self::of(&path) {
            Ok(stamp) => Ok((path, stamp)),
            Err(source) => Err(CredentialsError::Read { path, source }),
        };
        paths.into_iter().map(stamped).collect()
    }
}

impl Credentials {
    /// True if a file is another one than it was. One that is away is about to be replaced.
    pub(crate) fn are_outdated(&self) -> bool {
        self.files.iter().any(|(path, before)| FileStamp::of(path).is_ok_and(|now| now != *before))
    }

    /// Of a server that is no API server: its address, a file with a token, and one with the certificates that vouch
    /// for it.
    pub(crate) fn of_service(
        address: &str,
        token: Option<&Path>,
        authority: Option<&Path>,
    ) -> Result<Self, CredentialsError> {
        choose_cryptography();
        let wrong = |reason: &str| CredentialsError::Address { address: address.to_owned(), reason: reason.to_owned() };
        let server: Uri = address.parse().map_err(|_| wrong("write https://HOST:PORT"))?;
        let roots = match (server.scheme_str(), authority) {
            (Some("https"), Some(file)) => roots(&read(file)?).map_err(|reason| wrong(&reason))?,
            (Some("https"), None) => return Err(wrong("name the certificates that vouch for it")),
            (Some("http"), _) if token.is_none() || is_here(&server) => RootCertStore::empty(),
            (Some("http"), _) => return Err(wrong("a token goes nowhere without https")),
            _ => return Err(wrong("write https://HOST:PORT")),
        };
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let token = token.map(|file| BearerToken::of_file(file.to_owned()));
        Ok(Self { server, tls, server_name: None, token, files: Vec::new() })
    }

    /// From a kubeconfig, or of the pod.
    pub(crate) fn find(source: &CredentialsSource) -> Result<Self, CredentialsError> {
        choose_cryptography();
        match &source.kubeconfig {
            Some(path) => KubeconfigFile::read(path)?.credentials(source.context.as_deref()),
            None => of_pod(Path::new(POD)),
        }
    }
}

fn choose_cryptography() {
    // Rustls guesses which cryptography to use, and panics when a build has several. An error: the choice was made
    // before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// True if requests to the server do not leave this machine.
fn is_here(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn read(path: &Path) -> Result<Vec<u8>, CredentialsError> {
    read_file(path, MOST_BYTES).map_err(|FileError { path, source, .. }| CredentialsError::Read { path, source })
}

fn of_pod(folder: &Path) -> Result<Credentials, CredentialsError> {
    let place = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let (host, port) = place("KUBERNETES_SERVICE_HOST")
        .zip(place("KUBERNETES_SERVICE_PORT"))
        .filter(|_| folder.join("token").exists())
        .ok_or(CredentialsError::NoPod)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let server = format!("https://{host}:{port}").parse().map_err(|_| CredentialsError::NoPod)?;
    let authority = folder.join("ca.crt");
    let wrong =
        |reason: String| CredentialsError::Field { path: authority.clone(), field: "ca.crt".to_owned(), reason };
    let files = FileStamp::of_all([authority.clone()])?;
    let roots = roots(&read(&authority)?).map_err(wrong)?;
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Credentials { server, tls, server_name: None, token: Some(BearerToken::of_file(folder.join("token"))), files })
}

/// The namespace of the pod that this process runs in, if it runs in one that has credentials.
pub fn pod_namespace() -> Option<String> {
    let text = String::from_utf8(read(&Path::new(POD).join("namespace")).ok()?).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("it is no certificate in PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("a certificate in it cannot be used: {error}"))?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(roots) }
}

/// A token that goes with every request. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct BearerToken(Arc<TokenSource>);

#[derive(Debug)]
enum TokenSource {
    Text(HeaderValue),
    /// A file, with its last content and the time of the read. The file is replaced before the token in it expires.
    File(PathBuf, Mutex<Option<(Instant, HeaderValue)>>),
}

impl BearerToken {
    fn of_file(path: PathBuf) -> Self {
        Self(Arc::new(TokenSource::File(path, Mutex::default())))
    }

    /// The value of the header `Authorization`. A file that cannot be read leaves the last token; without one the
    /// server says that it does not know us.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let (path, last) = match &*self.0 {
            TokenSource::Text(header) => return Some(header.clone()),
            TokenSource::File(path, last) => (path, last),
        };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, header)) = last.as_ref().filter(|(since, _)| since.elapsed() < TOKEN_AGE) {
            return Some(header.clone());
        }
        // A local file of a kilobyte, once a minute: not worth a thread.
        let read = read_text(path, MOST_BYTES).map_err(|error| error.source.to_string());
        match read.and_then(|text| bearer(text.trim())) {
            Ok(header) => *last = Some((Instant::now(), header)),
            Err(error) => warn!(path = %path.display(), error, "failed to read the token for the API server"),
        }
        last.as_ref().map(|(_, header)| header.clone())
    }
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| "it is no token".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}

/// A kubeconfig; what is not named here does not concern a daemon.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: KubeconfigCluster,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KubeconfigCluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    proxy_url: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: KubeconfigContext,
}

#[derive(Debug, Deserialize)]
struct KubeconfigContext {
    cluster: String,
    user: String,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    user: KubeconfigUser,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KubeconfigUser {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
    r#as: Option<IgnoredAny>,
}

/// A kubeconfig with its place: it names other files relative to its own folder.
#[derive(Debug)]
struct KubeconfigFile {
    path: PathBuf,
    stamp: Vec<(PathBuf, FileStamp)>,
    config: Kubeconfig,
}

impl KubeconfigFile {
    fn read(path: &Path) -> Result<Self, CredentialsError> {
        let stamp = FileStamp::of_all([path.to_owned()])?;
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        let syntax = |reason: String| CredentialsError::Syntax { path: path.to_owned(), reason };
        // Without pieces of the text in the message: it is full of secrets.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        let value: serde_json::Value =
            serde_saphyr::from_str_with_options(&text, options).map_err(|error| syntax(error.to_string()))?;
        let config = serde_path_to_error::deserialize(value).map_err(|error| CredentialsError::Field {
            path: path.to_owned(),
            field: error.path().to_string(),
            reason: error.inner().to_string(),
        })?;
        Ok(Self { path: path.to_owned(), stamp, config })
    }

    fn field(&self, field: impl Into<String>, reason: impl Into<String>) -> CredentialsError {
        CredentialsError::Field { path: self.path.clone(), field: field.into(), reason: reason.into() }
    }

    fn credentials(&self, context: Option<&str>) -> Result<Credentials, CredentialsError> {
        let config = &self.config;
        let (chosen, by) = match context {
            Some(name) => (name, "contexts"),
            None => (&*config.current_context, "contexts (by current-context)"),
        };
        let named = |name: &str, what: &str| self.field(what, format!("there is none with the name {name:?}"));
        let context = config.contexts.iter().find(|context| context.name == chosen);
        let context = &context.ok_or_else(|| self.no_context(chosen, by))?.context;
        let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
        let cluster = &cluster.ok_or_else(|| named(&context.cluster, "clusters"))?.cluster;
        let user = config.users.iter().find(|user| user.name == context.user);
        let user = &user.ok_or_else(|| named(&context.user, "users"))?.user;
        self.refuse_what_is_not_done(cluster, user)?;
        let server = cluster.server.parse().map_err(|_| {
            let reason = format!("{:?} is no address; write https://HOST:PORT", cluster.server);
            self.field("clusters[].cluster.server", reason)
        })?;
        let named = [&cluster.certificate_authority, &user.client_certificate, &user.client_key];
        let mut files = self.stamp.clone();
        files.extend(FileStamp::of_all(named.into_iter().flatten().map(|file| self.beside(file)))?);
        Ok(Credentials {
            server,
            tls: self.tls(cluster, user)?,
            server_name: cluster.tls_server_name.clone(),
            token: self.token(user)?,
            files,
        })
    }

    fn no_context(&self, name: &str, by: &str) -> CredentialsError {
        let known: Vec<&str> = self.config.contexts.iter().map(|context| &*context.name).collect();
        let others = if known.is_empty() { String::new() } else { format!("; there are {}", known.join(", ")) };
        self.field(by, format!("there is none with the name {name:?}{others}"))
    }

    fn refuse_what_is_not_done(
        &self,
        cluster: &KubeconfigCluster,
        user: &KubeconfigUser,
    ) -> Result<(), CredentialsError> {
        let instead = "use a client certificate, or tokenFile with a token that something else renews";
        let found = [
            (user.exec.is_some(), "users[].user.exec", "hostler starts no programs"),
            (user.auth_provider.is_some(), "users[].user.auth-provider", "it is not supported"),
            (user.username.is_some(), "users[].user.username", "API servers know no passwords any more"),
            (user.r#as.is_some(), "users[].user.as", "acting as somebody else is not supported"),
            (
                cluster.insecure_skip_tls_verify,
                "clusters[].cluster.insecure-skip-tls-verify",
                "the server must be checked",
            ),
            (cluster.proxy_url.is_some(), "clusters[].cluster.proxy-url", "proxies are not supported"),
        ];
        match found.into_iter().find(|(is_there, ..)| *is_there) {
            Some((_, field, why)) if field.starts_with("users") => Err(self.field(field, format!("{why}; {instead}"))),
            Some((_, field, why)) => Err(self.field(field, why)),
            None => Ok(()),
        }
    }

    fn tls(&self, cluster: &KubeconfigCluster, user: &KubeconfigUser) -> Result<ClientConfig, CredentialsError> {
        const AUTHORITY: &str = "clusters[].cluster.certificate-authority";
        let authority = self.pem(AUTHORITY, &cluster.certificate_authority, &cluster.certificate_authority_data)?;
        let authority = match authority {
            Some(pem) => pem,
            // A server that is not asked for its certificate needs no authority.
            None if cluster.server.starts_with("http://") => Vec::new(),
            None => {
                return Err(self.field(AUTHORITY, "it is missing: name the certificate that vouches for the server"));
            }
        };
        let roots = if authority.is_empty() {
            RootCertStore::empty()
        } else {
            roots(&authority).map_err(|reason| self.field(AUTHORITY, reason))?
        };
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let certificate =
            self.pem("users[].user.client-certificate", &user.client_certificate, &user.client_certificate_data)?;
        let key = self.pem("users[].user.client-key", &user.client_key, &user.client_key_data)?;
        match (certificate, key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(certificate), Some(key)) => {
                let wrong = |field, error: rustls::pki_types::pem::Error| self.field(field, error.to_string());
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
                let chain = chain.map_err(|error| wrong("users[].user.client-certificate", error))?;
                let key =
                    PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong("users[].user.client-key", error))?;
                builder.with_client_auth_cert(chain, key).map_err(CredentialsError::Tls)
            }
            _ => Err(self.field("users[].user", "a certificate needs its key, and the other way round")),
        }
    }

    /// Content of a file, or of the kubeconfig itself.
    fn pem(
        &self,
        field: &str,
        file: &Option<PathBuf>,
        data: &Option<String>,
    ) -> Result<Option<Vec<u8>>, CredentialsError> {
        use base64::{Engine, engine::general_purpose::STANDARD};

        if let Some(data) = data {
            let decoded = STANDARD.decode(data.trim());
            return decoded.map(Some).map_err(|_| self.field(format!("{field}-data"), "it is not base64"));
        }
        file.as_ref().map(|file| read(&self.beside(file))).transpose()
    }

    fn beside(&self, file: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| file.to_owned(), |folder| folder.join(file))
    }

    fn token(&self, user: &KubeconfigUser) -> Result<Option<BearerToken>, CredentialsError> {
        if let Some(file) = &user.token_file {
            return Ok(Some(BearerToken::of_file(self.beside(file))));
        }
        let Some(text) = &user.token else { return Ok(None) };
        let header = bearer(text.trim()).map_err(|reason| self.field("users[].user.token", reason))?;
        Ok(Some(BearerToken(Arc::new(TokenSource::Text(header)))))
    }
}

#[cfg(test)]
mod tests;
