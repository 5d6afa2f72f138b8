//! What a client reads of an error in its script.

use mlua::{Error, Lua};

use crate::limits::{OVER_MEMORY, shortened};

/// An error that a function of ours raises, with the line that called it.
pub(super) fn raised(lua: &Lua, message: &str) -> Error {
    let line = lua.inspect_stack(1, |debug| debug.current_line()).flatten();
    Error::runtime(line.map_or_else(|| message.to_owned(), |line| format!("script:{line}: {message}")))
}

/// An error as a client reads it: in one message, without the stack.
pub(super) fn readable(error: &Error) -> String {
    let text = match error {
        Error::CallbackError { cause, .. } => return readable(cause),
        Error::WithContext { cause, .. } => return readable(cause),
        Error::MemoryError(_) => OVER_MEMORY.to_owned(),
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => text.clone(),
        other => other.to_string(),
    };
    let text = text.split("\nstack traceback:").next().unwrap_or_default().trim();
    shortened(if text.is_empty() { "an error without a message".to_owned() } else { text.to_owned() })
}
