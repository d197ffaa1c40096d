//! The CPUs and NUMA nodes that a container is bound to: those of its claims together, or those left for the others.
//! Pure.
//!
//! The hook that runs in front of a container, the plugin of the container runtime and later checks call the same
//! functions, so that they agree.

use hostler_backend::DevicePlan;
use hostler_linux::{IdSet, ParseIdSetError};

/// CPUs and NUMA nodes. An empty set leaves that resource alone.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pins {
    /// CPUs.
    pub cpus: IdSet,
    /// NUMA nodes.
    pub mems: IdSet,
}

/// CPUs and NUMA nodes that one hook binds a container to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookPins {
    /// UID of the claim, as the hook names it.
    pub claim: String,
    /// The share of the claim that the container has.
    pub pins: Pins,
}

/// An argument of a hook is not as the daemon writes it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("argument {argument:?} is not valid: {reason}")]
pub struct HookArgumentError {
    /// The argument.
    pub argument: String,
    /// The reason why it is not valid.
    pub reason: String,
}

impl HookArgumentError {
    /// Makes the error of an argument.
    pub fn new(argument: &str, reason: impl Into<String>) -> Self {
        Self { argument: argument.to_owned(), reason: reason.into() }
    }
}

impl Pins {
    /// Returns true if nothing is bound.
    pub fn is_empty(&self) -> bool {
        self.cpus.is_empty() && self.mems.is_empty()
    }

    /// Returns the sets in words: `CPUs 0-3 and NUMA nodes 1`.
    pub fn in_words(&self) -> String {
        let sets = [("CPUs", &self.cpus), ("NUMA nodes", &self.mems)];
        let sets = sets.into_iter().filter(|(_, set)| !set.is_empty()).map(|(noun, set)| format!("{noun} {set}"));
        sets.collect::<Vec<_>>().join(" and ")
    }
}

impl HookPins {
    /// Parses the arguments that follow `hook cpuset` on the command line.
    ///
    /// # Errors
    /// Fails when an argument is unknown, has no value, or its value is not a list.
    pub fn parse(args: &[String]) -> Result<Self, HookArgumentError> {
        let (mut claim, mut pins) = (String::new(), Pins::default());
        for pair in args.chunks(2) {
            let [name, value] = pair else { return Err(HookArgumentError::new(&pair[0], "it has no value")) };
            let list =
                || value.parse().map_err(|error: ParseIdSetError| HookArgumentError::new(value, error.to_string()));
            match name.as_str() {
                "--claim" => claim.clone_from(value),
                "--cpus" => pins.cpus = list()?,
                "--mems" => pins.mems = list()?,
                _ => return Err(HookArgumentError::new(name, "known are --claim, --cpus and --mems")),
            }
        }
        if claim.is_empty() {
            return Err(HookArgumentError::new("--claim", "it is missing"));
        }
        if pins.is_empty() {
            return Err(HookArgumentError::new("--cpus", "neither it nor --mems names any"));
        }
        Ok(Self { claim, pins })
    }
}

/// Returns the arguments that follow `hostler hook <name>`, if it is that hook.
pub fn arguments_of<'a>(name: &str, args: &'a [String]) -> Option<&'a [String]> {
    match args {
        [hostler, hook, which, rest @ ..] if [&**hostler, &**hook, &**which] == ["hostler", "hook", name] => Some(rest),
        _ => None,
    }
}

/// Returns the pins of each hostler hook among all hooks of a container; `hooks` gives their arguments.
///
/// # Errors
/// Fails when a hook is not as the daemon writes it.
pub fn pins_of_hooks<'a>(hooks: impl IntoIterator<Item = &'a [String]>) -> Result<Vec<HookPins>, HookArgumentError> {
    hooks.into_iter().filter_map(|args| arguments_of("cpuset", args)).map(HookPins::parse).collect()
}

/// Returns the pins of a container with all of these shares of claims: the union of the CPUs, and that of the nodes.
/// Nodes that programs need beside those of their claims
/// ([`with_kernel_memory`](hostler_linux::cgroup::with_kernel_memory)) are not in it: they are added once, to the
/// union.
pub fn union<'a>(shares: impl IntoIterator<Item = &'a Pins>) -> Pins {
    shares.into_iter().fold(Pins::default(), |all, share| Pins {
        cpus: all.cpus.union(&share.cpus),
        mems: all.mems.union(&share.mems),
    })
}

