//! Requests of a scenario: objects of any kind, found by what the server says that it serves.

use kube::Client;
use serde_json::{Value, json};

use tokio::time::{Instant, sleep};

use super::{PATIENCE, PAUSE, ServerRefusal};

type Answer = Result<Result<Value, ServerRefusal>, String>;

/// A client that may do everything.
pub(super) struct ScenarioClient {
    client: Client,
    namespace: String,
    /// Objects that belong to no namespace, the newest last.
    made: Vec<String>,
}

/// Version, kind and name.
fn words(of: &str) -> Result<(&str, &str, &str), String> {
    let mut words = of.split_whitespace();
    let three = (words.next(), words.next(), words.next());
    let (Some(version), Some(kind), Some(name)) = three else { return Err(format!("{of} is not VERSION KIND NAME")) };
    Ok((version, kind, name))
}

fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    format!("{} {} {}", text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]))
}

impl ScenarioClient {
    pub(super) fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, made: Vec::new() }
    }

    async fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
        let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request =
            hyper::Request::builder().method(method).uri(path).header("content-type", content_type).body(text);
        let request = request.map_err(|error| error.to_string())?;
        match self.client.request::<Value>(request).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(kube::Error::Api(status)) => Ok(Err(ServerRefusal { code: status.code, message: status.message })),
            Err(error) => Err(format!("{method} {path}: {error}")),
        }
    }

    /// The path to all objects of a kind, and whether they are in namespaces.
    async fn place(&self, version: &str, kind: &str) -> Result<(String, bool), String> {
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let start = Instant::now();
        let resource = loop {
            let served = self.ask("GET", &root, "application/json", &Value::Null).await?.unwrap_or_default();
            let mut resources = served["resources"].as_array().into_iter().flatten();
            let is_it =
                |resource: &&Value| resource["kind"] == kind && !resource["name"].as_str().unwrap_or("/").contains('/');
            if let Some(resource) = resources.find(is_it) {
                break resource.clone();
            }
            // A real server serves what was defined after a moment.
            if start.elapsed() > PATIENCE {
                return Err(format!("{version} {kind} is not served"));
            }
            sleep(PAUSE).await;
        };
        let plural = resource["name"].as_str().unwrap_or_default();
        let is_namespaced = resource["namespaced"] == true;
        let within = if is_namespaced { format!("/namespaces/{}", self.namespace) } else { String::new() };
        Ok((format!("{root}{within}/{plural}"), is_namespaced))
    }

    async fn path(&self, of: &str) -> Result<String, String> {
        let (version, kind, name) = words(of)?;
        let (place, _) = self.place(version, kind).await?;
        if name != "*" {
            return Ok(format!("{place}/{name}"));
        }
        let list = self.ask("GET", &place, "application/json", &Value::Null).await?.map_err(|told| told.message)?;
        match list["items"].as_array().map_or(&[][..], Vec::as_slice) {
            [one] => Ok(format!("{place}/{}", one["metadata"]["name"].as_str().unwrap_or_default())),
            [] => Ok(format!("{place}/there-is-none")),
            several => Err(format!("there are {} of {kind}", several.len())),
        }
    }

    pub(super) async fn get(&self, of: &str) -> Result<Option<Value>, String> {
        let path = self.path(of).await?;
        match self.ask("GET", &path, "application/json", &Value::Null).await? {
            Ok(object) => Ok(Some(object)),
            Err(told) if told.code == 404 => Ok(None),
            Err(told) => Err(told.message),
        }
    }

    /// Returns the present version of an object.
    pub(super) async fn get_same(&self, object: &Value) -> Result<Option<Value>, String> {
        self.get(&named(object)).await
    }

    fn remember(&mut self, object: &Value, is_namespaced: bool) {
        if !is_namespaced {
            self.made.push(named(object));
        }
    }

    pub(super) async fn create(&mut self, object: &Value, manager: Option<&str>) -> Answer {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (place, is_namespaced) = self.place(&text("apiVersion"), &text("kind")).await?;
        self.remember(object, is_namespaced);
        let manager = manager.unwrap_or("scenario");
        self.ask("POST", &format!("{place}?fieldManager={manager}"), "application/json", object).await
    }

    pub(super) async fn apply(&mut self, object: &Value, sub: Option<&str>, manager: &str, force: bool) -> Answer {
        let path = self.path(&named(object)).await?;
        self.remember(object, path.contains("/namespaces/"));
        let path = format!("{}?fieldManager={manager}&force={force}", with(&path, sub));
        self.ask("PATCH", &path, "application/apply-patch+yaml", object).await
    }

    pub(super) async fn patch(
        &self,
        of: &str,
        strategic: bool,
        sub: Option<&str>,
        manager: &str,
        body: &Value,
    ) -> Answer {
        let kind = if strategic { "strategic-merge-patch" } else { "merge-patch" };
        let path = format!("{}?fieldManager={manager}", with(&self.path(of).await?, sub));
        self.ask("PATCH", &path, &format!("application/{kind}+json"), body).await
    }

    pub(super) async fn replace(&self, object: &Value, sub: Option<&str>, manager: &str) -> Answer {
        let path = format!("{}?fieldManager={manager}", with(&self.path(&named(object)).await?, sub));
        self.ask("PUT", &path, "application/json", object).await
    }

    pub(super) async fn delete(&self, of: &str, options: &Value) -> Answer {
        let path = self.path(of).await?;
        self.ask("DELETE", &path, "application/json", options).await
    }

    /// Leaves nothing behind that is in no namespace; what is gone already is fine.
    pub(super) async fn clean_up(&self) {
        for of in self.made.iter().rev() {
            let free = json!({ "metadata": { "finalizers": null } });
            let _ = self.patch(of, false, None, "scenario", &free).await;
            let _ = self.delete(of, &json!({ "gracePeriodSeconds": 0 })).await;
        }
    }
}

fn with(path: &str, subresource: Option<&str>) -> String {
    subresource.map_or_else(|| path.to_owned(), |sub| format!("{path}/{sub}"))
}
