//! Being known to a service: a session's token or a user's name and password, made once and again after a refusal.

use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::{
    Method,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use serde_json::json;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::{
    AuthenticationKind, RedfishError, RedfishSettings,
    credentials::{Login, read_login},
    transport::{HttpCall, Transport},
};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The login at one service.
pub(super) struct ServiceLogin {
    kind: AuthenticationKind,
    credentials: Option<PathBuf>,
    time: Duration,
    /// One login at a time: services have few sessions.
    turn: Semaphore,
    granted: Mutex<Granted>,
}

#[derive(Clone, Default)]
struct Granted {
    /// Counts logins: a refusal of an older one asks for no new one.
    generation: u64,
    is_known: bool,
    header: Option<(HeaderName, HeaderValue)>,
    /// The session, to end it.
    session: Option<String>,
}

/// The headers of a request, and the login that gave them.
pub(super) struct GrantedHeader {
    pub(super) header: Option<(HeaderName, HeaderValue)>,
    generation: u64,
}

impl fmt::Debug for ServiceLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceLogin").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl ServiceLogin {
    pub(super) fn new(settings: &RedfishSettings) -> Self {
        Self {
            kind: settings.authentication,
            credentials: settings.credentials.clone(),
            time: Duration::from_secs(settings.read_seconds.into()),
            turn: Semaphore::new(1),
            granted: Mutex::default(),
        }
    }

    /// The header that makes this client known. Logs in where that has not been done.
    pub(super) async fn header(&self, transport: &Transport) -> Result<GrantedHeader, RedfishError> {
        let known = self.granted();
        if self.kind == AuthenticationKind::None || known.is_known {
            return Ok(GrantedHeader { header: known.header, generation: known.generation });
        }
        let _turn = self.turn.acquire().await;
        let known = self.granted();
        if known.is_known {
            return Ok(GrantedHeader { header: known.header, generation: known.generation });
        }
        let (header, session) = self.log_in(transport).await?;
        let generation = known.generation + 1;
        *self.lock() = Granted { generation, is_known: true, header: header.clone(), session };
        Ok(GrantedHeader { header, generation })
    }

    /// Forgets a login that the service has refused. False: there is no other way to be known.
    pub(super) fn forget(&self, refused: &GrantedHeader) -> bool {
        if self.kind == AuthenticationKind::None {
            return false;
        }
        let mut granted = self.lock();
        if granted.generation == refused.generation {
            granted.is_known = false;
        }
        true
    }

    /// Ends the session, if there is one. Services end sessions by themselves, so a failure is only logged.
    pub(super) async fn log_out(&self, transport: &Transport) {
        let granted = std::mem::take(&mut *self.lock());
        let (Some(session), Some(header)) = (granted.session, granted.header) else { return };
        let call =
            HttpCall { method: Method::DELETE, path: &session, headers: vec![header], body: None, time: self.time };
        if let Err(error) = transport.exchange(&call).await {
            debug!(error = %hostler_api::Chain(&error), "failed to end the session");
        }
    }

    fn granted(&self) -> Granted {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Granted> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn log_in(
        &self,
        transport: &Transport,
    ) -> Result<(Option<(HeaderName, HeaderValue)>, Option<String>), RedfishError> {
        // The settings without credentials are refused: see `RedfishSettings::problems`.
        let Some(path) = &self.credentials else { return Ok((None, None)) };
        // Two local files of a few bytes, once a session: not worth a thread.
        let login = read_login(&transport.service, path)?;
        if self.kind == AuthenticationKind::Basic {
            return Ok((basic(&login), None));
        }
        self.make_session(transport, &login).await
    }

    async fn make_session(
        &self,
        transport: &Transport,
        login: &Login,
    ) -> Result<(Option<(HeaderName, HeaderValue)>, Option<String>), RedfishError> {
        let body = json!({"UserName": login.username, "Password": login.password});
        let call =
            HttpCall { method: Method::POST, path: SESSIONS, headers: Vec::new(), body: Some(&body), time: self.time };
        let answer = transport.exchange(&call).await?;
        if !answer.is_success() {
            return Err(RedfishError::Status {
                service: transport.service.clone(),
                method: "POST",
                path: SESSIONS.to_owned(),
                status: answer.status,
                // Some services repeat the password in their answer.
                said: String::new(),
                fix: "check user name and password, or set authentication to \"basic\" if it has no sessions",
            });
        }
        let session =
            answer.location.as_deref().and_then(super::document::path_of).map(|path| path.as_str().to_owned());
        let Some(token) = answer.headers.get(TOKEN) else {
            warn!(service = transport.service, "the session has no token; requests are sent without one");
            return Ok((None, session));
        };
        let mut token = token.clone();
        token.set_sensitive(true);
        Ok((Some((TOKEN, token)), session))
    }
}

fn basic(login: &Login) -> Option<(HeaderName, HeaderValue)> {
    let text = STANDARD.encode(format!("{}:{}", login.username, login.password));
    let mut value = HeaderValue::try_from(format!("Basic {text}")).ok()?;
    value.set_sensitive(true);
    Some((AUTHORIZATION, value))
}
