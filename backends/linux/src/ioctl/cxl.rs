//! The mailbox of CXL memory devices, `/dev/cxl/memN`: asks a card how it is.

use std::{fmt, fs::File, io, mem::size_of, os::fd::AsRawFd, path::Path};

use nix::{errno::Errno, fcntl::OFlag, libc, request_code_read, request_code_readwrite, sys::ioctl::ioctl_num_type};

use crate::SysRoot;

const MAGIC: u8 = 0xCE;
const QUERY_COMMANDS: ioctl_num_type = request_code_read!(MAGIC, 1, size_of::<QueryHeader>());
const SEND_COMMAND: ioctl_num_type = request_code_readwrite!(MAGIC, 2, size_of::<SendCommand>());

/// The kernel's number for "get health info".
const GET_HEALTH_INFO: u32 = 7;
/// Flag of a command that the card knows and user space may send.
const ENABLED: u32 = 1;
/// Flag of a command that the kernel keeps to itself for now.
const EXCLUSIVE: u32 = 2;
/// Limit on commands: more than any kernel knows. A device that says so is no CXL device.
const MOST_COMMANDS: u32 = 1024;

/// Bytes of the answer to "get health info".
pub const HEALTH_BYTES: usize = 18;

/// Asks memory devices.
pub trait Mailbox: Send + Sync + fmt::Debug {
    /// Asks the card `memdev` (the kernel's name of this moment, `mem0`) for its health, and returns the answer as it
    /// is.
    ///
    /// # Errors
    /// `NotFound` where there is no node; `Unsupported` where the card does not know the command; `EBUSY` while the
    /// kernel keeps it to itself; else the kernel's error, or the card's own return code.
    fn health(&self, memdev: &str) -> io::Result<[u8; HEALTH_BYTES]>;
}

/// [`Mailbox`] by the kernel under a root.
#[derive(Clone, Debug)]
pub struct KernelMailbox {
    root: SysRoot,
}

impl KernelMailbox {
    /// The device nodes below `root`.
    pub fn new(root: SysRoot) -> Self {
        Self { root }
    }
}

impl Mailbox for KernelMailbox {
    fn health(&self, memdev: &str) -> io::Result<[u8; HEALTH_BYTES]> {
        let file = self.root.device(Path::new("dev/cxl").join(memdev), OFlag::empty())?;
        usable(&commands(&file)?, GET_HEALTH_INFO)?;
        let mut answer = [0; HEALTH_BYTES];
        let mut command = SendCommand::new(GET_HEALTH_INFO, &mut answer);
        // SAFETY: `file` is open. The kernel reads and writes `command`, of the size that the request says, and writes
        // at most `output.size` bytes at `output.payload`, which is `answer`; both live until the call returns.
        #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
        let result = unsafe { libc::ioctl(file.as_raw_fd(), SEND_COMMAND, &raw mut command) };
        Errno::result(result)?;
        command.check(HEALTH_BYTES)?;
        Ok(answer)
    }
}

/// Checks that a command can be sent.
fn usable(commands: &[CommandInfo], id: u32) -> io::Result<()> {
    match commands.iter().find(|command| command.id == id) {
        Some(command) if command.flags & EXCLUSIVE != 0 => Err(Errno::EBUSY.into()),
        Some(command) if command.flags & ENABLED != 0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "the card does not know the command")),
    }
}

/// The commands of a card.
fn commands(file: &File) -> io::Result<Vec<CommandInfo>> {
    let mut header = QueryHeader::default();
    // SAFETY: `file` is open. With `n_commands` zero the kernel writes the number of commands there and nothing else.
    #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), QUERY_COMMANDS, &raw mut header) };
    Errno::result(result)?;
    let count = header.n_commands.min(MOST_COMMANDS);
    // The header and the commands lie behind each other: a header is as large as half a command.
    let mut query = vec![QueryHeader::default(); 1 + 2 * count as usize];
    query[0].n_commands = count;
    // SAFETY: `file` is open. The kernel writes the header and at most `n_commands` commands of 16 bytes behind it,
    // which is what `query` holds, and it lives until the call returns.
    #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), QUERY_COMMANDS, query.as_mut_ptr()) };
    Errno::result(result)?;
    Ok(query[1..]
        .chunks_exact(2)
        .map(|halves| CommandInfo { id: halves[0].n_commands, flags: halves[0].rsvd })
        .collect())
}

