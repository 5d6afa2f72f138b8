//! Values of JSON: their order, and one text for all that are equal.
//!
//! The order is total: null, false, true, numbers, texts, arrays, objects. Numbers compare by what they say, so that
//! `1` and `1.0` are equal, and integers of 64 bits never go through a float. Texts compare by their bytes, arrays by
//! their elements, objects by their members in the order of the names.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// An integer of JSON, which has 64 bits, a sum of such, or a finite float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Numeric {
    Integer(i128),
    Float(f64),
}

impl Numeric {
    pub(crate) fn of(number: &Number) -> Self {
        match number.as_i128() {
            Some(integer) => Self::Integer(integer),
            None => Self::Float(number.as_f64().unwrap_or_default()),
        }
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one.cmp(&other),
            (Self::Float(one), Self::Float(other)) => one.partial_cmp(&other).unwrap_or(Ordering::Equal),
            (Self::Integer(integer), Self::Float(float)) => compare_with_float(integer, float),
            (Self::Float(float), Self::Integer(integer)) => compare_with_float(integer, float).reverse(),
        }
    }

    /// The integer instead of a float that equals one of 64 bits.
    pub(crate) fn canonical(self) -> Self {
        match self {
            Self::Float(float) if float.fract() == 0.0 && is_integer_of_json(truncated(float)) => {
                Self::Integer(truncated(float))
            }
            other => other,
        }
    }

    /// Null for what is beyond the floats; an integer beyond 64 bits becomes a float.
    pub(crate) fn json(self) -> Value {
        match self {
            Self::Integer(integer) => match (u64::try_from(integer), i64::try_from(integer)) {
                (Ok(integer), _) => integer.into(),
                (_, Ok(integer)) => integer.into(),
                _ => float_of(integer).into(),
            },
            Self::Float(float) => float.into(),
        }
    }
}

/// Whether JSON has this integer: what is beyond is read as a float.
pub(crate) fn is_integer_of_json(integer: i128) -> bool {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&integer)
}

#[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
pub(crate) fn float_of(integer: i128) -> f64 {
    integer as f64
}

#[expect(clippy::cast_possible_truncation, reason = "saturates beyond all integers of JSON")]
fn truncated(float: f64) -> i128 {
    float.trunc() as i128
}

/// Exact: the float's whole part decides, then its fraction.
fn compare_with_float(integer: i128, float: f64) -> Ordering {
    let fraction = 0.0_f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal);
    integer.cmp(&truncated(float)).then(fraction)
}

pub(crate) fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => Numeric::of(one).compare(Numeric::of(other)),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let pairs = one.iter().zip(other).map(|(one, other)| compare(one, other));
            first_difference(pairs).then(one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let pairs = one.iter().zip(other);
            let pairs = pairs.map(|(one, other)| one.0.cmp(other.0).then_with(|| compare(one.1, other.1)));
            first_difference(pairs).then(one.len().cmp(&other.len()))
        }
        _ => kind(one).cmp(&kind(other)),
    }
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

/// The same for all values that are equal, and for no others: without spaces, members in the order of their names,
/// integers without a fraction.
pub(crate) fn canonical(value: Value) -> String {
    plain(value).to_string()
}

fn plain(value: Value) -> Value {
    match value {
        Value::Number(number) => Numeric::of(&number).canonical().json(),
        Value::Array(elements) => elements.into_iter().map(plain).collect(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, plain(value))).collect(),
        other => other,
    }
}

/// What a value counts for toward a bound. Equal values count the same.
pub(crate) fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text_weight(text),
        Value::Array(elements) => elements.iter().map(weight).sum::<usize>() + SCALAR_WEIGHT,
        Value::Object(members) => {
            members.iter().map(|(name, value)| text_weight(name) + weight(value)).sum::<usize>() + SCALAR_WEIGHT
        }
        _ => SCALAR_WEIGHT,
    }
}

pub(crate) const SCALAR_WEIGHT: usize = 8;

pub(crate) fn text_weight(text: &str) -> usize {
    text.len() + SCALAR_WEIGHT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    /// In ascending order.
    const VALUES: &[&str] = &[
        "null",
        "false",
        "true",
        "-1e300",
        "-9223372036854775808",
        "-9223372036854775807",
        "-1.5",
        "-1",
        "0",
        "0.1",
        "1",
        "1.5",
        "9007199254740992",
        "9007199254740993",
        "18446744073709551614",
        "18446744073709551615",
        "18446744073709551616",
        "1e300",
        "\"\"",
        "\"a\"",
        "\"a\\u0000\"",
        "\"b\"",
        "\"\u{e9}\"",
        "[]",
        "[1]",
        "[1,2]",
        "[2]",
        "{}",
        "{\"a\":1}",
        "{\"a\":1,\"b\":0}",
        "{\"a\":2}",
        "{\"b\":0}",
    ];

    #[test]
    fn the_order_of_values_is_total() {
        for (at, one) in VALUES.iter().enumerate() {
            for (other_at, other) in VALUES.iter().enumerate() {
                assert_eq!(compare(&json(one), &json(other)), at.cmp(&other_at), "{one} and {other}");
            }
        }
    }

    #[test]
    fn equal_values_have_one_text_and_one_weight() {
        let equal = [
            ("1", "1.0"),
            ("0", "-0.0"),
            ("1e2", "100"),
            ("[1.0,{\"b\":2,\"a\":[]}]", "[1,{\"a\":[],\"b\":2.0}]"),
            ("18446744073709551616", "18446744073709551616.0"),
            ("-9223372036854775808", "-9223372036854775808.0"),
        ];
        for (one, other) in equal {
            let (one, other) = (json(one), json(other));
            assert_eq!(compare(&one, &other), Ordering::Equal, "{one} and {other}");
            assert_eq!(weight(&one), weight(&other));
            assert_eq!(canonical(one), canonical(other));
        }
        let texts: std::collections::BTreeSet<String> = VALUES.iter().map(|text| canonical(json(text))).collect();
        assert_eq!(texts.len(), VALUES.len());
        assert_eq!(canonical(json("{\"b\":1.0,\"a\":[1.5,null]}")), "{\"a\":[1.5,null],\"b\":1}");
    }
}
