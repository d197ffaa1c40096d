//! The edge of the offer to the API server: the slices of each pool are reconciled when anything that decides them
//! changes. The slices on the server are watched, and nothing is written that is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{
    Chain,
    fabric::{ATTACH_FAILED_CONDITION, ATTACHED_CONDITION, of_fabric_pool},
    resource::{ApiVersion, SliceContent, SliceDevice},
};
use hostler_cluster::{FollowScope, ListFreshness};
use hostler_reconcile::{
    Controller, ControllerParts, Fingerprint, ObjectWatch, ReconcileMoment, Reconciler, Requeue, Troubles,
    slices::{DesiredPool, Dropped, KnownSlices, PublishedSlice, SliceChange, SlicePlan, plan},
};
use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    device::OfferState,
    domains::{ManagerScene, ShownTwice, outdated_pools},
    offer::{FabricOffer, OfferScene, offer},
    write::{SliceAnswers, SliceCalls, slices_of},
};
use crate::{
    config::{FabricConfig, FabricManagerConfig},
    fabric::{
        board::FabricReadings,
        nodes::{Hostnames, hostnames},
        status::{FabricPhase, FabricStatus},
    },
    observed::{FabricObjects, ObservedKind},
    view::ClusterView,
};

/// The longest time between two reconciliations of a pool: a device may be offered again by then.
const RECONCILE_AGAIN: Duration = Duration::from_secs(30);
/// Pause after a write that another one came before: the watch tells what is there.
const SOON: Duration = Duration::from_millis(200);

const TOO_OLD: &str = "devices are attached to the node that the scheduler chose from Kubernetes 1.34 on; upgrade the cluster, or \
                       leave fabric.managers out of the controller's configuration";

/// Inputs of publishing.
#[derive(Debug)]
pub(crate) struct PublishParts {
    pub(crate) config: Arc<FabricConfig>,
    /// Driver of the devices.
    pub(crate) driver: String,
    pub(crate) readings_rx: watch::Receiver<Arc<FabricReadings>>,
    pub(crate) status_tx: watch::Sender<FabricStatus>,
}

/// Publishes as long as this process leads.
pub(crate) fn publish(publishing: PublishParts, parts: ControllerParts<ClusterView>) {
    PublishController(publishing).start("fabric offer", parts);
}

struct PublishController(PublishParts);

struct PublishReconciler {
    config: Arc<FabricConfig>,
    calls: SliceCalls,
    readings_rx: watch::Receiver<Arc<FabricReadings>>,
    status_tx: watch::Sender<FabricStatus>,
    watch: ObjectWatch,
    known: KnownSlices,
    /// Needed features that the server does not have; `None`: that is not known yet.
    dropped: Option<Dropped>,
    troubles: Troubles<String>,
    /// The latest trouble of each pool.
    failing: BTreeMap<String, String>,
    /// The reason why slices cannot be watched now.
    unwatched: Option<String>,
    /// True if the server has FabricAttachments.
    is_served: bool,
    /// Devices that several pools show, by these readings.
    twice: (Arc<FabricReadings>, ShownTwice),
    /// The latest offer: most views differ in nothing that it is made of. `None`: it is made anew, and told.
    offered: Option<LatestOffer>,
}

/// An offer with its keys, and what it was made of.
struct LatestOffer {
    readings: Arc<FabricReadings>,
    objects: Arc<FabricObjects>,
    hosts: Vec<(String, Hostnames)>,
    slices: OfferedSlices,
    keys: BTreeMap<String, Fingerprint>,
    offer: FabricOffer,
}

/// The slices that an offer was made of, by pool. Each write changes one pool, and the offer of all devices takes a tenth
/// of a second.
#[derive(Default)]
struct OfferedSlices {
    versions: BTreeMap<String, Fingerprint>,
    /// Pools with answers to writes since. An answer may say more of the same version than the watch did.
    written: BTreeSet<String>,
}

