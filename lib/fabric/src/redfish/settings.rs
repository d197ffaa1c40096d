//! The settings of a Redfish service: every key, its default, and the mistakes that it can have.

use std::{fmt, path::PathBuf, time::Duration};

use hostler_api::ConfigProblem;
use hyper::Uri;
use serde::{Deserialize, Serialize};

/// Time-outs beyond an hour are slips of the pen.
const LONGEST_SECONDS: u32 = 3600;
/// A manager is a small computer: more reads at once make it slower, not faster.
const MOST_READS: u16 = 64;

/// The settings of a Redfish service.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedfishSettings {
    /// The address, such as `https://fabric.example:443`. A path `/redfish/v1` may follow.
    pub address: String,
    /// File with the certificates (PEM) that vouch for the service and its agents. Needed for https.
    pub authority: Option<PathBuf>,
    /// The name in the service's certificate, where it differs from the address.
    pub server_name: Option<String>,
    /// Folder with the files `username` and `password`, or a file with lines `username: …` and `password: …`. They are
    /// read again at each login.
    pub credentials: Option<PathBuf>,
    /// The way to log in.
    pub authentication: AuthenticationKind,
    /// Allows addresses with `http:`. Everyone on the network then can read and change what is sent.
    pub allow_plain_http: bool,
    /// Addresses of agents whose word counts for the connections of fabrics that they manage. The credentials are sent
    /// to them too. An agent that the service names and that is not listed here is never asked.
    pub agents: Vec<String>,
    /// Takes the service's own word for connections that it does not show, also where it names an agent that is not
    /// listed. Without it such a connection is unknown: services were seen to miss connections that their agents have.
    pub trust_service: bool,
    /// The longest time for a connection, in seconds.
    pub connect_seconds: u32,
    /// The longest time for a read, in seconds.
    pub read_seconds: u32,
    /// The longest time for a write, in seconds. Services answer when the hardware has done it.
    pub write_seconds: u32,
    /// The number of reads at once.
    pub parallel_reads: u16,
    /// The age up to which hosts and devices are not read again before an attachment, in seconds. Connections are
    /// always read.
    pub hardware_age_seconds: u32,
}

/// The way to log in to a service.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthenticationKind {
    /// No credentials are sent.
    #[default]
    None,
    /// User name and password go with each request.
    Basic,
    /// A session is made, and its token goes with each request.
    Session,
}

/// Scheme, host and port of a service.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub(super) struct ServiceAddress {
    pub(super) is_tls: bool,
    host: String,
    port: u16,
}

impl Default for RedfishSettings {
    fn default() -> Self {
        Self {
            address: String::new(),
            authority: None,
            server_name: None,
            credentials: None,
            authentication: AuthenticationKind::None,
            allow_plain_http: false,
            agents: Vec::new(),
            trust_service: false,
            connect_seconds: 5,
            read_seconds: 30,
            // Binding a device and training its link takes tens of seconds, and some services do it before they answer.
            write_seconds: 180,
            parallel_reads: 4,
            hardware_age_seconds: 30,
        }
    }
}

impl RedfishSettings {
    /// Returns all mistakes. Files are not looked at.
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        self.check_address("address", &self.address, &mut problems);
        for (at, agent) in self.agents.iter().enumerate() {
            self.check_address(&format!("agents[{at}]"), agent, &mut problems);
        }
        if self.authentication != AuthenticationKind::None && self.credentials.is_none() {
            let reason = "is missing; name the folder with username and password, or set authentication to \"none\"";
            problems.push(ConfigProblem::new("credentials", reason));
        }
        if self.authentication == AuthenticationKind::None && self.credentials.is_some() {
            let reason = "is \"none\" although credentials are given; write \"session\" or \"basic\"";
            problems.push(ConfigProblem::new("authentication", reason));
        }
        let times = [
            ("connect_seconds", self.connect_seconds),
            ("read_seconds", self.read_seconds),
            ("write_seconds", self.write_seconds),
        ];
        for (field, seconds) in times {
            if seconds == 0 || seconds > LONGEST_SECONDS {
                let reason = format!("is {seconds}; write 1 to {LONGEST_SECONDS}");
                problems.push(ConfigProblem::new(field, reason));
            }
        }
        if self.parallel_reads == 0 || self.parallel_reads > MOST_READS {
            let reason = format!("is {}; write 1 to {MOST_READS}", self.parallel_reads);
            problems.push(ConfigProblem::new("parallel_reads", reason));
        }
        problems
    }

    fn check_address(&self, field: &str, text: &str, problems: &mut Vec<ConfigProblem>) {
        let Some(address) = ServiceAddress::parse(text) else {
            let reason =
                format!("{:?} is no address of a service; write https://HOST:PORT without a user", shown(text));
            return problems.push(ConfigProblem::new(field, reason));
        };
        if !address.is_tls && !self.allow_plain_http {
            let reason = "is http, which others can read; write https, or set allow_plain_http";
            problems.push(ConfigProblem::new(field, reason));
        }
        let has_authority = self.authority.is_some() || problems.iter().any(|problem| problem.field == "authority");
        if address.is_tls && !has_authority {
            let reason = "is missing; name the file with the certificate of the authority that vouches for the service";
            problems.push(ConfigProblem::new("authority", reason));
        }
    }

    pub(super) fn connect_time(&self) -> Duration {
        Duration::from_secs(self.connect_seconds.into())
    }
}

