//! What is read from `/proc/zoneinfo`.

use proptest::prelude::*;

use super::{GIB, MIB};
use crate::ZoneInfo;

/// Two nodes as a current kernel shows them, cut short. 1,433,600 pages of 4 KiB are managed on node 0.
const TEXT: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 2733
  pages free     2816
        boost    0
        min      44
        low      55
        high     66
        spanned  4095
        present  3998
        managed  3840
        cma      0
        protection: (0, 3019, 5707, 5707, 5707)
Node 0, zone   Normal
  pages free     513880
        boost    1000
        min      8936
        low      9920
        high     11904
        managed  1429760
      nr_free_pages 513880
  pagesets
    cpu: 0
              count:    1
              high:     2
              batch:    63
Node 1, zone  Movable
  pages free     0
        min      32
        managed  0
";

const NODE_0: u64 = 1_433_600 * 4096;

#[test]
fn minimum_watermarks_are_kept_without_boosts() {
    let zones = ZoneInfo::parse(TEXT);
    assert_eq!(zones.kernel_bytes(0, NODE_0), (44 + 7936) * 4096);
    assert_eq!(zones.kernel_bytes(1, GIB), 0);
    assert_eq!(zones.kernel_bytes(7, GIB), 0);
}

#[test]
fn the_page_size_follows_from_pages_and_bytes() {
    let zones = ZoneInfo::parse(TEXT);
    assert_eq!(zones.page_bytes(0, NODE_0), Some(4096));
    // Memory came online between the two reads.
    assert_eq!(zones.page_bytes(0, NODE_0 + 128 * MIB), Some(4096));
    assert_eq!(zones.page_bytes(0, NODE_0 * 16), Some(65_536));
    assert_eq!(zones.page_bytes(0, NODE_0 / 3), None);
    assert_eq!(zones.page_bytes(1, GIB), None);
}

#[test]
fn nothing_is_known_without_the_file() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(ZoneInfo::read(&hostler_linux::SysRoot::new(root.path())).unwrap(), ZoneInfo::default());
}

proptest! {
    #[test]
    fn no_text_panics_and_no_more_is_kept_than_there_is(
        lines in prop::collection::vec("(Node [0-2],? zone|  (min|managed|boost|pages)) +[0-9]{0,20}", 0..20),
        bytes: u64,
    ) {
        let zones = ZoneInfo::parse(&lines.join("\n"));
        for node in 0..3 {
            prop_assert!(zones.kernel_bytes(node, bytes) <= bytes);
            let _ = zones.page_bytes(node, bytes);
        }
    }
}
