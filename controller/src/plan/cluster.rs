//! Reads a live cluster: everything that decides where pods go. Writes nothing.

use hostler_api::{hardware, resource::ApiVersion};
use hostler_cluster::{ApiClient, ApiFailure, Collection, ConnectError, CredentialsError};
use serde_json::Value;

use super::read::InputText;
use crate::{cluster_args::ClusterArgs, observed::ObservedKind};

/// The cluster's name in messages.
pub(crate) const SOURCE: &str = "cluster";

/// The reason why a cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterReadError {
    /// There are no credentials.
    #[error("failed to prepare for talking to the API server")]
    Connect(#[source] ConnectError),
    /// Nothing names a cluster.
    #[error(
        "no cluster is named, and this is no pod: name one with --kubeconfig or --server, or the variable KUBECONFIG; \
         without them ~/.kube/config is read"
    )]
    NoCluster,
    /// A call failed.
    #[error("failed to read the cluster")]
    Call(#[source] Box<ApiFailure>),
    /// The cluster may not be read.
    #[error("failed to read the cluster; the user needs the verb {verb} on {plural}")]
    Forbidden {
        /// The verb that is lacking.
        verb: &'static str,
        /// The resources to read.
        plural: String,
        /// The server's answer, on the heap: every result would have to have room for it.
        #[source]
        source: Box<ApiFailure>,
    },
}

impl ClusterReadError {
    /// Makes the error about credentials that cannot be found.
    pub(crate) fn connect(error: ConnectError) -> Self {
        match error {
            ConnectError::Credentials(CredentialsError::NoPod) => Self::NoCluster,
            other => Self::Connect(other),
        }
    }

    /// Makes the error about a call.
    pub(crate) fn call(failure: ApiFailure) -> Self {
        Self::Call(failure.into())
    }

    /// Makes the error about a call for objects, which may take a right that the user lacks.
    pub(crate) fn of(verb: &'static str, all: &Collection, failure: ApiFailure) -> Self {
        match failure.code() {
            Some(403) => Self::Forbidden { verb, plural: all.plural().to_owned(), source: failure.into() },
            _ => Self::call(failure),
        }
    }
}

/// A cluster that can be read.
#[derive(Debug)]
pub(crate) struct LiveCluster {
    client: ApiClient,
    version: ApiVersion,
}

impl LiveCluster {
    /// Connects to a cluster, and finds out what it serves.
    pub(crate) async fn connect(access: &ClusterArgs) -> Result<Self, ClusterReadError> {
        let client = access.client().map_err(ClusterReadError::connect)?;
        let version = client.version().await.map_err(ClusterReadError::call)?;
        Ok(Self { client, version })
    }

    /// Returns the cluster's minor release: 36 for 1.36.
    pub(crate) async fn minor_release(&self) -> Result<u32, ClusterReadError> {
        self.client.minor_release().await.map_err(ClusterReadError::call)
    }

    /// Gives every list of devices and of their holders to `each`, page by page. A cluster need not have reports of
    /// nodes.
    pub(crate) async fn read_stock(&self, each: &mut dyn FnMut(InputText)) -> Result<(), ClusterReadError> {
        self.list(&Collection::core("Node", "nodes"), each).await?;
        for (kind, plural) in
            [("DeviceClass", "deviceclasses"), ("ResourceSlice", "resourceslices"), ("ResourceClaim", "resourceclaims")]
        {
            self.list(&Collection::resource(self.version, kind, plural), each).await?;
        }
        for kind in [ObservedKind::DeviceTaintRule, ObservedKind::NodeHardware] {
            self.list_first(&kind.collections(Some(self.version)), each).await?;
        }
        match self.read_reservations(each).await {
            // The answer then has no names of Reservations for which devices are held, and says so.
            Err(ClusterReadError::Forbidden { .. }) => Ok(()),
            read => read,
        }
    }

