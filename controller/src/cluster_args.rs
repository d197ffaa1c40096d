//! The cluster that a command asks, found as kubectl finds it.

mod exec;
mod namespace;

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use hostler_cluster::{ActedUser, ApiClient, ApiPatience, BearerToken, ConnectError, CredentialsSource};

pub(crate) use self::namespace::NamespaceArgs;

/// The cluster that is asked.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig of the cluster [default: the first file of KUBECONFIG that is there, else ~/.kube/config, else the
    /// service account of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Address of the API server instead of that of the kubeconfig: https://HOST:PORT
    #[arg(short, long, value_name = "URL")]
    server: Option<String>,
    /// File with the certificates that vouch for the server that is asked, instead of those of the kubeconfig
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Token that says who asks, instead of all credentials of the kubeconfig; others on this machine can see it in the
    /// list of processes
    #[arg(long, value_name = "TOKEN")]
    token: Option<BearerToken>,
    /// User to act as, which the API server must allow
    #[arg(long = "as", value_name = "USER")]
    acts_as: Option<String>,
    /// Group to act as, together with --as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "acts_as")]
    groups: Vec<String>,
}

impl ClusterArgs {
    /// True if a cluster was named: a kubeconfig, a context or a server.
    pub(crate) fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.server.is_some()
    }

    /// Returns the file with the certificates that vouch for the server, if one was named.
    pub(crate) fn certificate_authority(&self) -> Option<&Path> {
        self.certificate_authority.as_deref()
    }

    /// Returns the token, if one was given.
    pub(crate) fn token(&self) -> Option<BearerToken> {
        self.token.clone()
    }

    /// Makes a client for commands: it reads whole clusters.
    pub(crate) fn client(&self) -> Result<ApiClient, ConnectError> {
        ApiClient::with_patience(self.source(), ApiPatience::BULK)
    }

    fn source(&self) -> CredentialsSource {
        let home = env::var_os("HOME").map(PathBuf::from);
        let usual = || usual(env::var_os("KUBECONFIG").as_deref(), home.as_deref());
        CredentialsSource {
            kubeconfig: self.kubeconfig.clone().or_else(usual),
            context: self.context.clone(),
            server: self.server.clone(),
            authority: self.certificate_authority.clone(),
            token: self.token.clone(),
            exec: Some(exec::run),
            acts_as: self.acts_as.clone().map(|name| ActedUser { name, groups: self.groups.clone() }),
        }
    }
}

/// Returns the kubeconfig that the variable names, or that of the user. Of several names the first that is there
/// counts; one that alone is named is missed if it is not there.
fn usual(variable: Option<&OsStr>, home: Option<&Path>) -> Option<PathBuf> {
    let named: Vec<PathBuf> =
        variable.into_iter().flat_map(env::split_paths).filter(|it| !it.as_os_str().is_empty()).collect();
    let there = named.iter().find(|it| it.exists()).or_else(|| named.first()).cloned();
    there.or_else(|| Some(home?.join(".kube/config")).filter(|it| it.exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_comes_before_the_file_of_the_user_and_nothing_stands_for_the_pod() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".kube/config");
        let of = |variable: Option<&str>| usual(variable.map(OsStr::new), Some(home.path()));
        assert_eq!(of(None), None);
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_eq!((of(None), of(Some(""))), (Some(file.clone()), Some(file.clone())));
        assert_eq!(
            of(Some("/absent")),
            Some("/absent".into()),
            "what is named is missed, and nothing else taken for it"
        );
        assert_eq!(of(Some(&format!("/absent:{}", file.display()))), Some(file));
    }
}
