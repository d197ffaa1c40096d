//! Objects of one kind, for a command that answers about them once or as long as its user watches.

use std::{collections::BTreeMap, time::Duration};

use hostler_cluster::{ApiClient, ApiFailure, Collection, FollowEvent, Follower};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::plan::{ClusterReadError, QuestionError};

/// The pause between two tries of a server that gives no pause.
const AGAIN: Duration = Duration::from_secs(1);
/// The time for which a server may say "not now" before its first list: a kind that was just installed takes seconds to be
/// served, and until then the server answers 429.
const FIRST_LIST: Duration = Duration::from_secs(30);

/// Objects of one kind as the server has them.
pub(crate) struct FollowedObjects<T> {
    /// All objects of the kind.
    pub(crate) all: Collection,
    /// The objects that are known, by name.
    pub(crate) known: BTreeMap<String, T>,
    /// True if the list is complete.
    pub(crate) is_listed: bool,
    follower: Follower,
    /// The step that brings the kind, where a cluster may be without it.
    install: Option<&'static str>,
    /// Time until which the first list may come.
    first_list_until: Instant,
    /// Time before which the server is not asked again.
    again_at: Option<Instant>,
    /// True once a list was complete.
    was_listed: bool,
}

impl<T: DeserializeOwned> FollowedObjects<T> {
    /// Follows the objects of a kind.
    pub(crate) fn new(client: &ApiClient, all: Collection) -> Self {
        let follower = Follower::new(client.clone(), all.clone());
        Self {
            all,
            known: BTreeMap::new(),
            is_listed: false,
            follower,
            install: None,
            first_list_until: Instant::now() + FIRST_LIST,
            again_at: None,
            was_listed: false,
        }
    }

    /// The same for a kind that a cluster may be without, with the step that brings it.
    pub(crate) fn installed_by(self, step: &'static str) -> Self {
        Self { install: Some(step), ..self }
    }

    /// Waits for the next change. A server that says "not now" is asked again, and so is one that is away after it has
    /// answered once: a user who watches has time. Cancel safe: the time of the next try is kept.
    ///
    /// # Errors
    /// When the server does not have the kind, refuses, or gives no first list in time.
    pub(crate) async fn next_change(&mut self) -> Result<(), QuestionError> {
        loop {
            if let Some(again_at) = self.again_at {
                // Cancel safe: the time stays.
                sleep_until(again_at).await;
                self.again_at = None;
            }
            match self.changed().await {
                Ok(()) => return Ok(()),
                Err(failure) if self.is_passing(&failure) => {
                    self.again_at = Some(Instant::now() + failure.retry_after().unwrap_or(AGAIN));
                }
                Err(failure) => return Err(self.ended_by(failure)),
            }
        }
    }

    /// True if the same question may be answered in a moment.
    fn is_passing(&self, failure: &ApiFailure) -> bool {
        match self.was_listed {
            true => failure.is_transient(),
            // A server that cannot be reached at all is told at once: mostly its address is wrong.
            false => failure.is_transient() && !failure.is_outage() && Instant::now() < self.first_list_until,
        }
    }

    fn ended_by(&self, failure: ApiFailure) -> QuestionError {
        match self.install {
            Some(fix) if failure.is_unknown_resource() => {
                let resource = self.all.definition();
                QuestionError::NotServed { resource, fix, source: failure.into() }
            }
            _ => ClusterReadError::of("list", &self.all, failure).into(),
        }
    }

    /// Takes the next change. Cancel safe.
    async fn changed(&mut self) -> Result<(), ApiFailure> {
        match self.follower.next().await? {
            FollowEvent::ListStarted => (self.is_listed, self.known) = (false, BTreeMap::new()),
            FollowEvent::Listed(object) | FollowEvent::Applied(object) => {
                // The controller's log names an object that cannot be understood.
                match object.read::<T>() {
                    Ok(read) => drop(self.known.insert(object.name().to_owned(), read)),
                    Err(_) => drop(self.known.remove(object.name())),
                }
            }
            FollowEvent::Deleted(object) => drop(self.known.remove(object.name())),
            FollowEvent::ListEnded => (self.is_listed, self.was_listed) = (true, true),
            FollowEvent::UpToDate => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hostler_api::{
        Chain,
        fabric::{FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS, FabricAttachment},
        hardware::{GROUP, VERSION},
    };
    use hostler_testing::apiserver::{ApiFault, ApiServer, ApiServerRelease, FaultEffect};
    use serde_json::json;

    use super::*;

    const KIND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds/fabric/fabricattachments.yaml");

    async fn server(has_kind: bool) -> ApiServer {
        let server = ApiServer::of(ApiServerRelease::V1_36).await;
        if has_kind {
            server.create_yaml(&fs::read_to_string(KIND).unwrap());
        }
        server
    }

    fn followed(server: &ApiServer) -> FollowedObjects<FabricAttachment> {
        let client = ApiClient::new(Some(&*server.kubeconfig("reader"))).unwrap();
        let all = Collection::custom(GROUP, VERSION, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS);
        FollowedObjects::new(&client, all).installed_by("apply deploy/crds/fabric")
    }

    /// What API servers answer in the seconds after a kind was installed: "storage is (re)initializing".
    fn not_yet(times: u32) -> ApiFault {
        ApiFault::new("*", FABRIC_ATTACHMENTS, times, FaultEffect::Status(429, Some(0)))
    }

    async fn until_listed(all: &mut FollowedObjects<FabricAttachment>) {
        while !all.is_listed {
            all.next_change().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_kind_that_is_being_installed_is_waited_for() {
        let server = server(true).await;
        server.fail(not_yet(3));
        let mut all = followed(&server);
        until_listed(&mut all).await;
        assert_eq!(server.faults_left(), 0);
    }

    #[tokio::test]
    async fn a_server_that_never_gives_a_first_list_is_told_in_its_own_words() {
        let server = server(true).await;
        server.fail(not_yet(100));
        let mut all = followed(&server);
        all.first_list_until = Instant::now();
        let told = Chain(&all.next_change().await.unwrap_err()).to_string();
        assert!(told.contains("Too many requests"), "{told}");
        server.stop_listening().await;
        let told = Chain(&followed(&server).next_change().await.unwrap_err()).to_string();
        assert!(
            told.starts_with("failed to read the cluster"),
            "an address that answers nothing is told at once: {told}"
        );
    }

    #[tokio::test]
    async fn a_kind_that_is_not_installed_is_named_with_the_step_that_brings_it() {
        let told = Chain(&followed(&server(false).await).next_change().await.unwrap_err()).to_string();
        let expected = "the API server has no fabricattachments.hostler.dev; apply deploy/crds/fabric";
        assert!(told.starts_with(expected), "{told}");
    }

    #[tokio::test]
    async fn a_server_that_was_there_is_waited_for() {
        let server = server(true).await;
        let mut all = followed(&server);
        until_listed(&mut all).await;
        server.close_watches();
        server.fail(ApiFault::new("*", FABRIC_ATTACHMENTS, 1, FaultEffect::Reset));
        server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": FABRIC_ATTACHMENT_KIND,
            "metadata": {"name": "0000000000001001-0001"},
            "spec": {"manager": "m", "domain": "d", "device": "00-00-00-00-00-00-10-01:0001", "nodeName": "n", "attempt": 0},
        }));
        while all.known.is_empty() {
            all.next_change().await.unwrap();
        }
        assert_eq!(server.faults_left(), 0);
    }
}
