//! Checks which modules at the top of a crate (its rooms) use which. A crate's test includes this file and calls [`check`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A room, and the rooms that it may use.
pub type Rule = (&'static str, &'static [&'static str]);

/// Panics with file, line and rule for every arrow that `rules` do not allow, and for rules that allow a cycle.
pub fn check(src: &Path, rules: &[Rule]) {
    let rules: BTreeMap<&str, &[&str]> = rules.iter().copied().collect();
    let mut faults: Vec<String> = rules
        .keys()
        .filter_map(|room| cycle(room, &rules))
        .collect();
    let mut seen = BTreeSet::new();
    for file in sources(src) {
        let path: Vec<String> = module_path(file.strip_prefix(src).unwrap());
        let Some(room) = path.first().filter(|name| *name != "lib") else {
            continue;
        };
        seen.insert(room.clone());
        let Some(allowed) = rules.get(room.as_str()) else {
            faults.push(format!(
                "{}: room {room} is not in the table",
                file.display()
            ));
            continue;
        };
        let text = fs::read_to_string(&file).unwrap();
        for (line, used) in arrows(&text, &path) {
            if used != *room && !allowed.contains(&used.as_str()) {
                let at = format!("{}:{line}", file.display());
                faults.push(format!(
                    "{at}: {room} uses {used}; {room} may use {allowed:?}"
                ));
            }
        }
    }
    let gone = rules.keys().filter(|room| !seen.contains(**room));
    faults.extend(gone.map(|room| format!("room {room} of the table does not exist")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The source files, without unit tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_source = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "rs")
            && path.file_stem().is_some_and(|s| s != "tests")
    };
    let nested = folders.iter().flat_map(|folder| sources(folder));
    nested.chain(files.into_iter().filter(is_source)).collect()
}

fn module_path(file: &Path) -> Vec<String> {
    let path = file.with_extension("");
    path.iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect()
}

/// The line and the room of every path that begins with `crate::` or `super::`.
fn arrows(text: &str, path: &[String]) -> Vec<(usize, String)> {
    let code = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let mut found = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        let line = line.split("//").next().unwrap_or_default();
        for (at, _) in line.match_indices("crate::") {
            let first = name(&line[at + "crate::".len()..]);
            found.push((
                number,
                if first.is_empty() {
                    "crate::{".into()
                } else {
                    first
                },
            ));
        }
        let mut rest = line;
        while let Some(at) = rest.find("super::") {
            rest = &rest[at..];
            let mut up = 0;
            while let Some(after) = rest.strip_prefix("super::") {
                (rest, up) = (after, up + 1);
            }
            found.extend((up == path.len()).then(|| (number, name(rest))));
        }
    }
    found
}

fn name(text: &str) -> String {
    let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
    text.chars().take_while(is_part).collect()
}

/// A way from `room` back to itself.
fn cycle(room: &str, rules: &BTreeMap<&str, &[&str]>) -> Option<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![room]);
    while let Some(from) = next.pop() {
        for to in rules.get(from).copied().unwrap_or_default() {
            if *to == room {
                return Some(format!(
                    "the table allows {room} to use itself by way of {from}"
                ));
            }
            next.extend(reached.insert(*to).then_some(*to));
        }
    }
    None
}
