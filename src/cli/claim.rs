//! `hostler claim`: claims of a host without a cluster, through the running daemon.

mod device;
mod inspect;
mod show;

use std::{io::Write, path::PathBuf, time::SystemTime};

use clap::ValueEnum;
use clap_complete::engine::ArgValueCompleter;
use hostler_api::listed;
use hyper::Method;

use super::{
    CliFailure, CliOutcome,
    client::{ClientError, DaemonArgs},
    completions,
    fit::unallocated,
    names::{NamedClaim, NamespaceArgs},
    output::OutputFormat,
    parts::{DocumentParts, PartsShape, shape},
    watch::{DaemonChanges, ListArgs, show_list},
};
use crate::admin::types::{AdminClaim, CreateClaim, CreateDevice};

#[derive(clap::Args, Debug)]
pub(super) struct ClaimArgs {
    #[command(subcommand)]
    command: ClaimCommand,
}

#[derive(clap::Subcommand, Debug)]
enum ClaimCommand {
    /// Create a claim for devices or parts of devices, and prepare it
    #[command(
        after_help = device::HELP,
        override_usage = "hostler claim create [OPTIONS] <NAME> --device <POOL/DEVICE[,CAPACITY=AMOUNT]…>\n       \
            hostler claim create [OPTIONS] -f <FILE>"
    )]
    Create(ClaimCreateArgs),
    /// List all claims
    List(ClaimListArgs),
    /// Show one claim
    Show(ClaimShowArgs),
    /// Show everything about one claim: state, pods and containers, files, why it is so, and its devices with all facts
    Inspect(ClaimInspectArgs),
    /// Prepare a claim from a manifest, so that containers can use its devices; repeating it does no harm
    Prepare(ClaimShowArgs),
    /// Take a claim's devices back and delete it
    Delete(ClaimDeleteArgs),
    /// Give up a quarantined claim: its devices become free as they are, its record goes
    Forget(ClaimForgetArgs),
}

