//! From a batch's head to its answer.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderValue;
use kvorum_base::value_memory::{Body, Charge, FREE_BYTES};
use kvorum_core::quorum::{Expiry, Held};
use kvorum_replication::coordinator::batch::{BatchAction, BatchOperation};
use kvorum_replication::coordinator::{NewValue, Outcome, ReadResult};

use super::item::{ItemAction, ItemAnswer, OPERATIONS_MAX, Payload};
use super::{AnswerWriter, BATCH_BYTES_MAX, Item, ItemRequest, read};
use crate::api::{AuditedKind, AuditedRequest, Entities};
use crate::error::{HttpError, Shed};
use crate::media::RecordForm;
use crate::numbers::QuorumNumbers;
use crate::problem;
use crate::respond::{ErrorResponse, SuccessResponse};
use crate::routes::Verb;
use crate::service::{Exchange, hold, kept};

/// Operations that are under way at once: a batch of large values reads no more of them than its answer has room for,
/// and a few.
const WINDOW: usize = 128;
/// Operations that take as much room among the requests in flight as a request.
const OPERATIONS_PER_REQUEST: usize = 16;

impl<E: Entities> Exchange<'_, E> {
    /// Serves a batch.
    pub(crate) async fn batch(&mut self, quorum: QuorumNumbers) -> Result<SuccessResponse, ErrorResponse> {
        let content_type = self.fields.content_type.map(HeaderValue::as_bytes);
        let Some(form) = RecordForm::of(content_type) else {
            return Err(self.reject(HttpError::UnsupportedMediaType).await);
        };
        if self.fields.is_coded {
            return Err(self.reject(HttpError::TransferCoding).await);
        }
        let (body, charge) = self.gather_all(BATCH_BYTES_MAX, || HttpError::BatchTooLarge).await?.into_parts();
        let charge = charge.map(Arc::new);
        let settings = self.shard.settings();
        let items = read(form, &body, quorum, self.shard.defaults(), settings.value_bytes_max).map_err(kept)?;
        self.shard.admit(self.busy, 1 + items.len() / OPERATIONS_PER_REQUEST).await.map_err(kept)?;
        self.shard.metrics().batched(items.len());
        self.answer_items(form, items, charge.as_ref()).await.map_err(kept)
    }

    async fn answer_items(
        &self,
        form: RecordForm,
        items: Vec<Item>,
        charge: Option<&Arc<Charge>>,
    ) -> Result<SuccessResponse, HttpError> {
        debug_assert!(items.len() <= OPERATIONS_MAX);
        let mut answer = AnswerWriter::new(form, items.iter().map(|item| &*item.key));
        let mut room = self.shard.large_values().charge(FREE_BYTES + 1).map_err(|_| self.shard.shed(Shed::Memory))?;
        let mut is_begun = false;
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let is_full = answer.is_full();
            let check = |item: Item| {
                let Item { key, request } = item;
                (key, request.and_then(|request| self.check_item(request, is_full)))
            };
            let window: Vec<_> = items.by_ref().take(WINDOW).map(check).collect();
            let requests = || window.iter().filter_map(|(_, request)| request.as_ref().ok());
            let operations = requests().map(|request| operation(request, charge)).collect();
            let mut outcomes = match self.shard.entities().batch(operations).await {
                Ok(outcomes) => outcomes,
                // Nothing of the batch has had an effect.
                Err(refused) if !is_begun => return Err(HttpError::Refused(refused)),
                Err(refused) => requests().map(|_| Err(refused.clone())).collect(),
            }
            .into_iter();
            is_begun = true;
            for (key, request) in window {
                let verb = request.as_ref().ok().map(|request| verb_of(&request.action));
                let outcome = request.and_then(|_| {
                    let outcome = outcomes.next().expect("an outcome for each operation");
                    outcome.map_err(HttpError::Refused)
                });
                let status = self.write_item(&mut answer, &key, verb, outcome);
                self.note_item(&key, status, verb);
            }
            if let Some(room) = &mut room {
                room.grow_to(answer.out.len()).map_err(|_| self.shard.shed(Shed::Memory))?;
            }
        }
        let content = Bytes::from(answer.out);
        self.charge(|| content.len());
        // Until the client has taken it. What it has sent is given up.
        hold(self.busy, self.shard, self.watch.address(), content.len()).map_err(|_| self.shard.shed(Shed::Share))?;
        let share = self.busy.share.take();
        Ok(SuccessResponse::Batch { content_type: form.content_type(), content: charged(content, room), share })
    }

    /// Whether this operation may be carried out: each needs the right over its key, and counts as a request.
    fn check_item(&self, request: ItemRequest, is_over: bool) -> Result<ItemRequest, HttpError> {
        if let Some(gate) = self.shard.gate()
            && let Some(authenticated) = &*self.busy.authenticated.borrow()
        {
            authenticated.authorize_item(verb_of(&request.action), request.key.as_bytes())?;
            gate.admit_item(authenticated)?;
        }
        if is_over && request.action == ItemAction::Get { Err(HttpError::AnswerFull) } else { Ok(request) }
    }

    /// Its status.
    fn write_item(
        &self,
        answer: &mut AnswerWriter,
        key: &[u8],
        verb: Option<Verb>,
        outcome: Result<Outcome, HttpError>,
    ) -> u16 {
        let plain =
            |status, payload| ItemAnswer { status, key, version: None, expires_ms: None, content_type: None, payload };
        let error = match outcome {
            Ok(Outcome::Written(written)) => {
                let status = if verb == Some(Verb::Delete) { 202 } else { 201 };
                let (version, expires_ms) = (Some(written.version), written.expires_ms);
                answer.push(&ItemAnswer { version, expires_ms, ..plain(status, Payload::Nothing) });
                return status;
            }
            Ok(Outcome::Found(ReadResult { value: Held::Absent { .. }, receipt, .. })) => {
                HttpError::NotFound { deleted: None, receipt }
            }
            Ok(Outcome::Found(ReadResult { value: Held::Record(record), expiry, receipt }))
                if record.is_tombstone() || expiry == Expiry::Passed =>
            {
                HttpError::NotFound { deleted: Some(record.version()), receipt }
            }
            Ok(Outcome::Found(ReadResult { value: Held::Record(record), .. })) => {
                let value = record.payload();
                if answer.has_room(key, value.len()) {
                    answer.push(&ItemAnswer {
                        version: Some(record.version()),
                        expires_ms: record.expires_ms(),
                        content_type: record.content_type(),
                        ..plain(200, Payload::Value(&value))
                    });
                    return 200;
                }
                HttpError::AnswerFull
            }
            Err(error) => error,
        };
        let deleted = if let HttpError::NotFound { deleted, .. } = &error { *deleted } else { None };
        let problem = error.problem_naming(self.nodes());
        let status = problem.status.as_u16();
        let document = problem::document(&problem);
        answer.push(&ItemAnswer { version: deleted, ..plain(status, Payload::Problem(&document)) });
        status
    }

    /// Writes an operation down as the request that it stands for.
    fn note_item(&self, key: &[u8], status: u16, verb: Option<Verb>) {
        let Some(audit) = self.shard.audit() else { return };
        let principal = crate::service::principal(self.busy);
        let (method, kind) = match verb {
            Some(Verb::Put) => ("PUT", AuditedKind::Write),
            Some(Verb::Delete) => ("DELETE", AuditedKind::Write),
            Some(Verb::Get) => ("GET", AuditedKind::Read),
            None => ("POST", AuditedKind::Other),
        };
        let (path, address) = (self.head.uri.path(), self.watch.address());
        let principal = principal.as_deref();
        audit.note(&AuditedRequest { method, path, status, principal, address, key: Some(key), kind });
    }
}

fn verb_of(action: &ItemAction) -> Verb {
    match action {
        ItemAction::Put { .. } => Verb::Put,
        ItemAction::Get => Verb::Get,
        ItemAction::Delete => Verb::Delete,
    }
}

fn operation<'a>(request: &'a ItemRequest, charge: Option<&Arc<Charge>>) -> BatchOperation<'a> {
    let action = match &request.action {
        ItemAction::Put { value, content_type } => BatchAction::Put(NewValue {
            body: Body::part_of(value.clone(), charge.cloned()),
            content_type: content_type.as_deref(),
            ttl_s: request.ttl_s,
        }),
        ItemAction::Get => BatchAction::Get,
        ItemAction::Delete => BatchAction::Delete,
    };
    BatchOperation { key: request.key.clone(), quorum: request.quorum, action }
}

fn charged(content: Bytes, charge: Option<Charge>) -> Bytes {
    match charge {
        Some(charge) => charge.kept_by(content),
        None => content,
    }
}
