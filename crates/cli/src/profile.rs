//! `profile`: asks a node's admin listener for a profile, and shows it. The node measures; nothing here does.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use inferno::differential;
use inferno::flamegraph::{self, Options};
use kvorum_config::NodeUrl;
use kvorum_load::report::write_file;
use serde_json::{Value, json};

use crate::args::{ProfileArgs, ProfileKind};
use crate::client::{ClientRequest, ClientResponse, ResponseBounds, send};
use crate::key_file::ClientKey;
use crate::outcome::{ExitOutcome, Unreachable};
use crate::output::{OutputForm, show};
use crate::printable::printable_lines;

/// Rows of the table.
const TOP: usize = 20;
/// For the node to name what it has found, and for its answer, after the profile's time.
const AFTERWARDS: Duration = Duration::from_secs(60);
/// Of an answer.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Of a refusal's text.
const REFUSAL_BYTES_MAX: usize = 4 << 10;
/// Of the names in the table.
const NAME_CHARS_MAX: usize = 120;

/// `kvorum profile`
pub(crate) fn profile(args: &ProfileArgs) -> Result<ExitOutcome> {
    let kind = args.kind.to_possible_value().expect("no kind is hidden").get_name().to_owned();
    // The node gives the profile up with its connection.
    args.parent.at_its_end(|| std::process::exit(130))?;
    // What cannot be read or written is an error before the node is troubled.
    let old = args.diff.as_deref().map(|old| read_old(old, &kind)).transpose()?;
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let TakenProfile { facts, collapsed } = take(args, &kind)?;
    let title = format!("{kind} profile of {}", args.url);
    let text = format!("# {title}\n\n{}\n\n{}", facts.text(), table(&collapsed, &facts.unit));
    // First, so that a full disk does not lose it; and a reader that leaves does not lose the files.
    let printed = match args.form.output {
        OutputForm::Text => io::stdout().write_all(printable_lines(&text).as_bytes()),
        OutputForm::Json => Ok(()),
    };
    let files = Files { dir: &args.out, kind: &kind };
    files.write("collapsed", collapsed.as_bytes())?;
    files.write("md", text.as_bytes())?;
    let is_empty = collapsed.is_empty();
    if is_empty {
        files.remove("svg")?;
    } else {
        let mut graph = Vec::new();
        flamegraph::from_lines(&mut options(&title, &facts), collapsed.lines(), &mut graph)
            .context("the flame graph")?;
        files.write("svg", &graph)?;
    }
    match old.filter(|_| !is_empty) {
        Some(old) => files.write("diff.svg", &difference(&old, &collapsed, &title, &facts)?)?,
        // That of an earlier profile is none of this one.
        None => files.remove("diff.svg")?,
    }
    printed?;
    let graph = (!is_empty).then(|| files.path("svg").display().to_string());
    let text = match &graph {
        None => "nothing was found, so there is no flame graph".to_owned(),
        Some(path) => format!("\n{path}"),
    };
    let top: Vec<Value> = frames(&collapsed)
        .0
        .into_iter()
        .map(|(frame, own, all)| json!({"frame": frame, "own": own, "total": all}))
        .collect();
    let object = json!({"node": args.url.as_str(), "kind": kind, "unit": facts.unit, "seconds": number(&facts.seconds),
        "samples": number(&facts.samples), "lost": number(&facts.lost), "flame_graph": graph, "top": top});
    show(args.form.output, &object, &text)
}

