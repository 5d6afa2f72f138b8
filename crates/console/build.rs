//! Compresses the pages and lists them, so that a file that is put beside them is served. Comments and types are for
//! readers of the source: they are left out.

#![allow(missing_docs)]

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use xxhash_rust::xxh3::xxh3_128;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=assets");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let mut files = Vec::new();
    files_below(Path::new("assets"), &mut files)?;
    files.sort();
    let mut list = String::from("&[\n");
    for (number, file) in files.iter().enumerate() {
        let is_module = file.extension().is_some_and(|ending| ending == "js");
        let bytes = if is_module { compact(&fs::read_to_string(file)?).into_bytes() } else { fs::read(file)? };
        let path = file.strip_prefix("assets").map_err(io::Error::other)?;
        let path = path.to_str().ok_or_else(|| io::Error::other("a name that is no text"))?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes)?;
        // Copies: checkouts may share a target directory.
        fs::write(out.join(format!("{number}.gz")), encoder.finish()?)?;
        fs::write(out.join(format!("{number}.plain")), &bytes)?;
        let hash = xxh3_128(&bytes);
        let include = |end: &str| format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{number}.{end}\"))");
        list.push_str(&format!(
            "    Asset {{ path: {path:?}, etag: \"\\\"{hash:032x}\\\"\", gzip: {}, plain: {} }},\n",
            include("gz"),
            include("plain")
        ));
    }
    list.push_str("]\n");
    fs::write(out.join("assets.rs"), list)
}

/// A module without comments and indentation. No string of the pages holds `/**` or begins a line with `//`: a test of the
/// pages sees to that.
fn compact(text: &str) -> String {
    let mut without = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/**") {
        without.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
        rest = rest.strip_prefix([' ', '\n']).unwrap_or(rest);
    }
    without.push_str(rest);
    let lines = without.lines().map(|line| line.trim_start_matches(' ')).filter(|line| !line.starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}