impl OfferedSlices {
    /// The pools that are to be offered anew where the slices of each pool that has some have these versions now.
    fn outdated(&self, now: &BTreeMap<String, Fingerprint>) -> BTreeSet<String> {
        let pools = self.versions.keys().chain(now.keys());
        let others = pools.filter(|pool| self.versions.get(*pool) != now.get(*pool));
        others.chain(&self.written).cloned().collect()
    }
}

impl Controller for PublishController {
    type Reconciler = PublishReconciler;

    async fn begin(&self, parts: &ControllerParts<ClusterView>) -> Result<PublishReconciler, String> {
        let client = parts.client.clone();
        let version = match client.version().await {
            Ok(ApiVersion::V1Beta1) => Err(TOO_OLD.to_owned()),
            version => version.map_err(|failure| Chain(&failure).to_string()),
        };
        let version = version.inspect_err(|why| {
            self.0.status_tx.send_modify(|status| status.phase = FabricPhase::Failed(why.clone()));
        })?;
        let selector = format!("spec.driver={},spec.nodeName=", self.0.driver);
        let title = "the ResourceSlices of devices behind switches";
        let scope = FollowScope::selected(slices_of(version), &selector, ListFreshness::Newest, title);
        let mut known = KnownSlices::default();
        known.relist();
        Ok(PublishReconciler {
            config: self.0.config.clone(),
            watch: ObjectWatch::new(client.clone(), scope),
            calls: SliceCalls { client, driver: self.0.driver.as_str().into(), slices: Arc::new(slices_of(version)) },
            readings_rx: self.0.readings_rx.clone(),
            status_tx: self.0.status_tx.clone(),
            known,
            dropped: None,
            troubles: Troubles::default(),
            failing: BTreeMap::new(),
            unwatched: None,
            is_served: true,
            twice: Default::default(),
            offered: None,
        })
    }
}

impl Reconciler for PublishReconciler {
    type View = ClusterView;
    type Answer = SliceAnswers;

    /// Returns each pool that is to exist, or exists, with the writes that it takes.
    fn keys(&mut self, view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        self.is_served = is_served(view);
        let readings = self.readings_rx.borrow().clone();
        let hosts = self.hosts(view, &readings, None);
        let objects = &view.fabric;
        let is_same = |last: &LatestOffer| Arc::ptr_eq(&last.readings, &readings) && last.hosts == hosts;
        let versions = self.known.pool_versions();
        let last = self.offered.take().filter(|last| self.is_served && is_same(last));
        let is_whole = last.is_none();
        let mut latest = last.unwrap_or_else(|| LatestOffer {
            readings,
            objects: objects.clone(),
            hosts,
            slices: OfferedSlices::default(),
            keys: BTreeMap::new(),
            offer: FabricOffer::default(),
        });
        let is_told = if is_whole {
            self.make(view, &mut latest)
        } else {
            let mut outdated = latest.slices.outdated(&versions);
            let read = latest.readings.managers.iter();
            let read = read.filter_map(|(name, reading)| Some((&**name, reading.inventory.as_deref()?)));
            outdated.extend(outdated_pools(latest.objects.offered_otherwise(objects), read));
            latest.objects = objects.clone();
            if outdated.is_empty() {
                return self.offered.insert(latest).keys.clone();
            }
            outdated.iter().all(|pool| self.make_anew(pool, view, &mut latest))
        };
        self.tell(is_told.then_some(&latest.offer));
        if !is_told {
            return BTreeMap::new();
        }
        latest.slices = OfferedSlices { versions, written: BTreeSet::new() };
        self.offered.insert(latest).keys.clone()
    }

