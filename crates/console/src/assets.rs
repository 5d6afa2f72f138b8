//! The pages: built in and compressed, or read from a directory while they are being written.

use std::path::{Component, Path};

use bytes::Bytes;
use hyper::Response;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH, VARY,
};

use crate::body::ConsoleBody;
use crate::problem::ConsoleProblem;

/// A file of the pages. The build script writes their list.
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    /// Of its content.
    pub(crate) etag: &'static str,
    pub(crate) gzip: &'static [u8],
    pub(crate) plain: &'static [u8],
}

static ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Of a file that is read from a directory.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a browser does with a file, by its name.
pub(crate) fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" => "application/json",
        _ => "text/plain; charset=utf-8",
    }
}

fn not_found() -> ConsoleProblem {
    ConsoleProblem::not_found("there is no such page: `/` is the console")
}

/// The file at a path, `/` being `index.html`.
///
/// # Errors
/// 404
pub(crate) fn asset(
    path: &str,
    headers: &HeaderMap,
    dir: Option<&Path>,
) -> Result<Response<ConsoleBody>, ConsoleProblem> {
    let path = path.trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    if let Some(dir) = dir {
        let bytes = read_file(dir, path)?;
        let answer = Response::builder().header(CONTENT_TYPE, content_type(path)).header(CACHE_CONTROL, "no-store");
        return Ok(answer.body(ConsoleBody::whole(bytes)).expect("plain headers"));
    }
    let asset = ASSETS.iter().find(|asset| asset.path == path).ok_or_else(not_found)?;
    // Asked for each time, and answered with nothing but a 304 while it is the same.
    let answer =
        Response::builder().header(ETAG, asset.etag).header(CACHE_CONTROL, "no-cache").header(VARY, "accept-encoding");
    let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|tags| {
        let tags = tags.to_str().unwrap_or_default().split(',').map(str::trim);
        tags.map(|tag| tag.trim_start_matches("W/")).any(|tag| tag == asset.etag || tag == "*")
    });
    if is_known {
        return Ok(answer.status(304).body(ConsoleBody::whole(Bytes::new())).expect("plain headers"));
    }
    let answer = answer.header(CONTENT_TYPE, content_type(path));
    let answer = if takes_gzip(headers) {
        answer.header(CONTENT_ENCODING, "gzip").body(ConsoleBody::whole(Bytes::from_static(asset.gzip)))
    } else {
        answer.body(ConsoleBody::whole(Bytes::from_static(asset.plain)))
    };
    Ok(answer.expect("plain headers"))
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    codings.flat_map(|codings| codings.split(',')).any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = quality.trim().strip_prefix("q=").map(str::trim);
        name.trim().eq_ignore_ascii_case("gzip")
            && quality.is_none_or(|quality| quality.parse::<f32>().is_ok_and(|q| q > 0.0))
    })
}

/// A file below a directory, whatever the path tries.
///
/// # Errors
/// 404; 413
pub(crate) fn read_file(dir: &Path, path: &str) -> Result<Vec<u8>, ConsoleProblem> {
    let is_below = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    let is_plain = !path.is_empty() && !path.split('/').any(|part| part.is_empty() || part.starts_with('.'));
    let file = dir.join(path);
    // A link could lead out of it.
    let length = || {
        let (dir, file) = (dir.canonicalize().ok()?, file.canonicalize().ok()?);
        let meta = file.metadata().ok()?;
        (file.starts_with(dir) && meta.is_file()).then_some(meta.len())
    };
    let length = length().filter(|_| is_below && is_plain).ok_or_else(not_found)?;
    if length > FILE_BYTES_MAX {
        let detail = format!("it has {} MiB, which is too much for a page: open {}", length >> 20, file.display());
        return Err(ConsoleProblem::new(413, "Too Large", detail));
    }
    std::fs::read(&file).map_err(|_| not_found())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn all_pages_are_at_most_sixty_kilobytes_compressed() {
        let total: usize =
            ASSETS.iter().filter(|asset| !asset.path.ends_with("LICENSE")).map(|asset| asset.gzip.len()).sum();
        assert!(total <= 60_000, "{total}");
    }

    #[test]
    fn a_page_is_sent_compressed_to_who_takes_that_and_not_again_while_it_is_the_same() {
        let mut headers = HeaderMap::new();
        let plain = asset("/", &headers, None).unwrap();
        assert!(
            plain.headers()[CONTENT_TYPE] == "text/html; charset=utf-8"
                && !plain.headers().contains_key(CONTENT_ENCODING)
        );
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip;q=0.5"));
        let packed = asset("/index.html", &headers, None).unwrap();
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
        headers.insert(IF_NONE_MATCH, packed.headers()[ETAG].clone());
        assert_eq!(asset("/", &headers, None).unwrap().status(), 304);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip;q=0"));
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert!(!asset("/", &headers, None).unwrap().headers().contains_key(CONTENT_ENCODING));
        assert_eq!(asset("/nothing.js", &headers, None).unwrap_err().status, 404);
    }

    #[test]
    fn nothing_outside_of_the_directory_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("pages");
        std::fs::create_dir_all(below.join("a")).unwrap();
        std::fs::write(below.join("a/b.js"), "inside").unwrap();
        std::fs::write(below.join(".hidden"), "hidden").unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), below.join("link")).unwrap();
        assert_eq!(read_file(&below, "a/b.js").unwrap(), b"inside");
        for path in
            ["", "a", "../secret", "a/../../secret", "/etc/passwd", "link", ".hidden", "a//b.js", "./a/b.js", "a/b.js/"]
        {
            assert_eq!(read_file(&below, path).map_err(|problem| problem.status), Err(404), "{path}");
        }
    }
}
