//! A scheduler's part: picks devices for a claim from what is published, first fit in the order of the slices. Small,
//! but with the real one's rules, so that what it can allocate from, the real one can as well.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::Quantity;
use k8s_openapi::api::resource::v1::{Device, DeviceCapacity, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

/// A request for a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceWant {
    /// Name of the request, `main` or `main/sub`.
    pub request: String,
    /// Only this device; `None`: whichever comes first.
    pub device: Option<String>,
    /// Wanted amount of each capacity.
    pub capacity: BTreeMap<String, String>,
    /// True if the request accepts devices with taints.
    pub tolerant: bool,
    /// Administrative access: takes nothing.
    pub admin: bool,
}

impl DeviceWant {
    /// Any device that is free.
    pub fn any(request: &str) -> Self {
        Self { request: request.to_owned(), ..Self::default() }
    }

    /// Returns a request for this device.
    pub fn device(request: &str, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..Self::any(request) }
    }

    /// Returns a request for so much of this capacity of this device.
    pub fn part(request: &str, device: &str, capacity: &str, amount: &str) -> Self {
        Self { capacity: [(capacity.to_owned(), amount.to_owned())].into(), ..Self::device(request, device) }
    }
}

/// A device that a claim holds.
#[derive(Clone, Debug)]
struct HeldDevice {
    id: DeviceId,
    consumed: BTreeMap<String, Quantity>,
}

/// Driver, pool, device.
type DeviceId = (String, String, String);

/// A device in its pool.
struct PoolDevice<'a> {
    id: DeviceId,
    device: &'a Device,
}

/// The results of an allocation, as in `status.allocation.devices.results`; what is missing if there is none.
pub(crate) fn allocate(
    slices: &[ResourceSlice],
    claims: &[ResourceClaim],
    driver: &str,
    node: &str,
    wants: &[DeviceWant],
) -> Result<Vec<Value>, String> {
    let pools = pools(slices, driver, node)?;
    let offers: Vec<PoolDevice<'_>> = pools.iter().flat_map(|(pool, slices)| offers(driver, pool, slices)).collect();
    let mut taken: Vec<HeldDevice> = claims.iter().flat_map(taken).collect();
    let mut results = Vec::new();
    for want in wants {
        let mut reasons = BTreeSet::new();
        let fits = |offer: &&PoolDevice<'_>| match fit(offer, want, &taken, &pools, &offers) {
            Ok(()) => true,
            Err(reason) => {
                reasons.insert(reason);
                false
            }
        };
        let Some(offer) = offers.iter().find(fits) else {
            return Err(format!("request {}: no device fits: {reasons:?}", want.request));
        };
        let consumed = consumption(offer.device, want)?;
        results.push(result(offer, want, &consumed));
        if !want.admin {
            taken.push(HeldDevice { id: offer.id.clone(), consumed });
        }
    }
    Ok(results)
}

/// Slices of the complete pools of a node by pool, in the order of their names.
fn pools<'a>(
    slices: &'a [ResourceSlice],
    driver: &str,
    node: &str,
) -> Result<BTreeMap<String, Vec<&'a ResourceSlice>>, String> {
    let mut pools: BTreeMap<String, Vec<&ResourceSlice>> = BTreeMap::new();
    let on_node = |slice: &&ResourceSlice| slice.spec.driver == driver && slice.spec.node_name.as_deref() == Some(node);
    for slice in slices.iter().filter(on_node) {
        pools.entry(slice.spec.pool.name.clone()).or_default().push(slice);
    }
    for (name, slices) in &mut pools {
        let generation = slices.iter().map(|slice| slice.spec.pool.generation).max();
        slices.retain(|slice| Some(slice.spec.pool.generation) == generation);
        slices.sort_by_key(|slice| slice.metadata.name.clone());
        let count = slices.first().map_or(0, |slice| slice.spec.pool.resource_slice_count);
        if usize::try_from(count) != Ok(slices.len()) {
            return Err(format!("pool {name} is incomplete: {} of {count} slices", slices.len()));
        }
        let mut names = BTreeSet::new();
        let mut devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        if let Some(twice) = devices.find(|device| !names.insert(&device.name)) {
            return Err(format!("pool {name} is invalid: device {} stands there twice", twice.name));
        }
    }
    Ok(pools)
}

fn offers<'a>(driver: &str, pool: &str, slices: &[&'a ResourceSlice]) -> Vec<PoolDevice<'a>> {
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    devices.map(|device| PoolDevice { id: (driver.to_owned(), pool.to_owned(), device.name.clone()), device }).collect()
}

fn taken(claim: &ResourceClaim) -> Vec<HeldDevice> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.into_iter().flat_map(|devices| devices.results.iter().flatten());
    let uses = results.filter(|result| result.admin_access != Some(true));
    uses.map(|result| HeldDevice {
        id: (result.driver.clone(), result.pool.clone(), result.device.clone()),
        consumed: result
            .consumed_capacity
            .iter()
            .flatten()
            .map(|(name, amount)| (name.clone(), quantity(&amount.0)))
            .collect(),
    })
    .collect()
}

fn quantity(text: &str) -> Quantity {
    text.parse().expect("the API server lets quantities through only")
}

