//! Completions and man pages, from the same description as `--help`.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::outcome::ExitOutcome;

/// `kvorum completions`
pub(crate) fn completions(shell: Shell) -> Result<ExitOutcome> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kvorum", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitOutcome::Done)
}

/// `kvorum man`
pub(crate) fn man(dir: Option<&Path>) -> Result<ExitOutcome> {
    if let Some(dir) = dir {
        std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
            .context("man pages")?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        std::io::stdout().write_all(&page)?;
    }
    Ok(ExitOutcome::Done)
}
