//! Objects that an answer about a pod is made of.

use std::collections::BTreeMap;

use hostler_api::{
    ObjectKey,
    fabric::{FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS, FabricAttachment, of_fabric_pool},
    provisioning::ProvisioningRequest,
    resource::{DeviceClass, ResourceClaim},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::pod::ExplainedPod;
use crate::plan::{InputLayer, InputProblem, InputText, Manifests};

/// Objects of a cluster, and of the namespace of the pods in question.
#[derive(Debug, Default)]
pub(super) struct WhyWorld {
    /// Everything that decides what fits where.
    pub(super) manifests: Manifests,
    /// Pods of the namespace; of all namespaces where that is asked for.
    pub(super) pods: BTreeMap<ObjectKey, ExplainedPod>,
    /// Claims.
    pub(super) claims: BTreeMap<ObjectKey, ResourceClaim>,
    /// Classes.
    pub(super) classes: BTreeMap<String, DeviceClass>,
    /// Requests for capacity.
    pub(super) requests: BTreeMap<ObjectKey, ProvisioningRequest>,
    /// FabricAttachments, by the name of the device.
    pub(super) attachments: BTreeMap<String, FabricAttachment>,
    /// Events about pods and claims, the newest last.
    pub(super) events: Vec<SeenEvent>,
    /// Resources that the user may not read: `nodes`.
    pub(super) forbidden: Vec<&'static str>,
    /// True if the server serves a version of `resource.k8s.io` that structured parameters have.
    pub(super) has_claims: bool,
    /// The cluster's minor release: 36 for 1.36.
    pub(super) minor: Option<u32>,
    /// Objects that could not be read.
    pub(super) problems: Vec<InputProblem>,
}

/// An Event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SeenEvent {
    /// The reason, in one word.
    pub(super) reason: String,
    /// The reason, for people.
    pub(super) message: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    last_timestamp: Option<String>,
    event_time: Option<String>,
    involved_object: EventSubject,
    reporting_component: String,
    source: EventSource,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EventSubject {
    kind: String,
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EventSource {
    component: String,
}

/// A page of a list.
#[derive(Deserialize)]
struct WhyListPage {
    kind: String,
    #[serde(default)]
    items: Vec<Value>,
}

impl SeenEvent {
    /// True if the Event is about this object.
    pub(super) fn is_about(&self, kind: &str, key: &ObjectKey) -> bool {
        let EventSubject { kind: of, namespace, name } = &self.involved_object;
        of == kind && *namespace == key.namespace && *name == key.name
    }

    /// Returns the program that wrote the Event.
    pub(super) fn writer(&self) -> &str {
        if self.reporting_component.is_empty() { &self.source.component } else { &self.reporting_component }
    }

    fn moment(&self) -> &str {
        self.last_timestamp.as_deref().or(self.event_time.as_deref()).unwrap_or_default()
    }
}

impl WhyWorld {
    /// Takes the objects of a page.
    pub(super) fn take(&mut self, page: &InputText) -> Result<(), serde_json::Error> {
        let WhyListPage { kind, items } = serde_json::from_str(&page.text)?;
        match kind.strip_suffix("List").unwrap_or(&kind) {
            "Event" => {
                self.events.extend(all::<SeenEvent>(items)?.into_iter().map(|(_, event)| event));
                // Both forms of the time are written so that their order is that of their texts.
                self.events.sort_by(|a, b| a.moment().cmp(b.moment()));
                return Ok(());
            }
            "ProvisioningRequest" => {
                self.requests.extend(all(items)?);
                return Ok(());
            }
            FABRIC_ATTACHMENT_KIND => {
                self.attachments.extend(all(items)?.into_iter().map(|(key, attachment)| (key.name, attachment)));
                return Ok(());
            }
            "Pod" => self.pods.extend(all(items)?),
            "ResourceClaim" => self.claims.extend(all(with_kind(items, "ResourceClaim"))?),
            "DeviceClass" => self.classes.extend(all(items)?.into_iter().map(|(key, class)| (key.name, class))),
            _ => {}
        }
        self.manifests.read(page, InputLayer::Base, &mut self.problems);
        Ok(())
    }

    /// Forgets that FabricAttachments may not be read, where no claim has a device behind a switch: in a cluster without
    /// the kind no role has the right.
    pub(super) fn forgive_attachments(&mut self) {
        let results = self.claims.values().filter_map(|claim| claim.status.allocation.as_ref());
        let is_any = results.flat_map(|it| &it.devices.results).any(|result| of_fabric_pool(&result.pool).is_some());
        self.forbidden.retain(|plural| is_any || *plural != FABRIC_ATTACHMENTS);
    }

    /// True if a resource was read in the whole cluster.
    pub(super) fn may_read(&self, plural: &str) -> bool {
        !self.forbidden.contains(&plural)
    }
}

/// Adds what items of a list leave out.
fn with_kind(mut items: Vec<Value>, kind: &str) -> Vec<Value> {
    for item in &mut items {
        item["kind"] = kind.into();
        item["apiVersion"] = "resource.k8s.io/v1".into();
    }
    items
}

fn all<T: DeserializeOwned>(items: Vec<Value>) -> Result<Vec<(ObjectKey, T)>, serde_json::Error> {
    let keyed = |item: Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey { namespace: text("namespace"), name: text("name") };
        Ok((key, T::deserialize(item)?))
    };
    items.into_iter().map(keyed).collect()
}
