//! Fields of a call in HTTP/2's encoding (RFC 7541), decoded just as far as it takes to find one and replace its text.

/// Index of `:authority` in the static table.
const AUTHORITY_INDEX: usize = 1;
const AUTHORITY: &[u8] = b":authority";

/// Number of Huffman codes of each length in bits, from 0 on. Codes of one length are consecutive, and so are the
/// lengths, so these numbers are enough to tell where a code ends.
const CODES: [u32; 31] =
    [0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 4];

/// Returns the block with a host for its authority; `None` if it has no authority, or cannot be decoded.
pub(super) fn mended_block(block: &[u8]) -> Option<Vec<u8>> {
    let mut fields = PackedFields { block, at: 0 };
    let (mut mended, mut copied) = (Vec::new(), 0);
    while let Some(&first) = block.get(fields.at) {
        let Some(prefix) = name_prefix(first) else {
            // The field has no text of its own: it is in a table, or sets the table's size.
            fields.number(if first & 0x80 == 0 { 5 } else { 7 })?;
            continue;
        };
        let is_authority = match fields.number(prefix)? {
            0 => fields.text()?.bytes == AUTHORITY,
            index => index == AUTHORITY_INDEX,
        };
        let begin = fields.at;
        let value = fields.text()?;
        if is_authority {
            mended.extend_from_slice(&block[copied..begin]);
            push_host(&mut mended, value.length());
            copied = fields.at;
        }
    }
    (copied > 0).then(|| [&mended[..], &block[copied..]].concat())
}

/// Number of bits for the index of the name, in the first byte of a field whose value is written out.
fn name_prefix(first: u8) -> Option<u32> {
    match first {
        0x40..0x80 => Some(6),
        0x00..0x20 => Some(4),
        _ => None,
    }
}

/// Adds a text that can be a host, of `length` bytes, without Huffman coding.
fn push_host(block: &mut Vec<u8>, length: usize) {
    push_number(block, length);
    block.resize(block.len() + length, b'x');
}

/// Adds a number with a prefix of seven bits, behind a bit that is 0.
fn push_number(block: &mut Vec<u8>, number: usize) {
    let Some(mut rest) = number.checked_sub(0x7f) else {
        block.push(low_bits(number));
        return;
    };
    block.push(0x7f);
    while rest > 0x7f {
        block.push(low_bits(rest) | 0x80);
        rest >>= 7;
    }
    block.push(low_bits(rest));
}

fn low_bits(number: usize) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or_default()
}

/// A text in its encoding.
struct PackedText<'b> {
    /// True if the text is Huffman-coded.
    is_coded: bool,
    bytes: &'b [u8],
}

impl PackedText<'_> {
    /// Length of the text when it is decoded.
    fn length(&self) -> usize {
        if self.is_coded { coded_letters(self.bytes) } else { self.bytes.len() }
    }
}

/// Number of codes. The bits behind the last code fill up a byte.
fn coded_letters(bytes: &[u8]) -> usize {
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| u32::from(byte >> bit) & 1));
    let (mut letters, mut length, mut first, mut code) = (0, 0, 0, 0);
    for bit in bits {
        length += 1;
        code |= bit;
        let codes = CODES.get(length).copied().unwrap_or_default();
        if code < first + codes {
            letters += 1;
            (length, first, code) = (0, 0, 0);
        } else {
            (first, code) = ((first + codes) << 1, code << 1);
        }
    }
    letters
}

struct PackedFields<'b> {
    block: &'b [u8],
    at: usize,
}

impl<'b> PackedFields<'b> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.block.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Reads a number that begins in the lower `prefix` bits of a byte.
    fn number(&mut self, prefix: u32) -> Option<usize> {
        let most = (1 << prefix) - 1;
        let mut number = usize::from(self.byte()?) & most;
        if number < most {
            return Some(number);
        }
        // Three more bytes suffice for every length in a frame.
        for shift in [0, 7, 14] {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<PackedText<'b>> {
        let is_coded = self.block.get(self.at)? & 0x80 != 0;
        let length = self.number(7)?;
        let bytes = self.block.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(PackedText { is_coded, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7541, appendix C.
    #[test]
    fn letters_are_counted_without_being_read() {
        for (text, packed) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
            (
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ),
        ] {
            let packed: Vec<u8> = (0..packed.len()).step_by(2).map(|at| from_hex(&packed[at..at + 2])).collect();
            assert_eq!(coded_letters(&packed), text.len(), "{text}");
        }
    }

    fn from_hex(digits: &str) -> u8 {
        u8::from_str_radix(digits, 16).unwrap()
    }

    #[test]
    fn a_coded_path_becomes_a_plain_host() {
        // "/a/e/o" with 6 + 5 + 6 + 5 + 6 + 5 bits, and seven of filling.
        let block = [0x83, 0x41, 0x85, 0b0110_0000, 0b0110_1100, 0b0001_0101, 0b1000_0011, 0b1111_1111, 0x86];
        assert_eq!(mended_block(&block).unwrap(), [&[0x83, 0x41, 6][..], b"xxxxxx", &[0x86]].concat());
    }

    #[test]
    fn a_field_is_found_behind_every_kind_of_field() {
        let path = [&[0x01, 200 & 0x7f][..], &[b'/'; 72]].concat();
        let before = [
            // In a table; a new size of the table; a name of its own; names from the table, kept and not.
            &[0x83, 0xff, 0x01, 0x3f, 0xe1, 0x1f, 0x00, 1, b'a', 1, b'/', 0x44, 1, b'/', 0x04, 1, b'/'][..],
            &[0x10, 10],
            AUTHORITY,
            &[1, b'/'],
        ];
        let block = [&before.concat()[..], &path].concat();
        let mended = mended_block(&block).unwrap();
        let at = before[0].len() + before[1].len() + before[2].len();
        assert_eq!(mended[..at], block[..at]);
        assert_eq!(mended[at..], [&[1, b'x', 0x01, 72][..], &[b'x'; 72]].concat());
    }

    #[test]
    fn a_long_path_keeps_its_length() {
        let long = [&[0x41, 0x7f, 0x80, 0x02][..], &[b'/'; 383]].concat();
        assert_eq!(mended_block(&long).unwrap(), [&[0x41, 0x7f, 0x80, 0x02][..], &[b'x'; 383]].concat());
    }
}
