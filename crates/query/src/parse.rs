//! A query from its JSON. What is unknown, or out of bounds, is named by its path.

use std::cmp::Ordering;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::aggregate::{AGGREGATES, Aggregate};
use crate::condition::{BytesTest, OrderTest, PathCondition, RecordCondition, ValueTest};
use crate::extract::{JsonPointer, KEPT_BYTES_MAX, Keep, PathSet};
use crate::json::{Numeric, compare, weight};
use crate::members::{Members, Place, QueryError, list, quoted};
use crate::query::{Query, QueryGrouping, QueryRange};
use crate::row::{Column, ColumnKind};

/// The longest body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

const CONDITIONS_MAX: usize = 32;
/// Values of an `in`, bounds of a histogram, entries of a `top`.
const LIST_MAX: usize = 1000;
const POINTER_BYTES_MAX: usize = 1024;
const SEPARATOR_BYTES_MAX: usize = 16;
/// As keys have: a separator is a byte at least, so no segment of a key is beyond.
const KEY_BYTES_MAX: usize = 2048;

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// [`QueryError`], in words for the client.
    pub fn parse(body: &[u8]) -> Result<Self, QueryError> {
        if body.len() > BODY_BYTES_MAX {
            return Err(QueryError("the query has more than 64 KiB".to_owned()));
        }
        let UniqueMembers(value) = serde_json::from_slice(body)
            .map_err(|error| QueryError(format!("the query is not JSON as it should be: {error}")))?;
        let place = Place { path: String::new(), value: &value };
        let members = place.members(&[
            "prefix",
            "prefix_base64",
            "start",
            "start_base64",
            "end",
            "end_base64",
            "where",
            "group_by",
            "select",
        ])?;
        let mut query = Self {
            range: range(&members)?,
            record_conditions: Vec::new(),
            path_conditions: Vec::new(),
            paths: PathSet::default(),
            grouping: QueryGrouping::None,
            columns: Vec::new(),
            aggregates: Vec::new(),
        };
        if let Some(conditions) = members.get("where") {
            conditions.list(CONDITIONS_MAX)?.iter().try_for_each(|condition| query.add_condition(condition))?;
        }
        if let Some(grouping) = members.get("group_by") {
            query.grouping = query.read_grouping(&grouping)?;
        }
        query.add_aggregates(&members.required("select")?)?;
        Ok(query)
    }

    fn add_condition(&mut self, place: &Place<'_>) -> Result<(), QueryError> {
        let members = place.members(&["path", "on", "op", "value"])?;
        match (members.get("path"), members.get("on")) {
            (Some(path), None) => {
                let test = value_test(&members)?;
                let slot = self.paths.add(pointer(&path)?, needed_by(&test));
                self.path_conditions.push(PathCondition { slot, test });
            }
            (None, Some(on)) => self.record_conditions.push(record_condition(&members, &on)?),
            _ => return Err(place.error("has either `path` or `on`")),
        }
        Ok(())
    }

    fn read_grouping(&mut self, place: &Place<'_>) -> Result<QueryGrouping, QueryError> {
        let members = place.members(&["key_segment", "separator", "path"])?;
        match (members.get("key_segment"), members.get("separator"), members.get("path")) {
            (Some(at), separator, None) => {
                let at = at.whole(0, KEY_BYTES_MAX)?;
                let separator = match separator {
                    None => "/",
                    Some(separator) => match separator.text()? {
                        text if (1..=SEPARATOR_BYTES_MAX).contains(&text.len()) => text,
                        _ => return Err(separator.error("is a text of 1 to 16 bytes")),
                    },
                };
                Ok(QueryGrouping::KeySegment { at, separator: separator.into() })
            }
            (None, None, Some(path)) => {
                let column = self.column(&path, ColumnKind::Group)?;
                Ok(QueryGrouping::Path { column })
            }
            _ => Err(place.error("has either `path`, or `key_segment` with or without `separator`")),
        }
    }

    fn add_aggregates(&mut self, place: &Place<'_>) -> Result<(), QueryError> {
        let members = place.members(&AGGREGATES)?;
        for name in AGGREGATES {
            if let Some(place) = members.get(name) {
                let aggregate = self.aggregate(name, &place)?;
                self.aggregates.push(aggregate);
            }
        }
        if self.aggregates.is_empty() {
            return Err(place.error(&format!("has at least one of {}", list(&AGGREGATES))));
        }
        Ok(())
    }

    fn aggregate(&mut self, name: &'static str, place: &Place<'_>) -> Result<Aggregate, QueryError> {
        let members = place.members(match name {
            "count" => &[],
            "histogram" => &["path", "bounds"],
            "top" => &["path", "n"],
            _ => &["path"],
        })?;
        if name == "count" {
            return Ok(Aggregate::Count);
        }
        let kind = match name {
            "sum" | "avg" | "histogram" => ColumnKind::Numbers,
            "distinct" => ColumnKind::Hash,
            _ => ColumnKind::Scalars,
        };
        let column = self.column(&members.required("path")?, kind)?;
        Ok(match name {
            "sum" => Aggregate::Sum(column),
            "min" => Aggregate::Min(column),
            "max" => Aggregate::Max(column),
            "avg" => Aggregate::Average(column),
            "histogram" => Aggregate::Histogram(column, bounds(&members.required("bounds")?)?),
            "top" => Aggregate::Top(column, members.required("n")?.whole(1, LIST_MAX)?),
            _ => Aggregate::Distinct(column),
        })
    }

    /// The column of a path; one that has texts beside numbers has all that one of numbers has.
    fn column(&mut self, path: &Place<'_>, kind: ColumnKind) -> Result<usize, QueryError> {
        let keep = if kind >= ColumnKind::Hash { Keep::Whole } else { Keep::Presence };
        let slot = self.paths.add(pointer(path)?, keep);
        let is_shared = |column: &&mut Column| {
            column.slot == slot && (column.kind == kind || column.kind.max(kind) <= ColumnKind::Scalars)
        };
        match self.columns.iter_mut().enumerate().find(|(_, column)| is_shared(column)) {
            Some((at, column)) => {
                column.kind = column.kind.max(kind);
                Ok(at)
            }
            None => {
                self.columns.push(Column { slot, kind });
                Ok(self.columns.len() - 1)
            }
        }
    }
}

