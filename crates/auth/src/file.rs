//! The file of keys and roles, from its text: taken whole, or refused with the line that is wrong.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

use crate::api_key::KeyId;
use crate::hash::Digest256;
use crate::prefix::Prefix;
use crate::rate::LimitRate;
use crate::rights::{AdminRight, DataRight};
use crate::role::{Grant, Role, RoleLimits};

/// Keys of a file.
pub const KEYS_MAX: usize = 10_000;
/// Roles of a file, and grants of a role.
pub const ROLES_MAX: usize = 1000;
/// Longest name of a role or a principal, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct AuthFileError {
    /// From 1.
    pub line: usize,
    /// Never has a digest or a key in it.
    pub reason: String,
}

/// A key of a file.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// By which it is found.
    pub id: KeyId,
    /// The principal that it belongs to. Several keys may belong to one.
    pub name: String,
    /// Of the key's secret.
    pub secret: Digest256,
    /// Place in [`AuthFile::roles`].
    pub role: usize,
    /// Milliseconds since the epoch. The key is refused from then on.
    pub not_after_ms: Option<u64>,
    /// Where it stands in the file, from 1.
    pub line: usize,
}

/// A whole file, checked: every key has a role, no ID is there twice, and a name has one role.
#[derive(Clone, Debug)]
pub struct AuthFile {
    /// In the order of their names.
    pub roles: Vec<Role>,
    /// In the order of the file.
    pub keys: Vec<KeyEntry>,
    /// Of the text, to compare nodes by.
    pub digest: Digest256,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    role: BTreeMap<Spanned<String>, RoleText>,
    #[serde(default)]
    key: Vec<Spanned<KeyText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleText {
    #[serde(default)]
    grants: Vec<GrantText>,
    #[serde(default)]
    admin: Vec<AdminRight>,
    #[serde(default)]
    limits: LimitsText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantText {
    prefix: Spanned<String>,
    allow: Spanned<Vec<DataRight>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsText {
    requests_per_second: Option<Spanned<u64>>,
    bytes_per_second: Option<Spanned<SizeText>>,
    in_flight: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of bytes, or a text such as \"20MiB\"")]
enum SizeText {
    Number(u64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    id: Spanned<String>,
    name: Spanned<String>,
    sha256: Spanned<String>,
    role: Spanned<String>,
    not_after: Option<Spanned<Datetime>>,
}

/// Makes errors of places in the text.
#[derive(Clone, Copy)]
struct FileLines<'a>(&'a str);

impl FileLines<'_> {
    fn at(self, offset: usize) -> usize {
        self.0.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }

    fn refuse(self, place: Range<usize>, reason: impl Into<String>) -> AuthFileError {
        AuthFileError { line: self.at(place.start), reason: reason.into() }
    }
}

/// Reads the text of a file that a node takes.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn parse_auth_file(text: &str) -> Result<AuthFile, AuthFileError> {
    let file = parse_auth_draft(text)?;
    if file.keys.is_empty() {
        let reason = "it has no `[[key]]`, so no client could do anything: `kvorum key new` adds one";
        return Err(FileLines(text).refuse(0..0, reason));
    }
    Ok(file)
}

/// The same of a file that may have no key yet.
///
/// # Errors
/// As [`parse_auth_file`].
pub fn parse_auth_draft(text: &str) -> Result<AuthFile, AuthFileError> {
    let lines = FileLines(text);
    let parsed: FileText = toml::from_str(text).map_err(|error| {
        let place = error.span().unwrap_or(0..0);
        lines.refuse(place, error.message())
    })?;
    if parsed.key.len() > KEYS_MAX || parsed.role.len() > ROLES_MAX {
        let reason = format!("it has more than {KEYS_MAX} keys or {ROLES_MAX} roles");
        return Err(lines.refuse(0..0, reason));
    }
    let mut roles = Vec::with_capacity(parsed.role.len());
    for (name, role) in parsed.role {
        check_name(lines, &name)?;
        roles.push(read_role(lines, name.into_inner(), role)?);
    }
    let mut keys: Vec<KeyEntry> = Vec::with_capacity(parsed.key.len());
    let (mut by_id, mut by_name) = (BTreeMap::new(), BTreeMap::new());
    for key in parsed.key {
        let entry = read_key(lines, &roles, key)?;
        if let Some(first) = by_id.insert(entry.id, entry.line) {
            let reason = format!("the key of line {first} has the ID {} as well", entry.id);
            return Err(AuthFileError { line: entry.line, reason });
        }
        let (role, line) = *by_name.entry(entry.name.clone()).or_insert((entry.role, entry.line));
        if role != entry.role {
            let reason = format!("`{}` has another role in line {line}: keys of one name have one role", entry.name);
            return Err(AuthFileError { line: entry.line, reason });
        }
        keys.push(entry);
    }
    Ok(AuthFile { roles, keys, digest: Digest256::of(text.as_bytes()) })
}