/// `struct cxl_mem_query_commands` of `linux/cxl_mem.h`, without the commands.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct QueryHeader {
    n_commands: u32,
    rsvd: u32,
}

/// The first half of `struct cxl_command_info`; the other half is the sizes of input and output.
#[derive(Clone, Copy, Debug)]
struct CommandInfo {
    id: u32,
    flags: u32,
}

/// `struct cxl_send_command`.
#[derive(Debug)]
#[repr(C)]
struct SendCommand {
    id: u32,
    flags: u32,
    raw: u32,
    retval: u32,
    input: CommandPayload,
    output: CommandPayload,
}

/// Input or output of a command.
#[derive(Debug, Default)]
#[repr(C)]
struct CommandPayload {
    size: u32,
    rsvd: u32,
    payload: u64,
}

impl SendCommand {
    /// A command without input that is answered into `answer`.
    fn new(id: u32, answer: &mut [u8; HEALTH_BYTES]) -> Self {
        let output = CommandPayload {
            // 18.
            size: HEALTH_BYTES as u32,
            rsvd: 0,
            payload: answer.as_mut_ptr() as u64,
        };
        Self { id, flags: 0, raw: 0, retval: 0, input: CommandPayload::default(), output }
    }

    /// Checks the card's answer: the kernel is content when it could ask.
    fn check(&self, expected: usize) -> io::Result<()> {
        if self.retval != 0 {
            return Err(io::Error::other(format!("the card answers with return code {:#x}", self.retval)));
        }
        if self.output.size as usize != expected {
            let message = format!("the card answers with {} bytes instead of {expected}", self.output.size);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::testkit::MachineTree;

    #[test]
    fn numbers_and_layouts_are_those_of_the_kernel() {
        assert_eq!([QUERY_COMMANDS, SEND_COMMAND], [0x8008_CE01, 0xC030_CE02]);
        assert_eq!([size_of::<QueryHeader>(), size_of::<SendCommand>(), size_of::<CommandPayload>()], [8, 48, 16]);
        let offsets = [
            offset_of!(SendCommand, id),
            offset_of!(SendCommand, flags),
            offset_of!(SendCommand, raw),
            offset_of!(SendCommand, retval),
            offset_of!(SendCommand, input),
            offset_of!(SendCommand, output),
        ];
        assert_eq!(offsets, [0, 4, 8, 12, 16, 32]);
        assert_eq!([offset_of!(CommandPayload, size), offset_of!(CommandPayload, payload)], [0, 8]);
    }

    #[test]
    fn a_command_is_sent_only_where_the_card_knows_it_and_the_kernel_lets_it_be() {
        let with =
            |flags| usable(&[CommandInfo { id: 1, flags: ENABLED }, CommandInfo { id: 7, flags }], GET_HEALTH_INFO);
        assert!(with(ENABLED).is_ok());
        assert_eq!(with(0).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(with(ENABLED | EXCLUSIVE).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(usable(&[], GET_HEALTH_INFO).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn an_answer_counts_when_card_and_size_say_so() {
        let mut answer = [0; HEALTH_BYTES];
        let mut command = SendCommand::new(GET_HEALTH_INFO, &mut answer);
        assert!(command.check(HEALTH_BYTES).is_ok());
        command.output.size = 4;
        assert_eq!(command.check(HEALTH_BYTES).unwrap_err().kind(), io::ErrorKind::InvalidData);
        command.retval = 0x15;
        assert!(command.check(HEALTH_BYTES).unwrap_err().to_string().contains("0x15"));
    }

    #[test]
    fn nodes_are_looked_for_below_the_root_and_what_is_no_device_refuses() {
        let tree = MachineTree::new();
        let mailbox = KernelMailbox::new(tree.root());
        assert_eq!(mailbox.health("mem0").unwrap_err().kind(), io::ErrorKind::NotFound);
        tree.file("dev/cxl/mem0", "");
        assert_eq!(mailbox.health("mem0").unwrap_err().raw_os_error(), Some(Errno::ENOTTY as i32));
    }
}
