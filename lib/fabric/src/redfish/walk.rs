//! One reading of a service: links that lie, collections in pages, and limits over all documents together.

use std::{
    collections::BTreeSet,
    future::{Future, ready},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::time::sleep;

use super::{
    RedfishError, concurrent,
    document::{Document, links_of, path_of},
    service::RedfishService,
};
use crate::{InventoryProblem, ObjectPath};

/// A fabric of thousands of devices has fewer documents.
const MOST_DOCUMENTS: usize = 100_000;
/// Documents have a few kilobytes: 100,000 of them have less.
const MOST_BYTES: usize = 1 << 30;
/// Pages in a row without a new member: a service whose pages lead in a circle has no more.
const MOST_EMPTY_PAGES: usize = 10;
/// A collection that is being rewritten may be gone for a moment.
const SECOND_LOOK: Duration = Duration::from_millis(50);

/// A reading of a service.
#[derive(Debug)]
pub(super) struct ServiceWalk<'a> {
    pub(super) service: &'a RedfishService,
    parallel: usize,
    documents: AtomicUsize,
    bytes: AtomicUsize,
    problems: Mutex<Vec<InventoryProblem>>,
}

/// A collection as it was found.
#[derive(Clone, Debug)]
pub(super) struct FoundCollection {
    /// The path that answered.
    pub(super) path: ObjectPath,
    /// The members.
    pub(super) members: Vec<ObjectPath>,
}

impl<'a> ServiceWalk<'a> {
    pub(super) fn new(service: &'a RedfishService, parallel: usize) -> Self {
        Self {
            service,
            parallel,
            documents: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            problems: Mutex::default(),
        }
    }

    pub(super) fn into_problems(self) -> Vec<InventoryProblem> {
        self.problems.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self, problem: InventoryProblem) {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
    }

    /// Reads a document. `None`: there is none.
    pub(super) async fn read(&self, path: &ObjectPath) -> Result<Option<Document>, RedfishError> {
        if self.documents.fetch_add(1, Ordering::Relaxed) >= MOST_DOCUMENTS {
            return Err(self.too_many(MOST_DOCUMENTS, "documents"));
        }
        let Some(read) = self.service.read(path).await? else { return Ok(None) };
        if self.bytes.fetch_add(read.bytes, Ordering::Relaxed) >= MOST_BYTES {
            return Err(self.too_many(MOST_BYTES, "bytes of documents"));
        }
        Ok(Some(read.document))
    }

    /// Reads documents at once, and makes of each what is kept of it as it arrives: all documents together would be many
    /// times the inventory. What does not exist is `None`.
    pub(super) async fn read_all<T, F>(
        &self,
        paths: &[ObjectPath],
        keep: impl Fn(Document) -> F,
    ) -> Result<Vec<Option<T>>, RedfishError>
    where
        F: Future<Output = Result<T, RedfishError>>,
    {
        let keep = &keep;
        let read = |path: ObjectPath| async move {
            match self.read(&path).await? {
                Some(document) => keep(document).await.map(Some),
                None => Ok(None),
            }
        };
        concurrent::all(paths.iter().cloned().map(read), self.parallel).await
    }

    /// The members of a collection that a document links to, each as what is kept of it.
    pub(super) async fn members<T>(
        &self,
        owner: &Document,
        field: &str,
        keep: impl Fn(Document) -> T,
    ) -> Result<Vec<T>, RedfishError> {
        self.members_with(owner, field, |document| ready(Ok(keep(document)))).await
    }

    /// The same where more is to be read for each member.
    pub(super) async fn members_with<T, F>(
        &self,
        owner: &Document,
        field: &str,
        keep: impl Fn(Document) -> F,
    ) -> Result<Vec<T>, RedfishError>
    where
        F: Future<Output = Result<T, RedfishError>>,
    {
        match self.listed(owner, field).await? {
            Some(found) => self.members_of(&found, keep).await,
            None => Ok(Vec::new()),
        }
    }

