//! From a scan's head to the first of its answer.

use std::sync::Arc;

use hyper::Method;
use kvorum_core::key::least_behind;
use kvorum_replication::cluster_scan::{MissingReplicas, ScanRefused, ScanSpec, ScanStep};

use super::body::{ScanBody, ScanBodySetup};
use super::coverage::{node_name, ranges};
use super::request::ScanRequest;
use super::token::TokenScope;
use crate::api::{Entities, ScanSource};
use crate::bad_request::BadRequest;
use crate::error::{HttpError, Shed};
use crate::media::RecordForm;
use crate::respond::SuccessResponse;
use crate::service::Exchange;

impl<E: Entities> Exchange<'_, E> {
    /// Begins a scan: what fails before its first byte still gets a status.
    pub(crate) async fn scan(&self, request: ScanRequest) -> Result<SuccessResponse, HttpError> {
        let form = RecordForm::accepted(&self.head.headers).ok_or(HttpError::NotAcceptable)?;
        let scans = self.shard.scans();
        let tokens = TokenScope::new(scans.cluster_id(), &request);
        let after = match &request.after {
            Some(token) => tokens.read(token).map_err(|_| BadRequest::Token)?,
            None => None,
        };
        let permit = self.permit(&request.start, request.end.as_ref());
        let required = request.quorum.required();
        let spec = ScanSpec {
            start: after.map_or(request.start, |last| least_behind(&last).into()),
            end: request.end,
            quorum: request.quorum,
            values: request.values,
            on_missing: request.on_missing,
        };
        let source = match scans.open(spec) {
            Ok(source) => source,
            Err(ScanRefused::NoRoom) => return Err(self.shard.shed(Shed::Scans)),
            Err(ScanRefused::Missing(missing)) => return Err(self.too_few(required, &missing)),
        };
        // The answer to HEAD needs no records.
        let is_head = self.head.method == Method::HEAD;
        let (source, first) = if is_head { (source, None) } else { first(source).await };
        if let Some(ScanStep::Missing(missing)) = &first {
            return Err(self.too_few(required, missing));
        }
        let setup = ScanBodySetup {
            form,
            tokens,
            limit: request.limit,
            memory: Arc::clone(self.shard.large_values()),
            names: self.nodes(),
            permit,
        };
        let body = Box::new(ScanBody::new(source, first, setup));
        Ok(SuccessResponse::Scan { content_type: form.content_type(), body })
    }

    pub(crate) fn too_few(&self, required: u8, missing: &MissingReplicas) -> HttpError {
        let (layout, names) = (self.shard.scans().layout(), self.nodes());
        let nodes = missing.nodes.iter().map(|node| node_name(&layout, *node, names)).collect();
        HttpError::TooFewReplicas { required, partitions: ranges(&missing.partitions), nodes }
    }
}

/// Advances until something is known.
async fn first(mut source: Box<dyn ScanSource>) -> (Box<dyn ScanSource>, Option<ScanStep>) {
    loop {
        if let Some(step) = source.ready() {
            return (source, Some(step));
        }
        source = source.advance().await;
    }
}
