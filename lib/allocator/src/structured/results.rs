//! The solution of a search as API objects.

use hostler_api::{
    core::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
    resource::{
        AllocationConfigSource, AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
        DeviceRequestAllocationResult, OpaqueDeviceConfiguration,
    },
};

use super::{
    claims::CompiledClaim,
    fatal::Fatal,
    node::NodeDevice,
    quirks::Quirk,
    search::{Chosen, Search},
    share_id::share_id,
    version::Feature,
};

impl Search<'_, '_> {
    /// Returns the allocation of each claim.
    pub(super) fn results(&self) -> Result<Vec<AllocationResult>, Fatal> {
        self.compiled.claims.iter().enumerate().map(|(at, claim)| self.result(at, claim)).collect()
    }

    fn result(&self, at: usize, claim: &CompiledClaim<'_>) -> Result<AllocationResult, Fatal> {
        let chosen: Vec<Chosen> = self.chosen.iter().filter(|chosen| chosen.claim == at).copied().collect();
        let results = chosen.iter().enumerate().map(|(at, chosen)| self.device_result(claim, at, *chosen)).collect();
        let config = self.config(claim, &self.alternatives_of(claim, &chosen));
        Ok(AllocationResult {
            devices: DeviceAllocationResult { results, config },
            node_selector: self.node_selector(&chosen)?,
            allocation_timestamp: None,
        })
    }

    fn device_result(&self, claim: &CompiledClaim<'_>, at: usize, chosen: Chosen) -> DeviceRequestAllocationResult {
        let alternative = &self.compiled.alternatives[chosen.alternative];
        let device = &self.pools.devices[chosen.device];
        let mut result = DeviceRequestAllocationResult {
            request: alternative.name.clone().into_owned(),
            driver: device.slice.driver.clone(),
            pool: device.slice.pool.name.clone(),
            device: device.device.name.to_string(),
            admin_access: alternative.is_admin.then_some(true),
            ..DeviceRequestAllocationResult::default()
        };
        if !self.quirks.has(Quirk::NoTolerationsInResults) {
            result.tolerations = alternative.tolerations.to_vec();
        }
        if self.features.has(Feature::DeviceBindingConditions) && !self.quirks.has(Quirk::NoConsumableCapacity) {
            result.binding_conditions.clone_from(&device.device.binding_conditions);
            result.binding_failure_conditions.clone_from(&device.device.binding_failure_conditions);
        }
        if self.is_shared(chosen.device) {
            let uid = claim.claim.metadata.uid.as_deref();
            result.share_id = Some(share_id(uid.unwrap_or(&claim.full_name()), at));
            result.consumed_capacity = self.capacity.consumed(alternative.capacity, chosen.device);
        }
        result
    }

    /// Returns the alternative that was chosen for each request. An alternative without devices leaves no trace.
    fn alternatives_of(&self, claim: &CompiledClaim<'_>, chosen: &[Chosen]) -> Vec<usize> {
        let alternative = |(at, request): (usize, &super::claims::CompiledRequest<'_>)| {
            let chosen = chosen.iter().find(|chosen| chosen.request == at).map(|chosen| chosen.alternative);
            chosen.unwrap_or(self.without_devices(request.alternatives.clone()))
        };
        claim.requests.iter().enumerate().map(alternative).collect()
    }

    fn without_devices(&self, mut alternatives: std::ops::Range<usize>) -> usize {
        let first = alternatives.start;
        alternatives.find(|at| self.compiled.alternatives[*at].count.is_some_and(|count| count <= 0)).unwrap_or(first)
    }

    /// Returns the configuration from classes and from the claim, for the alternatives that were chosen.
    fn config(&self, claim: &CompiledClaim<'_>, chosen: &[usize]) -> Vec<DeviceAllocationConfiguration> {
        let mut config = self.class_config(chosen);
        let per_request = self.quirks.has(Quirk::ConfigPerRequest);
        let names = || self.names(claim, chosen);
        for own in &claim.claim.spec.devices.config {
            let about = names().filter(|(request, alternative)| is_named(&own.requests, request, alternative)).count();
            let times = if own.requests.is_empty() || (about > 0 && !per_request) { 1 } else { about };
            for _ in 0..times {
                config.push(configured(AllocationConfigSource::FromClaim, own.requests.clone(), own.opaque.as_ref()));
            }
        }
        if !per_request {
            for config in &mut config {
                if names().all(|(request, alternative)| is_named(&config.requests, request, alternative)) {
                    config.requests.clear();
                }
            }
        }
        config
    }

