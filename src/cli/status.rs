//! `hostler status`: how the running daemon is.

use std::{
    io::Write,
    time::{Duration, UNIX_EPOCH},
};

use hyper::Method;

use super::{
    CliFailure, CliOutcome,
    client::DaemonArgs,
    output::{OutputFormat, write_object},
    parts::shape,
    table::TextTable,
};
use crate::{
    admin::types::{
        AdminBackend, AdminHardware, AdminKubelet, AdminNri, AdminPods, AdminPublication, AdminStatus, AdminTopology,
    },
    units::{bytes, elapsed, utc},
};

#[derive(clap::Args, Debug)]
pub(super) struct StatusArgs {
    /// Have it look at all hardware anew first
    #[arg(long)]
    rescan: bool,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<OutputFormat>(), default_value = "table")]
    output: OutputFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let client = args.daemon.client()?;
    if args.rescan {
        client.order(Method::POST, "/v1/rescan")?;
    }
    let status: AdminStatus = client.get("/v1/status")?;
    let status = args.output.for_reader(status);
    write_object("Status", &status, args.output, out, || in_words(&status))?;
    Ok(CliOutcome::Done)
}

fn in_words(status: &AdminStatus) -> String {
    let ready =
        if status.not_ready.is_empty() { "yes".to_owned() } else { format!("no: {}", status.not_ready.join("; ")) };
    let claims = &status.claims;
    let facts = [
        ("hostler", format!("{} as {} on {}, {}", status.version, status.driver, status.node, status.mode)),
        ("ready", ready),
        (
            "running",
            format!("{}, {} resident", elapsed(Duration::from_secs(status.uptime_seconds)), bytes(status.rss_bytes)),
        ),
        ("boot", status.boot_id.clone()),
        ("kubelet", status.kubelet.as_ref().map_or_else(|| "switched off".to_owned(), kubelet)),
        (
            "claims",
            format!("{} prepared, {} preparing, {} quarantined", claims.prepared, claims.preparing, claims.quarantined),
        ),
    ];
    let runtime = status.nri.as_ref().map(|nri| ("runtime", nri_in_words(nri)));
    let published = status.publication.as_ref().map(|publication| ("slices", publication_in_words(publication)));
    let pods = status.pods.as_ref().map(|pods| ("pods", pods_in_words(pods)));
    let topology = status.topology.as_ref().map(|topology| ("topology", topology_in_words(topology)));
    let hardware = status.hardware.as_ref().map(|hardware| ("hardware", hardware_in_words(hardware)));
    let more = runtime.iter().chain(&published).chain(&pods).chain(&topology).chain(&hardware);
    let mut text: String = facts.iter().chain(more).map(|(name, fact)| format!("{name:<8} {fact}\n")).collect();
    let mut table = TextTable::new(&["BACKEND", "POOL", "DEVICES", "HEALTHY", "DRAINED", "SCAN"]);
    for backend in &status.backends {
        let counts = if backend.unknown {
            ["-"; 3].map(str::to_owned)
        } else {
            [backend.devices, backend.healthy, backend.drained].map(|count| count.to_string())
        };
        let scan = scan(backend);
        table.row([backend.name.clone(), backend.pool.clone()].into_iter().chain(counts).chain([scan]));
    }
    text.push_str(&format!("\n{table}"));
    if !status.warnings.is_empty() {
        text.push_str("\nwarnings:\n");
        text.extend(status.warnings.iter().map(|warning| format!("  {warning}\n")));
    }
    text
}

fn scan(backend: &AdminBackend) -> String {
    match (&backend.stale, backend.unanswered_since) {
        (None, _) => "ok".to_owned(),
        (Some(_), Some(since)) => format!("no answer since {}", utc(UNIX_EPOCH + Duration::from_secs(since))),
        (Some(error), None) => format!("failed: {error}"),
    }
}

fn kubelet(kubelet: &AdminKubelet) -> String {
    match (kubelet.registered, &kubelet.error) {
        (Some(true), _) if kubelet.connected => "registered".to_owned(),
        (Some(true), _) => "registered, and has hung up since".to_owned(),
        (_, Some(error)) => format!("refused the registration: {error}"),
        _ => format!("has not called yet; waiting on {}", kubelet.registration_socket.display()),
    }
}

