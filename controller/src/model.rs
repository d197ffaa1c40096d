//! The one owner of what is known of the cluster. Pure: it is told what was seen, and says what is to be done.
//!
//! ```text
//!   ClusterEvent ──► ClusterModel::step ──► commands
//!                         └──► ClusterModel::view ──► Arc<ClusterView>, for readers
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use hostler_allocator::plan::{ClusterFacts, PlanOptions};
use hostler_api::{ObjectKey, resource::ResourceClaim, well_known::POD_CLAIM_NAME};
use hostler_reconcile::{ObjectStamp, Store};

use crate::{
    daemons::DaemonPods,
    observed::{
        AttachmentObject, ClusterEvent, FabricObjects, KindStatus, ObservedKind, ObservedObject, ReservationMarks,
        SeenObject, marks,
    },
    reports::NodeReports,
    requests::ProvisionObjects,
    reservation_object::ReservationObject,
    stock::StockAccount,
    unscheduled_pods::{UnscheduledPod, UnscheduledPods},
    view::{ClusterView, LazySnapshot},
};

/// Work that follows from an event.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum ModelCommand {
    /// Readers shall see what is known now.
    Publish,
    /// An object cannot be understood: `ResourceSlice n1-gpu`, and why.
    TellPoisoned {
        /// The object.
        object: String,
        /// The reason.
        reason: String,
    },
}

/// Everything that is known of the cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterModel {
    pub(crate) facts: ClusterFacts,
    reports: NodeReports,
    account: StockAccount,
    options: PlanOptions,
    provisioning: Arc<ProvisionObjects>,
    reservations: Arc<BTreeMap<String, Arc<ReservationObject>>>,
    koordinator: Arc<BTreeMap<String, ObjectStamp>>,
    marks: Arc<ReservationMarks>,
    fabric: Arc<FabricObjects>,
    waiting_claims: Arc<BTreeSet<ObjectKey>>,
    daemons: Arc<DaemonPods>,
    unscheduled_pods: Arc<UnscheduledPods>,
    /// The snapshot that the last view was made of.
    planner: Arc<LazySnapshot>,
    kinds: BTreeMap<ObservedKind, KindState>,
}

/// State of what is known of a kind.
#[derive(Debug, Default)]
struct KindState {
    known: Store<()>,
    /// True if the server does not know it.
    is_absent: bool,
    /// The time since when nothing was heard, and the reason.
    silent: Option<(Instant, String)>,
}

impl ClusterModel {
    /// Makes a model of a cluster of which only the scheduler is known.
    pub(crate) fn new(options: PlanOptions) -> Self {
        Self { account: StockAccount::new(options.clone()), options, ..Self::default() }
    }

    /// Returns when it must be told that time has passed, if nothing else happens.
    pub(crate) fn next_moment(&self) -> Option<Instant> {
        self.reports.next()
    }

    /// True while the first list of a kind is read.
    pub(crate) fn is_loading(&self) -> bool {
        self.kinds.values().any(|state| state.known.is_loading() && state.silent.is_none())
    }

    /// Takes what was seen at a moment.
    pub(crate) fn step(&mut self, now: Instant, event: ClusterEvent) -> Vec<ModelCommand> {
        match event {
            ClusterEvent::ListStarted(kind) => {
                self.kind(kind).known.list_started();
                Vec::new()
            }
            ClusterEvent::Seen(object) => self.see(now, object),
            ClusterEvent::TimePassed => {
                let is_other = self.reports.pass(now);
                is_other.then_some(ModelCommand::Publish).into_iter().collect()
            }
            ClusterEvent::Gone(kind, key, last) => {
                let was_known = self.kind(kind).known.remove(&key, last).is_some();
                if was_known { self.forget(kind, &[key]) } else { Vec::new() }
            }
            ClusterEvent::ListEnded(kind) => {
                let state = self.kind(kind);
                (state.is_absent, state.silent) = (false, None);
                let gone: Vec<ObjectKey> = state.known.list_ended().into_iter().map(|(key, ())| key).collect();
                self.forget(kind, &gone)
            }
            // Then there are none of it.
            ClusterEvent::NotServed(kind) => {
                self.kind(kind).known.list_started();
                let commands = self.step(now, ClusterEvent::ListEnded(kind));
                self.kind(kind).is_absent = true;
                commands
            }
            ClusterEvent::UpToDate(kind) => {
                let was_silent = self.kind(kind).silent.take().is_some();
                was_silent.then_some(ModelCommand::Publish).into_iter().collect()
            }
            ClusterEvent::Interrupted(kind, why) => {
                let state = self.kind(kind);
                let since = state.silent.take().map_or(now, |(since, _)| since);
                state.silent = Some((since, why));
                vec![ModelCommand::Publish]
            }
        }
    }

