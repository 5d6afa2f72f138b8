//! What a query needs of a value, taken out of it in one pass and without a tree of all the rest: a value may have
//! hundreds of megabytes.
//!
//! What counts as JSON is what `serde_json` reads as such, with its limit of 128 nested arrays and objects. Of members
//! with the same name the last counts.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use crate::json::{SCALAR_WEIGHT, text_weight};

/// The most that is kept of an array or object, by weight, and the longest text in a row.
pub(crate) const KEPT_BYTES_MAX: usize = 16 * 1024;

/// A JSON pointer (RFC 6901), as its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPointer(Vec<String>);

impl JsonPointer {
    /// None: it is no pointer.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Some(tokens) = text.strip_prefix('/') else { return text.is_empty().then(|| Self(Vec::new())) };
        let token = |raw: &str| {
            let is_escaped = raw.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            is_escaped.then(|| raw.replace("~1", "/").replace("~0", "~"))
        };
        tokens.split('/').map(token).collect::<Option<_>>().map(Self)
    }
}

/// What is kept of an array or object that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// That it is there.
    Presence,
    /// All of it, up to [`KEPT_BYTES_MAX`].
    Whole,
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum FoundValue<'v> {
    /// No text. An array or object only where it is kept whole.
    Json(Value),
    Text(Cow<'v, str>),
    /// An array or object that is not kept, or too large for it.
    Large,
}

/// The paths of a query. Each has a number, its *slot*.
#[derive(Debug, Default)]
pub(crate) struct PathSet {
    paths: Vec<JsonPointer>,
    root: PathNode,
}

#[derive(Debug, Default)]
struct PathNode {
    slot: Option<usize>,
    keep: bool,
    children: Vec<PathChild>,
}

#[derive(Debug)]
struct PathChild {
    token: String,
    /// The element that the token is of an array.
    index: Option<usize>,
    node: PathNode,
}

impl PathSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The path's slot, a new one if need be.
    pub(crate) fn add(&mut self, path: JsonPointer, keep: Keep) -> usize {
        let slot = self.paths.iter().position(|known| *known == path).unwrap_or(self.paths.len());
        let mut node = &mut self.root;
        for token in &path.0 {
            node = node.child_mut(token);
        }
        node.slot = Some(slot);
        node.keep |= keep == Keep::Whole;
        if slot == self.paths.len() {
            self.paths.push(path);
        }
        slot
    }

    /// What each path leads to, by slot. None: `text` is not JSON.
    pub(crate) fn find<'v>(&self, text: &'v [u8]) -> Option<Vec<Option<FoundValue<'v>>>> {
        let mut slots: Vec<Option<FoundValue<'v>>> = self.paths.iter().map(|_| None).collect();
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let walk = Walk { node: Some(&self.root), keep: false, slots: &mut slots };
        walk.deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(slots)
    }
}

impl PathNode {
    fn child_mut(&mut self, token: &str) -> &mut PathNode {
        let at = self.children.iter().position(|child| child.token == token).unwrap_or(self.children.len());
        if at == self.children.len() {
            let is_plain = token == "0" || !token.starts_with(['0', '+']);
            let index = token.parse().ok().filter(|_| is_plain);
            self.children.push(PathChild { token: token.to_owned(), index, node: PathNode::default() });
        }
        &mut self.children.get_mut(at).expect("it was found or added").node
    }

    fn clear(&self, slots: &mut [Option<FoundValue<'_>>]) {
        if let Some(place) = self.slot.and_then(|slot| slots.get_mut(slot)) {
            *place = None;
        }
        self.children.iter().for_each(|child| child.node.clear(slots));
    }
}

/// Reads one value. Not [`serde::de::IgnoredAny`] where nothing is needed: it takes texts that are not UTF-8, and any
/// depth.
struct Walk<'q, 's, 'v> {
    /// The paths that lead here or on from here.
    node: Option<&'q PathNode>,
    /// Whether the value is a part of one that is kept.
    keep: bool,
    slots: &'s mut [Option<FoundValue<'v>>],
}

/// A value with its weight.
type KeptValue = Option<(Value, usize)>;

