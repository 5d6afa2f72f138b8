//! Two sides compared, percentile by percentile, by runs that were repeated.
//!
//! A difference is one if a rank test says so, for all figures together with a chance of 5 % for a false alarm, *and*
//! it is at least 2 %. Runs of live sides are interleaved, A B A B, so that what changes with time on the machine
//! affects both runs of a pair, and it is pairs that are tested: their ratios lack what both had. Saved runs belong to
//! no pairs, and are tested as two sets. Of a single saved run on each side the seconds are taken in blocks instead:
//! that shows whether these two runs differ, not whether others would.

mod live;
mod measurement;
mod statistics;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use live::{COMPARISON_FILE, PairedRuns, Side, Turn, kill_server, live};
pub use measurement::Measurement;

use crate::Error;
use crate::numbers::{count, float, median, number_or_nan};
use crate::random::Random;
use crate::record::histogram;
use crate::report::{Document, LATENCY_FILE, Percentiles, RUN_FILE, RateAsked, read_document, read_log};
use statistics::{holm, median_interval, rank_test, ratio, ratio_interval, signed_rank_test};

/// The chance of seeing a difference in any figure where there is none.
const FALSE_ALARM: f64 = 0.05;
/// A change below this is of no interest.
const CHANGE_MIN: f64 = 0.02;
/// An interval that reaches farther than this leaves room for changes of interest.
const INTERVAL_WIDE: f64 = 0.25;
/// Blocks that a single saved run is cut into.
const BLOCKS: usize = 10;
/// With this share of the requests never sent, p99.9 lacks all of its tail.
const UNSENT_SHARE: f64 = 0.001;

/// How measurements of two sides belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Each of A was followed by the one of B in its place.
    Pairs,
    /// Runs that were made at any time.
    Sets,
    /// Parts of one run of each side.
    Blocks,
}

impl Pairing {
    /// With fewer on both sides no ranks are so rare that six figures pass the test.
    fn runs_min(self) -> usize {
        if self == Self::Pairs { 8 } else { 5 }
    }

    fn probability(self, a: &[f64], b: &[f64]) -> f64 {
        if self == Self::Pairs { signed_rank_test(&ratios(a, b)) } else { rank_test(a, b) }
    }

    /// B as a part of A, and where that lies with 95 %.
    fn ratio(self, a: &[f64], b: &[f64], random: &mut Random) -> (f64, (f64, f64)) {
        if self == Self::Pairs {
            let ratios = ratios(a, b);
            return (median(&ratios), median_interval(&ratios, random));
        }
        (ratio(median(a), median(b)), ratio_interval(a, b, random))
    }
}

fn ratios(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| ratio(*a, *b)).collect()
}

/// What became of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Nothing that is not chance, or too little.
    None,
    /// B is better.
    Better,
    /// B is worse.
    Worse,
}

/// One figure, compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparedFigure {
    /// `rate` in requests a second; percentiles in ms; `cpu`, which is the nodes', in µs a request.
    pub figure: String,
    /// Median of A's runs.
    pub a: f64,
    /// Median of B's.
    pub b: f64,
    /// B's as a part of A's; of pairs, the median of theirs.
    #[serde(deserialize_with = "number_or_nan")]
    pub ratio: f64,
    /// Where it lies with 95 %.
    #[serde(deserialize_with = "number_or_nan")]
    pub ratio_low: f64,
    /// Where it lies with 95 %.
    #[serde(deserialize_with = "number_or_nan")]
    pub ratio_high: f64,
    /// The chance of ranks this far apart without a difference, corrected for the number of figures.
    pub probability: f64,
    /// Whether that is a difference.
    pub change: Change,
}

/// The whole of `compare.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// What A is.
    pub a: String,
    /// What B is.
    pub b: String,
    /// Runs, or blocks, of each.
    pub runs: [u64; 2],
    /// Errors and timeouts in all runs of each; latencies are of what succeeded.
    pub errors: [u64; 2],
    /// What puts the figures of a side in doubt, a sentence each.
    #[serde(default)]
    pub doubts: Vec<String>,
    /// What was not asked alike of all runs, of one side or of both: then that may be the difference.
    #[serde(default)]
    pub unlike: Vec<String>,
    /// Whether they are blocks of one run each.
    pub blocks: bool,
    /// Whether each of A's belongs to one of B's.
    #[serde(default)]
    pub paired: bool,
    /// Figure by figure.
    pub rows: Vec<ComparedFigure>,
    /// In words.
    pub verdict: String,
}

