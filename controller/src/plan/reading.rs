//! Reading for commands that answer questions: the runtime that it takes, and the reasons why there is no answer.

use std::io;

use hostler_api::{ObjectKey, did_you_mean};
use hostler_cluster::ApiFailure;
use hostler_process::config::ConfigErrors;
use tokio::runtime::{self, Runtime};

use super::{
    cluster::{ClusterReadError, LiveCluster},
    manifests::{InputLayer, Manifests},
    read::InputProblem,
};
use crate::{cluster_args::ClusterArgs, remote::RemoteError};

/// The reason why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    /// The input is wrong.
    #[error("{}", told(.0))]
    Input(Vec<InputProblem>),
    /// The configuration that the question names is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The runtime has no threads or no timers.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// The cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] ClusterReadError),
    /// The cluster's objects cannot be understood.
    #[error("failed to read what the cluster has")]
    Object(#[source] serde_json::Error),
    /// The API server does not know a kind of hostler's.
    #[error("the API server has no {resource}; {fix}")]
    NotServed {
        /// Name of the kind's definition.
        resource: String,
        /// The step that brings the kind.
        fix: &'static str,
        /// The server's answer.
        #[source]
        source: Box<ApiFailure>,
    },
    /// The object that the question is about does not exist.
    #[error("there is no {kind} {name}{hint}")]
    NoObject {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
        /// The way to the name that was meant, from a semicolon on; may be empty.
        hint: String,
    },
    /// The controller cannot be asked. On the heap: every result would have to have room for it.
    #[error(transparent)]
    Remote(Box<RemoteError>),
    /// The answer cannot be written.
    #[error("failed to write the answer")]
    Output(#[from] io::Error),
}

impl From<RemoteError> for QuestionError {
    fn from(error: RemoteError) -> Self {
        Self::Remote(error.into())
    }
}

impl QuestionError {
    /// Makes the error about an object that does not exist.
    pub(crate) fn no_object(kind: &'static str, name: &impl ToString, hint: impl Into<String>) -> Self {
        Self::NoObject { kind, name: name.to_string(), hint: hint.into() }
    }

    /// Makes the error about an object of a namespace that does not exist, with the names there that are alike.
    pub(crate) fn no_object_of<'k>(
        kind: &'static str,
        key: &ObjectKey,
        known: impl IntoIterator<Item = &'k ObjectKey>,
    ) -> Self {
        let here = known.into_iter().filter(|it| it.namespace == key.namespace).map(|it| it.name.clone());
        let meant = did_you_mean(&key.name, here);
        Self::no_object(kind, key, format!("{meant}; name the namespace with --namespace"))
    }
}

/// Reads the devices of a cluster and their holders: the user needs to list, and nothing else.
pub(crate) async fn read_stock(access: &ClusterArgs) -> Result<Manifests, QuestionError> {
    let cluster = LiveCluster::connect(access).await?;
    let (mut manifests, mut problems) = (Manifests::default(), Vec::new());
    cluster.read_stock(&mut |input| manifests.read(&input, InputLayer::Base, &mut problems)).await?;
    if problems.is_empty() { Ok(manifests) } else { Err(QuestionError::Input(problems)) }
}

/// Makes the runtime of a command: one thread, which waits for the network most of the time.
pub(crate) fn runtime() -> Result<Runtime, QuestionError> {
    runtime::Builder::new_current_thread().enable_all().build().map_err(QuestionError::Runtime)
}

/// Writes each problem on a line.
fn told(problems: &[InputProblem]) -> String {
    let count = if problems.len() == 1 { "1 problem".to_owned() } else { format!("{} problems", problems.len()) };
    let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
    format!("{count} with what was given{}", lines.concat())
}
