//! The page of a search for the knee.

use std::path::Path;

use serde_json::json;

use super::result::Knee;
use crate::Error;
use crate::report::{assembled, write_file};

pub(crate) const KNEE_BODY: &str = include_str!("../../assets/knee.html");
pub(crate) const KNEE_SCRIPT: &str = include_str!("../../assets/knee.js");

/// Writes the page of a search for the knee.
pub(crate) fn knee_page(path: &Path, knee: &Knee) -> Result<(), Error> {
    write_file(path, assembled(KNEE_BODY, KNEE_SCRIPT, &json!(knee)).as_bytes())
}