/// A number that a node has given as text.
fn number(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

/// What a node has answered.
struct TakenProfile {
    facts: ProfileSummary,
    collapsed: String,
}

/// The answer's facts about its profile.
struct ProfileSummary {
    unit: String,
    seconds: String,
    frequency: Option<String>,
    samples: String,
    lost: String,
    truncated_percent: String,
    note: String,
}

impl ProfileSummary {
    fn of(answer: &ClientResponse) -> Option<Self> {
        let header = |name: &str| answer.header(&format!("kvorum-profile-{name}")).map(str::to_owned);
        Some(Self {
            unit: header("unit")?,
            seconds: header("seconds")?,
            frequency: header("frequency"),
            samples: header("samples")?,
            lost: header("lost")?,
            truncated_percent: header("truncated-percent")?,
            note: header("note")?,
        })
    }

    fn text(&self) -> String {
        let Self { seconds, samples, lost, truncated_percent, note, .. } = self;
        let frequency = self.frequency.as_ref().map(|hz| format!(" at {hz} Hz")).unwrap_or_default();
        format!(
            "{samples} samples in {seconds} s{frequency}; {truncated_percent} % of them could not be unwound to where \
             their thread began, {lost} were lost; {note}."
        )
    }
}

fn take(args: &ProfileArgs, kind: &str) -> Result<TakenProfile> {
    let frequency =
        if args.kind == ProfileKind::Cpu { format!("&frequency={}", args.frequency) } else { String::new() };
    let target = format!("/debug/profile/{kind}?seconds={}{frequency}", args.seconds);
    let deadline = Instant::now() + Duration::from_secs(u64::from(args.seconds)) + AFTERWARDS;
    let bounds = ResponseBounds::Whole { deadline, bytes_max: ANSWER_BYTES_MAX };
    let (url, key) = (args.url.clone(), args.key_file.clone());
    let asking = thread::spawn(move || ask(&url, &target, bounds, key.as_ref()));
    let bar = ProgressBar::new(u64::from(args.seconds));
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} s  {msg}").expect("a valid template"));
    bar.set_message(format!("{kind} profile"));
    let begin = Instant::now();
    while !asking.is_finished() {
        thread::sleep(Duration::from_millis(50));
        bar.set_position(begin.elapsed().as_secs());
    }
    bar.finish_and_clear();
    asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What the head says is looked at before a body is kept.
fn ask(url: &NodeUrl, target: &str, bounds: ResponseBounds, key: Option<&ClientKey>) -> Result<TakenProfile> {
    let request = ClientRequest { key, ..ClientRequest::of("GET", target) };
    let mut answer = send(url, bounds, &request).context("does the node listen there (admin.listen)?")?;
    let failed = |cause| Unreachable { url: url.to_string(), cause };
    if answer.status != 200 {
        let mut said = [0; REFUSAL_BYTES_MAX];
        let mut room = said.as_mut_slice();
        // The status is what counts; a body that breaks off or goes on only explains less.
        let _ = answer.copy_body(&mut room);
        let free = room.len();
        let said = String::from_utf8_lossy(said.get(..REFUSAL_BYTES_MAX - free).unwrap_or_default());
        // What a node's other listener answers to an unknown path.
        let hint = if matches!(answer.status, 400 | 404) { " (is that the node's admin listener?)" } else { "" };
        return Err(failed(io::Error::other(format!("{} {}{hint}", answer.status, said.trim()))).into());
    }
    let facts = ProfileSummary::of(&answer).ok_or_else(|| failed(io::Error::other("this is no profile")))?;
    let mut body = Vec::new();
    answer.copy_body(&mut body).map_err(failed)?;
    Ok(TakenProfile { facts, collapsed: String::from_utf8_lossy(&body).into_owned() })
}

fn read_old(old: &Path, kind: &str) -> Result<String> {
    let file = if old.is_dir() { old.join(format!("{kind}.collapsed")) } else { old.to_owned() };
    // A file with a name of the user's own is taken for what it is said to be.
    let of = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".collapsed"));
    if let Some(of) = of.filter(|of| *of != kind && ProfileKind::from_str(of, false).is_ok()) {
        anyhow::bail!("{}: this is a profile of {of}, to which one of {kind} cannot be compared", file.display());
    }
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let whole = text.lines().all(|line| line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<u64>().is_ok()));
    anyhow::ensure!(whole, "{}: this is no profile: each line is a stack and a number", file.display());
    Ok(text)
}