/// Compares the measurements of two sides: as many of each if they are pairs.
#[must_use]
pub fn compare(names: [&str; 2], a: &[Measurement], b: &[Measurement], kind: Pairing) -> Comparison {
    assert!(kind != Pairing::Pairs || a.len() == b.len(), "a pair has two sides");
    let mut random = Random::new(1);
    let column = |runs: &[Measurement], place: usize| -> Option<Vec<f64>> {
        runs.iter().map(|run| run.figures().get(place).and_then(|(_, value)| *value)).collect()
    };
    // What is not known of every run is not compared.
    let figures = Measurement::default().figures().into_iter().enumerate();
    let columns: Vec<_> =
        figures.filter_map(|(place, (name, _))| Some((name, column(a, place)?, column(b, place)?))).collect();
    let probabilities = holm(&columns.iter().map(|(_, a, b)| kind.probability(a, b)).collect::<Vec<_>>());
    let mut rows: Vec<ComparedFigure> = columns
        .iter()
        .zip(probabilities)
        .map(|((figure, a, b), probability)| row(figure, [a, b], probability, kind, &mut random))
        .collect();
    let enough = a.len().min(b.len()) >= kind.runs_min();
    if !enough {
        rows.iter_mut().for_each(|row| row.change = Change::None);
    }
    Comparison {
        a: names[0].to_owned(),
        b: names[1].to_owned(),
        runs: [count(a.len()), count(b.len())],
        errors: [a, b].map(|runs| runs.iter().map(|run| run.errors).sum()),
        doubts: [doubts('A', a), doubts('B', b)].concat(),
        unlike: Vec::new(),
        blocks: kind == Pairing::Blocks,
        paired: kind == Pairing::Pairs,
        verdict: verdict(&rows, enough, kind),
        rows,
    }
}

/// Whose fault the figures of a side may be, and how much of them is missing.
fn doubts(side: char, runs: &[Measurement]) -> Vec<String> {
    let those = |is_one: fn(&Measurement) -> bool| {
        let number = runs.iter().filter(|run| is_one(run)).count();
        (number > 0).then(|| format!("{number} of {} runs", runs.len()))
    };
    let sum = |of: fn(&Measurement) -> u64| float(runs.iter().map(of).sum());
    let unsent = sum(|run| run.unsent) / sum(|run| run.due).max(1.0);
    let doubts = [
        those(|run| run.is_limited).map(|runs| format!("the generator was the limit in {runs}")),
        those(|run| run.is_late)
            .map(|runs| format!("the generator was late, and latencies are partly its own, in {runs}")),
        those(|run| run.cpu_us.is_none())
            .filter(|_| runs.iter().any(|run| run.cpu_us.is_some()))
            .map(|runs| format!("cpu is not compared, it is not known in {runs}")),
        (unsent >= UNSENT_SHARE).then(|| format!("{:.1} % of the requests were never sent", unsent * 100.0)),
        those(|run| run.is_interrupted).map(|runs| format!("an interrupt ended {runs}")),
    ];
    doubts.into_iter().flatten().map(|doubt| format!("{side}: {doubt}")).collect()
}

fn row(figure: &str, [a, b]: [&[f64]; 2], probability: f64, kind: Pairing, random: &mut Random) -> ComparedFigure {
    let (ratio, (ratio_low, ratio_high)) = kind.ratio(a, b, random);
    let changed = probability < FALSE_ALARM && (ratio - 1.0).abs() >= CHANGE_MIN;
    // More is better of a rate, less of all others.
    let change = match (changed, (ratio > 1.0) == (figure == "rate")) {
        (false, _) => Change::None,
        (true, true) => Change::Better,
        (true, false) => Change::Worse,
    };
    ComparedFigure {
        figure: figure.to_owned(),
        a: median(a),
        b: median(b),
        ratio,
        ratio_low,
        ratio_high,
        probability,
        change,
    }
}

