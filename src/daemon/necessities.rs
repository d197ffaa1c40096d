//! Checks what the daemon needs and others keep: the binary that the hooks of containers run, manifests, and room for
//! claims. A fault stands in the status and keeps the daemon from being ready.

mod folders;

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hostler_api::{Chain, listed};
use nix::unistd::geteuid;
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        watch,
    },
    time::{MissedTickBehavior, interval},
};
use tracing::{info, warn};

use self::folders::ClaimFolders;
use crate::{claims::ClaimFailure, config::DaemonConfig, standalone::ManifestFolder, tasks::Tasks};

/// Time between two checks: a probe asks about as often.
const PERIOD: Duration = Duration::from_secs(10);

/// The places that are checked.
#[derive(Clone, Debug)]
pub(super) struct Necessities {
    hook: PathBuf,
    manifests: Option<ManifestFolder>,
    folders: ClaimFolders,
}

impl Necessities {
    /// Collects the binary that hooks run, manifests where they are the claims, and the folders of claims.
    pub(super) fn of(config: &DaemonConfig, hook: PathBuf, manifests: Option<ManifestFolder>) -> Self {
        Self { hook, manifests, folders: ClaimFolders::of(config) }
    }

    /// Checks all places once before it returns, and periodically until the daemon stops. A failure of a claim
    /// that names a fault of a folder counts at once.
    pub(super) async fn watch(
        self,
        failures_rx: broadcast::Receiver<ClaimFailure>,
        tasks: &Tasks,
    ) -> watch::Receiver<Vec<String>> {
        let (faults_tx, faults_rx) = watch::channel(Vec::new());
        let (unwritable, others) = Default::default();
        let mut watch = NecessityWatch { necessities: self, faults_tx, tasks: tasks.clone(), unwritable, others };
        watch.look(true).await;
        let stop = tasks.stop_token();
        tasks.job(async move {
            tokio::select! {
                // A check that is dropped has written nothing that stays.
                () = watch.run(failures_rx) => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => {}
            }
        });
        faults_rx
    }
}

struct NecessityWatch {
    necessities: Necessities,
    faults_tx: watch::Sender<Vec<String>>,
    tasks: Tasks,
    /// Faults of the folders of claims. They are written to until that succeeds, and then no more: a disk at rest is
    /// left at rest.
    unwritable: Vec<String>,
    /// Faults of everything else.
    others: Vec<String>,
}

impl NecessityWatch {
    async fn run(mut self, mut failures_rx: broadcast::Receiver<ClaimFailure>) {
        let mut timer = interval(PERIOD);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once.
        timer.tick().await;
        loop {
            // Both arms are cancel safe: a tick that was not taken is still due, and a failure is still to be heard.
            tokio::select! {
                _ = timer.tick() => self.look(!self.unwritable.is_empty()).await,
                Some(fault) = next_fault(&mut failures_rx) => self.not_written(fault),
            }
        }
    }

    /// Checks all places; folders by writing to them.
    async fn look(&mut self, probes: bool) {
        let necessities = self.necessities.clone();
        let look = move || {
            let unwritable = if probes { necessities.folders.faults() } else { Vec::new() };
            (unwritable, faults(&necessities.hook, necessities.manifests.as_ref()))
        };
        // A check that the daemon's stop has cut short reports nothing.
        if let Ok((unwritable, others)) = self.tasks.looking(look).await {
            (self.unwritable, self.others) = (unwritable, others);
            self.tell();
        }
    }

    /// Notes that a prepare could not write. The next check tells if one can again.
    fn not_written(&mut self, fault: String) {
        if self.unwritable.is_empty() {
            self.unwritable.push(fault);
            self.tell();
        }
    }

    /// Logs and publishes changes, once.
    fn tell(&self) {
        let faults: Vec<String> = self.unwritable.iter().chain(&self.others).cloned().collect();
        self.faults_tx.send_if_modified(|known| {
            for fault in faults.iter().filter(|fault| !known.contains(fault)) {
                warn!(fault, "something that the daemon needs is not in order");
            }
            if faults.is_empty() && !known.is_empty() {
                info!("what the daemon needs is in order again");
            }
            let is_new = *known != faults;
            *known = faults;
            is_new
        });
    }
}

/// Waits for the next failure that is a fault of folders; `None` when claims have ended, and nothing comes any more.
async fn next_fault(failures_rx: &mut broadcast::Receiver<ClaimFailure>) -> Option<String> {
    loop {
        match failures_rx.recv().await {
            Ok(failure) => match folders::fault_of(&failure.error) {
                None => {}
                fault => return fault,
            },
            // Failures that come so often come again.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

fn faults(hook: &Path, manifests: Option<&ManifestFolder>) -> Vec<String> {
    let hook = hook_fault(hook).map(|fault| {
        format!("containers with a claim cannot start safely: the binary of their hooks, {}, {fault}", hook.display())
    });
    hook.into_iter().chain(manifests.and_then(manifest_faults)).collect()
}

/// Fault of a binary that container runtimes run as root.
fn hook_fault(path: &Path) -> Option<String> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Some("is not there; install it again".to_owned());
        }
        Err(error) => return Some(format!("cannot be looked at: {error}")),
    };
    let us = geteuid();
    // An ordinary user's own group often has no other members.
    let others = if us.is_root() { 0o022 } else { 0o002 };
    if !found.is_file() {
        Some("is not a file; install it again".to_owned())
    } else if found.mode() & 0o111 == 0 {
        Some("cannot be executed; chmod 755 it".to_owned())
    } else if found.uid() != 0 && found.uid() != us.as_raw() {
        Some(format!("belongs to user {}; give it to root", found.uid()))
    } else if found.mode() & others != 0 {
        Some(format!("can be changed by others (mode {:o}); chmod 755 it", found.mode() & 0o7777))
    } else {
        None
    }
}

fn manifest_faults(manifests: &ManifestFolder) -> Option<String> {
    /// A folder of other files, by mistake, must not fill the status.
    const MOST: usize = 3;
    let mistakes = match manifests.mistakes() {
        Ok(mistakes) => mistakes,
        Err(error) => return Some(Chain(&error).to_string()),
    };
    let told = mistakes.iter().map(|mistake| Chain(mistake).to_string());
    (!mistakes.is_empty()).then(|| listed(MOST, "; ", told))
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_hook_has_to_be_there_to_be_run_and_to_be_nobody_elses() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("hostler");
        assert_eq!(hook_fault(&path).unwrap(), "is not there; install it again");
        fs::write(&path, "").unwrap();
        for (mode, fault) in [
            (0o755, None),
            (0o700, None),
            (0o644, Some("cannot be executed; chmod 755 it")),
            (0o757, Some("can be changed by others (mode 757); chmod 755 it")),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(hook_fault(&path).as_deref(), fault, "{mode:o}");
        }
        assert_eq!(hook_fault(temp.path()).unwrap(), "is not a file; install it again");
        if geteuid().is_root() {
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert_eq!(hook_fault(&path).unwrap(), "belongs to user 12345; give it to root");
        }
    }
}
