//! Identities of shares. Upstream takes random ones; here they follow from the claim, so that the same question always
//! gets the same answer.

/// Returns the identity of the share that a claim holds as the result with this number: a custom UUID (version 8).
pub(super) fn share_id(claim_uid: &str, result: usize) -> String {
    let bytes = claim_uid.bytes().chain([0]).chain(result.to_le_bytes());
    let hash = bytes.fold(FNV_OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(FNV_PRIME));
    let marked = hash & !VERSION_AND_VARIANT | UUID_8;
    let hex = format!("{marked:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// FNV-1a with 128 bits: enough to tell apart the shares of one device that claims of one cluster hold.
const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
const VERSION_AND_VARIANT: u128 = 0x0000_0000_0000_f000_c000_0000_0000_0000;
const UUID_8: u128 = 0x0000_0000_0000_8000_8000_0000_0000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_of_each_claim_has_its_own() {
        let ids = [share_id("a", 0), share_id("a", 1), share_id("b", 0)];
        assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2]);
        assert_eq!(share_id("a", 0), ids[0]);
    }

    #[test]
    fn it_is_a_uuid() {
        let id = share_id("5f0c", 3);
        assert_eq!(id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "8");
        assert!("89ab".contains(&id[19..20]));
    }
}