fn verdict(rows: &[ComparedFigure], enough: bool, kind: Pairing) -> String {
    if !enough {
        let what = if kind == Pairing::Pairs { "pairs" } else { "runs of each" };
        return format!("too little to compare: at least {} {what} are needed", kind.runs_min());
    }
    let of = |change: Change| -> Vec<String> {
        let rows = rows.iter().filter(|row| row.change == change);
        rows.map(|row| format!("{} {:+.1} %", row.figure, (row.ratio - 1.0) * 100.0)).collect()
    };
    let (better, worse) = (of(Change::Better), of(Change::Worse));
    let mut text = match (better.is_empty(), worse.is_empty()) {
        (true, true) => format!("no difference{}", hidden(rows)),
        (false, true) => format!("B is better: {}", better.join(", ")),
        (true, false) => format!("B is worse: {}", worse.join(", ")),
        (false, false) => format!("B is better in {} and worse in {}", better.join(", "), worse.join(", ")),
    };
    if kind == Pairing::Blocks {
        text.push_str(" (between these two runs; whether it would be so again takes repeated runs)");
    }
    text
}

/// What may hide where nothing was seen.
fn hidden(rows: &[ComparedFigure]) -> &'static str {
    let far = |ratio: f64| (ratio - 1.0).abs() > INTERVAL_WIDE;
    match rows.iter().any(|row| far(row.ratio_low) || far(row.ratio_high)) {
        true => {
            " beyond noise: runs, or pairs, differ so much that even a large one could hide; more of them, or a quieter machine, would show it"
        }
        false => "",
    }
}

impl Comparison {
    /// As a table, and the verdict below it.
    #[must_use]
    pub fn text(&self) -> String {
        let what = match (self.blocks, self.paired) {
            (true, _) => "blocks of one run, medians",
            (_, true) => "runs in turn, medians; changes are those of pairs",
            _ => "runs, medians",
        };
        let mut out = format!("A: {}\nB: {}\n{} and {} {what}\n\n", self.a, self.b, self.runs[0], self.runs[1]);
        let mut line = |text: std::fmt::Arguments<'_>| writeln!(out, "{text}").expect("a string takes everything");
        line(format_args!("{:8}{:>12}{:>12}{:>10}{:>22}{:>9}", "", "A", "B", "change", "95 % interval", "p"));
        let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        for row in &self.rows {
            let interval = format!("{} … {}", percent(row.ratio_low), percent(row.ratio_high));
            let mark = if row.change == Change::None { "" } else { "  *" };
            let (figure, probability) = (&row.figure, row.probability);
            let change = percent(row.ratio);
            line(format_args!(
                "{figure:8}{:>12.3}{:>12.3}{change:>10}{interval:>22}{probability:>9.3}{mark}",
                row.a, row.b
            ));
        }
        if self.errors != [0, 0] {
            let [a, b] = self.errors;
            line(format_args!("\nA had {a} errors and timeouts, B {b}: latencies are of what succeeded"));
        }
        if !self.doubts.is_empty() {
            line(format_args!("\n{}", self.doubts.join("\n")));
        }
        if !self.unlike.is_empty() {
            line(format_args!("\nThe runs were not asked for the same: {}", self.unlike.join("; ")));
        }
        line(format_args!("\n{}", self.verdict));
        out
    }
}

/// The runs saved in a directory: itself, also by the name of its file, or those in its subdirectories, by their names.
///
/// # Errors
/// [`Error::Usage`] if there are none, or one of them is damaged.
pub fn saved_runs(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    if dir.join(RUN_FILE).is_file() {
        return Ok(vec![dir.to_owned()]);
    }
    if dir.ends_with(RUN_FILE) && dir.is_file() {
        return Ok(vec![Path::new(".").join(dir).with_file_name("")]);
    }
    let entries = std::fs::read_dir(dir).map_err(Error::system(dir.display().to_string()))?;
    let mut runs: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.join(RUN_FILE).is_file()).collect();
    runs.sort_unstable();
    if runs.is_empty() {
        return Err(Error::Usage(format!("{}: neither {RUN_FILE} nor directories with one", dir.display())));
    }
    Ok(runs)
}

