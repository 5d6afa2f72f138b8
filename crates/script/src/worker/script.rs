//! The script in Lua: what it is given, what it emits, and how that is combined.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};

use super::json::{self, EncodeError};
use super::message::{raised, readable};
use crate::limits::{MEMORY_BYTES_MAX, OUTPUT_BYTES_MAX, OVER_OUTPUT};
use crate::wire::{ScriptRecord, push_pair, split_pair};

/// A loaded script.
pub(super) struct Script {
    lua: Lua,
    map: Function,
    combine: Option<Function>,
    finish: Option<Function>,
    emission: Rc<RefCell<Emission>>,
    /// How many values each key has, and where they are in `values`.
    keys: BTreeMap<PairKey, Vec<usize>>,
    /// In Lua, so that its limit of memory holds for them.
    values: Table,
    values_used: usize,
}

/// What `map` emits for the record at work.
#[derive(Debug)]
struct Emission {
    is_open: bool,
    pairs: Vec<u8>,
    /// Of the worker's output, with the messages of errors.
    bytes_left: usize,
    is_over: bool,
}

/// A key of a pair, in the order in which results are sorted.
#[derive(Debug, PartialEq)]
enum PairKey {
    Boolean(bool),
    Number(f64),
    Text(String),
}

impl PairKey {
    fn parse(json: &[u8]) -> Option<Self> {
        match serde_json::from_slice(json).ok()? {
            serde_json::Value::Bool(is_so) => Some(Self::Boolean(is_so)),
            serde_json::Value::Number(number) => number.as_f64().map(Self::Number),
            serde_json::Value::String(text) => Some(Self::Text(text)),
            _ => None,
        }
    }

    fn to_lua(&self, lua: &Lua) -> mlua::Result<Value> {
        Ok(match self {
            Self::Boolean(is_so) => Value::Boolean(*is_so),
            Self::Number(number) => Value::Number(*number),
            Self::Text(text) => Value::String(lua.create_string(text)?),
        })
    }
}

impl Eq for PairKey {}

impl PartialOrd for PairKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PairKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Boolean(one), Self::Boolean(other)) => one.cmp(other),
            (Self::Number(one), Self::Number(other)) => one.total_cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Boolean(_), _) | (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), _) | (Self::Number(_), Self::Boolean(_)) => Ordering::Greater,
        }
    }
}

/// Appends a pair to others, which have at most `bytes_max` in the end.
fn encode_pair(key: &Value, value: &Value, pairs: &mut Vec<u8>, bytes_max: usize) -> Result<(), EncodeError> {
    let mut texts = [Vec::new(), Vec::new()];
    let [key_text, value_text] = &mut texts;
    match key {
        Value::String(_) | Value::Boolean(_) | Value::Integer(_) => json::encode(key, key_text, bytes_max)?,
        // Zero has two signs, and is one key.
        Value::Number(number) => json::encode(&Value::Number(number + 0.0), key_text, bytes_max)?,
        other => {
            let message = format!("a key is a string, a number or a boolean, not {}", other.type_name());
            return Err(EncodeError::Formless(message));
        }
    }
    json::encode(value, value_text, bytes_max)?;
    if pairs.len() + key_text.len() + value_text.len() + 8 > bytes_max {
        return Err(EncodeError::TooLong);
    }
    push_pair(pairs, key_text, value_text);
    Ok(())
}

impl Emission {
    fn emit(&mut self, key: &Value, value: &Value) -> Result<(), String> {
        if !self.is_open {
            return Err("emit: only map may call it".to_owned());
        }
        // Once over, always over: a script that catches the error has a hole in what it emitted.
        let bytes_max = if self.is_over { 0 } else { self.bytes_left };
        match encode_pair(key, value, &mut self.pairs, bytes_max) {
            Ok(()) => Ok(()),
            Err(EncodeError::TooLong) => {
                self.is_over = true;
                Err(OVER_OUTPUT.to_owned())
            }
            Err(EncodeError::Formless(message)) => Err(format!("emit: {message}")),
        }
    }
}

