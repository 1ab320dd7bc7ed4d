//! `nf check`: examines a configuration as `nf run` would, without interfaces.

use std::path::Path;

use nf_runtime::{NetworkFunction, Prepared};

use crate::{config, failure::Failure};

/// # Errors
/// If the file cannot be read, or a function of this kind with `ports` ports would refuse the configuration; the error says where.
pub(crate) fn check<N: NetworkFunction>(file: &Path, ports: usize) -> Result<(), Failure> {
    let config: N::Config = config::load(file)?;
    Prepared::<N>::new(config, ports, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use nf_limiter::Limiter;

    use super::*;

    #[test]
    fn a_wrong_value_is_named_and_a_right_configuration_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let checked = |text: &str| {
            let path = directory.path().join("limiter.toml");
            std::fs::write(&path, text).unwrap();
            check::<Limiter>(&path, 1).map_err(|failure| failure.to_string())
        };
        assert_eq!(checked("packets = 100\n"), Ok(()));
        for (text, told) in [
            ("packets = 100\nspeed = 10\n", "speed"),
            ("packets = 0\n", "packets"),
        ] {
            let failure = checked(text).unwrap_err();
            assert!(failure.contains(told), "{failure}");
        }
    }
}
