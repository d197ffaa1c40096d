//! Parameters of 1.30, as requests of today.

use hostler_api::{
    classic::{
        ClaimParametersSpec, ClassParametersSpec, NamedResourcesRequest, ParameterRequest, ParametersMistake,
        ResourceClaimParameters, ResourceClassParameters, check_config,
    },
    resource::{
        CelDeviceSelector, DeviceClaimConfiguration, DeviceClassConfiguration, DeviceSelector, ExactDeviceRequest,
        GROUP, OpaqueDeviceConfiguration,
    },
};
use serde_json::Value;
use serde_path_to_error::deserialize;

use super::read_parameters::{ReadParameters, own_key, unreadable};
use crate::classic::model::{Parameters, ParametersKey};

const CLAIM_KIND: &str = "ResourceClaimParameters";
const CLASS_KIND: &str = "ResourceClassParameters";

/// Names that selectors of 1.30 use, and the names of today.
const SELECTOR_NAMES: [(&str, &str); 7] = [
    ("attributes.quantity", "capacity"),
    ("attributes.bool", "attributes"),
    ("attributes.intslice", "attributes"),
    ("attributes.int", "attributes"),
    ("attributes.stringslice", "attributes"),
    ("attributes.string", "attributes"),
    ("attributes.version", "attributes"),
];

/// Returns parameters of 1.30's own kinds; `None` if the kind is none of these.
pub(super) fn parameters(driver: &str, kind: &str, object: &Value) -> Option<ReadParameters> {
    let own = own_key(GROUP, kind, object);
    match kind {
        CLAIM_KIND => Some(match deserialize(object) {
            Ok(read) => of_claim(driver, own, &read),
            Err(error) => (own, Err(unreadable(&error))),
        }),
        CLASS_KIND => Some(match deserialize(object) {
            Ok(read) => of_class(driver, own, &read),
            Err(error) => (own, Err(unreadable(&error))),
        }),
        _ => None,
    }
}

fn of_claim(driver: &str, own: ParametersKey, read: &ResourceClaimParameters) -> ReadParameters {
    let ours = read.driver_requests.iter().filter(|requests| requests.driver_name == driver);
    let mut spec = ClaimParametersSpec { shareable: read.shareable, ..ClaimParametersSpec::default() };
    for requests in ours {
        spec.config.extend(config(driver, Vec::new(), &requests.vendor_parameters));
        for asked in &requests.requests {
            let name = format!("request-{}", spec.requests.len());
            spec.config.extend(config(driver, vec![name.clone()], &asked.vendor_parameters));
            let selectors = selector(driver, asked.named_resources.as_ref()).into_iter().collect();
            let devices = ExactDeviceRequest { selectors, ..ExactDeviceRequest::default() };
            spec.requests.push(ParameterRequest { name, optional: false, devices });
        }
    }
    let key = key(own, read.generated_from.as_ref(), &read.metadata.namespace);
    let is_something = spec.check().map_err(|mistake| ParametersMistake::new("driverRequests", mistake.problem));
    let is_understood = is_something.and_then(|()| check_vendor_parameters(driver, read));
    (key, is_understood.map(|()| Box::new(Parameters::Claim(spec))))
}

fn check_vendor_parameters(driver: &str, read: &ResourceClaimParameters) -> Result<(), ParametersMistake> {
    for (at, requests) in read.driver_requests.iter().enumerate().filter(|(_, it)| it.driver_name == driver) {
        let path = format!("driverRequests[{at}]");
        check_if_any(&requests.vendor_parameters, &format!("{path}.vendorParameters"))?;
        for (at, asked) in requests.requests.iter().enumerate() {
            check_if_any(&asked.vendor_parameters, &format!("{path}.requests[{at}].vendorParameters"))?;
        }
    }
    Ok(())
}

fn check_if_any(parameters: &Value, path: &str) -> Result<(), ParametersMistake> {
    if parameters.is_null() { Ok(()) } else { check_config(parameters, path) }
}

fn of_class(driver: &str, own: ParametersKey, read: &ResourceClassParameters) -> ReadParameters {
    let filters = read.filters.iter().filter(|filter| filter.driver_name == driver);
    let selectors = filters.filter_map(|filter| selector(driver, filter.named_resources.as_ref()));
    let vendor = read.vendor_parameters.iter().filter(|vendor| vendor.driver_name == driver);
    let config = vendor.map(|vendor| DeviceClassConfiguration { opaque: Some(opaque(driver, &vendor.parameters)) });
    let spec = ClassParametersSpec { selectors: selectors.collect(), config: config.collect() };
    let key = key(own, read.generated_from.as_ref(), &read.metadata.namespace);
    let mut vendor = read.vendor_parameters.iter().enumerate().filter(|(_, vendor)| vendor.driver_name == driver);
    let check =
        vendor.try_for_each(|(at, it)| check_config(&it.parameters, &format!("vendorParameters[{at}].parameters")));
    (key, check.map(|()| Box::new(Parameters::Class(spec))))
}

