//! Health that a card reports: the answer of its mailbox to "get health info". Pure.

use hostler_linux::ioctl::cxl::HEALTH_BYTES;

/// Distance of a figure from what it should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HealthLevel {
    /// Normal state.
    Normal,
    /// Worth a look.
    Warning,
    /// At the end.
    Critical,
}

/// Content of the answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CardHealth {
    /// The card needs maintenance.
    pub maintenance: bool,
    /// The card is slower than it should be.
    pub degraded: bool,
    /// The card is to be replaced.
    pub replace: bool,
    /// State of the memory, as the specification numbers it; 0 is normal.
    pub media: u8,
    /// Level of the card's life.
    pub life: HealthLevel,
    /// Level of the card's temperature.
    pub temperature: HealthLevel,
    /// Used-up part of the card's life, percent; can be above 100.
    pub life_used: Option<u8>,
    /// Degrees Celsius.
    pub celsius: Option<i16>,
    /// Number of times that the card lost power without being shut down.
    pub dirty_shutdowns: u32,
    /// Corrected errors of volatile memory.
    pub volatile_errors: u32,
    /// Corrected errors of persistent memory.
    pub persistent_errors: u32,
}

impl CardHealth {
    /// Decodes the answer.
    pub fn decode(bytes: &[u8; HEALTH_BYTES]) -> Self {
        let [status, media, extended, life_used, t0, t1, d0, d1, d2, d3, v0, v1, v2, v3, p0, p1, p2, p3] = *bytes;
        let celsius = i16::from_le_bytes([t0, t1]);
        Self {
            maintenance: status & 1 != 0,
            degraded: status & 2 != 0,
            replace: status & 4 != 0,
            media,
            life: level(extended),
            temperature: level(extended >> 2),
            life_used: Some(life_used).filter(|percent| *percent != u8::MAX),
            // The specification uses one value for "not known", cards in the field the other.
            celsius: Some(celsius).filter(|celsius| ![i16::MAX, -1].contains(celsius)),
            dirty_shutdowns: u32::from_le_bytes([d0, d1, d2, d3]),
            volatile_errors: u32::from_le_bytes([v0, v1, v2, v3]),
            persistent_errors: u32::from_le_bytes([p0, p1, p2, p3]),
        }
    }

    /// Reason why the card should not be used; `None` for a card that can be. Volatile memory loses its content with
    /// power anyway: only a card with persistent memory is the worse for that.
    pub fn problem(&self, has_persistent: bool) -> Option<String> {
        let mut problems = Vec::new();
        if self.replace {
            problems.push("the card asks to be replaced".to_owned());
        }
        problems.extend(media_problem(self.media, has_persistent));
        if self.life == HealthLevel::Critical {
            let used = self.life_used.map(|percent| format!(" ({percent} % used)")).unwrap_or_default();
            problems.push(format!("its life is used up{used}"));
        }
        if self.temperature == HealthLevel::Critical {
            let celsius = self.celsius.map(|celsius| format!(" ({celsius} °C)")).unwrap_or_default();
            problems.push(format!("its temperature is critical{celsius}"));
        }
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

fn level(bits: u8) -> HealthLevel {
    match bits & 3 {
        0 => HealthLevel::Normal,
        1 => HealthLevel::Warning,
        // 3 is not defined; a card that answers with it is not well.
        _ => HealthLevel::Critical,
    }
}

fn media_problem(media: u8, has_persistent: bool) -> Option<String> {
    let (text, persistent_only) = match media {
        0 => return None,
        1 => ("its memory is not ready", false),
        2 => ("what is written no longer persists", true),
        3 => ("all its data is lost", false),
        4 => ("what is written will not survive a loss of power", true),
        5 => ("what is written will not survive a shutdown", true),
        6 => ("what is written is about to persist no longer", true),
        7 => ("its data will not survive a loss of power", true),
        8 => ("its data will not survive a shutdown", true),
        9 => ("all its data is about to be lost", false),
        other => return Some(format!("its memory is in state {other}, which is not known here")),
    };
    (has_persistent || !persistent_only).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WELL: [u8; HEALTH_BYTES] = [0, 0, 0, 5, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    fn with(change: impl Fn(&mut [u8; HEALTH_BYTES])) -> CardHealth {
        let mut bytes = WELL;
        change(&mut bytes);
        CardHealth::decode(&bytes)
    }

    #[test]
    fn an_answer_is_decoded_field_by_field() {
        let bytes = [7, 3, 0b0000_1001, 101, 0xf6, 0xff, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0];
        let expected = CardHealth {
            maintenance: true,
            degraded: true,
            replace: true,
            media: 3,
            life: HealthLevel::Warning,
            temperature: HealthLevel::Critical,
            life_used: Some(101),
            celsius: Some(-10),
            dirty_shutdowns: 1,
            volatile_errors: 256,
            persistent_errors: 65_536,
        };
        assert_eq!(CardHealth::decode(&bytes), expected);
        let unknown = with(|bytes| bytes[3..6].copy_from_slice(&[0xff, 0xff, 0x7f]));
        assert_eq!((unknown.life_used, unknown.celsius), (None, None));
        assert_eq!(with(|bytes| bytes[4..6].copy_from_slice(&[0xff, 0xff])).celsius, None);
    }

    #[test]
    fn a_card_is_unhealthy_for_what_harms_its_users() {
        assert_eq!(CardHealth::decode(&WELL).problem(true), None);
        // Maintenance, speed and warnings are told in attributes.
        assert_eq!(with(|bytes| (bytes[0], bytes[2]) = (3, 0b0101)).problem(true), None);
        for (index, value, text) in [
            (0, 4, "the card asks to be replaced"),
            (1, 1, "its memory is not ready"),
            (1, 200, "its memory is in state 200, which is not known here"),
            (2, 0b0010, "its life is used up (5 % used)"),
            (2, 0b1000, "its temperature is critical (40 °C)"),
        ] {
            assert_eq!(with(|bytes| bytes[index] = value).problem(false).as_deref(), Some(text));
        }
        let both = with(|bytes| (bytes[0], bytes[1]) = (4, 3)).problem(false);
        assert_eq!(both.as_deref(), Some("the card asks to be replaced; all its data is lost"));
    }

    #[test]
    fn trouble_with_persistence_is_no_harm_to_volatile_memory() {
        for media in [2, 4, 5, 6, 7, 8] {
            let health = with(|bytes| bytes[1] = media);
            assert!(health.problem(true).is_some() && health.problem(false).is_none(), "{media}");
        }
    }

    proptest! {
        #[test]
        fn every_answer_is_understood(bytes: [u8; HEALTH_BYTES], has_persistent: bool) {
            let health = CardHealth::decode(&bytes);
            let problem = health.problem(has_persistent);
            prop_assert!(!health.replace || problem.is_some());
            prop_assert!(problem.is_none_or(|text| !text.is_empty()));
        }
    }
}
