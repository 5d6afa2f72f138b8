//! What `dev` tells its user to do, in commands that can be pasted.

use std::path::{Path, PathBuf};

use kvorum_config::NodeUrl;

/// How this program and its cluster are called here.
pub(crate) struct DevWords {
    program: String,
    /// ` --data-dir DIR`, unless it is the default.
    data_dir: String,
}

impl DevWords {
    pub(crate) fn new(data_dir: &Path) -> Self {
        let is_default = data_dir == Path::new("./data");
        let data_dir = if is_default { String::new() } else { format!(" --data-dir {}", shell_word(data_dir)) };
        Self { program: program(), data_dir }
    }

    /// A command that asks nodes.
    pub(crate) fn client(&self, rest: &str) -> String {
        format!("{} {rest}", self.program)
    }

    /// A command to this `dev`.
    pub(crate) fn command(&self, rest: &str) -> String {
        self.client(rest) + &self.data_dir
    }

    /// Where the console is, and what it is for.
    pub(crate) fn pages(&self, url: &str) -> String {
        format!(
            "\nSee all of it in a browser, where nodes are killed, slowed and started with a click, and where load and flame \
             graphs are started:\n\n  {url}\n"
        )
    }

    /// What to do with nodes that are ready. Two commands, the way to have kvorum's own show a key, and an end.
    pub(crate) fn tour(&self, urls: &[NodeUrl]) -> String {
        let [first, second, .., last] = urls else { return String::new() };
        // What asks the default needs no flag.
        let at = |url: &NodeUrl| match url.as_str() {
            "http://127.0.0.1:8080" => String::new(),
            url => format!(" --url {url}"),
        };
        let steps = [
            (self.command("dev kill 2"), format!("it dies as in a crash: {second}")),
            (self.client(&format!("put greeting 'hello again'{}", at(first))), "two of three are enough".to_owned()),
            (self.client(&format!("get greeting{}", at(last))), String::new()),
            (self.client(&format!("status{}", at(first))), "it is down, and misses so many hints".to_owned()),
            (self.command("dev start 2"), "it gets what it missed".to_owned()),
            (self.client(&format!("status{}", at(first))), "it is up, and no hint is left".to_owned()),
            (self.client(&format!("get greeting --ack 3{}", at(second))), "all three have it".to_owned()),
        ];
        let width = steps.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
        let line = |(command, what): &(String, String)| match what.as_str() {
            "" => format!("  {command}"),
            what => format!("  {command:<width$}  # {what}"),
        };
        let steps: Vec<String> = steps.iter().map(line).collect();
        format!(
            "\n\nIn a second terminal, in this directory, kill a node and see that nothing stops:\n\n{}\n\n\
             Other orders: {} pause|resume|start N, slow N MS, skew N SECONDS, status{}",
            steps.join("\n"),
            self.client("dev"),
            if self.data_dir.is_empty() { String::new() } else { format!(", each with{}", self.data_dir) },
        )
    }
}

/// `kvorum`, if a shell finds this program by that; else its path, from here if it is below.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "kvorum".to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|dir| dir.join("kvorum")).find(|file| file.is_file());
    if first.and_then(|file| file.canonicalize().ok()).is_some_and(|file| file == own) {
        return "kvorum".to_owned();
    }
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| own.strip_prefix(here).ok().map(PathBuf::from));
    shell_word(&below.unwrap_or(own))
}

/// As a shell takes it for one word.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// `1`, `1 and 2`, `1, 2 and 3`.
pub(crate) fn list(numbers: &[u16]) -> String {
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match texts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => texts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_for_a_shell_and_numbers_a_list() {
        assert_eq!(shell_word(Path::new("/tmp/a-b.c_1")), "/tmp/a-b.c_1");
        assert_eq!(shell_word(Path::new("/tmp/it's here")), r"'/tmp/it'\''s here'");
        assert_eq!([list(&[1]), list(&[1, 3]), list(&[1, 2, 3])], ["1", "1 and 3", "1, 2 and 3"]);
    }
}
