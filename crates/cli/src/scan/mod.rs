//! `kvorum scan`: every key of a range that the cluster holds, to stdout.
//!
//! Records are held until the mark or the trailer behind them has come, and printed then. Where a connection breaks, what
//! stands behind its last mark is forgotten, and the next connection begins at that mark. So no key is printed twice, and
//! none is left out, in the order of the keys' bytes.
//!
//! A trailer has the number and the digest of what its connection brought. If they do not fit, the command fails, and
//! what was held is not printed. Promised is no more: what comes before a mark is printed before the trailer can vouch
//! for it, and no trailer vouches for the records of a connection that broke. Those are as sure as the network.
//!
//! What is held is bounded: see [`HELD_BYTES_MAX`]. So are attempts without progress: see [`ATTEMPTS`].

mod frames;
mod output;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use anyhow::Result;
use xxhash_rust::xxh3::Xxh3;

use crate::client::{ClientRequest, ClientResponse, percent_encode};
use crate::client_nodes::{ClientNodes, RequestEffect};
use crate::data_args::ScanArgs;
use crate::outcome::{ExitOutcome, Unreachable};
use crate::printable::printable;
use crate::refusal::finish;
use frames::{FRAME_BYTES_MAX, RecordFrame, ScanFrame, ScanTrailer, read_frame};
use output::{ScanPrinter, progress};

const FRAMES: &str = "application/vnd.kvorum.frames";
/// Records between two marks: a node sends one about every 256 KiB, and behind a record that is larger.
const HELD_BYTES_MAX: usize = FRAME_BYTES_MAX + (1 << 20);
/// So many in a row that bring nothing end it. The waits before them are 16 seconds together.
const ATTEMPTS: u32 = 8;
const WAIT: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// `kvorum scan`
pub(crate) fn scan(args: &ScanArgs) -> Result<ExitOutcome> {
    let mut run = ScanRun {
        args,
        nodes: args.quorum.server.nodes(),
        range: range(args),
        after: args.after.clone(),
        left: args.limit,
        has_begun: false,
        has_broken: false,
        printer: ScanPrinter::new(args.output, args.progress.then(progress)),
    };
    let mut in_vain = 0;
    loop {
        let (begin, printed) = (run.after.clone(), run.printer.count);
        let end = run.part().inspect_err(|_| run.printer.clear())?;
        in_vain = if (&begin, printed) == (&run.after, run.printer.count) { in_vain + 1 } else { 0 };
        if run.is_last(&end) || in_vain == ATTEMPTS {
            run.printer.clear();
            return run.conclude(end);
        }
        run.has_broken |= matches!(end, PartEnd::Broken(_));
        std::thread::sleep(WAIT.saturating_mul(1 << in_vain).min(WAIT_MAX));
    }
}

/// Path and query, but for where to begin and how many.
fn range(args: &ScanArgs) -> String {
    let encode = |text: &OsStr| percent_encode(text.as_bytes());
    let mut target = match &args.start {
        Some(start) => format!("/v0/scan?start={}", encode(start)),
        None => format!("/v0/scan?prefix={}", encode(args.prefix.as_deref().unwrap_or_default())),
    };
    if let Some(end) = &args.end {
        target.push_str(&format!("&end={}", encode(end)));
    }
    for (name, number) in args.quorum.parameters() {
        target.push_str(&format!("&{name}={number}"));
    }
    for (is_set, parameter) in [(args.keys_only, "&values=0"), (args.partial, "&partial=1")] {
        if is_set {
            target.push_str(parameter);
        }
    }
    target
}

/// A scan that may need several connections.
struct ScanRun<'a> {
    args: &'a ScanArgs,
    nodes: ClientNodes,
    range: String,
    /// The token behind all that was printed.
    after: Option<String>,
    /// How many may still be printed; without a limit none.
    left: Option<u32>,
    /// A node has begun to answer: from then on trouble may pass.
    has_begun: bool,
    /// A connection has ended without its trailer.
    has_broken: bool,
    printer: ScanPrinter,
}

/// How one connection ended.
enum PartEnd {
    /// As it should.
    Trailer(ScanTrailer),
    /// With a status other than 200.
    Refused(ClientResponse),
    /// Without a trailer.
    Broken(Unreachable),
}

/// What one connection has brought.
#[derive(Default)]
struct Received {
    count: u64,
    digest: Xxh3,
    /// What no mark has come behind, and its size.
    held: Vec<RecordFrame>,
    held_bytes: usize,
}

impl Received {
    fn hold(&mut self, record: RecordFrame) -> io::Result<()> {
        self.count += 1;
        self.digest.update(record.bytes());
        self.held_bytes += record.bytes().len();
        if self.held_bytes > HELD_BYTES_MAX {
            return Err(damaged("the answer has no marks"));
        }
        self.held.push(record);
        Ok(())
    }

