//! Gathers the facts from the API server: the only part that touches anything.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use hostler_api::{
    Chain,
    hardware::{
        CLUSTER_HARDWARE, CLUSTER_HARDWARE_KIND, CLUSTER_HARDWARE_NAME, GROUP, NODE_HARDWARE, NODE_HARDWARE_KIND,
        VERSION,
    },
    resource::ApiVersion,
};
use hostler_cli::doctor::DoctorFinding;
use hostler_cluster::{ApiClient, ApiFailure, ApiIdentity, Collection};
use hostler_process::config::ConfigErrors;

use super::{
    facts::{BundleRights, DoctorConfig, DoctorFacts, RefusedRead},
    rights::{WantedBundle, wanted},
};
use crate::{
    cluster_args::ClusterArgs,
    config::{ControllerConfig, DEFAULT_FILE},
    deployed::{
        CONTROLLER_NAMESPACE, DEFINITIONS, DeployedObjects, DeployedReader, ExpectedManifest, WORKLOADS, name_of,
    },
    observed::ObservedKind,
    plan::ClusterReadError,
};

/// Gathers all facts; of an API server that does not answer, the finding that says so.
pub(super) async fn gather(
    access: &ClusterArgs,
    file: Option<&Path>,
) -> Result<Result<DoctorFacts, DoctorFinding>, ClusterReadError> {
    let client = access.client().map_err(ClusterReadError::connect)?;
    let minor = match client.minor_release().await {
        Ok(minor) => minor,
        Err(failure) => return Ok(Err(silence(&failure))),
    };
    let release = client.full_release().await.map_err(ClusterReadError::call)?;
    let claim_versions = offered(&client).await?;
    let current = client.version().await.ok();
    let is_classic = current.is_none() && client.classic_version().await.is_ok();
    let serves_claims = Some(current.is_some() || is_classic);
    let known = DeployedObjects { minor: Some(minor), serves_claims, objects: Vec::new() };
    let mut reader = DeployedReader::new(client.clone(), known);
    reader.workloads().await?;
    let config = configuration(file, &reader.deployed);
    read(&mut reader, current, &config.config).await?;
    let (rights_of, rights) = rights(&client, &reader.deployed, &wanted(&config.config, is_classic)).await;
    let DeployedReader { deployed, refusals, .. } = reader;
    Ok(Ok(DoctorFacts {
        now: SystemTime::now(),
        release,
        claim_versions,
        has_taint_rules: has_taint_rules(&client).await?,
        deployed,
        refused: refusals.into_iter().filter_map(refused).collect(),
        config,
        rights,
        rights_of,
    }))
}

fn silence(failure: &ApiFailure) -> DoctorFinding {
    let fix = "check the address and the network, or name another cluster with --kubeconfig, --context or --server";
    DoctorFinding::fail("API server", format!("gives no answer: {}", Chain(failure)), fix)
}

/// Returns the versions of claims; none where the group is not served.
async fn offered(client: &ApiClient) -> Result<Vec<String>, ClusterReadError> {
    match client.offered_versions().await {
        Err(ApiFailure::NoResourceApi) => Ok(Vec::new()),
        offered => offered.map_err(ClusterReadError::call),
    }
}

