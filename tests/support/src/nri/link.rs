//! A plugin's connection as its runtime has it: calls with a deadline one way, the plugin's own calls the other way.

use std::{
    collections::HashMap,
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicI32, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use prost::Message;

use super::wire::{
    LARGEST_MESSAGE, MessageReader, PLUGIN_SERVICE, RUNTIME_SERVICE, RawMessage, RpcRequest, RpcResponse, Trunk,
    frame_queue,
};

/// The service that plugins serve.
pub const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The service that runtimes serve.
pub(super) const RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";
/// gRPC's code for a method that is not there.
pub const UNIMPLEMENTED: i32 = 12;
const INVALID_ARGUMENT: i32 = 3;

/// The reason why a call to the plugin failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The connection has ended.
    #[error("the connection is closed")]
    Closed,
    /// No answer within the time limit.
    #[error("no answer within the time limit")]
    TimedOut,
    /// The plugin refused.
    #[error("refused with code {code}: {message}")]
    Refused {
        /// gRPC's code.
        code: i32,
        /// The message of the error.
        message: String,
    },
    /// The answer is no answer to this call.
    #[error("the answer cannot be decoded: {0}")]
    Answer(String),
    /// The call is larger than a message may be, and was not sent.
    #[error("a call of {0} bytes")]
    TooLarge(usize),
}

impl CallError {
    /// Returns true if runtimes hang up after the error. The refusal of a handler fails only its own call.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Closed | Self::TimedOut)
    }
}

/// Mistakes of a plugin that a runtime would choke on, or silently ignore.
#[derive(Clone, Default)]
pub struct Complaints(Arc<Mutex<Vec<String>>>);

impl Complaints {
    /// Notes one.
    pub fn add(&self, complaint: impl Into<String>) {
        self.0.lock().unwrap().push(complaint.into());
    }

    /// Returns all complaints, and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Answers a call of the plugin: method and argument.
pub(super) type Answerer = Arc<dyn Fn(&Arc<PluginLink>, &str, &[u8]) -> RpcResponse + Send + Sync>;

/// A connection to a plugin.
pub struct PluginLink {
    /// The socket, for messages that no runtime sends.
    pub trunk: Trunk,
    /// The last stream id on the wire: they have to grow there.
    last_stream: Mutex<Option<u32>>,
    /// Apart, so that answers are taken while a call is being written.
    waiting: Mutex<WaitingCalls>,
    complaints: Complaints,
    /// Index and name, once it has registered.
    pub identity: OnceLock<(String, String)>,
    events: AtomicI32,
}

#[derive(Default)]
struct WaitingCalls {
    by_stream: HashMap<u32, SyncSender<RpcResponse>>,
    ended: bool,
}

impl PluginLink {
    /// Begins to read; the plugin's calls are answered by `answerer`, each on a thread of its own.
    pub fn open(stream: UnixStream, complaints: Complaints, answerer: Answerer) -> Arc<Self> {
        let link = Arc::new(Self {
            trunk: Trunk::new(stream),
            last_stream: Mutex::default(),
            waiting: Mutex::default(),
            complaints,
            identity: OnceLock::new(),
            events: AtomicI32::new(0),
        });
        let ((ours, answers), (theirs, requests)) = (frame_queue(), frame_queue());
        let queues = vec![(PLUGIN_SERVICE, ours), (RUNTIME_SERVICE, theirs)];
        link.follow(move |link| link.trunk.pump(queues));
        link.follow(move |link| link.hear_answers(MessageReader::new(answers)));
        link.follow(move |link| link.hear_requests(MessageReader::new(requests), &answerer));
        link
    }

    /// Runs a part of the connection; a complaint of any part ends all of it.
    fn follow(self: &Arc<Self>, part: impl FnOnce(&Arc<Self>) -> Result<(), String> + Send + 'static) {
        let link = Arc::clone(self);
        thread::spawn(move || {
            if let Err(complaint) = part(&link) {
                link.complaints.add(complaint);
                link.close();
            }
        });
    }

    fn hear_answers(&self, mut messages: MessageReader) -> Result<(), String> {
        while let Some(message) = messages.next()? {
            if message.is_request {
                return Err("a request on the connection on which the plugin answers".into());
            }
            let response = RpcResponse::decode(&message.payload[..]).map_err(|error| error.to_string())?;
            let Some(waiting) = self.waiting.lock().unwrap().by_stream.remove(&message.stream) else { continue };
            let _ = waiting.send(response);
        }
        let mut waiting = self.waiting.lock().unwrap();
        waiting.ended = true;
        waiting.by_stream.clear();
        Ok(())
    }

