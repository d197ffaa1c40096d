//! What a file may say, and what is said about its mistakes.

use std::fs;

use super::*;

fn mistakes(text: &str) -> Vec<(Option<usize>, String, String)> {
    let problems = DaemonConfig::parse(text).expect_err("the text has mistakes");
    problems.into_iter().map(|problem| (problem.line, problem.key.clone(), problem.to_string())).collect()
}

/// The one mistake of a text.
fn mistake(text: &str) -> (Option<usize>, String, String) {
    let mut mistakes = mistakes(text);
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    mistakes.remove(0)
}

#[test]
fn an_empty_file_gives_the_defaults() {
    assert_eq!(DaemonConfig::parse("").unwrap(), DaemonConfig::default());
    assert_eq!(DaemonConfig::default().driver, "hostler.dev");
    assert!(DaemonConfig::default().backends.cpu.enabled && !DaemonConfig::default().backends.fake.enabled);
}

#[test]
fn every_section_is_read() {
    let text = r#"
        node_name = "n1"
        driver = "fpga.example.org"
        hook = "/opt/hostler"
        [paths]
        state = "/s"
        run = "/r"
        cdi = "/c"
        kubelet = "/k"
        root = "/captured"
        [cluster]
        mode = "standalone"
        manifests = "/m"
        [kubelet]
        enabled = false
        [inventory]
        rescan = "1m30s"
        quiet = "100ms"
        quiet_limit = "1s"
        [log]
        format = "json"
        level = "warn,hostler::claims=debug"
        [metrics]
        listen = "127.0.0.1:9464"
        [backends.cpu]
        reserved = "0-1"
        mode = "l3"
        [backends.memory]
        enabled = false
        reserved = { "0" = "4Gi" }
        [backends.fake]
        enabled = true
        script = "/etc/hostler/fake.toml"
    "#;
    let config = DaemonConfig::parse(text).unwrap();
    assert_eq!(
        (&*config.node_name, &*config.driver, config.hook.as_path()),
        ("n1", "fpga.example.org", Path::new("/opt/hostler"))
    );
    assert_eq!(config.paths.root, Path::new("/captured"));
    assert_eq!(config.cluster.manifests, Path::new("/m"));
    assert!(!config.kubelet.enabled);
    assert_eq!(config.inventory.rescan, Duration::from_secs(90));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.metrics_listen(), ListenAddress::Tcp("127.0.0.1:9464".parse().unwrap()));
    // A section that says nothing about `enabled` keeps its default.
    assert_eq!(config.backends.cpu.active().unwrap().reserved, "0-1");
    assert!(config.backends.memory.active().is_none());
    assert_eq!(config.backends.fake.active().unwrap().script, Path::new("/etc/hostler/fake.toml"));
    assert_eq!(
        config.kubelet_sockets().registration_socket(),
        Path::new("/k/plugins_registry/dra@fpga.example.org-reg.sock")
    );
}

#[test]
fn all_mistakes_are_reported_in_one_run_and_in_the_order_of_the_file() {
    let text = "drivr = \"x\"\nnode_name = 5\n[inventory]\nrescann = \"1s\"\nquiet = 5\nrescan = \"10ms\"\n\
        [backends.cpu]\nmode = \"numma\"\nreserved = \"x\"\nenabled = \"yes\"\n[backends.gpu]\n[metric]\nlisten = \"off\"\n";
    let found: Vec<(usize, String)> =
        mistakes(text).into_iter().map(|(line, key, _)| (line.expect("a line"), key)).collect();
    let expected = [
        (1, "drivr"),
        (2, "node_name"),
        (4, "inventory.rescann"),
        (5, "inventory.quiet"),
        (6, "inventory.rescan"),
        (8, "backends.cpu.mode"),
        (9, "backends.cpu.reserved"),
        (10, "backends.cpu.enabled"),
        (11, "backends.gpu"),
        (12, "metric"),
    ];
    assert_eq!(found, expected.map(|(line, key)| (line, key.to_owned())));
}

