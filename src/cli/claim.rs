//! `hostler claim`: claims of a host without a cluster, through the running daemon.

mod device;
mod show;

use std::io::Write;

use clap::ValueEnum;
use hyper::Method;

use super::{
    CliFailure, CliOutcome, OutputFormat,
    client::{DaemonArgs, segment},
    plain::for_people,
    write_json,
};
use crate::admin::types::{AdminClaim, CreateClaim, CreateDevice};

/// Create, show and take back claims, through the running daemon
#[derive(clap::Args, Debug)]
pub(super) struct ClaimArgs {
    #[command(subcommand)]
    command: ClaimCommand,
}

#[derive(clap::Subcommand, Debug)]
enum ClaimCommand {
    /// Create a claim for devices or parts of devices, and prepare it
    #[command(after_help = device::HELP)]
    Create(ClaimCreateArgs),
    /// List all claims
    List(ClaimListArgs),
    /// Show one claim
    Show(ClaimShowArgs),
    /// Prepare a claim from a manifest, so that containers can use its devices; repeating it does no harm
    Prepare(ClaimShowArgs),
    /// Take a claim's devices back and delete it
    Delete(ClaimDeleteArgs),
    /// Give up a quarantined claim: its devices become free as they are, its record goes
    Forget(ClaimForgetArgs),
}

#[derive(clap::Args, Debug)]
struct ClaimCreateArgs {
    /// Name of the claim
    name: String,
    /// A device to claim, wholly or in part; repeatable
    #[arg(short, long = "device", value_name = "POOL/DEVICE[,CAPACITY=AMOUNT]…", required = true, value_parser = device::parse)]
    devices: Vec<CreateDevice>,
    /// Namespace of the claim
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: ClaimFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimListArgs {
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimShowArgs {
    #[command(flatten)]
    claim: ClaimNameArgs,
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: ClaimFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimDeleteArgs {
    #[command(flatten)]
    claim: ClaimNameArgs,
    /// In a cluster: take it back although the kubelet believes that it is prepared
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimForgetArgs {
    /// UID of the claim; the name is not trusted here, since the record that holds it is not
    uid: String,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Which claim is meant.
#[derive(clap::Args, Debug)]
struct ClaimNameArgs {
    /// Name or UID of the claim
    claim: String,
    /// Namespace of a claim that is named
    #[arg(short, long, default_value = "default")]
    namespace: String,
}

impl ClaimNameArgs {
    /// The claim's own resource, or one below it (`/prepare`).
    fn path(&self, below: &str) -> String {
        format!("/v1/claims/{}{below}?namespace={}", segment(&self.claim), segment(&self.namespace))
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
enum ClaimFormat {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// The CDI ids, one per line
    Cdi,
    /// The options that give the devices to `podman run`
    Podman,
}

pub(super) fn run(args: ClaimArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match args.command {
        ClaimCommand::Create(args) => create(args, out)?,
        ClaimCommand::List(args) => {
            let claims: Vec<AdminClaim> = args.daemon.client()?.get("/v1/claims")?;
            match args.output {
                OutputFormat::Table => write!(out, "{}", show::list(&for_people(claims)))?,
                OutputFormat::Json => write_json(&claims, out)?,
            }
        }
        ClaimCommand::Show(args) => {
            let claim = args.daemon.client()?.get(&args.claim.path(""))?;
            show::write(&claim, args.output, out)?;
        }
        ClaimCommand::Prepare(args) => {
            let claim = args.daemon.client()?.post(&args.claim.path("/prepare"), &())?;
            show::write(&claim, args.output, out)?;
        }
        ClaimCommand::Delete(args) => {
            let force = if args.force { "&force=true" } else { "" };
            args.daemon.client()?.order(Method::DELETE, &format!("{}{force}", args.claim.path("")))?;
            writeln!(out, "claim {} deleted", args.claim.claim)?;
        }
        ClaimCommand::Forget(args) => {
            let path = format!("/v1/claims/{}/forget", segment(&args.uid));
            args.daemon.client()?.order(Method::POST, &path)?;
            writeln!(out, "claim {} forgotten", args.uid)?;
        }
    }
    Ok(CliOutcome::Done)
}

fn create(args: ClaimCreateArgs, out: &mut dyn Write) -> Result<(), CliFailure> {
    let client = args.daemon.client()?;
    let mut devices = args.devices;
    if devices.iter().any(device::leaves_capacity_open) {
        let inventory: device::DaemonInventory = client.get("/v1/inventory")?;
        devices.iter_mut().try_for_each(|device| device::name_capacity(device, &inventory))?;
    }
    let request = CreateClaim { namespace: args.namespace, name: args.name, devices };
    let claim = client.post("/v1/claims", &request)?;
    show::write(&claim, args.output, out)
}
