//! A made-up host with as much of everything as the targets speak of, or a part of that.

use hostler_linux::testkit::{
    CpuLayout, CxlCard, CxlHost, FakeDflCard, FakeXrtCard, MachineTree, RegionUse, cxl_function,
};

/// How much of a whole host, in quarters.
#[derive(Clone, Copy)]
pub(crate) struct Quarters(pub(crate) u32);

/// FPGA cards of which each is one function, in a whole host.
const DFL_CARDS: u32 = 32;
/// FPGA cards of which each is two functions, in a whole host.
const XRT_CARDS: u32 = 16;
/// CXL memory devices in a whole host; half of them are regions in use as dax devices.
const CXL_CARDS: u32 = 32;
/// CXL accelerators in a whole host.
const ACCELERATORS: u32 = 32;

/// 256 CPUs in 8 nodes with 128 GiB each, 64 FPGA functions and 64 CXL devices; that of it.
pub(crate) fn plug(tree: &MachineTree, Quarters(quarters): Quarters) {
    let mut cxl = CxlHost::new(tree);
    for number in 0..CXL_CARDS * quarters / 4 {
        let card = cxl.plug(&CxlCard::new(u64::from(number) + 1));
        if number % 2 == 0 {
            cxl.region(&[&card], RegionUse::DevDax(number % (2 * quarters)));
        }
    }
    for number in 0..ACCELERATORS * quarters / 4 {
        cxl_function(&format!("0003:{number:02x}:00.0"), 2, true, 16 << 30).plug(tree);
    }
    CpuLayout { nodes: 2 * quarters, cores: 16, threads: 2, blocks: 64 }.plug(tree);
    (0..DFL_CARDS * quarters / 4).for_each(|number| drop(FakeDflCard::nth(number).plug(tree)));
    (0..XRT_CARDS * quarters / 4).for_each(|number| xrt_card(number).plug(tree));
}

/// One of the cards whose devices come and go.
pub(crate) fn xrt_card(number: u32) -> FakeXrtCard {
    FakeXrtCard { render: 128 + number, ..FakeXrtCard::new(&format!("0002:{number:02x}:00")) }
}
