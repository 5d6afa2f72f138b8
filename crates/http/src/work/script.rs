//! `POST /v0/script`: a range mapped by the client's own code, in a process that can do nothing else.

use bytes::Bytes;

use super::ScanWork;
use super::serve::WorkRange;
use crate::api::{Entities, ScriptRefused, Scripts};
use crate::error::{HttpError, Shed};
use crate::respond::{ErrorResponse, SuccessResponse};
use crate::scan::request::ScanRequest;
use crate::scan::tally::{ScanEnding, ScanTally};
use crate::service::{Exchange, kept};

/// What scripts may have emitted before it is combined, and what is held of it after that.
const EMITTED_BYTES_MAX: usize = 512 * 1024;
const NDJSON: &str = "application/x-ndjson";

/// Pairs that a script has emitted, combined whenever there are many.
struct Emitted<'a> {
    scripts: &'a dyn Scripts,
    source: Bytes,
    pairs: Vec<Bytes>,
    bytes: usize,
}

impl Emitted<'_> {
    async fn push(&mut self, pairs: Bytes) -> Result<(), ScriptRefused> {
        self.bytes += pairs.len();
        self.pairs.push(pairs);
        if self.bytes <= EMITTED_BYTES_MAX {
            return Ok(());
        }
        self.pairs = self.scripts.combine(self.source.clone(), std::mem::take(&mut self.pairs)).await?;
        self.bytes = self.pairs.iter().map(Bytes::len).sum();
        if self.bytes <= EMITTED_BYTES_MAX {
            return Ok(());
        }
        Err(ScriptRefused::Failed(
            "the script has emitted over 512 KiB that `combine` does not make less: emit fewer or shorter pairs"
                .to_owned(),
        ))
    }
}

impl<E: Entities> Exchange<'_, E> {
    /// Serves a script.
    pub(crate) async fn script(&mut self, request: ScanRequest) -> Result<SuccessResponse, ErrorResponse> {
        let source = self.source().await?;
        self.shard.admit(self.busy, 1).await.map_err(kept)?;
        Box::pin(self.answer_script(request, source)).await.map_err(kept)
    }

    async fn answer_script(&self, request: ScanRequest, source: Bytes) -> Result<SuccessResponse, HttpError> {
        let scripts = self.shard.scripts().ok_or(HttpError::ScriptsOff)?;
        let failed = |refused| match refused {
            ScriptRefused::Busy => self.shard.shed(Shed::Scripts),
            ScriptRefused::Failed(text) => HttpError::Unprocessable(text),
        };
        let _running = scripts.admit().ok_or_else(|| self.shard.shed(Shed::Scripts))?;
        scripts.check(source.clone()).await.map_err(failed)?;
        let ScanRequest { start, end, quorum, on_missing, .. } = request;
        let range = WorkRange { start, end, quorum, on_missing };
        let mut emitted = Emitted { scripts, source: source.clone(), pairs: Vec::new(), bytes: 0 };
        let mut tally = ScanTally::default();
        let work = ScanWork::Script { source: source.clone() };
        let scan = self
            .work(range, &work, async |found, pairs| {
                tally.add(found, None, None);
                if let Some(pairs) = pairs {
                    emitted.push(pairs).await.map_err(failed)?;
                }
                Ok(emitted.bytes)
            })
            .await?;
        let mut content = scripts.finish(source, emitted.pairs).await.map_err(failed)?;
        let ending = ScanEnding::of(&*scan, None, self.nodes());
        serde_json::to_writer(&mut content, &tally.trailer(&ending)).expect("it can be written as JSON");
        content.push(b'\n');
        self.worked(NDJSON, content)
    }
}
