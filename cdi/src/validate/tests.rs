//! Unit tests of validation: one good spec, broken in one place each.

use super::*;
use crate::spec::{CdiHook, CdiMount, ContainerEdits, DeviceNode, HookName, IntelRdt, NetDevice};

fn good() -> CdiSpec {
    let edits = ContainerEdits { env: vec!["A=1".to_owned()], ..ContainerEdits::default() };
    let device = CdiDevice { name: "d0".to_owned(), container_edits: edits, ..CdiDevice::default() };
    CdiSpec {
        cdi_version: "1.1.0".to_owned(),
        kind: "vendor.com/class".to_owned(),
        devices: vec![device],
        ..CdiSpec::default()
    }
}

fn with_edits(edits: ContainerEdits) -> CdiSpec {
    let mut spec = good();
    spec.devices[0].container_edits = edits;
    spec
}

fn problems(spec: &CdiSpec) -> Vec<(ProblemSeverity, String)> {
    let problems = spec.validate().err().unwrap_or_default();
    problems.into_iter().map(|problem| (problem.severity, problem.field)).collect()
}

#[track_caller]
fn assert_only(spec: &CdiSpec, severity: ProblemSeverity, field: &str) {
    assert_eq!(problems(spec), [(severity, field.to_owned())], "{:?}", spec.validate());
}

