//! The controller's address.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// The port of the controller.
const PORT: u16 = 9440;

/// Address of the controller's server: in the clear for this host, over TLS for others.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum ListenAddress {
    /// No server.
    Off,
    /// A server on this address.
    Tcp(SocketAddr),
}

/// The reason why a text is no address of a server.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not an address; write \"127.0.0.1:{PORT}\" for this host, \"0.0.0.0:{PORT}\" for others too (over TLS), or \"off\""
)]
pub(crate) struct ListenError(String);

impl Default for ListenAddress {
    fn default() -> Self {
        Self::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))
    }
}

impl FromStr for ListenAddress {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::Tcp).map_err(|_| ListenError(text.to_owned()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = ListenError;

    fn try_from(text: String) -> Result<Self, ListenError> {
        text.parse()
    }
}

impl From<ListenAddress> for String {
    fn from(listen: ListenAddress) -> String {
        listen.to_string()
    }
}
