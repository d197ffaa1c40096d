//! Random specs: valid ones with arbitrary text wherever text is free, and ones with a fault here and there.

use std::collections::{BTreeMap, HashSet};

use hostler_cdi::{
    CdiDevice, CdiHook, CdiMount, CdiSpec, CdiVersion, ContainerEdits, DeviceNode, HookName, IntelRdt, NetDevice,
    minimum_version,
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};

/// Whether faults are in.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Faults {
    Without,
    With,
}

/// One of the good values, or now and then one of the bad.
fn pick(faults: Faults, good: &'static [&'static str], bad: &'static [&'static str]) -> BoxedStrategy<String> {
    let good = select(good).prop_map(str::to_owned);
    match faults {
        Faults::Without => good.boxed(),
        Faults::With => prop_oneof![20 => good, 1 => select(bad).prop_map(str::to_owned)].boxed(),
    }
}

/// Any text but NUL, with the characters that encodings trip over.
fn text() -> impl Strategy<Value = String> {
    let traps = select(
        &['\u{7f}', '\u{85}', '\u{2028}', '\u{feff}', '\u{ffff}', '\u{1f600}', '"', '\\', '\n', '\t', '#', ':'][..],
    );
    let any = any::<char>().prop_filter("NUL is a fault", |c| *c != '\0');
    vec(prop_oneof![any, traps], 0..12).prop_map(|chars| chars.into_iter().collect())
}

fn path(faults: Faults) -> BoxedStrategy<String> {
    let good = "/[a-z]{1,3}(/[a-z0-9][a-z0-9 ._-]{0,3})?";
    match faults {
        Faults::Without => good.boxed(),
        Faults::With => prop_oneof![20 => good, 1 => Just(String::new()), 1 => Just("relative".to_owned())].boxed(),
    }
}

fn env(faults: Faults) -> impl Strategy<Value = Vec<String>> {
    let good = ("[A-Z_]{1,3}", text()).prop_map(|(name, value)| format!("{name}={value}")).boxed();
    let bad = match faults {
        Faults::Without => good.clone(),
        Faults::With => select(&["", "A", "=", "=b"][..]).prop_map(str::to_owned).boxed(),
    };
    vec(prop_oneof![30 => good, 1 => bad], 0..4)
}

fn node(faults: Faults) -> impl Strategy<Value = DeviceNode> {
    (
        (path(faults), option::of("/dev/[a-z]{1,3}")),
        // Type and major are always there: the oracle would look for the host's node otherwise.
        (pick(faults, &["b", "c", "u", "p"], &["", "x", "char"]), 0..4096_i64, option::of(0..4096_i64)),
        option::of(0..0o10000_u32),
        option::of(pick(faults, &["r", "rw", "rwm", "m"], &["x", "rwx", " "])),
        (option::of(any::<u32>()), option::of(any::<u32>())),
    )
        .prop_map(|((path, host_path), (node_type, major, minor), file_mode, permissions, (uid, gid))| {
            DeviceNode {
                path,
                host_path,
                node_type: Some(node_type),
                major: Some(major),
                minor,
                file_mode,
                permissions,
                uid,
                gid,
            }
        })
}

fn hook(faults: Faults) -> impl Strategy<Value = CdiHook> {
    use HookName::{CreateContainer, CreateRuntime, Poststart, Poststop, Prestart, StartContainer};
    let names = select(&[Prestart, CreateRuntime, CreateContainer, StartContainer, Poststart, Poststop][..]);
    let timeout = match faults {
        Faults::Without => (1..=i64::from(u32::MAX)).boxed(),
        Faults::With => prop_oneof![20 => 1..100_i64, 1 => -5..1_i64, 1 => Just(i64::MAX)].boxed(),
    };
    (names, path(faults), vec(text(), 0..3), env(faults), option::of(timeout))
        .prop_map(|(hook_name, path, args, env, timeout)| CdiHook { hook_name, path, args, env, timeout })
}

fn mount(faults: Faults) -> impl Strategy<Value = CdiMount> {
    let fs_type = option::of(pick(faults, &["none", "bind", "tmpfs"], &["", "x"]));
    (path(faults), path(faults), vec(pick(faults, &["ro", "bind", "nosuid"], &[""]), 0..3), fs_type).prop_map(
        |(host_path, container_path, options, fs_type)| CdiMount { host_path, container_path, options, fs_type },
    )
}

fn rdt(faults: Faults) -> impl Strategy<Value = IntelRdt> {
    let class = option::of(pick(faults, &["gold", "a.b", ""], &["..", "a/b", "/", "a\nb"]));
    let count = if faults == Faults::With { 0..3 } else { 1..3 };
    let lines = vec(pick(faults, &["L3:0=ff", "MB:0=70"], &["", "a\nb"]), count);
    (class, option::of(text()), option::of(text()), option::of(lines), any::<Option<bool>>()).prop_map(
        |(clos_id, l3_cache_schema, mem_bw_schema, schemata, enable_monitoring)| IntelRdt {
            clos_id,
            l3_cache_schema,
            mem_bw_schema,
            schemata,
            enable_monitoring,
        },
    )
}

