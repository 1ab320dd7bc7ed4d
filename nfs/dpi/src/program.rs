//! Where the program `nf-dpi` is.

use std::{
    env, fmt, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const NAME: &str = "nf-dpi";

/// The program was found nowhere.
#[derive(Debug)]
pub struct NoProgram {
    /// The folders that do not have it.
    without: Vec<PathBuf>,
    /// The file that could not be used, and why.
    unusable: Vec<String>,
}

impl fmt::Display for NoProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // nfagent recognises by this form that another machine may have the program (nfagent/checking.py).
        write!(f, "{NAME}: cannot be read: No such file or directory")?;
        let folders: Vec<_> = self
            .without
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        if !folders.is_empty() {
            write!(f, "; it is not in {}", folders.join(", "))?;
        }
        for why in &self.unusable {
            write!(f, "; {why}")?;
        }
        write!(f, "; install the Debian package {NAME}, put the program into one of these folders, or name its file in inspection.helper")
    }
}

impl std::error::Error for NoProgram {}

/// Finds the program: beside the running one, in the `libexec/nf` of its installation, or on PATH.
///
/// # Errors
/// If it is in none of these.
pub fn find_program() -> Result<PathBuf, NoProgram> {
    let mut folders = Vec::new();
    let mut unusable = Vec::new();
    match env::current_exe() {
        Ok(own) => {
            let beside = own.parent();
            folders.extend(beside.map(Path::to_owned));
            let above = beside.and_then(Path::parent);
            folders.extend(above.map(|above| above.join("libexec/nf")));
        }
        Err(error) => unusable.push(format!(
            "the folder of the running program cannot be read: {error}"
        )),
    }
    match env::var_os("PATH") {
        Some(path) => folders.extend(env::split_paths(&path)),
        None => unusable.push("PATH is not set".to_owned()),
    }
    find(folders).map_err(|mut none| {
        none.unusable.extend(unusable);
        none
    })
}

fn find(folders: Vec<PathBuf>) -> Result<PathBuf, NoProgram> {
    let mut none = NoProgram {
        without: Vec::new(),
        unusable: Vec::new(),
    };
    for folder in folders {
        let path = folder.join(NAME);
        let why = match fs::metadata(&path) {
            Ok(data) if !data.is_file() => "is not a file".to_owned(),
            Ok(data) if data.permissions().mode() & 0o111 == 0 => "is not executable".to_owned(),
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if !none.without.contains(&folder) {
                    none.without.push(folder);
                }
                continue;
            }
            Err(error) => format!("cannot be read: {error}"),
        };
        none.unusable.push(format!("{} {why}", path.display()));
    }
    Err(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_without_a_program_is_named_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        let folder = |name: &str| directory.path().join(name);
        for name in ["empty", "folder", "plain", "right"] {
            fs::create_dir(folder(name)).unwrap();
        }
        fs::create_dir(folder("folder/nf-dpi")).unwrap();
        for (name, mode) in [("plain/nf-dpi", 0o644), ("right/nf-dpi", 0o755)] {
            fs::write(folder(name), "").unwrap();
            fs::set_permissions(folder(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut places = ["empty", "folder", "plain", "plain/nf-dpi", "empty"]
            .map(folder)
            .to_vec();
        let why = find(places.clone()).unwrap_err().to_string();
        for told in [
            "nf-dpi: cannot be read: No such file or directory; ",
            &format!("it is not in {}; ", folder("empty").display())[..],
            "folder/nf-dpi is not a file; ",
            "plain/nf-dpi is not executable; ",
            "plain/nf-dpi/nf-dpi cannot be read: Not a directory",
            "; install the Debian package nf-dpi, ",
        ] {
            assert!(why.contains(told), "{why}");
        }
        places.push(folder("right"));
        assert_eq!(find(places).unwrap(), folder("right/nf-dpi"));
    }
}
