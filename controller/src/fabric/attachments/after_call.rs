//! The write that follows from the answer of a fabric manager. Pure.

use hostler_api::{
    Chain,
    fabric::{AttachmentPhase as Phase, FabricAttachmentSpec, FabricAttachmentStatus},
};
use hostler_fabric::{AttachRefusal, FabricError, FabricOutcome, Isolation};

use super::{
    context::{AttachmentContext, AttachmentWrite, ManagerAnswer, ManagerCall, SeenAttachment},
    decide::{LOOK_AGAIN, UNANSWERED, UNDER_WAY},
    status::AttemptFailure,
};

/// The message of a call that is under way.
const UNDER_WAY_TEXT: &str = "the fabric manager works on it";

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallEnd {
    Write(AttachmentWrite),
    /// The connection, or the memory, is not there: the next step is decided without it.
    NotThere,
    /// The call is repeated after a pause.
    Wait,
    /// The manager does not answer: the call is repeated after a pause.
    Failed(String),
}

/// Decides on the answer to a call that followed from this context.
pub(super) fn after_call(
    cx: &AttachmentContext,
    seen: &SeenAttachment,
    call: &ManagerCall,
    answer: ManagerAnswer,
) -> CallEnd {
    match (call, answer) {
        (ManagerCall::Attach(_) | ManagerCall::Progress(_), ManagerAnswer::Connection(answer)) => {
            cx.attach_ended(seen, answer)
        }
        (ManagerCall::Settle(_), ManagerAnswer::Connection(answer)) => cx.settled(seen, answer.map(drop_value)),
        (ManagerCall::LookFor(_), ManagerAnswer::Connection(answer)) => cx.looked(seen, answer.map(drop_value)),
        (ManagerCall::Verify(shown), ManagerAnswer::Connection(answer)) => match answer {
            Ok(FabricOutcome::Done(_)) => cx.take_back(seen, shown).map_or(CallEnd::NotThere, CallEnd::Write),
            Ok(FabricOutcome::NotDone { .. }) => CallEnd::NotThere,
            Ok(_) => CallEnd::Wait,
            Err(error) => CallEnd::Failed(Chain(&error).to_string()),
        },
        (ManagerCall::Free { .. }, ManagerAnswer::Undone(answer)) => cx.freed(seen, answer),
        (ManagerCall::Detach(_), ManagerAnswer::Undone(answer)) => cx.detach_ended(seen, answer),
        (ManagerCall::Isolate { .. }, ManagerAnswer::Isolated(answer)) => cx.isolated(seen, answer),
        // An answer to another call says nothing about this one.
        _ => CallEnd::Wait,
    }
}

fn drop_value<T>(outcome: FabricOutcome<T>) -> FabricOutcome<()> {
    outcome.map(drop)
}

impl AttachmentContext {
    fn noted(&self, seen: &SeenAttachment, reason: &str, message: &str) -> CallEnd {
        self.note(seen, reason, message).map_or(CallEnd::Wait, CallEnd::Write)
    }

    /// Notes an error after which nothing is known to have changed.
    fn unanswered(&self, seen: &SeenAttachment, error: &FabricError) -> CallEnd {
        let message = Chain(error).to_string();
        match self.note(seen, UNANSWERED, &message) {
            Some(write) => CallEnd::Write(write),
            None => CallEnd::Failed(message),
        }
    }

    fn attach_ended<T>(&self, seen: &SeenAttachment, answer: Result<FabricOutcome<T>, FabricError>) -> CallEnd {
        let failed = |failure: AttemptFailure| CallEnd::Write(self.fail(seen, &failure));
        match answer {
            Ok(FabricOutcome::Done(_)) => {
                let node = &seen.spec().node_name;
                let message = format!("the device is attached; node {node} is to find it");
                CallEnd::Write(AttachmentWrite::Status(Box::new(self.phase(
                    seen,
                    Phase::Attached,
                    "Attached",
                    &message,
                ))))
            }
            Ok(FabricOutcome::UnderWay(_)) => self.noted(seen, UNDER_WAY, UNDER_WAY_TEXT),
            Ok(FabricOutcome::Unknown { reason }) => self.noted(seen, UNANSWERED, &reason),
            Ok(FabricOutcome::NotDone { reason }) => failed(AttemptFailure::of_device("NotDone", reason).unattached()),
            // Others were given the memory first: that says nothing against the device.
            Err(FabricError::Refused(
                refusal @ (AttachRefusal::NoRoom { .. } | AttachRefusal::MemoryTooSmall { .. }),
            )) => failed(AttemptFailure::of_node("NoRoom", Chain(&refusal).to_string())),
            Err(error @ FabricError::Refused(_)) => {
                failed(AttemptFailure::of_device("Refused", Chain(&error).to_string()))
            }
            Err(error @ FabricError::Mismatch { .. }) => {
                failed(AttemptFailure::of_device("OtherDevice", Chain(&error).to_string()))
            }
            Err(error @ FabricError::Unsupported { .. }) => {
                failed(AttemptFailure::of_device("Unsupported", Chain(&error).to_string()))
            }
            Err(error @ (FabricError::Unavailable { .. } | FabricError::Redfish(_))) => self.unanswered(seen, &error),
        }
    }

