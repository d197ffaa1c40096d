//! Events about objects, written so that a storm of failures does not fill the cluster's storage: the same Event within
//! ten minutes is counted on the one that stands there, and only so many are written at once.
//!
//! Core `v1` Events, since these need one rule of access, and every version of `kubectl describe` shows their count.

mod log;

use std::time::SystemTime;

use hostler_api::limits::MAX_EVENT_MESSAGE_BYTES;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use self::log::{EventDecision, EventLog};
use crate::{ApiClient, ApiFailure, Collection, rfc3339};

/// The object that an Event is about. Its namespace and name become part of a path: they must be such as Kubernetes
/// takes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct EventSubject {
    /// `resource.k8s.io/v1`.
    pub api_version: String,
    /// `ResourceClaim`.
    pub kind: &'static str,
    /// Namespace; Events are written into it, and those about objects without one into `default`.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Identity.
    pub uid: String,
}

/// Content of an Event.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct EventNote {
    /// Reason in one word. Rules and dashboards match on these words: they do not change.
    pub reason: &'static str,
    /// In all words.
    pub message: String,
    /// Warning or normal.
    pub severity: EventSeverity,
}

/// Severity of an Event.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum EventSeverity {
    /// People should do something about it.
    Warning,
    /// All is as it should be.
    Normal,
}

impl EventSeverity {
    /// Text of the severity in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "Warning",
            Self::Normal => "Normal",
        }
    }
}

impl EventNote {
    /// A warning whose message is cut to what the API server takes.
    pub fn new(reason: &'static str, mut message: String) -> Self {
        if message.len() > MAX_EVENT_MESSAGE_BYTES {
            const CUT: &str = "…";
            let end = (0..=MAX_EVENT_MESSAGE_BYTES - CUT.len()).rev().find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or_default());
            message.push_str(CUT);
        }
        Self { reason, message, severity: EventSeverity::Warning }
    }

    /// The same, of something that is as it should be.
    #[must_use]
    pub fn normal(self) -> Self {
        Self { severity: EventSeverity::Normal, ..self }
    }
}

/// End of a try to write an Event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventOutcome {
    /// A new one, or one more on the last one.
    Written,
    /// There were too many.
    LeftOut,
}

/// Writes Events in the name of one component on one host.
#[derive(Debug)]
pub struct EventRecorder {
    client: ApiClient,
    component: String,
    host: String,
    log: EventLog,
}

impl EventRecorder {
    /// Writes over `client`.
    pub fn new(client: ApiClient, component: &str, host: &str) -> Self {
        Self { client, component: component.to_owned(), host: host.to_owned(), log: EventLog::default() }
    }

    /// Tells of something that happened `at` this time, or counts it on the Event that says the same.
    ///
    /// # Errors
    /// When the call fails; the Event is then lost, and the next one of its kind is written anew.
    pub async fn tell(
        &mut self,
        subject: &EventSubject,
        note: &EventNote,
        at: SystemTime,
    ) -> Result<EventOutcome, ApiFailure> {
        let written = match self.log.decide(subject, note, at) {
            EventDecision::LeaveOut => return Ok(EventOutcome::LeftOut),
            EventDecision::Create(name) => self.create(&name, subject, note, at).await,
            EventDecision::Count { name, count } => match self.count(&name, count, subject, at).await {
                // Events do not live long.
                Err(failure) if failure.code() == Some(404) => self.create(&name, subject, note, at).await,
                counted => counted,
            },
        };
        written.inspect_err(|_| self.log.forget(subject, note))?;
        Ok(EventOutcome::Written)
    }

    async fn create(
        &self,
        name: &str,
        subject: &EventSubject,
        note: &EventNote,
        at: SystemTime,
    ) -> Result<(), ApiFailure> {
        let event = self.event(name, subject, note, at);
        self.client.create::<IgnoredAny>(&events(subject), name, &event).await.map(drop)
    }

    async fn count(&self, name: &str, count: u32, subject: &EventSubject, at: SystemTime) -> Result<(), ApiFailure> {
        let patch = json!({"count": count, "lastTimestamp": rfc3339(at)});
        self.client.merge("count", &events(subject), name, &patch).await
    }

    /// The whole Event.
    fn event(&self, name: &str, subject: &EventSubject, note: &EventNote, at: SystemTime) -> Value {
        let at = rfc3339(at);
        let mut event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace(subject)},
            "involvedObject": {
                "apiVersion": subject.api_version, "kind": subject.kind, "namespace": subject.namespace,
                "name": subject.name, "uid": subject.uid,
            },
            "type": note.severity.as_str(),
            "reason": note.reason,
            "message": note.message,
            "source": {"component": self.component, "host": self.host},
            "reportingComponent": self.component,
            "reportingInstance": self.host,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        });
        if subject.namespace.is_empty()
            && let Some(about) = event["involvedObject"].as_object_mut()
        {
            about.remove("namespace");
        }
        event
    }
}

fn events(subject: &EventSubject) -> Collection {
    Collection::core("Event", "events").of(namespace(subject))
}

/// Namespace of the Events about a subject.
fn namespace(subject: &EventSubject) -> &str {
    if subject.namespace.is_empty() { "default" } else { &subject.namespace }
}

#[cfg(test)]
mod tests;
