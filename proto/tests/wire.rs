//! Holds the names and numbers of the kubelet's APIs against bytes written by hand.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use hostler_proto::{
    dra_v1, dra_v1alpha1, dra_v1alpha2, dra_v1alpha3, dra_v1alpha3_served, dra_v1alpha4, dra_v1beta1, health_v1,
    health_v1alpha1, pod_resources_v1, pod_resources_v1alpha1, registration,
};
use prost::Message;
use tonic::{codegen::Service, server::NamedService};

/// Stands in for a connection: notes the path of each call and answers nothing.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Service<tonic::codegen::http::Request<tonic::body::Body>> for Recorder {
    type Response = tonic::codegen::http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: tonic::codegen::http::Request<tonic::body::Body>) -> Self::Future {
        self.0.lock().unwrap().push(request.uri().path().to_owned());
        ready(Ok(tonic::codegen::http::Response::new(tonic::body::Body::empty())))
    }
}

/// Runs a call that never has to wait.
fn finish<T>(call: impl Future<Output = T>) {
    let mut call = std::pin::pin!(call);
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready(), "a recorder answers at once");
}

#[test]
fn calls_go_to_the_paths_of_the_kubelet() {
    let recorder = Recorder::default();
    let mut registration = registration::registration_client::RegistrationClient::new(recorder.clone());
    finish(registration.get_info(registration::InfoRequest {}));
    finish(registration.notify_registration_status(registration::RegistrationStatus::default()));
    let mut v1 = dra_v1::dra_plugin_client::DraPluginClient::new(recorder.clone());
    finish(v1.node_prepare_resources(dra_v1::NodePrepareResourcesRequest::default()));
    finish(v1.node_unprepare_resources(dra_v1::NodeUnprepareResourcesRequest::default()));
    let mut v1beta1 = dra_v1beta1::dra_plugin_client::DraPluginClient::new(recorder.clone());
    finish(v1beta1.node_prepare_resources(dra_v1beta1::NodePrepareResourcesRequest::default()));
    finish(v1beta1.node_unprepare_resources(dra_v1beta1::NodeUnprepareResourcesRequest::default()));
    let mut health = health_v1::dra_resource_health_client::DraResourceHealthClient::new(recorder.clone());
    finish(health.node_watch_resources(health_v1::NodeWatchResourcesRequest {}));
    let mut health = health_v1alpha1::dra_resource_health_client::DraResourceHealthClient::new(recorder.clone());
    finish(health.node_watch_resources(health_v1alpha1::NodeWatchResourcesRequest {}));
    let mut v1 = pod_resources_v1::pod_resources_lister_client::PodResourcesListerClient::new(recorder.clone());
    finish(v1.list(pod_resources_v1::ListPodResourcesRequest {}));
    finish(v1.get(pod_resources_v1::GetPodResourcesRequest::default()));
    finish(v1.get_allocatable_resources(pod_resources_v1::AllocatableResourcesRequest {}));
    let mut v1alpha1 =
        pod_resources_v1alpha1::pod_resources_lister_client::PodResourcesListerClient::new(recorder.clone());
    finish(v1alpha1.list(pod_resources_v1alpha1::ListPodResourcesRequest {}));
    assert_eq!(
        *recorder.0.lock().unwrap(),
        [
            "/pluginregistration.Registration/GetInfo",
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
            "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
            "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
            "/v1.DRAResourceHealth/NodeWatchResources",
            "/v1alpha1.DRAResourceHealth/NodeWatchResources",
            "/v1.PodResourcesLister/List",
            "/v1.PodResourcesLister/Get",
            "/v1.PodResourcesLister/GetAllocatableResources",
            "/v1alpha1.PodResourcesLister/List",
        ]
    );
}

