//! The place of DeviceTaintRules, and the releases of schedulers that act on them.

use hostler_api::resource::GROUP;
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::{Deserialize, de::IgnoredAny};

/// Versions in which DeviceTaintRules were served, the best first.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];
/// No rule of ours is called so.
const NO_RULE: &str = "hold";
/// The namespace and the value of the label `component` of the schedulers that kubeadm runs.
const SCHEDULER: (&str, &str) = ("kube-system", "kube-scheduler");

/// Knowledge of DeviceTaintRules.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum RulesPlace {
    /// None are served, or the role does not allow them.
    Missing,
    /// Schedulers of this release ignore a rule that comes. Those of before are watched, and deleted when their time is over.
    Ignored(Collection, String),
    /// Schedulers act on them.
    Heeded(Collection),
}

impl RulesPlace {
    /// Asks the server. `stated` is the release of the oldest scheduler by configuration, or empty.
    ///
    /// # Errors
    /// Also with the server's 403, where rules are served: roles may be read later.
    pub(super) async fn find(client: &ApiClient, stated: &str) -> Result<Self, ApiFailure> {
        let Some(all) = served(client).await? else { return Ok(Self::Missing) };
        let releases = match stated {
            "" => releases(client).await?,
            stated => vec![stated.to_owned()],
        };
        let ignoring = releases.into_iter().find(|release| !heeds_rules(release));
        Ok(ignoring.map_or_else(|| Self::Heeded(all.clone()), |release| Self::Ignored(all.clone(), release)))
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

    /// The release of a scheduler that ignores new rules.
    pub(super) fn ignoring(&self) -> Option<&str> {
        match self {
            Self::Ignored(_, release) => Some(release),
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
            // A server asks for the role before it looks whether it has the kind.
            Err(failure) if failure.code() == Some(403) && !client.serves(&all).await? => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(None)
}

/// Releases of the schedulers that are seen as pods; else that of the API server, which has none older than a minor release beside it.
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

/// Pods, as far as they say what schedulers there are.
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
    /// The tags of its images that are releases.
    fn releases(&self) -> Vec<String> {
        if self.metadata.labels.get("component").is_none_or(|it| it != SCHEDULER.1) {
            return Vec::new();
        }
        let tag = |image: &ContainerImage| {
            let named = image.image.split('@').next()?;
            let (_, tag) = named.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'))?;
            release_of(tag).map(|_| tag.to_owned())
        };
        self.spec.containers.iter().filter_map(tag).collect()
    }
}

/// Major, minor and patch release; a patch that is not said is the first.
pub(crate) fn release_of(text: &str) -> Option<[u32; 3]> {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    let mut parts = text.trim_start_matches('v').split('.');
    let [major, minor, patch] = [(); 3].map(|()| parts.next().and_then(number));
    Some([major?, minor?, patch.unwrap_or_default()])
}

/// True if schedulers of a release act on a DeviceTaintRule that comes. Those of 1.36.0 to 1.36.2 ignore it, and panic when a slice
/// changes afterwards (kubernetes#139651, mended by #139681).
fn heeds_rules(release: &str) -> bool {
    !matches!(release_of(release), Some([1, 36, ..3]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_that_schedulers_of_a_release_ignore_close_nothing() {
        for release in ["v1.36.0", "v1.36.2", "v1.36.2+k3s1", "1.36.1-gke.100", "v1.36.0-rc.1", "v1.36"] {
            assert!(!heeds_rules(release), "{release}");
        }
        for release in ["v1.36.3", "v1.36.10", "v1.35.6", "v1.33.0", "v1.37.0-alpha.2", "v2.36.0", ""] {
            assert!(heeds_rules(release), "{release}");
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
            ("etcd", "etcd:3.6.4"),
        ] {
            assert!(of(component, image).is_empty(), "{image}");
        }
    }
}
