//! Parser from words to a syntax tree.

use super::{
    CompileError,
    ast::{DEEPEST, Expression, Kind},
    lexer::{Token, tokens},
    macros,
    value::Value,
};

/// Bytes of an expression that the API server takes.
const LONGEST_BYTES: usize = 10 * 1024;

/// Words that are kept for later versions of the language.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Binary operators, from weak to strong; `&&` and `||` bind weaker than all of these.
const OPERATORS: [&[(&str, &str)]; 3] = [
    &[("<", "_<_"), ("<=", "_<=_"), (">=", "_>=_"), (">", "_>_"), ("==", "_==_"), ("!=", "_!=_"), ("in", "@in")],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

/// Parses a text into its tree.
pub(super) fn parse(text: &str) -> Result<Expression, CompileError> {
    if text.len() > LONGEST_BYTES {
        return Err(CompileError::TooLong { bytes: text.len(), longest: LONGEST_BYTES });
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, nesting: 0 };
    let expression = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(expression),
        other => Err(unexpected(other)),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    nesting: u16,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn is_at(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(found) if *found == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_at = self.is_at(sign);
        self.at += usize::from(is_at);
        is_at
    }

    fn expect(&mut self, sign: &str) -> Result<(), CompileError> {
        if self.take(sign) { Ok(()) } else { Err(unexpected(self.peek())) }
    }

    fn expression(&mut self) -> Result<Expression, CompileError> {
        self.nesting += 1;
        if self.nesting > DEEPEST {
            return Err(CompileError::Unsupported(format!("an expression nested deeper than {DEEPEST}")));
        }
        let condition = self.logical("||", "_||_")?;
        let expression = match self.take("?") {
            true => {
                let yes = self.logical("||", "_||_")?;
                self.expect(":")?;
                Expression::call("_?_:_", vec![condition, yes, self.expression()?])?
            }
            false => condition,
        };
        self.nesting -= 1;
        Ok(expression)
    }

    fn logical(&mut self, sign: &str, function: &str) -> Result<Expression, CompileError> {
        let mut terms = Vec::new();
        loop {
            terms.push(if sign == "||" { self.logical("&&", "_&&_")? } else { self.binary(0)? });
            if !self.take(sign) {
                return if terms.len() == 1 { Ok(terms.remove(0)) } else { Expression::call(function, terms) };
            }
        }
    }

    /// Parses operators of this strength and stronger ones, grouped from the left.
    fn binary(&mut self, strength: usize) -> Result<Expression, CompileError> {
        let Some(operators) = OPERATORS.get(strength) else { return self.unary() };
        let mut left = self.binary(strength + 1)?;
        while let Some((sign, function)) = operators.iter().find(|(sign, _)| self.is_at(sign)) {
            self.expect(sign)?;
            let right = self.binary(strength + 1)?;
            left = Expression::call(function, vec![left, right])?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, CompileError> {
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let count = self.tokens[self.at.min(self.tokens.len())..]
                .iter()
                .take_while(|token| **token == Token::Sign(sign))
                .count();
            // One minus in front of a number belongs to the number.
            if count == 0
                || (sign == "-" && count == 1 && matches!(self.tokens[self.at + 1], Token::Int(_) | Token::Double(_)))
            {
                continue;
            }
            self.at += count;
            let operand = self.member()?;
            return if count % 2 == 0 { Ok(operand) } else { Expression::call(function, vec![operand]) };
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expression, CompileError> {
        let mut left = self.primary()?;
        loop {
            left = match () {
                () if self.take(".") => self.field(left)?,
                () if self.take("[") => {
                    let function = if self.take("?") { "_[?_]" } else { "_[_]" };
                    let index = self.expression()?;
                    self.expect("]")?;
                    Expression::call(function, vec![left, index])?
                }
                () if self.is_at("{") => return Err(message(&left)),
                () => return Ok(left),
            };
        }
    }

    fn field(&mut self, left: Expression) -> Result<Expression, CompileError> {
        let is_optional = self.take("?");
        let Token::Name(name) = self.next() else { return Err(unexpected(&self.tokens[self.at - 1])) };
        if is_optional {
            let field = Expression::literal(Value::text(&name));
            return Expression::call("_?._", vec![left, field]);
        }
        if !self.take("(") {
            return Expression::new(Kind::Select { operand: Box::new(left), field: name, is_test: false });
        }
        let arguments = self.expressions(")")?;
        macros::member(left, &name, arguments)
    }

    fn primary(&mut self) -> Result<Expression, CompileError> {
        match self.next() {
            Token::Name(name) => self.name_or_call("", &name),
            Token::Int(number) => i64::try_from(number)
                .map(|number| Expression::literal(Value::Int(number)))
                .map_err(|_| CompileError::Syntax(format!("number {number} is too big"))),
            Token::Uint(number) => Ok(Expression::literal(Value::Uint(number))),
            Token::Double(number) => Ok(Expression::literal(Value::Double(number))),
            Token::Text(text) => Ok(Expression::literal(Value::text(&text))),
            Token::Bytes(bytes) => Ok(Expression::literal(Value::bytes(&bytes))),
            Token::Sign(sign) => self.signed(sign),
            Token::End => Err(unexpected(&Token::End)),
        }
    }

    fn signed(&mut self, sign: &'static str) -> Result<Expression, CompileError> {
        match sign {
            "true" | "false" => Ok(Expression::literal(Value::Bool(sign == "true"))),
            "null" => Ok(Expression::literal(Value::Null)),
            "-" => self.negative(),
            "." => match self.next() {
                Token::Name(name) => self.name_or_call(".", &name),
                other => Err(unexpected(&other)),
            },
            "(" => {
                let inside = self.expression()?;
                self.expect(")")?;
                Ok(inside)
            }
            "[" => self.list(),
            "{" => self.map(),
            _ => Err(unexpected(&Token::Sign(sign))),
        }
    }

    fn negative(&mut self) -> Result<Expression, CompileError> {
        match self.next() {
            Token::Int(number) => 0_i64
                .checked_sub_unsigned(number)
                .map(|number| Expression::literal(Value::Int(number)))
                .ok_or_else(|| CompileError::Syntax(format!("number -{number} is too big"))),
            Token::Double(number) => Ok(Expression::literal(Value::Double(-number))),
            other => Err(unexpected(&other)),
        }
    }

    fn name_or_call(&mut self, dot: &str, name: &str) -> Result<Expression, CompileError> {
        if RESERVED.contains(&name) {
            return Err(CompileError::Syntax(format!("{name} is reserved")));
        }
        let full = format!("{dot}{name}");
        if !self.take("(") {
            return Ok(Expression::name(&full));
        }
        let arguments = self.expressions(")")?;
        macros::global(&full, arguments)
    }

    /// Parses expressions separated by commas, up to the closing sign.
    fn expressions(&mut self, close: &str) -> Result<Vec<Expression>, CompileError> {
        let mut found = Vec::new();
        while !(found.is_empty() && self.take(close)) {
            found.push(self.expression()?);
            if self.take(close) {
                break;
            }
            self.expect(",")?;
        }
        Ok(found)
    }

    fn list(&mut self) -> Result<Expression, CompileError> {
        let mut elements = Vec::new();
        while !self.closes("]", elements.is_empty())? {
            let is_optional = self.take("?");
            elements.push((self.expression()?, is_optional));
        }
        Expression::new(Kind::List(elements))
    }

    fn map(&mut self) -> Result<Expression, CompileError> {
        let mut entries = Vec::new();
        while !self.closes("}", entries.is_empty())? {
            let is_optional = self.take("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?, is_optional));
        }
        Expression::new(Kind::Map(entries))
    }

    /// True if a list ends here; one comma may stand in front of the end.
    fn closes(&mut self, close: &str, is_first: bool) -> Result<bool, CompileError> {
        let had_comma = self.take(",");
        if self.take(close) {
            return Ok(true);
        }
        if had_comma == is_first { Err(unexpected(self.peek())) } else { Ok(false) }
    }
}

/// Error for a message: Kubernetes can build those of one package only, and no selector needs any.
fn message(name: &Expression) -> CompileError {
    match name.dotted().as_deref().map(|name| name.trim_start_matches('.')) {
        Some(name) if name.starts_with("google.") => CompileError::Unsupported(format!("message {name}")),
        Some(name) => CompileError::UnknownName(name.to_owned()),
        None => unexpected(&Token::Sign("{")),
    }
}

fn unexpected(token: &Token) -> CompileError {
    CompileError::Syntax(match token {
        Token::End => "the expression ends too early".to_owned(),
        Token::Name(name) => format!("unexpected {name}"),
        Token::Sign(sign) => format!("unexpected {sign}"),
        Token::Int(number) => format!("unexpected {number}"),
        other => format!("unexpected {other:?}"),
    })
}
