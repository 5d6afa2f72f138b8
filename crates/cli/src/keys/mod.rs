//! `key`, `auth`, `secret`, `audit`: files that nodes read, made and looked at without a node.
//!
//! A change of a file keeps its comments and its form. It is written beside the file and renamed over it, so that a node
//! reads the old one or the new one and never a part, and it belongs to whom the old one did.

pub(crate) mod args;
pub(crate) mod dev;
pub(crate) mod secret;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use kvorum_auth::api_key::{ApiKey, KeyId};
use kvorum_auth::audit::timestamp;
use kvorum_auth::file::{AuthFile, KeyEntry, parse_auth_draft, parse_auth_file};
use kvorum_auth::private_file::{PrivateFileError, read_private};
use kvorum_auth::rights::DataRight;
use serde_json::json;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use args::{AuthCommand, KeyCommand};

use crate::outcome::ExitOutcome;
use crate::output::{OutputForm, json_line, show};

/// What a file has to have before a key can be added.
const BEGIN: &str = "\
A file of keys begins with a role, and only its owner may read it (chmod 600):

[role.app]
grants = [{ prefix = \"app/\", allow = [\"read\", \"write\", \"delete\"] }]
[role.operator]
admin = [\"status\", \"metrics\", \"repair\", \"scrub\", \"backup\", \"profile\", \"cluster\"]";

/// `kvorum key`
pub(crate) fn key(command: &KeyCommand) -> Result<ExitOutcome> {
    match command {
        KeyCommand::New { name, role, file, not_after, form } => {
            let mut keys = KeyFile::read(file)?;
            let key = keys.add(name, role, not_after.map(|time| time.to_string()))?;
            keys.write(file)?;
            show_key(&key, name, role, form.output)
        }
        KeyCommand::List { file, form } => list(&parsed(file)?, form.output),
        KeyCommand::Rotate { name, overlap, file, form } => {
            let mut keys = KeyFile::read(file)?;
            let role = keys.end_others(name, *overlap)?;
            let key = keys.add(name, &role, None)?;
            keys.write(file)?;
            show_key(&key, name, &role, form.output)
        }
        KeyCommand::Revoke { id, file, form } => {
            let mut keys = KeyFile::read(file)?;
            keys.remove(id)?;
            keys.write(file)?;
            let text = format!("{id} is revoked: nodes refuse it within five seconds");
            show(form.output, &json!({"id": id, "revoked": true}), &text)
        }
    }
}

/// `kvorum auth`
pub(crate) fn auth(command: &AuthCommand) -> Result<ExitOutcome> {
    match command {
        AuthCommand::Check { file, form } => {
            let AuthFile { roles, keys, digest } = parsed(file)?;
            let (file, roles, keys) = (file.display().to_string(), roles.len(), keys.len());
            let object = json!({"file": file, "keys": keys, "roles": roles, "digest": digest.to_string()});
            show(form.output, &object, &format!("{file}: {keys} keys, {roles} roles; digest {digest}"))
        }
        AuthCommand::Explain { file, key, method, id, form } => {
            explain(&parsed(file)?, key, method, id.as_bytes(), form.output)
        }
    }
}

/// Prints a key, for the only time. On a terminal, what to do with it is said beside it.
fn show_key(key: &ApiKey, name: &str, role: &str, form: OutputForm) -> Result<ExitOutcome> {
    let object = json!({"id": key.id().to_string(), "name": name, "role": role, "key": key.text()});
    show(form, &object, &key.text())?;
    writeln!(io::stderr(), "kvorum: keep it in a file that only its user may read (chmod 600): it is shown only now")?;
    Ok(ExitOutcome::Done)
}

/// A file as a node would take it.
fn parsed(path: &Path) -> Result<AuthFile> {
    let text = read_private(path)?;
    parse_auth_file(&text).with_context(|| path.display().to_string())
}

/// A file of keys that is changed.
struct KeyFile {
    document: DocumentMut,
    parsed: AuthFile,
}

impl KeyFile {
    fn read(path: &Path) -> Result<Self> {
        let text = read_private(path).map_err(|error| {
            let is_absent =
                matches!(&error, PrivateFileError::Unreadable { error, .. } if error.kind() == io::ErrorKind::NotFound);
            if is_absent { anyhow!("{error}\n{BEGIN}") } else { error.into() }
        })?;
        let parsed = parse_auth_draft(&text).with_context(|| path.display().to_string())?;
        let document = text.parse::<DocumentMut>().with_context(|| path.display().to_string())?;
        Ok(Self { document, parsed })
    }

    fn tables(&mut self) -> Result<&mut ArrayOfTables> {
        let keys = self.document.entry("key").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        keys.as_array_of_tables_mut().context("keys are not written as [[key]]: such a file is not changed")
    }

    fn add(&mut self, name: &str, role: &str, not_after: Option<String>) -> Result<ApiKey> {
        let key = ApiKey::new(KeyId::new(random()?), random()?);
        let mut table = Table::new();
        table.insert("id", value(key.id().to_string()));
        table.insert("name", value(name));
        table.insert("sha256", value(key.digest().to_string()));
        table.insert("role", value(role));
        if let Some(time) = not_after {
            table.insert("not_after", value(time.parse::<toml_edit::Datetime>()?));
        }
        self.tables()?.push(table);
        Ok(key)
    }

    /// The keys of this name end, `overlap` from now at the latest. Their role.
    fn end_others(&mut self, name: &str, overlap: Duration) -> Result<String> {
        let ends: Vec<(String, Option<u64>)> = self
            .parsed
            .keys
            .iter()
            .filter(|key| key.name == name)
            .map(|key| (key.id.to_string(), key.not_after_ms))
            .collect();
        let role = self.parsed.keys.iter().find(|key| key.name == name);
        let role = role.and_then(|key| self.parsed.roles.get(key.role)).map(|role| role.name.clone());
        let role = role.with_context(|| format!("there is no key of `{name}`"))?;
        let end = now_ms().saturating_add(u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX));
        let text = timestamp(end).context("that is too far away")?;
        for table in self.tables()?.iter_mut() {
            let id = table.get("id").and_then(Item::as_str).unwrap_or_default();
            let known = ends.iter().find(|(known, _)| known == id);
            if known.is_some_and(|(_, known_end)| known_end.is_none_or(|known_end| known_end > end)) {
                table.insert("not_after", value(text.parse::<toml_edit::Datetime>()?));
            }
        }
        Ok(role)
    }

    fn remove(&mut self, id: &str) -> Result<()> {
        let tables = self.tables()?;
        let at = tables.iter().position(|table| table.get("id").and_then(Item::as_str) == Some(id));
        tables.remove(at.with_context(|| format!("there is no key with the ID `{id}`"))?);
        Ok(())
    }

    /// Replaces the file, if a node would take what it becomes, or it is only without keys.
    fn write(&self, path: &Path) -> Result<()> {
        let text = self.document.to_string();
        parse_auth_draft(&text).context("the file would not be taken, and stays as it is")?;
        let owner = std::fs::metadata(path)?;
        let real = std::fs::canonicalize(path)?;
        let fresh = real.with_extension(format!("new-{}", std::process::id()));
        let replace = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
            // Root may change a file of the user that the node runs as.
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&fresh, &real)?;
            // Or a crash could bring a key back that was revoked.
            real.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
        };
        replace().inspect_err(|_| drop(std::fs::remove_file(&fresh))).with_context(|| path.display().to_string())
    }
}