    fn agree(&self, trailer: &ScanTrailer) -> io::Result<()> {
        let digest = self.digest.digest128();
        if (self.count, digest) == (trailer.count, trailer.digest) {
            return Ok(());
        }
        Err(damaged(&format!(
            "the answer was damaged on its way, and so may be what was printed: {} records with digest {digest:032x} \
             came, {} with digest {:032x} were sent",
            self.count, trailer.count, trailer.digest
        )))
    }
}

fn broken(error: Unreachable) -> Result<PartEnd> {
    let may_pass = error.cause.kind() != io::ErrorKind::InvalidData;
    if may_pass { Ok(PartEnd::Broken(error)) } else { Err(error.into()) }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl ScanRun<'_> {
    /// Prints what one connection brings. What cannot be mended by another is an error.
    fn part(&mut self) -> Result<PartEnd> {
        let mut target = self.range.clone();
        if let Some(left) = self.left {
            target.push_str(&format!("&limit={left}"));
        }
        if let Some(after) = &self.after {
            target.push_str(&format!("&after={}", percent_encode(after.as_bytes())));
        }
        let request = ClientRequest { accept: Some(FRAMES), ..ClientRequest::of("GET", &target) };
        let mut answer = match self.nodes.send(&request, RequestEffect::Read) {
            Ok(answer) if answer.status == 200 => answer,
            Ok(refusal) => return Ok(PartEnd::Refused(refusal)),
            Err(error) => return broken(error),
        };
        self.has_begun = true;
        let mut received = Received::default();
        loop {
            let frame = match read_frame(&mut answer) {
                Ok(frame) => frame,
                Err(cause) => {
                    let error = self.unreachable(cause);
                    // A token holds at any node.
                    self.nodes.pass_on();
                    return broken(error);
                }
            };
            match frame {
                ScanFrame::Record(record) => received.hold(record).map_err(|cause| self.unreachable(cause))?,
                ScanFrame::Mark(token) => self.print(&mut received, Some(token))?,
                ScanFrame::Trailer(mut trailer) => {
                    received.agree(&trailer).map_err(|cause| self.unreachable(cause))?;
                    if trailer.after.is_none() && !trailer.complete && !self.args.partial {
                        return Err(self
                            .unreachable(damaged("the trailer says neither all nor where to go on"))
                            .into());
                    }
                    self.print(&mut received, trailer.after.take())?;
                    return Ok(PartEnd::Trailer(trailer));
                }
            }
        }
    }

    /// Prints what is held: `after` stands behind it, unless that is the end.
    fn print(&mut self, received: &mut Received, after: Option<String>) -> Result<()> {
        let held = std::mem::take(&mut received.held);
        received.held_bytes = 0;
        self.printer.print(&held)?;
        let printed = u32::try_from(held.len()).unwrap_or(u32::MAX);
        self.left = self.left.map(|left| left.saturating_sub(printed));
        self.after = after;
        Ok(())
    }

    fn unreachable(&self, cause: io::Error) -> Unreachable {
        Unreachable { url: self.nodes.current().to_string(), cause }
    }

    /// Whether another attempt would be of no use, or of none any more.
    fn is_last(&self, end: &PartEnd) -> bool {
        let may_pass = match end {
            PartEnd::Trailer(_) => self.after.is_some(),
            PartEnd::Refused(answer) => self.has_begun && [503, 504].contains(&answer.status),
            PartEnd::Broken(_) => self.has_begun,
        };
        !may_pass || self.left == Some(0)
    }

    /// Says what is to be said of how it ended.
    fn conclude(&self, end: PartEnd) -> Result<ExitOutcome> {
        let outcome = match end {
            PartEnd::Trailer(trailer) => Ok(self.conclude_trailer(&trailer)),
            PartEnd::Refused(answer) => finish(answer, self.args.output.form()),
            PartEnd::Broken(_) if self.left == Some(0) => Ok(ExitOutcome::Done),
            PartEnd::Broken(error) => Err(error.into()),
        };
        if let Some(after) = self.after.as_deref().filter(|_| self.has_begun) {
            let limit = self.left.filter(|left| *left > 0).map_or_else(String::new, |left| format!(" --limit {left}"));
            let (count, after) = (self.printer.count, printable(after));
            eprintln!("kvorum: {count} records were printed; the same command goes on with{limit} --after {after}");
        }
        outcome
    }

    fn conclude_trailer(&self, trailer: &ScanTrailer) -> ExitOutcome {
        if self.args.partial && self.has_broken {
            eprintln!("kvorum: a connection broke: what it left out is not known, and only what others did is named");
        }
        if trailer.complete || (self.left == Some(0) && trailer.missing.is_empty()) {
            return ExitOutcome::Done;
        }
        if self.args.partial {
            let named = printable(&trailer.missing.join(", "));
            let named = if named.is_empty() { "some that the node does not name" } else { &named };
            eprintln!("kvorum: too few replicas answered, and these partitions were left out: {named}");
            return ExitOutcome::Done;
        }
        eprintln!("kvorum: too few replicas answer for the rest of the range");
        ExitOutcome::NotEnoughReplicas
    }
}