#[test]
fn an_unknown_key_comes_with_the_nearest_known_one() {
    for (text, suggestion) in [
        ("drivr = \"x\"", "did you mean \"driver\"?"),
        ("[inventory]\nquite = \"1s\"", "did you mean \"quiet\"?"),
        ("[backends.cpu]\nenable = true", "did you mean \"enabled\"?"),
        ("[backends.memroy]\n", "did you mean \"memory\"?"),
        ("[kubelet]\nzzz = 1", "remove it; known here: enabled, classic"),
    ] {
        let (_, _, shown) = mistake(text);
        assert!(shown.ends_with(suggestion), "{text}: {shown}");
    }
}

#[test]
fn a_key_of_the_wrong_type_says_what_was_expected() {
    for (text, words) in [
        ("[inventory]\nquiet = 5", "expected a time with its unit"),
        ("[inventory]\nquiet = \"5 days\"", "expected a time with its unit"),
        ("[kubelet]\nenabled = 1", "expected a boolean"),
        ("[cluster]\nmode = \"cluster\"", "expected `standalone`"),
        ("[backends.cpu]\nenabled = \"yes\"", "write true or false without quotes"),
        ("paths = \"/\"", "write [paths] on a line of its own"),
        ("[[log]]\nlevel = \"info\"", "write [log] on a line of its own"),
    ] {
        let (line, _, shown) = mistake(text);
        assert!(shown.contains(words), "{text}: {shown}");
        assert_eq!(line, Some(text.lines().count().min(2 - usize::from(text.starts_with("[[")))), "{text}");
    }
}

#[test]
fn figures_are_not_served_to_other_hosts() {
    let (_, key, shown) = mistake("[metrics]\nlisten = \"0.0.0.0:9464\"");
    assert_eq!(key, "metrics.listen");
    assert!(shown.contains("can be reached from outside the host; write \"127.0.0.1:9464\""), "{shown}");
    let (_, _, shown) = mistake("[metrics]\nlisten = \"9464\"");
    assert!(shown.contains("write \"unix:/run/hostler/metrics.sock\", \"127.0.0.1:9464\" or \"off\""), "{shown}");
    for good in ["off", "unix:/x", "[::1]:1", "localhost:9464"] {
        assert!(DaemonConfig::parse(&format!("[metrics]\nlisten = {good:?}")).is_ok(), "{good}");
    }
}

#[test]
fn readers_on_other_hosts_take_an_api_server_that_knows_them() {
    let (line, key, shown) = mistake("[metrics]\nscrape = \"0.0.0.0:9464\"");
    assert_eq!((line, key.as_str()), (Some(2), "metrics.scrape"));
    assert!(shown.contains("write cluster.mode = \"kubernetes\", or use metrics.listen"), "{shown}");
    let (_, _, shown) = mistake("[metrics]\nscrape = \"9464\"");
    assert!(shown.contains("\"9464\" is not an address with a port; write \"0.0.0.0:9464\""), "{shown}");
    let config = DaemonConfig::parse("[cluster]\nmode = \"kubernetes\"\n[metrics]\nscrape = \"[::]:9464\"").unwrap();
    assert_eq!(config.metrics.scrape.unwrap().0, "[::]:9464".parse().unwrap());
}

#[test]
fn names_paths_times_and_levels_have_rules() {
    for (text, key) in [
        ("driver = \"Hostler.dev\"", "driver"),
        ("driver = \"hostler_dev\"", "driver"),
        ("driver = \"\"", "driver"),
        ("node_name = \"a..b\"", "node_name"),
        ("hook = \"hostler\"", "hook"),
        ("[paths]\ncdi = \"var/run/cdi\"", "paths.cdi"),
        ("[paths]\nstate = \"/var/lib/../hostler\"", "paths.state"),
        ("[metrics]\nlisten = \"unix:metrics.sock\"", "metrics.listen"),
        ("[inventory]\nrescan = \"999ms\"", "inventory.rescan"),
        ("[inventory]\nanswer_within = \"99ms\"", "inventory.answer_within"),
        ("[inventory]\nanswer_within = \"601s\"", "inventory.answer_within"),
        ("[inventory]\nquiet = \"3s\"", "inventory.quiet_limit"),
        ("[log]\nlevel = \"inof\"", "log.level"),
        ("[log]\nlevel = \"info,hostler=loud\"", "log.level"),
        ("[backends.memory.reserved]\nx = \"1Gi\"", "backends.memory.reserved.x"),
    ] {
        let (line, found, shown) = mistake(text);
        assert_eq!(found, key, "{shown}");
        assert!(line.is_some() || key == "inventory.quiet_limit", "{text}: no line");
    }
}