fn read_role(lines: FileLines<'_>, name: String, text: RoleText) -> Result<Role, AuthFileError> {
    let mut grants = Vec::with_capacity(text.grants.len());
    for grant in text.grants {
        let place = grant.prefix.span();
        if grants.len() == ROLES_MAX {
            return Err(lines.refuse(place, format!("a role has at most {ROLES_MAX} grants")));
        }
        if grant.allow.get_ref().is_empty() {
            return Err(
                lines.refuse(grant.allow.span(), "`allow` is empty: it takes \"read\", \"write\" and \"delete\"")
            );
        }
        let prefix = Prefix::parse(grant.prefix.get_ref())
            .map_err(|error| lines.refuse(place, format!("the prefix `{}`: {error}", grant.prefix.get_ref())))?;
        grants.push(Grant { prefix, allow: grant.allow.into_inner() });
    }
    let positive = |name: &str, value: Option<Spanned<u64>>| {
        value.map(|value| rate(lines, name, value.span(), *value.get_ref())).transpose()
    };
    let in_flight = match text.limits.in_flight {
        Some(count) if *count.get_ref() == 0 => {
            return Err(
                lines.refuse(count.span(), "`in_flight` is 0, so nothing would pass: leave it out, or at least 1")
            );
        }
        count => count.map(Spanned::into_inner),
    };
    let limits = RoleLimits {
        requests: positive("requests_per_second", text.limits.requests_per_second)?,
        bytes: text.limits.bytes_per_second.map(|size| read_size(lines, &size)).transpose()?,
        in_flight,
    };
    Ok(Role { name, grants, admin: text.admin, limits, ..Role::default() })
}

fn read_key(lines: FileLines<'_>, roles: &[Role], key: Spanned<KeyText>) -> Result<KeyEntry, AuthFileError> {
    let line = lines.at(key.span().start);
    let KeyText { id, name, sha256, role, not_after } = key.into_inner();
    check_name(lines, &name)?;
    let key_id = KeyId::parse(id.get_ref().as_bytes()).ok_or_else(|| {
        lines.refuse(id.span(), format!("the ID `{}` is not 12 lower-case hexadecimal digits", id.get_ref()))
    })?;
    let secret = Digest256::from_hex(sha256.get_ref()).ok_or_else(|| {
        lines.refuse(sha256.span(), "`sha256` is not 64 hexadecimal digits: it is the SHA-256 of the key's secret")
    })?;
    let place = roles.iter().position(|known| known.name == *role.get_ref()).ok_or_else(|| {
        let known: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
        let reason = format!("no role is called `{}`: there is [{}]", role.get_ref(), known.join(", "));
        lines.refuse(role.span(), reason)
    })?;
    let not_after_ms = not_after.map(|time| read_time(lines, &time)).transpose()?;
    Ok(KeyEntry { id: key_id, name: name.into_inner(), secret, role: place, not_after_ms, line })
}

fn check_name(lines: FileLines<'_>, name: &Spanned<String>) -> Result<(), AuthFileError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:/".contains(&byte);
    let text = name.get_ref();
    if (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(());
    }
    let reason = format!("a name is 1 to {NAME_BYTES_MAX} letters, digits and -_.@:/");
    Err(lines.refuse(name.span(), reason))
}

fn rate(lines: FileLines<'_>, name: &str, place: Range<usize>, units: u64) -> Result<LimitRate, AuthFileError> {
    let reason = || lines.refuse(place, format!("`{name}` is 0, so nothing would pass: leave it out, or at least 1"));
    LimitRate::per_second(units).ok_or_else(reason)
}

fn read_size(lines: FileLines<'_>, size: &Spanned<SizeText>) -> Result<LimitRate, AuthFileError> {
    let bytes = match size.get_ref() {
        SizeText::Number(bytes) => Some(*bytes),
        SizeText::Text(text) => bytes_of(text),
    };
    let bytes = bytes.ok_or_else(|| {
        lines.refuse(size.span(), "`bytes_per_second` is a number of bytes, or one with KiB, MiB or GiB: \"20MiB\"")
    })?;
    rate(lines, "bytes_per_second", size.span(), bytes)
}

fn bytes_of(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    number.trim_end().parse::<u64>().ok()?.checked_mul(unit)
}