/// A saved run: its directory, and its document.
type Saved = (PathBuf, Document);

/// Compares two directories of saved runs.
///
/// # Errors
/// As [`saved_runs`] and [`Measurement::of`]; [`Error::Refused`] if there is one run on each side and one of them has
/// no whole second, or a block without a success.
pub fn compare_saved(a: &Path, b: &Path) -> Result<Comparison, Error> {
    let read = |run: PathBuf| read_document(&run.join(RUN_FILE)).map(|document| (run, document));
    let all = |dir: &Path| saved_runs(dir)?.into_iter().map(read).collect::<Result<Vec<Saved>, Error>>();
    let measured = |runs: &[Saved]| -> Result<Vec<Measurement>, Error> {
        runs.iter().map(|(run, document)| Measurement::of(document, &run.display().to_string())).collect()
    };
    let (runs_a, runs_b) = (all(a)?, all(b)?);
    let (name_a, name_b) = (a.display().to_string(), b.display().to_string());
    let names = [name_a.as_str(), name_b.as_str()];
    let whole = compare(names, &measured(&runs_a)?, &measured(&runs_b)?, Pairing::Sets);
    let comparison = match (runs_a.as_slice(), runs_b.as_slice()) {
        // Of a block nothing is saved but its latencies.
        ([one], [other]) => {
            let (errors, doubts) = (whole.errors, whole.doubts);
            Comparison { errors, doubts, ..compare(names, &blocks(one)?, &blocks(other)?, Pairing::Blocks) }
        }
        _ => whole,
    };
    Ok(Comparison { unlike: unlike(&runs_a, &runs_b), ..comparison })
}

/// What was not asked alike of all runs, whichever side they are of, with the values of each side.
fn unlike(a: &[Saved], b: &[Saved]) -> Vec<String> {
    let values = |runs: &[Saved]| {
        let mut values = BTreeMap::<_, BTreeSet<String>>::new();
        for (name, value) in runs.iter().flat_map(|(_, run)| asked(run)) {
            values.entry(name).or_default().insert(value);
        }
        values
    };
    let text = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(", ");
    // What a run of an earlier version lacks is not known to differ.
    let known = |values: &BTreeSet<String>| !values.contains("");
    let both = values(a).into_iter().zip(values(b).into_values()).filter(|((_, a), b)| known(a) && known(b));
    let differing = both.filter(|((_, a), b)| a.union(b).count() > 1);
    differing.map(|((name, a), b)| format!("{name} A {}, B {}", text(a), text(b))).collect()
}

