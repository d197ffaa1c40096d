//! Owner of a container: annotations that runtimes write into the configuration of the containers that they make.

use std::collections::BTreeMap;

use hostler_api::ObjectName;
use serde::{Deserialize, Serialize};

/// Owner of a container. Facts that its runtime does not tell are absent.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct ContainerOwner {
    /// The container's name, unique within its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Pod of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<NotedPod>,
}

/// The pod of a container.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NotedPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod, as the kubelet has told the runtime. A pod from a file has another one than its object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// The annotations of one runtime for the same facts.
struct OwnerAnnotations {
    container: &'static str,
    namespace: &'static str,
    pod: &'static str,
    uid: &'static str,
}

const CONTAINERD: OwnerAnnotations = OwnerAnnotations {
    container: "io.kubernetes.cri.container-name",
    namespace: "io.kubernetes.cri.sandbox-namespace",
    pod: "io.kubernetes.cri.sandbox-name",
    uid: "io.kubernetes.cri.sandbox-uid",
};

/// The kubelet's labels, which CRI-O copies last: nothing of the pod's own can stand in their place.
const CRIO: OwnerAnnotations = OwnerAnnotations {
    container: "io.kubernetes.container.name",
    namespace: "io.kubernetes.pod.namespace",
    pod: "io.kubernetes.pod.name",
    uid: "io.kubernetes.pod.uid",
};

/// Annotation in which CRI-O and podman name themselves.
const MANAGER: &str = "io.container.manager";

impl ContainerOwner {
    /// Reads the annotations of a container's OCI configuration. podman has none for a container's name.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        let keys = match annotations.get(MANAGER).map(String::as_str) {
            Some("cri-o") => &CRIO,
            Some(_) => return Self::default(),
            None => &CONTAINERD,
        };
        // The name ends up in answers and on screens, and users who start containers may set it.
        let name = |key: &str| annotations.get(key).filter(|name| ObjectName::new(name.as_str()).is_ok()).cloned();
        let pod = name(keys.namespace).zip(name(keys.pod));
        let pod = pod.map(|(namespace, pod)| NotedPod { namespace, name: pod, uid: name(keys.uid) });
        Self { name: name(keys.container), pod }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(annotations: &[(&str, &str)]) -> ContainerOwner {
        ContainerOwner::of(&annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    fn pod(uid: Option<&str>) -> Option<NotedPod> {
        Some(NotedPod { namespace: "ml".to_owned(), name: "train-0".to_owned(), uid: uid.map(str::to_owned) })
    }

    const OF_CONTAINERD: [(&str, &str); 4] = [
        ("io.kubernetes.cri.container-name", "main"),
        ("io.kubernetes.cri.sandbox-namespace", "ml"),
        ("io.kubernetes.cri.sandbox-name", "train-0"),
        ("io.kubernetes.cri.sandbox-uid", "5f0c-1"),
    ];
    const OF_CRIO: [(&str, &str); 5] = [
        ("io.container.manager", "cri-o"),
        ("io.kubernetes.container.name", "main"),
        ("io.kubernetes.pod.namespace", "ml"),
        ("io.kubernetes.pod.name", "train-0"),
        ("io.kubernetes.pod.uid", "5f0c-1"),
    ];

    #[test]
    fn containerd_and_crio_tell_the_pod_and_the_container() {
        let expected = ContainerOwner { name: Some("main".to_owned()), pod: pod(Some("5f0c-1")) };
        assert_eq!(owner(&OF_CONTAINERD), expected);
        assert_eq!(owner(&OF_CRIO), expected);
    }

    #[test]
    fn what_a_runtime_does_not_tell_is_absent() {
        assert_eq!(owner(&OF_CONTAINERD[..3]).pod, pod(None));
        assert_eq!(owner(&OF_CONTAINERD[..2]), ContainerOwner { name: Some("main".to_owned()), pod: None });
        assert_eq!(owner(&[]), ContainerOwner::default());
        assert_eq!(owner(&[("io.container.manager", "libpod")]), ContainerOwner::default());
    }

    #[test]
    fn the_words_of_one_runtime_are_not_believed_from_another() {
        let mixed = [&OF_CRIO[..1], &OF_CONTAINERD[..]].concat();
        assert_eq!(owner(&mixed), ContainerOwner::default());
        assert_eq!(owner(&OF_CRIO[1..]), ContainerOwner::default());
    }

    #[test]
    fn a_text_that_is_no_name_is_absent() {
        for text in ["", "../x", "a b", "A", "a\u{1b}[2J"] {
            let annotations = [("io.kubernetes.cri.container-name", text)];
            assert_eq!(owner(&annotations), ContainerOwner::default(), "{text:?}");
        }
    }
}
