//! Texts that `format` fills in: the text between the places, and the clause of each place.

/// A part of such a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece<'t> {
    Text(&'t str),
    Clause(Clause),
}

/// A place, with the notation of its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Clause {
    pub(super) verb: Verb,
    pub(super) precision: Option<u64>,
}

/// Notation of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    Text,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Hexadecimal,
    UpperHexadecimal,
    Octal,
}

/// The parts of a text.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once('%') {
        pieces.push(Piece::Text(before));
        rest = match behind.strip_prefix('%') {
            Some(behind) => {
                pieces.push(Piece::Text("%"));
                behind
            }
            None => {
                let (clause, behind) = clause(behind)?;
                pieces.push(Piece::Clause(clause));
                behind
            }
        };
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

fn clause(text: &str) -> Result<(Clause, &str), String> {
    let (precision, rest) = match text.strip_prefix('.') {
        Some(behind) => {
            let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            let digits = behind[..end].parse::<i64>().ok().and_then(|number| u64::try_from(number).ok());
            (Some(digits.ok_or("a precision is no number")?), &behind[end..])
        }
        None => (None, text),
    };
    let letter = rest.chars().next().ok_or("the text ends within a clause")?;
    let verb = match letter {
        's' => Verb::Text,
        'd' => Verb::Decimal,
        'f' => Verb::Fixed,
        'e' => Verb::Scientific,
        'b' => Verb::Binary,
        'x' => Verb::Hexadecimal,
        'X' => Verb::UpperHexadecimal,
        'o' => Verb::Octal,
        other => return Err(format!("there is no clause %{other}")),
    };
    Ok((Clause { verb, precision }, &rest[1..]))
}

/// Number of places that take values.
pub(super) fn count(pieces: &[Piece<'_>]) -> usize {
    pieces.iter().filter(|piece| matches!(piece, Piece::Clause(_))).count()
}
