//! The packages that `make packages` builds, on fresh hosts: a root of Debian without Rust, booted with its own systemd.
//!
//! A host is made by mmdebstrap and runs in a container of systemd-nspawn, so the tests need root and a mirror of Debian.
//! `make test-packages` installs both programs and names the folder of the packages in `HOSTLER_PACKAGES`.

#![allow(unreachable_pub, reason = "modules of a program")]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, shows what it measured, and runs what an operator runs"
)]

mod container;
mod debian;
mod files;

use std::time::Instant;

use self::{debian::Host, files::Packages};

/// Two claims, whose devices every host has.
const CLAIMS: [&str; 2] = ["train --device cpu/numa0,cpus=1", "cache --device memory/node0,memory=64Mi"];

fn claims_are_held(host: &Host) {
    let names = host.run("hostler claim list -o name");
    assert_eq!(names.lines().collect::<Vec<_>>(), ["default/cache", "default/train"], "{names}");
    assert_eq!(host.run("ls /run/cdi").lines().count(), 2);
}

/// Installs the package, makes claims, and checks what the service and the command line say of them.
fn install(host: &Host, packages: &Packages) {
    let began = Instant::now();
    host.run("env DEBIAN_FRONTEND=noninteractive dpkg -i /packages/hostler.deb");
    host.until("the daemon to be ready", "systemctl is-active hostler && hostler ready");
    println!("{}: installed and ready in {} ms", host.name(), began.elapsed().as_millis());
    assert_eq!(host.run("systemctl is-enabled hostler"), "enabled\n");
    assert!(host.run("hostler --version").contains(packages.version()));
    assert!(host.run("stat -c %G /run/hostler/metrics.sock").starts_with("hostler"));
    assert_eq!(
        host.run("man -w hostler-claim-create 2>/dev/null || ls /usr/share/man/man1/hostler-claim-create.1.gz")
            .lines()
            .count(),
        1
    );
    for claim in CLAIMS {
        host.run(&format!("hostler claim create {claim}"));
    }
    claims_are_held(host);
    container::is_bound_to_its_claim(host, "train");
}

/// Replaces the package by another version, while programs call the hook's binary without a pause.
fn replace(host: &Host, package: &str, version: &str) {
    let before = host.run("systemctl show -p MainPID --value hostler");
    host.run("rm -f /run/calls; (while [ ! -e /run/enough ]; do hostler --version >/dev/null || echo failed; echo called; done >/run/calls 2>&1 &)");
    host.run(&format!("dpkg -i --force-downgrade /packages/{package}"));
    host.until("the new daemon to be ready", "systemctl is-active hostler && hostler ready");
    host.run("touch /run/enough");
    let calls = host.run("cat /run/calls; rm -f /run/enough");
    assert!(calls.lines().count() > 20, "{calls}");
    assert!(calls.lines().all(|line| line == "called"), "the binary was away in between: {calls}");
    assert_ne!(host.run("systemctl show -p MainPID --value hostler"), before, "the new daemon has taken over");
    assert_eq!(host.run("dpkg-query -W -f '${Version}' hostler"), version);
    claims_are_held(host);
    container::is_bound_to_its_claim(host, "train");
}

fn life(suite: &str) {
    let packages = Packages::find();
    let host = Host::boot(suite, &packages);
    install(&host, &packages);
    host.run("echo '# of the operator' >>/etc/hostler/hostler.toml");
    replace(&host, "hostler-next.deb", &packages.next_version());
    replace(&host, "hostler.deb", packages.version());
    assert!(
        host.run("tail -n 1 /etc/hostler/hostler.toml").contains("of the operator"),
        "an edited configuration stays"
    );
    let refusal = host.refused("dpkg -r hostler");
    assert!(refusal.contains("claims that hold devices of this host: 2"), "{refusal}");
    claims_are_held(&host);
    for claim in ["train", "cache"] {
        host.run(&format!("hostler claim delete {claim}"));
    }
    host.run("dpkg -r hostler");
    assert_eq!(host.run("systemctl is-active hostler || true"), "inactive\n");
    host.run("test -e /etc/hostler/hostler.toml && test -e /var/lib/hostler && ! test -e /usr/bin/hostler");
    host.run("dpkg -i /packages/hostler.deb");
    host.until("the daemon to be ready again", "hostler ready");
    host.run("dpkg -P hostler");
    let left = host.run("find /etc /usr /var/lib /run -name '*hostler*' -not -path '/run/log/*' -not -path '/packages/*' 2>/dev/null || true");
    assert_eq!(left, "", "purging leaves nothing");
}

#[test]
#[ignore = "needs packages, root, mmdebstrap and systemd-nspawn: make test-packages"]
fn a_fresh_debian_12_keeps_its_claims_through_upgrade_and_downgrade_and_is_clean_after_purging() {
    life("bookworm");
}

#[test]
#[ignore = "needs packages, root, mmdebstrap and systemd-nspawn: make test-packages"]
fn a_fresh_debian_11_keeps_its_claims_through_upgrade_and_downgrade_and_is_clean_after_purging() {
    life("bullseye");
}

#[test]
#[ignore = "needs packages, root, mmdebstrap and systemd-nspawn: make test-packages"]
fn removing_with_claims_by_force_keeps_their_records_for_the_next_installation() {
    let packages = Packages::find();
    let host = Host::boot("bookworm", &packages);
    install(&host, &packages);
    host.run("HOSTLER_REMOVE_WITH_CLAIMS=1 dpkg -r hostler");
    host.run("dpkg -i /packages/hostler.deb");
    host.until("the daemon to be ready", "hostler ready");
    claims_are_held(&host);
    container::is_bound_to_its_claim(&host, "train");
}

#[test]
#[ignore = "needs packages, root, mmdebstrap and systemd-nspawn: make test-packages"]
fn the_controller_is_installed_beside_the_daemon_and_waits_for_its_configuration() {
    let packages = Packages::find();
    let host = Host::boot("bookworm", &packages);
    host.run("dpkg -i /packages/hostler.deb /packages/hostler-controller.deb /packages/hostler-dbgsym.deb");
    assert_eq!(host.run("systemctl is-enabled hostler-controller || true"), "disabled\n");
    assert_eq!(host.run("readlink /usr/bin/kubectl-hostler"), "hostler-controller\n");
    host.run("hostler-controller config check");
    host.run("dpkg -P hostler-controller hostler-dbgsym hostler");
    host.run("! test -e /etc/hostler");
}

#[test]
#[ignore = "needs packages, root, mmdebstrap and systemd-nspawn: make test-packages"]
fn a_configuration_with_a_mistake_is_named_once_and_the_service_is_not_started_again() {
    let packages = Packages::find();
    let host = Host::boot("bookworm", &packages);
    host.run("dpkg -i /packages/hostler.deb");
    host.run("echo 'drivr = 1' >/etc/hostler/hostler.toml; systemctl restart hostler || true");
    host.until("the service to have given up", "systemctl is-failed hostler");
    assert_eq!(host.run("systemctl show -p ExecMainStatus -p NRestarts hostler"), "NRestarts=0\nExecMainStatus=78\n");
    let log = host.run("journalctl -u hostler -o cat");
    assert!(log.contains("drivr"), "{log}");
}
