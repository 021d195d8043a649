//! Filters: `label == "cat" and (score > 0.5 or not checked)`.
//!
//! ```text
//! filter     = conjunction { "or" conjunction }
//! conjunction = term { "and" term }
//! term       = "not" term | "(" filter ")" | field                        (a field of kind bool)
//!            | operand ("==" | "!=" | "<" | "<=" | ">" | ">=") operand    (a field and a value)
//!            | field [ "not" ] "in" "[" value { "," value } "]"
//! value      = true | false | number | "text" (as in JSON) | 'text' ('' stands for one ')
//! field      = letters, digits, _ . -      or any characters between ` (`` stands for one `)
//! ```

mod compiled;
mod lexer;

use std::fmt;

pub(super) use compiled::{Compiled, Ids};

use self::lexer::{Token, Tokens};
use super::template::SyntaxError;

/// Filters are nested at most this deep, so that no filter can exhaust the stack.
const MAX_DEPTH: usize = 64;

/// A parsed filter, not yet bound to the fields of a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    text: String,
    root: Expr,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
enum Expr {
    Any(Vec<Expr>),
    All(Vec<Expr>),
    Not(Box<Expr>),
    Flag(Field),
    Constant(bool),
    Compare(Field, Comparison, Literal),
    In(Field, Vec<Literal>),
}

/// A field as the filter names it.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    /// Whether the name was quoted, so that it is never a built-in one.
    quoted: bool,
    /// Where it stands, in characters.
    at: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// The comparison that holds for (b, a) when this one holds for (a, b).
    fn turned(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Literal {
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value} (bool)"),
            Self::Int(value) => write!(f, "{value} (int)"),
            Self::Float(value) => write!(f, "{value:?} (float)"),
            Self::Text(value) => write!(f, "{value:?} (string)"),
        }
    }
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// [`SyntaxError`].
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut parser = Parser {
            tokens: Tokens::read(text)?,
            depth: 0,
        };
        let root = parser.any()?;
        match parser.tokens.peek() {
            Token::End => Ok(Self {
                text: text.to_owned(),
                root,
            }),
            _ => Err(parser.fault("and, or or the end")),
        }
    }

    /// The text that it was read from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

enum Operand {
    Field(Field),
    Literal(Literal),
}

struct Parser {
    tokens: Tokens,
    depth: usize,
}

impl Parser {
    fn fault(&self, expected: impl Into<String>) -> SyntaxError {
        let token = self.tokens.peek();
        SyntaxError::new(self.tokens.at(), expected, token.to_string())
    }

    fn any(&mut self) -> Result<Expr, SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let most = format!("at most {MAX_DEPTH} levels of parentheses and not");
            return Err(self.fault(most));
        }
        let mut terms = vec![self.all()?];
        while self.tokens.take_word("or") {
            terms.push(self.all()?);
        }
        self.depth -= 1;
        Ok(match terms.len() {
            1 => terms.pop().unwrap_or(Expr::Constant(true)),
            _ => Expr::Any(terms),
        })
    }

    fn all(&mut self) -> Result<Expr, SyntaxError> {
        let mut terms = vec![self.term()?];
        while self.tokens.take_word("and") {
            terms.push(self.term()?);
        }
        Ok(match terms.len() {
            1 => terms.pop().unwrap_or(Expr::Constant(true)),
            _ => Expr::All(terms),
        })
    }

    fn term(&mut self) -> Result<Expr, SyntaxError> {
        let mut negated = false;
        while self.tokens.take_word("not") {
            negated = !negated;
        }
        let term = if self.tokens.take(&Token::Open) {
            let inner = self.any()?;
            if !self.tokens.take(&Token::Close) {
                return Err(self.fault("and, or or )"));
            }
            inner
        } else {
            self.comparison()?
        };
        Ok(match negated {
            true => Expr::Not(Box::new(term)),
            false => term,
        })
    }

    fn comparison(&mut self) -> Result<Expr, SyntaxError> {
        let left = self.operand()?;
        if let Token::Compare(comparison) = *self.tokens.peek() {
            self.tokens.advance();
            let at = self.tokens.at();
            return match (left, self.operand()?) {
                (Operand::Field(field), Operand::Literal(value)) => {
                    Ok(Expr::Compare(field, comparison, value))
                }
                (Operand::Literal(value), Operand::Field(field)) => {
                    Ok(Expr::Compare(field, comparison.turned(), value))
                }
                (Operand::Field(_), Operand::Field(field)) => Err(SyntaxError::new(
                    at,
                    "a value to compare the field with (text stands in quotes)",
                    format!("field {:?}", field.name),
                )),
                (Operand::Literal(_), Operand::Literal(value)) => Err(SyntaxError::new(
                    at,
                    "a field on one side of the comparison",
                    value.to_string(),
                )),
            };
        }
        let negated = self.tokens.take_word("not");
        if self.tokens.take_word("in") {
            let Operand::Field(field) = left else {
                return Err(self.fault("a field before in"));
            };
            let member = Expr::In(field, self.list()?);
            return Ok(match negated {
                true => Expr::Not(Box::new(member)),
                false => member,
            });
        }
        match left {
            _ if negated => Err(self.fault("in after not")),
            Operand::Field(field) => Ok(Expr::Flag(field)),
            Operand::Literal(Literal::Bool(value)) => Ok(Expr::Constant(value)),
            Operand::Literal(_) => Err(self.fault("a comparison such as == or <")),
        }
    }

    fn operand(&mut self) -> Result<Operand, SyntaxError> {
        let at = self.tokens.at();
        let operand = match self.tokens.peek() {
            Token::Word(word) => Operand::Field(Field {
                name: word.clone(),
                quoted: false,
                at,
            }),
            Token::QuotedField(name) => Operand::Field(Field {
                name: name.clone(),
                quoted: true,
                at,
            }),
            Token::Literal(value) => Operand::Literal(value.clone()),
            _ => return Err(self.fault("a field or a value")),
        };
        if let Operand::Field(field) = &operand
            && !field.quoted
            && lexer::is_reserved(&field.name)
        {
            return Err(self.fault("a field or a value (a field of this name stands in `)"));
        }
        self.tokens.advance();
        Ok(operand)
    }

    fn list(&mut self) -> Result<Vec<Literal>, SyntaxError> {
        if !self.tokens.take(&Token::OpenList) {
            return Err(self.fault("[ and values"));
        }
        let mut values = Vec::new();
        loop {
            match self.tokens.peek() {
                Token::Literal(value) => values.push(value.clone()),
                Token::CloseList if !values.is_empty() => {}
                _ => return Err(self.fault("a value")),
            }
            if *self.tokens.peek() != Token::CloseList {
                self.tokens.advance();
            }
            if self.tokens.take(&Token::CloseList) {
                return Ok(values);
            }
            if !self.tokens.take(&Token::Comma) {
                return Err(self.fault(", or ]"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
