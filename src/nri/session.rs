//! Protocol on one connection with a runtime: registering, being told of everything, answering. Pure: the reader and
//! the writer are not known here, and nothing waits.
//!
//! Each call of the runtime is answered before the next one is read, from what is known at that moment. So the
//! runtime, which waits with the start of a container, is held up by nothing but the reading; and its calls are
//! answered in their order.

use std::time::Duration;

use hostler_proto::nri::{
    ConfigureRequest, ConfigureResponse, Container, ContainerAdjustment, ContainerUpdate, CreateContainerRequest,
    CreateContainerResponse, Empty, Event, LinuxContainerAdjustment, PLUGIN_SERVICE, PodSandbox,
    PostStartContainerRequest, RUNTIME_SERVICE, RegisterPluginRequest, RemoveContainerRequest, StateChangeEvent,
    StopContainerRequest, StopContainerResponse, SynchronizeRequest, SynchronizeResponse, UpdateContainerRequest,
    UpdateContainerResponse, UpdateContainersResponse, event_mask,
    mux::Connection,
    ttrpc::{self, Message, MessageKind, Status, code},
};
use prost::{DecodeError, Message as _};
use tokio::time::Instant;
use tracing::{debug, info};

use super::{
    facts::PinningFacts,
    known::{KnownContainers, resources, update},
    shares::OddContainer,
    updates::UpdateQueue,
    version::UpdateRoute,
};
use crate::pinning::Pins;

/// The version of NRI that this speaks, for the runtime's log.
const OUR_VERSION: &str = "v0.12.0";

/// Time for a runtime to tell of everything. It welcomes plugins one after the other.
const WELCOME: Duration = Duration::from_secs(30);

/// Time for which changes are collected before the connection is made anew for them.
const COLLECT: Duration = Duration::from_secs(1);

/// The least time between two connections that are made for the sake of updates.
const RENEWAL: Duration = Duration::from_secs(10);

/// More containers than any node runs: a peer that tells of more is not a runtime.
const MOST_CONTAINERS: usize = 1 << 16;

/// Reason why a connection is given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// A message makes no sense.
    #[error("the runtime has sent what is no {what}")]
    Garbage {
        /// Type that the message should have had.
        what: &'static str,
        /// Fault of the message.
        #[source]
        source: DecodeError,
    },
    /// A request where answers come, or the other way round.
    #[error("the runtime has sent a message of the wrong kind")]
    WrongKind,
    /// The runtime tells of more than there can be.
    #[error("the runtime tells of more than {MOST_CONTAINERS} containers")]
    Flood,
    /// The runtime refused the registration.
    #[error("the runtime refuses the plugin: {0}")]
    Refused(String),
    /// The runtime does not answer.
    #[error("the runtime has not {0} in time")]
    Silent(&'static str),
    /// No error: updates wait that only a new connection can bring.
    #[error("updates wait for a new connection")]
    Renew,
}

/// Identity with which the plugin registers.
#[derive(Clone, Debug)]
pub(super) struct PluginIdentity {
    /// Two digits: plugins are called in ascending order.
    pub(super) index: u8,
    /// The qualified class of our CDI devices.
    pub(super) kind: String,
}

/// Stage of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SessionStage {
    /// The runtime has not listed all containers yet.
    Welcoming,
    /// The runtime has listed all containers.
    Synchronized,
}

/// Counts since they were last taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct SessionCounts {
    pub(super) updates_failed: usize,
    pub(super) refused: usize,
}

/// State of one connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) stage: SessionStage,
    pub(super) known: KnownContainers,
    /// Name and version of the runtime, as it says.
    pub(super) runtime: String,
    pub(super) counts: SessionCounts,
    kind: String,
    /// Containers that the pieces of a Synchronize have told of so far.
    collecting: Option<KnownContainers>,
    route: UpdateRoute,
    updates: UpdateQueue,
    last_stream: u32,
    began: Instant,
    /// Time of the latest message.
    heard_at: Instant,
    /// Time since which updates have been waiting for a new connection.
    waiting_since: Option<Instant>,
}

/// The first call of a connection.
const REGISTRATION: u32 = 1;

