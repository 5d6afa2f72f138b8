//! What comes from operators.

use std::path::PathBuf;

use kvorum_fuzzing::byte;

use crate::{SettingEntry, Sources, check_file, load};

/// A file of settings; if the first byte is odd, variables instead, one in a line.
pub fn config(mut data: &[u8]) {
    let is_file = byte(&mut data).is_multiple_of(2);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = OwnFile::new();
    let mut sources = Sources::default();
    if is_file {
        sources.file = Some(file.write(text));
    } else {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        sources.environment = pairs.map(|(name, value)| (format!("KVORUM_{name}"), value.to_owned())).collect();
    }
    let first = match load(&sources) {
        Ok(first) => first,
        Err(error) => {
            assert!(!error.problems.is_empty() && !error.to_string().is_empty(), "refused without a word");
            return;
        }
    };
    let printed: Vec<String> = first.entries.iter().map(SettingEntry::to_string).collect();
    sources = Sources { file: Some(file.write(&printed.join("\n"))), ..Sources::default() };
    let again = load(&sources).unwrap_or_else(|error| panic!("what is printed is refused: {error}"));
    let values = |entries: &[SettingEntry]| entries.iter().map(|entry| entry.value.clone()).collect::<Vec<_>>();
    assert_eq!(values(&again.entries), values(&first.entries), "what is printed reads otherwise");
    sources.file.as_deref().map(check_file).transpose().expect("a file for one node is a file");
}

/// The file of this thread, in memory where there is such a file system; removed in the end.
struct OwnFile(PathBuf);

impl OwnFile {
    fn new() -> Self {
        let memory = PathBuf::from("/dev/shm");
        let directory = if memory.is_dir() { memory } else { std::env::temp_dir() };
        Self(directory.join(format!("kvorum-fuzz-{}-{:?}.toml", std::process::id(), std::thread::current().id())))
    }

    fn write(&self, text: &str) -> PathBuf {
        std::fs::write(&self.0, text).expect("a file of its own can be written");
        self.0.clone()
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // There is none if variables were refused.
        let _none = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn config() {
        kvorum_fuzzing::holds("config", super::config);
    }
}
