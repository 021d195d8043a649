//! Refuses quotes that no reader of separated tables can be sure of. Taken as they come, a quote that is
//! not closed swallows all rows up to the next one, without a word.

use std::io::{self, Read};

/// Passes bytes on for as long as their quotes are right.
pub(super) struct Quotes<R> {
    inner: R,
    delimiter: u8,
    state: State,
    line: u64,
    /// Where the last quoted value starts.
    opened: u64,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum State {
    /// At the start of a value.
    Start,
    /// In a value without quotes.
    Plain,
    /// In a value with quotes.
    Quoted,
    /// Behind a quote that ends the value, unless another one follows.
    Closed,
}

impl<R> Quotes<R> {
    pub(super) fn new(inner: R, delimiter: u8) -> Self {
        Self {
            inner,
            delimiter,
            state: State::Start,
            line: 1,
            opened: 0,
        }
    }

    fn take(&mut self, byte: u8) -> io::Result<()> {
        let ends = byte == self.delimiter || matches!(byte, b'\n' | b'\r');
        self.state = match (self.state, byte) {
            (State::Start, b'"') => {
                self.opened = self.line;
                State::Quoted
            }
            (State::Quoted, b'"') => State::Closed,
            (State::Closed, b'"') | (State::Quoted, _) => State::Quoted,
            (State::Closed, _) if !ends => return Err(self.refused("text behind its end")),
            _ if ends => State::Start,
            _ => State::Plain,
        };
        self.line += u64::from(byte == b'\n');
        Ok(())
    }

    fn refused(&self, found: &str) -> io::Error {
        let reason = format!(
            "line {}: expected a quoted value to end before the next separator, found {found} \
             (a quote within a value is written twice, and the value between quotes)",
            self.opened
        );
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(out)?;
        for byte in out.get(..len).unwrap_or_default() {
            self.take(*byte)?;
        }
        if len == 0 && !out.is_empty() && self.state == State::Quoted {
            return Err(self.refused("the end of the table"));
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, delimiter: u8) -> Result<(), String> {
        let mut out = String::new();
        let read = Quotes::new(text.as_bytes(), delimiter).read_to_string(&mut out);
        read.map(|_| assert_eq!(out, text))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn quotes_that_are_right_pass() {
        for text in [
            "",
            "a,b\nc,d\n",
            "\"a,\nb\",c\n",
            "\"\",\"\"\"\"\n",
            "a\"b,c\"\n",
            "\"a\"",
            "\"a\"\r\n\"b\"",
        ] {
            assert_eq!(check(text, b','), Ok(()), "{text:?}");
        }
        assert_eq!(check("\"a\"\tb\n", b'\t'), Ok(()));
    }

    #[test]
    fn quotes_that_are_not_closed_or_have_text_behind_them_are_refused() {
        for (text, delimiter, line) in [
            ("p\ts\nf\t\"a\nf\t\"b\nf\tc\n", b'\t', "line 2:"),
            ("p,s\n\"a,b\nc,d\n", b',', "line 2:"),
            ("p\n\"a\" b\n", b',', "line 2:"),
            ("\"", b',', "line 1:"),
            ("\"a\"\tb\n", b',', "line 1:"),
        ] {
            let refused = check(text, delimiter).unwrap_err();
            assert!(refused.starts_with(line), "{text:?}: {refused}");
        }
    }
}
