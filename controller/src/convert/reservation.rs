//! A Reservation of Koordinator (`scheduling.koordinator.sh/v1alpha1`) becomes one of hostler's.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use hostler_api::{
    Chain,
    core::{PodTemplateSpec, Taint},
    reservation::{
        DEFAULT_TTL, PreAllocationPolicy, RESERVATION_KIND, RESERVATION_ORDER, ReservationAllocatePolicy,
        ReservationOwner, ReservationSpec, parse_ttl,
    },
};
use hostler_cluster::{from_rfc3339, rfc3339};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ConvertNote, ConvertProblem, keys, owners,
    pod::{annotation, label, rename},
    template::template,
};

/// Fields of the spec that are read.
const KNOWN: [&str; 10] = [
    "allocateOnce",
    "allocatePolicy",
    "expires",
    "owners",
    "preAllocation",
    "preAllocationPolicy",
    "taints",
    "template",
    "ttl",
    "unschedulable",
];

#[derive(Deserialize)]
struct KoordinatorReservation {
    metadata: KoordinatorMetadata,
    spec: KoordinatorSpec,
    #[serde(default)]
    status: KoordinatorStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KoordinatorMetadata {
    name: String,
    generate_name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KoordinatorStatus {
    phase: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KoordinatorSpec {
    template: Value,
    #[serde(default)]
    owners: Vec<ReservationOwner>,
    ttl: Option<String>,
    expires: Option<String>,
    pre_allocation: Option<bool>,
    pre_allocation_policy: Option<PreAllocationPolicy>,
    allocate_once: Option<bool>,
    allocate_policy: Option<KoordinatorPolicy>,
    unschedulable: Option<bool>,
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Clone, Copy, Deserialize, Eq, PartialEq)]
enum KoordinatorPolicy {
    #[serde(rename = "")]
    Default,
    Aligned,
    Restricted,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RestrictedOptions {
    resources: Vec<String>,
}

/// A converted object; none where there is nothing to keep any more.
#[derive(Debug)]
pub(super) struct ConvertedReservation {
    pub(super) object: Option<Value>,
    pub(super) notes: Vec<ConvertNote>,
}

/// Converts a Reservation. One that is over is left out.
///
/// # Errors
/// When a field cannot be understood, or hostler cannot serve the Reservation at all.
pub(super) fn reservation(object: &Value) -> Result<ConvertedReservation, ConvertProblem> {
    let KoordinatorReservation { metadata, status, .. } = read(object)?;
    let over = metadata.deletion_timestamp.is_some().then_some("being deleted");
    let over = over.or_else(|| matches!(&*status.phase, "Failed" | "Succeeded").then_some(&*status.phase));
    if let Some(state) = over {
        let reason = format!("it is {state} and keeps nothing; it is left out");
        return Ok(ConvertedReservation { object: None, notes: vec![ConvertNote::differs("status.phase", reason)] });
    }
    let (object, notes) = of_koordinator(object)?;
    Ok(ConvertedReservation { object: Some(object), notes })
}

/// Converts a Reservation, whatever its status says; returns what differs as well.
///
/// # Errors
/// As [`reservation`].
pub(crate) fn of_koordinator(object: &Value) -> Result<(Value, Vec<ConvertNote>), ConvertProblem> {
    let KoordinatorReservation { mut metadata, spec, .. } = read(object)?;
    if metadata.name.is_empty() && metadata.generate_name.is_empty() {
        return Err(ConvertProblem::new("metadata.name", "it is missing; give the Reservation a name"));
    }
    let mut notes = unknown(&object["spec"]);
    let restricted = restricted(&mut metadata)?;
    notes.extend(metadata.notes());
    let spec = spec.convert(&metadata, restricted, &mut notes)?;
    notes.extend(owners::notes(&spec.owners, spec.home())?);
    spec.pod_template().map_err(|error| ConvertProblem::new("", Chain(&error).to_string()))?;
    let spec = serde_json::to_value(spec).map_err(|error| ConvertProblem::new("spec", error.to_string()))?;
    Ok((written(&metadata, &spec), notes))
}

fn read(object: &Value) -> Result<KoordinatorReservation, ConvertProblem> {
    serde_path_to_error::deserialize(object)
        .map_err(|error| ConvertProblem::new(error.path().to_string(), error.inner().to_string()))
}

/// Returns the object, without empty fields.
fn written(metadata: &KoordinatorMetadata, spec: &Value) -> Value {
    let mut own = json!({});
    for (field, name) in [("name", &metadata.name), ("generateName", &metadata.generate_name)] {
        if !name.is_empty() {
            own[field] = json!(name);
        }
    }
    for (field, values) in [("labels", &metadata.labels), ("annotations", &metadata.annotations)] {
        if !values.is_empty() {
            own[field] = json!(values);
        }
    }
    json!({ "apiVersion": "hostler.dev/v1alpha1", "kind": RESERVATION_KIND, "metadata": own, "spec": spec })
}

/// Names fields of later versions.
fn unknown(spec: &Value) -> Vec<ConvertNote> {
    let fields = spec.as_object().into_iter().flatten().map(|(field, _)| field);
    let unknown = fields.filter(|field| !KNOWN.contains(&field.as_str()));
    unknown
        .map(|field| ConvertNote::missing(format!("spec.{field}"), "hostler does not know it; leave it out"))
        .collect()
}

/// Takes the resources that Restricted is about out of the annotations.
fn restricted(metadata: &mut KoordinatorMetadata) -> Result<Vec<String>, ConvertProblem> {
    let text = metadata.annotations.remove(keys::RESTRICTED_OPTIONS).filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(Vec::new()) };
    let read: Result<RestrictedOptions, serde_json::Error> = serde_json::from_str(&text);
    let wrong = |error: serde_json::Error| {
        let field = annotation(keys::RESTRICTED_OPTIONS);
        ConvertProblem::of_json(field, &error, "{\"resources\": [\"cpu\"]}")
    };
    read.map(|options| options.resources).map_err(wrong)
}

impl KoordinatorMetadata {
    /// Gives labels and annotations their own keys, and names those that have none.
    fn notes(&mut self) -> Vec<ConvertNote> {
        let mut notes = Vec::new();
        rename(&mut self.labels, keys::ORDER, RESERVATION_ORDER);
        // kubectl's memory of the other object.
        self.annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if self.labels.remove(keys::PRE_ALLOCATION_REQUIRED).is_some_and(|value| value == "true") {
            let reason = "what is free is kept first; hostler waits for pods only where nothing is free";
            notes.push(ConvertNote::missing(label(keys::PRE_ALLOCATION_REQUIRED), reason));
        }
        if self.annotations.remove(keys::RESIZE_ALLOCATABLE).is_some() {
            let reason = "the template says what is kept; write these amounts into its requests";
            notes.push(ConvertNote::missing(annotation(keys::RESIZE_ALLOCATABLE), reason));
        }
        notes
    }

    fn created(&self) -> Option<SystemTime> {
        self.creation_timestamp.as_deref().and_then(from_rfc3339)
    }
}

impl KoordinatorSpec {
    fn convert(
        self,
        metadata: &KoordinatorMetadata,
        restricted: Vec<String>,
        notes: &mut Vec<ConvertNote>,
    ) -> Result<ReservationSpec, ConvertProblem> {
        PodTemplateSpec::deserialize(&self.template).map_err(|error| {
            ConvertProblem::new(
                "spec.template",
                format!("it is no PodTemplateSpec: {error}; write metadata and spec of a pod"),
            )
        })?;
        let (ttl, expires) = self.lasting(metadata.created(), notes)?;
        let mut pod = self.template;
        notes.extend(template(&mut pod));
        let is_restricted = self.allocate_policy == Some(KoordinatorPolicy::Restricted);
        let pre_allocation = self.pre_allocation.filter(|wanted| *wanted);
        let spec = ReservationSpec {
            template: pod,
            owners: self.owners,
            ttl,
            expires,
            pre_allocation,
            pre_allocation_policy: self.pre_allocation_policy.filter(|_| pre_allocation.is_some()),
            allocate_once: self.allocate_once,
            allocate_policy: is_restricted.then_some(ReservationAllocatePolicy::Restricted),
            restricted_resources: if is_restricted { restricted } else { Vec::new() },
            unschedulable: self.unschedulable.filter(|wanted| *wanted),
            taints: self.taints,
            ..ReservationSpec::default()
        };
        if pre_allocation.is_some() && !spec.asks_for_devices() {
            let reason = "only devices of pods that run are waited for; a place is asked for until there is room";
            notes.push(ConvertNote::differs("spec.preAllocation", reason));
        }
        Ok(spec)
    }

    /// Returns `ttl` and `expires`. Of an object that exists the end stays where it is.
    fn lasting(
        &self,
        created: Option<SystemTime>,
        notes: &mut Vec<ConvertNote>,
    ) -> Result<(Option<String>, Option<String>), ConvertProblem> {
        let wrong = |error: hostler_api::reservation::ParseTtlError| ConvertProblem::new("spec.ttl", error.to_string());
        let ttl = self.ttl.as_deref().map(parse_ttl).transpose().map_err(wrong)?;
        let expires = self.expires.as_deref().map(|text| {
            let reason = || format!("{text:?} is no time; write one such as 2030-01-31T18:00:00Z");
            from_rfc3339(text).ok_or_else(|| ConvertProblem::new("spec.expires", reason()))
        });
        let expires = expires.transpose()?;
        if ttl == Some(Duration::ZERO) {
            if expires.is_some() {
                let reason = "beside ttl 0 Koordinator does not count it, and hostler does; leave one of both out";
                notes.push(ConvertNote::differs("spec.expires", reason));
            }
            return Ok((Some("0".to_owned()), self.expires.clone()));
        }
        let of_ttl = created.map(|created| created + ttl.unwrap_or(DEFAULT_TTL));
        match (expires, of_ttl) {
            (_, Some(end)) => Ok((None, Some(rfc3339(expires.map_or(end, |expires| expires.min(end)))))),
            (Some(_), None) => {
                let reason =
                    "it does not count beside expires; with Koordinator the Reservation ends with the earlier one";
                notes.extend(ttl.map(|_| ConvertNote::differs("spec.ttl", reason)));
                Ok((None, self.expires.clone()))
            }
            (None, None) => Ok((self.ttl.clone(), None)),
        }
    }
}