fn options(title: &str, facts: &ProfileSummary) -> Options<'static> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some(facts.text());
    options.count_name = facts.unit.clone();
    // Equal names have equal colours, in every graph.
    options.hash = true;
    options.deterministic = true;
    options
}

/// The new profile, coloured by how each frame has changed; the old one is scaled to the same total first.
fn difference(old: &str, new: &str, title: &str, facts: &ProfileSummary) -> Result<Vec<u8>> {
    let mut both = Vec::new();
    let normalized = differential::Options { normalize: true, ..differential::Options::default() };
    differential::from_readers(normalized, old.as_bytes(), new.as_bytes(), &mut both).context("the comparison")?;
    let mut options = options(&format!("{title}, compared"), facts);
    let mut graph = Vec::new();
    flamegraph::from_reader(&mut options, both.as_slice(), &mut graph).context("the differential flame graph")?;
    Ok(graph)
}

struct Files<'a> {
    dir: &'a Path,
    kind: &'a str,
}

impl Files<'_> {
    fn path(&self, ending: &str) -> PathBuf {
        self.dir.join(format!("{}.{ending}", self.kind))
    }

    fn remove(&self, ending: &str) -> Result<()> {
        let path = self.path(ending);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context(path.display().to_string()),
            _ => Ok(()),
        }
    }

    /// Whole, or not at all: then what was there stays.
    fn write(&self, ending: &str, bytes: &[u8]) -> Result<()> {
        Ok(write_file(&self.path(ending), bytes)?)
    }
}

/// The frames with the largest values of their own: each with those and with all below it; and the sum. A frame that is
/// in a stack several times counts once.
fn frames(collapsed: &str) -> (Vec<(&str, u64, u64)>, u64) {
    let mut frames: HashMap<&str, (u64, u64)> = HashMap::new();
    let mut whole = 0;
    for (stack, value) in collapsed.lines().filter_map(|line| line.rsplit_once(' ')) {
        let value = value.parse::<u64>().unwrap_or(0);
        whole += value;
        let mut seen = HashSet::new();
        for frame in stack.split(';').filter(|frame| seen.insert(*frame)) {
            frames.entry(frame).or_default().1 += value;
        }
        frames.entry(stack.rsplit(';').next().unwrap_or(stack)).or_default().0 += value;
    }
    let mut rows: Vec<(&str, u64, u64)> = frames.into_iter().map(|(frame, (own, all))| (frame, own, all)).collect();
    rows.sort_by_key(|(frame, own, all)| (std::cmp::Reverse((*own, *all)), *frame));
    rows.truncate(TOP);
    (rows, whole)
}

/// The same as Markdown.
fn table(collapsed: &str, unit: &str) -> String {
    let (rows, whole) = frames(collapsed);
    let mut table = format!("| self % | self {unit} | total % | total {unit} | frame |\n|--:|--:|--:|--:|---|\n");
    for (frame, own, all) in rows {
        let name: String = frame.chars().take(NAME_CHARS_MAX).collect::<String>().replace('|', "\\|");
        let (own_percent, all_percent) = (percent(own, whole), percent(all, whole));
        writeln!(table, "| {own_percent:.1} | {own} | {all_percent:.1} | {all} | `{name}` |")
            .expect("a string takes all text");
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn the_table_has_what_is_largest_by_itself_and_counts_recursion_once() {
        let text = table("t;a;b;a 30\nt;a;c 60\nt;d 10\n", "samples");
        let rows: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "| 60.0 | 60 | 60.0 | 60 | `c` |",
            "| 30.0 | 30 | 90.0 | 90 | `a` |",
            "| 10.0 | 10 | 10.0 | 10 | `d` |",
            "| 0.0 | 0 | 100.0 | 100 | `t` |",
            "| 0.0 | 0 | 30.0 | 30 | `b` |",
        ];
        assert_eq!(rows, expected);
        let many: String = (0..30).map(|frame| format!("f{frame} 1\n")).collect();
        assert_eq!(table(&many, "bytes").lines().count(), 2 + super::TOP);
    }
}
