//! Calls to the API server: each with a time limit, and a failure that says what was tried and what the server said.

mod evict;
mod find;
mod list;
mod release;
mod request;
mod status;

use std::{fmt, future::Future, path::Path, sync::Arc, time::Duration};

use hostler_api::{
    classic::ClassicVersion,
    resource::{ApiVersion, GROUP},
};
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::Incoming,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{sync::watch, time::timeout};

use crate::{
    ApiFailure, ApiPatience, CallError, Collection, ConnectError, CredentialsSource, LastingRefusals, ObjectVersion,
    collection::encoded,
    connection::ApiConnector,
    protobuf::{self, ProtobufObject},
};

pub(crate) use self::list::LIST_PAGE;
pub use self::list::ListSelector;
use self::request::{ApiRequest, JSON, PatchKind, refusal};

/// Calls the API server. Cheap to clone; all clones share one connection.
#[derive(Clone)]
pub struct ApiClient {
    connector: ApiConnector,
    patience: ApiPatience,
    /// The version of `resource.k8s.io` that the server was last found to have.
    version_tx: Arc<watch::Sender<Option<ApiVersion>>>,
    refusals: LastingRefusals,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("version", &*self.version_tx.borrow()).finish_non_exhaustive()
    }
}

impl ApiClient {
    /// Reads the credentials of `kubeconfig`, or of the pod that this process runs in. Does not connect: the server may
    /// come later.
    ///
    /// # Errors
    /// When there are no credentials, or they cannot be used.
    pub fn new(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        Self::with_patience(kubeconfig, ApiPatience::PROMPT)
    }

