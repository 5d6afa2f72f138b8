//! The program that the tests of this crate start as a worker: no node is in it. With the argument `node` it is what
//! starts a worker, for a script without end.

use std::path::PathBuf;
use std::process::ExitCode;

use kvorum_script::{ScriptRecord, ScriptWorkers};

fn main() -> ExitCode {
    if std::env::args().nth(1).is_none_or(|argument| argument != "node") {
        return kvorum_script::worker_main();
    }
    let record = ScriptRecord { key: b"a", value: b"", content_type: None, written_ms: 0, expires_ms: None };
    let workers = ScriptWorkers::new(PathBuf::from("/proc/self/exe"));
    let _answer = workers.map(b"function map() while true do end end", &[record]);
    ExitCode::FAILURE
}