/// Lua with what a script may call, and nothing else: no files, no time, no other code.
fn language(emission: &Rc<RefCell<Emission>>) -> mlua::Result<Lua> {
    let libraries = StdLib::COROUTINE | StdLib::TABLE | StdLib::STRING | StdLib::UTF8 | StdLib::BIT | StdLib::MATH;
    let lua = Lua::new_with(libraries | StdLib::BUFFER, LuaOptions::default())?;
    let globals = lua.globals();
    for name in ["require", "loadstring", "collectgarbage", "gcinfo", "getfenv", "setfenv", "newproxy"] {
        globals.raw_set(name, Value::Nil)?;
    }
    let refused =
        |lua: &Lua, (): ()| -> mlua::Result<()> { Err(raised(lua, "print: nobody reads it; emit gives a result")) };
    globals.raw_set("print", lua.create_function(refused)?)?;
    let emission = Rc::clone(emission);
    let emit = move |lua: &Lua, (key, value): (Value, Value)| {
        emission.borrow_mut().emit(&key, &value).map_err(|message| raised(lua, &message))
    };
    globals.raw_set("emit", lua.create_function(emit)?)?;
    globals.raw_set("json", json::library(&lua)?)?;
    lua.sandbox(true)?;
    lua.set_memory_limit(MEMORY_BYTES_MAX)?;
    Ok(lua)
}

impl Script {
    /// Compiles the source and runs it once, which defines its functions.
    ///
    /// # Errors
    /// A message for the client, as everywhere below.
    pub(super) fn load(source: &[u8]) -> Result<Self, String> {
        let source = str::from_utf8(source).map_err(|_| "the script is not UTF-8".to_owned())?;
        let emission = Emission { is_open: false, pairs: Vec::new(), bytes_left: OUTPUT_BYTES_MAX, is_over: false };
        let emission = Rc::new(RefCell::new(emission));
        let start = || {
            let lua = language(&emission)?;
            let values = lua.create_table()?;
            lua.load(source).set_name("=script").set_mode(mlua::chunk::ChunkMode::Text).exec()?;
            Ok((lua, values))
        };
        let (lua, values) = start().map_err(|error| readable(&error))?;
        let function = |name: &str| match lua.globals().raw_get(name) {
            Ok(Value::Function(function)) => Ok(Some(function)),
            Ok(Value::Nil) => Ok(None),
            Ok(other) => Err(format!("{name} is a {}, and has to be a function", other.type_name())),
            Err(error) => Err(readable(&error)),
        };
        let map = function("map")?.ok_or("the script defines no function map(key, value, meta)")?;
        let (combine, finish) = (function("combine")?, function("finish")?);
        Ok(Self { lua, map, combine, finish, emission, keys: BTreeMap::new(), values, values_used: 0 })
    }

    fn meta(&self, record: &ScriptRecord<'_>) -> mlua::Result<Table> {
        let meta = self.lua.create_table()?;
        meta.raw_set("size", record.value.len() as f64)?;
        meta.raw_set("written_ms", record.written_ms as f64)?;
        meta.raw_set("expires_ms", record.expires_ms.map(|moment| moment as f64))?;
        let content_type = record.content_type.map(|text| self.lua.create_string(text)).transpose()?;
        meta.raw_set("content_type", content_type)?;
        Ok(meta)
    }

