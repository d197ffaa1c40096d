//! Lists, page by page.

use serde::Deserialize;

use super::{ApiClient, request};
use crate::{ApiFailure, CallError, Collection, collection::encoded};

/// Objects in a page of a list. The largest slices have 60 KB: 15 MB come well within the time of a call.
pub(crate) const LIST_PAGE: u32 = 250;

/// The objects of a list that are wanted.
#[derive(Clone, Copy, Debug)]
pub enum ListSelector<'a> {
    /// All objects.
    All,
    /// Objects with these fields: `spec.nodeName=`.
    Fields(&'a str),
    /// Objects with these labels: `app=web`.
    Labels(&'a str),
}

/// The end of a page of a list, which leads to the next page.
#[derive(Deserialize)]
struct ListEnd {
    #[serde(default)]
    metadata: ListEndMetadata,
}

#[derive(Default, Deserialize)]
struct ListEndMetadata {
    #[serde(default, rename = "continue")]
    token: String,
}

impl ApiClient {
    /// Every object of a kind, as pages of the server's own JSON, each given to `each` when it comes: beside what is
    /// made of them, one page is in memory at a time. The pages together show one moment.
    ///
    /// # Errors
    /// As [`get`](Self::get), and when the server no longer remembers that moment.
    pub async fn list<F: FnMut(Vec<u8>) + ?Sized>(&self, all: &Collection, each: &mut F) -> Result<(), ApiFailure> {
        self.list_selected(all, ListSelector::All, each).await
    }

    /// As [`list`](Self::list), of the objects that are selected.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn list_selected<F: FnMut(Vec<u8>) + ?Sized>(
        &self,
        all: &Collection,
        selector: ListSelector<'_>,
        each: &mut F,
    ) -> Result<(), ApiFailure> {
        let step = || format!("list {}", all.plural());
        let selected = match selector {
            ListSelector::All => format!("limit={LIST_PAGE}"),
            ListSelector::Fields(fields) => format!("limit={LIST_PAGE}&fieldSelector={}", encoded(fields)),
            ListSelector::Labels(labels) => format!("limit={LIST_PAGE}&labelSelector={}", encoded(labels)),
        };
        let mut query = selected.clone();
        loop {
            let page = self.list_page(step, all, &query).await?;
            let end: ListEnd = serde_json::from_slice(&page)
                .map_err(|error| ApiFailure::Call { step: step(), source: CallError::Answer(error) })?;
            each(page);
            if end.metadata.token.is_empty() {
                return Ok(());
            }
            query = format!("{selected}&continue={}", encoded(&end.metadata.token));
        }
    }

    /// The page of a list that a query asks for.
    pub(crate) async fn list_page(
        &self,
        step: impl Fn() -> String,
        all: &Collection,
        query: &str,
    ) -> Result<Vec<u8>, ApiFailure> {
        self.send(step, request::get(&format!("{}?{query}", all.url_path()))).await
    }
}
