//! Random expressions, with values of every type: most compile, some fail while they run, and few are of a wrong type.
//!
//! Types are written as words: `int`, `list(T)`, `map(T)` with texts for keys, `optional(T)`. Forms and literals are tables;
//! what stands between backquotes is written by another form. There, `@T` is a new variable, known to all that follows, and `=T`
//! does not know it.

use fastrand::Rng;

mod forms;

use forms::{FORMS, LITERALS};

/// Types that are not made of others.
const TYPES: [&str; 16] = [
    "bool", "int", "uint", "double", "text", "bytes", "null", "type", "quantity", "version", "ip", "cidr", "url",
    "time", "duration", "format",
];

/// An expression, and what it is evaluated with.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) expression: String,
    pub(crate) device: &'static str,
    pub(crate) features: Vec<&'static str>,
}

/// The question of a seed.
pub(crate) fn question(seed: u64) -> Question {
    let mut rng = Rng::with_seed(seed);
    let device = ["gpu", "gpu", "gpu", "lists", "bare"][rng.usize(..5)];
    let mut features = vec!["ConsumableCapacity"];
    if device == "lists" || rng.u32(..100) < 15 {
        features.push("ListTypeAttributes");
    }
    let depth = rng.u32(1..=4);
    let expression = Writer { rng, scope: Vec::new(), names: 0 }.form("bool", depth);
    Question { expression, device, features }
}

/// Writes one expression.
struct Writer {
    rng: Rng,
    /// Variables, with their types.
    scope: Vec<(String, String)>,
    names: u32,
}

impl Writer {
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    fn any_type(&mut self, depth: u32) -> String {
        let inside = if depth > 0 && self.chance(20) { Some(self.any_type(depth - 1)) } else { None };
        match (inside, self.rng.u32(..3)) {
            (Some(inside), 0) => format!("list({inside})"),
            (Some(inside), 1) => format!("map({inside})"),
            (Some(inside), _) => format!("optional({inside})"),
            (None, _) => TYPES[self.rng.usize(..TYPES.len())].to_owned(),
        }
    }

    /// An expression of the type; rarely, of another.
    fn write(&mut self, ty: &str, depth: u32) -> String {
        let known: Vec<&String> = self.scope.iter().filter(|(_, of)| of == ty).map(|(name, _)| name).collect();
        if !known.is_empty() && self.rng.u32(..100) < 40 {
            return known[self.rng.usize(..known.len())].clone();
        }
        if self.rng.u32(..400) == 0 {
            let other = self.any_type(1);
            return self.literal(&other);
        }
        if depth == 0 || self.chance(15) {
            return self.literal(ty);
        }
        self.form(ty, depth)
    }

    /// One of the forms that give the type. Those that give anything are as likely together as all others.
    fn form(&mut self, ty: &str, depth: u32) -> String {
        let fitting = |general: bool| {
            let fits = move |(result, _): &&(&str, &str)| (*result == "T") == general && bound(result, ty).is_some();
            FORMS.iter().filter(fits).collect::<Vec<_>>()
        };
        let special = fitting(false);
        let forms = if special.is_empty() || self.chance(35) { fitting(true) } else { special };
        let (result, form) = forms[self.rng.usize(..forms.len())];
        let inside = match bound(result, ty).unwrap_or_default() {
            "" => self.any_type(1),
            inside => inside.to_owned(),
        };
        self.filled(form, &inside, depth - 1)
    }

    fn literal(&mut self, ty: &str) -> String {
        let fits = |(of, _): &&(&str, &[&'static str])| bound(of, ty).is_some();
        let Some((of, literals)) = LITERALS.iter().find(fits) else { return "null".to_owned() };
        let literal = literals[self.rng.usize(..literals.len())];
        self.filled(literal, bound(of, ty).unwrap_or_default(), 0)
    }

    /// The form with everything written that it leaves open.
    fn filled(&mut self, form: &str, inside: &str, depth: u32) -> String {
        let known = self.scope.len();
        let mut text = String::from("(");
        for (number, part) in form.split('`').enumerate() {
            let ty = part.trim_start_matches(['@', '=']).replace('T', inside);
            match (number % 2, part.chars().next()) {
                (0, _) => text.push_str(part),
                (_, Some('@')) => text.push_str(&self.variable(ty)),
                (_, Some('=')) => {
                    let newest = self.scope.pop();
                    text.push_str(&self.write(&ty, depth));
                    self.scope.extend(newest);
                }
                _ => text.push_str(&self.write(&ty, depth)),
            }
        }
        self.scope.truncate(known);
        if form.contains([' ', '?']) { text + ")" } else { text.split_off(1) }
    }

    fn variable(&mut self, ty: String) -> String {
        self.names += 1;
        let name = format!("v{}", self.names);
        self.scope.push((name.clone(), ty));
        name
    }
}

/// What the `T` of a pattern stands for; nothing where it has none.
fn bound<'t>(pattern: &str, ty: &'t str) -> Option<&'t str> {
    match pattern.split_once('T') {
        None => (pattern == ty).then_some(""),
        Some((before, after)) => ty.strip_prefix(before)?.strip_suffix(after),
    }
}
