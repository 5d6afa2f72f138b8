//! What a script may use, and what the node keeps for scripts.

use std::time::Duration;

/// Of a script's source.
pub const SOURCE_BYTES_MAX: usize = 64 * 1024;

/// What Lua allocates in one worker: values, tables, and the record at work.
pub const MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Of a record that a script is given: it has two copies at once in the worker, of which one counts as the script's.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What the worker's process may map beyond what it maps when it starts. Above Lua's own limit: a table that grows is
/// there twice for a moment, and the record at work and the answer are beside it.
pub(crate) const MAPPED_BYTES_MAX: u64 = 192 * 1024 * 1024;

/// Of processor time, in one worker.
pub const CPU_SECONDS_MAX: u64 = 1;

/// From the start of a worker to its end.
pub const WALL_MAX: Duration = Duration::from_secs(5);

/// When the worker ends itself, should the node not do it.
pub(crate) const WATCH_MAX: Duration = Duration::from_secs(6);

/// What one worker answers: pairs and messages of errors.
pub const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// Of a message of an error.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// How deep a value may nest, in what is emitted and in JSON.
pub const DEPTH_MAX: usize = 100;

/// Workers of one node at once.
pub const WORKERS_MAX: usize = 2;

/// How long a call waits for a worker to be free.
pub const WAIT_MAX: Duration = Duration::from_secs(2);

pub(crate) const OVER_OUTPUT: &str = "the script gives more than 1 MiB of output";
pub(crate) const OVER_MEMORY: &str = "the script needs more than 64 MiB of memory";
pub(crate) const OVER_CPU: &str = "the script used more than 1 s of CPU";
pub(crate) const OVER_WALL: &str = "the script took more than 5 s, and runs only when the node has nothing else to do";

/// At most [`MESSAGE_BYTES_MAX`] of a message.
pub(crate) fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
    message
}
