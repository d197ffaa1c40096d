//! URLs.

use std::collections::BTreeMap;

use super::{Body, Outcome, failed, mismatch, text};
use crate::{
    EvaluationError,
    cost::Meter,
    url::Url,
    value::{Key, List, Map, Shared, Value, count},
};

pub(super) const ALL: &[(&str, Body)] = &[
    ("url", url),
    ("isURL", |arguments, _| match arguments {
        [Value::Text(text)] => Ok(Value::Bool(Url::check(text).is_ok())),
        other => mismatch(other),
    }),
    ("getScheme", |arguments, meter| text(part(arguments, |url| Some(url.scheme().to_owned()))?, meter)),
    ("getHost", |arguments, meter| text(part(arguments, |url| unicode(url.host()))?, meter)),
    ("getHostname", |arguments, meter| text(part(arguments, |url| unicode(url.host_and_port().0))?, meter)),
    ("getPort", |arguments, meter| text(part(arguments, |url| unicode(url.host_and_port().1))?, meter)),
    ("getEscapedPath", |arguments, meter| text(part(arguments, |url| Some(url.escaped_path()))?, meter)),
    ("getQuery", |arguments, meter| Ok(Value::Map(part(arguments, query)?.metered(meter)?))),
];

fn url<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Text(text)] => match Url::parse(text) {
            Ok(url) => Ok(Value::Url(Shared::owned(url))),
            Err(error) => failed(format!("{text:?} is no URL: {error}")),
        },
        other => mismatch(other),
    }
}

/// A part of a URL; escapes can make it something else than a text.
fn part<T>(arguments: &[Value<'_>], of: fn(&Url) -> Option<T>) -> Result<T, EvaluationError> {
    match arguments {
        [Value::Url(url)] => {
            of(url).ok_or_else(|| EvaluationError::Unsupported("a part of a URL that is not Unicode".to_owned()))
        }
        other => Err(mismatch(other).err().unwrap_or_else(|| EvaluationError::Failed("not a URL".to_owned()))),
    }
}

fn unicode(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// Names and values of a query.
struct Pairs(BTreeMap<String, Vec<String>>);

fn query(url: &Url) -> Option<Pairs> {
    let pairs = url.query().into_iter().map(|(name, values)| {
        let values = values.iter().map(|value| unicode(value)).collect::<Option<_>>()?;
        Some((unicode(&name)?, values))
    });
    pairs.collect::<Option<_>>().map(Pairs)
}

impl Pairs {
    fn metered<'a>(self, meter: &mut Meter) -> Result<Map<'a>, EvaluationError> {
        let sizes = self.0.iter().map(|(name, values)| name.len() + values.iter().map(String::len).sum::<usize>());
        meter.make(count(sizes.sum()))?;
        let entry = |(name, values): (String, Vec<String>)| {
            (Key::Text(Shared::Owned(name.into())), Value::List(List::texts(values)))
        };
        Ok(Map::new(self.0.into_iter().map(entry).collect()))
    }
}
