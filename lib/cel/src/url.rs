//! URLs as Go's library reads them.

use std::collections::BTreeMap;

use super::addresses::is_address_with_zone;

/// An absolute URL, or an absolute path.
#[derive(Clone, Debug, Default)]
pub(super) struct Url {
    scheme: String,
    /// Text behind the scheme where that is no path.
    opaque: String,
    user: Option<User>,
    host: Vec<u8>,
    path: Vec<u8>,
    /// The path as it was written.
    written_path: String,
    query: String,
    has_empty_query: bool,
    fragment: Vec<u8>,
    written_fragment: String,
    /// A scheme and a path with nothing for a host between them.
    omits_host: bool,
}

/// A name, and a password if one is given.
#[derive(Clone, Debug)]
struct User {
    name: Vec<u8>,
    password: Option<Vec<u8>>,
}

/// Error: a text is no URL. The words are those of Go's library, since selectors can see them.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum UrlError {
    #[error("net/url: invalid control character in URL")]
    Control,
    #[error("empty url")]
    Empty,
    #[error("missing protocol scheme")]
    NoScheme,
    #[error("invalid URI for request")]
    Relative,
    #[error("invalid IP-literal")]
    Literal,
    #[error("missing ']' in host")]
    Bracket,
    #[error("invalid port {} after host", quoted(.0))]
    Port(String),
    #[error("invalid URL escape {}", quoted(.0))]
    Escape(String),
    #[error("invalid character {} in host name", quoted(.0))]
    HostCharacter(String),
    #[error("net/url: invalid userinfo")]
    User,
    /// Go says more than that the host is invalid; its words are not known here.
    #[error("invalid host")]
    Address,
}

/// Part of a URL, each with its own escapes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum UrlPart {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

impl UrlPart {
    /// True if a byte stands for itself there.
    fn allows(self, byte: u8) -> bool {
        let signs: &[u8] = match self {
            Self::Path => b"$&+,/:;=@",
            Self::Host | Self::Zone => b"!\"$&'()*+,:;<=>[]",
            Self::User => b"$&+,;=",
            Self::Query => b"",
            Self::Fragment => b"!$&()*+,/:;=?@",
        };
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || signs.contains(&byte)
    }

    fn escaped(self, bytes: &[u8]) -> String {
        let escape =
            |byte: &u8| if self.allows(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
        bytes.iter().map(escape).collect()
    }

    fn unescaped(self, text: &str) -> Result<Vec<u8>, UrlError> {
        let bytes = text.as_bytes();
        let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'%' => {
                    let code = bytes.get(at + 1..at + 3).and_then(hexadecimal);
                    out.push(code.filter(|code| self.takes_escape(*code)).ok_or_else(|| bad_escape(bytes, at))?);
                    at += 2;
                }
                b'+' if self == Self::Query => out.push(b' '),
                byte if matches!(self, Self::Host | Self::Zone) && byte.is_ascii() && !self.allows(*byte) => {
                    return Err(UrlError::HostCharacter(char::from(*byte).to_string()));
                }
                byte => out.push(*byte),
            }
            at += 1;
        }
        Ok(out)
    }

    /// True if the part may escape a byte: hosts escape only bytes that are not ASCII, and the percent sign before a
    /// zone.
    fn takes_escape(self, code: u8) -> bool {
        match self {
            Self::Host => code >= 0x80 || code == b'%',
            Self::Zone => code == b'%' || code == b' ' || Self::Host.allows(code),
            _ => true,
        }
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

fn bad_escape(bytes: &[u8], at: usize) -> UrlError {
    UrlError::Escape(String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]).into_owned())
}

/// Quotes a text as Go does in its errors.
fn quoted(text: &str) -> String {
    super::quoting::quoted(text)
}

