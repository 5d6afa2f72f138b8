//! `secret new`, `audit verify`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kvorum_auth::audit::verify_audit;
use kvorum_auth::hash::hex;
use serde_json::json;

use super::random;
use crate::outcome::ExitOutcome;
use crate::output::{OutputForm, show};

/// `kvorum secret new`
pub(crate) fn new_secret(path: &Path, form: OutputForm) -> Result<ExitOutcome> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.with_context(|| format!("{} cannot be made: a secret goes into a new file", path.display()))?;
    file.write_all(format!("{}\n", hex(&random::<32>()?)).as_bytes())?;
    file.sync_all()?;
    let path = path.display().to_string();
    let text = format!("{path}: copy it to every node, and set peer.secret_file there");
    show(form, &json!({"file": path}), &text)
}

/// `kvorum audit verify`
pub(crate) fn verify(paths: &[PathBuf], form: OutputForm) -> Result<ExitOutcome> {
    let mut chain = None;
    for path in paths {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        match verify_audit(BufReader::new(file), chain) {
            Ok((lines, end)) => {
                chain = end;
                let path = path.display().to_string();
                let text = format!("{path}: {lines} lines, each follows the one before it");
                show(form, &json!({"file": path, "lines": lines}), &text)?;
            }
            Err(broken) => {
                writeln!(io::stderr(), "kvorum: {}: {broken}", path.display())?;
                return Ok(ExitOutcome::NotFound);
            }
        }
    }
    Ok(ExitOutcome::Done)
}
