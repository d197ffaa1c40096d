//! Reading files that others have put there: configuration, manifests, files that a command line names. Anything can
//! lie under such a name. A FIFO is not waited for, a device not touched, and no file is read further than it may be
//! large.

use std::{
    fs::{File, FileType, Metadata, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::OFlags;

use crate::FileError;

/// Folders in which a process finds its own open files. A shell hands pipes over under these names.
const OWN_DESCRIPTORS: [&str; 2] = ["/dev/fd", "/proc/self/fd"];

/// Room that is made at once for the size that a file announces: a sparse one announces much.
const MOST_ROOM: usize = 1 << 20;

/// Opens a regular file, also through links.
///
/// # Errors
/// When it cannot be opened or is something else. Such a thing is not opened: that could wait for ever, or start
/// something.
pub fn open_file(path: &Path) -> Result<(File, Metadata), FileError> {
    let found = path.metadata().map_err(FileError::at("read", path))?;
    expect_file(&found).and_then(|()| open(path, OFlags::empty())).map_err(FileError::at("read", path))
}

/// Opens a folder, to sync or to lock it.
///
/// # Errors
/// When it cannot be opened or is no folder.
pub fn open_folder(path: &Path) -> Result<File, FileError> {
    with_flags(OFlags::DIRECTORY).open(path).map_err(FileError::at("open", path))
}

/// The content of a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open_file`], and when it is larger or cannot be read.
pub fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let (file, found) = open_file(path)?;
    read_opened(file, &found, most).map_err(FileError::at("read", path))
}

/// Reads a file like [`read_file`], as text.
///
/// # Errors
/// As [`read_file`], and when it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String, FileError> {
    text(read_file(path, most)?).map_err(FileError::at("read", path))
}

/// Reads a file like [`read_text`], for a path on a command line: that may also be a pipe which the shell has opened
/// for this process (`/dev/stdin`, `<(…)`).
///
/// # Errors
/// As [`read_text`].
pub fn read_argument(path: &Path, most: u64) -> Result<String, FileError> {
    let is_own = path == Path::new("/dev/stdin")
        || path.parent().is_some_and(|folder| OWN_DESCRIPTORS.iter().any(|own| folder == Path::new(own)));
    if !is_own {
        return read_text(path, most);
    }
    let read = || read_stream(File::open(path)?, most).and_then(text);
    read().map_err(FileError::at("read", path))
}

/// Bytes of a stream, at most `most`.
///
/// # Errors
/// When more bytes come, or the stream cannot be read.
pub fn read_stream(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    read_into(Vec::new(), from, most)
}

fn read_into(mut bytes: Vec<u8>, from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    // One byte more than allowed: a longer stream is noticed.
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large("more bytes than it may have", most)) } else { Ok(bytes) }
}

/// Opens a regular file, and waits for nothing else.
fn open(path: &Path, flags: OFlags) -> io::Result<(File, Metadata)> {
    opened(path, &with_flags(flags | OFlags::NONBLOCK))
}

pub(crate) fn opened(path: &Path, options: &OpenOptions) -> io::Result<(File, Metadata)> {
    let file = options.open(path)?;
    let found = file.metadata()?;
    expect_file(&found)?;
    Ok((file, found))
}

/// The content of an open file. A file that grows meanwhile is noticed too.
pub(crate) fn read_opened(file: File, found: &Metadata, most: u64) -> io::Result<Vec<u8>> {
    expect_size(found, most)?;
    // With room for all of it and the byte that is not there, two reads are enough.
    let room = usize::try_from(found.len()).unwrap_or_default().saturating_add(1).min(MOST_ROOM);
    read_into(Vec::with_capacity(room), file, most)
}

pub(crate) fn with_flags(flags: OFlags) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
    options
}

/// Refuses anything but a regular file.
///
/// # Errors
/// The kind of the thing instead, and advice.
pub fn expect_file(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let reason = format!("it is a {}; put a regular file in its place", kind_name(kind));
    Err(io::Error::new(ErrorKind::InvalidInput, reason))
}

/// Refuses a file whose announced size is larger than `most`.
///
/// # Errors
/// The size of the file, and advice.
pub fn expect_size(found: &Metadata, most: u64) -> io::Result<()> {
    if found.len() > most { Err(too_large(&format!("{} bytes", found.len()), most)) } else { Ok(()) }
}

fn kind_name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "folder"
    } else if kind.is_fifo() {
        "FIFO"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

fn too_large(has: &str, most: u64) -> io::Error {
    io::Error::new(
        ErrorKind::FileTooLarge,
        format!("it has {has}; {most} are the most; put a smaller one in its place"),
    )
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        fs,
        os::{fd::AsRawFd, unix::fs::symlink, unix::net::UnixListener},
    };

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    fn refusal(path: &Path) -> String {
        let error = read_text(path, 100).unwrap_err();
        assert_eq!(error.path, path);
        error.source().unwrap().to_string()
    }

    #[test]
    fn only_regular_files_are_read_and_no_further_than_they_may_be_large() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        fs::write(path("good"), "content").unwrap();
        symlink("good", path("link")).unwrap();
        assert_eq!(read_text(&path("link"), 7).unwrap(), "content");
        assert!(refusal(&path("absent")).contains("No such file"));

        fs::write(path("binary"), [0xff]).unwrap();
        assert_eq!(refusal(&path("binary")), "it is not UTF-8 text");
        fs::create_dir(path("folder")).unwrap();
        mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        symlink("loop", path("loop")).unwrap();
        for kind in ["folder", "FIFO", "socket", "device"] {
            let refused = refusal(&path(&kind.to_lowercase()));
            assert_eq!(refused, format!("it is a {kind}; put a regular file in its place"));
        }
        assert!(refusal(&path("loop")).contains("symbolic links"));
        File::create(path("sparse")).unwrap().set_len(3 << 30).unwrap();
        let larger = "it has 3221225472 bytes; 100 are the most; put a smaller one in its place";
        assert_eq!(refusal(&path("sparse")), larger);
    }

    #[test]
    fn a_folder_is_opened_and_nothing_else_as_one() {
        let temp = tempfile::tempdir().unwrap();
        assert!(open_folder(temp.path()).is_ok());
        let fifo = temp.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        assert!(open_folder(&fifo).is_err(), "and it is not waited for");
    }

    #[test]
    fn a_pipe_that_is_open_already_is_read_by_its_name() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"content").unwrap();
        drop(writer);
        let name = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_argument(Path::new(&name), 7).unwrap(), "content");
    }

    #[test]
    fn a_stream_without_end_is_read_as_far_as_it_may_be_long() {
        let error = read_stream(io::repeat(b'x'), 1000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_stream(&b"abc"[..], 3).unwrap(), b"abc");
    }
}
