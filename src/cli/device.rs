//! `hostler device`: devices, who holds them, and taken out of service, through the running daemon.

use std::{
    io::{self, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::few;
use hostler_backend::DeviceOperation;
use hyper::Method;

use super::{
    CliFailure, CliOutcome, OutputFormat,
    client::{ClientError, DaemonArgs, segment},
    plain::for_people,
    table::TextTable,
    write_json,
};
use crate::{
    admin::types::{AdminDevice, AdminDrain, AdminOrderLine, DrainDevice, LONGEST_ORDER_TIMEOUT},
    config::duration,
    units::elapsed,
};

/// Memory is moved away page by page, and an erasure takes minutes. The daemon goes on with an order that is under way, also
/// if nobody waits for it any more.
const LONGEST_ORDER: Duration = Duration::from_secs(900);

/// List devices, take them out of service and put them back, through the running daemon
#[derive(clap::Args, Debug)]
pub(super) struct DeviceArgs {
    #[command(subcommand)]
    command: DeviceCommand,
}

#[derive(clap::Subcommand, Debug)]
enum DeviceCommand {
    /// List devices: health, drain, and the claims that hold them
    List(DeviceListArgs),
    /// Take a device out of service: no new claim gets it, those that hold it keep it; survives restarts and reboots
    Drain(DeviceDrainArgs),
    /// Put a drained device back into service
    Undrain(DeviceUndrainArgs),
    /// Bring a device into service for everybody: the memory of a CXL device becomes memory of the system
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
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct DeviceDrainArgs {
    /// Device: BACKEND/DEVICE, or its name where only one backend has it
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
    name: String,
    #[command(flatten)]
    order: OrderArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Args, Debug)]
struct DeviceDetachArgs {
    /// Device: BACKEND/DEVICE, or its name where only one backend has it
    name: String,
    /// Erase everything that is on it
    #[arg(long)]
    sanitize: bool,
    /// Remove its PCI function from the system, in the end
    #[arg(long)]
    remove: bool,
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
            let mut devices: Vec<AdminDevice> = args.daemon.client()?.get("/v1/devices")?;
            devices.retain(|device| !args.drained || device.drained.is_some());
            match args.output {
                OutputFormat::Table => write!(out, "{}", table(&for_people(devices), SystemTime::now()))?,
                OutputFormat::Json => write_json(&devices, out)?,
            }
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
        DeviceCommand::Attach(args) => {
            operate(&args.daemon, &args.name, DeviceOperation::Attach, &args.order, out)?;
        }
        DeviceCommand::Detach(args) => {
            let operation = DeviceOperation::Detach { sanitize: args.sanitize, remove: args.remove };
            operate(&args.daemon, &args.name, operation, &args.order, out)?;
        }
        DeviceCommand::Forget(args) => {
            args.daemon.client()?.order(Method::DELETE, "/v1/lost-drains")?;
            writeln!(out, "no damaged list of drained devices counts any more")?;
        }
    }
    Ok(CliOutcome::Done)
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
    client.follow(&path, &operation, |line| match line {
        AdminOrderLine::Done(operated) => {
            done = Some(operated);
            Ok(())
        }
        AdminOrderLine::Failed { error, .. } => Err(ClientError::Refused(error)),
        progress => {
            // Beside the result, for whoever watches. It may be closed.
            let _ = writeln!(io::stderr(), "{}", in_words(&progress));
            Ok(())
        }
    })?;
    let operated = done.ok_or(ClientError::Cut)?;
    writeln!(out, "{}/{} {}ed: {}", operated.backend, operated.device, operation.word(), operated.done)?;
    Ok(())
}

fn in_words(progress: &AdminOrderLine) -> String {
    match progress {
        AdminOrderLine::Waiting { obstacles } if obstacles.is_empty() => "waiting for its turn".to_owned(),
        AdminOrderLine::Waiting { obstacles } => format!("waiting for {}", obstacles.join(", ")),
        AdminOrderLine::UnderWay => "under way".to_owned(),
        AdminOrderLine::Scanned => "scanned".to_owned(),
        AdminOrderLine::Done(operated) => operated.done.clone(),
        AdminOrderLine::Failed { error, .. } => error.clone(),
    }
}

fn path(name: &str) -> String {
    format!("/v1/devices/{}/drain", segment(name))
}

fn held(device: &AdminDevice) -> String {
    if device.holders.is_empty() { String::new() } else { format!("; still held by {}", few(&device.holders)) }
}

fn table(devices: &[AdminDevice], now: SystemTime) -> TextTable {
    let mut table = TextTable::new(&["NAME", "POOL", "HEALTH", "DRAINED", "HOLDERS"]);
    for device in devices {
        let reason = device.health_reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        table.row([
            format!("{}/{}", device.backend, device.name),
            device.pool.clone(),
            format!("{}{reason}", device.health),
            device.drained.as_ref().map_or_else(|| "no".to_owned(), |drain| drained(drain, now)),
            few(&device.holders),
        ]);
    }
    table
}

fn drained(drain: &AdminDrain, now: SystemTime) -> String {
    let since = UNIX_EPOCH + Duration::from_secs(drain.since);
    let lasts = elapsed(now.duration_since(since).unwrap_or_default());
    let evict = if drain.evict { ", evicting" } else { "" };
    let reason = drain.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("for {lasts}{evict}{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_of_each_device_what_an_operator_needs() {
        let device = |name: &str, drained, holders: &[&str]| AdminDevice {
            name: name.to_owned(),
            backend: "fake".to_owned(),
            pool: "n1/fake".to_owned(),
            health: "Healthy".to_owned(),
            health_reason: None,
            drained,
            holders: holders.iter().map(|holder| (*holder).to_owned()).collect(),
        };
        let drain = AdminDrain { since: 1000, reason: Some("fan is broken".to_owned()), evict: true };
        let ill = AdminDevice {
            health: "Unhealthy".to_owned(),
            health_reason: Some("hot".to_owned()),
            ..device("card-1", None, &[])
        };
        let devices = [device("card-0", Some(drain), &["default/a", "default/b"]), ill];
        let expected = "\
NAME         POOL     HEALTH          DRAINED                             HOLDERS
fake/card-0  n1/fake  Healthy         for 2m 5s, evicting: fan is broken  default/a, default/b
fake/card-1  n1/fake  Unhealthy: hot  no
";
        assert_eq!(table(&devices, UNIX_EPOCH + Duration::from_secs(1125)).to_string(), expected);
        assert_eq!(held(&devices[0]), "; still held by default/a, default/b");
    }
}
