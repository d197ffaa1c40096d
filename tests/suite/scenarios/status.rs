//! The result of each claim is written into its status, for every creator of the claim.

use hostler_testing::{cluster::DeviceWant, host::wait_for};
use serde_json::json;

use super::scene::Scene;

/// Parameters as a serializer of maps writes them; of structures, in their order; as scripts do; with signs that the
/// API server escapes.
const SPELLINGS: [&str; 4] = [
    r#"{"apiVersion":"v1","kind":"Config"}"#,
    r#"{"kind":"Config","apiVersion":"v1","speed":{"most":2,"least":1.0}}"#,
    r#"{"apiVersion": "v1", "kind": "Config"}"#,
    r#"{"apiVersion":"v1","kind":"Config","range":"<5 & >2"}"#,
];

/// The API server refuses a status with an allocation that is not byte by byte what it has.
#[test]
fn the_status_of_a_claim_is_written_however_its_parameters_are_spelled() {
    let mut scene = Scene::started();
    let driver = scene.host.driver().to_owned();
    for (number, spelling) in SPELLINGS.into_iter().enumerate() {
        let name = format!("spelled-{number}");
        let uid = scene.cluster.create_claim(&name, &driver, &[DeviceWant::device("card", "card-1")], &[]);
        let pod = scene.pod(&name, &[&name]);
        let pool = format!("{}/fake", scene.cluster.node());
        let result = json!({"request": "card", "driver": driver, "pool": pool, "device": "card-1"});
        scene.cluster.allocate_as_written(&name, &result, spelling, &pod);
        scene.runs(&name);
        let devices = wait_for(&format!("the status of the claim with {spelling}"), || {
            scene.cluster.claim(&name)?.status?.devices.filter(|devices| !devices.is_empty())
        });
        let condition = &devices[0].conditions.as_ref().unwrap()[0];
        assert_eq!((&*devices[0].device, &*condition.type_, &*condition.status), ("card-1", "Ready", "True"));
        scene.end(&name);
        scene.clean(&uid);
    }
}
