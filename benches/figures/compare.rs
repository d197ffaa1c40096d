//! Two binaries beside each other: measured in turn, so that a slow hour of the machine is slow for both.

use std::{collections::BTreeMap, env, fs, path::Path, process::Command};

use super::report::{Amount, Report};

/// Variable with the binary to compare with.
const OTHER: &str = "COMPARE_BIN";
/// Variable with the file that a turn writes its figures to.
const TURN: &str = "FIGURES_OF_TURN";
/// Variable with the number of pairs.
const ROUNDS: &str = "ROUNDS";
const USUAL_ROUNDS: usize = 5;
/// The section of figures in which neither binary has a part.
const MACHINE: &str = "limits";

/// Writes the figures of this run where a comparison waits for them; false if none does.
pub(crate) fn hand_over(report: &Report) -> bool {
    let Some(file) = env::var_os(TURN) else { return false };
    fs::write(file, serde_json::to_vec(&report.amounts()).unwrap()).unwrap();
    true
}

/// Prints the comparison that the environment asks for; false if it asks for none.
pub(crate) fn run(sections: &[String]) -> bool {
    let Some(other) = env::var_os(OTHER) else { return false };
    let rounds = env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL_ROUNDS);
    // No word means all sections.
    let machine = (!sections.is_empty()).then_some(MACHINE);
    let (folder, this) = (tempfile::tempdir().unwrap(), hostler_testing::binary::binary());
    let turn = |binary: &Path| -> Vec<(String, String, Amount)> {
        let file = folder.path().join("turn");
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .arg("--bench")
            .args(sections)
            .args(machine)
            .env_remove(OTHER)
            .env("HOSTLER_BIN", binary)
            .env(TURN, &file);
        assert!(command.status().unwrap().success(), "a turn failed");
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    };
    let (mut order, mut pairs) = (Vec::new(), BTreeMap::<String, Pairs>::new());
    for round in 0..rounds {
        // What runs first finds the machine as the other one left it: each is first in every second round.
        let (other_first, this_later);
        if round % 2 == 0 {
            other_first = turn(Path::new(&other));
            this_later = turn(&this);
        } else {
            this_later = turn(&this);
            other_first = turn(Path::new(&other));
        }
        let other = other_first.into_iter().map(|(_, figure, amount)| (figure, amount));
        let mut other: BTreeMap<String, Amount> = other.collect();
        for (section, figure, amount) in this_later {
            let Some(before) = other.remove(&figure) else { continue };
            if !pairs.contains_key(&figure) {
                order.push(figure.clone());
            }
            let pairs = pairs.entry(figure).or_default();
            pairs.is_of_machine = section == MACHINE;
            pairs.push(before, amount);
        }
    }
    let noise = noise(&pairs);
    let percent = noise * 100.0;
    println!(
        "{rounds} pairs in turn. Nine of ten ratios of the machine's own figures, the last ones, are within ± {percent:.0} %.\n"
    );
    println!("| figure | other | this | ratio | of all pairs | |\n|---|---|---|---|---|---|");
    for figure in order {
        println!("| {figure} | {} |", pairs.remove(&figure).unwrap().line());
    }
    true
}

/// Ratio that nine of ten pairs of figures stay within that know of no binary.
fn noise(pairs: &BTreeMap<String, Pairs>) -> f64 {
    let of_machine = pairs.values().filter(|pairs| pairs.is_of_machine).flat_map(|pairs| &pairs.ratios);
    let mut deviations: Vec<f64> = of_machine.map(|ratio| (ratio - 1.0).abs()).collect();
    deviations.sort_by(f64::total_cmp);
    deviations.get(deviations.len() * 9 / 10).copied().unwrap_or_default()
}

/// Amounts of one figure, of both binaries.
#[derive(Default)]
struct Pairs {
    /// True if neither binary has a part in it.
    is_of_machine: bool,
    other: Vec<Amount>,
    this: Vec<Amount>,
    ratios: Vec<f64>,
}

impl Pairs {
    fn push(&mut self, other: Amount, this: Amount) {
        // Two figures that are nothing are equal.
        let is_nothing = other.as_number() == 0.0 && this.as_number() == 0.0;
        self.ratios.push(if is_nothing { 1.0 } else { this.as_number() / other.as_number() });
        self.other.push(other);
        self.this.push(this);
    }

    /// The figure's line: a difference counts where all pairs agree on it, and it is more than they differ among themselves.
    fn line(mut self) -> String {
        self.ratios.sort_by(f64::total_cmp);
        let (least, most, ratio) =
            (self.ratios[0], self.ratios[self.ratios.len() - 1], self.ratios[self.ratios.len() / 2]);
        let spread = (most - least) / 2.0;
        let verdict = match () {
            () if most < 1.0 && 1.0 - ratio > spread => "less",
            () if least > 1.0 && ratio - 1.0 > spread => "**more**",
            () => "no difference",
        };
        let [other, this] = [&mut self.other, &mut self.this].map(|amounts| Amount::median(amounts));
        format!("{other} | {this} | {ratio:.2} | {least:.2}–{most:.2} | {verdict}")
    }
}
