//! Classes and parameters, and the requests of claims that follow from them.

use std::{cell::OnceCell, collections::BTreeMap};

use hostler_allocator::structured::Allocator;
use hostler_api::{
    KubernetesVersion,
    classic::{
        CLAIM_PARAMETERS_KIND, CLASS_PARAMETERS_KIND, ClaimParametersSpec, ClassParametersSpec,
        ClassicParametersReference, ParameterRequest, ParametersMistake, check_configs,
    },
    core::{NodeSelector, ObjectMeta},
    did_you_mean, few,
    hardware::GROUP as PARAMETERS_GROUP,
    resource::{DeviceClaim, DeviceClass, DeviceClassSpec, GROUP},
};

use super::{
    dialect::CONFIG,
    model::{ClaimContent, ClassContent, ClassicClaim, ClassicClass, Parameters, ParametersKey},
    terms::{ClaimTerms, heed_request_configs, requests},
};

/// Slices have the fields of 1.37, whatever release the API server is of.
pub(super) const ALLOCATOR_VERSION: KubernetesVersion = KubernetesVersion::V1_37;

/// The only request of a claim without parameters.
const ONLY_REQUEST: &str = "device";

/// Classes and parameters.
#[derive(Debug)]
pub(super) struct Catalogue {
    driver: String,
    /// Device classes of hostler's deployment, for parameters to name.
    usual: BTreeMap<String, DeviceClass>,
    classes: BTreeMap<String, ClassicClass>,
    parameters: BTreeMap<ParametersKey, Result<Box<Parameters>, ParametersMistake>>,
    /// The allocator for these classes. It is built anew after each change.
    allocator: OnceCell<Allocator>,
}

impl Catalogue {
    pub(super) fn new(driver: &str, usual: impl IntoIterator<Item = DeviceClass>) -> Self {
        let usual = usual.into_iter().map(|class| (class.metadata.name.clone(), class)).collect();
        let (classes, parameters) = (BTreeMap::new(), BTreeMap::new());
        Self { driver: driver.to_owned(), usual, classes, parameters, allocator: OnceCell::new() }
    }

    /// Stores or removes a class. Returns true if that changes anything.
    pub(super) fn set_class(&mut self, name: String, class: Option<ClassicClass>) -> bool {
        self.allocator = OnceCell::new();
        replace(&mut self.classes, name, class)
    }

    /// Stores or removes parameters. Returns true if that changes anything.
    pub(super) fn set_parameters(
        &mut self,
        key: ParametersKey,
        parameters: Option<Result<Box<Parameters>, ParametersMistake>>,
    ) -> bool {
        self.allocator = OnceCell::new();
        replace(&mut self.parameters, key, parameters)
    }

    /// Returns the allocator, with all classes as claims of today name them.
    pub(super) fn allocator(&self) -> &Allocator {
        self.allocator.get_or_init(|| Allocator::for_version(ALLOCATOR_VERSION, self.device_classes()))
    }

    /// Returns our classes that say which nodes suit them.
    pub(super) fn classes_with_nodes(&self) -> impl Iterator<Item = (&str, &NodeSelector)> {
        let ours = self.classes.values().filter(|class| self.is_class_ours(class));
        ours.filter_map(|class| Some((&*class.name, class.suitable_nodes.as_ref()?)))
    }

    /// Returns true if the class is for our driver. A DeviceClass is for every driver.
    fn is_class_ours(&self, class: &ClassicClass) -> bool {
        match &class.content {
            ClassContent::Device(_) => true,
            ClassContent::Resource { driver, is_structured, .. } => *driver == self.driver && !is_structured,
        }
    }

    fn device_classes(&self) -> Vec<DeviceClass> {
        self.classes.values().flat_map(|class| self.device_classes_of(class)).collect()
    }

    fn device_classes_of(&self, class: &ClassicClass) -> Vec<DeviceClass> {
        let (driver, parameters) = match &class.content {
            ClassContent::Device(device) => return vec![(**device).clone()],
            ClassContent::Resource { driver, parameters, .. } => (driver, parameters),
        };
        let Ok(own) = self.class_parameters(parameters.as_ref()) else { return Vec::new() };
        if *driver != self.driver {
            return Vec::new();
        }
        let with = |usual: &DeviceClass| named(&full_name(&class.name, &usual.metadata.name), Some(usual), &own);
        let mut classes = vec![named(&class.name, None, &own)];
        classes.extend(self.usual.values().map(with));
        classes
    }

