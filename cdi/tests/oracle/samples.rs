//! The sample files: good ones are accepted and injected, bad ones refused with the right place.

use hostler_cdi::{DeviceCatalog, ProblemSeverity, SpecDir, read_spec};

use crate::{
    injection::{all_edits, assert_visible, qualified_names},
    oracle_injects, oracle_reads, samples,
};

#[test]
fn good_samples_are_valid_and_injected() {
    let paths = samples("good");
    assert!(!paths.is_empty());
    for path in paths {
        let spec = read_spec(&path).unwrap();
        assert_eq!(spec.validate(), Ok(()), "{}", path.display());
        oracle_reads(&path).unwrap();

        let dir = tempfile::TempDir::new().unwrap();
        SpecDir::new(dir.path()).write("sample", &spec).unwrap();
        let oci = oracle_injects(dir.path(), qualified_names(&spec)).unwrap();
        assert_visible(&all_edits(&with_host_nodes(spec)), &oci);
    }
}

/// Nodes without a type get that of the host's node, where the container's own fields do not say: nothing to compare.
fn with_host_nodes(mut spec: hostler_cdi::CdiSpec) -> hostler_cdi::CdiSpec {
    for device in &mut spec.devices {
        for node in &mut device.container_edits.device_nodes {
            if matches!(node.host_path.as_deref(), Some("/dev/null" | "/dev/zero")) {
                node.node_type = Some("c".to_owned());
                node.major = Some(1);
                node.minor = Some(if node.host_path.as_deref() == Some("/dev/null") { 3 } else { 5 });
            }
        }
    }
    spec
}

