//! `settings.md`, from the table of settings.

use kvorum_config::{SETTINGS, Setting};

use crate::{code, hold, sentence, table};

/// What a setting takes, without its examples.
fn allowed(setting: &Setting) -> String {
    let allowed = setting.allowed();
    let end = [", such as", " (", ": only"].iter().filter_map(|mark| allowed.find(mark)).min();
    allowed[..end.unwrap_or(allowed.len())].to_owned()
}

#[test]
fn settings() {
    let rows = SETTINGS.iter().map(|setting| {
        let default = if setting.default.is_empty() { "empty".to_owned() } else { code(setting.default) };
        [code(setting.name), default, allowed(setting), sentence(setting.doc)]
    });
    hold("settings.md", &[("settings", table(["setting", "default", "takes", "meaning"], rows))]);
}
