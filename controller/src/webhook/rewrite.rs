//! Rewrites the requests of a claim, so that it gets kept devices.
//!
//! | Request | Aligned | Restricted |
//! |---|---|---|
//! | of a class of which nothing is kept, or with admin access | as it is | as it is |
//! | `exactly` | `firstAvailable: [held, any]`: what is kept, else what is kept and others mixed | what is kept |
//! | `firstAvailable` of up to four | what is kept of each alternative, then each with others | what is kept of each |
//! | all devices of a node, or one that cannot be written so | tolerates what is kept, no more | the same |
//!
//! A Restricted Reservation without room for the pod is one alternative of two: only what is kept, if some comes back
//! in time, or only others. What cannot be written so stays as it is.
//!
//! Constraints and configurations that name a request name all its alternatives as well; those that name an alternative
//! get the one beside it.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    reservation::ReservationAllocatePolicy,
    well_known::{HELD_FOR_ATTRIBUTE, HELD_TAINT},
};
use serde_json::{Map, Value, json};

/// The limit of tolerations of a request.
const MOST_TOLERATIONS: usize = 16;
/// The limit of selectors of a request.
const MOST_SELECTORS: usize = 32;
/// The limit of alternatives of a request.
const MOST_ALTERNATIVES: usize = 8;
/// The limit of request names of a constraint or a configuration.
const MOST_REQUESTS: usize = 32;
/// All fields of a request of 1.36 and 1.37. Another field may have a meaning that an alternative loses.
const FIELDS: [&str; 7] =
    ["adminAccess", "allocationMode", "capacity", "count", "deviceClassName", "selectors", "tolerations"];
/// Name of the alternative that takes only kept devices.
const HELD: &str = "held";
/// Name of the alternative that takes any devices.
const ANY: &str = "any";

/// The Reservations that a claim may use, and the way in which it may use them.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldClaims {
    /// Values to tolerate, at least one.
    pub(super) values: Vec<String>,
    /// The policy about devices that are not kept.
    pub(super) policy: ReservationAllocatePolicy,
    /// Classes that the policy is not about: of these, other devices may be taken as well.
    pub(super) unrestricted: BTreeSet<String>,
    /// True if all devices that the pod asks for are kept and not taken.
    pub(super) has_room: bool,
    /// Classes of the kept devices; true if all devices of the class publish their Reservation, so that selectors can
    /// tell them.
    pub(super) classes: BTreeMap<String, bool>,
    /// True if the API server accepts alternatives (`firstAvailable`), with any feature gates.
    pub(super) has_alternatives: bool,
}

/// The changes of the spec of a claim.
#[derive(Debug, Default)]
pub(super) struct Rewrite {
    /// JSON patch of the claim; empty where it stays as it is.
    pub(super) patch: Vec<Value>,
    /// Changes that could not be made.
    pub(super) warnings: Vec<String>,
}

/// A request that was written anew.
struct NewRequest {
    request: Value,
    /// Pairs of an alternative and the new one beside it, as other parts of the claim name them.
    beside: Vec<(String, String)>,
    warning: Option<String>,
}

/// True if the claim's own spec tolerates the taint of kept devices: then its author has chosen.
pub(super) fn tolerates_held(spec: &Value) -> bool {
    let of_request = |request: &Value| -> Vec<Value> {
        let alternatives = list(&request["firstAvailable"]).iter();
        let of_all = alternatives.chain([&request["exactly"]]).flat_map(|it| list(&it["tolerations"]));
        of_all.cloned().collect()
    };
    let is_held = |it: &Value| it["key"] == HELD_TAINT || (text(&it["key"]).is_empty() && it["operator"] == "Exists");
    list(&spec["devices"]["requests"]).iter().flat_map(of_request).any(|it| is_held(&it))
}

/// Rewrites the spec of a claim that may use a Reservation.
pub(super) fn rewrite(spec: &Value, held_claims: &HeldClaims) -> Rewrite {
    let mut rewrite = Rewrite::default();
    let mut beside = Vec::new();
    for (at, request) in list(&spec["devices"]["requests"]).iter().enumerate() {
        let Some(new) = held_claims.request(request, spec) else { continue };
        rewrite.warnings.extend(new.warning.map(|why| format!("request {}: {why}", text(&request["name"]))));
        if new.request != *request {
            let path = format!("/spec/devices/requests/{at}");
            rewrite.patch.push(json!({ "op": "replace", "path": path, "value": new.request }));
            beside.extend(new.beside);
        }
    }
    for part in ["constraints", "config"] {
        for (at, named) in names(spec, part).into_iter().enumerate() {
            let new = named_beside(named, &beside);
            if new.len() > named.len() {
                let path = format!("/spec/devices/{part}/{at}/requests");
                rewrite.patch.push(json!({ "op": "replace", "path": path, "value": new }));
            }
        }
    }
    rewrite
}

