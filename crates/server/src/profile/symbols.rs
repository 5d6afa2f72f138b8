//! Names of addresses in this process, C++ ones included, with what was inlined there.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;

/// Names that a whole stack has near its outermost end: where threads and the process begin. Of libc's own only what
/// it calls first is sure to be seen.
const BEGINNINGS: [&str; 9] = [
    "std::sys::thread::unix::Thread::new::thread_start",
    "::thread_start",
    "std::rt::lang_start",
    "ThreadPoolImpl::Impl::BGThreadWrapper",
    "background_thread_entry",
    "execute_native_thread_routine",
    "__libc_start",
    "start_thread",
    "clone3",
];

/// Those asked for so far. Dropping it lets go of what is mapped of the files' symbols.
#[derive(Default)]
pub(super) struct Symbols {
    /// The innermost first.
    known: HashMap<u64, Vec<String>>,
}

/// A stack's names.
pub(super) struct Frames<'a> {
    /// The outermost address first, the innermost name of each first.
    by_address: Vec<&'a [String]>,
    /// Whether it reaches down to where its thread began.
    pub(super) is_whole: bool,
}

impl Frames<'_> {
    /// From the outermost to the innermost.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_address.iter().flat_map(|names| names.iter().rev().map(String::as_str))
    }
}

impl Symbols {
    /// Of addresses from the innermost, where the thread was, to the outermost; all others are where calls return to.
    pub(super) fn frames(&mut self, addresses: &[u64]) -> Frames<'_> {
        // Code without frame pointers may leave anything where a return address is looked for, zero as well.
        let place = |(depth, address): (usize, &u64)| address.saturating_sub(u64::from(depth > 0));
        let places = || addresses.iter().enumerate().map(place);
        for place in places() {
            self.known.entry(place).or_insert_with(|| names(place));
        }
        let mut by_address: Vec<&[String]> =
            places().filter_map(|place| self.known.get(&place)).map(Vec::as_slice).collect();
        by_address.reverse();
        let is_beginning = |name: &String| BEGINNINGS.iter().any(|beginning| name.contains(beginning));
        let is_whole = by_address.iter().any(|names| names.iter().any(is_beginning));
        Frames { by_address, is_whole }
    }
}

impl Drop for Symbols {
    fn drop(&mut self) {
        backtrace::clear_symbol_cache();
    }
}

fn names(address: u64) -> Vec<String> {
    let mut names = Vec::new();
    let address = usize::try_from(address).expect("addresses are 64 bits");
    backtrace::resolve(std::ptr::without_provenance_mut::<c_void>(address), |symbol| {
        names.extend(symbol.name().map(|name| title(&format!("{name:#}"), symbol.filename())));
    });
    if names.is_empty() {
        names.push("[unknown]".to_owned());
    }
    names
}

/// What has lines was compiled with names that lack their module: the file shows more than generic arguments do.
fn title(name: &str, file: Option<&Path>) -> String {
    let Some(file) = file else { return name.to_owned() };
    let function = name.find('<').filter(|at| *at > 0).map_or(name, |at| name.split_at(at).0);
    let path = file.to_string_lossy();
    let after = |mark: &str| path.rsplit_once(mark).map(|(_, rest)| rest);
    // Its `core` is not ours.
    if let Some(file) = after("/library/").filter(|_| !path.contains("/registry/src/")) {
        return format!("{function} (library/{file})");
    }
    let below = after("/registry/src/").and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest);
    // The last is where a build script has had C compiled.
    let marks = ["/crates/", "/out/build/"];
    let shown = below.or_else(|| marks.into_iter().find_map(after)).unwrap_or(&path);
    format!("{function} ({shown})")
}

#[cfg(test)]
mod tests {
    use crate::profile::symbols::*;

    #[test]
    fn an_address_of_a_function_has_its_name() {
        let address = names as fn(u64) -> Vec<String> as usize as u64;
        let mut symbols = Symbols::default();
        let frames = symbols.frames(&[address + 4]);
        let name = frames.names().collect::<Vec<_>>().join(";");
        assert_eq!(name, "names (server/src/profile/symbols.rs)");
        assert!(!frames.is_whole);
    }

    #[test]
    fn a_return_address_of_zero_is_unknown() {
        let mut symbols = Symbols::default();
        assert_eq!(symbols.frames(&[0, 0]).names().collect::<Vec<_>>(), ["[unknown]", "[unknown]"]);
    }

    #[test]
    fn a_title_is_short_and_says_where() {
        let title = |name, file| title(name, Some(Path::new(file)));
        assert_eq!(
            title("turn<a::B, c>", "/home/x/kvorum/crates/storage/src/commit/queue.rs"),
            "turn (storage/src/commit/queue.rs)"
        );
        let index = "/home/x/.cargo/registry/src/index.crates.io-1/hyper-1.12.0/src/lib.rs";
        assert_eq!(title("poll<T>", index), "poll (hyper-1.12.0/src/lib.rs)");
        let built = "/home/x/target/release/build/tikv-jemalloc-sys-9eea/out/build/src/arena.c";
        assert_eq!(title("_rjem_arena", built), "_rjem_arena (src/arena.c)");
        assert_eq!(title("<A>::b<c>", "/rustc/1/library/core/src/a.rs"), "<A>::b<c> (library/core/src/a.rs)");
    }
}