    fn reconcile(
        &mut self,
        pool: &str,
        now: ReconcileMoment<ClusterView>,
    ) -> impl Future<Output = SliceAnswers> + Send + 'static {
        let mut plan = SlicePlan::default();
        self.planned(&now.view, Some(pool), |_, of_pool| plan = of_pool);
        // As long as a feature is missing, the server is asked again: a gate may be switched on.
        let is_asked = self.dropped.as_ref().is_none_or(|dropped| !dropped.is_empty());
        let example = (is_asked && (!plan.writes.is_empty() || self.dropped.is_some())).then(example);
        plan.deletes.iter().for_each(|delete| self.known.deleting(&delete.version));
        self.calls.clone().carry_out(plan, example, now)
    }

    fn reconciled(&mut self, pool: &str, answer: SliceAnswers) -> Requeue {
        let requeue = self.take(pool, answer);
        let phase = self.phase();
        self.status_tx.send_if_modified(|status| {
            let is_other = status.phase != phase;
            status.phase = phase;
            is_other
        });
        requeue
    }

    fn forget(&mut self, pool: &str) {
        self.mended(pool);
    }

    async fn changed(&mut self) {
        loop {
            tokio::select! {
                // Cancel safe: a change is seen as long as it was not looked at.
                Ok(()) = self.readings_rx.changed() => return,
                // Cancel safe: see there.
                event = self.watch.next() => match event {
                    Ok(event) => {
                        let was_unwatched = self.unwatched.take().is_some();
                        if was_unwatched {
                            self.offered = None;
                        }
                        if self.known.observe(&event) != SliceChange::None || was_unwatched {
                            return;
                        }
                    }
                    Err(failure) => {
                        self.unwatched = Some(Chain(&failure).to_string());
                        self.offered = None;
                        return;
                    }
                },
            }
        }
    }
}

impl Drop for PublishReconciler {
    /// The next leader says how things are.
    fn drop(&mut self) {
        self.status_tx.send_replace(FabricStatus::default());
    }
}

impl PublishReconciler {
    /// Takes the answers of the server for a pool.
    fn take(&mut self, pool: &str, answer: SliceAnswers) -> Requeue {
        let has_written = !answer.written.is_empty() || !answer.deleted.is_empty();
        if has_written && let Some(latest) = &mut self.offered {
            latest.slices.written.insert(pool.to_owned());
        }
        for (name, slice) in answer.written {
            self.known.put(&name, &slice);
        }
        for gone in answer.deleted {
            self.known.remove(&gone.name, &gone.version);
        }
        let has_learned = answer.dropped.is_some_and(|dropped| self.learn(dropped));
        if let Some(failure) = answer.failure {
            let is_late = failure.code() == Some(409);
            let error = Chain(&failure).to_string();
            if !is_late && self.troubles.is_news(pool.to_owned(), &error) {
                warn!(pool, error, "the slices of a switch domain cannot be written");
            }
            if is_late {
                return Requeue::After(SOON);
            }
            self.failing.insert(pool.to_owned(), error);
            return Requeue::Failed;
        }
        self.mended(pool);
        match has_written || has_learned || answer.is_interrupted {
            true => Requeue::Now,
            false => Requeue::After(RECONCILE_AGAIN),
        }
    }

    /// Makes the whole offer, and the key of each pool. False as long as something that decides it is not known.
    fn make(&mut self, view: &ClusterView, latest: &mut LatestOffer) -> bool {
        let keys = &mut latest.keys;
        let offer = self.planned(view, None, |pool, plan| _ = keys.insert(pool, fingerprint(&plan)));
        offer.map(|offer| latest.offer = offer).is_some()
    }

    /// Makes the offer of one pool, and its key. False as long as something that decides it is not known.
    fn make_anew(&mut self, pool: &str, view: &ClusterView, latest: &mut LatestOffer) -> bool {
        let keys = &mut latest.keys;
        keys.remove(pool);
        let offer = self.planned(view, Some(pool), |pool, plan| _ = keys.insert(pool, fingerprint(&plan)));
        offer.map(|offer| latest.offer.renew(pool, offer)).is_some()
    }