/// Checks that a device can be given; fails with the reason.
fn fit(
    offer: &PoolDevice<'_>,
    want: &DeviceWant,
    taken: &[HeldDevice],
    pools: &BTreeMap<String, Vec<&ResourceSlice>>,
    offers: &[PoolDevice<'_>],
) -> Result<(), String> {
    let name = &offer.device.name;
    if want.device.as_ref().is_some_and(|wanted| wanted != name) {
        return Err("another device is wanted".to_owned());
    }
    if want.admin {
        return Ok(());
    }
    let blocks = |effect: &str| effect == "NoSchedule" || effect == "NoExecute";
    if let Some(taint) = offer.device.taints.iter().flatten().find(|taint| !want.tolerant && blocks(&taint.effect)) {
        return Err(format!("{name} is tainted {}", taint.key));
    }
    let holders: Vec<&HeldDevice> = taken.iter().filter(|taken| taken.id == offer.id).collect();
    if offer.device.allow_multiple_allocations != Some(true) && !holders.is_empty() {
        return Err(format!("{name} is allocated"));
    }
    let consumed = consumption(offer.device, want)?;
    for (capacity, amount) in &consumed {
        let used = holders.iter().filter_map(|holder| holder.consumed.get(capacity));
        let sum = used.fold(*amount, |sum, used| sum.plus(*used));
        if sum > quantity(&offer.device.capacity.as_ref().expect("it is consumed")[capacity].value.0) {
            return Err(format!("{name} has not enough {capacity} left"));
        }
    }
    counters_left(offer, taken, pools, offers)
}

/// Returns the capacity that an allocation takes of a shared device: rounded up as its request policies say.
fn consumption(device: &Device, want: &DeviceWant) -> Result<BTreeMap<String, Quantity>, String> {
    if device.allow_multiple_allocations != Some(true) {
        return Ok(BTreeMap::new());
    }
    let capacities = device.capacity.iter().flatten();
    if let Some(unknown) = want.capacity.keys().find(|name| !capacities.clone().any(|(known, _)| known == *name)) {
        return Err(format!("{} has no capacity {unknown}", device.name));
    }
    capacities
        .map(|(name, capacity)| {
            let wanted = want.capacity.get(name).map(|amount| quantity(amount));
            Ok((name.clone(), amount(name, capacity, wanted)?))
        })
        .collect()
}

fn amount(name: &str, capacity: &DeviceCapacity, wanted: Option<Quantity>) -> Result<Quantity, String> {
    let Some(policy) = &capacity.request_policy else {
        return Ok(wanted.unwrap_or_else(|| quantity(&capacity.value.0)));
    };
    let default = policy.default.as_ref().map(|default| quantity(&default.0));
    let Some(wanted) = wanted.or(default) else { return Err(format!("{name} has a policy without a default")) };
    if let Some(values) = &policy.valid_values {
        let fitting = values.iter().map(|value| quantity(&value.0)).find(|value| *value >= wanted);
        return fitting.ok_or_else(|| format!("no valid value of {name} is large enough"));
    }
    let Some(range) = &policy.valid_range else { return Ok(wanted) };
    let least = quantity(&range.min.0);
    let raised = wanted.max(least);
    let stepped = range.step.as_ref().map_or(raised, |step| raised.round_up(least, quantity(&step.0)));
    match &range.max {
        Some(max) if stepped > quantity(&max.0) => Err(format!("{name} goes up to {} only", max.0)),
        _ => Ok(stepped),
    }
}

/// Checks that the shared counters of the pool are enough for one more of the device.
fn counters_left(
    offer: &PoolDevice<'_>,
    taken: &[HeldDevice],
    pools: &BTreeMap<String, Vec<&ResourceSlice>>,
    offers: &[PoolDevice<'_>],
) -> Result<(), String> {
    let sets = pools[&offer.id.1].iter().flat_map(|slice| slice.spec.shared_counters.iter().flatten());
    let sets: BTreeMap<&str, _> = sets.map(|set| (&*set.name, set)).collect();
    let users =
        offers.iter().filter(|other| other.id.1 == offer.id.1 && taken.iter().any(|taken| taken.id == other.id));
    let users: Vec<&Device> = users.map(|other| other.device).collect();
    for consumption in offer.device.consumes_counters.iter().flatten() {
        let set =
            sets.get(&*consumption.counter_set).ok_or_else(|| format!("no counter set {}", consumption.counter_set))?;
        for (counter, wanted) in &consumption.counters {
            let total = set.counters.get(counter).ok_or_else(|| format!("no counter {counter}"))?;
            let all = users.iter().flat_map(|user| user.consumes_counters.iter().flatten());
            let same = all.filter(|other| other.counter_set == consumption.counter_set);
            let used = same.filter_map(|other| other.counters.get(counter));
            let sum = used.fold(quantity(&wanted.value.0), |sum, used| sum.plus(quantity(&used.value.0)));
            if sum > quantity(&total.value.0) {
                return Err(format!("{} needs more {counter} than is left", offer.device.name));
            }
        }
    }
    Ok(())
}

fn result(offer: &PoolDevice<'_>, want: &DeviceWant, consumed: &BTreeMap<String, Quantity>) -> Value {
    let (driver, pool, device) = &offer.id;
    let mut result = json!({"request": want.request, "driver": driver, "pool": pool, "device": device});
    if want.admin {
        result["adminAccess"] = json!(true);
    }
    if want.tolerant {
        result["tolerations"] = json!([{"operator": "Exists"}]);
    }
    if offer.device.allow_multiple_allocations == Some(true) {
        result["shareID"] = json!(uuid::Uuid::new_v4().to_string());
        let amounts: BTreeMap<&String, String> =
            consumed.iter().map(|(name, amount)| (name, amount.to_string())).collect();
        result["consumedCapacity"] = json!(amounts);
    }
    for (field, conditions) in [
        ("bindingConditions", &offer.device.binding_conditions),
        ("bindingFailureConditions", &offer.device.binding_failure_conditions),
    ] {
        if let Some(conditions) = conditions {
            result[field] = json!(conditions);
        }
    }
    result
}