fn read_time(lines: FileLines<'_>, time: &Spanned<Datetime>) -> Result<u64, AuthFileError> {
    let parsed = time.get_ref().to_string().parse::<jiff::Timestamp>().ok();
    parsed
        .and_then(|time| u64::try_from(time.as_millisecond()).ok())
        .ok_or_else(|| lines.refuse(time.span(), "`not_after` is a date with time and offset: 2027-06-01T00:00:00Z"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{AuthFile, AuthFileError, parse_auth_file};
    use crate::rights::{AdminRight, DataRight};

    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn whole() -> String {
        format!(
            r#"# Keys of the shop.
[role.billing]
grants = [
    {{ prefix = "billing/", allow = ["read", "write", "delete"] }},
    {{ prefix = "rates/%FF", allow = ["read"] }},
]
limits = {{ requests_per_second = 5000, bytes_per_second = "20MiB", in_flight = 256 }}
[role.operator]
admin = ["status", "metrics", "repair", "scrub", "backup", "profile", "cluster"]
[[key]]
id = "3f9c0a1b2c4d"
name = "billing-api"
sha256 = "{SHA256}"
role = "billing"
not_after = 2027-06-01T02:00:00+02:00
[[key]]
id = "3f9c0a1b2c4e"
name = "billing-api"
sha256 = "{SHA256}"
role = "billing"
"#
        )
    }

    #[test]
    fn a_whole_file_is_taken() {
        let AuthFile { roles, keys, .. } = parse_auth_file(&whole()).unwrap();
        let [billing, operator] = roles.as_slice() else { panic!("{roles:?}") };
        assert!(billing.allows(DataRight::Delete, b"billing/1") && billing.allows(DataRight::Read, b"rates/\xff1"));
        assert!(!billing.allows(DataRight::Write, b"rates/\xff1") && !billing.allows(DataRight::Read, b"rates/1"));
        assert!(operator.administers(AdminRight::Cluster) && !billing.administers(AdminRight::Status));
        assert_eq!(billing.limits.bytes.unwrap().get(), 20 << 20);
        assert_eq!(billing.limits.requests.unwrap().get(), 5000);
        assert_eq!(billing.limits.in_flight, Some(256));
        assert!(operator.limits.bytes.is_none());
        let [first, second] = keys.as_slice() else { panic!("{keys:?}") };
        assert_eq!((first.line, second.line), (10, 16));
        // 2027-06-01T00:00:00Z.
        assert_eq!((first.not_after_ms, second.not_after_ms), (Some(1_811_808_000_000), None));
        assert_eq!(first.role, second.role);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let change = |from: &str, to: &str| {
            assert!(whole().contains(from), "{from}");
            whole().replacen(from, to, 1)
        };
        for (text, line, reason) in [
            (String::new(), 1, "no `[[key]]`"),
            ("# only a comment\n".into(), 1, "no `[[key]]`"),
            (change("[[key]]", "[[key]"), 10, ""),
            (change("[role.billing]", "[rolle.billing]"), 2, "unknown field `rolle`"),
            (change("\"delete\"]", "\"drop\"]"), 4, "unknown variant `drop`"),
            (change("\"scrub\"", "\"root\""), 9, "unknown variant `root`"),
            (change("rates/%FF", "rates/%F"), 5, "`%` at its byte 6"),
            (change("[\"read\"]", "[]"), 5, "`allow` is empty"),
            (change("5000", "0"), 7, "`requests_per_second` is 0"),
            (change("5000", "-1"), 7, "invalid"),
            (change("20MiB", "20 apples"), 7, "KiB"),
            (change("in_flight = 256", "in_flight = 0"), 7, "`in_flight` is 0"),
            (change("3f9c0a1b2c4d", "3F9c0a1b2c4d"), 11, "12 lower-case"),
            (change("3f9c0a1b2c4e", "3f9c0a1b2c4d"), 16, "line 10 has the ID 3f9c0a1b2c4d"),
            (change(SHA256, &SHA256[1..]), 13, "64 hexadecimal digits"),
            (change("role = \"billing\"", "role = \"bill\""), 14, "`bill`: there is [billing, operator]"),
            (change("role = \"billing\"", "role = \"operator\""), 16, "another role in line 10"),
            (change("name = \"billing-api\"\n", ""), 10, "missing field `name`"),
            (change("billing-api", ""), 12, "a name is 1 to 64"),
            (change("billing-api", "a\\nb"), 12, "a name is 1 to 64"),
            (change("T02:00:00+02:00", ""), 15, "date with time and offset"),
            (change("T02:00:00+02:00", "T02:00:00"), 15, "date with time and offset"),
            (change("2027-06-01T02:00:00+02:00", "\"tomorrow\""), 15, ""),
        ] {
            let error = parse_auth_file(&text).expect_err(&text);
            assert_eq!(error.line, line, "{error} in\n{text}");
            assert!(error.reason.contains(reason), "{error}, not {reason}");
            assert!(!error.reason.contains(&SHA256[1..]), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_part_of_a_file_is_never_taken_for_all_of_it_without_an_error_of_a_line(end in 0_usize..600) {
            let text: String = whole().chars().take(end).collect();
            if let Err(AuthFileError { line, reason }) = parse_auth_file(&text) {
                prop_assert!((1..=text.lines().count().max(1) + 1).contains(&line) && !reason.is_empty());
            }
        }
    }
}
