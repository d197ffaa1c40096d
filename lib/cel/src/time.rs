//! Times and durations, as Go's library reads, writes and calculates them.

use std::{cmp::Ordering, fmt};

const NANOS: i64 = 1_000_000_000;
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// From `0001-01-01T00:00:00Z` to `9999-12-31T23:59:59Z`.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// 2^63, the first amount that only a negative duration can have.
const MOST_NANOS: u64 = 1 << 63;

/// A moment, and the offset of the zone that it was written in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamp {
    seconds: i64,
    nanos: u32,
    zone: Zone,
}

/// Zone in which a time was written.
#[derive(Clone, Copy, Debug)]
enum Zone {
    Utc,
    /// East of UTC, in seconds; zero also counts as a zone of its own.
    Offset(i64),
}

impl Zone {
    fn offset(self) -> i64 {
        match self {
            Self::Utc => 0,
            Self::Offset(seconds) => seconds,
        }
    }
}

/// Nanoseconds between two moments.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Duration(pub(super) i64);

/// Date and time of day, as a calendar and a clock show them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// From one on, as the day.
    pub(super) month: i64,
    pub(super) day: i64,
    /// From zero on, Sunday being the first.
    pub(super) weekday: i64,
    /// From zero on.
    pub(super) day_of_year: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
}

impl Timestamp {
    /// Moment at so many seconds since 1970.
    pub(super) fn at(seconds: i64) -> Option<Self> {
        Self { seconds, nanos: 0, zone: Zone::Utc }.in_range()
    }

    /// A time of RFC 3339, with what Go takes besides: hours of one digit, a comma before the fraction, and offsets of
    /// up to 24 hours and 60 minutes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (day, rest) = read_date(text)?;
        let rest = rest.strip_prefix('T')?;
        let (hour, rest) = number(rest, 2).or_else(|| number(rest, 1)).filter(|(hour, _)| *hour < 24)?;
        let (minute, rest) = number(rest.strip_prefix(':')?, 2).filter(|(minute, _)| *minute < 60)?;
        let (second, rest) = number(rest.strip_prefix(':')?, 2).filter(|(second, _)| *second < 60)?;
        let (nanos, rest) = fraction(rest);
        let zone = read_zone(rest)?;
        let seconds = day * DAY + hour * HOUR + minute * MINUTE + second - zone.offset();
        Self { seconds, nanos, zone }.in_range()
    }

    fn in_range(self) -> Option<Self> {
        SECONDS.contains(&self.seconds).then_some(self)
    }

    pub(super) fn seconds(self) -> i64 {
        self.seconds
    }

    pub(super) fn nanos(self) -> u32 {
        self.nanos
    }

    /// True for the first moment there is, which counts as nothing.
    pub(super) fn is_zero(self) -> bool {
        self.seconds == *SECONDS.start() && self.nanos == 0
    }

    /// True if the time was written in UTC: keys of maps are the same only in the same zone.
    pub(super) fn is_utc(self) -> bool {
        matches!(self.zone, Zone::Utc)
    }

    pub(super) fn checked_add(self, duration: Duration) -> Option<Self> {
        let nanos = i64::from(self.nanos) + duration.0.rem_euclid(NANOS);
        let seconds = self.seconds + duration.0.div_euclid(NANOS) + nanos / NANOS;
        Self { seconds, nanos: u32::try_from(nanos % NANOS).ok()?, ..self }.in_range()
    }

    pub(super) fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.checked_add(Duration(duration.0.checked_neg()?))
    }

    pub(super) fn since(self, other: Self) -> Option<Duration> {
        let seconds = self.seconds - other.seconds;
        let nanos = i64::from(self.nanos) - i64::from(other.nanos);
        seconds.checked_mul(NANOS)?.checked_add(nanos).map(Duration)
    }

    /// Date and time of day at so many seconds east of UTC.
    pub(super) fn civil(self, offset: i64) -> Civil {
        let local = self.seconds.saturating_add(offset);
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month, day_of_month) = date_of(day);
        Civil {
            year,
            month,
            day: day_of_month,
            weekday: (day + 4).rem_euclid(7),
            day_of_year: day - day_number(year, 1, 1),
            hour: second / HOUR,
            minute: second % HOUR / MINUTE,
            second: second % MINUTE,
        }
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.zone.offset();
        let civil = self.civil(offset);
        write!(f, "{:04}-{:02}-{:02}T", civil.year, civil.month, civil.day)?;
        write!(f, "{:02}:{:02}:{:02}", civil.hour, civil.minute, civil.second)?;
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        let minutes = offset.abs() / MINUTE;
        match offset.cmp(&0) {
            Ordering::Equal => f.write_str("Z"),
            Ordering::Less => write!(f, "-{:02}:{:02}", minutes / 60, minutes % 60),
            Ordering::Greater => write!(f, "+{:02}:{:02}", minutes / 60, minutes % 60),
        }
    }
}

/// True if a text is a date and nothing else.
pub(super) fn is_date(text: &str) -> bool {
    read_date(text).is_some_and(|(_, rest)| rest.is_empty())
}

/// Reads a date at the beginning, in days since 1970, and returns the rest too.
fn read_date(text: &str) -> Option<(i64, &str)> {
    let (year, rest) = number(text, 4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2).filter(|(month, _)| (1..=12).contains(month))?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2)?;
    let next = if month == 12 { day_number(year + 1, 1, 1) } else { day_number(year, month + 1, 1) };
    let first = day_number(year, month, 1);
    (day >= 1 && day <= next - first).then_some((first + day - 1, rest))
}

