//! The console of `dev`, in its process: the same pages as of `kvorum console`, which may do everything here.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use kvorum_console::{Console, ConsoleLevel, ConsoleMode, ConsoleSettings, LabJobs, listen, start};

use super::control::DevControl;
use super::nodes::DevLaunch;
use crate::console::console_node;
use crate::keys::dev::DevSecrets;

/// Where jobs of the lab write, below the data directory.
const LAB: &str = "lab";

/// Starts it for these nodes. It asks none before it is started.
///
/// # Errors
/// The system's.
pub(crate) fn start_console(
    launches: &[DevLaunch],
    data_dir: &Path,
    secrets: Option<&DevSecrets>,
    control: DevControl,
) -> Result<Console> {
    let admin = |launch: &DevLaunch| launch.admin.map(|port| format!("http://127.0.0.1:{port}"));
    let settings = ConsoleSettings {
        nodes: launches.iter().map(|launch| console_node(&launch.url, admin(launch))).collect(),
        key: secrets.map(DevSecrets::key).transpose()?,
        level: ConsoleLevel::Lab,
        mode: ConsoleMode::Dev,
        lab: Some(Arc::new(control)),
        jobs: Some(LabJobs {
            dir: data_dir.join(LAB),
            program: std::env::current_exe()?,
            key_file: secrets.map(DevSecrets::key_file),
        }),
        assets: None,
    };
    let listener = listen(([127, 0, 0, 1], 0).into())?;
    start(settings, Some(listener)).context("the console")
}