/// Returns the key of the object that the parameters were made from, if there is one: claims and classes name that
/// object.
fn key(
    own: ParametersKey,
    from: Option<&hostler_api::classic::ClassicParametersReference>,
    namespace: &str,
) -> ParametersKey {
    from.map_or(own, |from| ParametersKey::new(from, namespace))
}

fn config(driver: &str, requests: Vec<String>, parameters: &Value) -> Option<DeviceClaimConfiguration> {
    let opaque = (!parameters.is_null()).then(|| opaque(driver, parameters))?;
    Some(DeviceClaimConfiguration { requests, opaque: Some(opaque) })
}

fn opaque(driver: &str, parameters: &Value) -> OpaqueDeviceConfiguration {
    OpaqueDeviceConfiguration { driver: driver.to_owned(), parameters: parameters.clone() }
}

fn selector(driver: &str, asked: Option<&NamedResourcesRequest>) -> Option<DeviceSelector> {
    let expression = today(driver, &asked?.selector);
    Some(DeviceSelector { cel: Some(CelDeviceSelector { expression }) })
}

/// Translates a selector of 1.30 into the names of today. Text in quotes is left alone.
fn today(driver: &str, selector: &str) -> String {
    let (mut out, mut rest, mut quote, mut before) = (String::new(), selector, None, ' ');
    while let Some(next) = rest.chars().next() {
        let is_start = quote.is_none() && !before.is_alphanumeric() && before != '_' && before != '.';
        let word = SELECTOR_NAMES.iter().find(|(word, _)| is_start && rest.starts_with(word));
        if let Some((word, name)) = word {
            out.push_str(&format!("device.{name}[\"{driver}\"]"));
            (rest, before) = (&rest[word.len()..], 't');
            continue;
        }
        quote = match quote {
            None if next == '"' || next == '\'' => Some(next),
            Some(open) if next == open && before != '\\' => None,
            open => open,
        };
        out.push(next);
        (rest, before) = (&rest[next.len_utf8()..], next);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_kind(kind: &str) -> Value {
        json!({"apiVersion": "hostler.dev/v1alpha1", "kind": kind})
    }

    #[test]
    fn selectors_of_1_30_are_written_as_today() {
        let old = r#"attributes.quantity["memory"].isGreaterThan(quantity("1Gi")) && "numa" in attributes.int"#;
        let new =
            r#"device.capacity["d"]["memory"].isGreaterThan(quantity("1Gi")) && "numa" in device.attributes["d"]"#;
        assert_eq!(today("d", old), new);
        let quoted = r#"attributes.string["x"] == "attributes.int" && my.attributes.int == 'a\'attributes.bool'"#;
        let new = r#"device.attributes["d"]["x"] == "attributes.int" && my.attributes.int == 'a\'attributes.bool'"#;
        assert_eq!(today("d", quoted), new);
    }

    #[test]
    fn parameters_go_by_the_name_of_what_they_were_made_from() {
        let object = json!({
            "metadata": {"name": "made", "namespace": "n"}, "shareable": true,
            "generatedFrom": {"apiGroup": "v.example", "kind": "Wish", "name": "mine"},
            "driverRequests": [
                {"driverName": "other", "requests": [{}]},
                {"driverName": "d", "vendorParameters": of_kind("CpuConfig"), "requests": [
                    {"namedResources": {"selector": "attributes.bool[\"fast\"]"}}, {"vendorParameters": of_kind("MemoryConfig")}]},
            ],
        });
        let (key, read) = parameters("d", CLAIM_KIND, &object).unwrap();
        assert_eq!(key.to_string(), "Wish n/mine");
        let Parameters::Claim(spec) = *read.unwrap() else { panic!("of a claim") };
        assert_eq!(spec.requests.len(), 2);
        assert_eq!(spec.config.len(), 2);
        assert_eq!(spec.config[1].requests, ["request-1"]);
    }

    #[test]
    fn a_class_has_the_filters_and_the_configuration_that_are_for_the_driver() {
        let filter =
            |driver: &str, selector: &str| json!({"driverName": driver, "namedResources": {"selector": selector}});
        let vendor = |driver: &str| json!({"driverName": driver, "parameters": of_kind("FpgaConfig")});
        let object = json!({
            "metadata": {"name": "made", "namespace": "n"}, "vendorParameters": [vendor("other"), vendor("d")],
            "filters": [filter("d", "attributes.bool[\"fast\"]"), filter("other", "false")],
        });
        let (key, read) = parameters("d", CLASS_KIND, &object).unwrap();
        assert_eq!(key.to_string(), "ResourceClassParameters n/made");
        let Parameters::Class(spec) = *read.unwrap() else { panic!("of a class") };
        let [DeviceSelector { cel: Some(cel) }] = &spec.selectors[..] else { panic!("{:?}", spec.selectors) };
        assert_eq!(cel.expression, "device.attributes[\"d\"][\"fast\"]");
        let [DeviceClassConfiguration { opaque: Some(opaque) }] = &spec.config[..] else { panic!("{:?}", spec.config) };
        assert_eq!((&*opaque.driver, &opaque.parameters), ("d", &of_kind("FpgaConfig")));
    }
}