#[test]
fn calls_of_old_kubelets_go_to_their_paths() {
    let recorder = Recorder::default();
    let mut v1alpha1 = dra_v1alpha1::node_client::NodeClient::new(recorder.clone());
    finish(v1alpha1.node_prepare_resource(dra_v1alpha1::NodePrepareResourceRequest::default()));
    finish(v1alpha1.node_unprepare_resource(dra_v1alpha1::NodeUnprepareResourceRequest::default()));
    let mut v1alpha2 = dra_v1alpha2::node_client::NodeClient::new(recorder.clone());
    finish(v1alpha2.node_prepare_resource(dra_v1alpha2::NodePrepareResourceRequest::default()));
    finish(v1alpha2.node_unprepare_resource(dra_v1alpha2::NodeUnprepareResourceRequest::default()));
    let mut v1alpha3 = dra_v1alpha3::node_client::NodeClient::new(recorder.clone());
    finish(v1alpha3.node_prepare_resources(dra_v1alpha3::NodePrepareResourcesRequest::default()));
    finish(v1alpha3.node_unprepare_resources(dra_v1alpha3::NodeUnprepareResourcesRequest::default()));
    let mut v1alpha4 = dra_v1alpha4::node_client::NodeClient::new(recorder.clone());
    finish(v1alpha4.node_prepare_resources(dra_v1alpha4::NodePrepareResourcesRequest::default()));
    finish(v1alpha4.node_unprepare_resources(dra_v1alpha4::NodeUnprepareResourcesRequest::default()));
    assert_eq!(
        *recorder.0.lock().unwrap(),
        [
            "/v1alpha1.Node/NodePrepareResource",
            "/v1alpha1.Node/NodeUnprepareResource",
            "/v1alpha2.Node/NodePrepareResource",
            "/v1alpha2.Node/NodeUnprepareResource",
            "/v1alpha3.Node/NodePrepareResources",
            "/v1alpha3.Node/NodeUnprepareResources",
            "/v1alpha3.Node/NodePrepareResources",
            "/v1alpha3.Node/NodeUnprepareResources",
        ]
    );
    assert_eq!(
        [
            dra_v1alpha1::node_server::NodeServer::<()>::NAME,
            dra_v1alpha2::node_server::NodeServer::<()>::NAME,
            dra_v1alpha3_served::node_server::NodeServer::<()>::NAME,
        ],
        ["v1alpha1.Node", "v1alpha2.Node", "v1alpha3.Node"]
    );
}

#[test]
fn messages_of_one_claim_have_the_numbers_of_the_kubelet() {
    let (namespace, claim_uid, claim_name) = ("ns".to_owned(), "u".to_owned(), "n".to_owned());
    let claim = [field(1, "ns"), field(2, "u"), field(3, "n")].concat();
    let handed = [&claim[..], &field(4, "h")].concat();
    let structured = [&claim[..], &field(5, "s")].concat();
    let message = dra_v1alpha1::NodePrepareResourceRequest {
        namespace: namespace.clone(),
        claim_uid: claim_uid.clone(),
        claim_name: claim_name.clone(),
        resource_handle: "h".into(),
    };
    same(&message, &handed);
    same(&dra_v1alpha1::NodePrepareResourceResponse { cdi_devices: vec!["v/c=d".into()] }, &field(1, "v/c=d"));
    let message = dra_v1alpha1::NodeUnprepareResourceRequest {
        namespace: namespace.clone(),
        claim_uid: claim_uid.clone(),
        claim_name: claim_name.clone(),
        cdi_devices: vec!["h".into()],
    };
    same(&message, &handed);
    let message = dra_v1alpha2::NodePrepareResourceRequest {
        namespace: namespace.clone(),
        claim_uid: claim_uid.clone(),
        claim_name: claim_name.clone(),
        resource_handle: String::new(),
        structured_resource_handle: vec![b"s".to_vec()],
    };
    same(&message, &structured);
    same(&dra_v1alpha2::NodePrepareResourceResponse { cdi_devices: vec!["v/c=d".into()] }, &field(1, "v/c=d"));
    let message = dra_v1alpha2::NodeUnprepareResourceRequest {
        namespace,
        claim_uid,
        claim_name,
        resource_handle: "h".into(),
        structured_resource_handle: Vec::new(),
    };
    same(&message, &handed);
}