    /// Decides what is to be written in one pool, or in all, pool by pool; nothing as long as something that decides it is
    /// not known.
    fn planned(
        &mut self,
        view: &ClusterView,
        only: Option<&str>,
        mut take: impl FnMut(String, SlicePlan),
    ) -> Option<FabricOffer> {
        if !self.known.is_listed() || !is_served(view) {
            return None;
        }
        let readings = self.readings_rx.borrow_and_update().clone();
        if !Arc::ptr_eq(&self.twice.0, &readings) {
            self.twice = (readings.clone(), shown_twice(&readings));
        }
        let hosts = self.hosts(view, &readings, only);
        let mut managers: Vec<ManagerScene<'_>> = Vec::new();
        for (name, hostnames) in &hosts {
            let scene = readings.inventory(name).map(|inventory| ManagerScene { name, inventory, hostnames });
            managers.extend(scene);
        }
        let names = self.config.managers.iter().map(|manager| &*manager.name);
        let unread = names.filter(|name| readings.inventory(name).is_none()).collect();
        let scene = OfferScene {
            driver: &self.calls.driver,
            managers,
            twice: &self.twice.1,
            unread,
            objects: &view.fabric,
            published: self.known.pools().into_iter().filter(|pool| of_fabric_pool(pool).is_some()).collect(),
            now: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        let is_lacking = self.dropped.as_ref().is_some_and(|dropped| !dropped.is_empty());
        let plan_pool = |pool: DesiredPool, slices: &BTreeMap<&str, PublishedSlice>| {
            let pool = if is_lacking { withdrawn(pool) } else { pool };
            let existing = slices.iter().map(|(name, slice)| (*name, slice));
            take(pool.name.clone(), plan(existing, std::slice::from_ref(&pool), None));
        };
        Some(offer(&scene, only, |pool| self.known.of_pool(pool), plan_pool))
    }

    /// The hostnames of the hosts of each manager that was read, or of the pool's.
    fn hosts(&self, view: &ClusterView, readings: &FabricReadings, only: Option<&str>) -> Vec<(String, Hostnames)> {
        let is_meant = |manager: &&FabricManagerConfig| {
            only.is_none_or(|pool| of_fabric_pool(pool).is_some_and(|(of, _)| of == manager.name))
        };
        let named = |manager: &FabricManagerConfig| {
            let inventory = readings.inventory(&manager.name)?;
            Some((manager.name.clone(), hostnames(view, manager, inventory)))
        };
        self.config.managers.iter().filter(is_meant).filter_map(named).collect()
    }

    /// Remembers whether the server has the needed features; returns true if that is news.
    fn learn(&mut self, dropped: Dropped) -> bool {
        let is_news = self.dropped.as_ref() != Some(&dropped);
        if is_news && !dropped.is_empty() {
            let fields = fields(&dropped);
            warn!(fields, "devices behind switches are not offered: the API server drops fields");
        } else if is_news && self.dropped.is_some() {
            info!("the API server keeps the fields of devices behind switches");
        }
        self.dropped = Some(dropped);
        if is_news {
            self.offered = None;
        }
        is_news
    }

    fn mended(&mut self, pool: &str) {
        self.failing.remove(pool);
        self.troubles.mended(&pool.to_owned());
    }

    fn tell(&self, offer: Option<&FabricOffer>) {
        let readings = self.readings_rx.borrow();
        let error = |name: &str| match readings.inventory(name) {
            None => Some(readings.error(name).unwrap_or("not read yet").to_owned()),
            Some(_) => readings.error(name).map(str::to_owned),
        };
        let managers = self.config.managers.iter().map(|manager| (manager.name.clone(), error(&manager.name)));
        let status = FabricStatus {
            phase: self.phase(),
            managers: managers.collect(),
            contradictions: offer.map(|offer| offer.contradictions.clone()).unwrap_or_default(),
            left_out: offer.map(FabricOffer::left_out).unwrap_or_default(),
            devices: offer.map(|offer| offer.devices.clone()).unwrap_or_default(),
        };
        self.status_tx.send_if_modified(|last| {
            let is_other = *last != status;
            *last = status;
            is_other
        });
    }

    fn phase(&self) -> FabricPhase {
        if !self.is_served {
            FabricPhase::NotServed
        } else if !self.known.is_listed() {
            FabricPhase::Listing(self.unwatched.clone())
        } else if let Some(dropped) = self.dropped.as_ref().filter(|dropped| !dropped.is_empty()) {
            FabricPhase::FieldsDropped(fields(dropped))
        } else if let Some(why) = self.failing.values().next().or(self.unwatched.as_ref()) {
            FabricPhase::Failed(why.clone())
        } else {
            FabricPhase::Offering
        }
    }
}

fn fingerprint(plan: &SlicePlan) -> Fingerprint {
    let mut key = Fingerprint::default();
    key.add(format!("{plan:?}"));
    key
}

/// Devices that several pools show, whichever nodes they reach.
fn shown_twice(readings: &FabricReadings) -> ShownTwice {
    let hostnames = Hostnames::new();
    let managers = readings.managers.iter().filter_map(|(name, reading)| {
        Some(ManagerScene { name, inventory: reading.inventory.as_deref()?, hostnames: &hostnames })
    });
    ShownTwice::of(managers)
}

/// True if the server has FabricAttachments, and shows them: nothing could be attached without.
fn is_served(view: &ClusterView) -> bool {
    view.kinds.get(&ObservedKind::FabricAttachment).is_some_and(|status| !status.is_absent)
}

/// The pool without its slices: pods would be given devices that are never attached.
fn withdrawn(pool: DesiredPool) -> DesiredPool {
    DesiredPool { slices: Vec::new(), ..pool }
}

/// A device with all features without which nothing is offered.
fn example() -> SliceContent {
    let device = SliceDevice {
        name: "probe".into(),
        taints: OfferState::Attached.taints(None),
        binds_to_node: true,
        binding_conditions: vec![ATTACHED_CONDITION.to_owned()],
        binding_failure_conditions: vec![ATTACH_FAILED_CONDITION.to_owned()],
        ..SliceDevice::default()
    };
    let node_selector = Some(Box::new(hostler_api::core::NodeSelector::of_node("probe")));
    SliceContent { node_selector, devices: vec![device], ..SliceContent::default() }
}

fn fields(dropped: &Dropped) -> String {
    let fields = dropped.iter().map(|feature| format!("{} (feature gate {})", feature.fields(), feature.gate()));
    fields.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(pools: &[(&str, u32)]) -> BTreeMap<String, Fingerprint> {
        let version = |number: u32| {
            let mut version = Fingerprint::default();
            version.add(number);
            version
        };
        pools.iter().map(|(pool, number)| ((*pool).to_owned(), version(*number))).collect()
    }

    #[test]
    fn pools_whose_slices_changed_came_went_or_were_written_are_offered_anew_and_no_others() {
        let mut offered = OfferedSlices { versions: versions(&[("a", 1), ("b", 1), ("c", 1)]), ..Default::default() };
        assert!(offered.outdated(&versions(&[("a", 1), ("b", 1), ("c", 1)])).is_empty());
        let outdated = |offered: &OfferedSlices, now: &[(&str, u32)]| Vec::from_iter(offered.outdated(&versions(now)));
        assert_eq!(outdated(&offered, &[("a", 1), ("b", 2), ("new", 1)]), ["b", "c", "new"]);
        // The first slice of one pool, and the last slice of another one that was never seen.
        offered.written.extend(["a".to_owned(), "d".to_owned()]);
        assert_eq!(outdated(&offered, &[("a", 1), ("b", 1), ("c", 1)]), ["a", "d"]);
        offered.versions.remove("a");
        assert_eq!(outdated(&offered, &[("b", 1), ("c", 1)]), ["a", "d"], "what was written and is gone");
    }
}
