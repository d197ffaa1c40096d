//! `hostler-controller fabric adopt`: reads a cluster, and writes the FabricAttachments by which connections are taken over.

use std::{collections::BTreeMap, io::Write};

use hostler_api::{
    Chain,
    fabric::{
        AttachmentPhase, DeviceIdentity, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS, FabricAttachment,
        FabricAttachmentSpec, of_fabric_pool,
    },
    hardware::{GROUP, NODE_HARDWARE, NODE_HARDWARE_KIND, NodeHardware, VERSION},
    resource::{ApiVersion, ResourceSlice},
};
use hostler_cli::{
    exit::CliOutcome,
    output::{DocumentFormat, write_document},
    parts::shape,
};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    AdoptionAnswer, AdoptionChoice, AdoptionRow, AdoptionScene, AdoptionState, HolderClaim, PlannedAdoption, table,
};
use crate::{
    cluster_args::ClusterArgs,
    fabric::{ClaimOfDevice, FABRIC_FINALIZER},
    plan::{ClusterReadError, QuestionError, runtime},
    pooled::INSTALL_ATTACHMENTS,
};

const EXAMPLES: &str = "\
A connection that hostler did not make, or whose FabricAttachment was lost, holds its device: nothing is attached or
detached there, until it is taken over. Then a device that a claim uses stays with the claim; its node lets go of any
other one and erases it, the connection is ended, and the device is offered.

  kubectl hostler fabric adopt --all --dry-run
  kubectl hostler fabric adopt 4c1d96fffeddd835-0001

Exit codes: 0 taken over, or could be; 1 some were refused; 2 wrong usage, or no answer.";

/// Take over connections that hostler did not make, or whose FabricAttachments were lost
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    access: ClusterArgs,
    /// Device by its name in the pool or its GCXLID
    #[arg(value_name = "DEVICE", value_parser = device, required_unless_present = "all", conflicts_with = "all")]
    devices: Vec<DeviceIdentity>,
    /// All devices that connections of others hold
    #[arg(long)]
    all: bool,
    /// Only devices of this fabric manager
    #[arg(long, value_name = "NAME")]
    manager: Option<String>,
    /// Only say what would be taken over, and what would happen then
    #[arg(long)]
    dry_run: bool,
    /// How the answer looks: a table has a row for each device, wide says more of each
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
    output: DocumentFormat,
}

fn device(text: &str) -> Result<DeviceIdentity, String> {
    let named = DeviceIdentity::of_device_name(text).or_else(|| text.parse().ok());
    named.ok_or_else(|| "a device reads 4c1d96fffeddd835-0001 or 4C-1D-96-FF-FE-DD-D8-35:0001".to_owned())
}

/// Answers on `out`.
pub(crate) fn run(args: &AdoptArgs, out: &mut dyn Write) -> Result<CliOutcome, QuestionError> {
    let answer = runtime()?.block_on(args.answer())?;
    write_document(&answer, args.output, out, |width| table::text(&answer, width))?;
    Ok(if answer.has_refusals() { CliOutcome::NotInOrder } else { CliOutcome::Done })
}

impl AdoptArgs {
    async fn answer(&self) -> Result<AdoptionAnswer, QuestionError> {
        let client = self.access.client().map_err(ClusterReadError::connect)?;
        let version = client.version().await.map_err(ClusterReadError::call)?;
        let scene = read(&client, version).await?;
        let choice = AdoptionChoice { devices: self.devices.clone(), manager: self.manager.clone() };
        let mut rows = Vec::new();
        for PlannedAdoption { row, spec } in scene.planned(&choice) {
            rows.push(match spec.filter(|_| !self.dry_run) {
                Some(spec) => adopt(&client, row, &spec).await,
                None => row,
            });
        }
        Ok(AdoptionAnswer::new(self.dry_run, rows))
    }
}

fn attachments() -> Collection {
    Collection::custom(GROUP, VERSION, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS)
}

/// Reads everything that decides which connections can be taken over.
async fn read(client: &ApiClient, version: ApiVersion) -> Result<AdoptionScene, QuestionError> {
    let mut scene = AdoptionScene::default();
    let known: Vec<FabricAttachment> = listed(client, &attachments()).await?;
    scene.attachments = known.into_iter().map(|it| (it.metadata.name.clone(), it)).collect();
    let slices: Vec<ResourceSlice> =
        listed(client, &Collection::resource(version, "ResourceSlice", "resourceslices")).await?;
    slices.into_iter().map(ResourceSlice::unwrapped).for_each(|slice| scene.see_slice(&slice));
    let nodes = Collection::custom(GROUP, VERSION, NODE_HARDWARE_KIND, NODE_HARDWARE);
    for node in listed::<NodeHardware>(client, &nodes).await? {
        if let Some(uuid) = node.status.system_uuid {
            scene.nodes.entry(uuid).or_default().insert(node.metadata.name);
        }
    }
    let claims: Vec<Value> = listed(client, &Collection::resource(version, "ResourceClaim", "resourceclaims")).await?;
    scene.claims = claims_of(&scene, &claims)?;
    Ok(scene)
}

