//! Short names for texts.

/// 16 hexadecimal digits that follow from a text: the same in every version and on every machine.
pub fn fingerprint(text: &str) -> String {
    format!("{:016x}", fnv(text))
}

/// FNV-1a: stable, quick, and no secret. An attacker can make two texts with the same hash.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