fn net_device(faults: Faults) -> impl Strategy<Value = NetDevice> {
    let name = || pick(faults, &["eth0", "eth1", "net-a", "net.b"], &["", "sixteen-bytes-xx"]);
    (name(), name()).prop_map(|(host_interface_name, name)| NetDevice { host_interface_name, name })
}

pub(crate) fn edits(faults: Faults) -> impl Strategy<Value = ContainerEdits> {
    let groups = match faults {
        Faults::Without => (1..=u32::MAX).boxed(),
        Faults::With => any::<u8>().prop_map(u32::from).boxed(),
    };
    (
        env(faults),
        vec(node(faults), 0..3),
        prop_oneof![3 => Just(vec![]), 1 => vec(net_device(faults), 1..3)],
        vec(hook(faults), 0..2),
        vec(mount(faults), 0..3),
        prop_oneof![3 => Just(None), 1 => rdt(faults).prop_map(|rdt| Some(Box::new(rdt)))],
        vec(groups, 0..2),
    )
        .prop_map(move |(env, device_nodes, net_devices, hooks, mounts, intel_rdt, additional_gids)| {
            let mut edits =
                ContainerEdits { env, device_nodes, net_devices, hooks, mounts, intel_rdt, additional_gids };
            if faults == Faults::Without {
                keep_first_of_each(&mut edits);
            }
            edits
        })
}

fn keep_first_of_each(edits: &mut ContainerEdits) {
    let mut seen = HashSet::new();
    edits.device_nodes.retain(|node| seen.insert(node.path.clone()));
    seen.clear();
    edits.mounts.retain(|mount| seen.insert(mount.container_path.clone()));
    seen.clear();
    edits.net_devices.retain(|device| seen.insert(device.name.clone()));
    seen.clear();
    edits.net_devices.retain(|device| seen.insert(device.host_interface_name.clone()));
}

fn annotations(faults: Faults) -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = pick(faults, &["a", "A.b", "vendor.com/c_d"], &["", "a b", "/a", "a/", "a/b/c", "A_.com/x"]);
    prop_oneof![3 => Just(BTreeMap::new()), 1 => btree_map(key, text(), 1..3)]
}

fn device(faults: Faults) -> impl Strategy<Value = CdiDevice> {
    let name = match faults {
        Faults::Without => "[a-zA-Z0-9]([a-zA-Z0-9_.:-]{0,6}[a-zA-Z0-9])?".boxed(),
        Faults::With => pick(faults, &["a", "b", "c-1", "0000:3b:00.0", "7"], &["", "-a", "a-", "a b", "é", "a/b"]),
    };
    (name, annotations(faults), edits(faults)).prop_map(move |(name, annotations, mut container_edits)| {
        if faults == Faults::Without && container_edits.is_empty() {
            container_edits.env.push("A=1".to_owned());
        }
        CdiDevice { name, annotations, container_edits }
    })
}

/// A spec without a declared version.
fn undeclared(faults: Faults) -> impl Strategy<Value = CdiSpec> {
    let kind = pick(
        faults,
        &["hostler.dev/claim", "vendor.com/gpu", "a/b", "vendor.com/a.b"],
        &["", "vendor", "/a", "a/", "3a/b", "a/3b", "a/b/c", "a-/b", "a/b_", "a b/c", "a_b/c", "a..b/c"],
    );
    let shared = prop_oneof![1 => Just(ContainerEdits::default()), 1 => edits(faults)];
    let count = if faults == Faults::With { 0..4 } else { 1..4 };
    (kind, annotations(faults), vec(device(faults), count), shared).prop_map(
        move |(kind, annotations, mut devices, container_edits)| {
            if faults == Faults::Without {
                let mut seen = HashSet::new();
                devices.retain(|device| seen.insert(device.name.clone()));
            }
            CdiSpec { cdi_version: String::new(), kind, annotations, devices, container_edits }
        },
    )
}

/// Specs in which nothing is wrong.
pub(crate) fn valid_spec() -> impl Strategy<Value = CdiSpec> {
    undeclared(Faults::Without).prop_map(CdiSpec::with_minimum_version)
}

/// Specs in which something may be wrong, versions included.
pub(crate) fn any_spec() -> impl Strategy<Value = CdiSpec> {
    let versions = ["", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0", "v1.1.0", "2"];
    let declared = prop_oneof![
        3 => Just(None),
        1 => Just(Some(CdiVersion::LATEST.as_str())),
        2 => select(versions.to_vec()).prop_map(Some),
    ];
    (undeclared(Faults::With), declared).prop_map(|(mut spec, declared)| {
        // The oracle checks timeouts in the edits of devices alone.
        spec.container_edits.hooks.iter_mut().for_each(|hook| hook.timeout = None);
        spec.cdi_version = declared.map_or_else(|| minimum_version(&spec).to_string(), str::to_owned);
        spec
    })
}