/// The two shapes of `v1alpha3.Node`, and what a driver reads and writes of them.
#[test]
fn one_service_speaks_both_shapes() {
    let (namespace, uid, name) = ("ns".to_owned(), "u".to_owned(), "n".to_owned());
    let claim = [field(1, "ns"), field(2, "u"), field(3, "n")].concat();
    let old = dra_v1alpha3::Claim {
        namespace: namespace.clone(),
        uid: uid.clone(),
        name: name.clone(),
        resource_handle: "h".into(),
        structured_resource_handle: vec![b"s".to_vec()],
    };
    let handed = [&claim[..], &field(4, "h"), &field(5, "s")].concat();
    same(&dra_v1alpha3::NodePrepareResourcesRequest { claims: vec![old] }, &field(1, &handed));
    let new = dra_v1alpha4::Claim { namespace, uid, name };
    same(&dra_v1alpha4::NodePrepareResourcesRequest { claims: vec![new] }, &field(1, &claim));
    let read = |bytes: &[u8]| dra_v1alpha3_served::Claim::decode(bytes).unwrap();
    assert_eq!((&*read(&handed).resource_handle, read(&handed).structured_resource_handle.len()), ("h", 1));
    assert_eq!((&*read(&claim).resource_handle, &*read(&claim).uid), ("", "u"));

    let device = dra_v1alpha4::Device {
        request_names: vec!["r".into()],
        pool_name: "p".into(),
        device_name: "d".into(),
        cdi_device_ids: vec!["v/c=d".into()],
    };
    let device_bytes = [field(1, "r"), field(2, "p"), field(3, "d"), field(4, "v/c=d")].concat();
    same(&device, &device_bytes);
    let served = |prepared: &[u8]| {
        let error = "e".to_owned();
        dra_v1alpha3_served::NodePrepareResourceResponse { prepared: vec![prepared.to_vec()], error }.encode_to_vec()
    };
    let old = dra_v1alpha3::NodePrepareResourceResponse { cdi_devices: vec!["v/c=d".into()], error: "e".into() };
    same(&old, &served(b"v/c=d"));
    let new = dra_v1alpha4::NodePrepareResourceResponse { devices: vec![device], error: "e".into() };
    same(&new, &served(&device_bytes));
}

#[test]
fn an_answer_that_has_nothing_to_say_has_a_value_for_kubelets_that_end_without_one() {
    let (key, value) = ("u".to_owned(), Some(dra_v1alpha3_served::NodeUnprepareResourceResponse::default()));
    let claims = vec![dra_v1alpha3_served::UnpreparedClaim { key, value }];
    let answer = dra_v1alpha3_served::NodeUnprepareResourcesResponse { claims };
    let entry = [field(1, "u"), field(2, "")].concat();
    same(&answer, &field(1, &entry));
    // Kubelets of 1.31 read a map.
    let read = dra_v1alpha4::NodeUnprepareResourcesResponse::decode(&*answer.encode_to_vec()).unwrap();
    assert_eq!(read.claims["u"].error, "");
}

#[test]
fn servers_answer_under_the_same_names() {
    assert_eq!(
        [
            registration::registration_server::RegistrationServer::<()>::NAME,
            dra_v1::dra_plugin_server::DraPluginServer::<()>::NAME,
            dra_v1beta1::dra_plugin_server::DraPluginServer::<()>::NAME,
            health_v1::dra_resource_health_server::DraResourceHealthServer::<()>::NAME,
            health_v1alpha1::dra_resource_health_server::DraResourceHealthServer::<()>::NAME,
            pod_resources_v1::pod_resources_lister_server::PodResourcesListerServer::<()>::NAME,
            pod_resources_v1alpha1::pod_resources_lister_server::PodResourcesListerServer::<()>::NAME,
        ],
        [
            "pluginregistration.Registration",
            "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
            "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
            "v1.PodResourcesLister",
            "v1alpha1.PodResourcesLister",
        ]
    );
}

/// A length-delimited field: texts, messages and map entries. Lengths below 128 are one byte.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u8::try_from(content.len()).ok().filter(|length| *length < 128).expect("short content");
    [&[number << 3 | 2, length], content].concat()
}

/// A small number, truth value or enum value.
fn number(number: u8, value: u8) -> Vec<u8> {
    assert!(value < 128, "one byte");
    vec![number << 3, value]
}

/// The message and the bytes are the same thing, in both directions.
fn same<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes);
    assert_eq!(M::decode(bytes).unwrap(), *message);
}

