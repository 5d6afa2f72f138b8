//! `kvorum --version`, and with `--verbose` what a report of a fault or a measurement should name.

use std::io::Write;

use anyhow::Result;

use kvorum_cli::outcome::ExitOutcome;

/// The lines that the build script wrote: what is known when the binary is built.
const BUILD: &str = include_str!(concat!(env!("OUT_DIR"), "/version.txt"));

/// `kvorum --version [--verbose]`
pub(crate) fn version(verbose: bool) -> Result<ExitOutcome> {
    let mut text = format!("kvorum {}\n", env!("CARGO_PKG_VERSION"));
    if verbose {
        // The options that are compiled in; the variable `MALLOC_CONF` overrides them.
        let allocator = tikv_jemalloc_ctl::version::read().map_err(anyhow::Error::msg)?;
        let options = tikv_jemalloc_ctl::config::malloc_conf::read().map_err(anyhow::Error::msg)?;
        // Both end with the NUL of a C string.
        let [allocator, options] = [allocator, options].map(|text| text.trim_end_matches('\0'));
        text += &format!("{BUILD}allocator: jemalloc {allocator}, {options}\n");
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitOutcome::Done)
}
