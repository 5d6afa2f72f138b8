//! Runs a file of the browser's tests with node, for the tests of the console and those of the program.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn answers(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// What is missing of what these tests need.
fn missing() -> Option<&'static str> {
    let chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    if !chromium.iter().any(|path| Path::new(path).exists()) {
        return Some("chromium");
    }
    ["node", "npm"].into_iter().find(|program| !answers(program))
}

/// Where the modules of npm are; installed by the first that asks.
fn modules(package: &Path) -> PathBuf {
    static MODULES: OnceLock<PathBuf> = OnceLock::new();
    MODULES.get_or_init(|| install(package)).clone()
}

fn install(package: &Path) -> PathBuf {
    let lockfile = std::fs::read(package.join("package-lock.json")).unwrap();
    let home = std::env::var_os("HOME").expect("a home directory for the cache");
    let cache = Path::new(&home).join(".cache/kvorum/browser");
    let dir = cache.join(format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&lockfile)));
    let modules = dir.join("node_modules");
    if modules.is_dir() {
        return modules;
    }
    // Installed apart and then moved, so that another process never finds half of it.
    std::fs::create_dir_all(&cache).unwrap();
    let apart = tempfile::tempdir_in(&cache).unwrap();
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(package.join(name), apart.path().join(name)).unwrap();
    }
    let arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    let installed = Command::new("npm").args(arguments).current_dir(apart.path()).output().unwrap();
    assert!(installed.status.success(), "npm ci: {}", String::from_utf8_lossy(&installed.stderr));
    if std::fs::rename(apart.path(), &dir).is_err() {
        assert!(modules.is_dir(), "{} cannot be made", dir.display());
    }
    modules
}

/// Far above what a file takes, on a machine with much else to do.
const SECONDS_MAX: &str = "900";

/// Runs a file of tests of the package in this directory, and shows what they measured.
pub(crate) fn run(package: &str, file: &str, environment: &[(&str, &str)]) {
    if let Some(program) = missing() {
        let mut stderr = std::io::stderr();
        return writeln!(stderr, "SKIPPED: {file} needs {program}; scripts/deps installs it").unwrap();
    }
    let output = Command::new("timeout")
        .args([SECONDS_MAX, "node", "--test", "--test-reporter=tap", file])
        .current_dir(package)
        .env("CONSOLE_TEST_MODULES", modules(Path::new(package)))
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{text}");
}
