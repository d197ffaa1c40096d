//! Claims that a driver's controller allocated before an upgrade to Kubernetes 1.32 or later, where the scheduler
//! allocates and kube-controller-manager releases claims with [`DELETE_PROTECTION`]. No I/O.
//!
//! ```text
//!   not allocated, or deleted and unused ──► without our finalizer
//!   allocated                            ──► with Kubernetes' own finalizer instead of ours
//!   deleted, and pods still use it       ──► as it is, until they have gone: no finalizer can be added any more
//! ```
//!
//! A grant in NodeHardware goes once its claim has no finalizer of ours: the scheduler reads the claim itself.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::ObjectKey;
use hostler_api::classic::{ClassicMeta, NodeHardwareJournal};
use serde::{Deserialize, de::IgnoredAny};

use crate::claim_write::{ClaimVersion, ClaimWrite, DELETE_PROTECTION};

/// The kind of object that an event of the server is about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum MigratedKind {
    /// ResourceClaims.
    Claim,
    /// NodeHardware.
    Source,
}

/// A write that is needed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MigrationWrite {
    /// A claim has other finalizers.
    Claim(ClaimWrite),
    /// A NodeHardware loses its grants to these claims (by UID), with the version that was read as precondition.
    Grants { source: String, version: String, claims: BTreeSet<String> },
}

/// A claim of any version, with the fields that migration needs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MigratedClaim {
    metadata: ClassicMeta,
    #[serde(default)]
    status: MigratedClaimStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MigratedClaimStatus {
    allocation: Option<IgnoredAny>,
    reserved_for: Vec<IgnoredAny>,
}

/// A NodeHardware with grants.
#[derive(Clone, Debug)]
struct GrantingSource {
    version: String,
    claims: BTreeSet<String>,
}

/// Objects that are left from the time before the upgrade.
#[derive(Debug)]
pub(crate) struct Migration {
    finalizer: String,
    /// Claims with our finalizer.
    claims: BTreeMap<ObjectKey, MigratedClaim>,
    sources: BTreeMap<String, GrantingSource>,
    listed: BTreeSet<MigratedKind>,
}

impl Migration {
    /// Begins with no objects. `finalizer` is that of the driver's controller.
    pub(crate) fn new(finalizer: String) -> Self {
        Self { finalizer, claims: BTreeMap::new(), sources: BTreeMap::new(), listed: BTreeSet::new() }
    }

    /// Begins a list of the kind: objects that it does not name are gone.
    pub(crate) fn list_started(&mut self, kind: MigratedKind) {
        self.listed.remove(&kind);
        match kind {
            MigratedKind::Claim => self.claims.clear(),
            MigratedKind::Source => self.sources.clear(),
        }
    }

    /// Ends a list: all objects of the kind are known.
    pub(crate) fn list_ended(&mut self, kind: MigratedKind) {
        self.listed.insert(kind);
    }

    /// Stores a claim.
    pub(crate) fn claim_seen(&mut self, claim: MigratedClaim) {
        let key = ObjectKey::new(&claim.metadata.namespace, &claim.metadata.name);
        if claim.metadata.finalizers.contains(&self.finalizer) {
            self.claims.insert(key, claim);
        } else {
            self.claims.remove(&key);
        }
    }

    /// Removes a claim.
    pub(crate) fn claim_gone(&mut self, key: &ObjectKey) {
        self.claims.remove(key);
    }

    /// Stores a NodeHardware.
    pub(crate) fn source_seen(&mut self, source: NodeHardwareJournal) {
        let NodeHardwareJournal { metadata, spec, .. } = source;
        if spec.claims.is_empty() {
            self.sources.remove(&metadata.name);
            return;
        }
        let claims = spec.claims.into_keys().collect();
        self.sources.insert(metadata.name, GrantingSource { version: metadata.resource_version, claims });
    }

    /// Removes a NodeHardware.
    pub(crate) fn source_gone(&mut self, name: &str) {
        self.sources.remove(name);
    }

    /// Returns the number of claims that still have the finalizer, and of NodeHardware with grants; `None` before both
    /// kinds are known.
    pub(crate) fn left(&self) -> Option<(usize, usize)> {
        self.is_listed().then_some((self.claims.len(), self.sources.len()))
    }

    /// Returns a write that is needed now, after as many others as `skipped`: a write that fails delays no other. The
    /// result of a write arrives before the next call.
    pub(crate) fn next(&self, skipped: usize) -> Option<MigrationWrite> {
        let of_claims = self.claims.iter().filter_map(|(key, claim)| self.of_claim(key, claim));
        let of_sources = self.sources.iter().filter_map(|(name, source)| self.of_source(name, source));
        of_claims.chain(of_sources).nth(skipped).filter(|_| self.is_listed())
    }

    fn is_listed(&self) -> bool {
        self.listed.len() == [MigratedKind::Claim, MigratedKind::Source].len()
    }