fn range(members: &Members<'_>) -> Result<QueryRange, QueryError> {
    let bound = |text: &'static str, base64: &'static str| match (members.get(text), members.get(base64)) {
        (Some(_), Some(_)) => Err(QueryError(format!("`{text}` and `{base64}` exclude each other"))),
        (Some(place), None) => limited(&place, place.text()?.into()).map(Some),
        (None, Some(place)) => {
            let bytes = STANDARD.decode(place.text()?).map_err(|_| place.error("is base64, with its padding"))?;
            limited(&place, bytes).map(Some)
        }
        (None, None) => Ok(None),
    };
    match (bound("prefix", "prefix_base64")?, bound("start", "start_base64")?, bound("end", "end_base64")?) {
        (Some(prefix), None, None) => {
            let end = behind(&prefix);
            Ok(QueryRange { start: prefix, end })
        }
        (None, Some(start), end) if start.is_empty() || end.as_ref().is_some_and(Vec::is_empty) => {
            Err(QueryError("`start` and `end` are not empty: the prefix \"\" is for all keys".to_owned()))
        }
        (None, Some(start), end) => Ok(QueryRange { start, end }),
        _ => Err(QueryError("a query has `prefix`, which may be empty, or `start` with or without `end`".to_owned())),
    }
}

fn limited(place: &Place<'_>, bytes: Vec<u8>) -> Result<Vec<u8>, QueryError> {
    if bytes.len() <= KEY_BYTES_MAX { Ok(bytes) } else { Err(place.error("has at most 2,048 bytes, as a key")) }
}

/// The first key behind all that begin with `prefix`; none if there is no such key.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

fn pointer(place: &Place<'_>) -> Result<JsonPointer, QueryError> {
    let text = place.text()?;
    if text.len() > POINTER_BYTES_MAX {
        return Err(place.error("has at most 1,024 bytes"));
    }
    JsonPointer::parse(text).ok_or_else(|| {
        place
            .error("is a JSON pointer (RFC 6901): empty, or each name behind a `/`, with `~1` for `/` and `~0` for `~`")
    })
}

#[derive(Clone, Copy)]
enum PathOp {
    Order(OrderTest),
    Exists,
    In,
}

const ORDER_OPS: [(&str, OrderTest); 6] = [
    ("eq", OrderTest::Equal),
    ("ne", OrderTest::NotEqual),
    ("lt", OrderTest::Less),
    ("le", OrderTest::LessOrEqual),
    ("gt", OrderTest::Greater),
    ("ge", OrderTest::GreaterOrEqual),
];

