//! The calls themselves, in each release's own messages.

use hostler_proto::{
    dra_v1alpha1::{self, node_client::NodeClient as V1Alpha1Client},
    dra_v1alpha2::{self, node_client::NodeClient as V1Alpha2Client},
    dra_v1alpha3::{self, node_client::NodeClient as V1Alpha3Client},
    dra_v1alpha4::{self, node_client::NodeClient as V1Alpha4Client},
};
use tonic::{Code, Request, Status, transport::Channel};

use super::{AllocatedClaim, ClassicDriver, ClassicRelease};
use crate::kubelet::{ClaimAnswers, KubeletResult, check_device, failed, request};

/// The effect on these kubelets of an answer without a value.
const CRASH: &str = "an entry without a value, which makes this kubelet crash";

/// The result of a call, or the status that asks for the other version.
type Tried<T> = Result<ClaimAnswers<T>, Status>;

/// Prepares claims.
pub(super) async fn prepare(
    release: ClassicRelease,
    driver: &mut ClassicDriver,
    claims: &[AllocatedClaim],
) -> KubeletResult<ClaimAnswers<Vec<String>>> {
    match release {
        ClassicRelease::V1_26 => prepare_v1alpha1(driver, claims).await,
        ClassicRelease::V1_27 => prepare_v1alpha2(release, driver, claims).await,
        ClassicRelease::V1_28 | ClassicRelease::V1_30 => {
            if driver.is_old {
                return prepare_v1alpha2(release, driver, claims).await;
            }
            match prepare_v1alpha3(driver.connected(release).await?, driver, release, claims).await {
                Err(status) if status.code() == Code::Unimplemented => {
                    driver.is_old = release == ClassicRelease::V1_30;
                    prepare_v1alpha2(release, driver, claims).await
                }
                answers => answers.map_err(failed("NodePrepareResources")),
            }
        }
        ClassicRelease::V1_31 => prepare_v1alpha4(driver.connected(release).await?, release, claims).await,
    }
}

/// Prepares claims without a deadline, as 1.26 does.
async fn prepare_v1alpha1(
    driver: &mut ClassicDriver,
    claims: &[AllocatedClaim],
) -> KubeletResult<ClaimAnswers<Vec<String>>> {
    let mut answers = ClaimAnswers::new();
    for claim in claims {
        let message = dra_v1alpha1::NodePrepareResourceRequest {
            namespace: claim.claim.namespace.clone(),
            claim_uid: claim.claim.uid.clone(),
            claim_name: claim.claim.name.clone(),
            resource_handle: claim.handles.first().map(|(_, data)| data.clone()).unwrap_or_default(),
        };
        let mut client = V1Alpha1Client::new(driver.connected(ClassicRelease::V1_26).await?);
        let answer = client.node_prepare_resource(Request::new(message)).await;
        let answer = answer.map(|answer| answer.into_inner().cdi_devices).map_err(|status| told(&status));
        answers.insert(claim.claim.uid.clone(), answer);
    }
    Ok(answers)
}

async fn prepare_v1alpha2(
    release: ClassicRelease,
    driver: &mut ClassicDriver,
    claims: &[AllocatedClaim],
) -> KubeletResult<ClaimAnswers<Vec<String>>> {
    let mut answers: ClaimAnswers<Vec<String>> = ClaimAnswers::new();
    for claim in claims {
        for resource_handle in claim.data_for(&driver.name) {
            let message = dra_v1alpha2::NodePrepareResourceRequest {
                namespace: claim.claim.namespace.clone(),
                claim_uid: claim.claim.uid.clone(),
                claim_name: claim.claim.name.clone(),
                resource_handle,
                structured_resource_handle: Vec::new(),
            };
            let mut client = V1Alpha2Client::new(driver.connected(release).await?);
            let answer = client.node_prepare_resource(request(message, release.deadline())).await;
            let answer = answer.map(|answer| answer.into_inner().cdi_devices).map_err(|status| told(&status));
            let known = answers.remove(&claim.claim.uid).unwrap_or_else(|| Ok(Vec::new()));
            let both = known.and_then(|known| answer.map(|new| [known, new].concat()));
            answers.insert(claim.claim.uid.clone(), both);
        }
    }
    Ok(answers)
}

async fn prepare_v1alpha3(
    channel: Channel,
    driver: &ClassicDriver,
    release: ClassicRelease,
    claims: &[AllocatedClaim],
) -> Tried<Vec<String>> {
    let claims = claims.iter().flat_map(|claim| v1alpha3_claims(claim, &driver.name)).collect();
    let message = dra_v1alpha3::NodePrepareResourcesRequest { claims };
    let answer = V1Alpha3Client::new(channel).node_prepare_resources(request(message, release.deadline())).await?;
    let answers = answer.into_inner().claims.into_iter();
    let read = |answer: dra_v1alpha3::NodePrepareResourceResponse| if_no(answer.error, answer.cdi_devices);
    Ok(answers.map(|entry| (entry.key, read(entry.value.expect(CRASH)))).collect())
}

fn v1alpha3_claims(claim: &AllocatedClaim, driver: &str) -> Vec<dra_v1alpha3::Claim> {
    let entry = |resource_handle| dra_v1alpha3::Claim {
        namespace: claim.claim.namespace.clone(),
        uid: claim.claim.uid.clone(),
        name: claim.claim.name.clone(),
        resource_handle,
        structured_resource_handle: Vec::new(),
    };
    claim.data_for(driver).into_iter().map(entry).collect()
}

