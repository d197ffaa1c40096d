//! The example in `deploy/examples` does what it says.

use std::{fs, path::Path};

use hostler_api::{ObjectKey, reservation::ReservationPhase as Phase, resource::ResourceClaimTemplate};
use serde_json::{Value, json};

use super::{
    cluster::key,
    server::read,
    world::{DRIVER, World},
};

fn documents() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/reservation.yaml");
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_example_keeps_a_device_for_its_job_for_two_hours() {
    let [template, reservation] = &documents()[..] else { panic!("a template and a Reservation") };
    let mut world = World::new(&[1]);
    let typed: ResourceClaimTemplate = read(template.clone());
    let name = &typed.metadata.name;
    let class = &typed.spec.spec.devices.requests[0].exactly.as_ref().unwrap().device_class_name;
    let expression = format!("device.driver == \"{DRIVER}\"");
    world.server.facts.add_class(read(
        json!({"metadata": {"name": class}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}),
    ));
    world.server.facts.add_template(ObjectKey::new("default", name), typed.spec.spec.clone());
    world.reserve("r", reservation["spec"].clone());
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 1));
    let value = world.value("r");
    for (pod, job, tolerates, expected) in
        [("other", "other", "", false), ("unaware", "nightly", "", false), ("nightly", "nightly", &*value, true)]
    {
        world.pod(pod, "web", 1, tolerates);
        world.server.pods.get_mut(&key(pod)).unwrap().is.labels = [("job".to_owned(), job.to_owned())].into();
        assert_eq!(world.schedule(pod), expected, "{pod}");
    }
    world.settle();
    assert_eq!(world.phase("r"), Phase::Succeeded);
    world.check_rest();

    let mut world = World::new(&[1]);
    let mut spec = reservation["spec"].clone();
    spec["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = json!("gpus-1");
    world.reserve("r", spec);
    world.settle_for(7000);
    assert_eq!(world.phase("r"), Phase::Available);
    world.settle_for(300);
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Failed, "Expired"));
}