async fn has_taint_rules(client: &ApiClient) -> Result<bool, ClusterReadError> {
    for all in ObservedKind::DeviceTaintRule.collections(None) {
        if client.serves(&all).await.map_err(ClusterReadError::call)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the configuration: of the file that is named, of the Deployment, of the usual file, or the default.
fn configuration(file: Option<&Path>, deployed: &DeployedObjects) -> DoctorConfig {
    let usual = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
    let (place, read) = match (file, deployed.configuration("Deployment", "controller.toml")) {
        (Some(file), _) => (file.display().to_string(), ControllerConfig::read(file)),
        (None, Some(mounted)) => {
            let problems = |problems| ConfigErrors { path: None, problems };
            let place = format!("ConfigMap {CONTROLLER_NAMESPACE}/{}, controller.toml", mounted.map);
            (place, ControllerConfig::parse(mounted.text).map_err(problems))
        }
        (None, None) => match usual() {
            Some(file) => (file.display().to_string(), ControllerConfig::read(&file)),
            None => ("defaults".to_owned(), Ok(ControllerConfig::default())),
        },
    };
    match read {
        Ok(config) => DoctorConfig { place, config, mistakes: Vec::new() },
        Err(errors) => DoctorConfig { place, config: ControllerConfig::default(), mistakes: errors.problems },
    }
}

/// Reads all objects of which checks speak, beside the workloads.
async fn read(
    reader: &mut DeployedReader,
    version: Option<ApiVersion>,
    config: &ControllerConfig,
) -> Result<(), ClusterReadError> {
    let custom = |group, kind, plural| Collection::custom(group, "v1", kind, plural);
    let definitions = custom("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions");
    for expected in DEFINITIONS.iter().flat_map(ExpectedManifest::objects) {
        reader.get(&definitions, name_of(&expected)).await?;
    }
    for (_, _, namespace, _) in WORKLOADS {
        reader.get(&Collection::core("Namespace", "namespaces"), namespace).await?;
    }
    let namespace = config.lease.namespace.as_deref().unwrap_or(CONTROLLER_NAMESPACE);
    reader.get(&custom("coordination.k8s.io", "Lease", "leases").of(namespace), &config.lease.name).await?;
    reader.list(&custom("scheduling.k8s.io", "PriorityClass", "priorityclasses")).await?;
    let webhooks =
        custom("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
    reader.get(&webhooks, &config.webhook.configuration).await?;
    reader.get(&webhooks, &config.webhook.configuration_of_pods()).await?;
    reader.get(&Collection::core("Service", "services").of(namespace), &config.webhook.service).await?;
    reader.list(&custom("discovery.k8s.io", "EndpointSlice", "endpointslices").of(namespace)).await?;
    for all in ObservedKind::DeviceClass.collections(version) {
        reader.list(&all).await?;
    }
    reader.list(&Collection::custom(GROUP, VERSION, NODE_HARDWARE_KIND, NODE_HARDWARE)).await?;
    let sums = Collection::custom(GROUP, VERSION, CLUSTER_HARDWARE_KIND, CLUSTER_HARDWARE);
    reader.get(&sums, CLUSTER_HARDWARE_NAME).await
}

/// Asks for the rights of the Deployment's service account; where there is none to be seen, for those of the user.
async fn rights(
    client: &ApiClient,
    deployed: &DeployedObjects,
    wanted: &[WantedBundle],
) -> (String, Result<Vec<BundleRights>, String>) {
    let account = deployed.workload("Deployment").map(|it| {
        let name = it["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap_or("default");
        ApiIdentity::service_account(CONTROLLER_NAMESPACE, name)
    });
    let rights_of = account.as_ref().map_or_else(|| "the user who asks".to_owned(), |it| it.username.clone());
    let rights = ask(client, account.as_ref(), wanted).await.map_err(|failure| Chain(&failure).to_string());
    (rights_of, rights)
}

async fn ask(
    client: &ApiClient,
    account: Option<&ApiIdentity>,
    wanted: &[WantedBundle],
) -> Result<Vec<BundleRights>, ApiFailure> {
    let mut answered = Vec::new();
    for bundle in wanted {
        let (mut lacking, mut is_installed) = (Vec::new(), false);
        for right in &bundle.rights {
            let is_allowed = match account {
                Some(account) => client.allows(account, right.deed()).await?,
                None => client.may(right.deed()).await?,
            };
            is_installed |= is_allowed && right.is_own;
            if !is_allowed {
                lacking.push(right.words());
            }
        }
        let &WantedBundle { folder, need, ref rights } = bundle;
        answered.push(BundleRights { folder, need, is_installed, all: rights.len(), lacking });
    }
    Ok(answered)
}

fn refused(error: ClusterReadError) -> Option<RefusedRead> {
    match error {
        ClusterReadError::Forbidden { verb, plural, .. } => Some(RefusedRead { verb, plural }),
        _ => None,
    }
}
