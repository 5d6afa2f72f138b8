//! The console's pages in a real browser, with real nodes. What they show without nodes: `crates/console/tests/browser.rs`.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../console/tests/browser/node.rs"]
mod node;

#[test]
fn pages_show_what_real_nodes_do() {
    let program = [("CONSOLE_TEST_KVORUM", env!("CARGO_BIN_EXE_kvorum"))];
    node::run("../console/tests/browser", "live.test.mjs", &program);
}
