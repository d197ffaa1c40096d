//! Address of the API server and credentials of this process: from a kubeconfig, or from the pod that it runs in.
//!
//! A kubeconfig may also name a program that gives credentials. A privileged daemon starts no programs because a file
//! says so; the command of a user does, as kubectl does, and gives the function that starts it.

mod exec;
mod kubeconfig;

use std::{
    env, fs, io,
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use hostler_files::{FileError, read_file, read_text};
use hyper::{Uri, header::HeaderValue};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tracing::warn;

pub use self::exec::{ExecProgram, ExecRunner, ExecVariable};

use self::kubeconfig::KubeconfigFile;

/// The folder that Kubernetes puts the credentials of a pod into.
const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Tokens of pods live for an hour and are replaced when a fifth of that is left.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// The time before their end at which credentials of a program are asked for anew.
const SPARE: Duration = Duration::from_secs(15);

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
#[derive(Clone, Debug, Default)]
pub struct CredentialsSource {
    /// A kubeconfig; `None`: the pod that this process runs in.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; `None`: the current one.
    pub context: Option<String>,
    /// The server instead of that of the kubeconfig; without a kubeconfig, the only one.
    pub server: Option<String>,
    /// File with the certificates that vouch for the server, instead of those of the kubeconfig.
    pub authority: Option<PathBuf>,
    /// The token instead of all credentials of the kubeconfig or the pod.
    pub token: Option<BearerToken>,
    /// The function that starts the program of a kubeconfig; `None`: programs are refused.
    pub exec: Option<ExecRunner>,
    /// The user that the server is to take this one for, and the groups: the user must have the right to it.
    pub acts_as: Option<ActedUser>,
}

/// A user that another one acts as.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ActedUser {
    /// The user's name.
    pub name: String,
    /// Groups of the user.
    pub groups: Vec<String>,
}

impl From<Option<&Path>> for CredentialsSource {
    fn from(kubeconfig: Option<&Path>) -> Self {
        Self { kubeconfig: kubeconfig.map(Path::to_owned), ..Self::default() }
    }
}

impl CredentialsSource {
    /// Returns the namespace that the context names, or that of the pod, if there is one.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read, or has no such context.
    pub fn namespace(&self) -> Result<Option<String>, CredentialsError> {
        let Some(path) = &self.kubeconfig else { return Ok(pod_namespace()) };
        let file = KubeconfigFile::read(path)?;
        Ok(file.context(self.context.as_deref())?.namespace.clone().filter(|name| !name.is_empty()))
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
    /// The user that the server is to take this one for.
    pub(crate) acts_as: Option<ActedUser>,
    /// End of what a program gave.
    end: Option<SystemTime>,
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
    /// True if a file is another one than it was, or the time of what a program gave is over. A file that is away is
    /// about to be replaced.
    pub(crate) fn are_outdated(&self) -> bool {
        self.end.is_some_and(|end| end <= SystemTime::now() + SPARE)
            || self.files.iter().any(|(path, before)| FileStamp::of(path).is_ok_and(|now| now != *before))
    }

    /// Makes the credentials for a server of which nothing else is known: its address, the token, and a file with the
    /// certificates that vouch for it.
    pub(crate) fn of_server(
        address: &str,
        token: Option<BearerToken>,
        authority: Option<&Path>,
    ) -> Result<Self, CredentialsError> {
        choose_cryptography();
        let wrong = |reason: &str| CredentialsError::Address { address: address.to_owned(), reason: reason.to_owned() };
        let server: Uri = address.parse().map_err(|_| wrong("write https://HOST:PORT"))?;
        let roots = match (server.scheme_str(), authority) {
            (Some("https"), Some(file)) => roots(&read(file)?).map_err(|reason| wrong(&reason))?,
            (Some("https"), None) => {
                return Err(wrong(
                    "nothing vouches for it; name the file with its certificate: --certificate-authority FILE",
                ));
            }
            (Some("http"), _) if token.is_none() || is_here(&server) => RootCertStore::empty(),
            (Some("http"), _) => return Err(wrong("a token goes nowhere without https")),
            _ => return Err(wrong("write https://HOST:PORT")),
        };
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self { server, tls, server_name: None, token, acts_as: None, end: None, files: Vec::new() })
    }

    /// Finds the credentials of a kubeconfig, of a server that is named, or of the pod.
    pub(crate) fn find(source: &CredentialsSource) -> Result<Self, CredentialsError> {
        choose_cryptography();
        let found = match (&source.kubeconfig, &source.server) {
            (Some(path), _) => KubeconfigFile::read(path)?.credentials(source)?,
            (None, Some(server)) => Self::of_server(server, source.token.clone(), source.authority.as_deref())?,
            (None, None) => {
                let of_pod = of_pod(Path::new(POD))?;
                Self { token: source.token.clone().or(of_pod.token), ..of_pod }
            }
        };
        Ok(Self { acts_as: source.acts_as.clone(), ..found })
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
    let token = Some(BearerToken::of_file(folder.join("token")));
    Ok(Credentials { server, tls, server_name: None, token, acts_as: None, end: None, files })
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

/// A token that goes with every request. Cheap to clone; its text is in no debug output.
#[derive(Clone, Debug)]
pub struct BearerToken(Arc<TokenSource>);

#[derive(Debug)]
enum TokenSource {
    Text(HeaderValue),
    /// A file, with its last content and the time of the read. The file is replaced before the token in it expires.
    File(PathBuf, Mutex<Option<(Instant, HeaderValue)>>),
}

impl FromStr for BearerToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(Arc::new(TokenSource::Text(bearer(text.trim())?))))
    }
}

impl BearerToken {
    /// Makes the token that a file has, which may be replaced.
    pub fn of_file(path: PathBuf) -> Self {
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
    let none = || "it is no token".to_owned();
    if token.is_empty() {
        return Err(none());
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| none())?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests;
