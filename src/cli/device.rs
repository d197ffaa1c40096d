//! `hostler device`: devices, who holds them, and taken out of service, through the running daemon.

pub(super) mod show;

use std::{
    io::{self, Write},
    time::{Duration, SystemTime},
};

use clap_complete::engine::ArgValueCompleter;
use hostler_api::few;
use hostler_backend::DeviceOperation;
use hyper::Method;

use super::{
    CliFailure, CliOutcome,
    client::{ClientError, DaemonArgs, segment},
    completions,
    output::{OutputFormat, write_object},
    parts::shape,
    watch::{DaemonChanges, ListArgs, show_list},
};
use crate::{
    admin::types::{
        AdminDevice, AdminDeviceDetails, AdminOperated, AdminOrderLine, DrainDevice, LONGEST_ORDER_TIMEOUT,
    },
    config::duration,
};

/// Memory is moved away page by page, and an erasure takes minutes. The daemon goes on with an order that is under
/// way, also if no command waits for it any more.
const LONGEST_ORDER: Duration = Duration::from_secs(900);

#[derive(clap::Args, Debug)]
pub(super) struct DeviceArgs {
    #[command(subcommand)]
    command: DeviceCommand,
}

#[derive(clap::Subcommand, Debug)]
enum DeviceCommand {
    /// List devices: how each is, why, and the claims that hold it
    List(DeviceListArgs),
    /// Show one device: attributes, capacities, health, drain and holders
    Show(DeviceShowArgs),
    /// Take a device out of service: no new claim gets it, those that hold it keep it; survives restarts and reboots
    Drain(DeviceDrainArgs),
    /// Put a drained device back into service
    Undrain(DeviceUndrainArgs),
    /// Bring a device into service for the whole host: the memory of a CXL device becomes memory of the system
    Attach(DeviceAttachArgs),
    /// Take a device out of the system, so that it can be pulled or given to another host; refused while it is in use
    Detach(DeviceDetachArgs),
    /// Give up a damaged list of drained devices; drain again first what must stay drained
    Forget(DeviceForgetArgs),
}

#[derive(clap::Args, Debug)]
struct DeviceListArgs {
    /// Only drained devices
    #[arg(long)]
    drained: bool,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct DeviceShowArgs {
    /// Device: BACKEND/DEVICE, or its name where only one backend has it
    #[arg(add = ArgValueCompleter::new(completions::devices))]
    name: String,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<OutputFormat>(), default_value = "table")]
    output: OutputFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct DeviceDrainArgs {
    /// Device: BACKEND/DEVICE, or its name where only one backend has it
    #[arg(add = ArgValueCompleter::new(completions::devices))]
    name: String,
    /// Why, for those who meet the drain
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Have Kubernetes evict the pods that use the device, too
    #[arg(long)]
    evict: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct DeviceUndrainArgs {
    /// Device: BACKEND/DEVICE, or its name where only one backend has it
    #[arg(add = ArgValueCompleter::new(completions::devices))]
    name: String,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// How long an order may wait.
#[derive(clap::Args, Debug)]
struct OrderArgs {
    /// How long to wait for claims and orders that are in the way; then, as when this command ends, nothing is changed
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = waiting_time)]
    timeout: Duration,
}

fn waiting_time(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).filter(|time| *time <= LONGEST_ORDER_TIMEOUT);
    time.ok_or_else(|| "write a time with its unit (ms, s, m or h) of at most 24h, such as 90s".to_owned())
}