impl Session {
    /// Begins a connection that has just been made, and returns the first message on it.
    pub(super) fn begin(identity: &PluginIdentity, now: Instant) -> (Self, Message) {
        let registration = RegisterPluginRequest {
            plugin_name: "hostler".to_owned(),
            plugin_idx: format!("{:02}", identity.index),
            nri_version: OUR_VERSION.to_owned(),
        };
        let session = Self {
            stage: SessionStage::Welcoming,
            known: KnownContainers::new(identity.kind.clone()),
            runtime: "unknown".to_owned(),
            counts: SessionCounts::default(),
            kind: identity.kind.clone(),
            collecting: None,
            route: UpdateRoute::Answered,
            updates: UpdateQueue::default(),
            last_stream: REGISTRATION,
            began: now,
            heard_at: now,
            waiting_since: None,
        };
        (session, Message::request(REGISTRATION, RUNTIME_SERVICE, "RegisterPlugin", &registration))
    }

    /// Takes a message, and returns the answer to send.
    pub(super) fn hear(
        &mut self,
        connection: Connection,
        message: &Message,
        facts: &PinningFacts,
        now: Instant,
    ) -> Result<Option<Message>, SessionError> {
        self.heard_at = now;
        match (connection, message.kind) {
            (Connection::Plugin, MessageKind::Request) => {
                let request = decode::<ttrpc::Request>(&message.data, "request")?;
                Ok(Some(Message::answer(message.stream, self.answer(&request, facts)?)))
            }
            (Connection::Runtime, MessageKind::Response) => {
                let response = decode::<ttrpc::Response>(&message.data, "response")?;
                self.answered(message.stream, response, now)?;
                Ok(None)
            }
            _ => Err(SessionError::WrongKind),
        }
    }

    /// Takes changed facts.
    pub(super) fn consider(&mut self, facts: &PinningFacts) {
        self.known.consider(facts);
    }

    /// Returns the next call to the runtime, if one is due.
    pub(super) fn next_call(&mut self, now: Instant) -> Option<Message> {
        if self.stage != SessionStage::Synchronized || self.route != UpdateRoute::Asked {
            return None;
        }
        // Streams of the caller are odd.
        let stream = self.last_stream + 2;
        let request = self.updates.next(&self.known, stream, now)?;
        self.last_stream = stream;
        Some(Message::request(stream, RUNTIME_SERVICE, "UpdateContainers", &request))
    }

    /// Returns when [`check`](Self::check) has something to report, if nothing happens before.
    pub(super) fn deadline(&mut self, now: Instant) -> Option<Instant> {
        match (self.stage, self.route) {
            (SessionStage::Welcoming, _) => Some(self.began + WELCOME),
            (_, UpdateRoute::Asked) => self.updates.deadline().or_else(|| self.known.next_retry()),
            (_, UpdateRoute::Synchronized) => self.renewal(now),
            (_, UpdateRoute::Answered) => None,
        }
    }

    /// Checks that the runtime does not take too long, and that the connection need not be made anew.
    pub(super) fn check(&mut self, now: Instant) -> Result<(), SessionError> {
        match (self.stage, self.route) {
            (SessionStage::Welcoming, _) if self.began + WELCOME <= now => {
                Err(SessionError::Silent("told of its containers"))
            }
            (SessionStage::Synchronized, UpdateRoute::Asked) if self.updates.deadline().is_some_and(|at| at <= now) => {
                Err(SessionError::Silent("updated containers"))
            }
            (SessionStage::Synchronized, UpdateRoute::Synchronized)
                if self.renewal(now).is_some_and(|at| at <= now) =>
            {
                Err(SessionError::Renew)
            }
            _ => Ok(()),
        }
    }

    /// Returns when the connection is to be made anew, if updates are waiting for that.
    fn renewal(&mut self, now: Instant) -> Option<Instant> {
        if self.known.due(now).is_empty() {
            self.waiting_since = None;
            return None;
        }
        let since = *self.waiting_since.get_or_insert(now);
        Some((since + COLLECT).max(self.began + RENEWAL))
    }

    fn answered(&mut self, stream: u32, response: ttrpc::Response, now: Instant) -> Result<(), SessionError> {
        let outcome = response.into_payload().map_err(|status| status.message);
        if stream == REGISTRATION {
            return outcome.map(drop).map_err(SessionError::Refused);
        }
        if self.updates.awaited() != Some(stream) {
            return Ok(());
        }
        let outcome = match outcome {
            Ok(payload) => Ok(decode::<UpdateContainersResponse>(&payload, "UpdateContainersResponse")?),
            Err(error) => Err(error),
        };
        self.counts.updates_failed += self.updates.answered(outcome, &mut self.known, now);
        Ok(())
    }

