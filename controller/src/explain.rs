//! `hostler-controller explain`: why something is as it is, what it waits for, and who is in the way. Nothing is changed.

mod provreq;

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    time::SystemTime,
};

use hostler_allocator::plan::ObjectKey;
use hostler_api::plain;
use hostler_process::config::ConfigErrors;
use tokio::runtime;

use self::provreq::RequestWorld;
use crate::{
    config::ControllerConfig,
    plan::{ClusterReadError, InputText, LiveCluster},
};

/// Say why something is as it is, what it waits for, and who is in the way
#[derive(clap::Args, Debug)]
pub(crate) struct ExplainArgs {
    #[command(subcommand)]
    what: ExplainedKind,
}

#[derive(clap::Subcommand, Debug)]
enum ExplainedKind {
    /// A ProvisioningRequest
    #[command(visible_alias = "provisioningrequest")]
    Provreq(RequestArgs),
}

#[derive(clap::Args, Debug)]
struct RequestArgs {
    /// Its name
    name: String,
    /// Its namespace
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Kubeconfig [default: the file that KUBECONFIG names, else the service account of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The controller's configuration file, where it has other names of classes than by itself
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExplainError {
    /// No threads, no timers.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// The configuration cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] ClusterReadError),
    /// What the cluster told cannot be understood.
    #[error("failed to read what the cluster has")]
    Object(#[source] serde_json::Error),
    /// There is no such object.
    #[error("there is no ProvisioningRequest {0}; name the namespace with --namespace")]
    NoRequest(ObjectKey),
    /// The answer cannot be written.
    #[error("failed to write the answer")]
    Output(#[from] io::Error),
}

/// Answers, on `out`.
pub(crate) fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), ExplainError> {
    let ExplainedKind::Provreq(args) = &args.what;
    let config = match &args.config {
        Some(path) => ControllerConfig::read(path)?,
        None => ControllerConfig::default(),
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(ExplainError::Runtime)?;
    let world = runtime.block_on(args.read())?;
    let key = ObjectKey::new(&args.namespace, &args.name);
    let classes = config.provisioning.classes();
    let words = provreq::explained(&key, &world, &classes, SystemTime::now());
    let words = words.ok_or(ExplainError::NoRequest(key))?;
    Ok(out.write_all(plain(&words).as_bytes())?)
}

impl RequestArgs {
    async fn read(&self) -> Result<RequestWorld, ExplainError> {
        let of_shell = || env::var_os("KUBECONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let kubeconfig = self.kubeconfig.clone().or_else(of_shell);
        let cluster = LiveCluster::connect(kubeconfig.as_deref()).await?;
        let mut pages = Vec::new();
        cluster.read_requests(&self.namespace, &mut |InputText { text, .. }| pages.push(text)).await?;
        let mut world = RequestWorld::default();
        for page in pages {
            provreq::take(&page, &mut world).map_err(ExplainError::Object)?;
        }
        Ok(world)
    }
}
