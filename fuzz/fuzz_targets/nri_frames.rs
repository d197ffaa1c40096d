//! What comes out of the socket of a container runtime: frames, and the messages in them.
#![no_main]

use hostler_proto::nri::{
    mux::{self, Connection, Demultiplexer, FrameError},
    ttrpc::Message,
};
use libfuzzer_sys::fuzz_target;

/// What is understood of bytes that come in pieces of a size, and why no more.
fn messages(bytes: &[u8], size: usize) -> (Vec<(Connection, Message)>, Option<FrameError>) {
    let (mut demultiplexer, mut found) = (Demultiplexer::default(), Vec::new());
    for piece in bytes.chunks(size) {
        demultiplexer.push(piece);
        loop {
            match demultiplexer.next_message() {
                Ok(Some(next)) => found.push(next),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = messages(bytes, bytes.len().max(1));
    assert_eq!(messages(bytes, 3), whole, "pieces make no difference");
    for (connection, message) in whole.0 {
        let frames = mux::encode(connection, &message).expect("what was read can be written");
        assert_eq!(messages(&frames, 4096), (vec![(connection, message)], None));
    }
});