    /// Returns the view for readers.
    pub(crate) fn view(&mut self) -> ClusterView {
        let stock = self.account.update(&mut self.facts, &mut self.reports).clone();
        if self.planner.revision() != self.facts.revision() {
            self.planner = Arc::new(LazySnapshot::new(self.facts.clone()));
        }
        ClusterView {
            facts: self.facts.clone(),
            stock,
            options: self.options.clone(),
            kinds: self.kinds(),
            planner: self.planner.clone(),
            provisioning: self.provisioning.clone(),
            marks: self.marks.clone(),
            reservations: self.reservations.clone(),
            koordinator: self.koordinator.clone(),
            fabric: self.fabric.clone(),
            waiting_claims: self.waiting_claims.clone(),
            daemons: self.daemons.clone(),
            unscheduled_pods: self.unscheduled_pods.clone(),
        }
    }

    /// True if a version of an object is not known yet: only then it is worth reading.
    pub(crate) fn is_news(&mut self, kind: ObservedKind, key: &ObjectKey, stamp: ObjectStamp) -> bool {
        self.kind(kind).known.is_news(key, stamp)
    }

    /// Counts the objects of a kind.
    #[cfg(test)]
    pub(crate) fn objects(&self, kind: ObservedKind) -> usize {
        self.kinds.get(&kind).map_or(0, |state| state.known.len())
    }

    fn kinds(&self) -> BTreeMap<ObservedKind, KindStatus> {
        self.kinds.iter().map(|(kind, state)| (*kind, state.status(*kind))).collect()
    }

    fn kind(&mut self, kind: ObservedKind) -> &mut KindState {
        self.kinds.entry(kind).or_default()
    }

    fn see(&mut self, now: Instant, seen: SeenObject) -> Vec<ModelCommand> {
        let SeenObject { kind, key, stamp, content } = seen;
        let known = &mut self.kind(kind).known;
        match content {
            Ok(_) if known.see(&key, stamp, ()).is_none() => Vec::new(),
            Ok(object) => {
                marks::see(&mut self.marks, (kind, &key), stamp, &object, &self.reservations);
                self.take(now, kind, key, stamp, object);
                vec![ModelCommand::Publish]
            }
            Err(reason) if known.see_unreadable(&key, stamp, reason.clone(), ()).is_none() => Vec::new(),
            // The object's former content may not be so any more.
            Err(reason) => {
                let mut commands = self.forget(kind, std::slice::from_ref(&key));
                commands.push(ModelCommand::TellPoisoned { object: title(kind, &key), reason });
                commands
            }
        }
    }

    fn take(&mut self, now: Instant, kind: ObservedKind, key: ObjectKey, stamp: ObjectStamp, object: ObservedObject) {
        let shared = self.kind(kind).known.shared_key(&key);
        let facts = &mut self.facts;
        match object {
            ObservedObject::Node(node) => facts.add_node(*node),
            ObservedObject::ResourceSlice(slice) => {
                FabricObjects::see_slice(&mut self.fabric, &slice);
                facts.add_slice(*slice);
            }
            ObservedObject::DeviceClass(class) => facts.add_class(*class),
            ObservedObject::ResourceClaim(claim) => {
                facts.add_claim_of(&shared, &claim);
                FabricObjects::see_claim(&mut self.fabric, &key, stamp, &claim);
                self.note_waiting(key, is_waiting(&claim));
            }
            ObservedObject::ResourceClaimTemplate(template) => facts.add_template(key, template.spec.spec),
            ObservedObject::DeviceTaintRule(rule) => facts.add_rule(*rule),
            ObservedObject::Pod(pod) => {
                facts.add_pod_of(shared, &pod);
                self.note_daemon(&key, DaemonPods::node_of(&pod));
                self.note_unscheduled_pod(&key, UnscheduledPod::of(&pod, stamp));
                if self.provisioning.concerns(&key, &pod) {
                    Arc::make_mut(&mut self.provisioning).see_pod(key, &pod);
                }
            }
            // Reports without a node are about the network, and belong to none.
            ObservedObject::NodeHardware(report) if report.spec.node_name.is_empty() => {
                self.reports.forget(&report.metadata.name);
            }
            ObservedObject::NodeHardware(report) => {
                FabricObjects::see_node(&mut self.fabric, &report);
                self.reports.see(now, &report);
            }
            ObservedObject::PodTemplate(template) => Arc::make_mut(&mut self.provisioning).see_template(key, *template),
            ObservedObject::ResourceQuota(quota) => facts.add_quota(key, &quota),
            ObservedObject::Namespace(namespace) => facts.add_namespace(*namespace),
            ObservedObject::ProvisioningRequest(request) => Arc::make_mut(&mut self.provisioning).see_request(*request),
            ObservedObject::Reservation(seen) => {
                Arc::make_mut(&mut self.reservations).insert(seen.name.clone(), Arc::from(seen));
            }
            ObservedObject::KoordinatorReservation => {
                Arc::make_mut(&mut self.koordinator).insert(key.name, stamp);
            }
            ObservedObject::FabricAttachment(attachment) => {
                let object = Arc::new(AttachmentObject { stamp, attachment: *attachment });
                Arc::make_mut(&mut self.fabric).attachments.insert(key.name, object);
            }
        }
    }

