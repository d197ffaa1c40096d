//! `hostler-controller explain`: the reason for an object's state, the step that it waits for, and the objects in the
//! way. The command changes nothing.

mod provreq;
mod reservation;

use std::{
    io::Write,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use hostler_api::Chain;
use hostler_cli::output::DocumentFormat;

use self::{provreq::RequestWorld, reservation::ReservationWorld};
use crate::{
    cluster_args::{ClusterArgs, NamespaceArgs},
    config::ControllerConfig,
    plan::{ClusterReadError, InputText, LiveCluster, QuestionError, runtime},
    why,
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
    /// A Reservation
    Reservation(ReservationArgs),
    /// A pod: as why, with every claim, holder, node and Event
    Pod(PodArgs),
    /// A ResourceClaim: who uses it, its devices, or why it has none
    #[command(visible_alias = "resourceclaim")]
    Claim(ClaimArgs),
}

#[derive(clap::Args, Debug)]
struct PodArgs {
    /// Name of the pod, or NAMESPACE/NAME
    name: String,
    #[command(flatten)]
    place: NamespaceArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimArgs {
    /// Name of the claim, or NAMESPACE/NAME
    name: String,
    #[command(flatten)]
    place: NamespaceArgs,
}

#[derive(clap::Args, Debug)]
struct ReservationArgs {
    /// Name of the Reservation
    name: String,
    #[command(flatten)]
    access: ClusterArgs,
}

#[derive(clap::Args, Debug)]
struct RequestArgs {
    /// Name of the request, or NAMESPACE/NAME
    name: String,
    #[command(flatten)]
    place: NamespaceArgs,
    /// The controller's configuration file, where it has other names of classes than by itself
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Answers on `out`.
pub(crate) fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), QuestionError> {
    let words = match &args.what {
        ExplainedKind::Provreq(args) => runtime()?.block_on(args.explained())?,
        ExplainedKind::Reservation(args) => runtime()?.block_on(args.explained())?,
        ExplainedKind::Pod(args) => return why::explain(&args.name, &args.place, DocumentFormat::Wide, out),
        ExplainedKind::Claim(args) => return why::explain_claim(&args.name, &args.place, out),
    };
    Ok(out.write_all(words.as_bytes())?)
}

/// True if the end was so long ago that a status should tell it by now.
fn late(end: Option<SystemTime>, now: SystemTime) -> bool {
    const PATIENCE: Duration = Duration::from_secs(60);
    end.is_some_and(|end| now.duration_since(end).is_ok_and(|late| late > PATIENCE))
}

impl RequestArgs {
    async fn explained(&self) -> Result<String, QuestionError> {
        let config = match &self.config {
            Some(path) => ControllerConfig::read(path)?,
            None => ControllerConfig::default(),
        };
        let key = self.place.key(&self.name).map_err(ClusterReadError::connect)?;
        let world = self.read(&key.namespace).await?;
        let words = provreq::explained(&key, &world, &config.provisioning.classes(), SystemTime::now());
        words.ok_or_else(|| {
            QuestionError::no_object("ProvisioningRequest", &key, "; name the namespace with --namespace")
        })
    }

    async fn read(&self, namespace: &str) -> Result<RequestWorld, QuestionError> {
        let cluster = LiveCluster::connect(&self.place.cluster).await?;
        let mut pages = Vec::new();
        cluster.read_requests(namespace, &mut |InputText { text, .. }| pages.push(text)).await?;
        let mut world = RequestWorld::default();
        for page in pages {
            provreq::take(&page, &mut world).map_err(QuestionError::Object)?;
        }
        Ok(world)
    }
}

impl ReservationArgs {
    async fn explained(&self) -> Result<String, QuestionError> {
        let cluster = LiveCluster::connect(&self.access).await?;
        let mut world = ReservationWorld::default();
        let mut pages = Vec::new();
        cluster.read_reservations(&mut |InputText { text, .. }| pages.push(text)).await?;
        pages.drain(..).try_for_each(|page| world.take(&page)).map_err(QuestionError::Object)?;
        for node in world.nodes_to_ask(&self.name) {
            match cluster.node_hardware(&node).await {
                Ok(hardware) => world.take_hardware(&node, hardware).map_err(QuestionError::Object)?,
                Err(error) => world.unread.push(format!("node {node} was not asked: {}", Chain(&error))),
            }
        }
        let namespaces = world.owner_namespaces(&self.name);
        let read = cluster.read_owners(namespaces.as_deref(), &mut |InputText { text, .. }| pages.push(text)).await;
        pages.drain(..).try_for_each(|page| world.take(&page)).map_err(QuestionError::Object)?;
        world.unread.extend(read.err().map(|error| format!("pods of owners were not looked at: {}", Chain(&error))));
        let words = world.explained(&self.name, SystemTime::now());
        let hint = "; the command holds lists those that there are";
        words.ok_or_else(|| QuestionError::no_object("Reservation", &self.name, hint))
    }
}
