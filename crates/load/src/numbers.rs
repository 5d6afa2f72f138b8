//! Figures for people: conversions that may round, and what is in the middle.

use std::time::Duration;

use serde::Deserialize;

/// Off by one in 2^53.
#[expect(clippy::cast_precision_loss, reason = "a figure may be off by one in 2^53")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

/// A number of things.
pub(crate) fn count(value: usize) -> u64 {
    u64::try_from(value).expect("a length fits 64 bits")
}

/// An index that comes from 64 bits: at the end of all memory if it does not fit.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Rounded down; 0 for what is negative or no number, the greatest for what is too great.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is what is promised"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

/// Whole microseconds, rounded down.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds with their fraction.
pub(crate) fn milliseconds(micros: u64) -> f64 {
    float(micros) / 1e3
}

/// None if one of them is not known, or there are none.
pub(crate) fn sum_of_known(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let known: Vec<f64> = values.collect::<Option<_>>()?;
    (!known.is_empty()).then(|| known.iter().sum())
}

/// The middle; between the two middle ones of an even number. 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { at(middle) } else { (at(middle.saturating_sub(1)) + at(middle)) / 2.0 }
}

/// Bytes with wrk's units, which are binary.
pub(crate) fn bytes(value: f64) -> String {
    let units = [(1024_f64.powi(3), "GB"), (1024_f64.powi(2), "MB"), (1024.0, "KB")];
    match units.iter().find(|(size, _)| value >= *size) {
        Some((size, unit)) => format!("{:.2}{unit}", value / size),
        None => format!("{value:.2}B"),
    }
}

/// A number; not one where JSON has `null`, as which one that is none is written.
pub(crate) fn number_or_nan<'de, D: serde::Deserializer<'de>>(figure: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(figure)?.unwrap_or(f64::NAN))
}