fn value_test(members: &Members<'_>) -> Result<ValueTest, QueryError> {
    let mut ops: Vec<(&'static str, PathOp)> =
        ORDER_OPS.iter().map(|(name, test)| (*name, PathOp::Order(*test))).collect();
    ops.extend([("exists", PathOp::Exists), ("in", PathOp::In)]);
    Ok(match members.required("op")?.choice(&ops)? {
        PathOp::Exists => match members.get("value").map(|place| (place.value.as_bool(), place)) {
            None | Some((Some(true), _)) => ValueTest::Present,
            Some((Some(false), _)) => ValueTest::Absent,
            Some((None, place)) => return Err(place.error("is true or false, as `op` is `exists`")),
        },
        PathOp::Order(test @ (OrderTest::Equal | OrderTest::NotEqual)) => {
            ValueTest::Order(test, constant(&members.required("value")?)?)
        }
        PathOp::Order(test) => {
            let place = members.required("value")?;
            match place.value {
                Value::Number(_) | Value::String(_) => ValueTest::Order(test, place.value.clone()),
                _ => return Err(place.error("is a number or text: other values are neither less nor greater")),
            }
        }
        PathOp::In => {
            let values = members.required("value")?.list(LIST_MAX)?;
            let mut values = values.iter().map(constant).collect::<Result<Vec<_>, _>>()?;
            values.sort_by(compare);
            ValueTest::In(values)
        }
    })
}

/// A value that what is found can equal: of an array or object no more is kept.
fn constant(place: &Place<'_>) -> Result<Value, QueryError> {
    let is_whole = place.value.is_array() || place.value.is_object();
    if is_whole && weight(place.value) > KEPT_BYTES_MAX {
        return Err(place.error("is an array or object of more than 16 KiB"));
    }
    Ok(place.value.clone())
}

fn needed_by(test: &ValueTest) -> Keep {
    let is_whole = |value: &Value| value.is_array() || value.is_object();
    let needs_whole = match test {
        ValueTest::Order(_, value) => is_whole(value),
        ValueTest::In(values) => values.iter().any(is_whole),
        ValueTest::Present | ValueTest::Absent => false,
    };
    if needs_whole { Keep::Whole } else { Keep::Presence }
}

#[derive(Clone, Copy)]
enum BytesOp {
    Equal,
    NotEqual,
    Prefix,
    Suffix,
    Contains,
    In,
}

#[derive(Clone, Copy)]
enum RecordPart {
    Key,
    Size,
    Age,
    ContentType,
}

fn record_condition(members: &Members<'_>, on: &Place<'_>) -> Result<RecordCondition, QueryError> {
    const PARTS: [(&str, RecordPart); 4] = [
        ("key", RecordPart::Key),
        ("size", RecordPart::Size),
        ("age", RecordPart::Age),
        ("content_type", RecordPart::ContentType),
    ];
    const KEY_OPS: [(&str, BytesOp); 4] = [
        ("prefix", BytesOp::Prefix),
        ("suffix", BytesOp::Suffix),
        ("contains", BytesOp::Contains),
        ("eq", BytesOp::Equal),
    ];
    const CONTENT_TYPE_OPS: [(&str, BytesOp); 6] = [
        ("eq", BytesOp::Equal),
        ("ne", BytesOp::NotEqual),
        ("prefix", BytesOp::Prefix),
        ("suffix", BytesOp::Suffix),
        ("contains", BytesOp::Contains),
        ("in", BytesOp::In),
    ];
    let part = on.choice(&PARTS)?;
    let op = members.required("op")?;
    Ok(match part {
        RecordPart::Key => RecordCondition::Key(bytes_test(op.choice(&KEY_OPS)?, members)?),
        RecordPart::ContentType => RecordCondition::ContentType(bytes_test(op.choice(&CONTENT_TYPE_OPS)?, members)?),
        RecordPart::Size => RecordCondition::Size(op.choice(&ORDER_OPS)?, number(&members.required("value")?)?),
        RecordPart::Age => RecordCondition::Age(op.choice(&ORDER_OPS)?, number(&members.required("value")?)?),
    })
}

fn bytes_test(op: BytesOp, members: &Members<'_>) -> Result<BytesTest, QueryError> {
    let value = members.required("value")?;
    let text = || value.text().map(|text| text.as_bytes().to_vec());
    Ok(match op {
        BytesOp::Equal => BytesTest::Equal(text()?),
        BytesOp::NotEqual => BytesTest::NotEqual(text()?),
        BytesOp::Prefix => BytesTest::Prefix(text()?),
        BytesOp::Suffix => BytesTest::Suffix(text()?),
        BytesOp::Contains => BytesTest::Contains(text()?),
        BytesOp::In => {
            let texts = value.list(LIST_MAX)?;
            BytesTest::In(texts.iter().map(|text| Ok(text.text()?.into())).collect::<Result<_, _>>()?)
        }
    })
}

fn number(place: &Place<'_>) -> Result<Numeric, QueryError> {
    match place.value {
        Value::Number(number) => Ok(Numeric::of(number)),
        _ => Err(place.error("is a number")),
    }
}

fn bounds(place: &Place<'_>) -> Result<Vec<Numeric>, QueryError> {
    let numbers = place.list(LIST_MAX)?.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let is_ascending = numbers.is_sorted_by(|one, next| one.compare(*next) == Ordering::Less);
    if is_ascending && !numbers.is_empty() { Ok(numbers) } else { Err(place.error("has 1 to 1,000 ascending numbers")) }
}

/// A value none of whose objects has two members of one name: the second would be taken, and nobody told.
struct UniqueMembers(Value);

impl<'de> Deserialize<'de> for UniqueMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number beyond the floats"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueMembers(value)) = elements.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the member `{}` is given twice", quoted(&name))));
            }
            let UniqueMembers(value) = members.next_value()?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}
