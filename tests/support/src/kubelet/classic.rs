//! Kubelets of 1.26 to 1.31: how they register a driver, what they call it with, and what they keep of its answers.
//!
//! | release | calls | handle | deadline | connection | kept over a restart |
//! |---|---|---|---|---|---|
//! | 1.26 | `v1alpha1.Node`, a claim at a time | the claim's one | none | one per call, under the path as it is | nothing |
//! | 1.27 | `v1alpha2.Node`, a handle at a time | with the call | 10 s | one per call, as above | handles, CDI names |
//! | 1.28 | `v1alpha3.Node`; where unknown `v1alpha2.Node` | with the call | 45 s | one per call, as above | as above |
//! | 1.30 | the same, and remembers which | with the call | 45 s | one, under the escaped path | as above |
//! | 1.31 | `v1alpha3.Node`, with other messages | none | 45 s | as above | CDI names |

mod calls;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use hostler_proto::{
    dra_v1::Claim,
    registration::{InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient},
};
use tonic::transport::Channel;

use super::{
    GET_INFO, Kubelet, KubeletComplaint, KubeletRelease, KubeletResult, NOTIFY, PATIENCE, authority, complain, dial,
    failed, is_cdi_id, old_dial::dial_by_path, request,
};

/// A release of Kubernetes with classic DRA.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClassicRelease {
    /// 1.26
    V1_26,
    /// 1.27
    V1_27,
    /// 1.28; 1.29 does the same.
    V1_28,
    /// 1.30
    V1_30,
    /// 1.31
    V1_31,
}

impl ClassicRelease {
    /// All releases.
    pub const ALL: [Self; 5] = [Self::V1_26, Self::V1_27, Self::V1_28, Self::V1_30, Self::V1_31];
    /// Releases whose kubelets get handles.
    pub const WITH_HANDLES: [Self; 4] = [Self::V1_26, Self::V1_27, Self::V1_28, Self::V1_30];

    /// Returns the kubelet's deadline for a call; a test that waits longer waits in vain.
    pub fn deadline(self) -> Duration {
        match self {
            Self::V1_26 => PATIENCE,
            Self::V1_27 => Duration::from_secs(10),
            Self::V1_28 | Self::V1_30 | Self::V1_31 => super::CALL,
        }
    }

    async fn dial(self, socket: &Path) -> KubeletResult<Channel> {
        match self {
            Self::V1_26 | Self::V1_27 | Self::V1_28 => dial_by_path(socket).await,
            Self::V1_30 | Self::V1_31 => dial(socket, &authority(socket)).await,
        }
    }
}

/// A claim as its status is, as far as a kubelet reads it.
#[derive(Clone, Debug)]
pub struct AllocatedClaim {
    /// The claim.
    pub claim: Claim,
    /// `driverName` of the status.
    pub driver: String,
    /// The handles: driver, where it is not that of the status, and data.
    pub handles: Vec<(String, String)>,
}

impl AllocatedClaim {
    /// A claim that one driver gave something.
    pub fn new(claim: Claim, driver: &str, handle: &str) -> Self {
        Self { claim, driver: driver.to_owned(), handles: vec![(String::new(), handle.to_owned())] }
    }

    /// Returns the data for `driver`, one text for each call, or entry of one. Without any handle the driver gets an
    /// empty one.
    fn data_for(&self, driver: &str) -> Vec<String> {
        let none = vec![(String::new(), String::new())];
        let handles = if self.handles.is_empty() { &none } else { &self.handles };
        let is_for = |name: &String| if name.is_empty() { self.driver == driver } else { name == driver };
        handles.iter().filter(|(name, _)| is_for(name)).map(|(_, data)| data.clone()).collect()
    }
}

/// A claim in the kubelet's cache.
#[derive(Clone, Debug)]
struct KeptClaim {
    claim: AllocatedClaim,
    cdi_ids: Vec<String>,
    /// True if the claim is prepared and needs no further call. A restart forgets it.
    is_prepared: bool,
}

/// A kubelet of such a release, with the one driver that it knows.
#[derive(Clone, Debug)]
pub struct ClassicKubelet {
    root: PathBuf,
    release: ClassicRelease,
    driver: Option<ClassicDriver>,
    kept: BTreeMap<String, KeptClaim>,
}

#[derive(Clone, Debug)]
struct ClassicDriver {
    name: String,
    endpoint: PathBuf,
    version: ParsedVersion,
    /// The connection to the driver, kept between calls.
    channel: Option<Channel>,
    /// True if the driver has answered that it does not know `v1alpha3.Node`.
    is_old: bool,
}

/// The numbers of a version.
type ParsedVersion = Vec<u64>;

impl ClassicKubelet {
    /// A kubelet that works in `root`.
    pub fn new(root: impl Into<PathBuf>, release: ClassicRelease) -> Self {
        Self { root: root.into(), release, driver: None, kept: BTreeMap::new() }
    }

    /// Registers the driver whose socket is there.
    ///
    /// # Errors
    /// When the real kubelet would refuse it.
    pub async fn register(&mut self) -> KubeletResult<PluginInfo> {
        let sockets = Kubelet::new(&self.root, KubeletRelease::V1_33).sockets();
        let live = sockets.into_iter().find(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok());
        let Some(socket) = live else { return complain("no driver has a socket") };
        let mut client = RegistrationClient::new(self.release.dial(&socket).await?);
        let info = client.get_info(request(InfoRequest {}, GET_INFO)).await.map_err(failed("GetInfo"))?.into_inner();
        let accepted = self.accept(&info);
        let error = accepted.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let status = RegistrationStatus { plugin_registered: accepted.is_ok(), error };
        client.notify_registration_status(request(status, NOTIFY)).await.map_err(failed("NotifyRegistrationStatus"))?;
        accepted.map(|()| info)
    }