#[derive(clap::Args, Debug)]
struct ClaimCreateArgs {
    /// Name of the claim, or NAMESPACE/NAME
    #[arg(required_unless_present = "file")]
    name: Option<String>,
    /// Claims that ask for devices by class and selector, as a scheduler would satisfy them, in YAML or JSON
    /// with any number of documents; - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["name", "devices", "namespace"])]
    file: Option<PathBuf>,
    /// A device to claim, wholly or in part; repeatable
    #[arg(short, long = "device", value_name = "POOL/DEVICE[,CAPACITY=AMOUNT]…", required_unless_present = "file", value_parser = device::parse)]
    #[arg(add = ArgValueCompleter::new(completions::devices))]
    devices: Vec<CreateDevice>,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Say what would be given or refused, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<ClaimFormat>(), default_value = "table")]
    output: ClaimFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimListArgs {
    /// Only claims of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimShowArgs {
    /// NAMESPACE/NAME, NAME or UID of the claim
    #[arg(add = ArgValueCompleter::new(completions::claims))]
    claim: String,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<ClaimFormat>(), default_value = "table")]
    output: ClaimFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimInspectArgs {
    /// NAMESPACE/NAME, NAME or UID of the claim
    #[arg(add = ArgValueCompleter::new(completions::claims))]
    claim: String,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<OutputFormat>(), default_value = "table")]
    output: OutputFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimDeleteArgs {
    /// NAMESPACE/NAME, NAME or UID of each claim
    #[arg(required = true, value_name = "CLAIM", add = ArgValueCompleter::new(completions::claims))]
    claims: Vec<String>,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// In a cluster: take it back although the kubelet believes that it is prepared
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct ClaimForgetArgs {
    /// UID of the claim; NAMESPACE/NAME or NAME where what is left of its record still tells it
    #[arg(add = ArgValueCompleter::new(completions::claims))]
    claim: String,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
enum ClaimFormat {
    /// For people
    #[default]
    Table,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
    /// The name of the claim alone, as other commands take it
    Name,
    /// The CDI ids, one per line
    Cdi,
    /// The options that give the devices to `podman run`
    Podman,
    /// A drop-in for the .container file of a Quadlet, which gives it the devices
    Quadlet,
    /// Chosen parts of it
    #[value(skip)]
    Parts(&'static DocumentParts),
}

impl PartsShape for ClaimFormat {
    fn of_parts(parts: &'static DocumentParts) -> Self {
        Self::Parts(parts)
    }
}

pub(super) fn run(args: ClaimArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match args.command {
        ClaimCommand::Create(args) => create(&args, out)?,
        ClaimCommand::List(args) => list(&args, out)?,
        ClaimCommand::Show(args) => {
            let name = NamedClaim::new(&args.claim, &args.namespace)?;
            let claim = args.daemon.client()?.get(&name.path(""))?;
            show::write(&claim, args.output, &args.daemon, out)?;
        }
        ClaimCommand::Inspect(args) => {
            let name = NamedClaim::new(&args.claim, &args.namespace)?;
            inspect::run(&name, &args.daemon.client()?, args.output, out)?;
        }
        ClaimCommand::Prepare(args) => {
            let name = NamedClaim::new(&args.claim, &args.namespace)?;
            let claim = args.daemon.client()?.post(&name.path("/prepare"), &())?;
            show::write(&claim, args.output, &args.daemon, out)?;
        }
        ClaimCommand::Delete(args) => delete(&args, out)?,
        ClaimCommand::Forget(args) => {
            let name = NamedClaim::new(&args.claim, &args.namespace)?;
            args.daemon.client()?.order(Method::POST, &name.path("/forget"))?;
            writeln!(out, "claim {} forgotten", args.claim)?;
        }
    }
    Ok(CliOutcome::Done)
}

fn list(args: &ClaimListArgs, out: &mut dyn Write) -> Result<(), CliFailure> {
    let client = args.daemon.client()?;
    let mut changes = DaemonChanges::of(args.daemon.client()?);
    let fetch = || {
        let mut claims: Vec<AdminClaim> = client.get("/v1/claims")?;
        claims.retain(|claim| args.namespace.as_ref().is_none_or(|namespace| claim.namespace == *namespace));
        Ok(args.list.output.for_reader(claims))
    };
    show_list(args.list, || changes.wait(), out, fetch, |claims, width| show::list(claims, width, SystemTime::now()))
}

/// Deletes those that can be deleted, whatever becomes of the others.
fn delete(args: &ClaimDeleteArgs, out: &mut dyn Write) -> Result<(), CliFailure> {
    let names: Result<Vec<NamedClaim>, CliFailure> =
        args.claims.iter().map(|text| NamedClaim::new(text, &args.namespace)).collect();
    let (client, force) = (args.daemon.client()?, if args.force { "&force=true" } else { "" });
    let mut refusals = Vec::new();
    for (text, name) in args.claims.iter().zip(names?) {
        match client.order(Method::DELETE, &format!("{}{force}", name.path(""))) {
            Ok(()) => writeln!(out, "claim {text} deleted")?,
            Err(ClientError::Refused(why)) => refusals.push(format!("claim {text}: {why}")),
            // The next one would not get an answer either.
            Err(error) => return Err(error.into()),
        }
    }
    if refusals.is_empty() { Ok(()) } else { Err(CliFailure::Said(listed(usize::MAX, "; ", refusals))) }
}

fn create(args: &ClaimCreateArgs, out: &mut dyn Write) -> Result<(), CliFailure> {
    let client = args.daemon.client()?;
    let query = if args.dry_run { "?dry_run=true" } else { "" };
    let show = |claim: &AdminClaim, out: &mut dyn Write| {
        if args.dry_run && args.output == ClaimFormat::Table {
            writeln!(out, "dry run: nothing was changed; this claim could be had now")?;
        }
        show::write(claim, args.output, &args.daemon, out)
    };
    if let Some(file) = &args.file {
        let all = unallocated(file)?;
        if args.dry_run && all.len() > 1 {
            let why = "a dry run is of one claim: what one takes, the next cannot have";
            return Err(CliFailure::Usage(format!("{why}; ask `hostler explain fit -f FILE` about several")));
        }
        return all.iter().try_for_each(|asked| {
            let claim: AdminClaim = client.post(&format!("/v1/unallocated-claims{query}"), asked)?;
            show(&claim, out)
        });
    }
    let NamedClaim { namespace, name } = NamedClaim::new(args.name.as_deref().unwrap_or_default(), &args.namespace)?;
    let mut devices = args.devices.clone();
    if devices.iter().any(device::leaves_capacity_open) {
        let inventory: device::DaemonInventory = client.get("/v1/inventory")?;
        devices.iter_mut().try_for_each(|device| device::name_capacity(device, &inventory))?;
    }
    let asked = CreateClaim { namespace, name, devices };
    let claim: AdminClaim = client.post(&format!("/v1/claims{query}"), &asked)?;
    show(&claim, out)
}