    /// Answers a call. The outer result is the end of the connection, the inner one the answer to the call.
    fn answer(
        &mut self,
        request: &ttrpc::Request,
        facts: &PinningFacts,
    ) -> Result<Result<Vec<u8>, Status>, SessionError> {
        let payload = &*request.payload;
        let method = if request.service == PLUGIN_SERVICE { request.method.as_str() } else { "" };
        Ok(match method {
            "Configure" => Ok(self.configure(&decode(payload, "ConfigureRequest")?).encode_to_vec()),
            "Synchronize" => Ok(self.synchronize(&decode(payload, "SynchronizeRequest")?, facts)?.encode_to_vec()),
            "CreateContainer" => {
                let created = self.create(&decode(payload, "CreateContainerRequest")?, facts);
                self.counts.refused += usize::from(created.is_err());
                created.map(|created| created.encode_to_vec())
            }
            "PostStartContainer" => {
                let PostStartContainerRequest { pod, container } = decode(payload, "PostStartContainerRequest")?;
                Ok(self.started(pod.as_ref(), container, facts))
            }
            "UpdateContainer" => {
                let UpdateContainerRequest { pod, container, .. } = decode(payload, "UpdateContainerRequest")?;
                Ok(self.update(pod.as_ref(), container, facts).encode_to_vec())
            }
            "StopContainer" => {
                let StopContainerRequest { container, .. } = decode(payload, "StopContainerRequest")?;
                self.known.ended(&container.unwrap_or_default().id);
                Ok(StopContainerResponse { update: self.waiting() }.encode_to_vec())
            }
            "RemoveContainer" => {
                let RemoveContainerRequest { container, .. } = decode(payload, "RemoveContainerRequest")?;
                self.known.removed(&container.unwrap_or_default().id);
                Ok(Empty {}.encode_to_vec())
            }
            "StateChange" => Ok(self.state_change(decode(payload, "StateChangeEvent")?, facts)),
            // Other events were not asked for, and need no answer.
            "Shutdown" | "RunPodSandbox" | "StopPodSandbox" | "RemovePodSandbox" => Ok(Empty {}.encode_to_vec()),
            _ => {
                let message = format!("there is no method {} of {}", request.method, request.service);
                Err(Status { code: code::UNIMPLEMENTED, message })
            }
        })
    }

    fn configure(&mut self, request: &ConfigureRequest) -> ConfigureResponse {
        self.route = UpdateRoute::of(request);
        self.runtime = format!("{} {}", request.runtime_name, request.runtime_version).trim().to_owned();
        debug!(runtime = self.runtime, nri = request.nri_version, route = ?self.route, "the runtime configures the plugin");
        // All of them are known since NRI 0.2: a runtime refuses a plugin that asks for an event which it does not
        // know.
        let events = [
            Event::CreateContainer,
            Event::PostStartContainer,
            Event::UpdateContainer,
            Event::StopContainer,
            Event::RemoveContainer,
        ];
        ConfigureResponse { events: event_mask(&events) }
    }

    fn synchronize(
        &mut self,
        request: &SynchronizeRequest,
        facts: &PinningFacts,
    ) -> Result<SynchronizeResponse, SessionError> {
        let mut told = self.collecting.take().unwrap_or_else(|| KnownContainers::new(self.kind.clone()));
        told.remember_pods(&request.pods);
        for container in &request.containers {
            told.learn(None, container, facts);
        }
        if told.len() > MOST_CONTAINERS {
            return Err(SessionError::Flood);
        }
        if request.more {
            self.collecting = Some(told);
            return Ok(SynchronizeResponse { update: Vec::new(), more: true });
        }
        told.forget_pods();
        (self.known, self.stage, self.waiting_since) = (told, SessionStage::Synchronized, None);
        let update = self.told(self.known.due(self.heard_at));
        info!(
            runtime = self.runtime,
            containers = self.known.len(),
            updates = update.len(),
            "containers are synchronized"
        );
        Ok(SynchronizeResponse { update, more: false })
    }