/// Returns the CPUs that claims have to themselves: those that their containers are bound to, and those that they keep
/// from others beside them. `plans` are those of all recorded claims, ready or not.
pub fn exclusive_cpus<'a>(plans: impl IntoIterator<Item = &'a DevicePlan>) -> IdSet {
    let plans = plans.into_iter().filter(|plan| !plan.pinning.cpus.is_empty());
    let cpus = plans.map(|plan| IdSet::from(plan.pinning.cpus.clone()).union(&hostler_cpu::kept_cpus(plan)));
    cpus.fold(IdSet::new(), |all, cpus| all.union(&cpus))
}

/// Returns the CPUs on which containers without a claim for CPUs run: the online ones without those that stay with the
/// system and those that claims have to themselves. Empty where nothing is left; that is no reason to give out more.
#[must_use]
pub fn shared_pool(online: &IdSet, reserved: &IdSet, exclusive: &IdSet) -> IdSet {
    online.difference(reserved).difference(exclusive)
}

#[cfg(test)]
mod tests {
    use hostler_backend::Pinning;

    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn set(text: &str) -> IdSet {
        text.parse().unwrap()
    }

    fn pins(cpus: &str, mems: &str) -> Pins {
        Pins { cpus: set(cpus), mems: set(mems) }
    }

    #[test]
    fn a_container_has_the_union_of_its_shares_in_any_order() {
        let shares = [pins("0-1", ""), pins("4", "1"), pins("1-2", "0")];
        let expected = pins("0-2,4", "0-1");
        assert_eq!(union(&shares), expected);
        assert_eq!(union(shares.iter().rev()), expected);
        assert_eq!(union(shares.iter().chain(&shares)), expected, "however often one is named");
        assert_eq!(union([]), Pins::default());
    }

    #[test]
    fn only_the_hooks_that_bind_are_read_out_of_all_hooks() {
        let hooks = [
            "hostler hook cpuset --claim a --cpus 0-1",
            "other hook cpuset --everything",
            "hostler hook record --claim a --containers /c",
            "",
            "hostler hook cpuset --claim b --cpus 4 --mems 1",
        ]
        .map(args);
        let found = pins_of_hooks(hooks.iter().map(Vec::as_slice)).unwrap();
        let expected = [("a", pins("0-1", "")), ("b", pins("4", "1"))];
        assert_eq!(found, expected.map(|(claim, pins)| HookPins { claim: claim.to_owned(), pins }));
        let odd = [args("hostler hook cpuset --claim a --cpus x")];
        assert!(pins_of_hooks(odd.iter().map(Vec::as_slice)).is_err(), "one that we never wrote hides nothing");
    }

    #[test]
    fn arguments_that_the_daemon_would_not_write_are_refused() {
        for (text, expected) in [
            ("", "\"--claim\" is not valid: it is missing"),
            ("--cpus 0", "\"--claim\" is not valid: it is missing"),
            ("--claim a --cpus", "\"--cpus\" is not valid: it has no value"),
            ("--claim a --cpus 1-", "1-"),
            ("--claim a", "neither it nor --mems names any"),
            ("--claim a --all yes", "known are --claim, --cpus and --mems"),
        ] {
            let error = HookPins::parse(&args(text)).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_pool_is_what_the_system_and_claims_leave() {
        let pool = |exclusive: &str| shared_pool(&set("0-7"), &set("0"), &set(exclusive)).to_string();
        assert_eq!(pool(""), "1-7");
        assert_eq!(pool("2-3"), "1,4-7");
        assert_eq!(pool("0-7"), "", "it is not widened");
        assert_eq!(pool("9"), "1-7", "what is offline is in nobody's way");
    }

    #[test]
    fn idle_threads_and_caches_of_a_claim_are_as_exclusive_as_its_cpus() {
        let plan = |cpus: &str, data: serde_json::Value| DevicePlan {
            pinning: Pinning { cpus: set(cpus).iter().collect(), ..Pinning::default() },
            data,
        };
        let plans = [
            plan("0", serde_json::json!({"idle": "4"})),
            plan("1", serde_json::json!({"l3": "1-3"})),
            plan("8", serde_json::Value::Null),
            plan("", serde_json::json!({"idle": "5"})),
        ];
        assert_eq!(exclusive_cpus(&plans).to_string(), "0-4,8", "memory and others have no CPUs");
    }

    #[test]
    fn sets_are_told_in_words() {
        assert_eq!(pins("0-1,4", "1").in_words(), "CPUs 0-1,4 and NUMA nodes 1");
        assert_eq!(pins("", "1").in_words(), "NUMA nodes 1");
    }
}
