//! What the core looks at, now or later.

use hostler_allocator::plan::ObjectKey;

/// Something to look at.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Topic {
    Claim(ObjectKey),
    Source(String),
    /// The labels of a node.
    Node(String),
    Context(ObjectKey),
    /// A negotiation that somebody else's devices may matter to. Whoever has just been asked something comes first.
    Waiting(ObjectKey),
    /// A claim whose allocation was refused: whoever waits for it.
    Retry(ObjectKey),
    /// Everybody who waits for devices.
    Refresh,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agenda::Agenda;

    #[test]
    fn whoever_was_just_asked_something_comes_before_all_that_wait() {
        let mut agenda = Agenda::new(Topic::Refresh);
        let key = |name: &str| ObjectKey::new("default", name);
        ["a", "b"].iter().for_each(|name| agenda.now(Topic::Waiting(key(name))));
        agenda.now(Topic::Context(key("z")));
        agenda.now(Topic::Source("n".to_owned()));
        let order: Vec<Topic> = std::iter::from_fn(|| agenda.pop()).collect();
        let waiting = ["a", "b"].map(|name| Topic::Waiting(key(name)));
        assert_eq!(order[..2], [Topic::Source("n".to_owned()), Topic::Context(key("z"))]);
        assert_eq!(order[2..], waiting);
    }
}
