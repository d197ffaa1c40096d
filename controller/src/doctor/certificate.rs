//! The end of certificates in PEM: as much of X.509 as it takes to find it.

use std::time::SystemTime;

use base64::{Engine, engine::general_purpose::STANDARD};
use hostler_cluster::from_rfc3339;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the end of the certificate that lasts longest; `None` if there is none that can be read.
pub(super) fn last_end(pem: &[u8]) -> Option<SystemTime> {
    let text = String::from_utf8_lossy(pem);
    let blocks = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let bodies = blocks.filter_map(|block| block.split_once("-----END CERTIFICATE-----"));
    let decoded = bodies.filter_map(|(body, _)| STANDARD.decode(body.split_whitespace().collect::<String>()).ok());
    decoded.filter_map(|der| end(&der)).max()
}

/// Returns the end of a certificate in DER.
fn end(der: &[u8]) -> Option<SystemTime> {
    let (certificate, _) = of_tag(der, SEQUENCE)?;
    let (signed, _) = of_tag(certificate, SEQUENCE)?;
    let after_version = of_tag(signed, VERSION).map_or(signed, |(_, rest)| rest);
    // Serial number, algorithm and issuer stand before the validity.
    let mut rest = after_version;
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (validity, _) = of_tag(rest, SEQUENCE)?;
    let (_, _, not_after) = element(validity)?;
    let (tag, time, _) = element(not_after)?;
    time_of(tag, std::str::from_utf8(time).ok()?)
}

fn time_of(tag: u8, text: &str) -> Option<SystemTime> {
    let century = match tag {
        // RFC 5280: years of two digits from 50 on are of the last century.
        UTC_TIME if text.get(..2)? < "50" => "20",
        UTC_TIME => "19",
        GENERALIZED_TIME => "",
        _ => return None,
    };
    let digits = format!("{century}{}", text.strip_suffix('Z')?);
    let part = |from: usize, to: usize| digits.get(from..to);
    let date = format!("{}-{}-{}", part(0, 4)?, part(4, 6)?, part(6, 8)?);
    from_rfc3339(&format!("{date}T{}:{}:{}Z", part(8, 10)?, part(10, 12)?, part(12, 14)?))
}

fn of_tag(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Returns the tag of the first element, its content, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let count = usize::from(first & 0x7f);
        // Four bytes are more than any certificate has.
        let bytes = rest.get(..count).filter(|bytes| bytes.len() <= 4)?;
        length = bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte));
        rest = rest.get(count..)?;
    }
    Some((tag, rest.get(..length)?, rest.get(length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `openssl req -x509`; it ends at 2036-01-01T00:00:00Z.
    const UNTIL_2036: &str = include_str!("certificate/until-2036.pem");

    #[test]
    fn the_end_is_that_of_the_certificate_that_lasts_longest() {
        let end = from_rfc3339("2036-01-01T00:00:00Z");
        assert_eq!(last_end(UNTIL_2036.as_bytes()), end);
        let several = format!("{UNTIL_2036}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert_eq!(last_end(several.as_bytes()), end);
        assert_eq!(last_end(b"no certificate"), None);
    }

    #[test]
    fn cut_certificates_have_no_end_and_make_no_panic() {
        let body: String = UNTIL_2036.lines().filter(|line| !line.starts_with('-')).collect();
        let der = STANDARD.decode(body).unwrap();
        assert_eq!(end(&der), from_rfc3339("2036-01-01T00:00:00Z"));
        for length in 0..der.len() {
            assert_eq!(end(&der[..length]), None, "{length}");
        }
    }

    #[test]
    fn both_forms_of_time_are_read() {
        assert_eq!(time_of(UTC_TIME, "491231235959Z"), from_rfc3339("2049-12-31T23:59:59Z"));
        assert_eq!(time_of(UTC_TIME, "991231235959Z"), from_rfc3339("1999-12-31T23:59:59Z"));
        assert_eq!(time_of(GENERALIZED_TIME, "20500101000000Z"), from_rfc3339("2050-01-01T00:00:00Z"));
        assert_eq!(time_of(GENERALIZED_TIME, "soon"), None);
    }
}
