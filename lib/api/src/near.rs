//! Names that may have been meant instead of one that is not there. Pure.

/// Names that are shown at most beside one that is not known.
const SHOWN: usize = 5;

/// `; did you mean a or b?` for the names of `known` that differ least from `name`; empty where none is near.
///
/// A name is written `group/name`; a `name` without a group is compared with the whole and with the last part.
pub fn did_you_mean(name: &str, known: impl IntoIterator<Item = String>) -> String {
    // A third of the letters may be wrong; below that the guess would mislead, and so would another single letter.
    let letters = name.chars().count();
    let most = letters.div_ceil(3).min(letters.saturating_sub(1));
    let distant = |known: String| (distance(name, &known), known);
    let mut near: Vec<(usize, String)> =
        known.into_iter().map(distant).filter(|(distance, _)| *distance <= most).collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(SHOWN);
    let names: Vec<String> = near.into_iter().map(|(_, name)| name).collect();
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

fn distance(name: &str, known: &str) -> usize {
    let whole = strsim::damerau_levenshtein(name, known);
    match known.rsplit_once('/') {
        Some((_, last)) if !name.contains('/') => whole.min(strsim::damerau_levenshtein(name, last)),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_offered_and_the_nearest_first() {
        let known = || ["default/train", "ml/train", "ml/tram", "ml/serve"].map(str::to_owned);
        assert_eq!(did_you_mean("ml/trai", known()), "; did you mean ml/train or ml/tram?");
        assert_eq!(did_you_mean("trein", known()), "; did you mean default/train or ml/train?");
        assert_eq!(did_you_mean("another", known()), "");
        assert_eq!(did_you_mean("", known()), "");
        let letters = || ["ml/a", "ml/b", "ab"].map(str::to_owned);
        assert_eq!(did_you_mean("a", letters()), "; did you mean ml/a?");
        assert_eq!(did_you_mean("c", letters()), "");
    }
}
