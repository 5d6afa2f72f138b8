//! How evenly something lies on nodes.

use serde::{Deserialize, Serialize};

use crate::numbers::{count, float};

/// Amounts on each node, and how far the most and the least are from their mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evenness {
    /// What is counted.
    pub what: String,
    /// In the order of the nodes.
    pub per_node: Vec<f64>,
    /// The most as a part of the mean, 1 if all are alike; none if there is nothing.
    pub max_over_mean: Option<f64>,
    /// The least as a part of the mean.
    pub min_over_mean: Option<f64>,
}

impl Evenness {
    /// Of what is counted.
    #[must_use]
    pub fn of(what: &str, per_node: Vec<f64>) -> Self {
        let mean = per_node.iter().sum::<f64>() / float(count(per_node.len()).max(1));
        let share = |value: Option<f64>| value.filter(|_| mean > 0.0).map(|value| value / mean);
        Self {
            what: what.to_owned(),
            max_over_mean: share(per_node.iter().copied().reduce(f64::max)),
            min_over_mean: share(per_node.iter().copied().reduce(f64::min)),
            per_node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Evenness;

    #[test]
    fn the_most_and_the_least_are_parts_of_the_mean() {
        let even = Evenness::of("keys", vec![10.0, 10.0]);
        assert_eq!((even.max_over_mean, even.min_over_mean), (Some(1.0), Some(1.0)));
        let skewed = Evenness::of("keys", vec![70.0, 30.0]);
        assert_eq!((skewed.max_over_mean, skewed.min_over_mean), (Some(1.4), Some(0.6)));
        let one_has_all = Evenness::of("keys", vec![0.0, 0.0, 9.0]);
        assert_eq!((one_has_all.max_over_mean, one_has_all.min_over_mean), (Some(3.0), Some(0.0)));
    }

    #[test]
    fn nothing_is_neither_even_nor_uneven() {
        assert_eq!(Evenness::of("keys", vec![0.0, 0.0]).max_over_mean, None);
        assert_eq!(Evenness::of("keys", Vec::new()).min_over_mean, None);
    }
}
