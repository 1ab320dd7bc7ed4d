//! Loads configuration files: TOML, or JSON if the name ends in .json.

use std::{fs, path::Path};

use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// # Errors
/// If the file cannot be read, or its content is not such a configuration; the error says where.
pub(crate) fn load<C: DeserializeOwned>(path: &Path) -> Result<C, Failure> {
    let fail = |reason: String| Failure::new(format!("{}: {reason}", path.display()));
    let text =
        fs::read_to_string(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("json") => {
            let mut json = serde_json::Deserializer::from_str(&text);
            let config = serde_path_to_error::deserialize(&mut json)
                .map_err(|error| fail(placed(&error)))?;
            json.end().map_err(|error| fail(error.to_string()))?;
            Ok(config)
        }
        Some("toml") => {
            let toml = toml::Deserializer::parse(&text)
                .map_err(|error| fail(error.to_string().trim_end().to_owned()))?;
            serde_path_to_error::deserialize(toml).map_err(|error| fail(placed(&error)))
        }
        _ => Err(fail("expected a name that ends in .toml or .json".into())),
    }
}

/// Returns the message of an error behind the path of its value, such as `vips[0].port`.
fn placed<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    let (path, reason) = (error.path().to_string(), error.inner().to_string());
    // The message of TOML's parser ends with a line break.
    let reason = reason.trim_end();
    match path.as_str() {
        "." => reason.to_owned(),
        path => format!("{path}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        number: u8,
    }

    #[test]
    fn both_formats_are_read_and_errors_name_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let load = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            load::<Sample>(&path)
        };
        assert_eq!(load("a.toml", "number = 1\n").unwrap().number, 1);
        assert_eq!(load("a.json", "{\"number\": 2}").unwrap().number, 2);
        for (name, text, expected) in [
            ("b.toml", "numbers = 1\n", "unknown field `numbers`"),
            ("b.toml", "\nnumber = 300\n", "line 2"),
            ("b.json", "{\"number\": \"x\"}", "line 1 column"),
            ("b.json", "{\"number\": \"x\"}", "number: invalid type"),
            ("b.json", "{\"number\": 1} 2", "trailing"),
            ("b.toml", "number = true", "number: "),
            ("b.yaml", "number: 1", ".toml or .json"),
        ] {
            let failure = load(name, text).unwrap_err().to_string();
            assert!(
                failure.contains(name) && failure.contains(expected),
                "{failure}"
            );
        }
        let missing = super::load::<Sample>(&directory.path().join("none.toml"));
        assert!(missing.unwrap_err().to_string().contains("cannot be read"));
    }
}