    fn create(
        &mut self,
        request: &CreateContainerRequest,
        facts: &PinningFacts,
    ) -> Result<CreateContainerResponse, Status> {
        let (no_pod, no_container) = (PodSandbox::default(), Container::default());
        let pod = request.pod.as_ref().unwrap_or(&no_pod);
        let container = request.container.as_ref().unwrap_or(&no_container);
        self.known.learn(Some(pod), container, facts);
        let own = match self.known.own(&container.id) {
            Ok(own) => own.clone(),
            // The hook binds the container as its CDI file says, and no record can tell that this is wrong.
            Err(OddContainer::Quarantined(_)) => return Ok(CreateContainerResponse::default()),
            Err(odd) => return Err(self.refuse(container, &odd.to_string())),
        };
        if facts.lacks_cpus(&own) {
            return Err(self.refuse(container, "the shared pool is empty: claims have every CPU that is not reserved"));
        }
        let pins = facts.intended(&own);
        self.known.told(&container.id, &pins);
        let update = if own.cpus.is_empty() { self.waiting() } else { self.out_of_the_way(&own) };
        let linux =
            LinuxContainerAdjustment { resources: Some(resources(&pins)), ..LinuxContainerAdjustment::default() };
        let adjust = ContainerAdjustment { linux: Some(linux), ..ContainerAdjustment::default() };
        Ok(CreateContainerResponse { adjust: (!pins.is_empty()).then_some(adjust), update, evict: Vec::new() })
    }

    /// Refuses a container, and forgets it.
    fn refuse(&mut self, container: &Container, reason: &str) -> Status {
        self.known.removed(&container.id);
        info!(container = container.id, name = container.name, reason, "a container is refused");
        Status { code: code::FAILED_PRECONDITION, message: format!("hostler: {reason}") }
    }

    fn update(
        &mut self,
        pod: Option<&PodSandbox>,
        container: Option<Container>,
        facts: &PinningFacts,
    ) -> UpdateContainerResponse {
        let container = container.unwrap_or_default();
        self.known.meet(pod, &container, facts);
        let pins = self.known.intended(&container.id).filter(|pins| !pins.is_empty()).cloned();
        let own = pins.map(|pins| {
            self.known.told(&container.id, &pins);
            update(&container.id, &pins)
        });
        let others = self.waiting();
        UpdateContainerResponse { update: own.into_iter().chain(others).collect(), evict: Vec::new() }
    }

    fn started(&mut self, pod: Option<&PodSandbox>, container: Option<Container>, facts: &PinningFacts) -> Vec<u8> {
        let container = container.unwrap_or_default();
        // Some runtimes make containers while they tell of the others, and do not tell of those.
        self.known.meet(pod, &container, facts);
        self.known.runs(&container.id, container.pid);
        Empty {}.encode_to_vec()
    }

    fn state_change(&mut self, change: StateChangeEvent, facts: &PinningFacts) -> Vec<u8> {
        match change.event() {
            Event::PostStartContainer => return self.started(change.pod.as_ref(), change.container, facts),
            Event::RemoveContainer => self.known.removed(&change.container.unwrap_or_default().id),
            _ => {}
        }
        Empty {}.encode_to_vec()
    }

    /// Returns updates of containers that still have CPUs that a container is about to have exclusively.
    fn out_of_the_way(&mut self, own: &Pins) -> Vec<ContainerUpdate> {
        let ids = self.known.in_the_way(own);
        if self.route != UpdateRoute::Asked {
            return self.told(ids);
        }
        // They are asked for as well, so that a failure is heard of.
        ids.iter().filter_map(|id| Some(lenient(self.known.update(id)?.1))).collect()
    }

    /// Returns updates that an answer has to carry, since the runtime cannot be asked for them.
    fn waiting(&mut self) -> Vec<ContainerUpdate> {
        if self.route == UpdateRoute::Asked { Vec::new() } else { self.told(self.known.due(self.heard_at)) }
    }

    /// Returns updates that are taken for done: the runtime does not report their outcome.
    fn told(&mut self, ids: Vec<String>) -> Vec<ContainerUpdate> {
        let updates = ids.into_iter().filter_map(|id| {
            let (pins, update) = self.known.update(&id)?;
            self.known.told(&id, &pins);
            Some(lenient(update))
        });
        updates.collect()
    }
}

/// Makes an update whose failure is not that of the event that carries it.
fn lenient(update: ContainerUpdate) -> ContainerUpdate {
    ContainerUpdate { ignore_failure: true, ..update }
}

fn decode<T: prost::Message + Default>(bytes: &[u8], what: &'static str) -> Result<T, SessionError> {
    T::decode(bytes).map_err(|source| SessionError::Garbage { what, source })
}

#[cfg(test)]
mod tests;