#[test]
fn registration_messages_have_the_numbers_of_the_kubelet() {
    let info = registration::PluginInfo {
        r#type: "DRAPlugin".into(),
        name: "n".into(),
        endpoint: "/e".into(),
        supported_versions: vec!["a".into(), "b".into()],
    };
    same(&info, &[field(1, "DRAPlugin"), field(2, "n"), field(3, "/e"), field(4, "a"), field(4, "b")].concat());
    let status = registration::RegistrationStatus { plugin_registered: true, error: "e".into() };
    same(&status, &[number(1, 1), field(2, "e")].concat());
    same(&registration::InfoRequest {}, &[]);
    same(&registration::RegistrationStatusResponse {}, &[]);
}

/// The tables of v1 and v1beta1 are the same but for the share id.
macro_rules! dra_messages {
    ($module:ident, $share_bytes:expr, { $($share:tt)* }) => {{
        let claim = $module::Claim { namespace: "ns".into(), uid: "u".into(), name: "n".into() };
        let claim_bytes = [field(1, "ns"), field(2, "u"), field(3, "n")].concat();
        same(&claim, &claim_bytes);
        let claims = vec![claim.clone(), claim];
        let request_bytes = [field(1, &claim_bytes), field(1, &claim_bytes)].concat();
        same(&$module::NodePrepareResourcesRequest { claims: claims.clone() }, &request_bytes);
        same(&$module::NodeUnprepareResourcesRequest { claims }, &request_bytes);

        let device = $module::Device {
            request_names: vec!["r".into(), "s".into()],
            pool_name: "p".into(),
            device_name: "d".into(),
            cdi_device_ids: vec!["v/c=d".into()],
            $($share)*
        };
        let device_bytes =
            [field(1, "r"), field(1, "s"), field(2, "p"), field(3, "d"), field(4, "v/c=d"), $share_bytes].concat();
        same(&device, &device_bytes);
        let result = $module::NodePrepareResourceResponse { devices: vec![device], error: "e".into() };
        let result_bytes = [field(1, device_bytes), field(2, "e")].concat();
        let entry = [field(1, "u"), field(2, result_bytes)].concat();
        same(&$module::NodePrepareResourcesResponse { claims: [("u".into(), result)].into() }, &field(1, entry));

        let result = $module::NodeUnprepareResourceResponse { error: "e".into() };
        let entry = [field(1, "u"), field(2, field(1, "e"))].concat();
        same(&$module::NodeUnprepareResourcesResponse { claims: [("u".into(), result)].into() }, &field(1, entry));
    }};
}

#[test]
fn dra_messages_have_the_numbers_of_the_kubelet() {
    dra_messages!(dra_v1, field(5, "s"), { share_id: Some("s".into()) });
    dra_messages!(dra_v1beta1, vec![], {});
}

#[test]
fn an_empty_share_is_not_the_same_as_no_share() {
    let device = dra_v1::Device { share_id: Some(String::new()), ..dra_v1::Device::default() };
    same(&device, &field(5, ""));
    same(&dra_v1::Device::default(), &[]);
}

macro_rules! health_messages {
    ($module:ident) => {{
        let health = $module::DeviceHealth {
            device: Some($module::DeviceIdentifier { pool_name: "p".into(), device_name: "d".into() }),
            health: $module::HealthStatus::Unhealthy.into(),
            last_updated_time: 7,
            health_check_timeout_seconds: 30,
            message: "m".into(),
        };
        let id = [field(1, "p"), field(2, "d")].concat();
        let bytes = [field(1, id), number(2, 2), number(3, 7), number(4, 30), field(5, "m")].concat();
        same(&health, &bytes);
        same(&$module::NodeWatchResourcesResponse { devices: vec![health] }, &field(1, bytes));
        same(&$module::NodeWatchResourcesRequest {}, &[]);
        assert_eq!(
            [0, 1, 2].map(|value| $module::HealthStatus::try_from(value).unwrap().as_str_name()),
            ["UNKNOWN", "HEALTHY", "UNHEALTHY"]
        );
    }};
}

#[test]
fn health_messages_have_the_numbers_of_the_kubelet() {
    health_messages!(health_v1);
    health_messages!(health_v1alpha1);
}

