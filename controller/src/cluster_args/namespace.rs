//! The namespace that a command asks in, as kubectl chooses it.

use hostler_cluster::ConnectError;

use super::ClusterArgs;

/// The cluster that is asked, and the namespace.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct NamespaceArgs {
    /// Namespace [default: that of the context, else default]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

impl NamespaceArgs {
    /// Returns the namespace that the command line names.
    pub(crate) fn named(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the namespace.
    pub(crate) fn namespace(&self) -> Result<String, ConnectError> {
        if let Some(name) = &self.namespace {
            return Ok(name.clone());
        }
        let of_context = self.cluster.source().namespace().map_err(ConnectError::Credentials)?;
        Ok(of_context.unwrap_or_else(|| "default".to_owned()))
    }

    /// Returns the namespace and the name that `NAME` or `NAMESPACE/NAME` stands for.
    pub(crate) fn key(&self, text: &str) -> Result<hostler_api::ObjectKey, ConnectError> {
        match text.split_once('/') {
            Some((namespace, name)) => Ok(hostler_api::ObjectKey::new(namespace, name)),
            None => Ok(hostler_api::ObjectKey::new(&self.namespace()?, text)),
        }
    }
}
