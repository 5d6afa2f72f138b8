//! The doc comments of the fields of a struct and of the variants of an enum: read from the source, since a program
//! does not contain its comments. Relies on `cargo fmt`.

use crate::root;

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// As in Rust; of a variant, nothing.
    pub(crate) kind: String,
    pub(crate) doc: String,
    /// Its attributes, serde's among them.
    pub(crate) attributes: String,
}

impl Field {
    /// Whether its own fields stand in its place.
    pub(crate) fn is_flat(&self) -> bool {
        self.attributes.contains("flatten")
    }

    /// Whether it is left out where there is no value.
    pub(crate) fn may_be_absent(&self) -> bool {
        self.attributes.contains("skip_serializing_if")
    }
}

/// The doc comment of a struct or an enum, and its fields or variants. `None` if the file does not declare it.
pub(crate) fn declared(file: &str, name: &str) -> Option<(String, Vec<Field>)> {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    let begin = [format!("pub struct {name} {{"), format!("pub enum {name} {{")];
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| begin.iter().any(|begin| line == begin))?;
    let before = lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
    let mut doc: Vec<&str> = before.filter_map(|line| line.strip_prefix("/// ")).collect();
    doc.reverse();
    let (mut fields, mut comment, mut attributes) = (Vec::new(), Vec::new(), String::new());
    for line in lines[at + 1..].iter().take_while(|line| **line != "}").map(|line| line.trim()) {
        if let Some(words) = line.strip_prefix("///") {
            comment.push(words.trim());
        } else if line.starts_with("#[") {
            attributes += line;
        } else if !line.is_empty() && !line.starts_with("//") {
            let line = line.trim_end_matches(',').trim_start_matches("pub ");
            let (name, kind) = line.split_once(": ").unwrap_or((line, ""));
            let doc = std::mem::take(&mut comment).join(" ");
            fields.push(Field {
                name: name.into(),
                kind: kind.into(),
                doc,
                attributes: std::mem::take(&mut attributes),
            });
        }
    }
    Some((doc.join(" "), fields))
}
