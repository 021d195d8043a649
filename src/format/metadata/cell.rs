//! A value of somebody else's table, before the type of its column is known.

/// One value as a table gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// An integer that does not fit 64 bits with a sign, as spelled.
    BigInt(String),
    /// A float of at most 64 bits.
    Float(f64),
    /// UTF-8 text.
    Text(String),
    /// Text of a table that has no types (CSV), which may stand for a value of any type.
    Untyped(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A value that no metadata field can hold as it is.
    Other {
        /// What it is, with an article ("a list").
        what: &'static str,
        /// Its text.
        text: String,
    },
}

impl Cell {
    /// A signed or unsigned integer of any width.
    pub fn integer<T: TryInto<i64> + Copy + ToString>(value: T) -> Self {
        match value.try_into() {
            Ok(value) => Self::Int(value),
            Err(_) => Self::BigInt(value.to_string()),
        }
    }

    /// The value as text.
    ///
    /// # Errors
    /// For a null and for bytes that are not UTF-8: what it is, for a message.
    pub fn into_text(self) -> Result<String, &'static str> {
        match self {
            Self::Null => Err("no value"),
            Self::Bool(value) => Ok(value.to_string()),
            Self::Int(value) => Ok(value.to_string()),
            Self::Float(value) => Ok(format!("{value:?}")),
            Self::BigInt(text)
            | Self::Text(text)
            | Self::Untyped(text)
            | Self::Other { text, .. } => Ok(text),
            Self::Bytes(bytes) => String::from_utf8(bytes).map_err(|_| "bytes that are not UTF-8"),
        }
    }
}
