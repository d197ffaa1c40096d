//! Kubeconfigs: address and credentials of a context, from the fields that people and tools write.

use std::{
    env,
    path::{Path, PathBuf},
    time::SystemTime,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::{Deserialize, de::IgnoredAny};

use super::{
    BearerToken, Credentials, CredentialsError, CredentialsSource, ExecProgram, ExecRunner, FileStamp,
    exec::ExecStatus, read, roots,
};

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

#[derive(Clone, Debug, Deserialize)]
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
pub(super) struct KubeconfigContext {
    cluster: String,
    user: String,
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    user: KubeconfigUser,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KubeconfigUser {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
    r#as: Option<IgnoredAny>,
}

impl KubeconfigCluster {
    /// Returns the cluster with what the source names instead.
    fn instead(&self, source: &CredentialsSource) -> Self {
        let mut cluster = self.clone();
        if let Some(server) = &source.server {
            // The name in the certificate is that of the server that the kubeconfig names.
            (cluster.server, cluster.tls_server_name) = (server.clone(), None);
        }
        if let Some(authority) = &source.authority {
            // Beside the caller, not beside the kubeconfig.
            let absolute = env::current_dir().map_or_else(|_| authority.clone(), |folder| folder.join(authority));
            (cluster.certificate_authority, cluster.certificate_authority_data) = (Some(absolute), None);
        }
        cluster
    }
}

/// A kubeconfig with its place: it names other files relative to its own folder.
#[derive(Debug)]
pub(super) struct KubeconfigFile {
    path: PathBuf,
    stamp: Vec<(PathBuf, FileStamp)>,
    config: Kubeconfig,
}

impl KubeconfigFile {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, CredentialsError> {
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

    /// Returns a context, or the current one.
    pub(super) fn context(&self, context: Option<&str>) -> Result<&KubeconfigContext, CredentialsError> {
        let (chosen, by) = match context {
            Some(name) => (name, "contexts"),
            None => (&*self.config.current_context, "contexts (by current-context)"),
        };
        let found = self.config.contexts.iter().find(|context| context.name == chosen);
        Ok(&found.ok_or_else(|| self.no_context(chosen, by))?.context)
    }

    /// Returns the credentials of a context, or of the current one, with what the source names instead.
    pub(super) fn credentials(&self, source: &CredentialsSource) -> Result<Credentials, CredentialsError> {
        let config = &self.config;
        let context = self.context(source.context.as_deref())?;
        let named = |name: &str, what: &str| self.field(what, format!("there is none with the name {name:?}"));
        let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
        let cluster = &cluster.ok_or_else(|| named(&context.cluster, "clusters"))?.cluster.instead(source);
        let user = match source.token {
            // The token alone says who asks: a certificate beside it would count for more.
            Some(_) => &KubeconfigUser::default(),
            None => {
                let user = config.users.iter().find(|user| user.name == context.user);
                &user.ok_or_else(|| named(&context.user, "users"))?.user
            }
        };
        self.refuse_what_is_not_done(cluster, user, source.exec.is_some())?;
        let server = cluster.server.parse().map_err(|_| {
            let reason = format!("{:?} is no address; write https://HOST:PORT", cluster.server);
            self.field("clusters[].cluster.server", reason)
        })?;
        let named = [&cluster.certificate_authority, &user.client_certificate, &user.client_key];
        let mut files = self.stamp.clone();
        files.extend(FileStamp::of_all(named.into_iter().flatten().map(|file| self.beside(file)))?);
        let (user, end) = self.with_given(user, cluster, source.exec)?;
        Ok(Credentials {
            server,
            tls: self.tls(cluster, &user)?,
            server_name: cluster.tls_server_name.clone(),
            token: source.token.clone().map_or_else(|| self.token(&user), |token| Ok(Some(token)))?,
            acts_as: None,
            end,
            files,
        })
    }

    /// Returns the user with what the program of the kubeconfig gives, and the end of that.
    fn with_given(
        &self,
        user: &KubeconfigUser,
        cluster: &KubeconfigCluster,
        exec: Option<ExecRunner>,
    ) -> Result<(KubeconfigUser, Option<SystemTime>), CredentialsError> {
        let mut user = user.clone();
        let Some((program, run)) = user.exec.take().zip(exec) else { return Ok((user, None)) };
        let wrong = |reason: String| self.field("users[].user.exec", reason);
        let mut program: ExecProgram =
            serde_json::from_value(program).map_err(|error: serde_json::Error| wrong(error.to_string()))?;
        if program.command.components().count() > 1 {
            program.command = self.beside(&program.command);
        }
        let given = ExecStatus::ask(&program, Some(self.cluster_info(cluster)?), run).map_err(wrong)?;
        let end = given.end();
        user.token = given.token.or(user.token);
        let encoded = |pem: String| STANDARD.encode(pem);
        user.client_certificate_data = given.client_certificate_data.map(encoded).or(user.client_certificate_data);
        user.client_key_data = given.client_key_data.map(encoded).or(user.client_key_data);
        Ok((user, end))
    }

    /// Returns what a program is told of the cluster that it is asked for.
    fn cluster_info(&self, cluster: &KubeconfigCluster) -> Result<serde_json::Value, CredentialsError> {
        const AUTHORITY: &str = "clusters[].cluster.certificate-authority";
        let authority = self.pem(AUTHORITY, &cluster.certificate_authority, &cluster.certificate_authority_data)?;
        Ok(serde_json::json!({
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "certificate-authority-data": authority.map(|pem| STANDARD.encode(pem)),
        }))
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
        starts_programs: bool,
    ) -> Result<(), CredentialsError> {
        let instead = "use a client certificate, or tokenFile with a token that something else renews";
        let found = [
            (user.exec.is_some() && !starts_programs, "users[].user.exec", "hostler starts no programs"),
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
        // Tools that give another credential leave it empty.
        let token = user.token.as_ref().filter(|text| !text.trim().is_empty()).map(|text| text.parse());
        token.transpose().map_err(|reason: String| self.field("users[].user.token", reason))
    }
}