    fn of_claim(&self, key: &ObjectKey, claim: &MigratedClaim) -> Option<MigrationWrite> {
        let MigratedClaim { metadata, status } = claim;
        let is_protected = metadata.finalizers.iter().any(|it| it == DELETE_PROTECTION);
        let is_deleting = metadata.deletion_timestamp.is_some();
        if is_deleting && !status.reserved_for.is_empty() && !is_protected {
            return None;
        }
        let others = metadata.finalizers.iter().filter(|finalizer| **finalizer != self.finalizer).cloned();
        let is_to_protect = status.allocation.is_some() && !is_deleting && !is_protected;
        let finalizers = others.chain(is_to_protect.then(|| DELETE_PROTECTION.to_owned())).collect();
        let (uid, version) = (metadata.uid.clone(), metadata.resource_version.clone());
        let claim = ClaimVersion { key: key.clone(), uid, version };
        Some(MigrationWrite::Claim(ClaimWrite::Finalizers(claim, finalizers)))
    }

    fn of_source(&self, name: &str, source: &GrantingSource) -> Option<MigrationWrite> {
        let is_kept = |uid: &&String| self.claims.values().any(|claim| claim.metadata.uid == **uid);
        let claims: BTreeSet<String> = source.claims.iter().filter(|uid| !is_kept(uid)).cloned().collect();
        let (source, version) = (name.to_owned(), source.version.clone());
        (!claims.is_empty()).then_some(MigrationWrite::Grants { source, version, claims })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OURS: &str = "hostler.dev/deletion-protection";

    /// A migration with these claims, and one NodeHardware that gave each of them something.
    fn migration(claims: &[Value]) -> Migration {
        let mut migration = Migration::new(OURS.to_owned());
        let read = |claim: &Value| serde_json::from_value(claim.clone()).unwrap();
        claims.iter().for_each(|claim| migration.claim_seen(read(claim)));
        let grants: BTreeMap<&str, Value> =
            claims.iter().map(|claim| (claim["metadata"]["uid"].as_str().unwrap(), json!({}))).collect();
        let source = json!({"metadata": {"name": "n", "resourceVersion": "9"}, "spec": {"claims": grants}});
        migration.source_seen(serde_json::from_value(source).unwrap());
        migration.list_ended(MigratedKind::Source);
        assert_eq!((migration.next(0), migration.left()), (None, None), "before all claims are known");
        migration.list_ended(MigratedKind::Claim);
        migration
    }

    fn claim(status: &Value, more: &Value) -> Value {
        let mut claim = json!({"spec": {}, "status": status,
            "metadata": {"name": "c", "namespace": "d", "uid": "u", "resourceVersion": "7", "finalizers": ["a/b", OURS]}});
        claim["metadata"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claim
    }

    fn finalizers(claim: Value) -> Option<Vec<String>> {
        match migration(&[claim]).next(0)? {
            MigrationWrite::Claim(ClaimWrite::Finalizers(_, finalizers)) => Some(finalizers),
            _ => None,
        }
    }

    #[test]
    fn a_claim_of_before_the_upgrade_goes_to_kubernetes_and_never_stays_terminating() {
        let allocated = || json!({"allocation": {"devices": {}}});
        let used =
            || json!({"allocation": {"devices": {}}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}]});
        let going = || json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let both = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [OURS, DELETE_PROTECTION]});
        assert_eq!(finalizers(claim(&json!({}), &json!({}))).unwrap(), ["a/b"]);
        assert_eq!(finalizers(claim(&used(), &json!({}))).unwrap(), ["a/b", DELETE_PROTECTION]);
        assert_eq!(finalizers(claim(&allocated(), &json!({}))).unwrap(), ["a/b", DELETE_PROTECTION]);
        assert_eq!(finalizers(claim(&allocated(), &going())).unwrap(), ["a/b"]);
        assert_eq!(finalizers(claim(&used(), &both)).unwrap(), [DELETE_PROTECTION]);
        assert_eq!(finalizers(claim(&used(), &going())), None, "a finalizer can only be taken off");
        assert_eq!(finalizers(claim(&used(), &json!({"finalizers": ["a/b"]}))), None, "it is not ours");
    }

    #[test]
    fn a_claim_that_cannot_be_written_holds_no_other_up() {
        let other = json!({"name": "d", "uid": "v"});
        let mut migration = migration(&[claim(&json!({}), &json!({})), claim(&json!({}), &other)]);
        migration.source_seen(
            serde_json::from_value(json!({"metadata": {"name": "m"}, "spec": {"claims": {"gone": {}}}})).unwrap(),
        );
        let names: Vec<String> = (0..4)
            .map_while(|skipped| match migration.next(skipped)? {
                MigrationWrite::Claim(write) => Some(write.key().to_string()),
                MigrationWrite::Grants { source, .. } => Some(source),
            })
            .collect();
        assert_eq!(names, ["d/c", "d/d", "m"]);
    }

    #[test]
    fn a_grant_of_before_the_upgrade_goes_when_its_claim_is_not_kept_any_more() {
        let used =
            json!({"allocation": {"devices": {}}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}]});
        let mut migration = migration(&[claim(&used, &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))]);
        assert_eq!((migration.next(0), migration.left()), (None, Some((1, 1))));
        migration.claim_gone(&ObjectKey::new("d", "c"));
        let grants = MigrationWrite::Grants {
            source: "n".to_owned(),
            version: "9".to_owned(),
            claims: BTreeSet::from(["u".to_owned()]),
        };
        assert_eq!(migration.next(0), Some(grants));
        let empty = json!({"metadata": {"name": "n", "resourceVersion": "10"}, "spec": {"nodeName": "n"}});
        migration.source_seen(serde_json::from_value(empty).unwrap());
        assert_eq!((migration.next(0), migration.left()), (None, Some((0, 0))));
    }
}
