//! The chart as helm takes it: clean, with every switch by itself, and refusing values that mean nothing.

use std::fs;

use serde_json::{Value, json};

use super::{
    super::{deploy, documents, lost, round_trip},
    chart,
    compare::{helm, in_file, rendered, settings},
    files,
    switches::{FIELDS, SELECTED_BY_LABELS},
    values::value_at,
};

/// Returns the switches with their defaults.
fn switches() -> Vec<(String, bool)> {
    let mut open = vec![(String::new(), documents(&chart().join("values.yaml")).remove(0))];
    let mut found = Vec::new();
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Bool(default) => found.push((path.trim_start_matches('.').to_owned(), default)),
            Value::Object(fields) => {
                open.extend(fields.into_iter().map(|(key, value)| (format!("{path}.{key}"), value)))
            }
            _ => {}
        }
    }
    found.sort();
    found
}

/// Returns what helm says against values.
fn refusal(values: &[&str]) -> String {
    let output = helm(&["template", "hostler"], &chart(), &settings(values));
    assert!(!output.status.success(), "{values:?} is not refused");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the notes of an installation: helm renders them only when it installs.
fn notes(values: &[&str]) -> String {
    let copy = tempfile::tempdir().unwrap();
    for file in files(&chart()) {
        fs::create_dir_all(copy.path().join(&file).parent().unwrap()).unwrap();
        fs::copy(chart().join(&file), copy.path().join(&file)).unwrap();
    }
    let object = "kind: Notes\nmetadata: {name: notes}\ntext: |\n  {{- include (print $.Template.BasePath \"/NOTES.txt\") . | nindent 2 }}\n";
    fs::write(copy.path().join("templates/zz.yaml"), object).unwrap();
    let output = helm(&["template", "hostler"], copy.path(), &settings(values));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    objects.iter().find(|object| object["kind"] == "Notes").unwrap()["text"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn helm_finds_nothing_to_say_against_the_chart() {
    let output = helm(&["lint"], &chart(), &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains("[WARNING]") && !said.contains("[ERROR]"), "{said}");
}

#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn every_switch_by_itself_renders_objects_that_the_api_knows() {
    let defaults = rendered(&[]);
    let switches = switches();
    assert!(switches.len() > 20, "{switches:?}");
    for (switch, default) in switches {
        let objects = rendered(&settings(&[&format!("{switch}={}", !default)]));
        for object in objects.values() {
            if let Some(kept) = round_trip(object) {
                assert_eq!(lost("", object, &kept.unwrap()), Vec::<String>::new(), "{switch}");
            }
        }
        // Without the other program the one is the same as before; a switch that is off takes away, one that is on adds.
        let (fewer, more) = if default { (&objects, &defaults) } else { (&defaults, &objects) };
        let is_classic = switch == "controller.classic";
        assert!(is_classic || fewer.keys().all(|id| more.contains_key(id)), "{switch}");
        assert!(objects != defaults || switch == "daemon.onHosts", "{switch} changes nothing");
    }
}

/// A role is there as far as its switch is on.
#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn roles_are_those_of_the_switches_that_are_on() {
    let roles = |values: &[&str]| -> Vec<String> {
        let roles = rendered(&settings(values)).into_keys().filter(|(kind, ..)| kind == "ClusterRole");
        roles.map(|(.., name)| name).collect()
    };
    assert_eq!(roles(&[]), ["hostler", "hostler-controller"]);
    assert_eq!(roles(&["daemon.enabled=false", "controller.enabled=false"]), Vec::<String>::new());
    assert_eq!(
        roles(&["daemon.enabled=false", "controller.holds.repair=true"]),
        ["hostler-controller", "hostler-controller-holds", "hostler-controller-repair", "hostler-controller-webhook"]
    );
    assert_eq!(roles(&["controller.enabled=false", "daemon.pods=true"]), ["hostler", "hostler-pods"]);
}

#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn values_that_mean_nothing_are_refused_by_name() {
    for (value, named) in [
        ("daemon.enabeld=true", "enabeld"),
        ("controler.enabled=true", "controler"),
        ("controller.holds.rule=true", "rule"),
        ("controller.holds.base=maybe", "/controller/holds/base"),
        ("controller.replicas=0", "/controller/replicas"),
        ("daemon.image.pullPolicy=Sometimes", "/daemon/image/pullPolicy"),
        ("daemon.image=hostler:1", "/daemon/image"),
        ("daemon.tolerations[0].operater=Exists", "operater"),
        ("daemon.logLevel=LOUD", "/daemon/logLevel"),
    ] {
        let said = refusal(&[value]);
        assert!(said.contains(named), "{value}: {said}");
    }
    for (values, named) in [
        (&["daemon.enabled=false", "daemon.hardware=true"][..], "daemon.hardware needs daemon.enabled"),
        (&["daemon.enabled=false", "daemon.pods=true"], "daemon.pods needs daemon.enabled or daemon.onHosts"),
        (
            &["controller.enabled=false", "controller.holds.rules=true"],
            "controller.holds.rules needs controller.enabled",
        ),
        (&["controller.enabled=false", "controller.classic=true"], "controller.classic needs controller.enabled"),
        (&["controller.enabled=false", "controller.fabric=true"], "controller.fabric needs controller.enabled"),
        (&["daemon.config=x", "daemon.logLevel=debug"], "write log.level into daemon.config"),
    ] {
        let said = refusal(values);
        assert!(said.contains(named), "{values:?}: {said}");
    }
}