impl<'v> Walk<'_, '_, 'v> {
    fn place(&mut self) -> Option<&mut Option<FoundValue<'v>>> {
        self.node.and_then(|node| node.slot).and_then(|slot| self.slots.get_mut(slot))
    }

    fn scalar(mut self, value: Value) -> KeptValue {
        let kept = self.keep.then(|| (value.clone(), SCALAR_WEIGHT));
        if let Some(place) = self.place() {
            *place = Some(FoundValue::Json(value));
        }
        kept
    }

    fn text(mut self, text: Cow<'v, str>) -> KeptValue {
        let kept = self.keep && text.len() <= KEPT_BYTES_MAX;
        let kept = kept.then(|| (Value::String(text.clone().into_owned()), text_weight(&text)));
        if let Some(place) = self.place() {
            *place = Some(FoundValue::Text(text));
        }
        kept
    }

    fn container(mut self, kept: KeptValue) -> KeptValue {
        let is_whole = self.node.is_some_and(|node| node.keep);
        if let Some(place) = self.place() {
            *place = Some(match &kept {
                Some((value, _)) if is_whole => FoundValue::Json(value.clone()),
                _ => FoundValue::Large,
            });
        }
        kept
    }

    /// Whether parts are kept.
    fn keeps_parts(&self) -> bool {
        self.keep || self.node.is_some_and(|node| node.keep)
    }
}

/// One more part of what is kept; none if that becomes too much.
fn grown<C>(
    kept: Option<(C, usize)>,
    part: KeptValue,
    name: usize,
    push: impl FnOnce(&mut C, Value),
) -> Option<(C, usize)> {
    let ((mut parts, weight), (part, part_weight)) = (kept?, part?);
    let weight = weight + name + part_weight;
    if weight > KEPT_BYTES_MAX {
        return None;
    }
    push(&mut parts, part);
    Some((parts, weight))
}