fn nri_in_words(nri: &AdminNri) -> String {
    let mut parts = vec![match (&nri.runtime, &nri.error) {
        (Some(runtime), _) => format!("{runtime}, {} containers", nri.containers),
        (None, Some(error)) => format!("not connected: {error}"),
        (None, None) => format!("none listens for plugins on {}", nri.socket.display()),
    }];
    parts.extend(nri.shared_pool.as_ref().map(|cpus| match cpus.as_str() {
        "" => "the shared pool is empty: containers without a claim for CPUs are refused".to_owned(),
        cpus => format!("shared pool: CPUs {cpus}"),
    }));
    parts.extend(nri.quarantined.iter().map(|(id, reason)| format!("left as it is: {id}: {reason}")));
    parts.join("\n         ")
}

fn pods_in_words(pods: &AdminPods) -> String {
    match &pods.error {
        None => format!("{} on this node", pods.pods),
        Some(error) if pods.pods == 0 => format!("not known: {error}"),
        Some(error) => format!("{} when the API server was last heard: {error}", pods.pods),
    }
}

fn topology_in_words(topology: &AdminTopology) -> String {
    match &topology.error {
        Some(error) => format!("not exported: {error}"),
        None if topology.exported => "exported".to_owned(),
        None => "not exported yet".to_owned(),
    }
}

fn hardware_in_words(hardware: &AdminHardware) -> String {
    match &hardware.error {
        Some(error) => format!("not reported: {error}"),
        None if hardware.reported => "reported".to_owned(),
        None => "not reported yet".to_owned(),
    }
}

