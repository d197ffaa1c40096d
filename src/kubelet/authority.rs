//! Makes the `:authority` of calls valid, so that clients of every gRPC library are served.
//!
//! A client names the socket in `:authority` as its library does: Go's sends `%2Frun%2Fhostler%2F…` and before 1.57
//! (kubelets of 1.26 to 1.28) `/run/hostler/…`, that of C and Python `run%2Fhostler%2F…`. None of these is a host, and
//! the HTTP stack refuses such a call before any of hostler's code sees it. So the stack reads another text in its
//! place, whatever was sent: no code needs to know how a client names a socket that it has found already. All other
//! bytes are passed on as they are.
//!
//! The other text has the same length. Both sides of a connection keep the latest fields and forget the oldest ones
//! when their lengths together exceed the table's size: both must go on counting alike.

mod header_block;

use header_block::mended_block;

/// Bytes of a frame's header.
const HEAD: usize = 9;
/// The largest frame that a client may send unasked.
const LARGEST: usize = 16 << 10;
/// Bytes of the connection preface, which a client sends before its first frame.
const PREFACE: usize = 24;

const HEADERS: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
/// Bytes of a priority: a stream and a weight.
const PRIORITY_BYTES: usize = 5;

/// Rewriter of a connection's bytes. Pure.
#[derive(Debug)]
pub(super) struct AuthorityMender {
    /// Number of bytes that pass unchanged: of the preface, or of a frame that is no call.
    passing: usize,
    /// A frame whose end has not come yet.
    held: Vec<u8>,
}

impl Default for AuthorityMender {
    fn default() -> Self {
        Self { passing: PREFACE, held: Vec::new() }
    }
}

impl AuthorityMender {
    /// Takes in bytes that have come, and adds to `mended` those that can go on.
    pub(super) fn take_in(&mut self, mut bytes: &[u8], mended: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let is_passing = self.passing > 0;
            let room = if is_passing { self.passing } else { self.wanted() - self.held.len() };
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            bytes = rest;
            if is_passing {
                mended.extend_from_slice(now);
                self.passing -= now.len();
            } else {
                self.held.extend_from_slice(now);
                self.let_go(mended);
            }
        }
    }

    /// Number of bytes of the frame that must be held before it can go on.
    fn wanted(&self) -> usize {
        if is_call(&self.held) { HEAD + carried(&self.held) } else { HEAD }
    }

    fn let_go(&mut self, mended: &mut Vec<u8>) {
        if self.held.len() < self.wanted() {
            return;
        }
        if is_call(&self.held) {
            mended.extend(mended_frame(&self.held));
        } else {
            mended.extend_from_slice(&self.held);
            self.passing = carried(&self.held);
        }
        self.held.clear();
    }
}

/// Length of a frame's payload.
fn carried(frame: &[u8]) -> usize {
    frame.first_chunk().map_or(0, |&[l0, l1, l2]| u32::from_be_bytes([0, l0, l1, l2]) as usize)
}

/// True if the frame holds all fields of a call. Fields in more than one frame are passed on: no library sends so many.
fn is_call(frame: &[u8]) -> bool {
    let &[_, _, _, kind, flags, ..] = frame else { return false };
    frame.len() >= HEAD && kind == HEADERS && flags & END_HEADERS != 0 && carried(frame) <= LARGEST
}

fn mended_frame(frame: &[u8]) -> Vec<u8> {
    let (head, payload) = frame.split_at(HEAD);
    let Some(payload) = mended_payload(head[4], payload).filter(|payload| payload.len() <= LARGEST) else {
        return frame.to_owned();
    };
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[1..], &head[3..], &payload].concat()
}

/// Rewrites a payload: its fields stand between a priority and a padding, if the frame has these.
fn mended_payload(flags: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let is_padded = flags & PADDED != 0;
    let padding = if is_padded { usize::from(*payload.first()?) } else { 0 };
    let begin = usize::from(is_padded) + if flags & PRIORITY == 0 { 0 } else { PRIORITY_BYTES };
    let end = payload.len().checked_sub(padding)?;
    let block = mended_block(payload.get(begin..end)?)?;
    Some([&payload[..begin], &block, &payload[end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// `:method: POST`, then an `:authority` to be kept in the table, then `:scheme: http`.
    fn fields(authority: &str) -> Vec<u8> {
        [&[0x83, 0x41, u8::try_from(authority.len()).unwrap()], authority.as_bytes(), &[0x86]].concat()
    }

    fn mended(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut mender, mut mended) = (AuthorityMender::default(), Vec::new());
        pieces.iter().for_each(|piece| mender.take_in(piece, &mut mended));
        mended
    }

    #[test]
    fn an_authority_becomes_a_host_of_the_same_length_wherever_the_stream_is_cut() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let around = |authority: &str| {
            let data = frame(0, 1, b"\x41\x04/not");
            [&preface[..], &frame(4, 0, &[]), &frame(HEADERS, END_HEADERS, &fields(authority)), &data].concat()
        };
        let (sent, expected) = (around("/run/dra@a.sock"), around("xxxxxxxxxxxxxxx"));
        for cut in 0..=sent.len() {
            let (one, other) = sent.split_at(cut);
            assert_eq!(mended(&[one, other]), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = sent.chunks(1).collect();
        assert_eq!(mended(&bytes), expected);
    }

    #[test]
    fn whatever_a_library_calls_the_socket_becomes_a_host() {
        for authority in ["%2Frun%2Fa.sock", "run%2Fa.sock", "/run/a.sock", "unix:/run/a.sock", "localhost", "a b"] {
            let sent = [&[0; PREFACE][..], &frame(HEADERS, END_HEADERS, &fields(authority))].concat();
            let expected = fields(&"x".repeat(authority.len()));
            assert_eq!(mended(&[&sent])[PREFACE + HEAD..], expected, "{authority}");
        }
    }

    #[test]
    fn padding_and_priority_stay_around_the_fields() {
        let flags = END_HEADERS | PADDED | PRIORITY;
        let around = |authority: &str| {
            let payload = [&[2, 0, 0, 0, 0, 16][..], &fields(authority), &[0, 0]].concat();
            [&[0; PREFACE][..], &frame(HEADERS, flags, &payload)].concat()
        };
        assert_eq!(mended(&[&around("/run/a.sock")]), around("xxxxxxxxxxx"));
    }

    #[test]
    fn whatever_else_comes_is_passed_on_as_it_is() {
        let preface = [0; PREFACE];
        let path = fields("/run/a.sock");
        for (what, frame) in [
            ("half a call", frame(HEADERS, 0, &path)),
            ("more padding than there is", frame(HEADERS, END_HEADERS | PADDED, &[&[200][..], &path].concat())),
            ("half a priority", frame(HEADERS, END_HEADERS | PRIORITY, &[0; 3])),
            ("data", frame(0, END_HEADERS, &path)),
            ("nothing", frame(HEADERS, END_HEADERS, &[])),
            ("nonsense", frame(HEADERS, END_HEADERS, &[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])),
            ("a text that is cut off", frame(HEADERS, END_HEADERS, &[0x41, 0x05, b'/'])),
        ] {
            let sent = [&preface[..], &frame].concat();
            assert_eq!(mended(&[&sent]), sent, "{what}");
        }
    }
}
