//! What a record must fulfil. A record that lacks what a condition is about fulfils nothing but that it is not there.

use std::cmp::Ordering;

use serde_json::Value;

use crate::extract::FoundValue;
use crate::json::{Numeric, compare};

/// How two values that can be ordered must lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderTest {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl OrderTest {
    fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// What bytes must be.
#[derive(Debug)]
pub(crate) enum BytesTest {
    Equal(Vec<u8>),
    NotEqual(Vec<u8>),
    Prefix(Vec<u8>),
    Suffix(Vec<u8>),
    Contains(Vec<u8>),
    In(Vec<Vec<u8>>),
}

impl BytesTest {
    fn accepts(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Equal(wanted) => bytes == wanted,
            Self::NotEqual(unwanted) => bytes != unwanted,
            Self::Prefix(prefix) => bytes.starts_with(prefix),
            Self::Suffix(suffix) => bytes.ends_with(suffix),
            Self::Contains(part) => part.is_empty() || bytes.windows(part.len()).any(|window| window == part),
            Self::In(list) => list.iter().any(|wanted| bytes == wanted),
        }
    }
}

/// A condition on what is known without looking into the value.
#[derive(Debug)]
pub(crate) enum RecordCondition {
    Key(BytesTest),
    ContentType(BytesTest),
    /// Bytes of the value.
    Size(OrderTest, Numeric),
    /// Whole seconds since it was written.
    Age(OrderTest, Numeric),
}

/// What such conditions look at.
pub(crate) struct RecordFacts<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) size_bytes: usize,
    pub(crate) age_s: u64,
}

impl RecordCondition {
    pub(crate) fn holds(&self, facts: &RecordFacts<'_>) -> bool {
        match self {
            Self::Key(test) => test.accepts(facts.key),
            Self::ContentType(test) => facts.content_type.is_some_and(|content_type| test.accepts(content_type)),
            Self::Size(test, size) => {
                let bytes = Numeric::Integer(i128::try_from(facts.size_bytes).unwrap_or(i128::MAX));
                test.accepts(bytes.compare(*size))
            }
            Self::Age(test, age) => test.accepts(Numeric::Integer(facts.age_s.into()).compare(*age)),
        }
    }
}

/// What the value at a path must be.
#[derive(Debug)]
pub(crate) enum ValueTest {
    Present,
    Absent,
    /// Less and greater only by a number or text, and only of the same kind.
    Order(OrderTest, Value),
    /// In ascending order.
    In(Vec<Value>),
}

/// A condition on the value at a path.
#[derive(Debug)]
pub(crate) struct PathCondition {
    pub(crate) slot: usize,
    pub(crate) test: ValueTest,
}

impl PathCondition {
    pub(crate) fn holds(&self, found: &[Option<FoundValue<'_>>]) -> bool {
        let found = found.get(self.slot).and_then(Option::as_ref);
        match (&self.test, found) {
            (ValueTest::Absent, found) => found.is_none(),
            (ValueTest::Present, found) => found.is_some(),
            (_, None) => false,
            (ValueTest::Order(test @ (OrderTest::Equal | OrderTest::NotEqual), wanted), Some(found)) => {
                test.accepts(compare_found(found, wanted))
            }
            (ValueTest::Order(test, bound), Some(found)) => {
                is_same_kind(found, bound) && test.accepts(compare_found(found, bound))
            }
            (ValueTest::In(list), Some(found)) => {
                list.binary_search_by(|wanted| compare_found(found, wanted).reverse()).is_ok()
            }
        }
    }

    /// Whether it holds for what is no JSON.
    pub(crate) fn holds_without_json(&self) -> bool {
        matches!(self.test, ValueTest::Absent)
    }
}

/// What is not kept is behind all that a query can name.
fn compare_found(found: &FoundValue<'_>, value: &Value) -> Ordering {
    match (found, value) {
        (FoundValue::Json(found), value) => compare(found, value),
        (FoundValue::Text(found), Value::String(text)) => found.as_ref().cmp(text),
        (FoundValue::Text(_), Value::Null | Value::Bool(_) | Value::Number(_)) => Ordering::Greater,
        (FoundValue::Text(_), Value::Array(_) | Value::Object(_)) => Ordering::Less,
        (FoundValue::Large, _) => Ordering::Greater,
    }
}

fn is_same_kind(found: &FoundValue<'_>, bound: &Value) -> bool {
    match found {
        FoundValue::Json(Value::Number(_)) => bound.is_number(),
        FoundValue::Text(_) => bound.is_string(),
        _ => false,
    }
}