#[test]
fn a_driver_name_has_63_characters_at_most() {
    let name = |length: usize| format!("driver = \"{}\"\n[kubelet]\nenabled = false", "a".repeat(length));
    assert!(DaemonConfig::parse(&name(63)).is_ok());
    assert_eq!(mistake(&name(64)).1, "driver");
}

#[test]
fn socket_paths_that_the_kernel_refuses_are_found_before_it_does() {
    let text =
        |length: usize| format!("[metrics]\nlisten = \"off\"\n[paths]\nkubelet = \"/{}\"", "k".repeat(length - 1));
    let rest = "/plugins_registry/dra@hostler.dev-reg.sock".len();
    assert!(DaemonConfig::parse(&text(107 - rest)).is_ok());
    let (line, key, shown) = mistake(&text(108 - rest));
    assert_eq!((line, &*key), (Some(4), "paths.kubelet"));
    assert!(shown.contains("108 bytes long") && shown.contains("the kernel takes 107"), "{shown}");
    let (_, key, _) = mistake(&format!("driver = \"{}\"", "a".repeat(63)));
    assert_eq!(key, "driver", "the name is longer than the kubelet's folder");
    let switched_off = format!("{}\n[kubelet]\nenabled = false", text(108 - rest));
    assert!(DaemonConfig::parse(&switched_off).is_ok(), "no socket is made there");
}

#[test]
fn a_backend_that_is_off_may_keep_its_mistakes() {
    assert!(DaemonConfig::parse("[backends.cpu]\nenabled = false\nreserved = \"x\"").is_ok());
}

#[test]
fn broken_syntax_has_a_line_and_hides_nothing_else() {
    let mistakes = mistakes("driver = \n[inventory]\nrescann = \"1s\"\n");
    assert_eq!(mistakes[0].0, Some(1), "{mistakes:?}");
    assert!(mistakes.iter().any(|(_, key, _)| key == "inventory.rescann"), "{mistakes:?}");
}

#[test]
fn a_file_that_is_named_must_exist() {
    let error = DaemonConfig::load_or_default(Some(Path::new("/nonexistent/hostler.toml"))).unwrap_err();
    let shown = error.to_string();
    assert!(shown.starts_with("/nonexistent/hostler.toml: failed to read the file"), "{shown}");
    assert!(shown.contains("leave out --config"), "{shown}");
}

#[test]
fn errors_are_shown_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h.toml");
    fs::write(&path, "drivr = 1\n[paths]\nrun = \"run\"\n").unwrap();
    let shown = DaemonConfig::load(&path).unwrap_err().to_string();
    let place = path.display();
    let expected = format!(
        "{place}:1: drivr: is no key that hostler knows; did you mean \"driver\"?\n\
         {place}:3: paths.run: \"run\" is not absolute; begin it with /"
    );
    assert_eq!(shown, expected);
}

#[test]
fn what_is_shown_can_be_read_back() {
    let mut config = DaemonConfig::default();
    config.backends.cpu.config.reserved = "0-1".to_owned();
    config.metrics.listen = Some(ListenAddress::Off);
    assert_eq!(DaemonConfig::parse(&toml::to_string(&config).unwrap()).unwrap(), config);
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = DaemonConfig::parse(&text);
    }

    #[test]
    fn no_mixture_of_lines_panics(lines in proptest::collection::vec(
        proptest::sample::select(vec![
            "[paths]", "[backends.cpu]", "[[backends.cpu]]", "[backends]", "cpu = 1", "enabled = true", "enabled = 3",
            "driver = \"x\"", "paths.run = \"/x\"", "paths = 1", "reserved = {a=1}", "x", "= 1", "[a", "run = \"é\"",
        ]), 0..12)) {
        let _ = DaemonConfig::parse(&lines.join("\n"));
    }
}
