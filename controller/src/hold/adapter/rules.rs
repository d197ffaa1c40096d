//! The collection of DeviceTaintRules, and the releases of schedulers that act on them.

use hostler_api::resource::GROUP;
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::{Deserialize, de::IgnoredAny};

use crate::config::release_of;

/// Versions in which DeviceTaintRules were served, the best first.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];
/// A name that no rule of ours has.
const NO_RULE: &str = "hold";
/// The namespace and the value of the label `component` of the schedulers that kubeadm runs.
const SCHEDULER: (&str, &str) = ("kube-system", "kube-scheduler");

/// State of DeviceTaintRules in the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum RulesPlace {
    /// DeviceTaintRules are not served, or the role does not allow them.
    Missing,
    /// A scheduler ignores a new rule, or nothing says that it acts on one: the text says which, and what to do.
    /// Existing rules are watched, and deleted when their time is over.
    Ignored(Collection, String),
    /// Schedulers act on new rules.
    Heeded(Collection),
}

impl RulesPlace {
    /// Asks the server. `stated` is the release of the oldest scheduler by configuration, or empty.
    ///
    /// # Errors
    /// Includes the server's 403 where rules are served: the server may read the role later.
    pub(super) async fn find(client: &ApiClient, stated: &str) -> Result<Self, ApiFailure> {
        let Some(all) = served(client).await? else { return Ok(Self::Missing) };
        let doubt = match stated {
            "" => releases(client).await?.iter().find_map(|release| doubt_of(release)),
            stated => ignores_rules(stated).then(|| ignorance_of(stated)),
        };
        Ok(match doubt {
            None => Self::Heeded(all),
            Some(doubt) => Self::Ignored(all, doubt),
        })
    }

    pub(super) fn collection(&self) -> Option<&Collection> {
        match self {
            Self::Missing => None,
            Self::Ignored(all, _) | Self::Heeded(all) => Some(all),
        }
    }

    /// True if new rules close devices.
    pub(super) fn close(&self) -> bool {
        matches!(self, Self::Heeded(_))
    }

    /// The reason why new rules close nothing, though they are served.
    pub(super) fn doubt(&self) -> Option<&str> {
        match self {
            Self::Ignored(_, doubt) => Some(doubt),
            Self::Missing | Self::Heeded(_) => None,
        }
    }
}