/// The claims that have devices which others hold.
fn claims_of(scene: &AdoptionScene, claims: &[Value]) -> Result<BTreeMap<String, Vec<HolderClaim>>, QuestionError> {
    let mut found: BTreeMap<String, Vec<HolderClaim>> = BTreeMap::new();
    // Most claims of a cluster have devices of nodes.
    let claims: Vec<&Value> = claims.iter().filter(|claim| has_device_behind_switch(claim)).collect();
    for (name, held) in scene.held.iter().filter(|(_, held)| held.host.is_some()) {
        for claim in &claims {
            let claim = ClaimOfDevice::of(claim, &held.driver, name).map_err(QuestionError::Object)?;
            found.entry(name.clone()).or_default().extend(claim.map(|claim| HolderClaim {
                named: claim.named(),
                is_in_use: claim.is_told_attached(),
                pool: claim.pool,
                node: claim.node,
            }));
        }
    }
    Ok(found)
}

fn has_device_behind_switch(claim: &Value) -> bool {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    results.into_iter().flatten().any(|it| it["pool"].as_str().is_some_and(|pool| of_fabric_pool(pool).is_some()))
}

/// A page of a list.
#[derive(Deserialize)]
struct AdoptionPage<T> {
    items: Vec<T>,
}

async fn listed<T: DeserializeOwned>(client: &ApiClient, all: &Collection) -> Result<Vec<T>, QuestionError> {
    let (mut objects, mut wrong) = (Vec::new(), None);
    let mut read = |page: Vec<u8>| match serde_json::from_slice::<AdoptionPage<T>>(&page) {
        Ok(page) => objects.extend(page.items),
        Err(error) => wrong = Some(error),
    };
    match client.list(all, &mut read).await {
        Ok(()) => wrong.map_or(Ok(objects), |error| Err(QuestionError::Object(error))),
        Err(failure) if failure.is_unknown_resource() && *all == attachments() => {
            let resource = format!("{FABRIC_ATTACHMENTS}.{GROUP}");
            Err(QuestionError::NotServed { resource, fix: INSTALL_ATTACHMENTS, source: failure.into() })
        }
        Err(failure) => Err(ClusterReadError::of("list", all, failure).into()),
    }
}

/// Writes the FabricAttachment by which a connection is taken over. A failure is an answer, too: devices before this one may
/// be taken over already.
async fn adopt(client: &ApiClient, row: AdoptionRow, spec: &FabricAttachmentSpec) -> AdoptionRow {
    let message = match write(client, &row.name, spec).await {
        Ok(true) => return AdoptionRow { state: AdoptionState::Adopted, ..row },
        Ok(false) => {
            "its FabricAttachment was written meanwhile, by the controller or another user: look again".to_owned()
        }
        Err(failure) => format!(
            "its FabricAttachment may not be written: {}; the user needs the verbs get, create and update on \
             fabricattachments; look again",
            Chain(&failure)
        ),
    };
    AdoptionRow { state: AdoptionState::Refused, message, ..row }
}

/// Writes the spec; false if another client has written the object since it was read.
async fn write(client: &ApiClient, name: &str, spec: &FabricAttachmentSpec) -> Result<bool, ApiFailure> {
    let all = attachments();
    let written = if spec.attempt == 0 {
        let object = json!({
            "apiVersion": all.api_version(), "kind": all.kind(),
            "metadata": {"name": name, "finalizers": [FABRIC_FINALIZER]}, "spec": spec,
        });
        client.create::<Value>(&all, name, &object).await
    } else {
        let Some(mut object) = client.find::<Value>(&all, name).await? else { return Ok(false) };
        let is_as_read = object["spec"]["attempt"].as_u64() == Some(u64::from(spec.attempt) - 1);
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        let is_waiting = phase == AttachmentPhase::Pending.as_str() && object["spec"]["adopted"] == true;
        if !is_as_read || !(is_waiting || phase == AttachmentPhase::Detached.as_str()) {
            return Ok(false);
        }
        object["spec"] = json!(spec);
        client.replace::<Value>(&all, name, &object).await
    };
    match written {
        Ok(_) => Ok(true),
        Err(failure) if matches!(failure.code(), Some(404 | 409)) => Ok(false),
        Err(failure) => Err(failure),
    }
}
