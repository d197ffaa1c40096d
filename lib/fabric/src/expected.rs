//! Connections as the caller of an isolation has seen them.

use hostler_api::fabric::SystemUuid;

use crate::{AttachKey, FabricConnection, ObjectPath};

/// A connection that an isolation may take away. A manager may carry a call out long after it was sent, and connections
/// that were made since are not among those that the caller has seen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ExpectedConnection {
    /// The connection that was made under this key. A key is used once, so no later connection has it.
    Key(AttachKey),
    /// The connection that another program has made: its place, and the host that it leads to.
    Shown {
        /// The path of the connection.
        path: ObjectPath,
        /// The host.
        host: SystemUuid,
    },
}

impl ExpectedConnection {
    /// True if a connection is the expected one.
    pub fn is(&self, connection: &FabricConnection) -> bool {
        match self {
            Self::Key(key) => connection.key.as_ref() == Some(key),
            Self::Shown { path, host } => connection.path == *path && connection.host.as_ref() == Some(host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeFabric;

    #[test]
    fn a_later_connection_at_the_same_place_is_another_one() {
        let path = ObjectPath::new("/fabric/connections/1");
        let host = FakeFabric::host(0).unwrap();
        let connection = |key: &str, host: u32| FabricConnection {
            path: path.clone(),
            key: AttachKey::new(key).ok(),
            host: FakeFabric::host(host),
            ..FabricConnection::default()
        };
        let shown = ExpectedConnection::Shown { path: path.clone(), host };
        assert!(shown.is(&connection("1", 0)) && !shown.is(&connection("1", 1)));
        let keyed = ExpectedConnection::Key(AttachKey::new("u-1").unwrap());
        assert!(keyed.is(&connection("u-1", 1)) && !keyed.is(&connection("u-2", 1)));
    }
}
