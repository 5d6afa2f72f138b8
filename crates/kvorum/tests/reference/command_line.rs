//! `command-line.md`, from the description that help, completions and man pages are made from.

use clap::{Arg, Command, CommandFactory};

use kvorum_cli::args::Cli;

use crate::{code, hold, sentence, table};

fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && argument.get_id() != "help"
}

/// As it is written: `--rate <N|max>`, `<KEY>`.
fn spelling(argument: &Arg) -> String {
    let values: Vec<String> = match argument.get_value_names() {
        Some(names) if argument.get_action().takes_values() => names.iter().map(|name| format!("<{name}>")).collect(),
        _ => Vec::new(),
    };
    let short = argument.get_short().map(|short| format!("-{short}"));
    let names = short.into_iter().chain(argument.get_long().map(|long| format!("--{long}")));
    let names: Vec<String> = names.collect();
    [names.join(", "), values.join(" ")].join(" ").trim().to_owned()
}

/// A row: what is written, what it is where it is not given, and its meaning.
fn row(argument: &Arg) -> [String; 3] {
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into()).collect();
    let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
    let takes_value = argument.get_action().takes_values();
    let default = match (takes_value && !defaults.is_empty(), argument.is_required_set(), variable) {
        (true, _, Some(variable)) => format!("{variable}, else `{}`", defaults.join(",")),
        (true, _, None) => code(&defaults.join(",")),
        (false, true, _) => "required".to_owned(),
        (false, false, variable) => variable.unwrap_or_default(),
    };
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let values = if takes_value { argument.get_possible_values() } else { Vec::new() };
    let names: Vec<String> = values.iter().map(|value| code(value.get_name())).collect();
    let values = if names.is_empty() { String::new() } else { format!(" One of {}.", names.join(", ")) };
    [code(&spelling(argument)), default, sentence(&help) + &values]
}

/// Arguments of commands that stand beside each other and take them alike are listed once.
const TAKERS_MIN: usize = 3;

fn rows(command: &Command) -> Vec<[String; 3]> {
    command.get_arguments().filter(|argument| is_shown(argument)).map(row).collect()
}

/// The commands that `command` holds, but hidden ones.
fn held(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// The tables that several commands share: which these are, and the rows.
fn shared(command: &Command) -> Vec<(Vec<String>, Vec<[String; 3]>)> {
    let mut tables: Vec<(Vec<String>, Vec<[String; 3]>)> = Vec::new();
    let mut done = Vec::new();
    for row in held(command).flat_map(rows) {
        let takers: Vec<_> = held(command).filter(|inner| rows(inner).contains(&row)).collect();
        let takers: Vec<String> = takers.into_iter().map(|inner| code(inner.get_name())).collect();
        if takers.len() < TAKERS_MIN || done.contains(&row) {
            continue;
        }
        done.push(row.clone());
        match tables.iter_mut().find(|(known, _)| *known == takers) {
            Some((_, rows)) => rows.push(row),
            None => tables.push((takers, vec![row])),
        }
    }
    tables
}

/// Of the spelling of an argument: `-o, --output <FORM>` is `--output`.
fn long_name(spelling: &str) -> &str {
    let mut names = spelling.split(' ').map(|name| name.trim_matches('`'));
    names.find(|name| !name.ends_with(',')).unwrap()
}

/// The section of a command, and those of what it holds.
fn sections(command: &mut Command, above: &[[String; 3]], text: &mut String) {
    let name = command.get_bin_name().unwrap_or("kvorum").to_owned();
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let about = sentence(&about);
    let usage = command.render_usage().to_string();
    *text += &format!(
        "## `{name}`\n\n{about}\n\n```text\n{}\n```\n\n",
        usage.trim().trim_start_matches("Usage: ").replace("\n       ", "\n")
    );
    const HEAD: [&str; 3] = ["argument", "default", "meaning"];
    let (told, own): (Vec<_>, Vec<_>) = rows(command).into_iter().partition(|row| above.contains(row));
    if !own.is_empty() {
        *text += &(table(HEAD, own) + "\n");
    }
    if !told.is_empty() {
        let names: Vec<String> = told.iter().map(|row| long_name(&row[0]).to_owned()).collect();
        let section = name.rsplit_once(' ').unwrap().0;
        let link = section.replace(' ', "-");
        *text += &format!("As in [`{section}`](#{link}): `{}`.\n\n", names.join("`, `"));
    }
    if let Some(after) = command.get_after_help() {
        *text += &format!("```text\n{}\n```\n\n", after.to_string().trim());
    }
    let mut below = Vec::new();
    for (takers, rows) in shared(command) {
        *text += &format!("Arguments of {}:\n\n{}\n", takers.join(", "), table(HEAD, rows.clone()));
        below.extend(rows);
    }
    let shown = |command: &&mut Command| !command.is_hide_set() && command.get_name() != "help";
    for inner in command.get_subcommands_mut().filter(shown) {
        sections(inner, &below, text);
    }
}

#[test]
fn command_line() {
    let mut command = Cli::command();
    command.build();
    let mut text = String::new();
    sections(&mut command, &[], &mut text);
    hold("command-line.md", &[("commands", text)]);
}