#[track_caller]
fn assert_only_in_edits(edits: ContainerEdits, severity: ProblemSeverity, field: &str) {
    assert_only(&with_edits(edits), severity, &format!("devices[0].containerEdits{field}"));
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_good_spec_has_no_problem() {
    assert_eq!(good().validate(), Ok(()));
}

#[test]
fn everything_that_is_missing_is_reported_at_once() {
    let spec = CdiSpec { devices: vec![CdiDevice::default()], ..CdiSpec::default() };
    let fields: Vec<_> = problems(&spec).into_iter().map(|(_, field)| field).collect();
    assert_eq!(fields, ["cdiVersion", "kind", "devices[0].name", "devices[0].containerEdits"]);
    assert_eq!(problems(&CdiSpec::default()).last(), Some(&(ProblemSeverity::Refused, "devices".to_owned())));
}

#[test]
fn a_problem_names_place_fault_and_fix() {
    let mut spec = good();
    spec.devices[0].name = "a b".to_owned();
    let text = spec.validate().unwrap_err()[0].to_string();
    assert_eq!(
        text,
        "devices[0].name: \"a b\" has the character ' ', which is none of letters, digits, '_', '-', '.' and ':'; \
         use letters, digits, '_', '-', '.' and ':', with a letter or digit at both ends"
    );
}

#[test]
fn a_version_below_the_fields_names_the_field_that_needs_more() {
    let spec = CdiSpec { container_edits: gids(&[7]), cdi_version: "0.6.0".to_owned(), ..good() };
    let problem = spec.validate().unwrap_err().remove(0);
    assert_eq!(problem.message, "\"0.6.0\" is below 0.7.0, which is needed for additionalGids");
    assert_eq!(problem.fix, "write \"0.7.0\"");
}

#[test]
fn versions_that_no_runtime_takes_are_refused() {
    for version in ["", "0.2.0", "1.2.0", "latest"] {
        assert_only(&CdiSpec { cdi_version: version.to_owned(), ..good() }, ProblemSeverity::Refused, "cdiVersion");
    }
    assert_only(&CdiSpec { cdi_version: "v1.1.0".to_owned(), ..good() }, ProblemSeverity::Risky, "cdiVersion");
}

#[test]
fn kinds_follow_the_runtimes_and_then_the_specification() {
    let long = format!("vendor.com/{}", "c".repeat(64));
    for (kind, severity) in [
        ("vendor.com", ProblemSeverity::Refused),
        ("4vendor.com/class", ProblemSeverity::Refused),
        ("vendor.com/4class", ProblemSeverity::Refused),
        ("vendor_x.com/class", ProblemSeverity::Risky),
        ("vendor..com/class", ProblemSeverity::Risky),
        (long.as_str(), ProblemSeverity::Risky),
    ] {
        assert_only(&CdiSpec { kind: kind.to_owned(), ..good() }, severity, "kind");
    }
}

#[test]
fn repeated_device_names_are_refused() {
    let mut spec = good();
    spec.devices.push(spec.devices[0].clone());
    assert_only(&spec, ProblemSeverity::Refused, "devices[1].name");
}

#[test]
fn annotation_keys_and_sizes_are_checked() {
    for key in ["", "a b", "/a", "a/", "a/b/c", "-a", "exa_mple.com/a"] {
        let mut spec = good();
        spec.annotations.insert(key.to_owned(), "x".to_owned());
        assert_only(&spec, ProblemSeverity::Refused, "annotations");
    }
    let mut spec = good();
    spec.devices[0].annotations.insert("Example.com/A.b_c".to_owned(), "any\nvalue".to_owned());
    assert_eq!(spec.validate(), Ok(()));
    spec.devices[0].annotations.insert("big".to_owned(), "x".repeat(256 * 1024));
    assert_only(&spec, ProblemSeverity::Refused, "devices[0].annotations");
}

#[test]
fn environment_needs_a_name_and_an_equals_sign() {
    for variable in ["", "NAME", "=value"] {
        let edits = ContainerEdits { env: strings(&["OK=", variable]), ..ContainerEdits::default() };
        assert_only_in_edits(edits, ProblemSeverity::Refused, ".env[1]");
    }
    let edits = ContainerEdits { env: strings(&["A=\0"]), ..ContainerEdits::default() };
    assert_only_in_edits(edits, ProblemSeverity::Risky, ".env[0]");
}

fn gids(groups: &[u32]) -> ContainerEdits {
    ContainerEdits { additional_gids: groups.to_vec(), ..ContainerEdits::default() }
}

#[test]
fn group_zero_is_lost() {
    assert_only_in_edits(gids(&[7, 0]), ProblemSeverity::Risky, ".additionalGids[1]");
}

fn node(change: impl FnOnce(&mut DeviceNode)) -> ContainerEdits {
    let mut node = DeviceNode { path: "/dev/a".to_owned(), ..DeviceNode::default() };
    change(&mut node);
    ContainerEdits { device_nodes: vec![node], ..ContainerEdits::default() }
}

#[test]
fn device_nodes_are_checked_field_by_field() {
    let whole = node(|n| {
        n.host_path = Some("/dev/b".to_owned());
        n.node_type = Some("c".to_owned());
        (n.major, n.minor) = (Some(1), Some(0));
        n.file_mode = Some(0o666);
        n.permissions = Some("rwm".to_owned());
        (n.uid, n.gid) = (Some(0), Some(0));
    });
    assert_eq!(with_edits(whole).validate(), Ok(()));
    let text = |text: &str| Some(text.to_owned());
    for (edits, severity, field) in [
        (node(|n| n.path.clear()), ProblemSeverity::Refused, "path"),
        (node(|n| n.path = "dev/a".to_owned()), ProblemSeverity::Risky, "path"),
        (node(|n| n.path = "/dev/\0".to_owned()), ProblemSeverity::Risky, "path"),
        (node(|n| n.host_path = text("")), ProblemSeverity::Risky, "hostPath"),
        (node(|n| n.host_path = text("dev/a")), ProblemSeverity::Risky, "hostPath"),
        (node(|n| n.node_type = text("block")), ProblemSeverity::Refused, "type"),
        (node(|n| n.permissions = text("rx")), ProblemSeverity::Refused, "permissions"),
        (node(|n| n.permissions = text("none")), ProblemSeverity::Refused, "permissions"),
        (node(|n| n.file_mode = Some(0o20_666)), ProblemSeverity::Risky, "fileMode"),
        (node(|n| n.major = Some(-1)), ProblemSeverity::Risky, "major"),
        (node(|n| n.minor = Some(-1)), ProblemSeverity::Risky, "minor"),
    ] {
        assert_only_in_edits(edits, severity, &format!(".deviceNodes[0].{field}"));
    }
}

#[test]
fn entries_that_replace_an_earlier_one_are_reported() {
    let mut edits = node(|_| ());
    edits.device_nodes.push(edits.device_nodes[0].clone());
    assert_only_in_edits(edits, ProblemSeverity::Risky, ".deviceNodes[1].path");
    let mount = CdiMount { host_path: "/a".to_owned(), container_path: "/b".to_owned(), ..CdiMount::default() };
    let edits = ContainerEdits { mounts: vec![mount.clone(), mount], ..ContainerEdits::default() };
    assert_only_in_edits(edits, ProblemSeverity::Risky, ".mounts[1].containerPath");
}

fn mount(host: &str, container: &str, fs_type: Option<&str>, options: &[&str]) -> ContainerEdits {
    let mount = CdiMount {
        host_path: host.to_owned(),
        container_path: container.to_owned(),
        fs_type: fs_type.map(str::to_owned),
        options: strings(options),
    };
    ContainerEdits { mounts: vec![mount], ..ContainerEdits::default() }
}

#[test]
fn bind_mounts_need_absolute_paths() {
    assert_eq!(with_edits(mount("/a", "/b", None, &["ro", "bind"])).validate(), Ok(()));
    for (edits, severity, field) in [
        (mount("", "/b", None, &[]), ProblemSeverity::Refused, "hostPath"),
        (mount("", "/b", Some("tmpfs"), &[]), ProblemSeverity::Refused, "hostPath"),
        (mount("a", "/b", Some("none"), &["rbind"]), ProblemSeverity::Risky, "hostPath"),
        (mount("a", "/b", Some("ext4"), &["bind"]), ProblemSeverity::Risky, "hostPath"),
        (mount("/a", "", None, &[]), ProblemSeverity::Refused, "containerPath"),
        (mount("/a", "b", None, &[]), ProblemSeverity::Risky, "containerPath"),
        (mount("/a", "/b", None, &["ro", "x\0"]), ProblemSeverity::Risky, "options[1]"),
    ] {
        assert_only_in_edits(edits, severity, &format!(".mounts[0].{field}"));
    }
}

#[test]
fn other_mounts_have_sources_that_are_no_paths() {
    assert_eq!(with_edits(mount("tmpfs", "/scratch", Some("tmpfs"), &["size=1m"])).validate(), Ok(()));
}

fn hook(change: impl FnOnce(&mut CdiHook)) -> ContainerEdits {
    let mut hook = CdiHook {
        hook_name: HookName::CreateRuntime,
        path: "/usr/bin/hook".to_owned(),
        args: strings(&["hook"]),
        env: vec![],
        timeout: None,
    };
    change(&mut hook);
    ContainerEdits { hooks: vec![hook], ..ContainerEdits::default() }
}

#[test]
fn hooks_are_checked_field_by_field() {
    assert_eq!(with_edits(hook(|h| h.timeout = Some(1))).validate(), Ok(()));
    for (edits, severity, field) in [
        (hook(|h| h.path.clear()), ProblemSeverity::Refused, "path"),
        (hook(|h| h.path = "hook".to_owned()), ProblemSeverity::Risky, "path"),
        (hook(|h| h.args = strings(&["a", "\0"])), ProblemSeverity::Risky, "args[1]"),
        (hook(|h| h.env = strings(&["A"])), ProblemSeverity::Refused, "env[0]"),
        (hook(|h| h.timeout = Some(0)), ProblemSeverity::Risky, "timeout"),
        (hook(|h| h.timeout = Some(-1)), ProblemSeverity::Refused, "timeout"),
    ] {
        assert_only_in_edits(edits, severity, &format!(".hooks[0].{field}"));
    }
}

#[test]
fn the_rdt_class_is_a_folder_name() {
    let class = |id: &str| ContainerEdits {
        intel_rdt: Some(Box::new(IntelRdt { clos_id: Some(id.to_owned()), ..IntelRdt::default() })),
        ..ContainerEdits::default()
    };
    for id in ["", "guaranteed", "a.b"] {
        assert_eq!(with_edits(class(id)).validate(), Ok(()), "{id:?}");
    }
    for id in [".", "..", "a/b", "/", "a\nb", "x".repeat(4096).as_str()] {
        assert_only_in_edits(class(id), ProblemSeverity::Refused, ".intelRdt.closID");
    }
}

#[test]
fn schemata_are_single_lines() {
    let empty = IntelRdt { schemata: Some(vec![]), ..IntelRdt::default() };
    let edits = ContainerEdits { intel_rdt: Some(Box::new(empty)), ..ContainerEdits::default() };
    assert_only_in_edits(edits, ProblemSeverity::Risky, ".intelRdt.schemata");
    let rdt = IntelRdt { schemata: Some(strings(&["L3:0=ff", "MB:0=1\nL3:0=1"])), ..IntelRdt::default() };
    let edits = ContainerEdits { intel_rdt: Some(Box::new(rdt)), ..ContainerEdits::default() };
    assert_only_in_edits(edits, ProblemSeverity::Risky, ".intelRdt.schemata[1]");
}

#[test]
fn network_devices_need_two_names_each_once() {
    let interfaces = |pairs: &[(&str, &str)]| ContainerEdits {
        net_devices: pairs
            .iter()
            .map(|(host, name)| NetDevice { host_interface_name: (*host).to_owned(), name: (*name).to_owned() })
            .collect(),
        ..ContainerEdits::default()
    };
    assert_eq!(with_edits(interfaces(&[("eth0", "net0"), ("eth1", "eth0")])).validate(), Ok(()));
    for (pairs, severity, field) in [
        (&[("", "a")][..], ProblemSeverity::Refused, "[0].hostInterfaceName"),
        (&[("a", "")], ProblemSeverity::Refused, "[0].name"),
        (&[("a", "x"), ("a", "y")], ProblemSeverity::Refused, "[1].hostInterfaceName"),
        (&[("a", "x"), ("b", "x")], ProblemSeverity::Refused, "[1].name"),
        (&[("a", "sixteen-bytes-xx")], ProblemSeverity::Risky, "[0].name"),
        (&[("a/b", "x")], ProblemSeverity::Risky, "[0].hostInterfaceName"),
    ] {
        assert_only_in_edits(interfaces(pairs), severity, &format!(".netDevices{field}"));
    }
}

#[test]
fn long_values_are_cut_in_messages() {
    let mut spec = good();
    spec.devices[0].name = format!("{}/", "\u{e9}".repeat(5000));
    let message = &spec.validate().unwrap_err()[0].message;
    assert!(message.len() < 400, "{message}");
}