/// What we say to a bad sample, and whether the oracle refuses it too.
enum Ours {
    /// Not readable; the message has this.
    Unreadable(&'static str),
    /// The only problem is in this field.
    Refused(&'static str),
    Risky(&'static str),
}

use Ours::{Refused, Risky, Unreadable};

const ORACLE_REFUSES: bool = true;
const ORACLE_ACCEPTS: bool = false;

const BAD: &[(&str, Ours, bool)] = &[
    ("annotation-key.json", Refused("annotations"), ORACLE_REFUSES),
    ("class-too-long.json", Risky("kind"), ORACLE_ACCEPTS),
    ("cut.json", Unreadable("EOF while parsing"), ORACLE_REFUSES),
    ("device-name.json", Refused("devices[0].name"), ORACLE_REFUSES),
    ("empty.yaml", Refused("cdiVersion"), ORACLE_REFUSES),
    ("env-nul.json", Risky("devices[0].containerEdits.env[0]"), ORACLE_ACCEPTS),
    ("env-without-name.json", Refused("devices[0].containerEdits.env[1]"), ORACLE_REFUSES),
    ("group-negative.json", Unreadable("devices[0].containerEdits.additionalGids[0]"), ORACLE_REFUSES),
    ("group-zero.json", Risky("devices[0].containerEdits.additionalGids[0]"), ORACLE_ACCEPTS),
    ("hook-env.json", Refused("devices[0].containerEdits.hooks[0].env[0]"), ORACLE_REFUSES),
    ("hook-relative.json", Risky("devices[0].containerEdits.hooks[0].path"), ORACLE_ACCEPTS),
    ("hook-timeout-negative.json", Refused("devices[0].containerEdits.hooks[0].timeout"), ORACLE_REFUSES),
    ("hook-timeout-zero.json", Risky("devices[0].containerEdits.hooks[0].timeout"), ORACLE_ACCEPTS),
    ("hook-unknown.json", Unreadable("unknown variant `preStart`"), ORACLE_REFUSES),
    ("kind-begins-with-digit.json", Refused("kind"), ORACLE_REFUSES),
    ("kind-not-dns.json", Risky("kind"), ORACLE_ACCEPTS),
    ("kind-without-class.json", Refused("kind"), ORACLE_REFUSES),
    ("mount-relative.json", Risky("devices[0].containerEdits.mounts[0].hostPath"), ORACLE_ACCEPTS),
    ("mount-twice.json", Risky("containerEdits.mounts[1].containerPath"), ORACLE_ACCEPTS),
    ("mount-without-source.json", Refused("devices[0].containerEdits.mounts[0].hostPath"), ORACLE_REFUSES),
    ("net-device-name.json", Risky("devices[0].containerEdits.netDevices[0].name"), ORACLE_ACCEPTS),
    ("net-device-twice.json", Refused("devices[0].containerEdits.netDevices[1].hostInterfaceName"), ORACLE_REFUSES),
    ("no-devices.json", Refused("devices"), ORACLE_REFUSES),
    ("no-edits.json", Refused("devices[0].containerEdits"), ORACLE_REFUSES),
    ("node-file-mode.json", Risky("devices[0].containerEdits.deviceNodes[0].fileMode"), ORACLE_ACCEPTS),
    ("node-permissions-none.json", Refused("devices[0].containerEdits.deviceNodes[0].permissions"), ORACLE_ACCEPTS),
    ("node-permissions.json", Refused("devices[0].containerEdits.deviceNodes[0].permissions"), ORACLE_REFUSES),
    ("node-type.json", Refused("devices[0].containerEdits.deviceNodes[0].type"), ORACLE_REFUSES),
    ("node-without-path.json", Refused("devices[0].containerEdits.deviceNodes[0].path"), ORACLE_REFUSES),
    ("rdt-class.json", Refused("devices[0].containerEdits.intelRdt.closID"), ORACLE_REFUSES),
    ("rdt-dropped-field.json", Unreadable("dropped in CDI 1.1.0"), ORACLE_ACCEPTS),
    ("rdt-empty-schemata.json", Refused("cdiVersion"), ORACLE_REFUSES),
    ("rdt-root-class.json", Refused("devices[0].containerEdits.intelRdt.closID"), ORACLE_REFUSES),
    ("repeated-field.yaml", Unreadable("kind"), ORACLE_REFUSES),
    ("same-device-twice.json", Refused("devices[1].name"), ORACLE_REFUSES),
    ("unknown-field.json", Unreadable("unknown field `enviroment`"), ORACLE_REFUSES),
    ("version-below-fields.json", Refused("cdiVersion"), ORACLE_REFUSES),
    ("version-missing.json", Refused("cdiVersion"), ORACLE_REFUSES),
    ("version-too-old.json", Refused("cdiVersion"), ORACLE_REFUSES),
    ("version-unknown.json", Refused("cdiVersion"), ORACLE_REFUSES),
    ("version-with-v.json", Risky("cdiVersion"), ORACLE_ACCEPTS),
    ("wrong-type.yaml", Unreadable("devices[0].containerEdits.env"), ORACLE_REFUSES),
];

#[test]
fn bad_samples_are_refused_with_their_place() {
    let paths = samples("bad");
    let names: Vec<_> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, BAD.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), "every sample has its line in the table");
    for (path, (name, ours, oracle_refuses)) in paths.iter().zip(BAD) {
        assert_eq!(oracle_reads(path).is_err(), *oracle_refuses, "{name}: {:?}", oracle_reads(path));
        let spec = match (read_spec(path), ours) {
            (Err(error), Unreadable(message)) => {
                let text = std::error::Error::source(&error).unwrap().to_string();
                assert!(text.contains(message), "{name}: {text}");
                continue;
            }
            (read, _) => read.unwrap_or_else(|error| panic!("{name}: {error:?}")),
        };
        let (severity, field) = match ours {
            Refused(field) => (ProblemSeverity::Refused, field),
            Risky(field) => (ProblemSeverity::Risky, field),
            Unreadable(message) => panic!("{name} was read, without {message:?}"),
        };
        let first = spec.validate().unwrap_err().remove(0);
        assert_eq!((first.severity, first.field.as_str()), (severity, *field), "{name}");
    }
}

#[test]
fn precedence_is_the_oracles() {
    use container_device_interface::{
        cache::{Cache, with_auto_refresh},
        spec_dirs::with_spec_dirs,
    };
    let root = tempfile::TempDir::new().unwrap();
    let dirs = ["etc", "run"].map(|name| SpecDir::new(root.path().join(name)));
    for (dir, sample) in dirs.iter().zip(["claim.json", "claim.json"]) {
        let path = samples("good").into_iter().find(|path| path.ends_with(sample)).unwrap();
        dir.write("claim", &read_spec(&path).unwrap()).unwrap();
    }
    let mut cache = Cache::default();
    let paths = dirs.each_ref().map(|dir| dir.path().to_str().unwrap());
    cache.configure(vec![with_spec_dirs(&paths), with_auto_refresh(false)]);
    cache.refresh().unwrap();

    let catalog = DeviceCatalog::read(&dirs);
    let ours: Vec<_> = catalog.devices.iter().map(|device| device.name.clone()).collect();
    assert_eq!(ours, cache.list_devices());
    for device in &catalog.devices {
        let theirs = cache.get_device(&device.name).unwrap().get_spec().get_path();
        assert_eq!(device.file.to_str(), Some(theirs.as_str()));
    }
}
