//! Texts that values are filled into.

use super::{Body, Outcome, convert, failed, mismatch};
use crate::{
    EvaluationError,
    clauses::{Clause, Piece, Verb, pieces},
    cost::Meter,
    quoting::quoted,
    value::{List, Map, Shared, Value, count},
};

pub(super) const ALL: &[(&str, Body)] = &[("format", format)];

type Written = Result<(), EvaluationError>;

/// A text in the making.
struct Writer<'m> {
    out: String,
    meter: &'m mut Meter,
}

fn format<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::Text(text), Value::List(list)] = arguments else { return mismatch(arguments) };
    let pieces = pieces(text).map_err(EvaluationError::Failed)?;
    let mut writer = Writer { out: String::new(), meter };
    let mut values = list.iter();
    for piece in pieces {
        match piece {
            Piece::Text(text) => writer.push(text)?,
            Piece::Clause(clause) => match values.next() {
                Some(value) => writer.clause(clause, &value)?,
                None => return failed("there are more clauses than values"),
            },
        }
    }
    Ok(Value::Text(Shared::Owned(writer.out.into())))
}

fn unfit<T>(verb: Verb, value: &Value<'_>) -> Result<T, EvaluationError> {
    failed(format!("a {} cannot be written as {verb:?}", value.type_of()))
}

