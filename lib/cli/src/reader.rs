//! The reader of standard output: a terminal or the other end of a pipe.

use std::{io, os::fd::AsFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// True if the terminal of standard output has gone away, or the reader of its pipe has. A command that shows
/// changes would else notice with the next one only, which may never come.
pub fn is_output_gone() -> bool {
    is_gone(io::stdout().as_fd())
}

fn is_gone(output: impl AsFd) -> bool {
    let mut polled = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    poll(&mut polled, PollTimeout::ZERO).is_ok() && polled[0].revents().is_some_and(|now| now.intersects(gone))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::pipe};

    use super::*;

    #[test]
    fn a_pipe_without_a_reader_is_gone_and_a_file_never_is() {
        let (reader, writer) = pipe().unwrap();
        assert!(!is_gone(&writer) && !is_gone(File::open("/dev/null").unwrap()));
        drop(reader);
        assert!(is_gone(&writer));
    }
}