    fn hear_requests(self: &Arc<Self>, mut messages: MessageReader, answerer: &Answerer) -> Result<(), String> {
        let mut last = 0;
        while let Some(message) = messages.next()? {
            let stream = message.stream;
            if !message.is_request || stream % 2 != 1 || stream <= last {
                self.complaints.add(format!("a call with stream id {stream} after {last}"));
                self.answer(stream, &RpcResponse::failure(INVALID_ARGUMENT, "stream ids are odd and grow"));
                continue;
            }
            last = stream;
            let request = RpcRequest::decode(&message.payload[..]).map_err(|error| error.to_string())?;
            let (link, answerer) = (Arc::clone(self), Arc::clone(answerer));
            thread::spawn(move || {
                let known = request.service == RUNTIME;
                let unknown = || RpcResponse::failure(UNIMPLEMENTED, format!("service {}", request.service));
                let response = if known { answerer(&link, &request.method, &request.payload) } else { unknown() };
                link.answer(stream, &response);
            });
        }
        Ok(())
    }

    fn answer(&self, stream: u32, response: &RpcResponse) {
        // A plugin that has gone needs no answer.
        let _ = self.trunk.write_message(RUNTIME_SERVICE, &RawMessage::response(stream, response));
    }

    /// Sends a call whose answer [`finish`](Self::finish) waits for.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn begin(&self, method: &str, payload: Vec<u8>, limit: Duration) -> Result<Receiver<RpcResponse>, CallError> {
        self.begin_at(PLUGIN, method, payload, limit)
    }

    /// Does the same as [`begin`](Self::begin), for any service.
    pub fn begin_at(
        &self,
        service: &str,
        method: &str,
        payload: Vec<u8>,
        limit: Duration,
    ) -> Result<Receiver<RpcResponse>, CallError> {
        let timeout_nano = i64::try_from(limit.as_nanos()).unwrap();
        let request = RpcRequest { service: service.into(), method: method.into(), payload, timeout_nano };
        let (answered_tx, answered_rx) = sync_channel(1);
        let mut last_stream = self.last_stream.lock().unwrap();
        let stream = last_stream.map_or(1, |last| last + 2);
        let message = RawMessage::request(stream, &request);
        if message.payload.len() > LARGEST_MESSAGE {
            return Err(CallError::TooLarge(message.payload.len()));
        }
        let mut waiting = self.waiting.lock().unwrap();
        if waiting.ended {
            return Err(CallError::Closed);
        }
        waiting.by_stream.insert(stream, answered_tx);
        drop(waiting);
        *last_stream = Some(stream);
        self.trunk.write_message(PLUGIN_SERVICE, &message).map_err(|_| CallError::Closed)?;
        Ok(answered_rx)
    }

    /// Waits for the answer to a call.
    ///
    /// # Errors
    /// When it does not come, or is a refusal.
    pub fn finish<R: Message + Default>(
        &self,
        answered_rx: &Receiver<RpcResponse>,
        limit: Duration,
    ) -> Result<R, CallError> {
        // Who has no patience at all does not look whether the answer has come meanwhile.
        if limit.is_zero() {
            return Err(CallError::TimedOut);
        }
        let response = answered_rx.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => CallError::TimedOut,
            RecvTimeoutError::Disconnected => CallError::Closed,
        })?;
        match response.status {
            Some(status) if status.code != 0 => Err(CallError::Refused { code: status.code, message: status.message }),
            _ => R::decode(&response.payload[..]).map_err(|error| CallError::Answer(error.to_string())),
        }
    }

    /// A call from begin to end.
    ///
    /// # Errors
    /// When it comes to nothing.
    pub fn call<R: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<R, CallError> {
        let answered_rx = self.begin(method, request.encode_to_vec(), limit)?;
        self.finish(&answered_rx, limit)
    }

    /// Stores the plugin's subscription, a bit for each event.
    pub fn subscribe(&self, events: i32) {
        self.events.store(events, Ordering::SeqCst);
    }

    /// Returns true if the plugin subscribed to this event.
    pub fn is_subscribed(&self, event: i32) -> bool {
        self.events.load(Ordering::SeqCst) & (1 << (event - 1)) != 0
    }

    /// Returns the plugin's name as runtimes write it.
    pub fn name(&self) -> String {
        self.identity.get().map_or_else(|| "??-plugin".to_owned(), |(index, name)| format!("{index}-{name}"))
    }

    /// Hangs up.
    pub fn close(&self) {
        self.trunk.close();
    }

    /// Returns true if the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.trunk.is_closed()
    }
}