/// An address for a message: the part that may have a password is left out.
fn shown(text: &str) -> &str {
    text.rsplit('@').next().unwrap_or_default()
}

impl ServiceAddress {
    /// Parses `https://HOST:PORT`, with or without `/redfish/v1`. Without a scheme it is https.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let full = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: Uri = full.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        let path = uri.path().trim_end_matches('/');
        if authority.as_str().contains('@') || !["", "/redfish/v1", "/redfish"].contains(&path) || uri.query().is_some()
        {
            return None;
        }
        let host = authority.host().to_ascii_lowercase();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        (!host.is_empty()).then_some(Self { is_tls, host, port })
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", if self.is_tls { "https" } else { "http" }, self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let settings: RedfishSettings = toml::from_str(text).unwrap();
        settings.problems().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_settings_have_no_problem() {
        assert_eq!(problems("address = 'https://fm:8443/redfish/v1/'\nauthority = '/ca.pem'"), Vec::<String>::new());
        let plain = "address = 'http://127.0.0.1:5000'\nallow_plain_http = true\nagents = ['http://127.0.0.1:5001']";
        assert_eq!(problems(plain), Vec::<String>::new());
    }

    #[test]
    fn each_mistake_names_its_field_and_the_fix() {
        for (text, expected) in [
            ("", "address: \"\" is no address"),
            ("address = 'ftp://x'", "address: \"ftp://x\" is no address"),
            ("address = 'https://x/other'", "address:"),
            ("address = 'http://x'", "address: is http, which others can read; write https, or set allow_plain_http"),
            ("address = 'https://x'", "authority: is missing"),
            ("address = 'https://x'\nauthority = 'a'\nauthentication = 'basic'", "credentials: is missing"),
            ("address = 'https://x'\nauthority = 'a'\ncredentials = 'c'", "authentication: is \"none\""),
            ("address = 'https://x'\nauthority = 'a'\nread_seconds = 0", "read_seconds: is 0; write 1 to 3600"),
            ("address = 'https://x'\nauthority = 'a'\nparallel_reads = 65", "parallel_reads: is 65"),
            ("address = 'https://x'\nauthority = 'a'\nagents = ['/a']", "agents[0]:"),
        ] {
            let found = problems(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with(expected), "{text}: {found:?}");
        }
        assert!(toml::from_str::<RedfishSettings>("adress = 'x'").is_err());
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_shown() {
        let found = problems("address = 'https://root:secret@x'\nauthority = 'a'");
        assert_eq!(found, ["address: \"x\" is no address of a service; write https://HOST:PORT without a user"]);
    }

    #[test]
    fn addresses_are_equal_however_they_are_written() {
        let same = ["https://Fm", "https://fm:443/", "fm", "https://fm/redfish/v1", "fm:443"];
        let parsed: Vec<_> = same.iter().map(|text| ServiceAddress::parse(text).unwrap()).collect();
        assert!(parsed.iter().all(|address| *address == parsed[0]));
        assert_eq!(parsed[0].to_string(), "https://fm:443");
        assert_ne!(ServiceAddress::parse("http://fm:443"), ServiceAddress::parse("https://fm:443"));
    }
}
