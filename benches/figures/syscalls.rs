//! System calls of a process, counted by strace(1).

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Counts until it is asked.
pub(crate) struct SyscallCounter(Child);

impl SyscallCounter {
    /// Counts the calls of all threads of a process; `None` where there is no strace.
    pub(crate) fn start(pid: u32) -> Option<Self> {
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-U", "calls,name", "-p", &pid.to_string()]);
        let counter = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()?;
        // What it says once it has attached comes through a pipe that is read at the end.
        thread::sleep(Duration::from_millis(500));
        Some(Self(counter))
    }

    /// Number of calls by name.
    pub(crate) fn stop(self) -> BTreeMap<String, usize> {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), Signal::SIGINT).unwrap();
        let output = self.0.wait_with_output().unwrap();
        let table = String::from_utf8_lossy(&output.stderr).into_owned();
        let call = |line: &str| {
            let (calls, name) = line.trim().split_once(' ')?;
            Some((name.trim().to_owned(), calls.parse().ok()?))
        };
        table.lines().filter_map(call).filter(|(name, _)| name != "total").collect()
    }
}
