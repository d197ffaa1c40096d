//! Joins of made-up and captured cards.

use super::*;

#[test]
fn an_interface_is_32_hex_digits_and_not_zeros() {
    let id = "ce3139c959cf528ca27751c50829797a";
    assert_eq!(read_id("CE3139C9-59cf-528c-a277-51c50829797a\n").as_deref(), Some(id));
    for text in ["", "0", "x", &"0".repeat(32), &"\0".repeat(512), &id[1..], &format!("{id}0")] {
        assert_eq!(read_id(text), None, "{text:?}");
    }
}