fn publication_in_words(publication: &AdminPublication) -> String {
    let mut parts = vec![match (&publication.error, publication.synced) {
        (Some(error), _) => format!("failed to publish: {error}"),
        (None, true) => format!("{} published", publication.slices),
        (None, false) => "not published yet".to_owned(),
    }];
    parts.extend(publication.dropped.iter().map(|fields| format!("the API server does not store {fields}")));
    parts.extend(publication.left_out.iter().map(|device| format!("left out: {device}")));
    parts.join("\n         ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::types::AdminClaimCounts;

    fn status() -> AdminStatus {
        AdminStatus {
            version: "0.1.0".to_owned(),
            node: "n1".to_owned(),
            driver: "hostler.dev".to_owned(),
            mode: "standalone".to_owned(),
            uptime_seconds: 125,
            boot_id: "b".to_owned(),
            rss_bytes: 8 << 20,
            not_ready: Vec::new(),
            kubelet: None,
            nri: None,
            publication: None,
            pods: None,
            topology: None,
            hardware: None,
            backends: vec![
                AdminBackend {
                    name: "cpu".to_owned(),
                    pool: "n1/cpu".to_owned(),
                    devices: 2,
                    healthy: 1,
                    drained: 1,
                    stale: Some("sysfs is gone".to_owned()),
                    unknown: false,
                    unanswered_since: None,
                },
                AdminBackend {
                    name: "fpga".to_owned(),
                    pool: "n1/fpga".to_owned(),
                    devices: 0,
                    healthy: 0,
                    drained: 0,
                    stale: Some("it has not answered since 1970-01-01 00:01:05 UTC".to_owned()),
                    unknown: true,
                    unanswered_since: Some(65),
                },
            ],
            claims: AdminClaimCounts { prepared: 3, preparing: 0, quarantined: 1 },
            warnings: vec!["/sys/x: odd".to_owned()],
        }
    }

    #[test]
    fn a_status_reads_top_down() {
        let expected = "\
hostler  0.1.0 as hostler.dev on n1, standalone
ready    yes
running  2m 5s, 8 MiB resident
boot     b
kubelet  switched off
claims   3 prepared, 0 preparing, 1 quarantined

BACKEND  POOL     DEVICES  HEALTHY  DRAINED  SCAN
cpu      n1/cpu         2        1        1  failed: sysfs is gone
fpga     n1/fpga        -        -        -  no answer since 1970-01-01 00:01:05 UTC

warnings:
  /sys/x: odd
";
        assert_eq!(in_words(&status()), expected);
    }

    #[test]
    fn a_kubelet_that_refuses_is_quoted() {
        let said = AdminKubelet {
            registered: Some(false),
            connected: false,
            error: Some("unsupported version".to_owned()),
            registration_socket: "/r.sock".into(),
            service_socket: "/s.sock".into(),
        };
        assert_eq!(kubelet(&said), "refused the registration: unsupported version");
        let gone = AdminKubelet { registered: Some(true), error: None, ..said.clone() };
        assert_eq!(kubelet(&gone), "registered, and has hung up since");
        let silent = AdminKubelet { registered: None, error: None, ..said };
        assert_eq!(kubelet(&silent), "has not called yet; waiting on /r.sock");
    }

    #[test]
    fn what_the_runtime_runs_is_told_where_there_is_one() {
        let nri = AdminNri {
            runtime: Some("containerd v2.4.0".to_owned()),
            error: None,
            socket: "/n.sock".into(),
            containers: 7,
            quarantined: [("c9".to_owned(), "odd".to_owned())].into(),
            shared_pool: Some("1,4-7".to_owned()),
        };
        let expected =
            "containerd v2.4.0, 7 containers\n         shared pool: CPUs 1,4-7\n         left as it is: c9: odd";
        assert_eq!(nri_in_words(&nri), expected);
        let text = in_words(&AdminStatus { nri: Some(nri.clone()), ..status() });
        assert!(text.contains("\nruntime  containerd v2.4.0, 7 containers\n"), "{text}");
        let empty = AdminNri { shared_pool: Some(String::new()), quarantined: Default::default(), ..nri.clone() };
        assert!(nri_in_words(&empty).ends_with("containers without a claim for CPUs are refused"));
        let lost = AdminNri { runtime: None, error: Some("gone".to_owned()), shared_pool: None, ..empty };
        assert_eq!(nri_in_words(&lost), "not connected: gone");
        assert_eq!(nri_in_words(&AdminNri { error: None, ..lost }), "none listens for plugins on /n.sock");
    }

    #[test]
    fn what_the_cluster_sees_is_told_where_there_is_one() {
        assert!(!in_words(&status()).contains("slices"));
        let publication = AdminPublication {
            synced: true,
            error: None,
            slices: 3,
            dropped: vec!["taints (feature gate DRADeviceTaints)".to_owned()],
            left_out: vec!["n1/cpu/a: why".to_owned()],
        };
        let told = |publication| in_words(&AdminStatus { publication: Some(publication), ..status() });
        let text = told(publication.clone());
        assert!(
            text.contains("slices   3 published\n         the API server does not store taints (feature"),
            "{text}"
        );
        assert!(text.contains("\n         left out: n1/cpu/a: why\n"), "{text}");
        let text = told(AdminPublication { synced: false, error: Some("no route".to_owned()), ..publication });
        assert!(text.contains("slices   failed to publish: no route"), "{text}");
    }

    #[test]
    fn an_export_that_is_refused_is_told_with_the_reason() {
        assert!(!in_words(&status()).contains("topology"));
        let told = |exported, error: Option<&str>| {
            let topology = AdminTopology { exported, error: error.map(str::to_owned) };
            in_words(&AdminStatus { topology: Some(topology), ..status() })
        };
        assert!(told(true, None).contains("topology exported\n"));
        assert!(told(false, Some("no CRD")).contains("topology not exported: no CRD\n"));
    }

    #[test]
    fn a_report_that_is_refused_is_told_with_the_reason() {
        let told = |reported, error: Option<&str>| {
            let hardware = AdminHardware { reported, error: error.map(str::to_owned) };
            in_words(&AdminStatus { hardware: Some(hardware), ..status() })
        };
        assert!(told(true, None).contains("hardware reported\n"));
        assert!(told(false, None).contains("hardware not reported yet\n"));
        assert!(told(false, Some("no CRD")).contains("hardware not reported: no CRD\n"));
    }

    #[test]
    fn what_is_known_of_pods_is_told_with_the_reason_why_not_more() {
        assert!(!in_words(&status()).contains("pods"));
        let told = |known, pods, error: Option<&str>| {
            let error = error.map(str::to_owned);
            in_words(&AdminStatus { pods: Some(AdminPods { known, pods, error }), ..status() })
        };
        assert!(told(true, 3, None).contains("pods     3 on this node\n"));
        assert!(told(false, 0, Some("forbidden")).contains("pods     not known: forbidden\n"));
        assert!(told(false, 3, Some("no route")).contains("pods     3 when the API server was last heard: no route\n"));
    }
}
