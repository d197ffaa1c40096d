//! Changes as people write them: `drain node n1`, `add node like n1 × 3`,
//! `taint device driver/pool/device key:NoSchedule`.

use std::str::FromStr;

use hostler_api::core::Taint;

use super::Change;
use hostler_api::ObjectKey;

const FORMS: &str = "write one of: drain node NAME; remove node NAME; add node like NAME × COUNT; \
    taint node NAME KEY=VALUE:EFFECT, with - behind it to take it away; taint device DRIVER/POOL/DEVICE KEY=VALUE:EFFECT, \
    with * for every pool or device; free claim NAMESPACE/NAME";
const NODE_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const DEVICE_EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];
/// More nodes than any cluster has.
const MOST_NODES: u32 = 100_000;

/// The reason why a text is not a change.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseChangeError {
    /// A word is none of those that can stand there.
    #[error("{word:?} was not understood, {expected} is expected there; {FORMS}")]
    Word {
        /// The word.
        word: String,
        /// The words that the parser accepts there.
        expected: &'static str,
    },
    /// The text ends too early.
    #[error("{text:?} ends where {expected} is expected; {FORMS}")]
    Short {
        /// The text.
        text: String,
        /// The words that the parser accepts there.
        expected: &'static str,
    },
    /// The text goes on.
    #[error("{word:?} is too much; {FORMS}")]
    Long {
        /// The first word that is too much.
        word: String,
    },
}

/// The words of a text that are still to be read.
struct Words<'a> {
    text: &'a str,
    rest: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn next(&mut self, expected: &'static str) -> Result<&'a str, ParseChangeError> {
        self.rest.next().ok_or_else(|| ParseChangeError::Short { text: self.text.to_owned(), expected })
    }

    fn keyword(&mut self, keyword: &'static str) -> Result<(), ParseChangeError> {
        let word = self.next(keyword)?;
        if word.eq_ignore_ascii_case(keyword) { Ok(()) } else { Err(wrong(word, keyword)) }
    }

    fn name(&mut self) -> Result<String, ParseChangeError> {
        self.next("a name").map(str::to_owned)
    }

    fn end(&mut self) -> Result<(), ParseChangeError> {
        self.rest.next().map_or(Ok(()), |word| Err(ParseChangeError::Long { word: word.to_owned() }))
    }
}

fn wrong(word: &str, expected: &'static str) -> ParseChangeError {
    ParseChangeError::Word { word: word.to_owned(), expected }
}

impl FromStr for Change {
    type Err = ParseChangeError;

    fn from_str(text: &str) -> Result<Self, ParseChangeError> {
        // The sign stands alone or at either word.
        let text = &text.replace('×', " × ");
        let mut words = Words { text, rest: text.split_whitespace() };
        let verb = words.next("drain, remove, add, taint or free")?;
        let change = match &*verb.to_ascii_lowercase() {
            "drain" => node_of(&mut words).map(|node| Self::DrainNode { node }),
            "remove" => node_of(&mut words).map(|node| Self::RemoveNode { node }),
            "add" => nodes(&mut words),
            "taint" => taint(&mut words),
            "free" => claim(&mut words),
            _ => Err(wrong(verb, "drain, remove, add, taint or free")),
        }?;
        words.end()?;
        Ok(change)
    }
}

fn node_of(words: &mut Words<'_>) -> Result<String, ParseChangeError> {
    words.keyword("node")?;
    words.name()
}

fn nodes(words: &mut Words<'_>) -> Result<Change, ParseChangeError> {
    let kind = words.next("node")?;
    if !kind.eq_ignore_ascii_case("node") && !kind.eq_ignore_ascii_case("nodes") {
        return Err(wrong(kind, "node"));
    }
    words.keyword("like")?;
    Ok(Change::AddNodesLike { node: words.name()?, count: times(words)? })
}

/// `× 3`, `x 3`, `x3`, or nothing for one.
fn times(words: &mut Words<'_>) -> Result<u32, ParseChangeError> {
    let Some(word) = words.rest.next() else { return Ok(1) };
    let count = match word.strip_prefix(['×', 'x', 'X', '*']) {
        Some("") => words.next("a number of nodes")?,
        Some(count) => count,
        None => return Err(wrong(word, "× and a number")),
    };
    let number = count.parse().ok().filter(|count| (1..=MOST_NODES).contains(count));
    number.ok_or_else(|| wrong(count, "a number of nodes from 1 to 100000"))
}

fn taint(words: &mut Words<'_>) -> Result<Change, ParseChangeError> {
    let kind = words.next("node or device")?;
    match &*kind.to_ascii_lowercase() {
        "node" => node_taint(words),
        "device" => device_taint(words),
        _ => Err(wrong(kind, "node or device")),
    }
}

fn node_taint(words: &mut Words<'_>) -> Result<Change, ParseChangeError> {
    const EXPECTED: &str = "KEY=VALUE:EFFECT with the effect NoSchedule, PreferNoSchedule or NoExecute";
    let node = words.name()?;
    let word = words.next(EXPECTED)?;
    let Some(gone) = word.strip_suffix('-') else {
        let taint = read_taint(word, &NODE_EFFECTS).ok_or_else(|| wrong(word, EXPECTED))?;
        return Ok(Change::TaintNode { node, taint });
    };
    let taint =
        if gone.contains(':') { read_taint(gone, &NODE_EFFECTS) } else { read_taint(&format!("{gone}:"), &[""]) };
    Ok(Change::UntaintNode { node, taint: taint.ok_or_else(|| wrong(word, EXPECTED))? })
}

fn device_taint(words: &mut Words<'_>) -> Result<Change, ParseChangeError> {
    const EXPECTED: &str = "KEY=VALUE:EFFECT with the effect NoSchedule or NoExecute";
    let word = words.next("DRIVER/POOL/DEVICE")?;
    // A pool's name can have slashes; those of drivers and devices have none.
    let parts = word.split_once('/').and_then(|(driver, rest)| Some((driver, rest.rsplit_once('/')?)));
    let (driver, (pool, device)) = parts.ok_or_else(|| wrong(word, "DRIVER/POOL/DEVICE"))?;
    if [driver, pool, device].contains(&"") {
        return Err(wrong(word, "DRIVER/POOL/DEVICE"));
    }
    let word = words.next(EXPECTED)?;
    let taint = read_taint(word, &DEVICE_EFFECTS).ok_or_else(|| wrong(word, EXPECTED))?;
    let [pool, device] = [pool, device].map(|name| (name != "*").then(|| name.to_owned()));
    Ok(Change::TaintDevice { driver: driver.to_owned(), pool, device, taint })
}

fn read_taint(word: &str, effects: &[&str]) -> Option<Taint> {
    let (key, effect) = word.rsplit_once(':')?;
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    let is_taint = !key.is_empty() && effects.contains(&effect);
    is_taint.then(|| Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
}

fn claim(words: &mut Words<'_>) -> Result<Change, ParseChangeError> {
    words.keyword("claim")?;
    let word = words.next("NAMESPACE/NAME")?;
    let (namespace, name) = word.split_once('/').unwrap_or(("", word));
    Ok(Change::FreeClaim { claim: ObjectKey::new(namespace, name) })
}
