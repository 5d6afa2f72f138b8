//! Members of a JSON object, written into a buffer without a tree of values between.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kvorum_core::Version;

use crate::answer_lines::etag;

/// `,"etag":"…"`: the header's text, quotes included.
pub(crate) fn etag_into(version: Version, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"etag\":\"\\\"");
    let tag = etag(version);
    out.extend_from_slice(tag.get(1..tag.len() - 1).expect("a tag is quoted"));
    out.extend_from_slice(b"\\\"\"");
}

/// A number, as it is.
pub(crate) fn number_into(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(number.to_string().as_bytes());
}

/// A member, `name` or `name_base64`: the text itself, or its bytes where they are no text.
pub(crate) fn text_into(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            out.extend_from_slice(b"\":");
            serde_json::to_writer(&mut *out, text).expect("a string can be written as JSON");
        }
        Err(_) => {
            out.extend_from_slice(b"_base64\":\"");
            out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            out.push(b'"');
        }
    }
}
