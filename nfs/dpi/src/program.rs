//! Where the program `nf-dpi` is.

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

const NAME: &str = "nf-dpi";

/// The program was found nowhere.
#[derive(Debug)]
pub struct NoProgram(Vec<PathBuf>);

impl fmt::Display for NoProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the program {NAME}, which inspects packets with nDPI, is missing; install the Debian package {NAME}, or put the program into one of ")?;
        let places: Vec<_> = self
            .0
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        f.write_str(&places.join(", "))
    }
}

impl std::error::Error for NoProgram {}

/// Finds the program: beside the running one, in the `libexec/nf` of its installation, or on PATH.
///
/// # Errors
/// If it is in none of these.
pub fn find_program() -> Result<PathBuf, NoProgram> {
    let mut places = Vec::new();
    if let Some(folder) = env::current_exe().ok().as_deref().and_then(Path::parent) {
        places.push(folder.to_owned());
        places.extend(folder.parent().map(|above| above.join("libexec/nf")));
    }
    places.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
    let found = places
        .iter()
        .map(|folder| folder.join(NAME))
        .find(|path| path.is_file());
    found.ok_or(NoProgram(places))
}