    /// The same, which waits otherwise.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_patience(source: impl Into<CredentialsSource>, patience: ApiPatience) -> Result<Self, ConnectError> {
        let connector = ApiConnector::of(source.into(), patience)?;
        Ok(Self { connector, patience, version_tx: Arc::default(), refusals: LastingRefusals::default() })
    }

    /// The refusals that callers remember.
    pub fn refusals(&self) -> &LastingRefusals {
        &self.refusals
    }

    /// The best version of `resource.k8s.io` that both sides speak. Asks the server once.
    ///
    /// # Errors
    /// When the server does not answer, or has none.
    pub async fn version(&self) -> Result<ApiVersion, ApiFailure> {
        if let Some(version) = *self.version_tx.borrow() {
            return Ok(version);
        }
        let offered = self.offered_versions().await?;
        let is_offered = |version: &ApiVersion| offered.iter().any(|one| one == version.as_str());
        let version = ApiVersion::ALL.into_iter().find(is_offered).ok_or(ApiFailure::NoResourceApi)?;
        self.version_tx.send_replace(Some(version));
        Ok(version)
    }

    /// The version of `resource.k8s.io` in which a controller allocates, of a server that has none of today's.
    ///
    /// # Errors
    /// When the server does not answer, or has none.
    pub async fn classic_version(&self) -> Result<ClassicVersion, ApiFailure> {
        let offered = self.offered_versions().await?;
        let is_offered = |version: &ClassicVersion| offered.iter().any(|one| one == version.as_str());
        ClassicVersion::ALL.into_iter().find(is_offered).ok_or(ApiFailure::NoResourceApi)
    }

    /// True if the server serves a kind in this version. It says so to callers that may not read any object of it.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn serves(&self, all: &Collection) -> Result<bool, ApiFailure> {
        let step = || format!("ask whether {} of {} are served", all.plural(), all.api_version());
        let path = format!("/apis/{}", all.api_version());
        match self.call::<ServedKinds>(step, request::get(&path)).await {
            Ok(served) => Ok(served.resources.iter().any(|one| one.name == all.plural())),
            Err(failure) if failure.code() == Some(404) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// The versions of `resource.k8s.io` that the server serves, its favourite first.
    ///
    /// # Errors
    /// When the server does not answer, or has none.
    pub async fn offered_versions(&self) -> Result<Vec<String>, ApiFailure> {
        let step = || "list the API groups".to_owned();
        let groups = self.call::<ServedGroups>(step, request::get("/apis")).await?.groups;
        let group = groups.into_iter().find(|group| group.name == GROUP).ok_or(ApiFailure::NoResourceApi)?;
        Ok(group.versions.into_iter().map(|one| one.version).collect())
    }

    /// Has [`version`](Self::version) ask again: the server was upgraded, or downgraded, if it does not know ours.
    pub fn forget_version(&self) {
        self.version_tx.send_replace(None);
    }

    /// An object.
    ///
    /// # Errors
    /// As every call: when no answer comes in time, the server says no, or the answer is no `T`.
    pub async fn get<T: DeserializeOwned>(&self, all: &Collection, name: &str) -> Result<T, ApiFailure> {
        self.call(|| format!("get {}", all.title(name)), request::get(&all.path(name))).await
    }

    /// The UID of an object of which nothing else is wanted.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn uid(&self, all: &Collection, name: &str) -> Result<String, ApiFailure> {
        let request = request::get_metadata(&all.path(name));
        let found: UidOnly = self.call(|| format!("get {}", all.title(name)), request).await?;
        Ok(found.metadata.uid)
    }

    /// Creates an object; gives it as the server has it then.
    ///
    /// # Errors
    /// As [`get`](Self::get), and when the object cannot be put into JSON.
    pub async fn create<T: DeserializeOwned>(
        &self,
        all: &Collection,
        name: &str,
        object: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        let step = || format!("create {}", all.title(name));
        self.call(step, request::post(&all.url_path(), json(step, object)?)).await
    }

    /// Opens an answer that has no end.
    pub(crate) async fn open(&self, step: impl Fn() -> String, path: &str) -> Result<Incoming, ApiFailure> {
        let opening = async { succeeded(self.connector.send(request::get(path)?).await?).await };
        within(self.patience.answer, step, opening).await
    }

    /// Asks a question that is put as an object, which the server answers instead of storing it.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        step: &str,
        all: &Collection,
        question: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        let step = || step.to_owned();
        self.call(step, request::post(&all.url_path(), json(step, question)?)).await
    }

    /// Has the server check and shape an object without storing it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn try_out<T: DeserializeOwned>(
        &self,
        all: &Collection,
        object: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        let step = || format!("try out a {}", all.kind());
        let path = format!("{}?dryRun=All", all.url_path());
        self.call(step, request::post(&path, json(step, object)?)).await
    }

    /// Replaces an object, which names the version that is replaced.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn replace<T: DeserializeOwned>(
        &self,
        all: &Collection,
        name: &str,
        object: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        let step = || format!("update {}", all.title(name));
        self.call(step, request::put(&all.path(name), json(step, object)?)).await
    }

    /// As [`replace`](Self::replace), of a part of an object that is written by itself, such as its `status`; `manager`
    /// owns the fields from then on.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn replace_part<T: DeserializeOwned>(
        &self,
        part: &str,
        all: &Collection,
        name: &str,
        manager: &str,
        object: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        let step = || format!("update the {part} of {}", all.title(name));
        let path = managed_by(manager, &format!("{}/{part}", all.path(name)));
        self.call(step, request::put(&path, json(step, object)?)).await
    }

    /// Deletes exactly the version of an object that was seen.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn delete(&self, all: &Collection, name: &str, version: &ObjectVersion) -> Result<(), ApiFailure> {
        let request = request::delete(&all.path(name), version);
        self.send(|| format!("delete {}", all.title(name)), request).await.map(drop)
    }

    /// Changes fields of an object by a merge patch; `verb` says for people what that is for.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn merge(
        &self,
        verb: &str,
        all: &Collection,
        name: &str,
        patch: &impl Serialize,
    ) -> Result<(), ApiFailure> {
        let step = || format!("{verb} {}", all.title(name));
        let request = request::patch(&all.path(name), PatchKind::Merge, json(step, patch)?);
        self.send(step, request).await.map(drop)
    }

    /// Has the server make the fields of an object what they are in `object`, and creates it if there is none;
    /// `manager` owns these fields from then on. Where another one owns a field and wants it otherwise, the server
    /// refuses (409).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn apply(
        &self,
        all: &Collection,
        name: &str,
        manager: &str,
        object: &impl Serialize,
    ) -> Result<(), ApiFailure> {
        let step = || format!("apply {}", all.title(name));
        let path = managed_by(manager, &all.path(name));
        self.send(step, request::patch(&path, PatchKind::Apply, json(step, object)?)).await.map(drop)
    }

    /// As [`apply`](Self::apply), of fields of the status of an object that is there; gives it as the server has it
    /// then. Fields of others are taken over.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn apply_status<T: DeserializeOwned>(
        &self,
        all: &Collection,
        name: &str,
        manager: &str,
        object: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        let step = || format!("apply the status of {}", all.title(name));
        let path = format!("{}&force=true", managed_by(manager, &format!("{}/status", all.path(name))));
        self.call(step, request::patch(&path, PatchKind::Apply, json(step, object)?)).await
    }

    /// Changes fields of an object by a merge patch that names the version that it goes over; gives the object as the
    /// server has it then. `manager` owns the fields from then on.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn change<T: DeserializeOwned>(
        &self,
        all: &Collection,
        name: &str,
        manager: &str,
        patch: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        let step = || format!("change {}", all.title(name));
        let path = managed_by(manager, &all.path(name));
        self.call(step, request::patch(&path, PatchKind::Merge, json(step, patch)?)).await
    }

    /// As [`change`](Self::change), of the status of an object.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn change_status<T: DeserializeOwned>(
        &self,
        all: &Collection,
        name: &str,
        manager: &str,
        patch: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        let step = || format!("change the status of {}", all.title(name));
        let path = managed_by(manager, &format!("{}/status", all.path(name)));
        self.call(step, request::patch(&path, PatchKind::Merge, json(step, patch)?)).await
    }

    /// An object in the form in which it can go back unchanged.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_protobuf(&self, all: &Collection, name: &str) -> Result<ProtobufObject, ApiFailure> {
        let request = Request::get(all.path(name)).header(ACCEPT, protobuf::MEDIA_TYPE).body(Vec::new());
        self.call_protobuf(|| format!("get {}", all.title(name)), request).await
    }

    /// Replaces the finalizers of an object, if it is still in this version; gives it as the server has it then.
    /// Nothing else of it changes, where a patch would rewrite what the server keeps as text: spaces in parameters of a
    /// driver.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn replace_finalizers<T: DeserializeOwned>(
        &self,
        all: &Collection,
        name: &str,
        manager: &str,
        (version, finalizers): (&str, &[String]),
    ) -> Result<T, ApiFailure> {
        let step = || format!("write the finalizers of {}", all.title(name));
        let found = self.get_protobuf(all, name).await?;
        let changed =
            found.with_finalizers(version, finalizers).map_err(|error| ApiFailure::unusable(step(), error))?;
        let request = Request::put(managed_by(manager, &all.path(name)))
            .header(ACCEPT, JSON)
            .header(CONTENT_TYPE, protobuf::MEDIA_TYPE)
            .body(changed.encode());
        self.call(step, request).await
    }

    /// Sends a request whose answer is read as `T`.
    async fn call<T: DeserializeOwned>(&self, step: impl Fn() -> String, request: ApiRequest) -> Result<T, ApiFailure> {
        let answer = self.send(&step, request).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| ApiFailure::Call { step: step(), source: CallError::Answer(error) })
    }

    /// As [`call`](Self::call), in the binary form.
    async fn call_protobuf(
        &self,
        step: impl Fn() -> String,
        request: ApiRequest,
    ) -> Result<ProtobufObject, ApiFailure> {
        let answer = self.send(&step, request).await?;
        ProtobufObject::decode(&answer).map_err(|error| ApiFailure::unusable(step(), error))
    }

    /// Makes one exchange.
    async fn send(&self, step: impl Fn() -> String, request: ApiRequest) -> Result<Vec<u8>, ApiFailure> {
        let exchange = async {
            let body = succeeded(self.connector.send(request?).await?).await?;
            Ok(body.collect().await?.to_bytes().into())
        };
        within(self.patience.answer, step, exchange).await
    }
}