    fn forget(&mut self, kind: ObservedKind, gone: &[ObjectKey]) -> Vec<ModelCommand> {
        for key in gone {
            marks::forget(&mut self.marks, kind, key);
            let facts = &mut self.facts;
            match kind {
                ObservedKind::Node => facts.remove_node(&key.name),
                ObservedKind::ResourceSlice => {
                    FabricObjects::forget_slice(&mut self.fabric, &key.name);
                    facts.remove_slice(&key.name);
                }
                ObservedKind::DeviceClass => facts.remove_class(&key.name),
                ObservedKind::ResourceClaim => {
                    facts.remove_claim(key);
                    FabricObjects::forget_claim(&mut self.fabric, key);
                    self.note_waiting(key.clone(), false);
                }
                ObservedKind::ResourceClaimTemplate => facts.remove_template(key),
                ObservedKind::DeviceTaintRule => facts.remove_rule(&key.name),
                ObservedKind::Pod => {
                    facts.remove_pod(key);
                    self.note_daemon(key, None);
                    self.note_unscheduled_pod(key, None);
                    self.forget_for_requests(kind, key);
                }
                ObservedKind::NodeHardware => {
                    FabricObjects::forget_node(&mut self.fabric, &key.name);
                    self.reports.forget(&key.name);
                }
                ObservedKind::ResourceQuota => facts.remove_quota(key),
                ObservedKind::Namespace => facts.remove_namespace(&key.name),
                ObservedKind::PodTemplate | ObservedKind::ProvisioningRequest => self.forget_for_requests(kind, key),
                ObservedKind::Reservation => drop(Arc::make_mut(&mut self.reservations).remove(&key.name)),
                ObservedKind::KoordinatorReservation => {
                    Arc::make_mut(&mut self.koordinator).remove(&key.name);
                }
                ObservedKind::FabricAttachment => {
                    Arc::make_mut(&mut self.fabric).attachments.remove(&key.name);
                }
            }
        }
        vec![ModelCommand::Publish]
    }
}

impl ClusterModel {
    /// Notes whether a claim waits; an unchanged set is not copied.
    fn note_waiting(&mut self, key: ObjectKey, is_waiting: bool) {
        if self.waiting_claims.contains(&key) != is_waiting {
            let waiting = Arc::make_mut(&mut self.waiting_claims);
            if is_waiting {
                waiting.insert(key)
            } else {
                waiting.remove(&key)
            };
        }
    }

    /// Notes the node of a daemon's pod; an unchanged map is not copied.
    fn note_daemon(&mut self, key: &ObjectKey, node: Option<&str>) {
        if self.daemons.is_news(key, node) {
            Arc::make_mut(&mut self.daemons).note(key, node);
        }
    }

    /// Notes a pod that waits for a node; an unchanged map is not copied.
    fn note_unscheduled_pod(&mut self, key: &ObjectKey, pod: Option<UnscheduledPod>) {
        match pod {
            Some(pod) => drop(Arc::make_mut(&mut self.unscheduled_pods).insert(key.clone(), Arc::new(pod))),
            None if self.unscheduled_pods.contains_key(key) => {
                drop(Arc::make_mut(&mut self.unscheduled_pods).remove(key))
            }
            None => {}
        }
    }

    /// Forgets an object of requests; objects that no request is about are not copied for it.
    fn forget_for_requests(&mut self, kind: ObservedKind, key: &ObjectKey) {
        let known = &self.provisioning;
        let is_known = match kind {
            ObservedKind::Pod => known.consumers.contains_key(key),
            ObservedKind::PodTemplate => known.templates.contains_key(key),
            _ => known.requests.contains_key(key),
        };
        if is_known {
            let known = Arc::make_mut(&mut self.provisioning);
            match kind {
                ObservedKind::Pod => drop(known.consumers.remove(key)),
                ObservedKind::PodTemplate => drop(known.templates.remove(key)),
                _ => drop(known.requests.remove(key)),
            }
        }
    }
}

impl KindState {
    fn status(&self, kind: ObservedKind) -> KindStatus {
        let unreadable = self.known.unreadable();
        let example = unreadable.first_key_value().map(|(key, why)| format!("{}: {why}", title(kind, key)));
        KindStatus {
            example,
            is_synced: self.known.is_synced(),
            is_absent: self.is_absent,
            silent: self.silent.clone(),
            objects: self.known.len(),
            poisoned: unreadable.len(),
        }
    }
}

fn title(kind: ObservedKind, key: &ObjectKey) -> String {
    match key.namespace.as_str() {
        "" => format!("{} {}", kind.name(), key.name),
        _ => format!("{} {key}", kind.name()),
    }
}

/// True if a claim was made for a pod from a template, and was given nothing yet.
fn is_waiting(claim: &ResourceClaim) -> bool {
    claim.metadata.annotations.contains_key(POD_CLAIM_NAME)
        && claim.metadata.deletion_timestamp.is_none()
        && claim.status.allocation.is_none()
}

#[cfg(test)]
mod tests;
