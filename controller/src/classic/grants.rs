//! Grants of sources to claims, written or wanted: looked up by source and by claim.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::hardware::NodeGrant;

/// Grants by UID of the claim.
pub(super) type Grants = BTreeMap<String, NodeGrant>;

static NONE: Grants = Grants::new();

/// Grants of all sources.
#[derive(Debug, Default)]
pub(super) struct GrantTable {
    by_source: BTreeMap<String, Grants>,
    sources: BTreeMap<String, BTreeSet<String>>,
}

impl GrantTable {
    /// Returns the grants of a source.
    pub(super) fn of(&self, source: &str) -> &Grants {
        self.by_source.get(source).unwrap_or(&NONE)
    }

    /// Returns the grant of a source to a claim.
    pub(super) fn get(&self, source: &str, uid: &str) -> Option<&NodeGrant> {
        self.of(source).get(uid)
    }

    /// Returns the sources with a grant for a claim.
    pub(super) fn sources(&self, uid: &str) -> impl Iterator<Item = &String> {
        self.sources.get(uid).into_iter().flatten()
    }

    /// Returns the grants of all sources to a claim.
    pub(super) fn given(&self, uid: &str) -> impl Iterator<Item = (&String, &NodeGrant)> {
        self.sources(uid).filter_map(move |source| Some((source, self.get(source, uid)?)))
    }

    /// Replaces the grants of a source. Returns the UIDs of claims whose grants changed.
    pub(super) fn set_source(&mut self, source: &str, grants: Grants) -> BTreeSet<String> {
        let before = self.by_source.remove(source).unwrap_or_default();
        let differs = |uid: &&String| before.get(*uid) != grants.get(*uid);
        let news: BTreeSet<String> = before.keys().chain(grants.keys()).filter(differs).cloned().collect();
        before.keys().filter(|uid| !grants.contains_key(*uid)).for_each(|uid| self.forget(source, uid));
        for uid in grants.keys() {
            self.sources.entry(uid.clone()).or_default().insert(source.to_owned());
        }
        if !grants.is_empty() {
            self.by_source.insert(source.to_owned(), grants);
        }
        news
    }

    /// Replaces the grants of a claim, by source. Returns the sources whose grants changed.
    pub(super) fn set_claim(&mut self, uid: &str, grants: BTreeMap<String, NodeGrant>) -> BTreeSet<String> {
        let before: BTreeSet<String> = self.sources(uid).cloned().collect();
        let is_news = |source: &&String| self.get(source, uid) != grants.get(*source);
        let news: BTreeSet<String> = before.iter().chain(grants.keys()).filter(is_news).cloned().collect();
        for source in before.into_iter().filter(|source| !grants.contains_key(source)) {
            self.forget(&source, uid);
            self.take(&source, uid);
        }
        for (source, grant) in grants {
            self.sources.entry(uid.to_owned()).or_default().insert(source.clone());
            self.by_source.entry(source).or_default().insert(uid.to_owned(), grant);
        }
        news
    }

    fn take(&mut self, source: &str, uid: &str) {
        let Some(grants) = self.by_source.get_mut(source) else { return };
        grants.remove(uid);
        if grants.is_empty() {
            self.by_source.remove(source);
        }
    }

    fn forget(&mut self, source: &str, uid: &str) {
        let Some(sources) = self.sources.get_mut(uid) else { return };
        sources.remove(source);
        if sources.is_empty() {
            self.sources.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(version: &str) -> NodeGrant {
        NodeGrant { claim_version: version.to_owned(), ..NodeGrant::default() }
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn both_sides_say_the_same_whichever_was_written() {
        let mut table = GrantTable::default();
        let of_claim = |list: &[(&str, &str)]| list.iter().map(|(key, it)| ((*key).to_owned(), grant(it))).collect();
        assert_eq!(table.set_claim("1", of_claim(&[("a", "7"), ("b", "7")])), names(&["a", "b"]));
        assert_eq!(table.set_source("a", of_claim(&[("1", "7"), ("2", "8")])), names(&["2"]));
        assert_eq!(table.given("1").map(|(source, _)| source.clone()).collect::<BTreeSet<_>>(), names(&["a", "b"]));
        assert_eq!(table.set_claim("1", of_claim(&[("a", "9")])), names(&["a", "b"]));
        assert!(table.of("b").is_empty() && table.get("a", "1") == Some(&grant("9")));
        assert_eq!(table.set_source("a", Grants::new()), names(&["1", "2"]));
        assert!(table.sources("1").next().is_none() && table.by_source.is_empty() && table.sources.is_empty());
    }
}
