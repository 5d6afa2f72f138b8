//! `POST /v0/query`: what a range holds, counted and summed where it is.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_core::quorum::Quorum;
use kvorum_query::{Aggregation, AggregationError, Query};
use kvorum_replication::cluster_scan::OnMissing;

use super::ScanWork;
use super::serve::WorkRange;
use crate::api::Entities;
use crate::bad_request::BadRequest;
use crate::error::HttpError;
use crate::respond::{ErrorResponse, SuccessResponse};
use crate::scan::tally::{ScanEnding, ScanTally};
use crate::service::{Exchange, kept};

const JSON: &str = "application/json";

impl<E: Entities> Exchange<'_, E> {
    /// Serves a query.
    pub(crate) async fn query(
        &mut self,
        quorum: Quorum,
        on_missing: OnMissing,
    ) -> Result<SuccessResponse, ErrorResponse> {
        let body = self.source().await?;
        let query = Query::parse(&body).map_err(|error| kept(BadRequest::Query(error.to_string()).into()))?;
        let range = query.range();
        let (start, end) = (Bytes::copy_from_slice(&range.start), range.end.as_deref().map(Bytes::copy_from_slice));
        self.authorize_range(&start, end.as_ref()).map_err(kept)?;
        self.shard.admit(self.busy, 1).await.map_err(kept)?;
        let range = WorkRange { start, end, quorum, on_missing };
        Box::pin(self.answer_query(Arc::new(query), body, range)).await.map_err(kept)
    }

    async fn answer_query(
        &self,
        query: Arc<Query>,
        body: Bytes,
        range: WorkRange,
    ) -> Result<SuccessResponse, HttpError> {
        let work = ScanWork::Query { now_ms: self.shard.scans().clock_ms(), body };
        let (mut aggregation, mut tally) = (Aggregation::new(query), ScanTally::default());
        let source = self
            .work(range, &work, async |found, row| {
                let Some(row) = row else { return Ok(aggregation.bytes()) };
                match aggregation.add(found.key.as_bytes(), &row) {
                    Ok(true) => {
                        tally.add(found, None, None);
                        Ok(aggregation.bytes())
                    }
                    Ok(false) => Ok(aggregation.bytes()),
                    Err(AggregationError::Row) => Err(self.shard.defect("a row of another query")),
                    Err(error) => Err(HttpError::Unprocessable(error.to_string())),
                }
            })
            .await?;
        let ending = ScanEnding::of(&*source, None, self.nodes());
        let not_json = aggregation.not_json();
        let mut content = b"{\"groups\":".to_vec();
        aggregation.write_groups(&mut content);
        content.extend_from_slice(format!(",\"not_json\":{not_json},").as_bytes());
        // Its members, behind the brace that opens it.
        let trailer = serde_json::to_vec(&tally.trailer(&ending)).expect("it can be written as JSON");
        content.extend_from_slice(trailer.get(1..).unwrap_or_default());
        content.push(b'\n');
        self.worked(JSON, content)
    }
}
