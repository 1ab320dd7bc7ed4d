//! Walks a TOML document by hand, so that every error names file, line and key.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// One error of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub file: String,
    /// Counted from 1; 0 if no line is to blame.
    pub line: usize,
    /// Dotted path, e.g. `port[2].number`; empty if no key is to blame.
    pub key: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The text of one file and the errors found so far.
pub struct Document<'a> {
    file: &'a str,
    text: &'a str,
    problems: RefCell<Vec<Problem>>,
}

/// A value, and its position.
#[derive(Clone, Debug)]
pub struct Field<T> {
    pub value: T,
    pub line: usize,
    pub key: String,
}

impl<T> Field<T> {
    /// Returns the same position with another value.
    pub fn with<U>(&self, value: U) -> Field<U> {
        Field {
            value,
            line: self.line,
            key: self.key.clone(),
        }
    }
}

impl<'a> Document<'a> {
    pub fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            problems: RefCell::default(),
        }
    }

    /// Parses the text; reports an error and returns `None` if it is not TOML.
    pub fn parse(&self) -> Option<Spanned<DeTable<'a>>> {
        let parsed = DeTable::parse(self.text);
        if let Err(error) = &parsed {
            let line = error.span().map_or(0, |span| self.line(&span));
            self.problem(line, "", format!("not TOML: {}", error.message()));
        }
        parsed.ok()
    }

    pub fn problem(&self, line: usize, key: &str, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem {
            file: self.file.to_owned(),
            line,
            key: key.to_owned(),
            message: message.into(),
        });
    }

    /// Reports an error of a value.
    pub fn blame<T>(&self, field: &Field<T>, message: impl Into<String>) {
        self.problem(field.line, &field.key, message);
    }

    /// Returns all errors in the order of the file.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.line);
        problems
    }

    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        1 + before.filter(|byte| **byte == b'\n').count()
    }
}

/// One table of the document.
pub struct Section<'a> {
    document: &'a Document<'a>,
    path: String,
    /// Line of the table's header; 0 for the document itself.
    pub line: usize,
    table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    /// Returns the whole document.
    pub fn root(document: &'a Document<'a>, table: &'a Spanned<DeTable<'a>>) -> Self {
        Self {
            document,
            path: String::new(),
            line: 0,
            table: table.get_ref(),
        }
    }

    /// Reports every key that is not in `known`.
    pub fn only(&self, known: &[&str]) {
        for key in self.table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                let message = format!("unknown key; expected one of: {}", known.join(", "));
                self.document.problem(
                    self.document.line(&key.span()),
                    &self.key(key.get_ref()),
                    message,
                );
            }
        }
    }

    /// Reports that the required `key` is missing.
    pub fn missing(&self, key: &str, expected: &str) {
        self.document.problem(
            self.line,
            &self.key(key),
            format!("missing; expected {expected}"),
        );
    }

    pub fn string(&self, key: &str, expected: &str) -> Option<Field<String>> {
        self.typed(key, expected, as_string)
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub fn required_string(&self, key: &str, expected: &str) -> Option<Field<String>> {
        if !self.has(key) {
            self.missing(key, expected);
        }
        self.string(key, expected)
    }

    pub fn integer(&self, key: &str, expected: &str) -> Option<Field<i64>> {
        self.typed(key, expected, |value| match value {
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).ok()
            }
            _ => None,
        })
    }

    /// Reads an array of strings; empty if missing.
    pub fn strings(&self, key: &str, expected: &str) -> Vec<Field<String>> {
        let Some((value, line)) = self.get(key) else {
            return Vec::new();
        };
        let DeValue::Array(array) = value else {
            self.wrong(key, line, value, expected);
            return Vec::new();
        };
        let mut fields = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let line = self.document.line(&item.span());
            let key = format!("{key}[{index}]");
            match as_string(item.get_ref()) {
                Some(value) => fields.push(Field {
                    value,
                    line,
                    key: self.key(&key),
                }),
                None => self.wrong(&key, line, item.get_ref(), expected),
            }
        }
        fields
    }

    /// Reads a table within this one.
    pub fn section(&self, key: &str, expected: &str) -> Option<Section<'a>> {
        let (value, line) = self.get(key)?;
        match value {
            DeValue::Table(table) => Some(Section {
                document: self.document,
                path: self.key(key),
                line,
                table,
            }),
            _ => {
                self.wrong(key, line, value, expected);
                None
            }
        }
    }

    /// Reads an array of tables (`[[key]]`); empty if missing.
    pub fn sections(&self, key: &str, expected: &str) -> Vec<Section<'a>> {
        let Some((value, line)) = self.get(key) else {
            return Vec::new();
        };
        let DeValue::Array(array) = value else {
            self.wrong(key, line, value, expected);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let line = self.document.line(&item.span());
            let key = format!("{key}[{index}]");
            match item.get_ref() {
                DeValue::Table(table) => {
                    sections.push(Section {
                        document: self.document,
                        path: self.key(&key),
                        line,
                        table,
                    });
                }
                other => self.wrong(&key, line, other, expected),
            }
        }
        sections
    }

    pub fn key(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn get(&self, key: &str) -> Option<(&'a DeValue<'a>, usize)> {
        let value = self.table.get(key)?;
        Some((value.get_ref(), self.document.line(&value.span())))
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<Field<T>> {
        let (value, line) = self.get(key)?;
        let converted = convert(value);
        if converted.is_none() {
            self.wrong(key, line, value, expected);
        }
        converted.map(|value| Field {
            value,
            line,
            key: self.key(key),
        })
    }

    fn wrong(&self, key: &str, line: usize, value: &DeValue<'_>, expected: &str) {
        self.document.problem(
            line,
            &self.key(key),
            format!("{}; expected {expected}", describe(value)),
        );
    }
}

/// Values that must be unique, with the place of the first use of each.
pub struct Seen<T>(pub HashMap<T, (usize, String)>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + std::hash::Hash> Seen<T> {
    /// Tells whether the value is new; reports an error if it is not.
    pub fn first(&mut self, document: &Document<'_>, field: &Field<T>, shown: &str) -> bool
    where
        T: Clone,
    {
        if let Some((line, key)) = self.0.get(&field.value) {
            document.blame(
                field,
                format!("{shown} is used twice; first as {key} in line {line}"),
            );
            return false;
        }
        self.0
            .insert(field.value.clone(), (field.line, field.key.clone()));
        true
    }
}

fn as_string(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    }
}

/// Describes a value for an error.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string \"{text}\""),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(truth) => format!("{truth}"),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "an array".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

/// Parses a field, and reports what is wrong with it.
pub fn parse_one<T>(
    document: &Document<'_>,
    field: &Field<String>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    parse(&field.value)
        .map_err(|message| document.blame(field, message))
        .ok()
}