/// The requests that each constraint or each configuration names.
fn names<'a>(spec: &'a Value, part: &str) -> Vec<&'a [Value]> {
    list(&spec["devices"][part]).iter().map(|it| list(&it["requests"])).collect()
}

fn named_beside(named: &[Value], beside: &[(String, String)]) -> Vec<Value> {
    let also = |name: &Value| beside.iter().find(|(is, _)| *name == **is).map(|(_, other)| json!(other));
    named.iter().flat_map(|name| [Some(name.clone()), also(name)]).flatten().collect()
}

/// Other devices that a claim may get than kept ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Others {
    /// No other device.
    Never,
    /// Any other device, also together with kept ones.
    Mixed,
    /// Any other device, but not in one request with kept ones.
    Apart,
}

impl HeldClaims {
    fn others(&self, request: &Value) -> Others {
        let is_unrestricted = self.unrestricted.contains(text(&request["deviceClassName"]));
        match (self.policy, self.has_room) {
            (ReservationAllocatePolicy::Restricted, _) if is_unrestricted => Others::Mixed,
            (ReservationAllocatePolicy::Aligned, _) => Others::Mixed,
            (ReservationAllocatePolicy::Restricted, true) => Others::Never,
            (ReservationAllocatePolicy::Restricted, false) => Others::Apart,
        }
    }

    /// Rewrites a request; `None` if kept devices do not concern it.
    fn request(&self, request: &Value, spec: &Value) -> Option<NewRequest> {
        if request["exactly"].is_object() { self.exactly(request) } else { self.alternatives(request, spec) }
    }

    fn exactly(&self, request: &Value) -> Option<NewRequest> {
        let exactly = &request["exactly"];
        let can_select = *self.classes.get(text(&exactly["deviceClassName"]))?;
        if exactly["adminAccess"] == true {
            return None;
        }
        let new = |request, warning| Some(NewRequest { request, beside: Vec::new(), warning });
        let Some(tolerant) = self.tolerant(exactly) else { return new(request.clone(), Some(no_room())) };
        let problem = self.problem(exactly, can_select);
        let is_plain = exactly.as_object().is_some_and(|it| it.keys().all(|key| FIELDS.contains(&&**key)));
        let name = &request["name"];
        let either = |others: &Value| {
            let alternatives = [alternative(HELD, &self.selective(&tolerant)), alternative(ANY, others)];
            new(json!({ "name": name, "firstAvailable": alternatives }), None)
        };
        match (self.others(exactly), problem) {
            // The request means devices that are not kept as well.
            (Others::Mixed, Some(RewriteProblem::All)) => new(json!({ "name": name, "exactly": tolerant }), None),
            (Others::Apart, Some(_)) => None,
            (_, Some(problem)) => new(json!({ "name": name, "exactly": tolerant }), Some(problem.text())),
            (Others::Never, None) => new(json!({ "name": name, "exactly": self.selective(&tolerant) }), None),
            (Others::Mixed, None) if self.has_alternatives && is_plain => either(&tolerant),
            (Others::Apart, None) if self.has_alternatives && is_plain => either(exactly),
            (Others::Mixed, None) => {
                new(json!({ "name": name, "exactly": tolerant }), Some(RewriteProblem::NoAlternatives.text()))
            }
            (Others::Apart, None) => None,
        }
    }

    fn alternatives(&self, request: &Value, spec: &Value) -> Option<NewRequest> {
        let is = list(&request["firstAvailable"]);
        let is_kept = |it: &&Value| self.classes.contains_key(text(&it["deviceClassName"]));
        is.iter().find(is_kept)?;
        let (name, mut warning) = (text(&request["name"]), None);
        let (mut first, mut then, mut beside) = (Vec::new(), Vec::new(), Vec::new());
        for one in is {
            let Some(can_select) = self.classes.get(text(&one["deviceClassName"])) else {
                then.push(one.clone());
                continue;
            };
            let Some(tolerant) = self.tolerant(one) else {
                warning = Some(no_room());
                then.push(one.clone());
                continue;
            };
            match (self.others(one), self.problem(one, *can_select)) {
                (Others::Never, None) => then.push(self.selective(&tolerant)),
                (others @ (Others::Mixed | Others::Apart), None) => {
                    let held = format!("{HELD}-{}", text(&one["name"]));
                    beside.push((format!("{name}/{}", text(&one["name"])), format!("{name}/{held}")));
                    first.push(alternative(&held, &self.selective(&tolerant)));
                    then.push(if others == Others::Apart { one.clone() } else { tolerant });
                }
                (Others::Apart, Some(_)) => then.push(one.clone()),
                (_, Some(problem)) => {
                    warning = Some(problem.text());
                    then.push(tolerant);
                }
            }
        }
        if !fits(&first, &then, &beside, spec) {
            (first, beside) = (Vec::new(), Vec::new());
            let is_apart = is.iter().all(|one| self.others(one) == Others::Apart);
            warning = (!is_apart).then(|| RewriteProblem::TooMany.text());
        }
        first.extend(then);
        Some(NewRequest { request: json!({ "name": name, "firstAvailable": first }), beside, warning })
    }