/// Several small numbers in one field.
fn packed(number: u8, values: &[u8]) -> Vec<u8> {
    field(number, values)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one message after the other, each of the ones before")]
fn pod_resources_have_the_numbers_of_the_kubelet() {
    use pod_resources_v1::{
        AllocatableResourcesRequest, AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices,
        ContainerMemory, ContainerResources, DynamicResource, GetPodResourcesRequest, GetPodResourcesResponse,
        ListPodResourcesRequest, ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
    };
    let (topology, topology_bytes) = (TopologyInfo { nodes: vec![NumaNode { id: 1 }] }, field(1, number(1, 1)));
    let devices = ContainerDevices {
        resource_name: "r".into(),
        device_ids: vec!["a".into(), "b".into()],
        topology: Some(topology.clone()),
    };
    let devices_bytes = [field(1, "r"), field(2, "a"), field(2, "b"), field(3, &topology_bytes)].concat();
    same(&devices, &devices_bytes);
    let memory = ContainerMemory { memory_type: "memory".into(), size: 9, topology: Some(topology) };
    let memory_bytes = [field(1, "memory"), number(2, 9), field(3, &topology_bytes)].concat();
    same(&memory, &memory_bytes);
    let resource = ClaimResource {
        cdi_devices: vec![CdiDevice { name: "v/c=d".into() }],
        driver_name: "d".into(),
        pool_name: "p".into(),
        device_name: "n".into(),
        share_id: Some("s".into()),
    };
    let resource_bytes =
        [field(1, field(1, "v/c=d")), field(2, "d"), field(3, "p"), field(4, "n"), field(5, "s")].concat();
    same(&resource, &resource_bytes);
    let dynamic =
        DynamicResource { claim_name: "c".into(), claim_namespace: "ns".into(), claim_resources: vec![resource] };
    let dynamic_bytes = [field(2, "c"), field(3, "ns"), field(4, resource_bytes)].concat();
    let container = ContainerResources {
        name: "m".into(),
        devices: vec![devices.clone()],
        cpu_ids: vec![2, 3],
        memory: vec![memory.clone()],
        dynamic_resources: vec![dynamic],
    };
    let container_bytes =
        [field(1, "m"), field(2, &devices_bytes), packed(3, &[2, 3]), field(4, &memory_bytes), field(5, dynamic_bytes)]
            .concat();
    let pod = PodResources {
        name: "p".into(),
        namespace: "ns".into(),
        containers: vec![container],
        cpu_ids: vec![4],
        memory: vec![memory.clone()],
    };
    let pod_bytes = [
        field(1, "p"),
        field(2, "ns"),
        // Longer than the one byte that `field` writes.
        [&[3 << 3 | 2, u8::try_from(container_bytes.len()).unwrap()], &*container_bytes].concat(),
        packed(4, &[4]),
        field(5, &memory_bytes),
    ]
    .concat();
    assert_eq!(pod.encode_to_vec(), pod_bytes);
    // A pod in a list and a pod alone stand in the same field.
    let (list, get) = (
        ListPodResourcesResponse { pod_resources: vec![pod.clone()] }.encode_to_vec(),
        GetPodResourcesResponse { pod_resources: Some(pod) }.encode_to_vec(),
    );
    assert_eq!(list, get);
    let allocatable =
        AllocatableResourcesResponse { devices: vec![devices], cpu_ids: vec![0, 1], memory: vec![memory] };
    let bytes = [field(1, devices_bytes), packed(2, &[0, 1]), field(3, memory_bytes)].concat();
    same(&allocatable, &bytes);
    let asked = GetPodResourcesRequest { pod_name: "p".into(), pod_namespace: "ns".into() };
    same(&asked, &[field(1, "p"), field(2, "ns")].concat());
    same(&ListPodResourcesRequest {}, &[]);
    same(&AllocatableResourcesRequest {}, &[]);
}

#[test]
fn the_first_version_of_pod_resources_has_the_numbers_of_the_kubelet() {
    use pod_resources_v1alpha1::{ContainerDevices, ContainerResources, ListPodResourcesResponse, PodResources};
    let devices = ContainerDevices { resource_name: "r".into(), device_ids: vec!["a".into()] };
    let containers = vec![ContainerResources { name: "m".into(), devices: vec![devices] }];
    let pod = PodResources { name: "p".into(), namespace: "ns".into(), containers };
    let container_bytes = [field(1, "m"), field(2, [field(1, "r"), field(2, "a")].concat())].concat();
    let pod_bytes = [field(1, "p"), field(2, "ns"), field(3, container_bytes)].concat();
    same(&ListPodResourcesResponse { pod_resources: vec![pod] }, &field(1, pod_bytes));
}
