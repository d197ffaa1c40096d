//! What the leader writes for Reservations of Koordinator, until nothing is left to write.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    context::{KOORDINATOR_UID, KoordinatorContext, KoordinatorObject, KoordinatorWrite, OwnReservation},
    decide::{decide, refused},
};

/// Both objects, as the API server has them.
#[derive(Clone, Debug, Default)]
struct Objects {
    theirs: Option<Value>,
    own: Option<Value>,
    writes: Vec<&'static str>,
    made: u32,
}

fn koordinators(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation",
        "metadata": {
            "name": "night", "uid": "k-1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "template": {
                "metadata": {"namespace": "ml"},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4", "memory": "8Gi"}}}]},
            },
            "owners": [{"object": {"namespace": "ml"}, "labelSelector": {"matchLabels": {"app": "web"}}}],
            "ttl": "24h", "allocateOnce": true,
        },
        "status": {"phase": "Pending"},
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

impl Objects {
    fn of(theirs: Value) -> Self {
        Self { theirs: Some(theirs), ..Self::default() }
    }

    fn cx(&self) -> KoordinatorContext {
        KoordinatorContext {
            theirs: self.theirs.clone().map(KoordinatorObject::of),
            own: self.own.clone().map(|own| OwnReservation::of(own).unwrap()),
            now: Duration::from_secs(1_767_225_600),
        }
    }

    /// Makes writes until none is left.
    fn settle(&mut self) -> &mut Self {
        for _ in 0..10 {
            let Some(write) = decide(&self.cx()) else { return self };
            self.writes.push(write.what());
            self.apply(write);
        }
        panic!("there is no end: {:?}", self.writes);
    }

    fn apply(&mut self, write: KoordinatorWrite) {
        self.made += 1;
        let made = self.made.to_string();
        match write {
            KoordinatorWrite::Create(mut object) => {
                assert!(self.own.is_none());
                object["metadata"]["uid"] = json!(format!("h-{made}"));
                object["metadata"]["resourceVersion"] = json!(made);
                self.own = Some(*object);
            }
            KoordinatorWrite::Replace(object) => {
                assert_eq!(
                    object["metadata"]["resourceVersion"],
                    self.own.as_ref().unwrap()["metadata"]["resourceVersion"]
                );
                self.own = Some(*object);
            }
            KoordinatorWrite::Delete(version) => {
                let own = self.own.take().unwrap();
                assert_eq!(own["metadata"]["uid"], *version.uid);
            }
            KoordinatorWrite::Status(version, status) => {
                let theirs = self.theirs.as_mut().unwrap();
                assert_eq!(theirs["metadata"]["resourceVersion"], *version);
                theirs["status"] = *status;
                theirs["metadata"]["resourceVersion"] = json!(made);
            }
            KoordinatorWrite::DeleteTheirs(version) => {
                assert_eq!(self.theirs.take().unwrap()["metadata"]["uid"], *version.uid);
            }
        }
    }

    fn says(&mut self, status: Value) -> &mut Self {
        self.own.as_mut().unwrap()["status"] = status;
        self
    }

    fn theirs(&self) -> &Value {
        self.theirs.as_ref().unwrap()
    }

    fn served(&self) -> [String; 3] {
        let conditions = self.theirs()["status"]["conditions"].as_array().unwrap();
        let served = conditions.iter().find(|it| it["type"] == "Served").unwrap();
        ["status", "reason", "message"].map(|field| served[field].as_str().unwrap().to_owned())
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:05Z",
    })
}

fn available() -> Value {
    json!({
        "phase": "Available",
        "conditions": [
            condition("Scheduled", "True", "Scheduled"), condition("Ready", "True", "Available"),
            condition("Settled", "True", "Settled"),
        ],
        "places": [{
            "number": 0, "nodeName": "n1", "state": "Held", "requests": {"cpu": "4", "memory": "8Gi"}, "owners": [],
        }],
    })
}

#[test]
fn a_reservation_is_made_and_its_status_shown() {
    let mut objects = Objects::of(koordinators(&json!({})));
    objects.settle();
    let own = objects.own.clone().unwrap();
    assert_eq!((&own["apiVersion"], &own["metadata"]["name"]), (&json!("hostler.dev/v1alpha1"), &json!("night")));
    assert_eq!(own["metadata"]["labels"][KOORDINATOR_UID], "k-1");
    let owner = json!([{
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "name": "night", "uid": "k-1",
    }]);
    assert_eq!(own["metadata"]["ownerReferences"], owner);
    assert_eq!(own["spec"]["expires"], "2026-01-02T00:00:00Z");
    assert_eq!(objects.theirs()["status"]["phase"], "Pending");
    objects.says(available()).settle();
    let status = objects.theirs()["status"].clone();
    assert_eq!((&status["phase"], &status["nodeName"]), (&json!("Available"), &json!("n1")));
    assert_eq!(status["allocatable"], json!({"cpu": "4", "memory": "8Gi"}));
    assert_eq!((status.get("allocated"), status.get("currentOwners")), (None, None));
    let types: Vec<&Value> = status["conditions"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
    assert_eq!(types, ["Scheduled", "Ready", "Served"]);
    assert_eq!(status["conditions"][1]["lastProbeTime"], "2026-01-01T00:00:05Z");
    assert_eq!(objects.served(), ["True", "Served", "hostler keeps it as Reservation night of hostler.dev"]);
    assert_eq!(objects.writes, ["creation", "status", "status"]);
}

#[test]
fn owners_have_what_the_place_has_and_the_object_goes_with_its_reservation() {
    let mut objects = Objects::of(koordinators(&json!({})));
    let owner = json!({"namespace": "ml", "name": "web-0", "uid": "p-1", "requests": {"cpu": "3"}, "bound": true});
    let mut status = available();
    status["phase"] = json!("Succeeded");
    status["places"][0]["owners"] = json!([owner]);
    status["places"][0]["state"] = json!("HandedOver");
    objects.settle().says(status).settle();
    let status = objects.theirs()["status"].clone();
    assert_eq!((&status["phase"], &status["allocated"]), (&json!("Succeeded"), &json!({"cpu": "3"})));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "ml", "name": "web-0", "uid": "p-1"});
    assert_eq!(status["currentOwners"], json!([pod]));
    objects.own = None;
    objects.settle();
    assert!(objects.theirs.is_none(), "it was kept to be looked at long enough");
}

