//! What a node sends in place of a value: a byte that says what the record is to the query, and a cell for each of the
//! query's columns, by postcard. The key travels beside it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::extract::{FoundValue, KEPT_BYTES_MAX};
use crate::json::{Numeric, canonical, is_integer_of_json};

/// What a record is to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RowKind {
    /// It fulfils the conditions. Cells follow.
    Matched,
    /// It fulfils them, and its value is no JSON. No cells follow: all would be empty.
    MatchedNotJson,
    /// Its value would have to be JSON. No cells follow.
    NotJson,
}

/// What of the value at a path a query needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ColumnKind {
    Numbers,
    /// Numbers and texts.
    Scalars,
    /// The hash of what the value says.
    Hash,
    /// The canonical text of the value, which names a group.
    Group,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) slot: usize,
    pub(crate) kind: ColumnKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum RowCell<'a> {
    Nothing,
    Integer(i128),
    Float(f64),
    Text(&'a str),
    Hash(u64),
    /// A text or group too long for a row.
    TooLong,
}

/// No row of this query.
#[derive(Debug)]
pub(crate) struct MalformedRow;

impl Column {
    /// Appends the cell of a value.
    pub(crate) fn write(self, found: Option<&FoundValue<'_>>, row: &mut Vec<u8>) {
        match (self.kind, found) {
            (ColumnKind::Numbers | ColumnKind::Scalars, Some(FoundValue::Json(Value::Number(number)))) => {
                let cell = match Numeric::of(number) {
                    Numeric::Integer(integer) => RowCell::Integer(integer),
                    Numeric::Float(float) => RowCell::Float(float),
                };
                append(&cell, row);
            }
            (ColumnKind::Scalars, Some(FoundValue::Text(text))) if text.len() <= KEPT_BYTES_MAX => {
                append(&RowCell::Text(text), row);
            }
            (ColumnKind::Scalars, Some(FoundValue::Text(_))) => append(&RowCell::TooLong, row),
            (ColumnKind::Numbers | ColumnKind::Scalars, _) | (ColumnKind::Hash, None) => append(&RowCell::Nothing, row),
            (ColumnKind::Hash | ColumnKind::Group, Some(FoundValue::Large)) => append(&RowCell::TooLong, row),
            (ColumnKind::Hash, Some(found)) => append(&RowCell::Hash(xxh3_64(text_of(found).as_bytes())), row),
            (ColumnKind::Group, None) => append(&RowCell::Text("null"), row),
            (ColumnKind::Group, Some(FoundValue::Text(text))) if text.len() > KEPT_BYTES_MAX => {
                append(&RowCell::TooLong, row);
            }
            (ColumnKind::Group, Some(found)) => append(&RowCell::Text(&text_of(found)), row),
        }
    }

    fn allows(self, cell: &RowCell<'_>) -> bool {
        match cell {
            RowCell::Nothing => self.kind != ColumnKind::Group,
            RowCell::Integer(integer) => self.kind <= ColumnKind::Scalars && is_integer_of_json(*integer),
            RowCell::Float(float) => self.kind <= ColumnKind::Scalars && float.is_finite(),
            RowCell::Text(_) => matches!(self.kind, ColumnKind::Scalars | ColumnKind::Group),
            RowCell::Hash(_) => self.kind == ColumnKind::Hash,
            RowCell::TooLong => self.kind != ColumnKind::Numbers,
        }
    }
}

fn text_of(found: &FoundValue<'_>) -> String {
    match found {
        FoundValue::Json(value) => canonical(value.clone()),
        FoundValue::Text(text) => Value::from(text.as_ref()).to_string(),
        FoundValue::Large => String::new(),
    }
}

pub(crate) fn append(part: &impl Serialize, row: &mut Vec<u8>) {
    let taken = std::mem::take(row);
    *row = postcard::to_extend(part, taken).expect("a vector takes all that is written");
}

/// Reads a row. Without cells where they are empty.
///
/// # Errors
/// It is not one of a query with these columns.
pub(crate) fn read<'a>(row: &'a [u8], columns: &[Column]) -> Result<(RowKind, Vec<RowCell<'a>>), MalformedRow> {
    let (kind, mut rest) = postcard::take_from_bytes::<RowKind>(row).map_err(|_| MalformedRow)?;
    let mut cells = Vec::new();
    if kind == RowKind::Matched {
        cells.reserve_exact(columns.len());
        for column in columns {
            let (cell, behind) = postcard::take_from_bytes(rest).map_err(|_| MalformedRow)?;
            if !column.allows(&cell) {
                return Err(MalformedRow);
            }
            cells.push(cell);
            rest = behind;
        }
    }
    if rest.is_empty() { Ok((kind, cells)) } else { Err(MalformedRow) }
}