async fn prepare_v1alpha4(
    channel: Channel,
    release: ClassicRelease,
    claims: &[AllocatedClaim],
) -> KubeletResult<ClaimAnswers<Vec<String>>> {
    let claims = claims.iter().map(v1alpha4_claim).collect();
    let message = dra_v1alpha4::NodePrepareResourcesRequest { claims };
    let answer = V1Alpha4Client::new(channel).node_prepare_resources(request(message, release.deadline())).await;
    let answers = answer.map_err(failed("NodePrepareResources"))?.into_inner().claims;
    let mut read = ClaimAnswers::new();
    for (uid, answer) in answers {
        let devices = answer.devices.into_iter().map(|device| crate::kubelet::same_on_the_wire(&device));
        let devices: Vec<hostler_proto::dra_v1::Device> = devices.collect();
        devices.iter().try_for_each(check_device)?;
        let cdi_ids = devices.into_iter().flat_map(|device| device.cdi_device_ids).collect();
        read.insert(uid, if_no(answer.error, cdi_ids));
    }
    Ok(read)
}

fn v1alpha4_claim(claim: &AllocatedClaim) -> dra_v1alpha4::Claim {
    let hostler_proto::dra_v1::Claim { namespace, uid, name } = claim.claim.clone();
    dra_v1alpha4::Claim { namespace, uid, name }
}

/// Takes claims back, with their cached data.
pub(super) async fn unprepare(
    release: ClassicRelease,
    driver: &mut ClassicDriver,
    claims: &[(AllocatedClaim, Vec<String>)],
) -> KubeletResult<ClaimAnswers<()>> {
    match release {
        ClassicRelease::V1_26 => unprepare_v1alpha1(driver, claims).await,
        ClassicRelease::V1_27 => unprepare_v1alpha2(release, driver, claims).await,
        ClassicRelease::V1_28 | ClassicRelease::V1_30 => {
            let channel = driver.connected(release).await?;
            match unprepare_v1alpha3(channel, driver, release, claims).await {
                Err(status) if status.code() == Code::Unimplemented => {
                    unprepare_v1alpha2(release, driver, claims).await
                }
                answers => answers.map_err(failed("NodeUnprepareResources")),
            }
        }
        ClassicRelease::V1_31 => {
            let claims = claims.iter().map(|(claim, _)| v1alpha4_claim(claim)).collect();
            let message = dra_v1alpha4::NodeUnprepareResourcesRequest { claims };
            let mut client = V1Alpha4Client::new(driver.connected(release).await?);
            let answer = client.node_unprepare_resources(request(message, release.deadline())).await;
            let answers = answer.map_err(failed("NodeUnprepareResources"))?.into_inner().claims.into_iter();
            Ok(answers.map(|(uid, answer)| (uid, if_no(answer.error, ()))).collect())
        }
    }
}

async fn unprepare_v1alpha1(
    driver: &mut ClassicDriver,
    claims: &[(AllocatedClaim, Vec<String>)],
) -> KubeletResult<ClaimAnswers<()>> {
    let mut answers = ClaimAnswers::new();
    for (claim, cdi_devices) in claims {
        let message = dra_v1alpha1::NodeUnprepareResourceRequest {
            namespace: claim.claim.namespace.clone(),
            claim_uid: claim.claim.uid.clone(),
            claim_name: claim.claim.name.clone(),
            cdi_devices: cdi_devices.clone(),
        };
        let mut client = V1Alpha1Client::new(driver.connected(ClassicRelease::V1_26).await?);
        let answer = client.node_unprepare_resource(Request::new(message)).await;
        answers.insert(claim.claim.uid.clone(), answer.map(drop).map_err(|status| told(&status)));
    }
    Ok(answers)
}

async fn unprepare_v1alpha2(
    release: ClassicRelease,
    driver: &mut ClassicDriver,
    claims: &[(AllocatedClaim, Vec<String>)],
) -> KubeletResult<ClaimAnswers<()>> {
    let mut answers = ClaimAnswers::new();
    for (claim, _) in claims {
        for resource_handle in claim.data_for(&driver.name) {
            let message = dra_v1alpha2::NodeUnprepareResourceRequest {
                namespace: claim.claim.namespace.clone(),
                claim_uid: claim.claim.uid.clone(),
                claim_name: claim.claim.name.clone(),
                resource_handle,
                structured_resource_handle: Vec::new(),
            };
            let mut client = V1Alpha2Client::new(driver.connected(release).await?);
            let answer = client.node_unprepare_resource(request(message, release.deadline())).await;
            answers.insert(claim.claim.uid.clone(), answer.map(drop).map_err(|status| told(&status)));
        }
    }
    Ok(answers)
}

async fn unprepare_v1alpha3(
    channel: Channel,
    driver: &ClassicDriver,
    release: ClassicRelease,
    claims: &[(AllocatedClaim, Vec<String>)],
) -> Tried<()> {
    let claims = claims.iter().flat_map(|(claim, _)| v1alpha3_claims(claim, &driver.name)).collect();
    let message = dra_v1alpha3::NodeUnprepareResourcesRequest { claims };
    let answer = V1Alpha3Client::new(channel).node_unprepare_resources(request(message, release.deadline())).await?;
    let read = |entry: dra_v1alpha3::UnpreparedClaim| (entry.key, if_no(entry.value.expect(CRASH).error, ()));
    Ok(answer.into_inner().claims.into_iter().map(read).collect())
}

fn if_no<T>(error: String, value: T) -> Result<T, String> {
    if error.is_empty() { Ok(value) } else { Err(error) }
}

/// Returns the text for the kubelet's event.
fn told(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}