    /// Gives every namespace to `each`, where the user may read them. Without them, terms about pods that look at their
    /// labels are not judged, and the answer says so.
    async fn read_namespaces(&self, each: &mut dyn FnMut(InputText)) -> Result<(), ClusterReadError> {
        match self.list_first(&ObservedKind::Namespace.collections(Some(self.version)), each).await {
            Err(ClusterReadError::Forbidden { .. }) => Ok(()),
            read => read,
        }
    }

    /// Gives every list to `each`, page by page.
    pub(crate) async fn read(&self, each: &mut dyn FnMut(InputText)) -> Result<(), ClusterReadError> {
        let resource = |kind, plural| Collection::resource(self.version, kind, plural);
        for all in [
            Collection::core("Node", "nodes"),
            Collection::core("Pod", "pods"),
            resource("DeviceClass", "deviceclasses"),
            resource("ResourceSlice", "resourceslices"),
            resource("ResourceClaim", "resourceclaims"),
            resource("ResourceClaimTemplate", "resourceclaimtemplates"),
        ] {
            self.list(&all, each).await?;
        }
        self.read_namespaces(each).await?;
        self.list_first(&[Collection::custom("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")], each)
            .await?;
        self.list_first(&ObservedKind::DeviceTaintRule.collections(Some(self.version)), each).await
    }