    /// The pairs that `map` emitted for a record.
    pub(super) fn map(&self, record: &ScriptRecord<'_>) -> Result<Vec<u8>, String> {
        self.emission.borrow_mut().is_open = true;
        let call = || {
            let (key, value) = (self.lua.create_string(record.key)?, self.lua.create_string(record.value)?);
            self.map.call::<()>((key, value, self.meta(record)?))
        };
        let returned: mlua::Result<()> = call();
        let mut emission = self.emission.borrow_mut();
        emission.is_open = false;
        let pairs = std::mem::take(&mut emission.pairs);
        let result = match returned {
            _ if emission.is_over => Err(OVER_OUTPUT.to_owned()),
            Ok(()) => Ok(pairs),
            Err(error) => Err(readable(&error)),
        };
        let used = result.as_ref().map_or_else(String::len, Vec::len);
        match emission.bytes_left.checked_sub(used) {
            Some(left) => emission.bytes_left = left,
            None => emission.is_over = true,
        }
        result
    }

    /// Takes the pairs of one record, of those of one key the later ones last.
    pub(super) fn add(&mut self, mut pairs: &[u8]) -> Result<(), String> {
        while !pairs.is_empty() {
            let (key, value) = split_pair(&mut pairs).ok_or("the pairs are malformed")?;
            let key = PairKey::parse(key).ok_or("the pairs are malformed")?;
            let value = json::decode(&self.lua, value).map_err(|error| error.to_string())?;
            self.add_value(key, absent_if_null(value)).map_err(|error| readable(&error))?;
        }
        Ok(())
    }

    fn add_value(&mut self, key: PairKey, value: Value) -> mlua::Result<()> {
        let places = self.keys.entry(key).or_default();
        match (places.first(), &self.combine) {
            (Some(place), Some(combine)) => {
                let before: Value = self.values.raw_get(*place)?;
                self.values.raw_set(*place, combine.call::<Value>((before, value))?)
            }
            _ => {
                self.values_used += 1;
                places.push(self.values_used);
                self.values.raw_set(self.values_used, value)
            }
        }
    }

    /// All pairs, as far as they are combined, in the order of their keys.
    pub(super) fn combined(&self) -> Result<Vec<u8>, String> {
        encode_list(&self.sorted().map_err(|error| readable(&error))?)
    }

    /// The result: the same, as `finish` leaves it.
    pub(super) fn finish(&self) -> Result<Vec<u8>, String> {
        let list = self.sorted().and_then(|sorted| match &self.finish {
            Some(finish) => finish.call::<Value>(sorted),
            None => Ok(Value::Table(sorted)),
        });
        let Value::Table(list) = list.map_err(|error| readable(&error))? else {
            return Err("finish has to return a list of {key = …, value = …}".to_owned());
        };
        encode_list(&list)
    }

    fn sorted(&self) -> mlua::Result<Table> {
        let sorted = self.lua.create_table()?;
        for (key, places) in &self.keys {
            let key = key.to_lua(&self.lua)?;
            for place in places {
                let pair = self.lua.create_table()?;
                pair.raw_set("key", &key)?;
                pair.raw_set("value", self.values.raw_get::<Value>(*place)?)?;
                sorted.raw_push(pair)?;
            }
        }
        Ok(sorted)
    }
}

/// What was emitted as `nil` comes back as `nil`.
fn absent_if_null(value: Value) -> Value {
    if value == Value::NULL { Value::Nil } else { value }
}

/// The pairs of a list, which are the worker's output.
fn encode_list(list: &Table) -> Result<Vec<u8>, String> {
    let mut pairs = Vec::new();
    for at in 1..=list.raw_len() {
        let Ok(Value::Table(pair)) = list.raw_get(at) else {
            return Err(format!("finish has to return a list of {{key = …, value = …}}, and {at} is none"));
        };
        let member = |name: &str| pair.raw_get::<Value>(name).map_err(|error| readable(&error));
        match encode_pair(&member("key")?, &member("value")?, &mut pairs, OUTPUT_BYTES_MAX) {
            Ok(()) => {}
            Err(EncodeError::TooLong) => return Err(OVER_OUTPUT.to_owned()),
            Err(EncodeError::Formless(message)) => return Err(format!("pair {at} of the result: {message}")),
        }
    }
    Ok(pairs)
}