    /// Returns true if our driver allocates the claim.
    pub(super) fn is_ours(&self, claim: &ClassicClaim) -> bool {
        match &claim.content {
            ClaimContent::Devices { controller, .. } => *controller == self.driver,
            ClaimContent::Class { class, .. } => self.classes.get(class).is_some_and(|class| self.is_class_ours(class)),
        }
    }

    /// Returns the terms of a claim of ours, from its devices or from its class and parameters.
    pub(super) fn terms(&self, claim: &ClassicClaim) -> Result<ClaimTerms, ParametersMistake> {
        match &claim.content {
            ClaimContent::Devices { devices, .. } => self.terms_of_devices(claim, devices),
            ClaimContent::Class { class, parameters, .. } => self.terms_of_class(claim, class, parameters.as_ref()),
        }
    }

    fn terms_of_devices(&self, claim: &ClassicClaim, devices: &DeviceClaim) -> Result<ClaimTerms, ParametersMistake> {
        let mut terms = ClaimTerms::new(claim, devices.clone());
        heed_request_configs(&mut terms, &self.driver)?;
        for (at, request) in devices.requests.iter().enumerate() {
            let Some(exactly) = &request.exactly else { continue };
            let name = &exactly.device_class_name;
            let Some(class) = self.classes.get(name) else {
                let near = did_you_mean(name, self.classes.keys().cloned());
                let problem = format!("there is no DeviceClass {name:?}; create it, or make the claim anew{near}");
                return Err(ParametersMistake::new(format!("spec.devices.requests[{at}].deviceClassName"), problem));
            };
            self.check_device_class(class)?;
            terms.suitable_nodes.extend(class.suitable_nodes.clone());
        }
        Ok(terms)
    }

    fn check_device_class(&self, class: &ClassicClass) -> Result<(), ParametersMistake> {
        let ClassContent::Device(device) = &class.content else { return Ok(()) };
        let configs = device.spec.config.iter().map(|config| config.opaque.as_ref());
        check_configs(&self.driver, CONFIG, configs).map_err(|mistake| {
            ParametersMistake::new(format!("{} of DeviceClass {}", mistake.field, class.name), mistake.problem)
        })
    }

    fn terms_of_class(
        &self,
        claim: &ClassicClaim,
        class: &str,
        parameters: Option<&ClassicParametersReference>,
    ) -> Result<ClaimTerms, ParametersMistake> {
        let Some(class) = self.classes.get(class) else {
            let problem = format!("there is no ResourceClass {class:?}; create it, or make the claim anew");
            return Err(ParametersMistake::new("spec.resourceClassName", problem));
        };
        let ClassContent::Resource { parameters: of_class, .. } = &class.content else {
            return Err(ParametersMistake::new(
                "spec.resourceClassName",
                "it names no ResourceClass; make the claim anew",
            ));
        };
        let of_class = self.class_parameters(of_class.as_ref()).map_err(|mistake| {
            ParametersMistake::new(format!("parametersRef of ResourceClass {}", class.name), mistake.to_string())
        })?;
        let asked = self.claim_parameters(claim, parameters)?;
        let requests = requests(&asked.requests, |at, request| self.class_of(class, &of_class, at, request))?;
        let devices = DeviceClaim { requests, constraints: asked.constraints.clone(), config: asked.config.clone() };
        let mut terms = ClaimTerms::new(claim, devices);
        terms.optional = asked.requests.iter().filter(|it| it.optional).map(|it| it.name.clone()).collect();
        terms.is_shareable = asked.shareable;
        terms.suitable_nodes.extend(class.suitable_nodes.clone());
        Ok(terms)
    }

