//! The form of what a command prints: text for people, or JSON, one object or one a line.
//!
//! The objects' members are an interface: `docs/reference/output-as-json.md` has them.

use std::io::{self, Write};

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use crate::outcome::ExitOutcome;
use crate::printable::is_obeyed;

/// What is printed to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Of a command whose result is for people first.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// How the result is printed.
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    pub output: OutputForm,
}

/// Of a command whose input and result are JSON.
#[derive(Clone, Copy, Debug, Args)]
pub struct JsonOutputArgs {
    /// How the answer is printed.
    #[arg(short, long, value_name = "FORM", default_value = "json")]
    pub output: OutputForm,
}

/// Prints a result in one of its two forms, and a newline.
///
/// # Errors
/// Of stdout.
pub fn show(form: OutputForm, object: &Value, text: &str) -> Result<ExitOutcome> {
    match form {
        OutputForm::Text => writeln!(io::stdout(), "{text}")?,
        OutputForm::Json => writeln!(io::stdout(), "{}", json_line(object))?,
    }
    Ok(ExitOutcome::Done)
}

/// An object in one line. What a terminal would obey is escaped, as JSON allows inside of texts.
#[must_use]
pub fn json_line(object: &Value) -> String {
    let mut line = String::new();
    for letter in object.to_string().chars() {
        if is_obeyed(letter) {
            let mut units = [0; 2];
            line.extend(letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            line.push(letter);
        }
    }
    line
}

/// Adds bytes as `name` where they are text, and as `name_base64` where not.
pub(crate) fn add_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Columns as wide as their widest cells, two spaces between them.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// With a comma between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{add_bytes, align, grouped, json_line};

    #[test]
    fn a_line_of_json_says_the_same_and_moves_no_cursor() {
        let object = json!({"k\u{9b}": "a\u{1b}[2J\u{7f}\u{202e}\n\u{e9}"});
        let line = json_line(&object);
        assert_eq!(line, r#"{"k\u009b":"a\u001b[2J\u007f\u202e\né"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), object);
    }

    #[test]
    fn bytes_that_are_no_text_are_in_base64() {
        let mut object = Map::new();
        add_bytes(&mut object, "key", b"a");
        add_bytes(&mut object, "value", b"\xff");
        assert_eq!(Value::Object(object), json!({"key": "a", "value_base64": "/w=="}));
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([0, 999, 1000, 14_203, 1_000_000].map(grouped), ["0", "999", "1,000", "14,203", "1,000,000"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let rows = [["a", "bb"], ["ccc", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(align(&rows), "a    bb\nccc\n");
    }
}