/// Returns the configuration of a program in a rendering.
fn configuration(values: &[&str], namespace: &str, name: &str, file: &str) -> toml::Table {
    let id = ("ConfigMap".to_owned(), namespace.to_owned(), name.to_owned());
    rendered(&settings(values))[&id]["data"][file].as_str().unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn levels_sections_and_the_export_are_added_to_the_shipped_configuration() {
    let of_daemon = |values: &[&str]| configuration(values, "hostler-system", "hostler", "hostler.toml");
    let shipped = of_daemon(&[]);
    let changed = of_daemon(&[
        "daemon.logLevel=debug",
        "daemon.topology=true",
        "daemon.extraConfig=[backends.cpu]\nreserved = \"0-1\"\n",
    ]);
    assert_eq!(changed["log"]["level"].as_str(), Some("debug"));
    assert_eq!(changed["log"]["format"], shipped["log"]["format"]);
    assert_eq!(changed["backends"]["cpu"]["reserved"].as_str(), Some("0-1"));
    assert_eq!(changed["topology_export"]["enabled"].as_bool(), Some(true));
    assert_eq!(changed["paths"], shipped["paths"]);
    let own = of_daemon(&["daemon.topology=true", "daemon.config=[topology_export]\nenabled = false\n"]);
    assert_eq!(own["topology_export"]["enabled"].as_bool(), Some(false));
    let controller = configuration(
        &["controller.logLevel=warn"],
        "hostler-controller",
        "hostler-controller-configuration",
        "controller.toml",
    );
    assert_eq!(controller["log"]["level"].as_str(), Some("warn"));
}

/// Every value of the table, each other than its default.
#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn values_reach_the_fields_that_they_are_for() {
    let of_program = json!({
        "image": { "repository": "registry.example.org/x", "tag": "2", "pullPolicy": "Always" },
        "nodeSelector": { "kubernetes.io/arch": "amd64" }, "priorityClassName": "other",
        "resources": { "limits": { "memory": "1Gi" }, "requests": { "cpu": "20m", "memory": "48Mi" } },
        "tolerations": [{ "key": "dedicated", "operator": "Exists" }],
    });
    let mut values = json!({
        "daemon": of_program.clone(), "controller": of_program, "imagePullSecrets": [{ "name": "registry" }],
        "prometheus": { "podMonitors": true, "alerts": true, "labels": { "release": "prometheus" } },
    });
    values["controller"]["replicas"] = 3.into();
    values["daemon"]["resources"]["requests"] = json!({ "cpu": "10m", "memory": "24Mi" });
    let temporary = tempfile::tempdir().unwrap();
    let objects = rendered(&in_file(temporary.path(), &values));
    let of = |kind: &str| objects.values().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
    for (kind, path, value, _) in FIELDS {
        assert_eq!(of(kind)[0].pointer(path), Some(value_at(&values, value)), "{kind} {path}");
    }
    for kind in ["DaemonSet", "Deployment"] {
        let image = of(kind)[0].pointer("/spec/template/spec/containers/0/image").unwrap();
        assert_eq!(image, "registry.example.org/x:2");
    }
    // The class of the chart would be of no pod.
    assert_eq!(of("PriorityClass"), Vec::<&Value>::new());
    for kind in SELECTED_BY_LABELS {
        let labels = of(kind).iter().map(|object| object["metadata"]["labels"]["release"].clone()).collect::<Vec<_>>();
        assert_eq!(labels, ["prometheus", "prometheus"], "{kind}");
    }
}

#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn a_changed_configuration_rolls_through_the_pods() {
    let pod = |values: &[&str]| {
        let objects = rendered(&settings(values)).into_values();
        objects
            .filter(|object| object["kind"] == "DaemonSet")
            .map(|set| set["spec"]["template"].clone())
            .next()
            .unwrap()
    };
    assert_ne!(pod(&[]), pod(&["daemon.logLevel=debug"]));
    assert_eq!(pod(&[]), pod(&["controller.logLevel=debug"]));
}

#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn notes_say_what_to_do_next_with_what_is_installed() {
    let daemon = "rollout status daemonset/hostler";
    let controller = "rollout status deployment/hostler-controller";
    let said = notes(&[]);
    assert!(
        said.contains(daemon) && said.contains(controller) && said.contains("deviceClassName: cpu.hostler.dev"),
        "{said}"
    );
    assert!(!said.contains("reservations") && !said.contains("privileged"), "{said}");
    let said = notes(&["daemon.enabled=false", "controller.holds.base=true"]);
    assert!(!said.contains(daemon) && said.contains("docs/reservations.md"), "{said}");
    let said = notes(&["controller.classic=true", "controller.provisioning=true", "daemon.hardware=true"]);
    assert!(!said.contains("deviceClassName") && said.contains("docs/classic-dra.md"), "{said}");
    assert!(said.contains("docs/provisioning.md") && said.contains("privileged"), "{said}");
}

#[test]
fn every_page_that_the_notes_name_is_there() {
    let page = "https://github.com/hostler-dev/hostler/blob/main/docs/";
    let text = fs::read_to_string(chart().join("templates/NOTES.txt")).unwrap().replace("{{ $docs }}/", page);
    let pages: Vec<&str> = text.split(page).skip(1).filter_map(|rest| rest.split(['#', '\n']).next()).collect();
    assert!(pages.len() > 5, "{pages:?}");
    for page in pages {
        assert!(deploy().join("../docs").join(page).is_file(), "there is no docs/{page}");
    }
}
