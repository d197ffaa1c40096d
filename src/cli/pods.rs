//! `hostler pods`: which pods and containers hold what, through the running daemon.

use std::io::Write;

use super::{
    CliFailure, CliOutcome,
    client::DaemonArgs,
    output::{ListFormat, Listed, TableWidth, write_list},
    parts::shape,
    table::{TextTable, or_dash},
};
use crate::{
    admin::types::{AdminPod, AdminPodClaim, AdminPodContainer, AdminPodDevice},
    units::bytes,
};

#[derive(clap::Args, Debug)]
pub(super) struct PodsArgs {
    /// Only pods of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Pods and containers that hold nothing, too
    #[arg(short, long)]
    all: bool,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<ListFormat>(), default_value = "table")]
    output: ListFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Listed for AdminPod {
    const KIND: &'static str = "Pod";

    fn listed_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

pub(super) fn run(args: &PodsArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let pods: Vec<AdminPod> = args.daemon.client()?.get("/v1/pods")?;
    let pods = args.output.for_reader(selected(pods, args));
    write_list(&pods, args.output, out, |width| table(&pods, width))?;
    Ok(CliOutcome::Done)
}

fn selected(mut pods: Vec<AdminPod>, args: &PodsArgs) -> Vec<AdminPod> {
    pods.retain(|pod| args.namespace.as_ref().is_none_or(|namespace| pod.namespace == *namespace));
    if args.output == ListFormat::Name {
        // What no pod uses has no pod's name.
        pods.retain(|pod| !pod.name.is_empty());
    }
    if !args.all {
        pods.iter_mut().for_each(|pod| pod.containers.retain(|container| !container.claims.is_empty()));
        pods.retain(|pod| !pod.containers.is_empty() || !pod.claims.is_empty());
    }
    pods
}

/// One line for each claim of a container.
fn table(pods: &[AdminPod], width: TableWidth) -> String {
    let mut headings = vec!["NAMESPACE", "POD", "CONTAINER", "CLAIM", "DEVICES", "CPUS", "MEMORY", "NODES"];
    if width == TableWidth::Wide {
        headings.extend(["STATE", "KNOWN BY", "ID", "CDI"]);
    }
    let mut table = TextTable::new(&headings);
    for pod in pods {
        for container in &pod.containers {
            if container.claims.is_empty() {
                table.row(row(pod, Some(container), None));
            }
            container.claims.iter().for_each(|claim| table.row(row(pod, Some(container), Some(claim))));
        }
        pod.claims.iter().for_each(|claim| table.row(row(pod, None, Some(claim))));
    }
    table.to_string()
}

fn row(pod: &AdminPod, container: Option<&AdminPodContainer>, claim: Option<&AdminPodClaim>) -> Vec<String> {
    let devices: &[AdminPodDevice] = claim.map_or(&[], |claim| &claim.devices);
    let joined = |of: &dyn Fn(&AdminPodDevice) -> String| {
        let mut texts: Vec<String> = devices.iter().map(of).filter(|text| !text.is_empty()).collect();
        texts.dedup();
        texts.join(" ")
    };
    let name = container.map(|container| container.name.clone()).unwrap_or_default();
    let id = container.and_then(|container| container.id.clone()).unwrap_or_default();
    vec![
        pod.namespace.clone(),
        or_dash(&pod.name),
        or_dash(&name),
        claim.map(full_name).unwrap_or_default(),
        joined(&|device| format!("{}/{}", device.backend, device.device)),
        joined(&|device| device.cpus.clone()),
        joined(&memory),
        joined(&|device| device.nodes.clone()),
        claim.map(|claim| claim.state.to_string()).unwrap_or_default(),
        pod.known_by.clone().unwrap_or_default(),
        id,
        joined(&|device| device.cdi_ids.join(" ")),
    ]
}

fn full_name(claim: &AdminPodClaim) -> String {
    if claim.name.is_empty() { claim.uid.clone() } else { format!("{}/{}", claim.namespace, claim.name) }
}

fn memory(device: &AdminPodDevice) -> String {
    let kinds = device.memory.iter().map(|(kind, amount)| match kind.as_str() {
        "memory" => bytes(*amount),
        kind => format!("{} ({kind})", bytes(*amount)),
    });
    kinds.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods() -> Vec<AdminPod> {
        let claim = json!({"namespace": "ml", "name": "train", "uid": "u1", "state": "prepared", "devices": [
            {"backend": "cpu", "pool": "n1/cpu", "device": "numa1", "request": "r", "cdi_ids": ["hostler.dev/claim=u1-0"],
             "cpus": "8-11", "memory": {}, "nodes": "1"},
            {"backend": "memory", "pool": "n1/memory", "device": "node1-hugepages-2mi", "request": "m", "cdi_ids": [],
             "cpus": "", "memory": {"hugepages-2Mi": 1 << 30}, "nodes": "1"},
        ]});
        serde_json::from_value(json!([
            {"namespace": "ml", "name": "train-0", "known_by": "api", "containers": [
                {"name": "main", "id": "c1", "claims": [claim]}, {"name": "log", "claims": []}]},
            {"namespace": "web", "name": "shop-0", "known_by": "api", "containers": [{"name": "shop", "claims": []}]},
            {"namespace": "", "name": "", "containers": [], "claims": [
                {"namespace": "default", "name": "spare", "uid": "u2", "state": "prepared", "devices": []}]},
        ]))
        .unwrap()
    }

    fn args(output: ListFormat, all: bool, namespace: Option<&str>) -> PodsArgs {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            args: PodsArgs,
        }
        let PodsArgs { daemon, .. } = <Alone as clap::Parser>::parse_from(["pods"]).args;
        PodsArgs { namespace: namespace.map(str::to_owned), all, output, daemon }
    }

    #[test]
    fn a_line_says_who_holds_what_and_on_which_node() {
        let pods = selected(pods(), &args(ListFormat::Table, false, None));
        let text = table(&pods, TableWidth::Narrow);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[1],
            [
                "ml",
                "train-0",
                "main",
                "ml/train",
                "cpu/numa1",
                "memory/node1-hugepages-2mi",
                "8-11",
                "1",
                "GiB",
                "(hugepages-2Mi)",
                "1"
            ],
            "{text}"
        );
        assert_eq!(lines[2], ["-", "-", "default/spare"], "{text}");
        assert_eq!(lines.len(), 3, "{text}");
        assert!(table(&pods, TableWidth::Wide).contains("hostler.dev/claim=u1-0"));
    }

    #[test]
    fn those_who_hold_nothing_are_shown_on_request_and_names_are_those_of_pods() {
        let names =
            |args: &PodsArgs| -> Vec<String> { selected(pods(), args).iter().map(Listed::listed_name).collect() };
        assert_eq!(names(&args(ListFormat::Name, false, None)), ["ml/train-0"]);
        assert_eq!(names(&args(ListFormat::Name, true, None)), ["ml/train-0", "web/shop-0"]);
        assert_eq!(names(&args(ListFormat::Table, true, Some("web"))), ["web/shop-0"]);
        let all = selected(pods(), &args(ListFormat::Table, true, None));
        assert_eq!(table(&all, TableWidth::Narrow).lines().count(), 5);
    }
}
