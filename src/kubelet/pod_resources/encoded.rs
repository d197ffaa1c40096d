//! Encoded answers: the bytes that go over the wire, made once per change and not per call.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use hostler_proto::pod_resources_v1 as v1;
use prost::{
    Message,
    bytes::{Bytes, BytesMut},
};

/// Number of the field that holds a pod, in the answer of `List` as in that of `Get`.
const POD_FIELD: u32 = 1;

/// All pods, encoded.
#[derive(Debug, Default)]
pub(super) struct EncodedPods {
    list: Bytes,
    pods: BTreeMap<(String, String), Range<usize>>,
}

impl EncodedPods {
    pub(super) fn of(pods: &[v1::PodResources]) -> Self {
        let mut list = BytesMut::new();
        let mut places = BTreeMap::new();
        for pod in pods {
            let start = list.len();
            prost::encoding::message::encode(POD_FIELD, pod, &mut list);
            places.insert((pod.namespace.clone(), pod.name.clone()), start..list.len());
        }
        Self { list: list.freeze(), pods: places }
    }

    /// The answer of `List`.
    pub(super) fn list(&self) -> Bytes {
        self.list.clone()
    }

    /// The answer of `Get` for one pod: a part of the answer of `List`.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<Bytes> {
        let place = self.pods.get(&(namespace.to_owned(), name.to_owned()))?;
        Some(self.list.slice(place.clone()))
    }
}

/// Encodes an answer that is not divided into pods.
pub(super) fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// A value that was made of two others, and is made anew when one of them has been replaced.
#[derive(Debug)]
pub(super) struct MadeOnce<A, B, T>(Mutex<Option<MadeOf<A, B, T>>>);

type MadeOf<A, B, T> = (Arc<A>, Arc<B>, Arc<T>);

impl<A, B, T> Default for MadeOnce<A, B, T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<A, B, T> MadeOnce<A, B, T> {
    /// Returns the value for these two. Callers that come while it is made wait for it, some milliseconds.
    pub(super) fn get(&self, one: &Arc<A>, other: &Arc<B>, make: impl FnOnce() -> T) -> Arc<T> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((a, b, value)) if Arc::ptr_eq(a, one) && Arc::ptr_eq(b, other) => value.clone(),
            _ => {
                let value = Arc::new(make());
                *made = Some((one.clone(), other.clone(), value.clone()));
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn pod(name: &str) -> v1::PodResources {
        let container = v1::ContainerResources { name: "main".to_owned(), ..v1::ContainerResources::default() };
        let (name, namespace) = (name.to_owned(), "ml".to_owned());
        v1::PodResources { name, namespace, containers: vec![container], ..v1::PodResources::default() }
    }

    #[test]
    fn the_bytes_are_those_of_the_messages() {
        let pods = [pod("a"), pod("b")];
        let encoded = EncodedPods::of(&pods);
        assert_eq!(encoded.list(), v1::ListPodResourcesResponse { pod_resources: pods.to_vec() }.encode_to_vec());
        let one = v1::GetPodResourcesResponse { pod_resources: Some(pod("b")) };
        assert_eq!(encoded.pod("ml", "b").unwrap(), one.encode_to_vec());
        assert_eq!((encoded.pod("ml", "c"), encoded.pod("other", "a")), (None, None));
    }

    #[test]
    fn a_value_is_made_anew_only_for_other_inputs() {
        let (made, once) = (Cell::new(0), MadeOnce::<u32, u32, u32>::default());
        let get = |one: &Arc<u32>, other: &Arc<u32>| {
            *once.get(one, other, || {
                made.set(made.get() + 1);
                **one + **other
            })
        };
        let (one, other, equal) = (Arc::new(1), Arc::new(2), Arc::new(2));
        assert_eq!((get(&one, &other), get(&one, &other), made.get()), (3, 3, 1));
        assert_eq!((get(&one, &equal), get(&one, &equal), made.get()), (3, 3, 2));
    }
}