    /// Gives every list that explains the pods of a namespace, or of all, to `each`; of pods and claims those of all
    /// namespaces, which hold devices, where the user may read them. Returns the resources that the user may not read.
    pub(crate) async fn read_for_pods(
        &self,
        namespace: Option<&str>,
        each: &mut dyn FnMut(InputText),
    ) -> Result<Vec<&'static str>, ClusterReadError> {
        use ObservedKind as Kind;
        let mut lacking = Vec::new();
        let everywhere = [
            Kind::Node,
            Kind::DeviceClass,
            Kind::ResourceSlice,
            Kind::DeviceTaintRule,
            Kind::NodeHardware,
            Kind::Reservation,
            Kind::FabricAttachment,
        ];
        for kind in everywhere {
            self.list_allowed(kind.plural(), &kind.collections(Some(self.version)), &mut lacking, each).await?;
        }
        self.read_namespaces(each).await?;
        let priorities = [Collection::custom("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")];
        self.list_allowed("priorityclasses", &priorities, &mut lacking, each).await?;
        for kind in [Kind::Pod, Kind::ResourceClaim] {
            let all = kind.collections(Some(self.version));
            self.list_allowed(kind.plural(), &all, &mut lacking, each).await?;
            if let Some(namespace) = namespace.filter(|_| lacking.contains(&kind.plural())) {
                self.list_first(&of(all, Some(namespace)), each).await?;
            }
        }
        for kind in [Kind::ResourceClaimTemplate, Kind::ProvisioningRequest] {
            let all = of(kind.collections(Some(self.version)), namespace);
            self.list_allowed(kind.plural(), &all, &mut lacking, each).await?;
        }
        let events = of(vec![Collection::core("Event", "events")], namespace);
        self.list_allowed("events", &events, &mut lacking, each).await?;
        Ok(lacking)
    }

    /// Gives the pods of a namespace, or of all, to `each`: of a cluster without an API of claims that is known here.
    /// Returns its minor release.
    pub(crate) async fn read_pods_alone(
        access: &ClusterArgs,
        namespace: Option<&str>,
        each: &mut dyn FnMut(InputText),
    ) -> Result<Option<u32>, ClusterReadError> {
        let client = access.client().map_err(ClusterReadError::connect)?;
        let cluster = Self { client, version: ApiVersion::ALL[0] };
        cluster.list_first(&of(vec![Collection::core("Pod", "pods")], namespace), each).await?;
        Ok(cluster.minor_release().await.ok())
    }

    /// As [`list_first`](Self::list_first); what may not be read is added to `lacking`.
    async fn list_allowed(
        &self,
        plural: &'static str,
        alternatives: &[Collection],
        lacking: &mut Vec<&'static str>,
        each: &mut dyn FnMut(InputText),
    ) -> Result<(), ClusterReadError> {
        match self.list_first(alternatives, each).await {
            Err(ClusterReadError::Forbidden { .. }) => lacking.push(plural),
            done => done?,
        }
        Ok(())
    }

    /// Gives every list about the state of ProvisioningRequests to `each`: all requests, pods and their templates of a
    /// namespace, and Reservations, where the kind is served and may be read.
    pub(crate) async fn read_requests(
        &self,
        namespace: &str,
        each: &mut dyn FnMut(InputText),
    ) -> Result<(), ClusterReadError> {
        self.list_first(&ObservedKind::ProvisioningRequest.collections(Some(self.version)), each).await?;
        self.list(&Collection::core("PodTemplate", "podtemplates").of(namespace), each).await?;
        self.list(&Collection::core("Pod", "pods").of(namespace), each).await?;
        match self.list_first(&ObservedKind::Reservation.collections(Some(self.version)), each).await {
            Err(ClusterReadError::Forbidden { .. }) => Ok(()),
            done => done,
        }
    }

    /// Gives every Reservation to `each`, page by page; there are none where the kind is not served.
    pub(crate) async fn read_reservations(&self, each: &mut dyn FnMut(InputText)) -> Result<(), ClusterReadError> {
        self.list_first(&ObservedKind::Reservation.collections(Some(self.version)), each).await
    }

    /// Gives the pods and claims of these namespaces to `each`, or of all namespaces for an empty list.
    pub(crate) async fn read_owners(
        &self,
        namespaces: Option<&[String]>,
        each: &mut dyn FnMut(InputText),
    ) -> Result<(), ClusterReadError> {
        let kinds =
            || [Collection::core("Pod", "pods"), Collection::resource(self.version, "ResourceClaim", "resourceclaims")];
        let places: Vec<Collection> = match namespaces {
            None => kinds().into(),
            Some(names) => names.iter().flat_map(|name| kinds().map(|kind| kind.of(name))).collect(),
        };
        for place in places {
            self.list(&place, each).await?;
        }
        Ok(())
    }

    /// Returns the devices of a node, and those that it was told to close; `None` if it has no NodeHardware.
    pub(crate) async fn node_hardware(&self, node: &str) -> Result<Option<Value>, ClusterReadError> {
        let all = Collection::custom(
            hardware::GROUP,
            hardware::VERSION,
            hardware::NODE_HARDWARE_KIND,
            hardware::NODE_HARDWARE,
        );
        match self.client.get(&all, node).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.code() == Some(404) => Ok(None),
            Err(failure) => Err(ClusterReadError::of("get", &all, failure)),
        }
    }

    /// Gives every list of the first of `alternatives` that the server serves to `each`; it may serve none.
    async fn list_first(
        &self,
        alternatives: &[Collection],
        each: &mut dyn FnMut(InputText),
    ) -> Result<(), ClusterReadError> {
        for all in alternatives {
            match self.list(all, each).await {
                Err(ClusterReadError::Call(failure)) if failure.code() == Some(404) => {}
                done => return done,
            }
        }
        Ok(())
    }

    async fn list(&self, all: &Collection, each: &mut dyn FnMut(InputText)) -> Result<(), ClusterReadError> {
        let mut page = |bytes: Vec<u8>| {
            // Bytes that are no UTF-8 are no JSON either; the reader reports the place.
            let text = String::from_utf8_lossy(&bytes).into_owned();
            each(InputText { name: format!("{SOURCE}, {}", all.plural()), text });
        };
        self.client.list(all, &mut page).await.map_err(|failure| ClusterReadError::of("list", all, failure))
    }
}

/// Returns the collections of a namespace, or those of all.
fn of(collections: Vec<Collection>, namespace: Option<&str>) -> Vec<Collection> {
    match namespace {
        Some(namespace) => collections.into_iter().map(|all| all.of(namespace)).collect(),
        None => collections,
    }
}