    /// The attach has ended one way or the other: now the node can be told to let go of what has come.
    fn settled(&self, seen: &SeenAttachment, answer: Result<FabricOutcome<()>, FabricError>) -> CallEnd {
        let release = || {
            let spec = FabricAttachmentSpec { release: true, ..seen.spec().clone() };
            CallEnd::Write(AttachmentWrite::Spec(Box::new(spec)))
        };
        match answer {
            Ok(FabricOutcome::Done(())) => release(),
            Ok(FabricOutcome::NotDone { reason }) => {
                let status = match seen.status().phase {
                    Phase::Attaching => self.phase(seen, Phase::Pending, "NotDone", &reason),
                    Phase::Failed => seen.status().clone(),
                    _ => return release(),
                };
                let status = FabricAttachmentStatus { deadline: None, ..status };
                CallEnd::Write(AttachmentWrite::Status(Box::new(status)))
            }
            Ok(FabricOutcome::UnderWay(_)) => {
                let why = "the claim has let go of the device; the fabric manager still works on attaching it";
                self.noted(seen, UNDER_WAY, why)
            }
            Ok(FabricOutcome::Unknown { reason }) => self.noted(seen, UNANSWERED, &reason),
            Err(error) => self.unanswered(seen, &error),
        }
    }

    /// The node does not report, or the end of a detachment is not known: where the manager has attached nothing, there is
    /// nothing to let go of.
    fn looked(&self, seen: &SeenAttachment, answer: Result<FabricOutcome<()>, FabricError>) -> CallEnd {
        let is_detaching = seen.status().phase == Phase::Detaching;
        match answer {
            Ok(FabricOutcome::NotDone { reason }) => CallEnd::Write(self.detached_status(seen, &reason, None)),
            Ok(FabricOutcome::UnderWay(_)) if is_detaching => self.noted(seen, UNDER_WAY, UNDER_WAY_TEXT),
            // A manager that ends no detachment is not asked all the time.
            Ok(FabricOutcome::Done(())) if is_detaching && self.now < self.since(seen) + LOOK_AGAIN => CallEnd::Wait,
            Ok(FabricOutcome::Done(())) if is_detaching => CallEnd::Write(self.ask_node_again(seen)),
            Ok(FabricOutcome::Done(()) | FabricOutcome::UnderWay(_)) => {
                let node = &seen.spec().node_name;
                let why = format!(
                    "node {node} is to report that it has let go of the device: its daemon does; where the machine is \
                     off, delete the Node or taint it with node.kubernetes.io/out-of-service"
                );
                self.noted(seen, "Releasing", &why)
            }
            Ok(FabricOutcome::Unknown { reason }) => self.noted(seen, UNANSWERED, &reason),
            Err(error) => self.unanswered(seen, &error),
        }
    }

    fn detach_ended(&self, seen: &SeenAttachment, answer: Result<FabricOutcome<()>, FabricError>) -> CallEnd {
        match answer {
            Ok(FabricOutcome::Done(())) => CallEnd::Write(self.detached_status(seen, "the device is free", None)),
            Ok(FabricOutcome::UnderWay(_)) => self.noted(seen, UNDER_WAY, UNDER_WAY_TEXT),
            Ok(FabricOutcome::NotDone { reason }) => self.noted(seen, "NotDetached", &reason),
            Ok(FabricOutcome::Unknown { reason }) => self.noted(seen, UNANSWERED, &reason),
            Err(error) => self.unanswered(seen, &error),
        }
    }

    fn freed(&self, seen: &SeenAttachment, answer: Result<FabricOutcome<()>, FabricError>) -> CallEnd {
        match answer {
            Ok(FabricOutcome::Done(())) => CallEnd::NotThere,
            Ok(FabricOutcome::UnderWay(_)) => self.noted(seen, UNDER_WAY, "the fabric manager takes its memory back"),
            Ok(FabricOutcome::NotDone { reason } | FabricOutcome::Unknown { reason }) => {
                self.noted(seen, "NotFreed", &reason)
            }
            Err(error) => self.unanswered(seen, &error),
        }
    }

    fn isolated(&self, seen: &SeenAttachment, answer: Result<FabricOutcome<Isolation>, FabricError>) -> CallEnd {
        match answer {
            Ok(FabricOutcome::Done(isolation)) => {
                let node = &seen.spec().node_name;
                let message = match &isolation {
                    Isolation::Removed { .. } if seen.spec().adopted => {
                        format!("the connection to node {node} that was taken over is ended")
                    }
                    Isolation::Removed { .. } => format!("the device was taken from node {node}, which is gone"),
                    Isolation::PortDisabled { port } => {
                        format!("the device was cut off from node {node}, which is gone: enable port {port} again")
                    }
                };
                // The port is named without its connection: a call that is late would cut the next one off.
                let is_cut = matches!(isolation, Isolation::PortDisabled { .. });
                let not_before = is_cut.then(|| self.now + self.limits.late_call);
                CallEnd::Write(self.detached_status(seen, &message, not_before))
            }
            Ok(FabricOutcome::UnderWay(_)) => self.noted(seen, UNDER_WAY, UNDER_WAY_TEXT),
            Ok(FabricOutcome::NotDone { reason } | FabricOutcome::Unknown { reason }) => {
                self.noted(seen, "NotIsolated", &reason)
            }
            Err(error) => self.unanswered(seen, &error),
        }
    }
}
