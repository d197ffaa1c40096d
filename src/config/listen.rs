//! Addresses of metrics: a unix socket, a loopback address, or none; and an address for readers with a token.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};

/// An address of the metrics server. Only local addresses: their readers are not authenticated.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum ListenAddress {
    /// No address.
    Off,
    /// A unix socket.
    Unix(PathBuf),
    /// A loopback address.
    Tcp(SocketAddr),
}

/// Reason why a text is no [`ListenAddress`].
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The text has none of the forms.
    #[error("{0:?} is not an address; write \"unix:/run/hostler/metrics.sock\", \"127.0.0.1:9464\" or \"off\"")]
    Form(String),
    /// Other hosts could reach the address.
    #[error(
        "{0} can be reached from outside the host; write \"127.0.0.1:{port}\", and use metrics.scrape for readers elsewhere",
        port = .0.port()
    )]
    NotLoopback(SocketAddr),
}

impl FromStr for ListenAddress {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let numeric =
            text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        let address: SocketAddr = numeric.parse().map_err(|_| ListenError::Form(text.to_owned()))?;
        if address.ip().is_loopback() { Ok(Self::Tcp(address)) } else { Err(ListenError::NotLoopback(address)) }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
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

/// An address whose readers, from other hosts, are authenticated.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScrapeAddress(pub SocketAddr);

/// Reason why a text is no [`ScrapeAddress`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an address with a port; write \"0.0.0.0:9464\", or \"[::]:9464\" where nodes have IPv6")]
pub struct ScrapeAddressError(String);

impl TryFrom<String> for ScrapeAddress {
    type Error = ScrapeAddressError;

    fn try_from(text: String) -> Result<Self, ScrapeAddressError> {
        text.parse().map(Self).map_err(|_| ScrapeAddressError(text))
    }
}

impl From<ScrapeAddress> for String {
    fn from(address: ScrapeAddress) -> String {
        address.0.to_string()
    }
}