#[derive(clap::Args, Debug)]
struct DeviceAttachArgs {
    /// Device: BACKEND/DEVICE, or its name where only one backend has it
    #[arg(add = ArgValueCompleter::new(completions::devices))]
    name: String,
    /// Say what would be done or refused, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    order: OrderArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct DeviceDetachArgs {
    /// Device: BACKEND/DEVICE, or its name where only one backend has it
    #[arg(add = ArgValueCompleter::new(completions::devices))]
    name: String,
    /// Erase everything that is on it: by its own command, a reset, or the blank images of an FPGA
    #[arg(long, conflicts_with = "overwrite")]
    sanitize: bool,
    /// Overwrite its volatile memory with zeros
    #[arg(long)]
    overwrite: bool,
    /// Remove its PCI function from the system, in the end
    #[arg(long)]
    remove: bool,
    /// Say what would be done or refused, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    order: OrderArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct DeviceForgetArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn run(args: &DeviceArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match &args.command {
        DeviceCommand::List(args) => {
            list(args, out)?;
        }
        DeviceCommand::Show(args) => {
            let path = format!("/v1/devices/{}", segment(&args.name));
            let device: AdminDeviceDetails = args.output.for_reader(args.daemon.client()?.get(&path)?);
            let words = || show::details(&device, SystemTime::now());
            write_object("Device", &device, args.output, out, words)?;
        }
        DeviceCommand::Drain(args) => {
            let wanted = DrainDevice { reason: args.reason.clone(), evict: args.evict };
            let device: AdminDevice = args.daemon.client()?.put(&path(&args.name), &wanted)?;
            writeln!(out, "{}/{} drained{}", device.backend, device.name, held(&device))?;
        }
        DeviceCommand::Undrain(args) => {
            let device: AdminDevice = args.daemon.client()?.delete(&path(&args.name))?;
            writeln!(out, "{}/{} is in service", device.backend, device.name)?;
        }
        DeviceCommand::Attach(args) if args.dry_run => {
            rehearse(&args.daemon, &args.name, DeviceOperation::Attach, out)?;
        }
        DeviceCommand::Detach(args) if args.dry_run => {
            let operation =
                DeviceOperation::Detach { sanitize: args.sanitize, overwrite: args.overwrite, remove: args.remove };
            rehearse(&args.daemon, &args.name, operation, out)?;
        }
        DeviceCommand::Attach(args) => {
            operate(&args.daemon, &args.name, DeviceOperation::Attach, &args.order, out)?;
        }
        DeviceCommand::Detach(args) => {
            let operation =
                DeviceOperation::Detach { sanitize: args.sanitize, overwrite: args.overwrite, remove: args.remove };
            operate(&args.daemon, &args.name, operation, &args.order, out)?;
        }
        DeviceCommand::Forget(args) => {
            args.daemon.client()?.order(Method::DELETE, "/v1/lost-drains")?;
            writeln!(out, "no damaged list of drained devices counts any more")?;
        }
    }
    Ok(CliOutcome::Done)
}

fn list(args: &DeviceListArgs, out: &mut dyn Write) -> Result<(), CliFailure> {
    let client = args.daemon.client()?;
    let mut changes = DaemonChanges::of(args.daemon.client()?);
    let fetch = || {
        let mut devices: Vec<AdminDevice> = client.get("/v1/devices")?;
        devices.retain(|device| !args.drained || device.drained.is_some());
        Ok(args.list.output.for_reader(devices))
    };
    show_list(args.list, || changes.wait(), out, fetch, |devices, width| show::list(devices, width, SystemTime::now()))
}

fn operate(
    daemon: &DaemonArgs,
    name: &str,
    operation: DeviceOperation,
    OrderArgs { timeout }: &OrderArgs,
    out: &mut dyn Write,
) -> Result<(), CliFailure> {
    let client = daemon.client()?.patient(*timeout + LONGEST_ORDER);
    let path = format!("/v1/devices/{}/operate?timeout={}", segment(name), duration::format(*timeout));
    let mut done = None;
    client.follow(&path, &operation, |line| {
        let progress = match line {
            AdminOrderLine::Done(operated) => {
                done = Some(operated);
                return Ok(());
            }
            AdminOrderLine::Failed { error, .. } => return Err(ClientError::Refused(error)),
            AdminOrderLine::Waiting { obstacles } if obstacles.is_empty() => "waiting for its turn".to_owned(),
            AdminOrderLine::Waiting { obstacles } => format!("waiting for {}", obstacles.join(", ")),
            AdminOrderLine::UnderWay => "under way".to_owned(),
            AdminOrderLine::Scanned => "scanned".to_owned(),
        };
        // Beside the result, for a user who watches. Standard error may be closed.
        let _ = writeln!(io::stderr(), "{progress}");
        Ok(())
    })?;
    let operated = done.ok_or(ClientError::Cut)?;
    writeln!(out, "{}/{} {}ed: {}", operated.backend, operated.device, operation.word(), operated.done)?;
    Ok(())
}

fn rehearse(
    daemon: &DaemonArgs,
    name: &str,
    operation: DeviceOperation,
    out: &mut dyn Write,
) -> Result<(), CliFailure> {
    let path = format!("/v1/devices/{}/rehearse", segment(name));
    let AdminOperated { backend, device, done } = daemon.client()?.post(&path, &operation)?;
    writeln!(out, "dry run: nothing was changed; {backend}/{device} would be {}ed: {done}", operation.word())?;
    Ok(())
}

fn path(name: &str) -> String {
    format!("/v1/devices/{}/drain", segment(name))
}

fn held(device: &AdminDevice) -> String {
    if device.holders.is_empty() { String::new() } else { format!("; still held by {}", few(&device.holders)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_drains_a_device_hears_who_still_holds_it() {
        let device: AdminDevice = serde_json::from_value(serde_json::json!({
            "name": "card-0", "backend": "fake", "pool": "n1/fake", "health": "Healthy", "health_reason": null,
            "drained": null, "holders": ["default/a", "default/b"],
        }))
        .unwrap();
        assert_eq!(held(&device), "; still held by default/a, default/b");
    }
}
