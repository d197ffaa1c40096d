//! The nodes of FPGAs with a device feature list: `/dev/dfl-fme.N` manages a card, `/dev/dfl-port.N` leads to one
//! accelerator function.

use std::{fmt, fs::File, io, mem::size_of, os::fd::AsRawFd};

use nix::{errno::Errno, fcntl::OFlag, libc, request_code_none, sys::ioctl::ioctl_num_type};

use crate::SysRoot;

const MAGIC: u8 = 0xB6;
const GET_API_VERSION: ioctl_num_type = request_code_none!(MAGIC, 0x00);
const PORT_RESET: ioctl_num_type = request_code_none!(MAGIC, 0x40);
const FME_PORT_PR: ioctl_num_type = request_code_none!(MAGIC, 0x80);

/// The only version of this interface that there is; it would change with the layout of [`PortPr`].
const API_VERSION: i32 = 0;

/// Operations on ports and regions. Numbers of nodes are the kernel's, of this moment.
pub trait Dfl: Send + Sync + fmt::Debug {
    /// Takes a port for the caller: as long as the answer lives, no other program can open `/dev/dfl-port.<port>`. The
    /// kernel resets the accelerator function when the port is let go of.
    ///
    /// # Errors
    /// `EBUSY` when a program has the port open; `ENOENT` when there is none; else the kernel's error.
    fn take(&self, port: u32) -> io::Result<Box<dyn TakenPort>>;

    /// Makes sure that no program has `/dev/dfl-fme.<fme>` open, through which it could program regions.
    ///
    /// # Errors
    /// `EBUSY` when a program has it open; `ENOENT` when there is none; else the kernel's error.
    fn expect_unused(&self, fme: u32) -> io::Result<()>;

    /// Loads `image` into the region behind port `port_id` (its own number on the card) of `/dev/dfl-fme.<fme>`. The
    /// kernel does not look whether the port is in use: [take](Self::take) it first.
    ///
    /// # Errors
    /// `EINVAL` when the card has no such port; `EIO` when the hardware did not take the image: the attribute `status`
    /// of the card's FPGA manager says why; else the kernel's error.
    fn program(&self, fme: u32, port_id: u32, image: &[u8]) -> io::Result<()>;
}

/// A port that no other program can open.
pub trait TakenPort: fmt::Debug {
    /// Resets the accelerator function: requests in flight end, its state is lost.
    ///
    /// # Errors
    /// The kernel's error; `ETIMEDOUT` when the function does not come to rest.
    fn reset(&self) -> io::Result<()>;
}

/// [`Dfl`] by the kernel under a root.
#[derive(Clone, Debug)]
pub struct KernelDfl {
    root: SysRoot,
}

impl KernelDfl {
    /// The device nodes below `root`.
    pub fn new(root: SysRoot) -> Self {
        Self { root }
    }

    fn open(&self, node: String, flags: OFlag) -> io::Result<File> {
        self.root.device(node, flags)
    }
}

impl Dfl for KernelDfl {
    fn take(&self, port: u32) -> io::Result<Box<dyn TakenPort>> {
        Ok(Box::new(OpenDflPort(self.open(format!("dev/dfl-port.{port}"), OFlag::O_EXCL)?)))
    }

    fn expect_unused(&self, fme: u32) -> io::Result<()> {
        self.open(format!("dev/dfl-fme.{fme}"), OFlag::O_EXCL).map(drop)
    }

    fn program(&self, fme: u32, port_id: u32, image: &[u8]) -> io::Result<()> {
        let fme = self.open(format!("dev/dfl-fme.{fme}"), OFlag::empty())?;
        let version = without_argument(&fme, GET_API_VERSION)?;
        if version != API_VERSION {
            let message = format!("the kernel speaks version {version} of the DFL interface, not {API_VERSION}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let request = PortPr::new(port_id, image)?;
        // SAFETY: `fme` is open. The kernel reads `request`, of the size that `argsz` says, and `buffer_size` bytes at
        // `buffer_address`; both live until the call returns, and it writes to neither.
        #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
        let answer = unsafe { libc::ioctl(fme.as_raw_fd(), FME_PORT_PR, &raw const request) };
        Ok(Errno::result(answer).map(drop)?)
    }
}

#[derive(Debug)]
struct OpenDflPort(File);

impl TakenPort for OpenDflPort {
    fn reset(&self) -> io::Result<()> {
        without_argument(&self.0, PORT_RESET).map(drop)
    }
}

/// `struct dfl_fpga_fme_port_pr` of `linux/fpga-dfl.h`.
#[derive(Debug)]
#[repr(C)]
struct PortPr {
    argsz: u32,
    flags: u32,
    port_id: u32,
    buffer_size: u32,
    buffer_address: u64,
}

impl PortPr {
    fn new(port_id: u32, image: &[u8]) -> io::Result<Self> {
        let too_large = |_| io::Error::new(io::ErrorKind::FileTooLarge, "an image has at most 4 GiB");
        Ok(Self {
            // 24, checked by a test.
            argsz: size_of::<Self>() as u32,
            flags: 0,
            port_id,
            buffer_size: u32::try_from(image.len()).map_err(too_large)?,
            buffer_address: image.as_ptr() as u64,
        })
    }
}

/// Sends a request whose argument has to be zero.
fn without_argument(file: &File, request: ioctl_num_type) -> io::Result<i32> {
    // As wide as the kernel's argument: the upper half of a shorter number would be left to chance.
    const ZERO: libc::c_ulong = 0;
    // SAFETY: `file` is open, and the kernel neither reads nor writes memory of ours for these requests.
    #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request, ZERO) };
    Ok(Errno::result(answer)?)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::testkit::MachineTree;

    #[test]
    fn numbers_and_layouts_are_those_of_the_kernel() {
        assert_eq!([GET_API_VERSION, PORT_RESET, FME_PORT_PR], [0xB600, 0xB640, 0xB680]);
        assert_eq!(size_of::<PortPr>(), 24);
        let offsets = [
            offset_of!(PortPr, argsz),
            offset_of!(PortPr, flags),
            offset_of!(PortPr, port_id),
            offset_of!(PortPr, buffer_size),
            offset_of!(PortPr, buffer_address),
        ];
        assert_eq!(offsets, [0, 4, 8, 12, 16]);
    }

    #[test]
    fn a_request_describes_the_image() {
        let request = PortPr::new(3, &[1, 2, 3, 4, 5]).unwrap();
        assert_eq!((request.argsz, request.flags, request.port_id, request.buffer_size), (24, 0, 3, 5));
    }

    #[test]
    fn nodes_are_looked_for_below_the_root_and_what_is_no_device_refuses() {
        let tree = MachineTree::new();
        let dfl = KernelDfl::new(tree.root());
        assert_eq!(dfl.take(0).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(dfl.expect_unused(0).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(dfl.program(0, 0, &[]).unwrap_err().kind(), io::ErrorKind::NotFound);
        tree.file("dev/dfl-port.0", "").file("dev/dfl-fme.0", "");
        dfl.expect_unused(0).unwrap();
        let not_a_device = Some(Errno::ENOTTY as i32);
        assert_eq!(dfl.take(0).unwrap().reset().unwrap_err().raw_os_error(), not_a_device);
        assert_eq!(dfl.program(0, 0, &[]).unwrap_err().raw_os_error(), not_a_device);
    }
}