/// APIGroupList: the groups that a server has.
#[derive(Deserialize)]
struct ServedGroups {
    #[serde(default)]
    groups: Vec<ServedGroup>,
}

/// APIGroup: a group and its versions.
#[derive(Deserialize)]
struct ServedGroup {
    name: String,
    #[serde(default)]
    versions: Vec<ServedVersion>,
}

#[derive(Deserialize)]
struct ServedVersion {
    version: String,
}

/// APIResourceList: the kinds of a version of a group.
#[derive(Deserialize)]
struct ServedKinds {
    #[serde(default)]
    resources: Vec<ServedKind>,
}

#[derive(Deserialize)]
struct ServedKind {
    /// The plural.
    name: String,
}

#[derive(Deserialize)]
struct UidOnly {
    metadata: UidOnlyMetadata,
}

#[derive(Deserialize)]
struct UidOnlyMetadata {
    #[serde(default)]
    uid: String,
}

/// The path of a write, whose fields `manager` owns from then on.
fn managed_by(manager: &str, path: &str) -> String {
    format!("{path}?fieldManager={}", encoded(manager))
}

fn json(step: impl Fn() -> String, object: &impl Serialize) -> Result<Vec<u8>, ApiFailure> {
    serde_json::to_vec(object).map_err(|error| ApiFailure::Call { step: step(), source: CallError::Answer(error) })
}

/// The body of an answer, unless it is a no.
async fn succeeded(answer: Response<Incoming>) -> Result<Incoming, CallError> {
    let code = answer.status();
    if code.is_success() {
        return Ok(answer.into_body());
    }
    let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let body = answer.into_body().collect().await?.to_bytes();
    Err(CallError::Status(refusal(code.as_u16(), retry_after, &body)))
}

pub(crate) async fn within<T>(
    limit: Duration,
    step: impl Fn() -> String,
    exchange: impl Future<Output = Result<T, CallError>>,
) -> Result<T, ApiFailure> {
    match timeout(limit, exchange).await {
        Ok(result) => result.map_err(|source| ApiFailure::Call { step: step(), source }),
        Err(_) => Err(ApiFailure::TimedOut { step: step(), after: limit }),
    }
}
