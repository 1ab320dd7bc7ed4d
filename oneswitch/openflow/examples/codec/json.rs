//! The subset of JSON that the filter writes.

/// Something that can be written as JSON.
pub trait Json {
    fn json(&self) -> String;
}

macro_rules! display {
    ($($type:ty),+) => {
        $(impl Json for $type {
            fn json(&self) -> String {
                self.to_string()
            }
        })+
    };
}
display!(u8, u16, u32, u64, usize, bool);

impl Json for str {
    fn json(&self) -> String {
        let mut out = String::from('"');
        for c in self.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                ' '..='~' => out.push(c),
                _ => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
            }
        }
        out.push('"');
        out
    }
}

impl Json for String {
    fn json(&self) -> String {
        self.as_str().json()
    }
}

impl<T: Json> Json for Option<T> {
    fn json(&self) -> String {
        self.as_ref().map_or_else(|| "null".into(), Json::json)
    }
}

impl<T: Json> Json for [T] {
    fn json(&self) -> String {
        let items: Vec<String> = self.iter().map(Json::json).collect();
        format!("[{}]", items.join(","))
    }
}

impl<T: Json> Json for Vec<T> {
    fn json(&self) -> String {
        self.as_slice().json()
    }
}

/// An object, key by key.
#[derive(Default)]
pub struct Object(Vec<(&'static str, String)>);

impl Object {
    pub fn with(mut self, key: &'static str, value: &(impl Json + ?Sized)) -> Self {
        self.0.push((key, value.json()));
        self
    }
}

impl Json for Object {
    fn json(&self) -> String {
        let items: Vec<String> = self
            .0
            .iter()
            .map(|(key, value)| format!("{}:{value}", key.json()))
            .collect();
        format!("{{{}}}", items.join(","))
    }
}

/// Builds an object: `object! { of: field, ...; "key": value, ... }` takes the fields of `of`.
macro_rules! object {
    ($($of:ident: $($field:ident),+;)? $($key:literal : $value:expr),* $(,)?) => {
        $crate::json::Object::default()$($(.with(stringify!($field), &$of.$field))+)?$(.with($key, &$value))*
    };
}
pub(crate) use object;

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal digits as bytes.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || text.len() % 2 != 0 {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}