    /// Returns the name under which the allocator knows the class that a request of parameters names.
    fn class_of(
        &self,
        class: &ClassicClass,
        of_class: &ClassParametersSpec,
        at: usize,
        request: &ParameterRequest,
    ) -> Result<String, ParametersMistake> {
        let wrong = |problem| Err(ParametersMistake::new(format!("spec.requests[{at}].deviceClassName"), problem));
        let name = &*request.devices.device_class_name;
        if name.is_empty() && of_class.selectors.is_empty() && request.devices.selectors.is_empty() {
            let known = few(self.usual.keys());
            return wrong(format!(
                "neither it nor the parameters of ResourceClass {} say which devices; write one of {known}",
                class.name
            ));
        }
        if name.is_empty() {
            return Ok(class.name.clone());
        }
        if !self.usual.contains_key(name) {
            let near = did_you_mean(name, self.usual.keys().cloned());
            return wrong(format!("hostler has no device class {name:?}; write one that it has{near}"));
        }
        Ok(full_name(&class.name, name))
    }

    fn claim_parameters(
        &self,
        claim: &ClassicClaim,
        reference: Option<&ClassicParametersReference>,
    ) -> Result<ClaimParametersSpec, ParametersMistake> {
        let Some(reference) = reference else { return Ok(one_device()) };
        let key = ParametersKey::new(reference, &claim.key.namespace);
        self.known_parameters(&key, CLAIM_PARAMETERS_KIND, |parameters| match parameters {
            Parameters::Claim(parameters) => Some(parameters),
            Parameters::Class(_) => None,
        })
    }

    fn class_parameters(
        &self,
        reference: Option<&ClassicParametersReference>,
    ) -> Result<ClassParametersSpec, ParametersMistake> {
        let Some(reference) = reference else { return Ok(ClassParametersSpec::default()) };
        let key = ParametersKey::new(reference, "");
        self.known_parameters(&key, CLASS_PARAMETERS_KIND, |parameters| match parameters {
            Parameters::Class(parameters) => Some(parameters),
            Parameters::Claim(_) => None,
        })
    }

    fn known_parameters<T: Clone>(
        &self,
        key: &ParametersKey,
        kind: &str,
        of_kind: impl Fn(&Parameters) -> Option<&T>,
    ) -> Result<T, ParametersMistake> {
        match self.parameters.get(key) {
            Some(Ok(parameters)) => of_kind(parameters).cloned().ok_or_else(|| wrong_kind(key, kind)),
            Some(Err(mistake)) => Err(of_object(key, mistake)),
            None => Err(missing(key, kind)),
        }
    }
}

/// Stores or removes a value. Returns true if that changes anything.
pub(super) fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    if map.get(&key) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
    true
}

fn full_name(class: &str, device_class: &str) -> String {
    format!("{class}/{device_class}")
}

/// Returns a device class with the additions of a ResourceClass's parameters.
fn named(name: &str, usual: Option<&DeviceClass>, own: &ClassParametersSpec) -> DeviceClass {
    let mut spec = usual.map(|usual| usual.spec.clone()).unwrap_or_default();
    spec.selectors.extend_from_slice(&own.selectors);
    spec.config.extend_from_slice(&own.config);
    let metadata = ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() };
    DeviceClass { metadata, spec: DeviceClassSpec { extended_resource_name: None, ..spec } }
}

fn one_device() -> ClaimParametersSpec {
    let request = ParameterRequest { name: ONLY_REQUEST.to_owned(), ..ParameterRequest::default() };
    ClaimParametersSpec { requests: vec![request], ..ClaimParametersSpec::default() }
}

fn missing(key: &ParametersKey, kind: &str) -> ParametersMistake {
    if ![PARAMETERS_GROUP, GROUP].contains(&&*key.group) {
        let problem = format!(
            "{:?} is not hostler's API group, and nothing is generated from {key}; name a {kind} of {PARAMETERS_GROUP}",
            key.group
        );
        return ParametersMistake::new("spec.parametersRef.apiGroup", problem);
    }
    let problem = if key.kind == kind {
        format!("there is no {key}; create it")
    } else {
        format!("there is no {key} that can be understood; name a {kind} of hostler.dev")
    };
    ParametersMistake::new("spec.parametersRef", problem)
}

fn wrong_kind(key: &ParametersKey, kind: &str) -> ParametersMistake {
    ParametersMistake::new(
        "spec.parametersRef.kind",
        format!("{key} cannot be named here; name a {kind} of hostler.dev"),
    )
}

fn of_object(key: &ParametersKey, mistake: &ParametersMistake) -> ParametersMistake {
    ParametersMistake::new(format!("{} of {key}", mistake.field), mistake.problem.clone())
}
