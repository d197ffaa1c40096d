//! The service manager, as a daemon hears and is heard by it.

use std::{os::unix::net::UnixDatagram, path::Path};

use crate::host::{Host, PATIENCE};

/// The socket that systemd would listen on.
pub struct Systemd(pub UnixDatagram);

impl Systemd {
    /// Makes the daemons of a host report here from now on, with a watchdog of a tenth of a second.
    pub fn new(host: &mut Host) -> Self {
        let path = host.path("notify");
        let (systemd, environment) = Self::listen(&path);
        for (name, value) in environment {
            host.env(name, value);
        }
        systemd
    }

    /// Listens on a socket at `path`. Returns the variables for the environment of the reporting process, with the same
    /// watchdog.
    pub fn listen(path: &Path) -> (Self, Vec<(&'static str, String)>) {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let path = path.to_str().expect("a path of letters").to_owned();
        (Self(socket), vec![("NOTIFY_SOCKET", path), ("WATCHDOG_USEC", "100000".to_owned())])
    }

    /// Leaves no room for a message, as a manager does that does not read.
    pub fn fill(&self) {
        let (sender, address) = (UnixDatagram::unbound().unwrap(), self.0.local_addr().unwrap());
        sender.set_nonblocking(true).unwrap();
        while sender.send_to(b"X_FILLED=1\n", address.as_pathname().unwrap()).is_ok() {}
    }

    /// The next message.
    pub fn next(&self) -> String {
        let mut message = [0; 4096];
        let length = self.0.recv(&mut message).expect("a notification");
        String::from_utf8(message[..length].to_vec()).unwrap()
    }

    /// Reads on until a message has this line.
    pub fn wait_for(&self, line: &str) -> String {
        std::iter::repeat_with(|| self.next()).find(|message| message.lines().any(|found| found == line)).unwrap()
    }
}