/// Reads so many digits at the beginning, and returns the rest too.
fn number(text: &str, digits: usize) -> Option<(i64, &str)> {
    let (head, rest) = text.split_at_checked(digits)?;
    let is_number = head.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { Some((head.parse().ok()?, rest)) } else { None }
}

/// Reads the fraction of a second if there is one; digits below a nanosecond are dropped.
fn fraction(text: &str) -> (u32, &str) {
    let Some(digits) = text.strip_prefix(['.', ',']) else { return (0, text) };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let nanos = format!("{:0<9.9}", &digits[..length]).parse().unwrap_or(0);
    if length == 0 { (0, text) } else { (nanos, &digits[length..]) }
}

/// Reads `Z` or `+01:00`.
fn read_zone(text: &str) -> Option<Zone> {
    if text == "Z" {
        return Some(Zone::Utc);
    }
    let (sign, rest) = text.split_at_checked(1)?;
    let (hours, rest) = number(rest, 2).filter(|(hours, _)| *hours <= 24)?;
    let (minutes, rest) = number(rest.strip_prefix(':')?, 2).filter(|(minutes, _)| *minutes <= 60)?;
    let offset = hours * HOUR + minutes * MINUTE;
    match (sign, rest) {
        ("+", "") => Some(Zone::Offset(offset)),
        ("-", "") => Some(Zone::Offset(-offset)),
        _ => None,
    }
}

/// Days from 1970 on, in the calendar of today also before it was made. Years are counted from March, so that the day
/// of a leap year is the last one.
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + days_before_month + day - 1 - DAYS_TO_1970
}

/// Days from the first of March of year 0.
const DAYS_TO_1970: i64 = 719_468;
const DAYS_IN_400_YEARS: i64 = 146_097;

/// Year, month and day of a number of days.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(DAYS_TO_1970);
    let (era, in_era) = (days.div_euclid(DAYS_IN_400_YEARS), days.rem_euclid(DAYS_IN_400_YEARS));
    let year_in_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_in_era + year_in_era / 4 - year_in_era / 100);
    let month_from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_in_era + i64::from(month <= 2), month, day)
}

/// Offset of a zone from UTC in seconds, or the reason why there is none.
pub(super) fn zone(name: &str) -> Result<i64, ZoneError> {
    let Some((hours, minutes)) = name.split_once(':') else { return named_zone(name) };
    let number = |text: &str| text.parse::<i64>().map_err(|_| ZoneError::Invalid);
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if name.starts_with('-') { minutes.checked_neg() } else { Some(minutes) };
    let all = minutes.and_then(|minutes| hours.checked_mul(60)?.checked_add(minutes)).ok_or(ZoneError::Unknown)?;
    // Beyond that Go's arithmetic wraps, which no expression can mean.
    all.checked_mul(MINUTE * NANOS).map(|_| all * MINUTE).ok_or(ZoneError::Unknown)
}

/// Reason why a text gives no offset.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ZoneError {
    Invalid,
    /// The name may be a zone where kube-scheduler runs.
    Unknown,
}

/// Names other than UTC are looked up in files of the machine that asks.
fn named_zone(name: &str) -> Result<i64, ZoneError> {
    match name {
        "" | "UTC" => Ok(0),
        name if name.split(['/', '\\']).any(|part| part == "..") || name.starts_with(['/', '\\']) => {
            Err(ZoneError::Invalid)
        }
        _ => Err(ZoneError::Unknown),
    }
}

impl Duration {
    /// Reads `1h2m3.5s`, `-1.5ms`, `0`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        let mut sum = 0_u64;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() && rest != "0" {
            let (nanos, behind) = component(rest)?;
            sum = sum.checked_add(nanos).filter(|sum| *sum <= MOST_NANOS)?;
            // Only the whole of it may be a bare zero.
            rest = if behind == "0" { return None } else { behind };
        }
        match i64::try_from(sum) {
            Ok(nanos) => Some(Self(if is_negative { -nanos } else { nanos })),
            Err(_) => is_negative.then_some(Self(i64::MIN)),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "Go calculates in floating point here")]
    fn in_units(self, nanos_per_unit: i64) -> f64 {
        (self.0 / nanos_per_unit) as f64 + (self.0 % nanos_per_unit) as f64 / nanos_per_unit as f64
    }

    /// Whole units, as far as a floating-point number tells them.
    #[expect(clippy::cast_possible_truncation, reason = "fewer than there are nanoseconds")]
    pub(super) fn whole(self, seconds_per_unit: i64) -> i64 {
        self.in_units(seconds_per_unit * NANOS) as i64
    }

    pub(super) fn milliseconds(self) -> i64 {
        self.0 / 1_000_000
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.in_units(NANOS))
    }
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads one number with its unit, in nanoseconds, and returns the rest too.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go multiplies fractions in floating point, and so its roundings are those"
)]
fn component(text: &str) -> Option<(u64, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits(text));
    let (part, rest) = match rest.strip_prefix('.') {
        Some(behind) => behind.split_at(digits(behind)),
        None => ("", rest),
    };
    let (name, rest) = rest.split_at(rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len()));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name)?;
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanos = whole.checked_mul(*unit).filter(|nanos| *nanos <= MOST_NANOS)?;
    let (part, scale) = leading_fraction(part);
    let nanos = nanos + if part > 0 { (part as f64 * (*unit as f64 / scale)) as u64 } else { 0 };
    (nanos <= MOST_NANOS).then_some((nanos, rest))
}

/// Reads as many digits as 63 bits hold, and the power of ten that they are counted in.
fn leading_fraction(digits: &str) -> (u64, f64) {
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|next| value <= (MOST_NANOS - 1) / 10 && *next <= MOST_NANOS) else { break };
        (value, scale) = (next, scale * 10.0);
    }
    (value, scale)
}