#[test]
fn one_that_was_over_before_is_left_alone() {
    let mut object = koordinators(&json!({}));
    object["status"] = json!({"phase": "Succeeded", "nodeName": "n9"});
    let mut objects = Objects::of(object.clone());
    objects.settle();
    assert_eq!((objects.theirs, objects.own, objects.writes.len()), (Some(object), None, 0));
}

#[test]
fn a_reservation_that_is_deleted_by_hand_is_made_anew_unless_it_was_over() {
    let mut objects = Objects::of(koordinators(&json!({})));
    objects.settle();
    objects.says(available()).settle();
    objects.own = None;
    objects.settle();
    assert!(objects.own.is_some());
    assert_eq!(objects.theirs()["status"]["phase"], "Pending");
}

#[test]
fn a_change_follows_with_its_labels() {
    let mut objects = Objects::of(koordinators(&json!({})));
    objects.settle();
    objects.theirs.as_mut().unwrap()["metadata"]["labels"] =
        json!({"scheduling.koordinator.sh/reservation-order": "1"});
    objects.settle();
    assert_eq!(objects.own.as_ref().unwrap()["metadata"]["labels"]["hostler.dev/reservation-order"], "1");
    objects.theirs.as_mut().unwrap()["metadata"]["labels"] = json!({});
    objects.own.as_mut().unwrap()["metadata"]["finalizers"] = json!(["hostler.dev/reservation"]);
    objects.settle();
    objects.theirs.as_mut().unwrap()["spec"]["unschedulable"] = json!(true);
    objects.settle();
    let own = objects.own.clone().unwrap();
    assert_eq!(own["spec"]["unschedulable"], true);
    assert_eq!(own["metadata"]["labels"], json!({(KOORDINATOR_UID): "k-1"}), "a label that went is gone");
    assert_eq!(own["metadata"]["finalizers"], json!(["hostler.dev/reservation"]));
    assert_eq!(objects.writes, ["creation", "status", "change", "change", "change"]);
}

#[test]
fn the_reservation_goes_with_its_object() {
    for is_made_anew in [false, true] {
        let mut objects = Objects::of(koordinators(&json!({})));
        objects.settle();
        let mut theirs = objects.theirs.take();
        if is_made_anew {
            theirs.as_mut().unwrap()["metadata"]["uid"] = json!("k-2");
            objects.theirs = theirs;
        }
        objects.settle();
        let uid = objects.own.map(|own| own["metadata"]["labels"][KOORDINATOR_UID].clone());
        assert_eq!(uid, is_made_anew.then(|| json!("k-2")));
    }
    let mut objects = Objects::of(koordinators(&json!({})));
    objects.settle().theirs.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    objects.settle();
    assert!(objects.own.is_none() && objects.theirs.is_some(), "another one's finalizer keeps it");
}

#[test]
fn why_one_is_not_served_is_said_and_nothing_of_others_is_touched() {
    let other = json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation",
        "metadata": {"name": "night", "uid": "h-9", "resourceVersion": "9"}, "spec": {},
    });
    let mut objects = Objects { own: Some(other.clone()), ..Objects::of(koordinators(&json!({}))) };
    objects.settle();
    assert_eq!((objects.served()[1].as_str(), objects.own.clone()), ("NameTaken", Some(other)));
    objects.own = None;
    objects.settle();
    assert_eq!(objects.served()[0], "True");

    let mut objects = Objects::of(koordinators(&json!({"owners": []})));
    objects.settle();
    let [status, reason, message] = objects.served();
    assert_eq!((&*status, &*reason, objects.own.is_none()), ("False", "NotConverted", true));
    assert!(message.starts_with("spec.owners: there are none"), "{message}");

    let mut objects = Objects::of(koordinators(&json!({})));
    objects.settle().says(available()).settle();
    objects.theirs.as_mut().unwrap()["spec"]["owners"] = json!([]);
    objects.settle();
    assert_eq!((objects.served()[1].as_str(), objects.own.is_some()), ("NotConverted", true), "it stays as it was");
    assert_eq!(objects.theirs()["status"]["phase"], "Available");

    let mut objects = Objects::of(koordinators(&json!({})));
    let write = refused(&objects.cx(), "no").unwrap();
    objects.apply(write);
    assert_eq!(objects.served(), ["False", "Refused", "no"]);
    assert_eq!(refused(&objects.cx(), "no"), None, "it is said once");
    objects.settle();
    let write = refused(&objects.cx(), "no").unwrap();
    objects.apply(write);
    let mut over = available();
    over["phase"] = json!("Failed");
    objects.says(over).settle();
    assert_eq!(objects.served(), ["True", "Served", "hostler keeps it as Reservation night of hostler.dev"]);
}

#[test]
fn what_differs_is_said() {
    let owners = json!([{"labelSelector": {"matchLabels": {"app": "web"}}}]);
    let mut objects = Objects::of(koordinators(&json!({"owners": owners})));
    objects.settle();
    let [status, _, message] = objects.served();
    assert_eq!(status, "True");
    assert!(
        message.contains("; spec.owners[0]: is a little different: it is about pods of namespace ml alone"),
        "{message}"
    );
}
