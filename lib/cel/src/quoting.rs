//! Texts in quotes, as Go writes them.

/// Writes a text in double quotes, with escapes for characters that cannot be seen.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        push(&mut out, character);
    }
    out.push('"');
    out
}

fn push(out: &mut String, character: char) {
    let code = u32::from(character);
    match character {
        '"' | '\\' => out.extend(['\\', character]),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        character if is_printable(character) => out.push(character),
        _ if code < 0x80 => out.push_str(&format!("\\x{code:02x}")),
        _ if code < 0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
        _ => out.push_str(&format!("\\U{code:08x}")),
    }
}

/// True for letters, marks, numbers, signs and the plain space: characters that the standard library shows as they
/// are, too. Behind a letter, it shows marks that combine with it.
fn is_printable(character: char) -> bool {
    let shown = format!("{:?}", ['a', character].iter().collect::<String>());
    character == '\'' || !shown.contains('\\')
}
