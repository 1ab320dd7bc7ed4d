//! Checks which modules of a crate use which. An arrow is a path in `use` or in code; in `nfs` also a call of a method of `Pass` or `Link`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Panics for every arrow between rooms (modules at the top of a crate) that `rules` do not allow, and for rules that allow a cycle. A rule
/// is a room and the rooms that it may use.
pub fn check_rooms(src: &Path, rules: &[(&str, &str)]) {
    let module = |room: &str| vec![room.to_owned()];
    let modules = |rooms: &str| rooms.split_whitespace().map(module).collect();
    let rules = rules.iter();
    let rules: Arrows = rules
        .map(|(room, uses)| (module(room), modules(uses)))
        .collect();
    let mut found = arrows(src, 1);
    found.remove(&Module::new()); // the facade
    assert!(
        found.keys().eq(rules.keys()),
        "rooms of the source: {:?}",
        found.keys()
    );
    for (room, uses) in found {
        let wrong: Vec<_> = uses.difference(&rules[&room]).collect();
        assert!(wrong.is_empty(), "{room:?} uses {wrong:?} without leave");
    }
    let cyclic = cyclic(rules);
    assert!(cyclic.is_empty(), "the table allows a cycle: {cyclic:#?}");
}

/// Panics if modules of a crate use each other in a circle. At depth 1 the modules are its rooms, without a limit its files.
pub fn check_circles(src: &Path, depth: usize) {
    let arrows = arrows(src, depth);
    let (modules, count) = (
        arrows.len(),
        arrows.values().map(BTreeSet::len).sum::<usize>(),
    );
    println!("{}: {modules} modules, {count} arrows", src.display());
    assert!(modules == 1 || count >= modules - 2, "{count} arrows found");
    let cyclic = cyclic(arrows);
    assert!(
        cyclic.is_empty(),
        "{}: a cycle among {cyclic:#?}",
        src.display()
    );
}

type Module = Vec<String>;
type Files = BTreeMap<Module, String>;
/// The modules that each module uses.
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

/// Reads the files below a folder as modules, without comments and unit tests, each on one line.
fn read(folder: &Path, parent: &[String], files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().unwrap() == "tests" {
            continue;
        }
        let mut module = parent.to_vec();
        module.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        if path.is_dir() {
            read(&path, &module, files);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = code.lines().map(|line| line.split("//").next().unwrap());
            let code = lines.map(str::trim).collect::<Vec<_>>().join(" ");
            module.retain(|name| !["lib", "main", "mod"].contains(&name.as_str()));
            files.insert(module, code.replace(" .", "."));
        }
    }
}

/// Parses the paths at the start of a text, `a::{b, c::d}`; returns them and the rest.
fn paths(text: &str) -> (Vec<Module>, &str) {
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', ',']);
            if rest.is_empty() || rest.starts_with('}') {
                return (all, rest.get(1..).unwrap_or_default());
            }
            let (some, after) = paths(rest);
            all.extend(some);
            rest = after.trim_start_matches(|c| c != ',' && c != '}');
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let (mut all, rest) = match rest.strip_prefix("::") {
        Some(rest) => paths(rest),
        None => (vec![Vec::new()], rest),
    };
    all.iter_mut()
        .for_each(|path| path.insert(0, name.to_owned()));
    (all, rest)
}

/// Returns the file that a path leads to, through the `pub use` of the files on its way.
fn resolve(files: &Files, from: &Module, path: &[String]) -> Module {
    let mut at = from.clone();
    for name in path {
        let mut child = at.clone();
        child.push(name.clone());
        match name.as_str() {
            "self" => {}
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            _ if files.contains_key(&child) => at = child,
            _ => {
                let uses = files[&at].split("pub use ").skip(1);
                let uses = uses.chain(files[&at].split("pub(crate) use ").skip(1));
                let found = uses.flat_map(|text| paths(text).0);
                let found = found.filter(|path| path.len() > 1 && path.last() == Some(name));
                let found = found.map(|path| resolve(files, &at, &path)).next();
                return found.unwrap_or(at);
            }
        }
    }
    at
}

/// Returns which modules below `src` use which; what is deeper than `depth` counts as the module there.
fn arrows(src: &Path, depth: usize) -> Arrows {
    let mut files = Files::new();
    read(src, &[], &mut files);
    let files = &files;
    let mut arrows = Arrows::new();
    let mut methods = BTreeMap::new();
    for (module, code) in files {
        for one in ["impl Pass<'_> {", "impl Link<'_> {"] {
            for body in code.split(one).skip(1) {
                let names = body
                    .split("fn ")
                    .skip(1)
                    .map(|rest| rest.split(['(', '<']).next());
                methods.extend(names.map(|name| (name.unwrap(), module)));
            }
        }
    }
    for (module, code) in files {
        // A facade forwards names and depends on none of them.
        let code: String =
            ["pub use ", "pub(crate) use "]
                .iter()
                .fold(code.clone(), |code, facade| {
                    let mut parts = code.split(facade);
                    let first = parts.next().unwrap().to_owned();
                    parts.fold(first, |all, part| {
                        all + part.split_once(';').map_or("", |(_, rest)| rest)
                    })
                });
        let children = files
            .keys()
            .filter(|file| file.len() == module.len() + 1 && file.starts_with(module));
        let children = children.map(|file| file.last().unwrap().as_str());
        let all = arrows.entry(module.clone()).or_default();
        for start in children.chain(["crate", "super"]) {
            for (index, _) in code.match_indices(&format!("{start}::")) {
                let before = code[..index].chars().next_back().unwrap_or(' ');
                if !before.is_alphanumeric() && before != '_' && before != ':' {
                    all.extend(
                        paths(&code[index..])
                            .0
                            .iter()
                            .map(|path| resolve(files, module, path)),
                    );
                }
            }
        }
        for (name, owner) in &methods {
            if ["self", "pass"]
                .iter()
                .any(|of| code.contains(&format!("{of}.{name}(")))
            {
                all.insert((*owner).clone());
            }
        }
    }
    let cut = |module: &Module| module.iter().take(depth).cloned().collect::<Module>();
    let mut merged = Arrows::new();
    for (module, uses) in arrows {
        let from = cut(&module);
        let all = merged.entry(from.clone()).or_default();
        all.extend(uses.iter().map(cut).filter(|to| *to != from));
    }
    merged
}

/// Removes the files that are on no cycle: those without an arrow to a remaining file, or from one.
fn cyclic(mut arrows: Arrows) -> Arrows {
    loop {
        let before = arrows.len();
        let sources: BTreeSet<Module> = arrows.keys().cloned().collect();
        let targets: BTreeSet<Module> = arrows.values().flatten().cloned().collect();
        arrows.retain(|module, to| {
            to.retain(|to| sources.contains(to));
            !to.is_empty() && targets.contains(module)
        });
        if arrows.len() == before {
            return arrows;
        }
    }
}
