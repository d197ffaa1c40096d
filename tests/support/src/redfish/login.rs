//! Sessions, and user name and password with each request.

use std::collections::BTreeMap;

use serde_json::Value;

use super::PlayedState;

pub(crate) const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

impl PlayedState {
    /// True if a request may be carried out.
    pub(crate) fn is_known(&self, path: &str, headers: &BTreeMap<String, String>) -> bool {
        let Some((user, password)) = &self.knobs.login else { return true };
        let is_public = ["/redfish/v1", "/redfish/v1/"].contains(&path) || path == SESSIONS;
        if is_public {
            return true;
        }
        if self.knobs.is_basic {
            return headers.get("authorization") == Some(&format!("Basic {}", encoded(&format!("{user}:{password}"))));
        }
        headers.get("x-auth-token").is_some_and(|token| self.tokens.contains(token))
    }

    /// Makes a session, and returns its token.
    pub(crate) fn log_in(&mut self, body: &Value) -> Option<String> {
        let (user, password) = self.knobs.login.clone()?;
        if body["UserName"] != user.as_str() || body["Password"] != password.as_str() {
            return None;
        }
        self.logins += 1;
        let token = format!("token-{}", self.logins);
        self.tokens.push(token.clone());
        Some(token)
    }
}

/// Base64, to be independent of the crate that the client uses.
fn encoded(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bytes = [chunk[0], *chunk.get(1).unwrap_or(&0), *chunk.get(2).unwrap_or(&0)];
        let bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    out
}
