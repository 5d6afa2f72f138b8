//! Members of a query's objects, with errors that name them by their path.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Why a body is no query, in words for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(pub String);

/// Of what a client wrote, the most that an error repeats.
const QUOTED_MAX: usize = 64;
/// A name is meant where so many letters differ.
const TYPING_ERRORS_MAX: usize = 3;

/// A part of the query with its place, as in `where[1].op`; empty for the query itself.
#[derive(Clone, Debug)]
pub(crate) struct Place<'q> {
    pub(crate) path: String,
    pub(crate) value: &'q Value,
}

impl<'q> Place<'q> {
    pub(crate) fn error(&self, what: &str) -> QueryError {
        if self.path.is_empty() {
            QueryError(format!("the query {what}"))
        } else {
            QueryError(format!("`{}` {what}", self.path))
        }
    }

    /// Its members, all of which are among `known`.
    pub(crate) fn members(&self, known: &[&'static str]) -> Result<Members<'q>, QueryError> {
        let Value::Object(object) = self.value else {
            return Err(self.error(&match list(known) {
                none if none.is_empty() => "is an empty JSON object".to_owned(),
                known => format!("is a JSON object with {known}"),
            }));
        };
        match object.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(Members { path: self.path.clone(), object }),
            Some(name) => {
                let place = below(&self.path, name);
                let known = if known.is_empty() {
                    "it has no members".to_owned()
                } else {
                    format!("known are {}{}", list(known), meant(name, known))
                };
                Err(QueryError(format!("`{}` is unknown: {known}", quoted(&place))))
            }
        }
    }

    pub(crate) fn text(&self) -> Result<&'q str, QueryError> {
        self.value.as_str().ok_or_else(|| self.error("is a text"))
    }

    /// The elements of a list of at most so many.
    pub(crate) fn list(&self, most: usize) -> Result<Vec<Place<'q>>, QueryError> {
        let elements = self.value.as_array().filter(|elements| elements.len() <= most);
        let elements = elements.ok_or_else(|| self.error(&format!("is a list of at most {}", thousands(most))))?;
        let place = |(at, value)| Place { path: format!("{}[{at}]", self.path), value };
        Ok(elements.iter().enumerate().map(place).collect())
    }

    /// A whole number of this range.
    pub(crate) fn whole(&self, least: usize, most: usize) -> Result<usize, QueryError> {
        let number = self.value.as_u64().and_then(|number| usize::try_from(number).ok());
        let number = number.filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| self.error(&format!("is a whole number from {least} to {}", thousands(most))))
    }

    /// What a name stands for.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Result<T, QueryError> {
        let name = self.text()?;
        let chosen = choices.iter().find(|(known, _)| *known == name);
        chosen.map(|(_, choice)| *choice).ok_or_else(|| {
            let known: Vec<&'static str> = choices.iter().map(|(known, _)| *known).collect();
            QueryError(format!(
                "`{}`: `{}` is none of {}{}",
                self.path,
                quoted(name),
                list(&known),
                meant(name, &known)
            ))
        })
    }
}

/// The place of a member.
fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The members of an object.
pub(crate) struct Members<'q> {
    path: String,
    object: &'q Map<String, Value>,
}

impl<'q> Members<'q> {
    pub(crate) fn get(&self, name: &'static str) -> Option<Place<'q>> {
        self.object.get(name).map(|value| Place { path: below(&self.path, name), value })
    }

    pub(crate) fn required(&self, name: &'static str) -> Result<Place<'q>, QueryError> {
        self.get(name).ok_or_else(|| QueryError(format!("`{}` is missing", below(&self.path, name))))
    }
}

/// `; did you mean …?` if there is a name like it.
fn meant(name: &str, known: &[&'static str]) -> String {
    let name = quoted(name);
    let distance = |known: &&&str| strsim::damerau_levenshtein(&name, known);
    let nearest = known.iter().min_by_key(distance);
    let is_near = |nearest: &&&str| distance(nearest) <= TYPING_ERRORS_MAX && distance(nearest) < nearest.len();
    nearest.filter(is_near).map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

/// Names as in a sentence.
pub(crate) fn list(names: &[&str]) -> String {
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        let before = if at == 0 {
            ""
        } else if at + 1 == names.len() {
            " and "
        } else {
            ", "
        };
        write!(text, "{before}`{name}`").expect("a string takes all that is written");
    }
    text
}

/// As much as an error repeats.
pub(crate) fn quoted(text: &str) -> String {
    if text.chars().count() <= QUOTED_MAX {
        text.to_owned()
    } else {
        text.chars().take(QUOTED_MAX).chain(['…']).collect()
    }
}

/// With a comma, as all bounds are below a million.
pub(crate) fn thousands(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}