impl<'v> DeserializeSeed<'v> for Walk<'_, '_, 'v> {
    type Value = KeptValue;

    fn deserialize<D: Deserializer<'v>>(self, deserializer: D) -> Result<KeptValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'v> Visitor<'v> for Walk<'_, '_, 'v> {
    type Value = KeptValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<KeptValue, E> {
        Ok(self.scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<KeptValue, E> {
        Ok(self.scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<KeptValue, E> {
        Ok(self.scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<KeptValue, E> {
        Ok(self.scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<KeptValue, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number beyond the floats"))?;
        Ok(self.scalar(number.into()))
    }

    fn visit_borrowed_str<E>(self, text: &'v str) -> Result<KeptValue, E> {
        Ok(self.text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<KeptValue, E> {
        // A copy of what no path leads to would be for nothing.
        let is_needed = self.keep || self.node.is_some_and(|node| node.slot.is_some());
        Ok(if is_needed { self.text(Cow::Owned(text.to_owned())) } else { None })
    }

    fn visit_seq<A: SeqAccess<'v>>(self, mut elements: A) -> Result<KeptValue, A::Error> {
        let mut kept = self.keeps_parts().then(|| (Vec::new(), SCALAR_WEIGHT));
        let children = self.node.map_or(&[][..], |node| &node.children);
        for index in 0.. {
            let child = children.iter().find(|child| child.index == Some(index));
            let walk = Walk { node: child.map(|child| &child.node), keep: kept.is_some(), slots: &mut *self.slots };
            let Some(element) = elements.next_element_seed(walk)? else { break };
            kept = grown(kept, element, 0, Vec::push);
        }
        Ok(self.container(kept.map(|(elements, weight)| (Value::Array(elements), weight))))
    }

    fn visit_map<A: MapAccess<'v>>(self, mut members: A) -> Result<KeptValue, A::Error> {
        let mut kept = self.keeps_parts().then(|| (serde_json::Map::new(), SCALAR_WEIGHT));
        let children = self.node.map_or(&[][..], |node| &node.children);
        while let Some((child, name)) = members.next_key_seed(MemberName { children, keep: kept.is_some() })? {
            let node = child.map(|child| &child.node);
            if let Some(node) = node {
                node.clear(self.slots);
            }
            let walk = Walk { node, keep: kept.is_some(), slots: &mut *self.slots };
            let value = members.next_value_seed(walk)?;
            kept = name.and_then(|name| {
                grown(kept, value, text_weight(&name), |members, value| drop(members.insert(name, value)))
            });
        }
        Ok(self.container(kept.map(|(members, weight)| (Value::Object(members), weight))))
    }
}

/// A member's name: the paths that go on there, and the name itself where it is kept.
struct MemberName<'q> {
    children: &'q [PathChild],
    keep: bool,
}

impl<'v, 'q> DeserializeSeed<'v> for MemberName<'q> {
    type Value = (Option<&'q PathChild>, Option<String>);

    fn deserialize<D: Deserializer<'v>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'q> Visitor<'_> for MemberName<'q> {
    type Value = (Option<&'q PathChild>, Option<String>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let child = self.children.iter().find(|child| child.token == name);
        Ok((child, (self.keep && name.len() <= KEPT_BYTES_MAX).then(|| name.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const PATHS: [&str; 9] = ["", "/a", "/a/b", "/a/b/0", "/0", "/1", "/a/a", "/b", "/b/a~1b"];

    fn paths(keep: u32) -> PathSet {
        let mut set = PathSet::default();
        for (at, path) in PATHS.iter().enumerate() {
            let keep = if keep >> at & 1 == 1 { Keep::Whole } else { Keep::Presence };
            assert_eq!(set.add(JsonPointer::parse(path).unwrap(), keep), at);
        }
        set
    }

    #[test]
    fn a_pointer_is_empty_or_has_each_token_behind_a_slash() {
        let tokens = |text| JsonPointer::parse(text).map(|pointer| pointer.0.join("|"));
        let cases =
            [("", Some("")), ("/", Some("")), ("/a/b", Some("a|b")), ("/~01~1", Some("~1/")), ("/a//", Some("a||"))];
        for (text, expected) in cases {
            assert_eq!(tokens(text).as_deref(), expected, "{text}");
        }
        assert!(["a", "/~", "/~2", "/a~/b"].iter().all(|text| JsonPointer::parse(text).is_none()));
    }

    /// Mostly JSON, and often with a name twice.
    fn text() -> impl Strategy<Value = String> {
        let scalars =
            select(vec!["1", "-2.5", "null", "true", "\"x\"", "\"\\u00e9\\n\"", "1e999", "\"\\ud800\"", "nul"]);
        let name = select(vec!["\"a\"", "\"\\u0061\"", "\"b\"", "\"0\"", "\"a/b\"", "\"\""]);
        scalars.prop_map(str::to_owned).prop_recursive(4, 24, 4, move |inner| {
            let member = (name.clone(), inner.clone()).prop_map(|(name, value)| format!("{name}: {value}"));
            prop_oneof![
                proptest::collection::vec(inner, 0..4).prop_map(|elements| format!("[{}]", elements.join(","))),
                proptest::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(" , "))),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_found_is_what_the_tree_has_there(text in text(), behind in select(vec!["", " ", "]", "1"]), keep: u32) {
            let text = text + behind;
            let set = paths(keep);
            let (found, tree) = (set.find(text.as_bytes()), serde_json::from_str::<Value>(&text));
            prop_assert_eq!(found.is_some(), tree.is_ok());
            let (Some(found), Ok(tree)) = (found, tree) else { return Ok(()) };
            for (at, (path, found)) in PATHS.iter().zip(&found).enumerate() {
                match (found, tree.pointer(path)) {
                    (None, None) => {}
                    (Some(FoundValue::Json(found)), Some(expected)) => prop_assert_eq!(found, expected),
                    (Some(FoundValue::Text(found)), Some(expected)) => prop_assert_eq!(Some(&**found), expected.as_str()),
                    (Some(FoundValue::Large), Some(expected)) => {
                        prop_assert!(keep >> at & 1 == 0 && (expected.is_array() || expected.is_object()));
                    }
                    (found, expected) => prop_assert!(false, "{path}: {found:?} for {expected:?}"),
                }
            }
        }
    }
}