    /// The collection that a document links to. A link that leads nowhere is a problem.
    pub(super) async fn listed(&self, owner: &Document, field: &str) -> Result<Option<FoundCollection>, RedfishError> {
        if owner.at(&[field]).is_none() {
            return Ok(None);
        }
        let found = self.collection(owner, field).await?;
        if found.is_none() {
            let reason = "links to a collection that does not exist, and there is none below the object; mend the link";
            self.report(InventoryProblem::new(&owner.path, field, reason));
        }
        Ok(found)
    }

    /// Reads the members of a collection, each as what is kept of it. One that is listed and does not exist is a problem.
    pub(super) async fn members_of<T, F>(
        &self,
        found: &FoundCollection,
        keep: impl Fn(Document) -> F,
    ) -> Result<Vec<T>, RedfishError>
    where
        F: Future<Output = Result<T, RedfishError>>,
    {
        let members = self.read_all(&found.members, keep).await?;
        for (path, _) in found.members.iter().zip(&members).filter(|(_, member)| member.is_none()) {
            let reason = format!("lists {path}, which does not exist; remove it from the list");
            self.report(InventoryProblem::new(&found.path, "Members", reason));
        }
        Ok(members.into_iter().flatten().collect())
    }

    /// Finds the collection that a document links to. Links of aggregated documents may lie: then it lies below the
    /// document, under the name of the field. `None`: the service says of both that they do not exist.
    pub(super) async fn collection(
        &self,
        owner: &Document,
        field: &str,
    ) -> Result<Option<FoundCollection>, RedfishError> {
        let below = owner.path.below(field);
        if let Some(value @ Value::Array(_)) = owner.at(&[field]) {
            return Ok(Some(FoundCollection { path: below, members: links_of(value) }));
        }
        if let Some(inline) = owner.at(&[field, "Members"]) {
            return Ok(Some(FoundCollection { path: below, members: links_of(inline) }));
        }
        let linked = owner.links(&[field]).into_iter().next();
        let paths: Vec<ObjectPath> =
            linked.into_iter().filter(|linked| *linked != below).chain([below.clone()]).collect();
        if let Some(document) = self.first_of(&paths).await? {
            return self.pages(document).await.map(Some);
        }
        if owner.at(&[field]).is_none() {
            return Ok(None);
        }
        // The document says that there is one: an answer of one moment is not believed.
        sleep(SECOND_LOOK).await;
        match self.first_of(&paths).await? {
            Some(document) => self.pages(document).await.map(Some),
            None => Ok(None),
        }
    }

    async fn first_of(&self, paths: &[ObjectPath]) -> Result<Option<Document>, RedfishError> {
        for path in paths {
            if let Some(document) = self.read(path).await? {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    /// The members on all pages of a collection. A page that is missing is an error: its members may hold devices.
    async fn pages(&self, first: Document) -> Result<FoundCollection, RedfishError> {
        let path = first.path.clone();
        let mut members: BTreeSet<ObjectPath> = first.links(&["Members"]).into_iter().collect();
        let mut next = next_page(&first);
        let mut empty = 0;
        while let Some(link) = next {
            let Some(page) = self.read(&link).await? else {
                return Err(self
                    .service
                    .missing(&link, "the list of members is cut off; report it to the maker of the service"));
            };
            let before = members.len();
            members.extend(page.links(&["Members"]));
            empty = if members.len() == before { empty + 1 } else { 0 };
            if empty > MOST_EMPTY_PAGES {
                return Err(self.too_many(MOST_EMPTY_PAGES, "pages without a member in one collection"));
            }
            next = next_page(&page);
        }
        if members.len() > MOST_DOCUMENTS {
            return Err(self.too_many(MOST_DOCUMENTS, "members of one collection"));
        }
        Ok(FoundCollection { path, members: members.into_iter().collect() })
    }

    fn too_many(&self, most: usize, what: &'static str) -> RedfishError {
        RedfishError::TooMany { service: self.service.name().to_owned(), most, what }
    }
}

fn next_page(document: &Document) -> Option<ObjectPath> {
    document.text("Members@odata.nextLink").and_then(path_of)
}
