//! The words of a filter.

use std::fmt;

use super::{Comparison, Literal};
use crate::view::template::SyntaxError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A field's name or a word of the language.
    Word(String),
    QuotedField(String),
    Literal(Literal),
    Compare(Comparison),
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "{word}"),
            Self::QuotedField(name) => write!(f, "`{name}`"),
            Self::Literal(value) => write!(f, "{value}"),
            Self::Compare(comparison) => f.write_str(comparison.symbol()),
            Self::Open => f.write_str("("),
            Self::Close => f.write_str(")"),
            Self::OpenList => f.write_str("["),
            Self::CloseList => f.write_str("]"),
            Self::Comma => f.write_str(","),
            Self::End => f.write_str("the end"),
        }
    }
}

/// Words that name no field unless quoted.
pub(super) fn is_reserved(word: &str) -> bool {
    matches!(word, "and" | "or" | "not" | "in")
}

/// The tokens of a text, the last of which is [`Token::End`].
pub(super) struct Tokens {
    tokens: Vec<(usize, Token)>,
    next: usize,
    end: usize,
}

impl Tokens {
    pub(super) fn read(text: &str) -> Result<Self, SyntaxError> {
        let mut lexer = Lexer {
            characters: text.chars().collect(),
            at: 0,
        };
        let mut tokens = Vec::new();
        while lexer.skip_space() {
            tokens.push((lexer.at, lexer.token()?));
        }
        Ok(Self {
            tokens,
            next: 0,
            end: lexer.at,
        })
    }

    pub(super) fn peek(&self) -> &Token {
        self.tokens
            .get(self.next)
            .map_or(&Token::End, |(_, token)| token)
    }

    /// Where the next token stands, in characters.
    pub(super) fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    pub(super) fn advance(&mut self) {
        self.next += 1;
    }

    pub(super) fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == token;
        self.next += usize::from(found);
        found
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(found) if found == word);
        self.next += usize::from(found);
        found
    }
}

struct Lexer {
    characters: Vec<char>,
    at: usize,
}

impl Lexer {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(character) = self.peek().filter(|character| wanted(*character)) {
            taken.push(character);
            self.at += 1;
        }
        taken
    }

    /// Whether anything is left after the white space.
    fn skip_space(&mut self) -> bool {
        self.take_while(char::is_whitespace);
        self.peek().is_some()
    }

    fn fault(&self, expected: &str) -> SyntaxError {
        let found = self
            .peek()
            .map_or("the end".to_owned(), |c| format!("{c:?}"));
        SyntaxError::new(self.at, expected, found)
    }

    fn token(&mut self) -> Result<Token, SyntaxError> {
        let start = self.at;
        let Some(first) = self.peek() else {
            return Ok(Token::End);
        };
        if first.is_ascii_digit() || matches!(first, '-' | '+' | '.') {
            return self.number();
        }
        if is_word(first) {
            let word = self.take_while(is_word);
            return Ok(match word.as_str() {
                "true" => Token::Literal(Literal::Bool(true)),
                "false" => Token::Literal(Literal::Bool(false)),
                _ => Token::Word(word),
            });
        }
        self.at += 1;
        Ok(match first {
            '(' => Token::Open,
            ')' => Token::Close,
            '[' => Token::OpenList,
            ']' => Token::CloseList,
            ',' => Token::Comma,
            '=' if self.take('=') => Token::Compare(Comparison::Equal),
            '!' if self.take('=') => Token::Compare(Comparison::NotEqual),
            '<' if self.take('=') => Token::Compare(Comparison::LessOrEqual),
            '<' => Token::Compare(Comparison::Less),
            '>' if self.take('=') => Token::Compare(Comparison::GreaterOrEqual),
            '>' => Token::Compare(Comparison::Greater),
            '`' => Token::QuotedField(self.doubled('`')?),
            '\'' => Token::Literal(Literal::Text(self.doubled('\'')?)),
            '"' => Token::Literal(Literal::Text(self.json_text(start)?)),
            '=' => return Err(SyntaxError::new(start, "== for equality", "=")),
            '!' => return Err(SyntaxError::new(start, "!= or not", "!")),
            '&' => return Err(SyntaxError::new(start, "and", "&")),
            '|' => return Err(SyntaxError::new(start, "or", "|")),
            _ => {
                self.at = start;
                return Err(self.fault("a field, a value, a comparison or a parenthesis"));
            }
        })
    }

    /// Text up to `quote`, which a doubled one stands for inside.
    fn doubled(&mut self, quote: char) -> Result<String, SyntaxError> {
        let mut text = String::new();
        loop {
            text.push_str(&self.take_while(|character| character != quote));
            if !self.take(quote) {
                return Err(self.fault(&format!("{quote} at the end of the text")));
            }
            if !self.take(quote) {
                return Ok(text);
            }
            text.push(quote);
        }
    }

    /// Text after its opening quote at `start`, with the escapes of JSON.
    fn json_text(&mut self, start: usize) -> Result<String, SyntaxError> {
        let mut spelled = String::from('"');
        loop {
            spelled.push_str(&self.take_while(|character| !matches!(character, '"' | '\\')));
            if self.take('"') {
                break;
            }
            if !self.take('\\') {
                return Err(self.fault("\" at the end of the text"));
            }
            spelled.push('\\');
            spelled.extend(self.peek());
            self.at += 1;
        }
        spelled.push('"');
        serde_json::from_str(&spelled)
            .map_err(|_| SyntaxError::new(start, "text with the escapes of JSON", spelled))
    }

    fn number(&mut self) -> Result<Token, SyntaxError> {
        let start = self.at;
        let mut before = '0';
        let mut spelled = String::new();
        while let Some(character) = self.peek() {
            let sign = matches!(character, '+' | '-') && matches!(before, 'e' | 'E');
            let first = spelled.is_empty();
            if !first && !sign && !character.is_ascii_alphanumeric() && character != '.' {
                break;
            }
            spelled.push(character);
            before = character;
            self.at += 1;
        }
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let unsigned = spelled.strip_prefix(['-', '+']).unwrap_or(&spelled);
        if plain(unsigned)
            && !unsigned.is_empty()
            && let Ok(value) = spelled.parse()
        {
            return Ok(Token::Literal(Literal::Int(value)));
        }
        let digits_first = unsigned.starts_with(|first: char| first.is_ascii_digit());
        match spelled.parse::<f64>() {
            Ok(value) if digits_first && value.is_finite() => {
                Ok(Token::Literal(Literal::Float(value)))
            }
            _ => Err(SyntaxError::new(
                start,
                "a number such as 5, -0.5 or 1e-3",
                spelled,
            )),
        }
    }
}

/// Characters of a field's name that needs no quotes.
fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.' | '-')
}