impl Writer<'_> {
    fn push(&mut self, text: &str) -> Written {
        self.meter.make(count(text.len()))?;
        self.out.push_str(text);
        Ok(())
    }

    fn clause(&mut self, clause: Clause, value: &Value<'_>) -> Written {
        match clause.verb {
            Verb::Text => self.text(value),
            Verb::Decimal => self.whole(clause.verb, value, |number| number.to_string()),
            Verb::Binary => match value {
                Value::Bool(value) => self.push(if *value { "1" } else { "0" }),
                other => {
                    self.whole(clause.verb, other, |number| signed(number, format!("{:b}", number.unsigned_abs())))
                }
            },
            Verb::Octal => {
                self.whole(clause.verb, value, |number| signed(number, format!("{:o}", number.unsigned_abs())))
            }
            Verb::Hexadecimal => self.hexadecimal(clause.verb, value, |text| text),
            Verb::UpperHexadecimal => self.hexadecimal(clause.verb, value, |text| text.to_uppercase()),
            Verb::Fixed => self.push(&fixed(float(clause.verb, value)?, clause.precision)),
            Verb::Scientific => self.push(&scientific(float(clause.verb, value)?, clause.precision)),
        }
    }

    fn whole(&mut self, verb: Verb, value: &Value<'_>, write: fn(i128) -> String) -> Written {
        match value {
            Value::Int(number) => self.push(&write(i128::from(*number))),
            Value::Uint(number) => self.push(&write(i128::from(*number))),
            other => unfit(verb, other),
        }
    }

    fn hexadecimal(&mut self, verb: Verb, value: &Value<'_>, cased: fn(String) -> String) -> Written {
        let bytes: &[u8] = match value {
            Value::Text(text) => text.as_bytes(),
            Value::Bytes(bytes) => bytes,
            other => {
                let number = other.as_whole().map_or_else(|| unfit(verb, other), Ok)?;
                return self.push(&cased(signed(number, format!("{:x}", number.unsigned_abs()))));
            }
        };
        self.meter.make(count(bytes.len()))?;
        self.push(&cased(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Writes a value as a conversion to a text does.
    fn text(&mut self, value: &Value<'_>) -> Written {
        match value {
            Value::List(list) => self.list(list),
            Value::Map(map) => self.map(map),
            Value::Null => self.push("null"),
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Bool(_)
            | Value::Text(_)
            | Value::Bytes(_)
            | Value::Timestamp(_)
            | Value::Duration(_)
            | Value::Type(_) => {
                let text = convert::written(value).map_or_else(|| failed("bytes that are no Unicode text"), Ok)?;
                self.push(&text)
            }
            other => unfit(Verb::Text, other),
        }
    }

    /// Writes a value as an expression would.
    fn literal(&mut self, value: &Value<'_>) -> Written {
        let text = || convert::written(value).map_or_else(|| failed("bytes that are no Unicode text"), Ok);
        match value {
            Value::Text(text) => self.push(&quoted(text)),
            Value::Bytes(_) => self.push(&format!("b{}", quoted(&text()?))),
            Value::Timestamp(_) => self.push(&format!("timestamp(\"{}\")", text()?)),
            Value::Duration(_) => self.push(&format!("duration(\"{}\")", text()?)),
            Value::Double(number) if number.is_finite() => self.push(&format!("{number:.6}")),
            Value::Double(_) => self.push(&quoted(&text()?)),
            other => self.text(other),
        }
    }

    fn list(&mut self, list: &List<'_>) -> Written {
        self.push("[")?;
        for (at, element) in list.iter().enumerate() {
            self.push(if at == 0 { "" } else { ", " })?;
            self.literal(&element)?;
        }
        self.push("]")
    }

    /// Writes a map, ordered by the text of the keys.
    fn map(&mut self, map: &Map<'_>) -> Written {
        let mut entries = Vec::new();
        for (key, value) in map.entries() {
            if !matches!(key, Value::Text(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
                return unfit(Verb::Text, &key);
            }
            let outer = std::mem::take(&mut self.out);
            self.literal(&key)?;
            let key = std::mem::take(&mut self.out);
            self.literal(&value)?;
            entries.push((key, std::mem::replace(&mut self.out, outer)));
        }
        entries.sort_by(|(one, _), (two, _)| one.cmp(two));
        let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
        self.push(&format!("{{{}}}", entries.join(", ")))
    }
}

fn signed(number: i128, digits: String) -> String {
    if number < 0 { format!("-{digits}") } else { digits }
}

/// A floating-point number, or the name of one that no digits can write.
fn float(verb: Verb, value: &Value<'_>) -> Result<f64, EvaluationError> {
    match value {
        Value::Double(number) => Ok(*number),
        Value::Text(text) => match &**text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => unfit(verb, value),
        },
        other => unfit(verb, other),
    }
}

const USUAL_PRECISION: u64 = 6;

/// Go reads no bigger numbers in its own formats, and says this instead of the value.
const MOST_READ: u64 = 10 * (1_000_000 + 1);
const UNREAD: &str = "%!(NOVERB)";

fn not_finite(number: f64) -> Option<&'static str> {
    match number {
        number if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

/// Writes a number with so many decimals, and commas between thousands.
fn fixed(number: f64, precision: Option<u64>) -> String {
    let precision = precision.unwrap_or(USUAL_PRECISION);
    if precision >= MOST_READ {
        return UNREAD.to_owned();
    }
    if let Some(name) = not_finite(number) {
        return name.to_owned();
    }
    let written = format!("{:.*}", usize::try_from(precision.min(MOST_DECIMALS)).unwrap_or_default(), number.abs());
    let (whole, decimals) = written.split_once('.').unwrap_or((&written, ""));
    let sign = if number < 0.0 { "-" } else { "" };
    let decimals = counted_in_a_byte(decimals, precision);
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{decimals}", with_commas(whole))
}

/// Most decimals that a number has.
const MOST_DECIMALS: u64 = 1100;

/// Decimals for a precision that Go keeps in a byte: beyond that, zeros at the end are only written up to its rest.
fn counted_in_a_byte(decimals: &str, precision: u64) -> String {
    let least = usize::try_from(precision % 256).unwrap_or_default();
    if precision < 256 {
        return decimals.to_owned();
    }
    format!("{:0<least$}", decimals.trim_end_matches('0'))
}

fn with_commas(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Writes one digit, six decimals and a power of ten in small digits. The given precision is the width of the text.
fn scientific(number: f64, width: Option<u64>) -> String {
    let width = width.unwrap_or(USUAL_PRECISION);
    if width >= MOST_READ {
        return UNREAD.to_owned();
    }
    let written = not_finite(number).map_or_else(|| power_of_ten(number), str::to_owned);
    // Go keeps the width in two bytes.
    format!("{written:>0$}", usize::try_from(width % 65_536).unwrap_or_default())
}

fn power_of_ten(number: f64) -> String {
    let written = format!("{:.6e}", number.abs());
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (exponent_sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let small: String = format!("{exponent:0>2}").bytes().map(|digit| SMALL[usize::from(digit - b'0') % 10]).collect();
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{digits}×10{exponent_sign}{small}")
}

const SMALL: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
