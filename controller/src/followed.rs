//! Objects of one kind, for a user who watches them.

use std::collections::BTreeMap;

use hostler_cluster::{ApiClient, ApiFailure, Collection, FollowEvent, Follower};
use serde::de::DeserializeOwned;

/// Objects of one kind as the server has them.
pub(crate) struct FollowedObjects<T> {
    /// All objects of the kind.
    pub(crate) all: Collection,
    /// The objects that are known, by name.
    pub(crate) known: BTreeMap<String, T>,
    /// True if the list is complete.
    pub(crate) is_listed: bool,
    follower: Follower,
}

impl<T: DeserializeOwned> FollowedObjects<T> {
    /// Follows the objects of a kind.
    pub(crate) fn new(client: &ApiClient, all: Collection) -> Self {
        let follower = Follower::new(client.clone(), all.clone());
        Self { all, known: BTreeMap::new(), is_listed: false, follower }
    }

    /// Waits for the next change. Cancel safe.
    ///
    /// # Errors
    /// When the server cannot be asked; the next call asks it again.
    pub(crate) async fn changed(&mut self) -> Result<(), ApiFailure> {
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
            FollowEvent::ListEnded => self.is_listed = true,
            FollowEvent::UpToDate => {}
        }
        Ok(())
    }
}
