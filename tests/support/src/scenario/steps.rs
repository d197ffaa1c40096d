//! The steps of a scenario, and whether the server does with each what is expected.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{PATIENCE, PAUSE, ServerRefusal, client::ScenarioClient, matching};
use crate::apiserver::fields_of;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum ScenarioStep {
    Create(CreateStep),
    Apply(ApplyStep),
    Patch(PatchStep),
    Replace(PatchStep),
    Delete(DeleteStep),
    Wait(WaitStep),
    Owners(OwnersStep),
    Remember(RememberStep),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateStep {
    object: Value,
    #[serde(default)]
    manager: Option<String>,
    #[serde(default)]
    refused: Option<ExpectedRefusal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyStep {
    object: Value,
    manager: String,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    status: bool,
    #[serde(default)]
    unchanged: bool,
    #[serde(default)]
    refused: Option<ExpectedRefusal>,
}

/// A patch, or an object that is read, merged with `body` and replaced.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchStep {
    of: String,
    #[serde(default)]
    strategic: bool,
    body: Value,
    #[serde(default)]
    manager: Option<String>,
    #[serde(default)]
    status: bool,
    #[serde(default)]
    unchanged: bool,
    #[serde(default)]
    refused: Option<ExpectedRefusal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteStep {
    of: String,
    #[serde(default)]
    options: Value,
    #[serde(default)]
    refused: Option<ExpectedRefusal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitStep {
    of: String,
    #[serde(default)]
    has: Value,
    #[serde(default)]
    lacks: Vec<String>,
    #[serde(default)]
    gone: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnersStep {
    of: String,
    /// Fields by manager, operation and subresource.
    are: BTreeMap<String, Vec<String>>,
}

/// A word for what is in an object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberStep {
    of: String,
    path: String,
    r#as: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedRefusal {
    code: u16,
    says: String,
}

/// Takes a step, as it is written; `words` are the scenario's own.
pub(super) async fn take(
    text: &str,
    client: &mut ScenarioClient,
    words: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    let step: ScenarioStep = serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
    step.take(client, words).await
}

fn judge(result: Result<Value, ServerRefusal>, expected: Option<&ExpectedRefusal>) -> Result<Option<Value>, String> {
    match (result, expected) {
        (Ok(object), None) => Ok(Some(object)),
        (Ok(object), Some(expected)) => Err(format!("should be refused with {}, and became {object}", expected.code)),
        (Err(told), None) => Err(format!("refused: {} {}", told.code, told.message)),
        (Err(told), Some(expected)) if told.code == expected.code && told.message.contains(&expected.says) => Ok(None),
        (Err(told), Some(expected)) => {
            Err(format!("refused with {} {:?}, not {} {:?}", told.code, told.message, expected.code, expected.says))
        }
    }
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

impl ScenarioStep {
    async fn take(&self, client: &mut ScenarioClient, words: &mut BTreeMap<String, String>) -> Result<(), String> {
        match self {
            Self::Create(step) => {
                let result = client.create(&step.object, step.manager.as_deref()).await?;
                judge(result, step.refused.as_ref()).map(drop)
            }
            Self::Apply(step) => step.take(client).await,
            Self::Patch(step) => step.patch(client).await,
            Self::Replace(step) => step.replace(client).await,
            Self::Delete(step) => {
                let result = client.delete(&step.of, &step.options).await?;
                judge(result, step.refused.as_ref()).map(drop)
            }
            Self::Wait(step) => step.take(client).await,
            Self::Owners(step) => step.take(client).await,
            Self::Remember(step) => {
                let object = client.get(&step.of).await?.ok_or("it is not there")?;
                let value = object.pointer(&step.path).and_then(Value::as_str).ok_or("there is no such text")?;
                words.insert(step.r#as.clone(), value.to_owned());
                Ok(())
            }
        }
    }
}

fn check_unchanged(before: &str, after: Option<&Value>, wanted: bool) -> Result<(), String> {
    match after {
        Some(after) if wanted && version(after) != before => Err(format!("was written: {after}")),
        Some(after) if !wanted && version(after) == before && after["metadata"]["deletionTimestamp"].is_null() => {
            Err(format!("was not written: {after}"))
        }
        _ => Ok(()),
    }
}

impl ApplyStep {
    async fn take(&self, client: &mut ScenarioClient) -> Result<(), String> {
        let before = client.get_same(&self.object).await?;
        let subresource = self.status.then_some("status");
        let result = client.apply(&self.object, subresource, &self.manager, self.force).await?;
        let after = judge(result, self.refused.as_ref())?;
        let before = before.unwrap_or_default();
        check_unchanged(version(&before), after.as_ref(), self.unchanged)
    }
}

impl PatchStep {
    fn manager(&self) -> &str {
        self.manager.as_deref().unwrap_or("scenario")
    }

    async fn patch(&self, client: &mut ScenarioClient) -> Result<(), String> {
        let before = client.get(&self.of).await?.unwrap_or_default();
        let subresource = self.status.then_some("status");
        let result = client.patch(&self.of, self.strategic, subresource, self.manager(), &self.body).await?;
        let after = judge(result, self.refused.as_ref())?;
        check_unchanged(version(&before), after.as_ref(), self.unchanged)
    }

    async fn replace(&self, client: &mut ScenarioClient) -> Result<(), String> {
        let before = client.get(&self.of).await?.ok_or("it is not there")?;
        let mut changed = before.clone();
        matching::merge(&mut changed, &self.body);
        let result = client.replace(&changed, self.status.then_some("status"), self.manager()).await?;
        let after = judge(result, self.refused.as_ref())?;
        check_unchanged(version(&before), after.as_ref(), self.unchanged)
    }
}

impl WaitStep {
    async fn take(&self, client: &mut ScenarioClient) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let found = client.get(&self.of).await?;
            let why = match &found {
                None if self.gone => return Ok(()),
                None => Err("it is not there".to_owned()),
                Some(_) if self.gone => Err("it is still there".to_owned()),
                Some(object) => matching::check(object, &self.has, &self.lacks),
            };
            let Err(why) = why else { return Ok(()) };
            if start.elapsed() > PATIENCE {
                let found = found.unwrap_or_default();
                return Err(format!("waited in vain: {why}: {found}"));
            }
            sleep(PAUSE).await;
        }
    }
}

impl OwnersStep {
    async fn take(&self, client: &mut ScenarioClient) -> Result<(), String> {
        let object = client.get(&self.of).await?.ok_or("it is not there")?;
        let mut owners = fields_of(&object);
        owners.retain(|owner, _| !owner.starts_with("kube-") && !owner.starts_with("ResourceClaimController"));
        if owners == self.are { Ok(()) } else { Err(format!("the fields belong to {owners:#?}")) }
    }
}
