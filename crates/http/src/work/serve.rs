//! What queries and scripts have in common: their bodies, and the scan that carries them.

use bytes::Bytes;
use kvorum_base::value_memory::Body;
use kvorum_core::quorum::Quorum;
use kvorum_core::scan::page::ScanValues;
use kvorum_replication::cluster_scan::{OnMissing, ScanRefused, ScanSpec, ScanStep, ScannedContent, ScannedRecord};

use super::{SOURCE_BYTES_MAX, ScanWork, WorkResult};
use crate::api::{Entities, ScanSource};
use crate::error::{HttpError, Shed};
use crate::gate::RangePermit;
use crate::respond::{ErrorResponse, SuccessResponse};
use crate::service::{Exchange, hold};
use crate::shares::OverShare;

/// The longest answer, as of a batch.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Where work is to be done.
pub(super) struct WorkRange {
    pub(super) start: Bytes,
    pub(super) end: Option<Bytes>,
    pub(super) quorum: Quorum,
    pub(super) on_missing: OnMissing,
}

impl<E: Entities> Exchange<'_, E> {
    /// The query or the script.
    pub(super) async fn source(&mut self) -> Result<Bytes, ErrorResponse> {
        if self.fields.is_coded {
            return Err(self.reject(HttpError::TransferCoding).await);
        }
        Ok(Body::into_parts(self.gather_all(SOURCE_BYTES_MAX, || HttpError::WorkTooLarge).await?).0)
    }

    /// Scans the range, and gives what the work derives of each record to `take`, which tells how many bytes it holds;
    /// of what it derives nothing, none. What is left of the scan at its end.
    pub(super) async fn work(
        &self,
        range: WorkRange,
        work: &ScanWork,
        mut take: impl AsyncFnMut(&ScannedRecord, Option<Bytes>) -> Result<usize, HttpError>,
    ) -> Result<Box<dyn ScanSource>, HttpError> {
        let WorkRange { start, end, quorum, on_missing } = range;
        let permit = self.permit(&start, end.as_ref());
        let values = ScanValues::Derived(work.encode());
        let opened = self.shard.scans().open(ScanSpec { start, end, quorum, values, on_missing });
        let mut source = match opened {
            Ok(source) => source,
            Err(ScanRefused::NoRoom) => return Err(self.shard.shed(Shed::Scans)),
            Err(ScanRefused::Missing(missing)) => return Err(self.too_few(quorum.required(), &missing)),
        };
        loop {
            while let Some(step) = source.ready() {
                match step {
                    ScanStep::Record(found) => {
                        let row = self.row(&found)?;
                        self.charge(|| row.as_ref().map_or(0, Bytes::len));
                        if !source.hold(take(&found, row).await?) {
                            return Err(self.shard.shed(Shed::Scans));
                        }
                    }
                    ScanStep::Passed => {}
                    ScanStep::End => return Ok(source),
                    // The replicas are there: another time will do.
                    ScanStep::Missing(missing) if missing.is_busy => return Err(self.shard.shed(Shed::Work)),
                    ScanStep::Missing(missing) => return Err(self.too_few(quorum.required(), &missing)),
                }
            }
            permit.as_ref().map_or(Ok(()), |permit| RangePermit::check(permit))?;
            source = source.advance().await;
        }
    }

    /// An answer, counted as held until the client has taken it.
    pub(super) fn worked(&self, content_type: &'static str, content: Vec<u8>) -> Result<SuccessResponse, HttpError> {
        if content.len() > ANSWER_BYTES_MAX {
            return Err(HttpError::Unprocessable("the answer is over 8 MiB: ask for less at once".to_owned()));
        }
        self.charge(|| content.len());
        let charge = self.shard.large_values().charge(content.len()).map_err(|_| self.shard.shed(Shed::Memory))?;
        let held = hold(self.busy, self.shard, self.watch.address(), content.len());
        held.map_err(|OverShare| self.shard.shed(Shed::Share))?;
        let content = match charge {
            Some(charge) => charge.kept_by(content.into()),
            None => content.into(),
        };
        Ok(SuccessResponse::Batch { content_type, content, share: self.busy.share.take() })
    }

    fn row(&self, found: &ScannedRecord) -> Result<Option<Bytes>, HttpError> {
        let ScannedContent::Derived(Some(derived)) = &found.content else { return Ok(None) };
        match WorkResult::decode(derived.clone()) {
            Ok(WorkResult::Row(row)) => Ok(Some(row)),
            Ok(WorkResult::Failed(text)) => Err(HttpError::Unprocessable(text)),
            Err(error) => Err(self.shard.defect(&error.to_string())),
        }
    }
}
