//! A strict reader of one request's body, after RFC 9112, 6 and 7, beside the one that serves.
#![allow(clippy::indexing_slicing)]

/// What has to become of a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StrictVerdict {
    /// It is this, and nothing else.
    Stored(Vec<u8>),
    /// It must not be stored: its end is not there, or can be read in two ways.
    Refused,
    /// A sender has to be strict where a recipient need not be (2.2, 7.1.1): either of both.
    Lenient,
}

/// Reads the body behind header lines `NAME: VALUE`.
pub(super) fn strict(fields: &[&str], body: &[u8]) -> StrictVerdict {
    let (lengths, codings) = (values(fields, "Content-Length"), values(fields, "Transfer-Encoding"));
    match (lengths.as_slice(), codings.as_slice()) {
        (_, [coding]) if coding.eq_ignore_ascii_case("chunked") => match chunks(body, Vec::new()) {
            // 6.3: a length beside it may be an attack. To refuse both is right, too.
            StrictVerdict::Stored(_) if !lengths.is_empty() => StrictVerdict::Lenient,
            verdict => verdict,
        },
        (_, [_, ..]) => StrictVerdict::Refused,
        ([], []) => StrictVerdict::Stored(Vec::new()),
        ([first, rest @ ..], []) => {
            let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
            let Some(length) = first.parse::<usize>().ok().filter(|_| is_number) else { return StrictVerdict::Refused };
            if rest.iter().any(|other| other != first) {
                return StrictVerdict::Refused;
            }
            match body.get(..length) {
                None => StrictVerdict::Refused,
                // The same length in two lines may be taken as one (6.3).
                Some(_) if !rest.is_empty() => StrictVerdict::Lenient,
                Some(value) => StrictVerdict::Stored(value.to_vec()),
            }
        }
    }
}

fn values<'a>(fields: &[&'a str], name: &str) -> Vec<&'a str> {
    let pairs = fields.iter().filter_map(|line| line.split_once(": "));
    pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).collect()
}

fn chunks(body: &[u8], mut value: Vec<u8>) -> StrictVerdict {
    let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") else { return StrictVerdict::Refused };
    let (line, rest) = (&body[..end], &body[end + 2..]);
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let size = std::str::from_utf8(&line[..digits]).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let Some(size) = size else { return StrictVerdict::Refused };
    match &line[digits..] {
        [] => {}
        // Extensions, and white space before them.
        [b';' | b' ' | b'\t', extension @ ..] if !extension.contains(&b'\n') => return StrictVerdict::Lenient,
        _ => return StrictVerdict::Refused,
    }
    if size == 0 {
        // Trailers are not kept.
        return match rest {
            [b'\r', b'\n', ..] => StrictVerdict::Stored(value),
            rest if rest.windows(4).any(|four| four == b"\r\n\r\n") => StrictVerdict::Lenient,
            _ => StrictVerdict::Refused,
        };
    }
    let Some(end) = size.checked_add(2).filter(|end| rest.len() >= *end) else { return StrictVerdict::Refused };
    if rest[size..end] != *b"\r\n" {
        return StrictVerdict::Refused;
    }
    value.extend_from_slice(&rest[..size]);
    chunks(&rest[end..], value)
}
