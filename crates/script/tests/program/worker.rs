//! The program that the tests of this crate start as a worker: no node is in it.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvorum_script::worker_main()
}
