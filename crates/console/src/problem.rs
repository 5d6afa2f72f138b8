//! Refusals in words: `application/problem+json` (RFC 9457).

use serde_json::json;

/// What is wrong with a request, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsoleProblem {
    pub(crate) status: u16,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
}

impl ConsoleProblem {
    pub(crate) fn new(status: u16, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, title, detail: detail.into() }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(400, "Bad Request", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(404, "Not Found", detail)
    }

    /// As many of something as there may be.
    pub(crate) fn full(detail: impl Into<String>) -> Self {
        Self::new(503, "Too Many", detail)
    }

    pub(crate) fn document(&self) -> Vec<u8> {
        let Self { status, title, detail } = self;
        let kind = format!("urn:kvorum:problem:{}", title.to_ascii_lowercase().replace(' ', "-"));
        json!({ "type": kind, "title": title, "status": status, "detail": detail }).to_string().into_bytes()
    }
}
