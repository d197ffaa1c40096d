//! Claims in the kubelet's cache, and its calls to drivers about them.
//!
//! The cache is on disk, so that a kubelet that comes back knows what it has to take back. That a claim is prepared is
//! not: it asks again, and expects the same answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use hostler_proto::dra_v1::{Claim, Device};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    KubeletRun,
    machine::BoundPod,
    view::{DraCall, DraMethod},
};
use crate::kubelet::{KubeletComplaint, KubeletResult, check_device, check_uids, complain};

/// Namespace and name.
type NamespacedName = (String, String);

/// The cached state of a claim.
#[derive(Clone, Debug, Default)]
struct ClaimInfo {
    uid: String,
    pods: BTreeSet<String>,
    prepared: bool,
    drivers: BTreeMap<String, Vec<Device>>,
}

/// The claims of the node's pods.
pub(crate) struct ClaimInfoCache {
    file: PathBuf,
    infos: Mutex<BTreeMap<NamespacedName, ClaimInfo>>,
}

impl ClaimInfoCache {
    /// Reads the cache of the last kubelet of this node.
    ///
    /// # Errors
    /// Fails if the file is damaged: the real kubelet does not start then.
    pub(crate) fn restore(file: PathBuf) -> KubeletResult<Self> {
        let infos = match fs::read(&file) {
            Ok(bytes) => decode(&bytes)?,
            Err(_) => BTreeMap::new(),
        };
        Ok(Self { file, infos: Mutex::new(infos) })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, ClaimInfo>> {
        self.infos.lock().expect("nothing panics under it")
    }

    fn save(&self, infos: &BTreeMap<NamespacedName, ClaimInfo>) {
        let new = self.file.with_extension("new");
        fs::write(&new, encode(infos)).and_then(|()| fs::rename(&new, &self.file)).expect("the state is written");
    }

    /// The pods that hold claims.
    pub(crate) fn pods(&self) -> BTreeSet<String> {
        self.lock().values().flat_map(|info| info.pods.clone()).collect()
    }

    /// Returns the devices of a pod's containers, by claim UID.
    pub(crate) fn devices(&self, pod: &str) -> BTreeMap<String, Vec<Device>> {
        let infos = self.lock();
        let of_pod = infos.values().filter(|info| info.pods.contains(pod));
        of_pod.map(|info| (info.uid.clone(), info.drivers.values().flatten().cloned().collect())).collect()
    }

    /// Prepares all claims of a pod.
    ///
    /// # Errors
    /// When one of them is not, for whatever reason: the pod cannot start.
    pub(crate) async fn prepare(&self, shared: &KubeletRun, pod: &BoundPod) -> KubeletResult<()> {
        let mut claims = Vec::new();
        for name in &pod.claims {
            claims.push(read_claim(shared, pod, name).await?);
        }
        let batches = self.admit(pod, &claims)?;
        for (driver, claims) in &batches {
            self.prepare_batch(shared, driver, claims).await?;
        }
        let mut infos = self.lock();
        let prepared: BTreeSet<&str> = batches.values().flatten().map(|claim| &*claim.uid).collect();
        infos.values_mut().filter(|info| prepared.contains(&*info.uid)).for_each(|info| info.prepared = true);
        self.save(&infos);
        Ok(())
    }

    /// Notes the pod for its claims, and sorts out what has to be prepared, by driver.
    fn admit(&self, pod: &BoundPod, claims: &[ResourceClaim]) -> KubeletResult<BTreeMap<String, Vec<Claim>>> {
        let mut infos = self.lock();
        let mut batches: BTreeMap<String, Vec<Claim>> = BTreeMap::new();
        for object in claims {
            let claim = reference(object);
            let drivers = drivers(object);
            let info = infos.entry((claim.namespace.clone(), claim.name.clone())).or_insert_with(|| ClaimInfo {
                uid: claim.uid.clone(),
                drivers: drivers.iter().map(|driver| (driver.clone(), Vec::new())).collect(),
                ..ClaimInfo::default()
            });
            if info.uid != claim.uid {
                return complain(format!(
                    "old ResourceClaim with same name {} and different UID {} still exists (previous pod force-deleted?)",
                    claim.name, info.uid
                ));
            }
            info.pods.insert(pod.uid.clone());
            if !info.prepared {
                for driver in drivers {
                    batches.entry(driver).or_default().push(claim.clone());
                }
            }
        }
        self.save(&infos);
        Ok(batches)
    }

    async fn prepare_batch(&self, shared: &KubeletRun, driver: &str, claims: &[Claim]) -> KubeletResult<()> {
        let plugin = shared.plugins.get(driver, shared.settings.release).await?;
        let deadline = shared.settings.times.call;
        let call = async {
            let call = plugin.call_prepare(claims.to_vec(), deadline);
            let answers = timeout(deadline, call).await.map_err(|_| too_late())?.map_err(in_time)?.claims;
            check_uids("NodePrepareResources", claims, answers.keys())
                .inspect_err(|text| shared.complain(text.to_string()))?;
            for (uid, answer) in &answers {
                if !answer.error.is_empty() {
                    return complain(format!("NodePrepareResources failed for claim {uid}: {}", answer.error));
                }
                let checked = answer.devices.iter().try_for_each(check_device);
                let kept = checked
                    .map_err(|KubeletComplaint(text)| text)
                    .and_then(|()| shared.machine.promise(driver, uid, &answer.devices));
                if let Err(text) = kept {
                    shared.complain(format!("claim {uid}: {text}"));
                }
            }
            if answers.len() != claims.len() {
                return complain("NodePrepareResources skipped ResourceClaims");
            }
            Ok(answers)
        };
        let answers = recorded(shared, DraMethod::Prepare, driver, claims, call).await?;
        let mut infos = self.lock();
        for info in infos.values_mut() {
            if let Some(answer) = answers.get(&info.uid) {
                info.drivers.insert(driver.to_owned(), answer.devices.clone());
            }
        }
        Ok(())
    }

    /// Lets go of a pod's claims, and has those taken back that no other pod uses.
    ///
    /// # Errors
    /// When one of them is not: the pod stays until it is.
    pub(crate) async fn unprepare(&self, shared: &KubeletRun, pod: &str) -> KubeletResult<()> {
        let batches = self.let_go(pod);
        for (driver, claims) in &batches {
            let plugin = shared.plugins.get(driver, shared.settings.release).await?;
            let deadline = shared.settings.times.call;
            let call = async {
                let call = plugin.call_unprepare(claims.clone(), deadline);
                let answers = timeout(deadline, call).await.map_err(|_| too_late())?.map_err(in_time)?.claims;
                check_uids("NodeUnprepareResources", claims, answers.keys())
                    .inspect_err(|text| shared.complain(text.to_string()))?;
                match answers.iter().find(|(_, answer)| !answer.error.is_empty()) {
                    Some((uid, answer)) => {
                        complain(format!("NodeUnprepareResources failed for claim {uid}: {}", answer.error))
                    }
                    None => Ok(()),
                }
            };
            recorded(shared, DraMethod::Unprepare, driver, claims, call).await?;
            claims.iter().for_each(|claim| shared.machine.release(driver, &claim.uid));
        }
        let mut infos = self.lock();
        infos.retain(|_, info| !(info.pods.len() == 1 && info.pods.contains(pod)));
        self.save(&infos);
        Ok(())
    }

    /// Removes the pod from the claims that others use; the rest by driver.
    fn let_go(&self, pod: &str) -> BTreeMap<String, Vec<Claim>> {
        let mut infos = self.lock();
        let mut batches: BTreeMap<String, Vec<Claim>> = BTreeMap::new();
        for ((namespace, name), info) in infos.iter_mut().filter(|(_, info)| info.pods.contains(pod)) {
            if info.pods.len() > 1 {
                info.pods.remove(pod);
                continue;
            }
            // Until it is taken back, a new pod must not take it for ready.
            info.prepared = false;
            let claim = Claim { namespace: namespace.clone(), uid: info.uid.clone(), name: name.clone() };
            info.drivers.keys().for_each(|driver| batches.entry(driver.clone()).or_default().push(claim.clone()));
        }
        self.save(&infos);
        batches
    }
}

/// The library that makes the calls here has words of its own for the end of a deadline.
fn in_time(KubeletComplaint(text): KubeletComplaint) -> KubeletComplaint {
    if text.contains("Timeout expired") { too_late() } else { KubeletComplaint(text) }
}

fn too_late() -> KubeletComplaint {
    KubeletComplaint("DeadlineExceeded: context deadline exceeded".to_owned())
}

/// Shows a call to the tests while it runs and when it has ended.
async fn recorded<T>(
    shared: &KubeletRun,
    method: DraMethod,
    driver: &str,
    claims: &[Claim],
    call: impl Future<Output = KubeletResult<T>>,
) -> KubeletResult<T> {
    let began = Instant::now();
    let claims = claims.iter().map(|claim| claim.uid.clone()).collect();
    let mut index = 0;
    let record = DraCall { method, driver: driver.to_owned(), claims, outcome: None, took: began.elapsed() };
    shared.machine.show(|view| {
        index = view.calls.len();
        view.calls.push(record);
    });
    let result = call.await;
    shared.machine.show(|view| {
        view.calls[index].took = began.elapsed();
        view.calls[index].outcome = Some(result.as_ref().map(|_| ()).map_err(ToString::to_string));
    });
    result
}

/// Reads a claim and checks what the kubelet checks before anything else.
async fn read_claim(shared: &KubeletRun, pod: &BoundPod, name: &str) -> KubeletResult<ResourceClaim> {
    let api: Api<ResourceClaim> = Api::namespaced(shared.settings.client.clone(), &pod.namespace);
    let claim = match timeout(shared.settings.times.call, api.get(name)).await {
        Ok(Ok(claim)) => claim,
        Ok(Err(error)) => return complain(format!("failed to fetch ResourceClaim {name}: {error}")),
        Err(_) => return complain(format!("failed to fetch ResourceClaim {name}: no answer")),
    };
    let status = claim.status.clone().unwrap_or_default();
    let reserved = status.reserved_for.unwrap_or_default();
    if !reserved.iter().any(|consumer| consumer.uid == pod.uid) {
        return complain(format!("pod {} ({}) is not allowed to use ResourceClaim {name}", pod.name, pod.uid));
    }
    if status.allocation.is_none() {
        return complain(format!("ResourceClaim {name} is not allocated"));
    }
    match drivers(&claim).iter().find(|driver| !shared.plugins.is_registered(driver)) {
        Some(driver) => complain(format!("DRA driver {driver} is not registered")),
        None => Ok(claim),
    }
}

fn reference(claim: &ResourceClaim) -> Claim {
    let metadata = claim.metadata.clone();
    Claim {
        namespace: metadata.namespace.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
    }
}

fn drivers(claim: &ResourceClaim) -> BTreeSet<String> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_ref());
    results.into_iter().flatten().map(|result| result.driver.clone()).collect()
}

