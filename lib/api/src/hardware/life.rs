//! Intervals of a node's signs of life, and the meaning of its silence. Pure.

use std::time::Duration;

/// A daemon writes its NodeHardware at least this often, also when nothing has changed.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(300);

/// Allowed delay of a sign of life: a try that failed, a server that is busy, a watch that is behind.
const LATENESS: Duration = Duration::from_secs(30);

/// A report that has not been seen to change for longer than this is stale: two signs of life are missing. Readers go
/// by their own clock, and by when they saw the change.
pub const STALE_AFTER: Duration = SIGN_OF_LIFE.saturating_mul(2).saturating_add(LATENESS);

/// Age of a report from which nothing is known of the node any more: three signs of life are missing.
pub const UNKNOWN_AFTER: Duration = SIGN_OF_LIFE.saturating_mul(3).saturating_add(LATENESS);

/// Shortest wait. A moment that is nearer is skipped: the clock that is read and the one that is waited on are two.
const NEAR: Duration = Duration::from_secs(5);

/// Time that the daemon of `node`, having just written, waits for its next sign of life: [`SIGN_OF_LIFE`] at most,
/// but for a few seconds.
///
/// Each node has its own moments, spread evenly by its name and fixed on the clock: daemons that were all started at
/// once, or all changed something at once, do not stay together.
pub fn until_sign_of_life(node: &str, since_1970: Duration) -> Duration {
    let period = SIGN_OF_LIFE.as_millis() as u64;
    let from = ((since_1970 + NEAR).as_millis() % u128::from(period)) as u64;
    let own = u64::from(spread(node)) % period;
    NEAR + Duration::from_millis((own + period - from) % period)
}

/// FNV-1a with a last stir: names of nodes differ in their last digits, which FNV alone leaves in the low bits.
fn spread(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let stirred = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let stirred = (stirred ^ (stirred >> 13)).wrapping_mul(0xc2b2_ae35);
    stirred ^ (stirred >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: usize = 5000;

    /// Milliseconds of a period at which the nodes give signs of life.
    fn moments(name: impl Fn(usize) -> String) -> Vec<u128> {
        let mut all: Vec<u128> =
            (0..NODES).map(|node| until_sign_of_life(&name(node), Duration::ZERO).as_millis()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn five_thousand_idle_nodes_write_less_than_twenty_times_a_second() {
        type Name = fn(usize) -> String;
        let schemes: [Name; 4] = [
            |node| format!("node-{node}"),
            |node| format!("rack{:02}-host{:02}.example.org", node / 40, node % 40),
            |node| format!("ip-10-0-{}-{}.eu-central-1.compute.internal", node / 250, node % 250),
            |node| format!("{node:08x}"),
        ];
        for name in schemes {
            let all = moments(name);
            // In the busiest minute of the period, wherever it begins: 20 a second are 1,200.
            assert!(busiest(&all, 60_000) <= 1200, "{}", name(0));
            // Chance puts some into the same second, not hundreds.
            assert!(busiest(&all, 1000) <= 45, "{}", name(0));
        }
    }

    /// The most moments in a window of so many milliseconds.
    fn busiest(sorted: &[u128], window: u128) -> usize {
        let within = |from: usize| sorted.partition_point(|at| *at < sorted[from] + window) - from;
        (0..sorted.len()).map(within).max().unwrap()
    }

    #[test]
    fn a_node_keeps_its_moment_whenever_it_is_asked() {
        let own = until_sign_of_life("node-1", Duration::ZERO);
        for now in [0, 1, 299_999, 300_000, 1_764_000_123_456] {
            let now = Duration::from_millis(now);
            let wait = until_sign_of_life("node-1", now);
            assert!(wait >= NEAR && wait < SIGN_OF_LIFE + NEAR, "{wait:?}");
            let period = SIGN_OF_LIFE.as_millis();
            assert_eq!((now + wait).as_millis() % period, own.as_millis() % period);
        }
        for early in [Duration::ZERO, Duration::from_millis(1), NEAR - Duration::from_millis(1)] {
            assert_eq!(
                until_sign_of_life("node-1", own - early),
                SIGN_OF_LIFE + early,
                "the moment is not waited for again"
            );
        }
    }

    #[test]
    fn one_sign_of_life_may_be_missed() {
        assert!(STALE_AFTER > SIGN_OF_LIFE * 2 && UNKNOWN_AFTER > STALE_AFTER + SIGN_OF_LIFE / 2);
    }
}