impl Url {
    /// Reads an absolute URL or path; the text behind a `#` is its fragment.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        Self::check(text)?;
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::without_fragment(text, false)?;
        url.fragment = UrlPart::Fragment.unescaped(fragment)?;
        fragment.clone_into(&mut url.written_fragment);
        Ok(url)
    }

    /// Checks that the text is a URL of a request to a server, which knows no fragments.
    pub(super) fn check(text: &str) -> Result<(), UrlError> {
        Self::without_fragment(text, true).map(drop)
    }

    fn without_fragment(text: &str, is_request: bool) -> Result<Self, UrlError> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(UrlError::Control);
        }
        if text.is_empty() && is_request {
            return Err(UrlError::Empty);
        }
        let mut url = Self::default();
        if text == "*" {
            url.path = b"*".to_vec();
            return Ok(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let rest = url.take_query(rest);
        if !rest.starts_with('/') {
            return url.rootless(rest);
        }
        let path = url.take_host(rest, is_request)?;
        url.path = UrlPart::Path.unescaped(path)?;
        path.clone_into(&mut url.written_path);
        Ok(url)
    }

    /// Takes the query, and returns the text in front of it.
    fn take_query<'t>(&mut self, text: &'t str) -> &'t str {
        match text.split_once('?') {
            Some((rest, "")) => {
                self.has_empty_query = true;
                rest
            }
            Some((rest, query)) => {
                query.clone_into(&mut self.query);
                rest
            }
            None => text,
        }
    }

    fn rootless(mut self, text: &str) -> Result<Self, UrlError> {
        if self.scheme.is_empty() {
            return Err(UrlError::Relative);
        }
        text.clone_into(&mut self.opaque);
        Ok(self)
    }

    /// Takes user and host, and returns the path behind.
    fn take_host<'t>(&mut self, text: &'t str, is_request: bool) -> Result<&'t str, UrlError> {
        let may_have_host = !self.scheme.is_empty() || (!is_request && !text.starts_with("///"));
        let Some(behind) = text.strip_prefix("//").filter(|_| may_have_host) else {
            self.omits_host = !self.scheme.is_empty();
            return Ok(text);
        };
        let (authority, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        self.host = read_host(host)?;
        self.user = user.map(read_user).transpose()?;
        Ok(path)
    }

    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Host with the port.
    pub(super) fn host(&self) -> &[u8] {
        &self.host
    }

    /// The host without brackets, and the port.
    pub(super) fn host_and_port(&self) -> (&[u8], &[u8]) {
        let colon = self.host.iter().rposition(|byte| *byte == b':');
        let colon = colon.filter(|at| self.host[at + 1..].iter().all(u8::is_ascii_digit));
        let (host, port) = colon.map_or((&*self.host, &[][..]), |at| (&self.host[..at], &self.host[at + 1..]));
        let inside = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]"));
        (inside.unwrap_or(host), port)
    }

    /// Path as it was written, where that is a valid notation.
    pub(super) fn escaped_path(&self) -> String {
        if self.path == b"*" { "*".to_owned() } else { as_written(UrlPart::Path, &self.path, &self.written_path) }
    }

    /// Values of each name; pairs that are not well-formed are left out.
    pub(super) fn query(&self) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
        let mut found: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        let pairs: Vec<&str> = self.query.split('&').collect();
        if pairs.len() > MOST_PAIRS {
            return found;
        }
        for pair in pairs.into_iter().filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Ok(name), Ok(value)) = (UrlPart::Query.unescaped(name), UrlPart::Query.unescaped(value)) {
                found.entry(name).or_default().push(value);
            }
        }
        found
    }
}

/// Most pairs of a query that Go reads.
const MOST_PAIRS: usize = 10_000;

impl PartialEq for Url {
    /// Compares the texts of the URLs.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        f.write_str(&self.opaque)?;
        if self.opaque.is_empty() {
            self.write_host(f)?;
            f.write_str(&self.escaped_path())?;
        }
        if self.has_empty_query || !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", as_written(UrlPart::Fragment, &self.fragment, &self.written_fragment))?;
        }
        Ok(())
    }
}

impl Url {
    fn write_host(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_nothing = self.host.is_empty() && self.user.is_none();
        let is_left_out = is_nothing && (self.scheme.is_empty() || self.omits_host || self.path.is_empty());
        if !is_left_out {
            f.write_str("//")?;
        }
        if let Some(user) = &self.user {
            f.write_str(&UrlPart::User.escaped(&user.name))?;
            if let Some(password) = &user.password {
                write!(f, ":{}", UrlPart::User.escaped(password))?;
            }
            f.write_str("@")?;
        }
        f.write_str(&UrlPart::Host.escaped(&self.host))
    }
}

/// Writes a part in its original notation, or with the escapes that it needs where that is not valid.
fn as_written(part: UrlPart, bytes: &[u8], written: &str) -> String {
    let is_allowed = |byte: u8| part.allows(byte) || b"!$&'()*+,;=:@[]%".contains(&byte);
    match !written.is_empty() && written.bytes().all(is_allowed) {
        true => written.to_owned(),
        false => part.escaped(bytes),
    }
}

/// Splits off the text in front of the first colon, if that can be a scheme.
fn split_scheme(text: &str) -> Result<(&str, &str), UrlError> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    match end {
        Some(0) if text.starts_with(':') => Err(UrlError::NoScheme),
        Some(at) if text[at..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok((&text[..at], &text[at + 1..]))
        }
        _ => Ok(("", text)),
    }
}

fn read_user(text: &str) -> Result<User, UrlError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !text.bytes().all(is_allowed) {
        return Err(UrlError::User);
    }
    let (name, password) = text.split_once(':').map_or((text, None), |(name, password)| (name, Some(password)));
    let password = password.map(|password| UrlPart::User.unescaped(password)).transpose();
    Ok(User { name: UrlPart::User.unescaped(name)?, password: password? })
}

fn read_host(text: &str) -> Result<Vec<u8>, UrlError> {
    match text.rfind('[') {
        Some(0) => return read_literal(text),
        Some(_) => return Err(UrlError::Literal),
        None => {}
    }
    // Hosts with colons were always taken, as some databases write lists of hosts with ports.
    check_port(text.rfind(':').map_or("", |at| &text[at..]))?;
    UrlPart::Host.unescaped(text)
}

/// An address of IPv6 in brackets.
fn read_literal(text: &str) -> Result<Vec<u8>, UrlError> {
    let (inside, port) = text[1..].rsplit_once(']').ok_or(UrlError::Bracket)?;
    check_port(port)?;
    let (address, zone) = inside.split_at(inside.find("%25").unwrap_or(inside.len()));
    let address = [UrlPart::Host.unescaped(address)?, UrlPart::Zone.unescaped(zone)?].concat();
    match is_address_with_zone(&String::from_utf8_lossy(&address)) {
        Some(true) => Ok([b"[", &*address, b"]", port.as_bytes()].concat()),
        Some(false) => Err(UrlError::Literal),
        None => Err(UrlError::Address),
    }
}

fn check_port(text: &str) -> Result<(), UrlError> {
    match text.strip_prefix(':') {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
        None if text.is_empty() => Ok(()),
        _ => Err(UrlError::Port(text.to_owned())),
    }
}