/// What makes two runs one measurement.
fn asked(run: &Document) -> [(&'static str, String); 13] {
    let rate = match &run.rate_asked {
        RateAsked::PerSecond(rate) => rate.to_string(),
        RateAsked::Word(word) => word.clone(),
    };
    let replicas = |number: Option<u8>| number.map_or_else(|| "default".to_owned(), |number| number.to_string());
    [
        ("workload", run.workload.clone()),
        ("path", run.path.clone()),
        ("rate", rate),
        ("keys", run.keys.to_string()),
        ("key order", run.key_order.clone()),
        ("value size", run.value_size.clone()),
        ("compressible", run.compressible.to_string()),
        ("ack", replicas(run.ack)),
        ("from", replicas(run.from)),
        ("connections", run.connections.to_string()),
        ("pipeline", run.pipeline.to_string()),
        // Before there were batches, there were none.
        ("batch", run.batch.max(1).to_string()),
        ("timeout", format!("{} s", run.timeout_s)),
    ]
}

/// A run cut into blocks of whole seconds.
fn blocks((run, document): &Saved) -> Result<Vec<Measurement>, Error> {
    let seconds = read_log(&run.join(LATENCY_FILE))?;
    // What came behind the end is of the last second.
    let whole = crate::numbers::index(crate::numbers::whole(document.duration_s));
    if whole == 0 {
        let text =
            format!("the run {} has no whole second to compare; several runs of each side can be", run.display());
        return Err(Error::Refused(text));
    }
    let length = whole.div_ceil(BLOCKS);
    let Some(seconds) = seconds.get(..whole) else {
        let (run, there) = (run.display(), seconds.len());
        return Err(Error::Refused(format!("the run {run} has latencies of {there} of its {whole} seconds only")));
    };
    let blocks: Vec<Measurement> = seconds.chunks_exact(length).map(block).collect();
    // Their latencies are not 0: they have none, and would be the best of all.
    let silent = blocks.iter().filter(|block| block.rate <= 0.0).count();
    if silent > 0 {
        return Err(Error::Refused(format!(
            "nothing succeeded in {silent} of {} blocks of the run {}: seconds of it cannot be compared; several runs \
             of each side can",
            blocks.len(),
            run.display()
        )));
    }
    Ok(blocks)
}

fn block(seconds: &[Histogram<u64>]) -> Measurement {
    let mut sum = histogram();
    for second in seconds {
        sum.add(second).expect("all histograms have the same bounds");
    }
    let rate = float(sum.len()) / float(count(seconds.len()));
    Measurement { rate, latency_ms: Percentiles::of(&sum), ..Measurement::default() }
}

#[cfg(test)]
mod tests {
    use super::{Change, Measurement, Pairing, compare};
    use crate::random::Random;
    use crate::report::Percentiles;

    /// Runs as a noisy machine makes them: a common factor of each run, and some chance of each figure.
    fn runs(number: usize, p99: f64, random: &mut Random) -> Vec<Measurement> {
        let mut normal = |deviation: f64| {
            let sum: f64 = (0..12).map(|_| random.unit()).sum();
            (deviation * (sum - 6.0)).exp()
        };
        let mut run = || {
            let machine = normal(0.08);
            let mut of = |value: f64, deviation: f64| value * machine * normal(deviation);
            Measurement {
                rate: of(20_000.0, 0.01),
                latency_ms: Percentiles {
                    p50: of(1.0, 0.02),
                    p90: of(2.0, 0.03),
                    p99: of(p99, 0.05),
                    p999: of(9.0, 0.15),
                    ..Percentiles::default()
                },
                cpu_us: Some(of(40.0, 0.02)),
                ..Measurement::default()
            }
        };
        (0..number).map(|_| run()).collect()
    }

    #[test]
    fn few_runs_change_nothing_however_far_apart() {
        let mut random = Random::new(5);
        let comparison = compare(["a", "b"], &runs(2, 5.0, &mut random), &runs(30, 50.0, &mut random), Pairing::Sets);
        assert!(comparison.rows.iter().any(|row| row.probability < 0.05), "it would be one");
        assert!(comparison.rows.iter().all(|row| row.change == Change::None), "{}", comparison.verdict);
    }

    #[test]
    fn the_same_against_itself_is_no_difference_in_nearly_all_of_300_repeats() {
        let mut random = Random::new(11);
        for number in [5, 6, 10] {
            let repeats = (0..300).map(|_| (runs(number, 5.0, &mut random), runs(number, 5.0, &mut random)));
            let same =
                repeats.filter(|(a, b)| compare(["a", "b"], a, b, Pairing::Sets).verdict.starts_with("no difference"));
            let same = same.count();
            assert!(same >= 285, "{same} of 300 with {number} runs");
        }
    }

    /// Two sides in turn on a machine that is up to twice as fast in one hour as in another.
    fn pairs(number: usize, cost: f64, random: &mut Random) -> (Vec<Measurement>, Vec<Measurement>) {
        let both = (0..number).map(|_| {
            let hour = 20.0 * (1.0 + random.unit());
            let mut run = |cost: f64| Measurement { cpu_us: Some(hour * cost), ..runs(1, 5.0, random).remove(0) };
            (run(1.0), run(cost))
        });
        let (a, mut b): (Vec<_>, Vec<_>) = both.unzip();
        let mut noise = |value: f64| value * (1.0 + (random.unit() - 0.5) / 10.0);
        b.iter_mut().for_each(|run| run.cpu_us = run.cpu_us.map(&mut noise));
        (a, b)
    }

    #[test]
    fn pairs_tell_what_the_hour_would_hide() {
        let mut random = Random::new(15);
        let found = |number: usize, cost: f64, kind: Pairing, random: &mut Random| {
            let repeats = (0..100).map(|_| pairs(number, cost, random));
            let is_none = |(a, b): &(Vec<_>, Vec<_>)| {
                let rows = compare(["a", "b"], a, b, kind).rows;
                rows.iter().all(|row| row.change == Change::None)
            };
            100 - repeats.filter(is_none).count()
        };
        let (paired, sets) =
            (found(20, 0.95, Pairing::Pairs, &mut random), found(20, 0.95, Pairing::Sets, &mut random));
        assert!(paired >= 97 && sets <= 10, "{paired} and {sets} of 100");
        let false_alarms = [8, 12, 20].map(|number| found(number, 1.0, Pairing::Pairs, &mut random));
        assert!(false_alarms.iter().all(|alarms| *alarms <= 5), "{false_alarms:?} of 100");
        // All eight are needed.
        assert_eq!(found(7, 0.5, Pairing::Pairs, &mut random), 0);
        assert_eq!(found(8, 0.5, Pairing::Pairs, &mut random), 100);
    }

    #[test]
    fn a_difference_above_the_noise_is_found() {
        let mut random = Random::new(12);
        let found = |random: &mut Random| {
            let (a, b) = (runs(6, 5.0, random), runs(6, 8.0, random));
            compare(["a", "b"], &a, &b, Pairing::Sets).rows[3].change == Change::Worse
        };
        let hits = (0..200).filter(|_| found(&mut random)).count();
        assert!(hits >= 190, "{hits} of 200");
    }

    #[test]
    fn a_change_of_less_than_two_percent_is_none_however_sure() {
        let of = |rate: f64| {
            let run = |number: u32| Measurement { rate: rate + f64::from(number), ..Measurement::default() };
            (0..10).map(run).collect::<Vec<_>>()
        };
        let comparison = compare(["a", "b"], &of(20_000.0), &of(20_200.0), Pairing::Sets);
        assert!(comparison.rows[0].probability < 0.05);
        assert_eq!(comparison.verdict, "no difference");
        assert!(!comparison.rows.iter().any(|row| row.change != Change::None));
    }

    #[test]
    fn what_is_not_known_of_every_run_is_not_compared() {
        let mut random = Random::new(14);
        let (a, mut b) = (runs(6, 5.0, &mut random), runs(6, 5.0, &mut random));
        let last = |b: &[Measurement]| {
            compare(["a", "b"], &a, b, Pairing::Sets).rows.pop().map(|row| (row.figure, row.change))
        };
        b.iter_mut().for_each(|run| run.cpu_us = run.cpu_us.map(|cost| cost / 2.0));
        assert_eq!(last(&b), Some(("cpu".into(), Change::Better)));
        b[3].cpu_us = None;
        assert_eq!(last(&b), Some(("p999".into(), Change::None)));
        let doubts = compare(["a", "b"], &a, &b, Pairing::Sets).doubts;
        assert_eq!(doubts, ["B: cpu is not compared, it is not known in 1 of 6 runs"]);
    }

    #[test]
    fn something_against_nothing_is_a_difference() {
        let of = |rate: f64| vec![Measurement { rate, ..Measurement::default() }; 10];
        let change = |a, b| compare(["a", "b"], &of(a), &of(b), Pairing::Sets).rows[0].change;
        assert_eq!((change(0.0, 1000.0), change(1000.0, 0.0)), (Change::Better, Change::Worse));
        assert_eq!(change(0.0, 0.0), Change::None);
    }

    #[test]
    fn few_runs_tell_nothing() {
        let mut random = Random::new(13);
        let comparison = compare(["a", "b"], &runs(4, 1.0, &mut random), &runs(4, 9.0, &mut random), Pairing::Sets);
        assert!(comparison.verdict.starts_with("too little"), "{}", comparison.verdict);
    }
}
