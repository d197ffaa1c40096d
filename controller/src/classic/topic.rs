//! Keys of the core's work queue.

use std::mem::discriminant;

use hostler_api::ObjectKey;

use super::event::WriteTarget;
use crate::decision_queue::DecisionQueue;

/// Makes a question of one kind about an object.
type QuestionKind = fn(ObjectKey) -> Topic;

/// A key of the work queue.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Topic {
    Claim(ObjectKey),
    Source(String),
    /// The labels of a node.
    Node(String),
    Context(ObjectKey),
    /// A claim that is allocated without a pod.
    Immediate(ObjectKey),
    /// A negotiation that waits for devices of other claims. Negotiations that just got a question come first.
    Waiting(ObjectKey),
    /// A claim whose allocation was refused; the negotiations that wait for it are answered again.
    Retry(ObjectKey),
    /// All negotiations that wait for devices.
    Refresh,
}

impl From<WriteTarget> for Topic {
    fn from(target: WriteTarget) -> Self {
        match target {
            WriteTarget::Claim(key) => Self::Claim(key),
            WriteTarget::Context(key) => Self::Context(key),
            WriteTarget::Source(name) => Self::Source(name),
            WriteTarget::Node(name) => Self::Node(name),
        }
    }
}

impl Topic {
    /// Returns true if a decision about the topic searches devices, which can take long.
    pub(super) fn takes_long(&self) -> bool {
        matches!(self, Self::Node(_)) || self.question().is_some()
    }

    /// Returns kind and object of a question to the allocator.
    fn question(&self) -> Option<(QuestionKind, &ObjectKey)> {
        match self {
            Self::Context(key) => Some((Self::Context, key)),
            Self::Immediate(key) => Some((Self::Immediate, key)),
            Self::Waiting(key) => Some((Self::Waiting, key)),
            _ => None,
        }
    }
}

/// Returns the next topic. Among questions of one kind the namespaces take turns: `last` had its turn last.
pub(super) fn next_in_turn(queue: &mut DecisionQueue<Topic>, last: &mut String) -> Option<Topic> {
    let first = queue.pop()?;
    let Some((kind, _)) = first.question() else { return Some(first) };
    // The first question of this kind in the namespaces after the last one.
    let from = kind(ObjectKey { namespace: format!("{last}\0"), name: String::new() });
    let topic = queue.pop_instead(first, &from, |other| discriminant(other) == discriminant(&from));
    topic.question().into_iter().for_each(|(_, key)| key.namespace.clone_into(last));
    Some(topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_just_asked_something_comes_before_all_that_wait() {
        let mut queue = DecisionQueue::new(Topic::Refresh);
        let key = |name: &str| ObjectKey::new("default", name);
        ["a", "b"].iter().for_each(|name| queue.now(Topic::Waiting(key(name))));
        queue.now(Topic::Context(key("z")));
        queue.now(Topic::Source("n".to_owned()));
        let order: Vec<Topic> = std::iter::from_fn(|| queue.pop()).collect();
        let waiting = ["a", "b"].map(|name| Topic::Waiting(key(name)));
        assert_eq!(order[..2], [Topic::Source("n".to_owned()), Topic::Context(key("z"))]);
        assert_eq!(order[2..], waiting);
    }

    #[test]
    fn a_namespace_with_many_questions_gets_every_second_turn_beside_another_one() {
        for kind in [Topic::Context, Topic::Immediate, Topic::Waiting] {
            let mut queue = DecisionQueue::new(Topic::Refresh);
            let key = |name: &str| ObjectKey::new(&name[..1], name);
            ["a1", "a2", "a3", "b1", "c1", "b2"].iter().for_each(|name| queue.now(kind(key(name))));
            queue.now(Topic::Refresh);
            let mut last = "a".to_owned();
            let mut order = vec![next_in_turn(&mut queue, &mut last).unwrap()];
            // One that comes meanwhile has its turn as well.
            queue.now(kind(key("d1")));
            order.extend(std::iter::from_fn(|| next_in_turn(&mut queue, &mut last)));
            let expected = ["b1", "c1", "d1", "a1", "b2", "a2", "a3"].map(|name| kind(key(name)));
            assert_eq!(order[..7], expected);
            assert_eq!(order[7..], [Topic::Refresh]);
        }
    }
}
