//! The two forms in which many records go: one JSON object a line, or length-prefixed frames.

use hyper::header::{self, HeaderMap};

const NDJSON: &str = "application/x-ndjson";
const FRAMES: &str = "application/vnd.kvorum.frames";

/// How records, operations and answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordForm {
    /// One JSON object a line.
    Ndjson,
    /// Length-prefixed, for values of any bytes.
    Frames,
}

impl RecordForm {
    /// By the header `Content-Type`; none where it names another type.
    pub(crate) fn of(content_type: Option<&[u8]>) -> Option<Self> {
        let Some(content_type) = content_type else { return Some(Self::Ndjson) };
        let name = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        match name {
            name if name.eq_ignore_ascii_case(NDJSON.as_bytes()) => Some(Self::Ndjson),
            name if name.eq_ignore_ascii_case(FRAMES.as_bytes()) => Some(Self::Frames),
            // What `curl` and other clients send where no type was chosen.
            name if name.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") => Some(Self::Ndjson),
            _ => None,
        }
    }

    /// By the headers `Accept` (RFC 9110, 12.5.1); none where they allow neither. Lines are taken where both are wanted
    /// as much.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Self> {
        if !headers.contains_key(header::ACCEPT) {
            return Some(Self::Ndjson);
        }
        let (lines, frames) = (weight_of(headers, NDJSON), weight_of(headers, FRAMES));
        match lines.max(frames) {
            0 => None,
            best if best == lines => Some(Self::Ndjson),
            _ => Some(Self::Frames),
        }
    }

    /// The type's name.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => NDJSON,
            Self::Frames => FRAMES,
        }
    }
}

/// How much a type is wanted, in thousandths: what names it most closely decides.
fn weight_of(headers: &HeaderMap, name: &str) -> u16 {
    let ranges = headers.get_all(header::ACCEPT).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    let closest = ranges.filter_map(|range| {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let media = parts.next().unwrap_or_default();
        let closeness = match media {
            media if media.eq_ignore_ascii_case(name.as_bytes()) => 2,
            media if media.eq_ignore_ascii_case(b"application/*") => 1,
            b"*/*" => 0,
            _ => return None,
        };
        let weight =
            parts.find_map(|part| part.strip_prefix(b"q=").or(part.strip_prefix(b"Q="))).map_or(1000, thousandths);
        Some((closeness, weight))
    });
    closest.max().map_or(0, |(_, weight)| weight)
}

/// A weight as `0.5`; what is none stands for 0.
fn thousandths(text: &[u8]) -> u16 {
    let weight = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f32>().ok());
    let weight = weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or_default();
    // Exact: at most 1000.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let thousandths = (weight * 1000.0).round() as u16;
    thousandths
}

#[cfg(test)]
mod tests {
    use hyper::header::{self, HeaderMap, HeaderValue};

    use super::RecordForm;

    #[test]
    fn the_form_is_the_one_that_is_wanted_most() {
        let form = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for accept in accept {
                headers.append(header::ACCEPT, HeaderValue::from_static(accept));
            }
            RecordForm::accepted(&headers)
        };
        let (lines, frames) = (Some(RecordForm::Ndjson), Some(RecordForm::Frames));
        assert_eq!((form(&[]), form(&["*/*"]), form(&["application/x-ndjson"])), (lines, lines, lines));
        assert_eq!(form(&["text/html,application/xml;q=0.9,*/*;q=0.8"]), lines, "a browser");
        assert_eq!(
            (form(&["application/vnd.kvorum.frames"]), form(&["Application/Vnd.Kvorum.Frames ; q=1"])),
            (frames, frames)
        );
        assert_eq!(form(&["application/x-ndjson;q=0.5, application/vnd.kvorum.frames"]), frames);
        assert_eq!(form(&["*/*;q=0.1", "application/vnd.kvorum.frames;q=0.2"]), frames, "two headers");
        assert_eq!(form(&["application/x-ndjson;q=0, */*"]), frames, "whatever but lines");
        assert_eq!(form(&["application/*"]), lines);
        for none in ["text/html", "application/json", "application/x-ndjson;q=0", "*/*;q=0", "", "*/*;q=2", "*/*;q=x"] {
            assert_eq!(form(&[none]), None, "{none}");
        }
    }
}
