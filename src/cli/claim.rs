//! `hostler claim`: claims of a host without a cluster, through the running daemon.

mod device;
mod show;

use std::io::Write;

use clap::ValueEnum;
use hyper::Method;

use super::{
    Failure, Format, Outcome,
    client::{DaemonArgs, segment},
    write_json,
};
use crate::admin::types::{AdminClaim, CreateClaim, CreateDevice};

/// Create, show and take back claims, through the running daemon
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Create a claim for devices or parts of devices, and prepare it
    #[command(after_help = device::HELP)]
    Create(CreateArgs),
    /// List all claims
    List(ListArgs),
    /// Show one claim
    Show(ShowArgs),
    /// Prepare a claim from a manifest, so that containers can use its devices; repeating it does no harm
    Prepare(ShowArgs),
    /// Take a claim's devices back and delete it
    Delete(DeleteArgs),
    /// Give up a quarantined claim: its devices become free as they are, its record goes
    Forget(ForgetArgs),
}

#[derive(clap::Args, Debug)]
struct CreateArgs {
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
struct ListArgs {
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ShowArgs {
    #[command(flatten)]
    claim: ClaimArgs,
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: ClaimFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct DeleteArgs {
    #[command(flatten)]
    claim: ClaimArgs,
    /// In a cluster: take it back although the kubelet believes that it is prepared
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ForgetArgs {
    /// UID of the claim; the name is not trusted here, since the record that holds it is not
    uid: String,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Which claim is meant.
#[derive(clap::Args, Debug)]
struct ClaimArgs {
    /// Name or UID of the claim
    claim: String,
    /// Namespace of a claim that is named
    #[arg(short, long, default_value = "default")]
    namespace: String,
}

impl ClaimArgs {
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

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    match args.command {
        Command::Create(args) => create(args, out)?,
        Command::List(args) => {
            let claims: Vec<AdminClaim> = args.daemon.client()?.get("/v1/claims")?;
            match args.output {
                Format::Table => write!(out, "{}", show::list(&claims))?,
                Format::Json => write_json(&claims, out)?,
            }
        }
        Command::Show(args) => {
            let claim = args.daemon.client()?.get(&args.claim.path(""))?;
            show::write(&claim, args.output, out)?;
        }
        Command::Prepare(args) => {
            let claim = args.daemon.client()?.post(&args.claim.path("/prepare"), &())?;
            show::write(&claim, args.output, out)?;
        }
        Command::Delete(args) => {
            let force = if args.force { "&force=true" } else { "" };
            args.daemon.client()?.order(Method::DELETE, &format!("{}{force}", args.claim.path("")))?;
            writeln!(out, "claim {} deleted", args.claim.claim)?;
        }
        Command::Forget(args) => {
            let path = format!("/v1/claims/{}/forget", segment(&args.uid));
            args.daemon.client()?.order(Method::POST, &path)?;
            writeln!(out, "claim {} forgotten", args.uid)?;
        }
    }
    Ok(Outcome::Done)
}

fn create(args: CreateArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let client = args.daemon.client()?;
    let mut devices = args.devices;
    if devices.iter().any(device::leaves_capacity_open) {
        let inventory: device::Inventory = client.get("/v1/inventory")?;
        devices.iter_mut().try_for_each(|device| device::name_capacity(device, &inventory))?;
    }
    let request = CreateClaim { namespace: args.namespace, name: args.name, devices };
    let claim = client.post("/v1/claims", &request)?;
    show::write(&claim, args.output, out)
}