fn list(file: &AuthFile, form: OutputForm) -> Result<ExitOutcome> {
    let mut out = io::stdout().lock();
    if form == OutputForm::Json {
        for KeyEntry { id, name, role, not_after_ms, .. } in &file.keys {
            let role = file.roles.get(*role).map(|role| role.name.as_str());
            let object = json!({"id": id.to_string(), "name": name, "role": role,
                "not_after": not_after_ms.and_then(timestamp), "expired": not_after_ms.is_some_and(|end| end <= now_ms())});
            writeln!(out, "{}", json_line(&object))?;
        }
        return Ok(ExitOutcome::Done);
    }
    writeln!(out, "{:<12}  {:<24}  {:<16}  ends", "id", "name", "role")?;
    for KeyEntry { id, name, role, not_after_ms, .. } in &file.keys {
        let role = file.roles.get(*role).map_or("-", |role| role.name.as_str());
        let end = not_after_ms.and_then(timestamp).unwrap_or_else(|| "never".to_owned());
        let over = if not_after_ms.is_some_and(|end| end <= now_ms()) { ", expired" } else { "" };
        writeln!(out, "{id}  {name:<24}  {role:<16}  {end}{over}")?;
    }
    Ok(ExitOutcome::Done)
}

fn explain(file: &AuthFile, id: &str, method: &str, key: &[u8], form: OutputForm) -> Result<ExitOutcome> {
    let right = match method.to_ascii_uppercase().as_str() {
        "GET" | "HEAD" => DataRight::Read,
        "PUT" => DataRight::Write,
        "DELETE" => DataRight::Delete,
        other => bail!("`{other}` is no method of a key: GET, PUT or DELETE"),
    };
    ensure!(!key.is_empty(), "--id must not be empty");
    let known = file.keys.iter().find(|known| known.id.to_string() == id);
    let known = known.with_context(|| format!("there is no key with the ID `{id}`"))?;
    let role = file.roles.get(known.role).context("a key's role is among those of its file")?;
    let grant = role.grants.iter().find(|grant| grant.allow.contains(&right) && grant.prefix.contains(key));
    let is_expired = known.not_after_ms.is_some_and(|end| end <= now_ms());
    let (right, grant) = (right.name(), grant.filter(|_| !is_expired));
    let reason = match grant {
        _ if is_expired => "refused with 401: the key has expired".to_owned(),
        Some(grant) => format!("allowed: the grant for the prefix `{}` has `{right}`", grant.prefix),
        None => format!("refused with 403: no grant of the role has `{right}` over this key"),
    };
    let text = format!("key {id} of {}, role {}\n{reason}", known.name, role.name);
    let object = json!({"id": id, "name": known.name, "role": role.name, "allowed": grant.is_some(), "reason": reason});
    show(form, &object, &text)?;
    Ok(if grant.is_some() { ExitOutcome::Done } else { ExitOutcome::NotFound })
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other).context("random numbers of the system")?;
    Ok(bytes)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
