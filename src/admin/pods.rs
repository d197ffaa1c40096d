//! Status of this node's pods.

use super::types::AdminPods;
use crate::pods::PodsOfNode;

/// Status for people; `None` where pods are not watched.
pub(super) fn status(pods: &PodsOfNode) -> Option<AdminPods> {
    let (known, pods, error) = match pods {
        PodsOfNode::Unwatched => return None,
        PodsOfNode::Unknown(reason) => (false, 0, Some(reason.clone())),
        PodsOfNode::Known(pods) => (true, pods.len(), None),
        PodsOfNode::Stale(pods, reason) => (false, pods.len(), Some(reason.clone())),
    };
    Some(AdminPods { known, pods, error })
}