async fn served(client: &ApiClient) -> Result<Option<Collection>, ApiFailure> {
    for version in VERSIONS {
        let all = Collection::custom(GROUP, version, "DeviceTaintRule", "devicetaintrules");
        match client.get::<IgnoredAny>(&all, NO_RULE).await {
            Ok(_) => return Ok(Some(all)),
            Err(failure) if failure.is_unknown_resource() => {}
            Err(failure) if failure.code() == Some(404) => return Ok(Some(all)),
            // A server checks the role before it checks if it has the kind.
            Err(failure) if failure.code() == Some(403) && !client.serves(&all).await? => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(None)
}

/// Releases of the schedulers that are seen as pods, empty where an image names none. Without such pods, the release of
/// the API server: no scheduler beside it is older by more than a minor release.
async fn releases(client: &ApiClient) -> Result<Vec<String>, ApiFailure> {
    let (mut seen, mut wrong) = (Vec::new(), None);
    let mut read = |page: Vec<u8>| match serde_json::from_slice::<PodPage>(&page) {
        Ok(page) => seen.extend(page.items.iter().flat_map(SchedulerPod::releases)),
        Err(error) => wrong = Some(ApiFailure::unusable("list pods", error)),
    };
    client.list(&Collection::core("Pod", "pods").of(SCHEDULER.0), &mut read).await?;
    wrong.map_or(Ok(()), Err)?;
    if seen.is_empty() {
        seen.push(client.full_release().await?);
    }
    Ok(seen)
}

/// A pod, with the fields that tell a scheduler's release.
#[derive(Deserialize)]
struct PodPage {
    items: Vec<SchedulerPod>,
}

#[derive(Deserialize)]
struct SchedulerPod {
    metadata: PodLabels,
    spec: PodImages,
}

#[derive(Deserialize)]
struct PodLabels {
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct PodImages {
    containers: Vec<ContainerImage>,
}

#[derive(Deserialize)]
struct ContainerImage {
    #[serde(default)]
    image: String,
}

impl SchedulerPod {
    /// The tags of the pod's images, empty where a tag is no release.
    fn releases(&self) -> Vec<String> {
        if self.metadata.labels.get("component").is_none_or(|it| it != SCHEDULER.1) {
            return Vec::new();
        }
        let tag = |image: &ContainerImage| {
            let named = image.image.split('@').next()?;
            let (_, tag) = named.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'))?;
            release_of(tag).map(|_| tag.to_owned())
        };
        self.spec.containers.iter().map(|image| tag(image).unwrap_or_default()).collect()
    }
}

/// The first release whose schedulers act on rules by default: the feature gate need not be turned on.
const ON_BY_DEFAULT: [u32; 3] = [1, 37, 0];

/// The reason why rules close nothing before a scheduler of a release that is not stated; an empty release is not
/// known.
fn doubt_of(release: &str) -> Option<String> {
    match release_of(release) {
        None => {
            let named = if release.is_empty() { "the image of a scheduler" } else { release };
            Some(format!(
                "{named} names no release, and not every scheduler acts on DeviceTaintRules: state it in \
                 reservations.oldest_scheduler"
            ))
        }
        Some(_) if ignores_rules(release) => Some(ignorance_of(release)),
        Some(numbers) if numbers < ON_BY_DEFAULT => Some(format!(
            "nothing says that a scheduler of {release} acts on DeviceTaintRules: its feature gate DRADeviceTaintRules is off unless it \
             was turned on; where it is on, state the release in reservations.oldest_scheduler"
        )),
        Some(_) => None,
    }
}

/// True if schedulers of a release ignore a new DeviceTaintRule, as those of 1.36.0 to 1.36.2 do, which panic when a
/// slice changes afterwards (kubernetes#139651, fixed by #139681).
fn ignores_rules(release: &str) -> bool {
    matches!(release_of(release), Some([1, 36, ..3]))
}

fn ignorance_of(release: &str) -> String {
    format!(
        "a scheduler of {release} ignores new DeviceTaintRules, and panics when a slice changes after one (kubernetes#139651): \
         upgrade it to 1.36.3 or later"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_that_schedulers_of_a_release_ignore_close_nothing() {
        for release in ["v1.36.0", "v1.36.2", "v1.36.2+k3s1", "1.36.1-gke.100", "v1.36.0-rc.1", "v1.36"] {
            assert!(doubt_of(release).unwrap().contains("kubernetes#139651"), "{release}");
            assert!(ignores_rules(release), "{release}: also where it is stated");
        }
        for release in ["v1.36.3", "v1.36.10", "v1.35.6", "v1.33.0"] {
            assert!(doubt_of(release).unwrap().contains("DRADeviceTaintRules is off"), "{release}");
            assert!(!ignores_rules(release), "{release}: its operator knows the gate");
        }
        assert_eq!(doubt_of("v1.37.0"), None);
        assert_eq!(doubt_of("v1.40.1-eks-1"), None);
    }

    #[test]
    fn rules_close_nothing_where_a_release_is_not_known() {
        for release in ["", "latest", "master-1a2b"] {
            assert!(doubt_of(release).unwrap().contains("reservations.oldest_scheduler"), "{release}");
        }
    }

    #[test]
    fn a_scheduler_pod_says_its_release_by_the_tag_of_its_image() {
        let of = |component: &str, image: &str| {
            let pod = json!({
                "metadata": {"labels": {"component": component}}, "spec": {"containers": [{"image": image}]},
            });
            serde_json::from_value::<SchedulerPod>(pod).unwrap().releases()
        };
        assert_eq!(of("kube-scheduler", "registry.k8s.io/kube-scheduler:v1.36.2"), ["v1.36.2"]);
        assert_eq!(of("kube-scheduler", "host:5000/s:v1.36.3@sha256:00"), ["v1.36.3"]);
        for (component, image) in [
            ("kube-scheduler", "host:5000/kube-scheduler"),
            ("kube-scheduler", "s@sha256:0136"),
            ("kube-scheduler", "s:latest"),
        ] {
            assert_eq!(of(component, image), [""], "{image}: a scheduler of a release that is not known");
        }
        assert!(of("etcd", "etcd:3.6.4").is_empty());
    }
}