fn encode(infos: &BTreeMap<NamespacedName, ClaimInfo>) -> Vec<u8> {
    let device = |device: &Device| {
        json!({
            "PoolName": device.pool_name, "DeviceName": device.device_name, "ShareID": device.share_id,
            "RequestNames": device.request_names, "CDIDeviceIDs": device.cdi_device_ids,
        })
    };
    let driver = |(name, devices): (&String, &Vec<Device>)| {
        (name.clone(), json!({"Devices": devices.iter().map(device).collect::<Vec<_>>()}))
    };
    let info = |((namespace, name), info): (&NamespacedName, &ClaimInfo)| {
        json!({
            "ClaimUID": info.uid, "ClaimName": name, "Namespace": namespace,
            "PodUIDs": info.pods.iter().map(|pod| (pod.clone(), json!({}))).collect::<serde_json::Map<_, _>>(),
            "DriverState": info.drivers.iter().map(driver).collect::<serde_json::Map<_, _>>(),
        })
    };
    let data = json!({
        "kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": infos.iter().map(info).collect::<Vec<_>>(),
    })
    .to_string();
    json!({"Checksum": crc32fast::hash(data.as_bytes()), "Data": data}).to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> KubeletResult<BTreeMap<NamespacedName, ClaimInfo>> {
    let damaged = || KubeletComplaint("the DRA checkpoint is damaged: drain node and remove DRA state file".to_owned());
    let file: Value = serde_json::from_slice(bytes).map_err(|_| damaged())?;
    let data = file["Data"].as_str().ok_or_else(damaged)?;
    if file["Checksum"] != crc32fast::hash(data.as_bytes()) {
        return Err(damaged());
    }
    let data: Value = serde_json::from_str(data).map_err(|_| damaged())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let device = |device: &Value| Device {
        pool_name: text(&device["PoolName"]),
        device_name: text(&device["DeviceName"]),
        share_id: device["ShareID"].as_str().map(str::to_owned),
        request_names: texts(&device["RequestNames"]),
        cdi_device_ids: texts(&device["CDIDeviceIDs"]),
    };
    let devices = |state: &Value| state["Devices"].as_array().into_iter().flatten().map(device).collect();
    let keys = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let info = |info: &Value| {
        let known = ClaimInfo {
            uid: text(&info["ClaimUID"]),
            pods: keys(&info["PodUIDs"]).into_iter().map(|(pod, _)| pod).collect(),
            prepared: false,
            drivers: keys(&info["DriverState"])
                .iter()
                .map(|(driver, state)| (driver.clone(), devices(state)))
                .collect(),
        };
        ((text(&info["Namespace"]), text(&info["ClaimName"])), known)
    };
    Ok(data["ClaimInfoStateList"].as_array().into_iter().flatten().map(info).collect())
}
