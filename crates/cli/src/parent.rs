//! A command that another program starts, and that is not to outlive it: the end of its stdin is that program's end.

use std::io;

use anyhow::{Context, Result};
use clap::Args;

/// Whether there is such a program.
#[derive(Debug, Args)]
pub struct ParentArgs {
    /// Stop when stdin ends, as at Ctrl-C: a parent that dies takes its load with it.
    #[arg(long, hide = true)]
    pub stop_on_stdin_eof: bool,
}

impl ParentArgs {
    /// Acts once when stdin has ended, if it is the parent's.
    ///
    /// # Errors
    /// The system's, where it starts no thread.
    pub(crate) fn at_its_end(&self, act: impl FnOnce() + Send + 'static) -> Result<()> {
        if self.stop_on_stdin_eof {
            let watch = move || {
                // An error ends stdin as well.
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                act();
            };
            std::thread::Builder::new().name("stdin".into()).spawn(watch).context("a thread to watch stdin")?;
        }
        Ok(())
    }
}