    /// Returns the request with tolerations of kept devices; `None` where it has no room for them.
    fn tolerant(&self, of: &Value) -> Option<Value> {
        let toleration =
            |value: &String| json!({ "key": HELD_TAINT, "operator": "Equal", "value": value, "effect": "NoSchedule" });
        let (first, others) = self.values.split_first()?;
        let tolerant = with_one_more(of, "tolerations", toleration(first), MOST_TOLERATIONS)?;
        // The other values follow, as far as there is room.
        let more =
            |of: Value, value| with_one_more(&of, "tolerations", toleration(value), MOST_TOLERATIONS).unwrap_or(of);
        Some(others.iter().fold(tolerant, more))
    }

    /// Returns the request with a selector for kept devices only.
    fn selective(&self, of: &Value) -> Value {
        let (domain, id) = HELD_FOR_ATTRIBUTE.split_once('/').unwrap_or(("", HELD_FOR_ATTRIBUTE));
        let attribute = format!("device.attributes[{domain:?}].{id}");
        let is_kept = match &self.values[..] {
            [value] => format!("== {value:?}"),
            values => format!("in {values:?}"),
        };
        let expression = format!("has({attribute}) && {attribute} {is_kept}");
        let selector = json!({ "cel": { "expression": expression } });
        with_one_more(of, "selectors", selector, usize::MAX).unwrap_or_else(|| of.clone())
    }

    /// Returns the reason why a request cannot be restricted to kept devices.
    fn problem(&self, of: &Value, can_select: bool) -> Option<RewriteProblem> {
        if of["allocationMode"] == "All" {
            Some(RewriteProblem::All)
        } else if !can_select {
            Some(RewriteProblem::OtherDriver)
        } else {
            (list(&of["selectors"]).len() >= MOST_SELECTORS).then_some(RewriteProblem::Selectors)
        }
    }
}

/// The reason why a request only tolerates kept devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RewriteProblem {
    All,
    OtherDriver,
    Selectors,
    TooMany,
    NoAlternatives,
}

impl RewriteProblem {
    fn text(self) -> String {
        let why = match self {
            Self::All => "it asks for all devices of a node",
            Self::OtherDriver => "devices of other drivers do not say for whom they are kept",
            Self::Selectors => "it has no room for another selector",
            Self::TooMany => "it has no room for more alternatives",
            Self::NoAlternatives => "the API server takes no alternatives for certain before 1.36",
        };
        format!("{why}, so that it may be given what is kept or anything else")
    }
}

fn no_room() -> String {
    format!(
        "it has {MOST_TOLERATIONS} tolerations, and no room for that of what is kept; leave one out of the template"
    )
}

/// True if the API server accepts the alternatives.
fn fits(first: &[Value], then: &[Value], beside: &[(String, String)], spec: &Value) -> bool {
    let all: Vec<&str> = first.iter().chain(then).map(|it| text(&it["name"])).collect();
    let is_good = |name: &&str| name.len() <= 63 && all.iter().filter(|it| *it == name).count() == 1;
    let mut lists = ["constraints", "config"].into_iter().flat_map(|part| names(spec, part));
    all.len() <= MOST_ALTERNATIVES
        && all.iter().all(is_good)
        && lists.all(|named| named_beside(named, beside).len() <= MOST_REQUESTS)
}

/// Turns a request into one of several alternatives.
fn alternative(name: &str, exactly: &Value) -> Value {
    let fields = exactly.as_object().cloned().unwrap_or_default();
    let fields = fields.into_iter().filter(|(key, _)| key != "adminAccess" && key != "name");
    Value::Object([("name".to_owned(), json!(name))].into_iter().chain(fields).collect::<Map<String, Value>>())
}

fn with_one_more(of: &Value, field: &str, one: Value, most: usize) -> Option<Value> {
    let mut items = list(&of[field]).to_vec();
    if items.len() >= most {
        return None;
    }
    items.push(one);
    let mut new = of.clone();
    new[field] = Value::Array(items);
    Some(new)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
