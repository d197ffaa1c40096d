//! SIGHUP: the configuration is read again. The level of the log is taken over at once; other changed keys are logged
//! as taking a restart. A configuration with mistakes changes nothing.

use std::{io, path::PathBuf};

use hostler_api::Chain;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::{
    admin::{EventLog, types::AdminEventSubject},
    config::{ConfigErrors, DaemonConfig},
    log::ProcessLog,
    tasks::Tasks,
    units::count,
};

/// The key that needs no restart.
const LOG_LEVEL: &str = "log.level";

/// State for reading the configuration again, and the log that can be changed.
#[derive(Clone, Debug)]
pub struct ConfigReload {
    /// The file that was named on the command line, if one was.
    pub file: Option<PathBuf>,
    /// Configuration that was read at the start.
    pub read: DaemonConfig,
    /// Log whose level may change.
    pub log: ProcessLog,
    /// Changes for users who watch.
    pub events: EventLog,
}

/// Reads the configuration again on every SIGHUP from now on, also while the daemon starts or stands by.
pub(super) fn start(reload: ConfigReload, tasks: &Tasks) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let looking = tasks.clone();
    tasks.job(async move {
        let mut reload = reload;
        while next(&mut hangup, &looking).await {
            let file = reload.file.clone();
            // A job fails only with the whole process.
            if let Ok(read) = looking.looking(move || DaemonConfig::load_or_default(file.as_deref())).await {
                reload.apply(read);
            }
        }
    });
    Ok(())
}

async fn next(hangup: &mut Signal, tasks: &Tasks) -> bool {
    tokio::select! {
        // Cancel safe: a signal that was not taken is still pending.
        signal = hangup.recv() => signal.is_some(),
        // Cancel safe: the token stays cancelled.
        () = tasks.stop_token().cancelled_owned() => false,
    }
}

impl ConfigReload {
    fn apply(&mut self, read: Result<DaemonConfig, ConfigErrors>) {
        match read {
            Ok(read) => self.take_over(read),
            Err(errors) => {
                let mistakes = count(errors.problems.len(), "mistake");
                self.note(format!("nothing has changed: the log names {mistakes} in the configuration"));
                for mistake in errors.to_string().lines() {
                    error!(mistake, "the configuration is wrong");
                }
                error!(mistakes = errors.problems.len(), "the configuration is not taken over; nothing has changed");
            }
        }
    }

    fn take_over(&mut self, read: DaemonConfig) {
        let mut changed = changed_keys(&self.read, &read);
        let before = changed.len();
        self.note(if changed.is_empty() { "nothing has changed".to_owned() } else { changed.join(", ") });
        changed.retain(|key| key != LOG_LEVEL);
        if before > changed.len() {
            match self.log.set_level(&read.log.level) {
                Ok(()) => {
                    info!(level = read.log.level, "configuration read again: the log has another level");
                    self.read.log.level = read.log.level;
                }
                Err(error) => error!(error = %Chain(&error), "the log keeps its level"),
            }
        } else if changed.is_empty() {
            info!("configuration read again: nothing has changed");
        }
        // What was read at the start counts: a change that is taken back needs no restart any more.
        if !changed.is_empty() {
            warn!(keys = changed.join(", "), "configuration read again: these keys have changed and take a restart");
        }
    }

    fn note(&self, message: String) {
        self.events.note(AdminEventSubject::Daemon, &self.read.node_name, "reloaded", message);
    }
}

/// Returns the full names of keys whose values differ.
fn changed_keys(one: &DaemonConfig, other: &DaemonConfig) -> Vec<String> {
    fn compare(path: &str, one: &Value, other: &Value, changed: &mut Vec<String>) {
        let (Some(one_keys), Some(other_keys)) = (one.as_object(), other.as_object()) else {
            if one != other {
                changed.push(path.to_owned());
            }
            return;
        };
        let names = one_keys.keys().chain(other_keys.keys().filter(|key| !one_keys.contains_key(*key)));
        for name in names {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let value = |keys: &serde_json::Map<String, Value>| keys.get(name).cloned().unwrap_or_default();
            compare(&path, &value(one_keys), &value(other_keys), changed);
        }
    }
    let mut changed = Vec::new();
    // All types of the configuration can be serialised.
    let value = |config| serde_json::to_value(config).unwrap_or_default();
    compare("", &value(one), &value(other), &mut changed);
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_differs_is_named_and_no_other() {
        let before =
            DaemonConfig::parse("[log]\nlevel = \"info\"\n[backends.memory.reserved]\n\"0\" = \"1Gi\"").unwrap();
        assert_eq!(changed_keys(&before, &before), [""; 0]);
        let after = "driver = \"x.example\"\n[log]\nlevel = \"debug\"\n[metrics]\nlisten = \"off\"\n\
                     [backends.fpga]\nenabled = false\n[backends.memory.reserved]\n\"1\" = \"1Gi\"";
        let after = DaemonConfig::parse(after).unwrap();
        let mut changed = changed_keys(&before, &after);
        changed.sort_unstable();
        let fpga = changed.iter().filter(|key| key.starts_with("backends.fpga")).count();
        assert!(fpga > 0, "{changed:?}");
        changed.retain(|key| !key.starts_with("backends.fpga"));
        let memory = ["backends.memory.reserved.0", "backends.memory.reserved.1"];
        assert_eq!(changed, [memory[0], memory[1], "driver", "log.level", "metrics.listen"]);
    }
}
