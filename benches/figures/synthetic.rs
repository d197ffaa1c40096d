//! A made-up host with as much of everything as the targets speak of, or a part of that.

use hostler_linux::testkit::{DflCard, Processors, Tree, XrtCard};

/// How much of a whole host, in quarters.
#[derive(Clone, Copy)]
pub(crate) struct Quarters(pub(crate) u32);

/// FPGA cards of which each is one function, in a whole host.
const DFL_CARDS: u32 = 32;
/// FPGA cards of which each is two functions, in a whole host.
const XRT_CARDS: u32 = 16;

/// 256 CPUs in 8 nodes with 128 GiB each, and 64 FPGA functions; that of it.
pub(crate) fn plug(tree: &Tree, Quarters(quarters): Quarters) {
    Processors { nodes: 2 * quarters, cores: 16, threads: 2, blocks: 64 }.plug(tree);
    (0..DFL_CARDS * quarters / 4).for_each(|number| drop(DflCard::nth(number).plug(tree)));
    (0..XRT_CARDS * quarters / 4).for_each(|number| xrt_card(number).plug(tree));
}

/// One of the cards whose devices come and go.
pub(crate) fn xrt_card(number: u32) -> XrtCard {
    XrtCard { render: 128 + number, ..XrtCard::new(&format!("0002:{number:02x}:00")) }
}
