//! Random nodes, and what selects them.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{chance, one_of, weighted};

pub(super) fn node(rng: &mut Rng) -> Value {
    let mut labels = json!({"zone": one_of(rng, &["east", "east", "west"]), "rank": one_of(rng, &["5", "5", "five"])});
    if chance(rng, 30) {
        labels["empty"] = json!("");
    }
    json!({"metadata": {"name": "n1", "labels": labels}})
}

/// One term as a rule, since results cannot hold more; rarely one that means nothing.
pub(super) fn selector(rng: &mut Rng) -> Value {
    let terms = weighted(rng, &[(97, 1), (2, 2), (1, 0)]);
    json!({"nodeSelectorTerms": (0..terms).map(|_| term(rng)).collect::<Vec<_>>()})
}

fn term(rng: &mut Rng) -> Value {
    if chance(rng, 60) {
        return json!({"matchExpressions": [zone(rng)]});
    }
    let mut term = json!({});
    let expressions: Vec<Value> = (0..weighted(rng, &[(1, 0), (6, 1), (3, 2)])).map(|_| expression(rng)).collect();
    if !expressions.is_empty() {
        term["matchExpressions"] = json!(expressions);
    }
    if chance(rng, 20) {
        let operator = one_of(rng, &["In", "NotIn"]);
        let names = one_of(rng, &[&["n1"][..], &["n2"], &["n1"]]);
        term["matchFields"] = json!([{"key": "metadata.name", "operator": operator, "values": names}]);
    }
    term
}

fn zone(rng: &mut Rng) -> Value {
    let zones = one_of(rng, &[&["east"][..], &["west"], &["east", "west"], &["west", "east"]]);
    json!({"key": "zone", "operator": "In", "values": zones})
}

fn expression(rng: &mut Rng) -> Value {
    let key = one_of(rng, &["zone", "rank", "empty", "absent"]);
    match rng.u32(..40) {
        0..10 => zone(rng),
        10..16 => json!({"key": key, "operator": "NotIn", "values": [one_of(rng, &["east", "5", ""])]}),
        16..22 => json!({"key": key, "operator": "Exists"}),
        22..28 => json!({"key": key, "operator": "DoesNotExist"}),
        28..33 => json!({"key": key, "operator": "Gt", "values": [one_of(rng, &["4", "5", "-1"])]}),
        33..38 => json!({"key": key, "operator": "Lt", "values": [one_of(rng, &["6", "5"])]}),
        38 => json!({"key": key, "operator": one_of(rng, &["Near", "In", "Gt"])}),
        _ => json!({"key": key, "operator": "Gt", "values": [one_of(rng, &["four", "1.5"])]}),
    }
}