    fn accept(&mut self, info: &PluginInfo) -> KubeletResult<()> {
        if info.r#type != "DRAPlugin" || info.endpoint.is_empty() {
            return complain(format!("{info:?} is no DRA plugin"));
        }
        let version = highest_version(&info.supported_versions)?;
        if self.driver.as_ref().is_some_and(|known| known.name == info.name && known.version >= version) {
            return complain(format!("{} is already registered with a higher supported version", info.name));
        }
        let (name, endpoint) = (info.name.clone(), PathBuf::from(&info.endpoint));
        self.driver = Some(ClassicDriver { name, endpoint, version, channel: None, is_old: false });
        Ok(())
    }

    /// The driver's registration socket has gone.
    pub fn deregister(&mut self) {
        self.driver = None;
    }

    /// The kubelet stops and starts: it finds its drivers anew, and has of claims what its file says.
    pub fn restart(&mut self) {
        self.driver = None;
        if self.release == ClassicRelease::V1_26 {
            self.kept.clear();
        }
        self.kept.values_mut().for_each(|kept| kept.is_prepared = false);
    }

    /// The claims of a pod that is about to start; gives the CDI names of each.
    ///
    /// # Errors
    /// What becomes an event of the pod.
    pub async fn prepare(&mut self, claims: &[AllocatedClaim]) -> KubeletResult<Vec<Vec<String>>> {
        let due: Vec<AllocatedClaim> =
            claims.iter().filter(|claim| !self.has_ready(&claim.claim.uid)).cloned().collect();
        let answers = calls::prepare(self.release, self.driver()?, &due).await?;
        for claim in due {
            let Some(answer) = answers.get(&claim.claim.uid) else {
                return complain(format!("NodePrepareResources left out claim {}", claim.claim.uid));
            };
            let cdi_ids = match answer {
                Ok(cdi_ids) => cdi_ids.clone(),
                Err(error) => return complain(format!("claim {}: {error}", claim.claim.name)),
            };
            self.keep(claim, cdi_ids)?;
        }
        Ok(claims.iter().map(|claim| self.kept[&claim.claim.uid].cdi_ids.clone()).collect())
    }

    fn has_ready(&self, uid: &str) -> bool {
        self.kept.get(uid).is_some_and(|kept| kept.is_prepared)
    }

    fn keep(&mut self, claim: AllocatedClaim, cdi_ids: Vec<String>) -> KubeletResult<()> {
        if let Some(id) = cdi_ids.iter().find(|id| !is_cdi_id(id)) {
            return complain(format!("CDI id {id:?} would keep the container from starting"));
        }
        let uid = claim.claim.uid.clone();
        if let Some(kept) = self.kept.get(&uid).filter(|kept| kept.cdi_ids != cdi_ids) {
            return complain(format!("claim {uid} had {:?}, prepared again it has {cdi_ids:?}", kept.cdi_ids));
        }
        self.kept.insert(uid, KeptClaim { claim, cdi_ids, is_prepared: true });
        Ok(())
    }

    /// The last pod of claims has ended. What is not kept is not asked for.
    ///
    /// # Errors
    /// What keeps the pod from its end.
    pub async fn unprepare(&mut self, uids: &[String]) -> KubeletResult<()> {
        let due: Vec<KeptClaim> = uids.iter().filter_map(|uid| self.kept.get(uid)).cloned().collect();
        let kept: Vec<_> = due.into_iter().map(|kept| (kept.claim, kept.cdi_ids)).collect();
        let answers = calls::unprepare(self.release, self.driver()?, &kept).await?;
        for (claim, _) in kept {
            match answers.get(&claim.claim.uid) {
                Some(Ok(())) => self.kept.remove(&claim.claim.uid),
                Some(Err(error)) => return complain(format!("claim {}: {error}", claim.claim.name)),
                None => return complain(format!("NodeUnprepareResources left out claim {}", claim.claim.uid)),
            };
        }
        Ok(())
    }

    fn driver(&mut self) -> KubeletResult<&mut ClassicDriver> {
        self.driver
            .as_mut()
            .ok_or_else(|| KubeletComplaint("the plugin is not in the list of registered plugins".to_owned()))
    }
}

impl ClassicDriver {
    /// A connection for one call, or the one for all.
    async fn connected(&mut self, release: ClassicRelease) -> KubeletResult<Channel> {
        if let Some(channel) = &self.channel {
            return Ok(channel.clone());
        }
        let channel = release.dial(&self.endpoint).await?;
        if matches!(release, ClassicRelease::V1_30 | ClassicRelease::V1_31) {
            self.channel = Some(channel.clone());
        }
        Ok(channel)
    }
}

/// Returns the highest of the readable versions whose first number is 1 at most; it must be 1.
fn highest_version(versions: &[String]) -> KubeletResult<ParsedVersion> {
    let highest = versions.iter().filter_map(|text| parsed(text)).filter(|version| version[0] <= 1).max();
    match highest {
        Some(version) if version[0] == 1 => Ok(version),
        _ => complain(format!("could not find a highest supported version from versions {versions:?}")),
    }
}

/// Two numbers or more with dots between them; what follows is not looked at.
fn parsed(text: &str) -> Option<ParsedVersion> {
    let text = text.trim().trim_start_matches('v');
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let numbers: Vec<&str> = text[..end].trim_end_matches('.').split('.').collect();
    let numbers: Option<ParsedVersion> = numbers.into_iter().map(|number| number.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() >= 2)
}
