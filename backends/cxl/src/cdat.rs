//! The table that a card describes its memory with (CDAT), as far as it is needed: the parts, and which of them are
//! of dynamic capacity, that others give to the host and take from it at run time. Pure.

/// Length, revision, checksum, reserved bytes, sequence number.
const HEADER: usize = 16;
/// Type, reserved byte, length.
const RECORD_HEADER: usize = 4;
/// "Device scoped memory affinity structure": a part of the device's memory.
const DSMAS: u8 = 0;
/// Bytes of such a record.
const DSMAS_BYTES: usize = 24;
/// Flag of memory that is given and taken at run time.
const DYNAMIC: u8 = 0x20;

/// A part of a device's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DsmasRange {
    /// Start of the part in the device's own addresses.
    pub base: u64,
    /// Bytes.
    pub bytes: u64,
    /// True if the memory is given and taken at run time.
    pub dynamic: bool,
}

/// Reason why a table cannot be read.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
pub enum CdatError {
    /// The table is shorter than it says.
    #[error("the table says {said} bytes, and there are {there}")]
    Length {
        /// Length that the table states.
        said: usize,
        /// Length of the bytes.
        there: usize,
    },
    /// The table is damaged.
    #[error("the bytes of the table add up to {0:#04x} instead of 0")]
    Checksum(u8),
    /// A record is shorter than its kind, or longer than the table.
    #[error("the record at byte {at} has a length of {length}")]
    Record {
        /// Offset of the record.
        at: usize,
        /// Length that the record states.
        length: usize,
    },
}

/// The parts of a device's memory, in the order of the table. Records of other kinds are passed over.
///
/// # Errors
/// When the table contradicts itself.
pub fn parts(table: &[u8]) -> Result<Vec<DsmasRange>, CdatError> {
    let there = table.len();
    let said = u32_at(table, 0).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let table = table.get(..said).filter(|table| table.len() >= HEADER).ok_or(CdatError::Length { said, there })?;
    match table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) {
        0 => {}
        sum => return Err(CdatError::Checksum(sum)),
    }
    let mut parts = Vec::new();
    let mut at = HEADER;
    while at < said {
        let length = u16_at(table, at + 2).map_or(0, usize::from);
        let wrong = CdatError::Record { at, length };
        let Some(record) = table.get(at..at + length).filter(|record| record.len() >= RECORD_HEADER) else {
            return Err(wrong);
        };
        if record[0] == DSMAS {
            parts.push(part(record).ok_or(wrong)?);
        }
        at += length;
    }
    Ok(parts)
}

fn part(record: &[u8]) -> Option<DsmasRange> {
    let record: &[u8; DSMAS_BYTES] = record.first_chunk()?;
    Some(DsmasRange { base: u64_at(record, 8)?, bytes: u64_at(record, 16)?, dynamic: record[5] & DYNAMIC != 0 })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    /// A sound table of these records.
    fn sealed(records: &[u8]) -> Vec<u8> {
        let mut table = u32::try_from(HEADER + records.len()).unwrap().to_le_bytes().to_vec();
        table.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        table.extend(records);
        let sum = table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        table[5] = sum.wrapping_neg();
        table
    }

    fn dsmas(flags: u8, base: u64, bytes: u64) -> Vec<u8> {
        let mut record = vec![DSMAS, 0, 24, 0, 0, flags, 0, 0];
        record.extend(base.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record
    }

    /// A table of one part of 16 GiB.
    pub(crate) fn table(dynamic: bool) -> Vec<u8> {
        sealed(&dsmas(if dynamic { DYNAMIC } else { 0 }, 0, 16 * GIB))
    }

    #[test]
    fn parts_are_read_and_other_records_passed_over() {
        let latency = [1, 0, 24, 0].into_iter().chain([0; 20]).collect::<Vec<u8>>();
        let table = sealed(&[dsmas(0, 0, GIB), latency, dsmas(0x24, GIB, 2 * GIB)].concat());
        let fixed = DsmasRange { base: 0, bytes: GIB, dynamic: false };
        assert_eq!(parts(&table), Ok(vec![fixed, DsmasRange { base: GIB, bytes: 2 * GIB, dynamic: true }]));
        // What follows the table is not part of it.
        assert_eq!(parts(&[table.clone(), vec![0xff; 7]].concat()), parts(&table));
        assert_eq!(parts(&sealed(&[])), Ok(vec![]));
    }

    #[test]
    fn tables_that_contradict_themselves_are_refused() {
        let table = table(true);
        assert_eq!(parts(&[]), Err(CdatError::Length { said: 0, there: 0 }));
        assert_eq!(parts(&table[..30]), Err(CdatError::Length { said: 40, there: 30 }));
        let mut damaged = table.clone();
        damaged[20] ^= 1;
        assert!(matches!(parts(&damaged), Err(CdatError::Checksum(_))));
        assert_eq!(parts(&sealed(&[1, 0, 0, 0])), Err(CdatError::Record { at: 16, length: 0 }));
        assert_eq!(parts(&sealed(&[1, 0, 9, 0])), Err(CdatError::Record { at: 16, length: 9 }));
        assert_eq!(parts(&sealed(&[DSMAS, 0, 4, 0])), Err(CdatError::Record { at: 16, length: 4 }));
        assert_eq!(parts(&sealed(&[1, 0])), Err(CdatError::Record { at: 16, length: 0 }));
    }

    proptest! {
        #[test]
        fn no_bytes_upset_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parts(&bytes);
            let _ = parts(&sealed(&bytes));
        }

        #[test]
        fn what_is_written_is_read(memory in proptest::collection::vec((any::<u8>(), any::<u64>(), any::<u64>()), 0..9)) {
            let records: Vec<u8> = memory.iter().flat_map(|(flags, base, bytes)| dsmas(*flags, *base, *bytes)).collect();
            let read: Vec<_> = parts(&sealed(&records)).unwrap();
            prop_assert_eq!(read.len(), memory.len());
            for (part, (flags, base, bytes)) in read.iter().zip(memory) {
                prop_assert_eq!((part.base, part.bytes, part.dynamic), (base, bytes, flags & DYNAMIC != 0));
            }
        }
    }
}
