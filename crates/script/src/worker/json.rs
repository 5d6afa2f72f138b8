//! Lua's values as JSON and back: what travels from `map` to `finish`, and what a script calls `json`.

use std::fmt;

use mlua::{Lua, Table, Value};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::limits::{DEPTH_MAX, OUTPUT_BYTES_MAX};

/// Appends a value to `out`, which has at most `bytes_max` in the end.
pub(super) fn encode(value: &Value, out: &mut Vec<u8>, bytes_max: usize) -> Result<(), EncodeError> {
    JsonEncoder { out, bytes_max }.value(value, 0)
}

/// Why a value was not encoded.
#[derive(Debug)]
pub(super) enum EncodeError {
    /// It is longer than allowed.
    TooLong,
    /// It has no form in JSON.
    Formless(String),
}

impl From<&str> for EncodeError {
    fn from(message: &str) -> Self {
        Self::Formless(message.to_owned())
    }
}

impl From<mlua::Error> for EncodeError {
    fn from(error: mlua::Error) -> Self {
        Self::Formless(super::message::readable(&error))
    }
}

const MIXED: &str = "a table is a list from 1 on without holes, or has only strings as keys";

struct JsonEncoder<'a> {
    out: &'a mut Vec<u8>,
    bytes_max: usize,
}

impl JsonEncoder<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        if self.out.len() + bytes.len() > self.bytes_max {
            return Err(EncodeError::TooLong);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), EncodeError> {
        match value {
            Value::Nil => self.push(b"null"),
            null if *null == Value::NULL => self.push(b"null"),
            Value::Boolean(is_so) => self.push(if *is_so { b"true" } else { b"false" }),
            Value::Integer(number) => self.push(number.to_string().as_bytes()),
            Value::Number(number) => match serde_json::Number::from_f64(*number) {
                Some(number) => self.push(number.to_string().as_bytes()),
                None => Err("a number that is infinite, or none, has no form in JSON".into()),
            },
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Table(_) if depth >= DEPTH_MAX => {
                Err(EncodeError::Formless(format!("a table nests deeper than {DEPTH_MAX}")))
            }
            Value::Table(table) if table.raw_len() > 0 => self.array(table, depth),
            Value::Table(table) => self.object(table, depth),
            other => Err(EncodeError::Formless(format!("a {} has no form in JSON", other.type_name()))),
        }
    }

    fn text(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let text = str::from_utf8(bytes).map_err(|_| "a string is not UTF-8, and has no form in JSON")?;
        // Before it is escaped, which can make it six times as long.
        if self.out.len() + text.len() > self.bytes_max {
            return Err(EncodeError::TooLong);
        }
        let quoted = serde_json::to_string(text).map_err(|_| "a string has no form in JSON")?;
        self.push(quoted.as_bytes())
    }

    fn array(&mut self, table: &Table, depth: usize) -> Result<(), EncodeError> {
        let length = table.raw_len();
        let mut members = 0;
        table.for_each(|_: Value, _: Value| {
            members += 1;
            Ok(())
        })?;
        if members != length {
            return Err(MIXED.into());
        }
        self.push(b"[")?;
        for at in 1..=length {
            if at > 1 {
                self.push(b",")?;
            }
            self.value(&table.raw_get(at)?, depth + 1)?;
        }
        self.push(b"]")
    }

    /// In the order of the names: the same text for the same table, on every node.
    fn object(&mut self, table: &Table, depth: usize) -> Result<(), EncodeError> {
        let mut members = Vec::new();
        // A member has at least `"":0,`.
        let members_max = self.bytes_max.saturating_sub(self.out.len()) / 5;
        for member in table.pairs::<Value, Value>() {
            let (name, value) = member?;
            let Value::String(name) = name else { return Err(MIXED.into()) };
            members.push((name.as_bytes().to_vec(), value));
            if members.len() > members_max {
                return Err(EncodeError::TooLong);
            }
        }
        members.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.push(b"{")?;
        for (at, (name, value)) in members.iter().enumerate() {
            if at > 0 {
                self.push(b",")?;
            }
            self.text(name)?;
            self.push(b":")?;
            self.value(value, depth + 1)?;
        }
        self.push(b"}")
    }
}

/// The value of a text in JSON. `null` is [`Value::NULL`], at every depth.
///
/// # Errors
/// Where the text is not JSON.
pub(super) fn decode(lua: &Lua, text: &[u8]) -> Result<Value, serde_json::Error> {
    let mut from = serde_json::Deserializer::from_slice(text);
    let value = LuaDecoder { lua, depth: 0 }.deserialize(&mut from)?;
    from.end()?;
    Ok(value)
}

/// Makes Lua's values at once, so that the script's limit of memory holds for them.
#[derive(Clone, Copy)]
struct LuaDecoder<'a> {
    lua: &'a Lua,
    depth: usize,
}

impl LuaDecoder<'_> {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth >= DEPTH_MAX {
            return Err(E::custom(format_args!("it nests deeper than {DEPTH_MAX}")));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

fn failed<E: de::Error>(error: mlua::Error) -> E {
    E::custom(super::message::readable(&error))
}

impl<'de> DeserializeSeed<'de> for LuaDecoder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LuaDecoder<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::NULL)
    }

    fn visit_bool<E: de::Error>(self, is_so: bool) -> Result<Value, E> {
        Ok(Value::Boolean(is_so))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        self.lua.create_string(text).map(Value::String).map_err(failed)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let table = self.lua.create_table().map_err(failed)?;
        while let Some(value) = from.next_element_seed(deeper)? {
            table.raw_push(value).map_err(failed)?;
        }
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let table = self.lua.create_table().map_err(failed)?;
        while let Some(name) = from.next_key_seed(deeper)? {
            table.raw_set(name, from.next_value_seed(deeper)?).map_err(failed)?;
        }
        Ok(Value::Table(table))
    }
}

/// The table `json` of a script.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let raised = super::message::raised;
    let table = lua.create_table()?;
    let decode = move |lua: &Lua, text: mlua::LuaString| {
        decode(lua, &text.as_bytes()).map_err(|error| raised(lua, &format!("json.decode: {error}")))
    };
    let encode = move |lua: &Lua, value: Value| {
        let mut text = Vec::new();
        match encode(&value, &mut text, OUTPUT_BYTES_MAX) {
            Ok(()) => lua.create_string(text),
            Err(EncodeError::TooLong) => Err(raised(lua, "json.encode: the text has more than 1 MiB")),
            Err(EncodeError::Formless(message)) => Err(raised(lua, &format!("json.encode: {message}"))),
        }
    };
    table.raw_set("decode", lua.create_function(decode)?)?;
    table.raw_set("encode", lua.create_function(encode)?)?;
    table.raw_set("null", Value::NULL)?;
    Ok(table)
}
