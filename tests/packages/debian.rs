//! A fresh host: a root of Debian, booted with its own systemd in a container.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use hostler_testing::real_node::eventually;

use crate::files::{Packages, command};

/// A host that goes with its value.
#[derive(Debug)]
pub struct Host {
    name: String,
    root: tempfile::TempDir,
    nspawn: Child,
    leader: u32,
}

/// What a host has besides the packages: systemd, a container runtime, and a program for containers to run.
const INCLUDED: &str = "systemd,systemd-sysv,dbus,udev,runc,busybox-static";

/// Returns an archive of a release's root, made once.
fn archive(suite: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/package-roots");
    let archive = folder.join(format!("{suite}.tar"));
    if !archive.exists() {
        fs::create_dir_all(&folder).unwrap();
        let new = folder.join(format!("{suite}.new.tar"));
        let include = format!("--include={INCLUDED}");
        let mut arguments = vec!["--quiet", "--variant=minbase", include.as_str(), suite, new.to_str().unwrap()];
        // Without it mmdebstrap asks the archive's own address.
        let mirror = env::var("HOSTLER_MIRROR").unwrap_or_default();
        if !mirror.is_empty() {
            arguments.push(&mirror);
        }
        command("mmdebstrap", &arguments);
        fs::rename(new, &archive).unwrap();
    }
    archive
}

impl Host {
    pub fn boot(suite: &str, packages: &Packages) -> Self {
        let root = tempfile::tempdir().unwrap();
        command("tar", &["-C", root.path().to_str().unwrap(), "-xf", archive(suite).to_str().unwrap()]);
        packages.copy_to(&root.path().join("packages"));
        // Two hosts of one test run would be one machine to systemd.
        fs::write(root.path().join("etc/machine-id"), "").unwrap();
        let nspawn = Command::new("systemd-nspawn")
            .args(["--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe", "--directory"])
            .arg(root.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", nspawn.id());
        let leader = eventually("the host's systemd", || {
            fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok()
        });
        let host = Host { name: suite.to_owned(), root, nspawn, leader };
        host.until("the host to have booted", "systemctl is-system-running | grep -qE 'running|degraded'");
        host
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Runs a line of shell on the host.
    fn call(&self, line: &str) -> Output {
        let mut call = Command::new("nsenter");
        call.args(["--target", &self.leader.to_string(), "--all", "sh", "-c", line]).env_clear();
        call.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
        call.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a line of shell that succeeds, and returns what it prints.
    pub fn run(&self, line: &str) -> String {
        let done = self.call(line);
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{line}: {}\n{out}{err}", done.status);
        out.into_owned()
    }

    /// Runs a line of shell that fails, and returns its errors.
    pub fn refused(&self, line: &str) -> String {
        let done = self.call(line);
        assert!(!done.status.success(), "{line} went well: {}", String::from_utf8_lossy(&done.stdout));
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    /// Waits until a line of shell succeeds.
    pub fn until(&self, what: &str, line: &str) {
        eventually(what, || self.call(line).status.success().then_some(()));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // systemd takes it for the order to halt; what does not obey is killed with it.
        let _ = Command::new("kill").args(["-s", "RTMIN+4", &self.leader.to_string()]).status();
        let _ = Command::new("kill").arg(self.leader.to_string()).status();
        let _ = self.nspawn.kill();
        let _ = self.nspawn.wait();
    }
}