    /// Returns the configuration of each class once, for all requests that chose it.
    fn class_config(&self, chosen: &[usize]) -> Vec<DeviceAllocationConfiguration> {
        let mut config = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for at in chosen {
            let class = self.compiled.alternatives[*at].class;
            if class.spec.config.is_empty() || seen.contains(&&*class.metadata.name) {
                continue;
            }
            seen.push(&class.metadata.name);
            let alternatives = chosen.iter().map(|at| &self.compiled.alternatives[*at]);
            let requests = alternatives.filter(|it| it.class.metadata.name == class.metadata.name);
            let requests: Vec<String> = requests.map(|it| it.name.clone().into_owned()).collect();
            let configs = class.spec.config.iter();
            config.extend(
                configs.map(|own| configured(AllocationConfigSource::FromClass, requests.clone(), own.opaque.as_ref())),
            );
        }
        config
    }

    /// Returns the names of requests and of the alternatives that were chosen for them.
    fn names<'s>(
        &'s self,
        claim: &'s CompiledClaim<'_>,
        chosen: &'s [usize],
    ) -> impl Iterator<Item = (&'s str, &'s str)> {
        let alternatives = chosen.iter().map(|at| &*self.compiled.alternatives[*at].name);
        claim.requests.iter().map(|request| request.name).zip(alternatives)
    }

    /// Returns the selector of the nodes on which the devices of a claim can be used.
    fn node_selector(&self, chosen: &[Chosen]) -> Result<Option<NodeSelector>, Fatal> {
        let mut term = NodeSelectorTerm::default();
        for chosen in chosen {
            let device = &self.pools.devices[chosen.device];
            let (name, selector) = allowed_nodes(device);
            let binds = device.device.binds_to_node && !self.quirks.has(Quirk::NoBindsToNode);
            if name || binds {
                return Ok(Some(NodeSelector::of_node(self.pools.node.name)));
            }
            let Some(selector) = selector else { continue };
            match &selector.node_selector_terms[..] {
                [] => {}
                [only] => {
                    add_new(&only.match_fields, &mut term.match_fields);
                    add_new(&only.match_expressions, &mut term.match_expressions);
                }
                terms => return Err(Fatal::SelectorTerms { device: device.full_name(), terms: terms.len() }),
            }
        }
        let is_anywhere = term == NodeSelectorTerm::default();
        Ok((!is_anywhere).then(|| NodeSelector { node_selector_terms: vec![term] }))
    }
}

/// Returns true if the device is for one node, and its selector of nodes.
fn allowed_nodes<'a>(device: &NodeDevice<'a>) -> (bool, Option<&'a NodeSelector>) {
    if device.slice.per_device_node_selection == Some(true) {
        (device.device.node_name.is_some(), device.device.node_selector.as_deref())
    } else {
        (device.slice.node_name.is_some(), device.slice.node_selector.as_deref())
    }
}

/// Adds requirements that are not there yet; the order of values makes no difference.
fn add_new(from: &[NodeSelectorRequirement], to: &mut Vec<NodeSelectorRequirement>) {
    let has_all = |one: &[String], other: &[String]| one.iter().all(|value| other.contains(value));
    for new in from {
        let is_known = to.iter().any(|known| {
            (&known.key, &known.operator) == (&new.key, &new.operator)
                && has_all(&known.values, &new.values)
                && has_all(&new.values, &known.values)
        });
        if !is_known {
            to.push(new.clone());
        }
    }
}

fn is_named(names: &[String], request: &str, alternative: &str) -> bool {
    names.iter().any(|name| name == request || name == alternative)
}

fn configured(
    source: AllocationConfigSource,
    requests: Vec<String>,
    opaque: Option<&OpaqueDeviceConfiguration>,
) -> DeviceAllocationConfiguration {
    DeviceAllocationConfiguration { source, requests, opaque: opaque.cloned() }
}
