//! Claims in words, in tables and as options of podman.

use std::{
    env,
    io::Write,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::ClaimFormat;
use crate::{
    admin::types::{AdminClaim, AdminClaimDevice},
    cli::{
        CliFailure,
        client::DaemonArgs,
        output::{Listed, OutputFormat, TableWidth, write_object},
        plain::for_people,
        table::TextTable,
    },
    units::elapsed,
};

impl Listed for AdminClaim {
    const KIND: &'static str = "Claim";

    fn listed_name(&self) -> String {
        name_of(self)
    }
}

/// The name that other commands take; a claim whose record is damaged may have a UID only.
fn name_of(claim: &AdminClaim) -> String {
    if claim.name.is_empty() { claim.uid.clone() } else { format!("{}/{}", claim.namespace, claim.name) }
}

/// One line per claim.
pub(super) fn list(claims: &[AdminClaim], width: TableWidth, now: SystemTime) -> String {
    let mut headings = vec!["NAMESPACE", "NAME", "STATE", "AGE", "DEVICES"];
    if width == TableWidth::Wide {
        headings.extend(["CPUS", "NODES", "CDI"]);
    }
    headings.extend(["UID", "PROBLEM"]);
    let mut table = TextTable::new(&headings);
    for claim in claims {
        let devices: Vec<String> = claim.devices.iter().map(device_path).collect();
        let mut cells = vec![
            claim.namespace.clone(),
            claim.name.clone(),
            claim.state.to_string(),
            age(claim, now),
            devices.join(" "),
        ];
        if width == TableWidth::Wide {
            let ids: Vec<&str> = claim.devices.iter().flat_map(|device| &device.cdi_ids).map(String::as_str).collect();
            let (cpus, nodes) = (lists(claim, |device| &device.cpus), lists(claim, |device| &device.mems));
            cells.extend([cpus, nodes, ids.join(" ")]);
        }
        let degraded = claim.degraded.as_ref().map(|why| format!("degraded: {why}"));
        cells.extend([claim.uid.clone(), claim.problem.clone().or(degraded).unwrap_or_default()]);
        table.row(cells);
    }
    table.to_string()
}

/// For how long it has been on record.
fn age(claim: &AdminClaim, now: SystemTime) -> String {
    claim.recorded.map_or_else(|| "-".to_owned(), |since| lasts(since, now))
}

/// For how long something lasts that began so many seconds after 1970.
fn lasts(since: u64, now: SystemTime) -> String {
    elapsed(now.duration_since(UNIX_EPOCH + Duration::from_secs(since)).unwrap_or_default())
}

/// One claim in the wanted shape.
pub(super) fn write(
    claim: &AdminClaim,
    format: ClaimFormat,
    daemon: &DaemonArgs,
    out: &mut dyn Write,
) -> Result<(), CliFailure> {
    let object =
        |format, out: &mut dyn Write| write_object("Claim", claim, format, out, || details(claim, SystemTime::now()));
    match format {
        ClaimFormat::Table => write!(out, "{}", details(&for_people(claim.clone()), SystemTime::now()))?,
        ClaimFormat::Json => object(OutputFormat::Json, out)?,
        ClaimFormat::Yaml => object(OutputFormat::Yaml, out)?,
        ClaimFormat::Parts(parts) => object(OutputFormat::Parts(parts), out)?,
        ClaimFormat::Name => writeln!(out, "{}", name_of(claim))?,
        ClaimFormat::Cdi => {
            for id in cdi_ids(claim)? {
                writeln!(out, "{id}")?;
            }
        }
        ClaimFormat::Podman => {
            let options: Vec<String> = cdi_ids(claim)?.iter().map(|id| format!("--device {id}")).collect();
            writeln!(out, "{}", options.join(" "))?;
        }
        ClaimFormat::Quadlet => {
            let program = env::current_exe().unwrap_or_else(|_| "/usr/bin/hostler".into());
            out.write_all(quadlet(claim, &program, &daemon.options()?)?.as_bytes())?;
        }
    }
    Ok(())
}

/// A drop-in for the .container file of a Quadlet, with the options that mean the same daemon. The claim is made
/// ready in front of the container, also after a reboot.
fn quadlet(claim: &AdminClaim, program: &Path, options: &str) -> Result<String, CliFailure> {
    let (name, program) = (name_of(claim), program.display());
    let devices: String = cdi_ids(claim)?.iter().map(|id| format!("AddDevice={id}\n")).collect();
    Ok(format!(
        "# Claim {name}, for NAME.container.d/hostler.conf beside NAME.container\n\
         [Unit]\nWants=hostler.service\nAfter=hostler.service\n\n\
         [Container]\n{devices}\n\
         [Service]\nExecStartPre={program} claim prepare {name}{options}\n"
    ))
}

pub(super) fn details(claim: &AdminClaim, now: SystemTime) -> String {
    let mut text =
        format!("claim    {}/{}\nuid      {}\nstate    {}\n", claim.namespace, claim.name, claim.uid, claim.state);
    if let Some(recorded) = claim.recorded {
        text.push_str(&format!("age      {}\n", lasts(recorded, now)));
    }
    if let Some(problem) = &claim.problem {
        text.push_str(&format!("problem  {problem}\n"));
    }
    if let Some(degraded) = &claim.degraded {
        text.push_str(&format!("degraded {degraded}\n"));
    }
    for (index, unaudited) in claim.unaudited.iter().enumerate() {
        text.push_str(&format!("{:<8} {unaudited}\n", if index == 0 { "unseen" } else { "" }));
    }
    for (index, unmet) in claim.devices.iter().flat_map(|device| &device.unmet).enumerate() {
        text.push_str(&format!("{:<8} {unmet}\n", if index == 0 { "unmet" } else { "" }));
    }
    for (index, note) in claim.notes.iter().enumerate() {
        text.push_str(&format!("{:<8} {note}\n", if index == 0 { "note" } else { "" }));
    }
    if let Some(busy) = &claim.busy {
        text.push_str(&format!("busy     {} for {}\n", busy.operation, lasts(busy.since, now)));
    }
    for (index, container) in claim.containers.iter().enumerate() {
        let pid = container.pid.map_or_else(|| "unknown process".to_owned(), |pid| format!("process {pid}"));
        let noun = if index == 0 { "used by" } else { "" };
        text.push_str(&format!("{noun:<8} container {}, {pid}\n", container.id));
    }
    if claim.devices.is_empty() {
        return text;
    }
    let mut table = TextTable::new(&["DEVICE", "REQUEST", "TAKEN", "CPUS", "NODES", "CDI"]);
    for device in &claim.devices {
        let taken: Vec<String> =
            device.consumed.iter().map(|(name, amount)| format!("{name}={}", amount.human())).collect();
        table.row([
            device_path(device),
            device.request.clone(),
            taken.join(" "),
            device.cpus.clone(),
            device.mems.clone(),
            device.cdi_ids.join(" "),
        ]);
    }
    format!("{text}\n{table}")
}

fn device_path(device: &AdminClaimDevice) -> String {
    format!("{}/{}", device.pool, device.device)
}

/// Lists of what the devices bind to, each list once.
fn lists(claim: &AdminClaim, list: impl Fn(&AdminClaimDevice) -> &String) -> String {
    let mut lists: Vec<&str> = Vec::new();
    for device in &claim.devices {
        let list = list(device).as_str();
        if !list.is_empty() && !lists.contains(&list) {
            lists.push(list);
        }
    }
    lists.join(",")
}

/// A container that got no device would run unbound: an empty answer must not look like one.
fn cdi_ids(claim: &AdminClaim) -> Result<Vec<&str>, CliFailure> {
    let ids: Vec<&str> = claim.devices.iter().flat_map(|device| &device.cdi_ids).map(String::as_str).collect();
    if ids.is_empty() {
        let (name, state) = (name_of(claim), &claim.state);
        return Err(CliFailure::Said(format!(
            "claim {name} is {state} and has no CDI ids: run `hostler claim prepare {name}`"
        )));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hostler_api::{ClaimState, Quantity};

    use super::*;
    use crate::admin::types::{AdminBusyClaim, AdminClaimState, AdminContainer};

    fn claim(cdi_ids: &[&str]) -> AdminClaim {
        let device = AdminClaimDevice {
            pool: "n1/cpu".to_owned(),
            device: "numa0".to_owned(),
            request: "device-0".to_owned(),
            cdi_ids: cdi_ids.iter().map(ToString::to_string).collect(),
            cpus: "0-3".to_owned(),
            mems: "0".to_owned(),
            consumed: BTreeMap::from([("cpus".to_owned(), Quantity::whole(4))]),
            unmet: Vec::new(),
        };
        AdminClaim {
            namespace: "default".to_owned(),
            name: "training".to_owned(),
            uid: "5f0c".to_owned(),
            state: AdminClaimState::OnRecord(ClaimState::Prepared),
            recorded: None,
            problem: None,
            degraded: None,
            unaudited: Vec::new(),
            busy: None,
            devices: vec![device],
            notes: Vec::new(),
            containers: Vec::new(),
            files: Vec::new(),
        }
    }

    fn written(claim: &AdminClaim, format: ClaimFormat) -> Result<String, CliFailure> {
        let mut out = Vec::new();
        write(claim, format, &DaemonArgs::default(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn containers_are_shown_with_the_claim_that_they_use() {
        let container = |id: &str, pid| AdminContainer { id: id.to_owned(), pid, cgroup: None };
        let used = AdminClaim { containers: vec![container("c1", Some(7)), container("c2", None)], ..claim(&[]) };
        let text = written(&used, ClaimFormat::Table).unwrap();
        assert!(text.contains("used by  container c1, process 7\n         container c2, unknown process\n"), "{text}");
    }

    #[test]
    fn work_that_is_under_way_is_shown_with_how_long_it_lasts() {
        let busy = Some(AdminBusyClaim { operation: "prepare".to_owned(), since: 1000 });
        let text = details(&AdminClaim { busy, ..claim(&[]) }, UNIX_EPOCH + Duration::from_secs(1125));
        assert!(text.contains("state    prepared\nbusy     prepare for 2m 5s\n\nDEVICE"), "{text}");
    }

    #[test]
    fn a_container_that_is_bound_to_something_else_is_shown_in_lists_too() {
        let degraded = Some("container c1: it was changed".to_owned());
        let claim = AdminClaim { degraded, unaudited: vec!["container c2: it is hidden".to_owned()], ..claim(&[]) };
        let text = written(&claim, ClaimFormat::Table).unwrap();
        assert!(
            text.contains("degraded container c1: it was changed\nunseen   container c2: it is hidden\n"),
            "{text}"
        );
        let list = list(&[claim], TableWidth::Narrow, UNIX_EPOCH);
        assert!(list.contains("degraded: container c1: it was changed"), "{list}");
    }

    #[test]
    fn a_wish_that_cannot_be_met_is_shown_with_the_reason() {
        let mut claim = claim(&[]);
        claim.devices[0].unmet = vec!["interrupt 24 stays".to_owned(), "interrupt 25 stays".to_owned()];
        let text = written(&claim, ClaimFormat::Table).unwrap();
        assert!(text.contains("unmet    interrupt 24 stays\n         interrupt 25 stays\n"), "{text}");
    }

    #[test]
    fn podman_gets_one_option_per_id() {
        let claim = claim(&["hostler.dev/claim=5f0c-0", "hostler.dev/claim=5f0c-1"]);
        let options = "--device hostler.dev/claim=5f0c-0 --device hostler.dev/claim=5f0c-1\n";
        assert_eq!(written(&claim, ClaimFormat::Podman).unwrap(), options);
        assert_eq!(written(&claim, ClaimFormat::Cdi).unwrap(), "hostler.dev/claim=5f0c-0\nhostler.dev/claim=5f0c-1\n");
    }

    #[test]
    fn a_claim_without_ids_is_an_error_for_podman_and_names_the_way_on() {
        let error = written(&claim(&[]), ClaimFormat::Podman).unwrap_err().to_string();
        assert!(error.ends_with("run `hostler claim prepare default/training`"), "{error}");
    }

    #[test]
    fn people_see_what_was_taken() {
        let text = written(&claim(&["a/b=c"]), ClaimFormat::Table).unwrap();
        assert!(text.contains("n1/cpu/numa0  device-0  cpus=4  0-3       0  a/b=c"), "{text}");
    }

    #[test]
    fn a_list_says_how_old_claims_are_and_all_that_they_are_bound_to_where_it_is_wide() {
        let now = UNIX_EPOCH + Duration::from_secs(1725);
        let claims = [AdminClaim { recorded: Some(1000), ..claim(&["a/b=c"]) }];
        let expected = "\
NAMESPACE  NAME      STATE     AGE     DEVICES       UID   PROBLEM
default    training  prepared  12m 5s  n1/cpu/numa0  5f0c
";
        assert_eq!(list(&claims, TableWidth::Narrow, now), expected);
        let wide = list(&claims, TableWidth::Wide, now);
        assert!(wide.contains("n1/cpu/numa0  0-3       0  a/b=c  5f0c"), "{wide}");
    }

    #[test]
    fn a_claim_whose_name_is_lost_is_named_by_its_uid() {
        let lost = AdminClaim { namespace: String::new(), name: String::new(), ..claim(&[]) };
        assert_eq!([lost.listed_name(), claim(&[]).listed_name()], ["5f0c", "default/training"]);
    }

    #[test]
    fn a_quadlet_gets_a_drop_in_that_waits_for_the_claim() {
        let expected = "\
# Claim default/training, for NAME.container.d/hostler.conf beside NAME.container
[Unit]
Wants=hostler.service
After=hostler.service

[Container]
AddDevice=hostler.dev/claim=5f0c-0
AddDevice=hostler.dev/claim=5f0c-1

[Service]
ExecStartPre=/usr/bin/hostler claim prepare default/training
";
        let claim = claim(&["hostler.dev/claim=5f0c-0", "hostler.dev/claim=5f0c-1"]);
        assert_eq!(quadlet(&claim, Path::new("/usr/bin/hostler"), "").unwrap(), expected);
        let elsewhere = quadlet(&claim, Path::new("/usr/bin/hostler"), " --socket /run/other.sock").unwrap();
        assert!(elsewhere.ends_with("claim prepare default/training --socket /run/other.sock\n"), "{elsewhere}");
    }
}
