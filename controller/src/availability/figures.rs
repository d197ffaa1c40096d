//! Metrics by class and state: as many as a cluster has classes, up to a limit. A user with the right to make classes
//! must not be able to make metrics without end.

use hostler_api::hardware::DeviceTotals;

use crate::stock::ClusterStock;

/// The most classes with metrics of their own; the devices of the others are summed up as `other`.
const MOST_CLASSES: usize = 50;

/// The name of the sum of these others.
const OTHER: &str = "other";

/// The devices of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClassFigures {
    /// Name of the class; a class cannot be called `other` where that is the sum.
    pub(crate) class: String,
    /// Number of devices in each state.
    pub(crate) totals: DeviceTotals,
}

/// Returns the devices of each class; if there are too many classes, those with the most devices first.
pub(crate) fn class_figures(stock: &ClusterStock) -> Vec<ClassFigures> {
    figures(stock, MOST_CLASSES)
}

fn figures(stock: &ClusterStock, most: usize) -> Vec<ClassFigures> {
    let of = |(class, tally): (&std::sync::Arc<str>, &crate::stock::Tally)| ClassFigures {
        class: class.to_string(),
        totals: tally.totals,
    };
    let mut all: Vec<ClassFigures> = stock.sums.classes.iter().map(of).collect();
    if all.len() <= most {
        return all;
    }
    all.sort_by(|one, other| (other.totals.capacity, &one.class).cmp(&(one.totals.capacity, &other.class)));
    let mut rest = ClassFigures { class: OTHER.to_owned(), ..ClassFigures::default() };
    all.drain(most - 1..).for_each(|class| crate::stock::add_totals(&mut rest.totals, &class.totals));
    // A class of that name is one of the others.
    all.retain(|class| {
        let is_other = class.class == OTHER;
        if is_other {
            crate::stock::add_totals(&mut rest.totals, &class.totals);
        }
        !is_other
    });
    all.push(rest);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stock::Tally;

    fn stock(classes: u32) -> ClusterStock {
        let mut stock = ClusterStock::default();
        for class in 0..classes {
            let totals = DeviceTotals { capacity: class, free: class, ..DeviceTotals::default() };
            let name = if class == 7 { OTHER.to_owned() } else { format!("class-{class:03}") };
            stock.sums.classes.insert(name.into(), Tally { totals, ..Tally::default() });
        }
        stock
    }

    #[test]
    fn however_many_classes_there_are_figures_are_few_and_lose_no_device() {
        for (classes, expected) in [(0, 0), (5, 5), (8, 8), (9, 8), (200, 8)] {
            let figures = figures(&stock(classes), 8);
            assert!(figures.len() <= expected, "{classes}: {figures:?}");
            assert_eq!(figures.iter().map(|class| class.totals.free).sum::<u32>(), (0..classes).sum::<u32>());
            let mut names: Vec<&str> = figures.iter().map(|class| &*class.class).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), figures.len(), "{classes}");
        }
        let named = |figures: &[ClassFigures]| figures.iter().map(|class| class.class.clone()).collect::<Vec<_>>();
        let largest = figures(&stock(200), 3);
        assert_eq!(named(&largest), ["class-199", "class-198", "other"]);
    }
}
