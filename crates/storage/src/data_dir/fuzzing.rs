//! The small files of a data directory and of a backup, read from any bytes.

use std::path::Path;

use kvorum_core::chain;
use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::key::PARTITIONS;
use kvorum_core::layout::Layout;

use super::{
    check_format, parse_identity, parse_peers, parse_rebuilt, show_peers, with_checksum, with_hash, without_checksum,
    without_hash,
};
use crate::GcWatermarks;
use crate::backup_label::Label;

/// A file's text, or LAYOUT; with an even first byte its checksum is made right. For some first bytes, GC watermarks.
pub fn notes(data: &[u8]) {
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    if first % 8 == 7 {
        gc_watermarks(rest);
    }
    acceptor(*first, rest);
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let text = if first % 2 == 0 { with_checksum(text) } else { text.to_owned() };
    if let Some(body) = without_checksum(&text) {
        assert_eq!(with_checksum(body), text, "the same body in another file");
    }
    if let Some(peers) = parse_peers(&text) {
        let again = with_checksum(&show_peers(&peers));
        assert_eq!(parse_peers(&again), Some(peers), "it reads otherwise");
    }
    if let Some(label) = Label::parse(&text) {
        assert_eq!(Label::parse(&label.text()), Some(label), "it reads otherwise");
    }
    let _ = parse_rebuilt(&text);
    let _ = parse_identity(&text);
    let _ = check_format(Path::new("/nowhere"), &text);
}

/// With an even first byte its hash is made right.
fn acceptor(first: u8, bytes: &[u8]) {
    let bytes = if first.is_multiple_of(2) { with_hash(bytes.to_vec()) } else { bytes.to_vec() };
    let read = without_hash(&bytes).and_then(chain::decode::<Acceptor<Layout>>);
    if let Some(acceptor) = read {
        assert_eq!(chain::decode(&chain::encode(&acceptor)), Some(acceptor), "it reads otherwise");
    }
}

/// One GC watermark for each partition: as many as are needed, made of the input over and over.
fn gc_watermarks(bytes: &[u8]) {
    let loaded = GcWatermarks::default();
    assert!(loaded.load(bytes).is_err() || bytes.len() == PARTITIONS * 8);
    let gc_watermarks: Vec<u8> = bytes.iter().copied().cycle().take(bytes.len().min(1) * PARTITIONS * 8).collect();
    if loaded.load(&gc_watermarks).is_ok() {
        assert_eq!(loaded.encode_with(&[]), gc_watermarks, "the same floors in other bytes");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn notes() {
        kvorum_fuzzing::holds("notes", super::notes);
    }
}
